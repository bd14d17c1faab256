"""Which libraries can distribute training, and which certainly do not?"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

_ABSL = re.compile(r"\bflags\.DEFINE_\w+$")
# fmt: off
# Libraries that do no distributed training by themselves. If any other imported library was not read, it is not certain
# that nothing is distributed.
HARMLESS = frozenset({
    "PIL", "absl", "albumentations", "bitsandbytes", "click", "colorama", "cv2", "cycler", "datasets", "dill",
    "dotenv", "einops", "evaluate", "fire", "fsspec", "h5py", "huggingface_hub", "imageio", "jinja2", "joblib",
    "librosa", "loguru", "matplotlib", "medmnist", "mlflow", "networkx", "nltk", "numba", "numpy", "omegaconf",
    "opencv", "orjson", "packaging", "pandas", "plotly", "polars", "psutil", "pyarrow", "pycocotools", "pydantic",
    "regex", "requests", "rich", "rouge", "sacrebleu", "safetensors", "scipy", "seaborn", "sentencepiece",
    "skimage", "sklearn", "soundfile", "spacy", "tabulate", "tensorboard", "tensorboardX", "termcolor",
    "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torcheval", "torchinfo", "torchmetrics",
    "torchsummary", "torchtext", "torchvision", "tqdm", "transformers", "typer", "wandb", "yaml",
})
# Libraries whose names mgpu resolves itself. A checkout of one next to the script is not read in its place.
FRAMEWORKS = frozenset({
    "accelerate", "deepspeed", "diffusers", "fairscale", "lightning", "peft", "pytorch_lightning", "ray", "timm",
    "torch", "torchaudio", "torchvision", "transformers", "trl",
})
# fmt: on


def is_harmless(module: str) -> bool:
    """Whether a module certainly does no distributed training by itself."""
    top = module.partition(".")[0]
    return top in HARMLESS or top in sys.stdlib_module_names


def defined_option(
    name: str, node: ast.Call, keywords: Mapping[str, str], value: Callable[[ast.expr], str]
) -> dict[str, Any] | None:
    """Return the fields of the ScriptOption that a call defines (argparse, click, absl); None if it defines none."""
    names = tuple(a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    if names and _ABSL.search(name):  # flags.DEFINE_integer("local_rank", 0, "its help")
        default = value(node.args[1]) if len(node.args) > 1 else keywords.get("default")
        return {"names": (f"--{names[0]}",), "default": default, "action": name, "type": None}
    if names and (name.endswith(".add_argument") or name in ("click.option", "click.argument")):
        return {"names": names, **{key: keywords.get(key) for key in ("default", "action", "type")}}
    return None
