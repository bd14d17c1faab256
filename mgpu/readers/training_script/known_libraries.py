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
    "Bio", "GPUtil", "IPython", "Levenshtein", "PIL", "SimpleITK", "absl", "adabelief_pytorch", "addict", "aim",
    "albumentations", "anthropic", "ase", "attr", "attrs", "audiomentations", "av", "bert_score", "bitsandbytes",
    "boto3", "botocore", "braceexpand", "captum", "causal_conv1d", "cleanfid", "click", "clip", "cloudpickle",
    "codecarbon", "colorama", "comet_ml", "cv2", "cycler", "datasets", "dateutil", "decord", "diffusers", "dill",
    "dotenv", "dotmap", "duckdb", "e3nn", "easydict", "editdistance", "efficientnet_pytorch", "einops", "ema_pytorch",
    "evaluate", "faiss", "fasttext", "filelock", "fire", "flash_attn", "fsspec", "ftfy", "future", "fvcore", "g2p_en",
    "gdown", "gensim", "gin", "gradio", "gym", "gymnasium", "h5py", "hdbscan", "huggingface_hub", "humanize",
    "igraph", "imageio", "imgaug", "iopath", "ipdb", "jieba", "jinja2", "jiwer", "joblib", "jsonlines", "kornia",
    "librosa", "liger_kernel", "line_profiler", "lion_pytorch", "lmdb", "loguru", "loralib", "lpips", "lz4",
    "mamba_ssm", "math_verify", "matplotlib", "medmnist", "memory_profiler", "ml_collections", "mlflow", "modelscope",
    "monai", "more_itertools", "moviepy", "mpl_toolkits", "msgpack", "munch", "natsort", "neptune", "netCDF4",
    "networkx", "nibabel", "nltk", "numba", "numpy", "nuscenes", "nvitop", "omegaconf", "onnx", "onnxruntime",
    "open3d", "open_clip", "openai", "opencv", "openslide", "opt_einsum", "orjson", "packaging", "pandas",
    "parselmouth", "peft", "pesq", "phonemizer", "piq", "plotly", "polars", "pretrainedmodels", "pretty_midi",
    "prettytable", "prodigyopt", "psutil", "ptflops", "pyBigWig", "pyarrow", "pycocoevalcap", "pycocotools",
    "pydantic", "pydicom", "pyfaidx", "pymatgen", "pympler", "pynvml", "pyquaternion", "pysam", "pyspng", "pystoi",
    "pytest", "pytorch3d", "pytorch_fid", "pytorch_msssim", "pytorch_optimizer", "pytorch_warmup", "pytz", "pyworld",
    "pywt", "qwen_vl_utils", "rdkit", "regex", "requests", "resampy", "rich", "rouge", "rouge_score", "ruamel",
    "sacrebleu", "sacremoses", "safetensors", "schedulefree", "scipy", "seaborn", "segmentation_models_pytorch",
    "sentence_transformers", "sentencepiece", "seqeval", "setproctitle", "shap", "six", "skimage", "sklearn",
    "skvideo", "smplx", "snntorch", "soundfile", "spacy", "spikingjelly", "sqlalchemy", "statsmodels", "streamlit",
    "swanlab", "tables", "tabulate", "tensorboard", "tensorboardX", "termcolor", "thop", "tifffile", "tiktoken",
    "timm", "tokenizers", "toml", "tomli", "torch", "torch_audiomentations", "torch_cluster", "torch_ema",
    "torch_fidelity", "torch_geometric", "torch_optimizer", "torch_scatter", "torch_sparse", "torchaudio", "torchcde",
    "torchcrepe", "torchdiffeq", "torcheval", "torchinfo", "torchlibrosa", "torchmetrics", "torchsde", "torchsummary",
    "torchtext", "torchvision", "tqdm", "trackio", "transformers", "trimesh", "triton", "tslearn", "typer",
    "typing_extensions", "umap", "visdom", "wandb", "warmup_scheduler", "webdataset", "xarray", "xformers", "xgboost",
    "yacs", "yaml", "zarr", "zstandard",
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
