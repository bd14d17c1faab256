"""Look up which release of a package has what a message names, and which package to move.

The tables are in `_version_changes*.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from . import _version_changes as first
from . import _version_changes_2026 as later
from . import _version_changes_data as of_data
from . import _version_changes_megatron as of_megatron
from . import _version_changes_trainers as of_trainers
from ._version_changes import PASSED, USED_BY

CHANGES = f"{first.CHANGES}{later.CHANGES}{of_trainers.CHANGES}{of_data.CHANGES}"
MODELS = f"{first.MODELS}{later.MODELS}"
PAGES = {**first.PAGES, **later.PAGES, **of_megatron.PAGES, **of_trainers.PAGES, **of_data.PAGES}

# Packages whose name on PyPI is not the name of their module.
# fmt: off
_DISTRIBUTIONS = {
    "PIL": "pillow", "_cffi_backend": "cffi", "attr": "attrs", "awq": "autoawq",
    "bs4": "beautifulsoup4", "cv2": "opencv-python-headless",
    "distutils": "setuptools", "dotenv": "python-dotenv", "faiss": "faiss-cpu", "fla": "flash-linear-attention",
    "git": "GitPython", "google": "protobuf", "hydra": "hydra-core",
    "jwt": "PyJWT", "megatron": "megatron-core", "open_clip": "open-clip-torch", "pkg_resources": "setuptools",
    "pynvml": "nvidia-ml-py", "rouge": "rouge-score", "ruamel": "ruamel.yaml", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "swift": "ms-swift", "unsloth_compiled_cache": "unsloth",
    "yaml": "PyYAML", "zmq": "pyzmq",
}
# Modules of a namespace that come with another distribution than the rest of it.
_PARTS = {"megatron.bridge": "megatron-bridge", "megatron.energon": "megatron-energon"}
# What pip must install for a module, if that is more than a name. `pip show` accepts names only.
_REQUIREMENTS = {"pkg_resources": "setuptools<81", "transformer_engine": "transformer-engine[pytorch]"}
# Modules compiled by a package's own build; pip cannot install them separately.
_COMPILED = {
    "amp_C": "apex", "apex_C": "apex", "fused_layer_norm_cuda": "apex", "fused_weight_gradient_mlp_cuda": "apex",
    "flash_attn_2_cuda": "flash-attn", "flash_attn_3_cuda": "flash-attn",
    "transformer_engine_torch": "transformer-engine",
    "causal_conv1d_cuda": "causal-conv1d", "selective_scan_cuda": "mamba-ssm", "deep_ep_cpp": "deep-ep",
    "exllamav2_kernels": "exllamav2", "grouped_gemm_backend": "grouped-gemm",
}
# fmt: on
# Packages that training code imports, besides those in the tables.
_OTHERS = frozenset(
    {
        "apex",
        "deepspeed",
        "lightning",
        "megatron",
        "ray",
        "sglang",
        "swift",
        "tensordict",
        "tokenizers",
        "torchao",
        "torchaudio",
        "torchdata",
        "transformer_engine",
        "unsloth",
        "unsloth_zoo",
        "verl",
        "vllm",
        "xformers",
    }
)
# Classes and functions of packages of which the tables have no releases.
_OWNERS = {
    "AsyncEngineArgs": "vllm",
    "EngineArgs": "vllm",
    "LLM": "vllm",
    "LLMEngine": "vllm",
    "SamplingParams": "vllm",
    "DeepSpeedEngine": "deepspeed",
    "DataLoader": "torch",
    "DistributedDataParallel": "torch",
    "FullyShardedDataParallel": "torch",
    "GradScaler": "torch",
    "init_process_group": "torch",
    "Int8Params": "bitsandbytes",
    "Linear4bit": "bitsandbytes",
    "Linear8bitLt": "bitsandbytes",
    "Params4bit": "bitsandbytes",
    "TransformerConfig": "megatron",
    "LayerNormLinear": "transformer_engine",
    "TELinear": "transformer_engine",
    "flash_attn_func": "flash_attn",
    "flash_attn_varlen_func": "flash_attn",
}
# Words of names that belong to one package: `_unsloth_get_batch_samples`, `SGLangRollout`.
# fmt: off
_IN_NAMES = (
    (r"unsloth", "unsloth"), (r"(?:^|_)verl(?:_|$)", "verl"), (r"sglang|SGLang", "sglang"), (r"vllm|VLLM|vLLM", "vllm"),
    (r"deepspeed|DeepSpeed", "deepspeed"), (r"megatron|Megatron", "megatron"), (r"^MM[A-Z]", "mmcv"),
    (r"lightning|Lightning", "lightning"), (r"liger|Liger", "liger_kernel"), (r"flash_attn|FlashAttn", "flash_attn"),
    (r"axolotl|Axolotl", "axolotl"), (r"^Peft|^Lora[A-Z]", "peft"), (r"torchtune", "torchtune"),
)
# fmt: on
PYTHONS_OWN = frozenset({"asyncio", "collections", "dataclasses", "enum", "functools", "inspect", "typing", "types"})
_OF_MODEL = re.compile(r"(?:Config|Model|For[A-Z]\w*|PreTrained\w*|Processor\w*|ImageProcessor\w*|Tokenizer\w*)$")
# Layers of the models of transformers: "LlamaRotaryEmbedding", "Qwen2FlashAttention2".
_OF_LAYER = re.compile(
    r"(?P<model>[A-Z]\w*?)(?:RotaryEmbedding|(?:Sdpa|Flash|Self)?Attention2?|DecoderLayer|EncoderLayer|RMSNorm|MLP|"
    r"SparseMoeBlock|Model|PreTrainedModel|For[A-Z]\w+)$"
)
_OLD_MODELS = frozenset(
    {"Bert", "Bloom", "Falcon", "GPT2", "GPTJ", "GPTNeoX", "Llama", "OPT", "Roberta", "T5", "Whisper"}
)
_CUT = 8  # characters of a name that suffice to know it
_ITEM = re.compile(r"(?P<what>[^=@]+)(?:@(?P<module>\w+))?(?:=(?P<instead>.+))?")


# How the names of a base class's subclasses end, as a pattern of `re`; without a row: like its own.
_MODELS_END = r"\wFor[A-Z]\w*|PreTrainedModel|PeftModel\w*|(?:Llama|Qwen\w*|Mistral|Gemma\w*|Bert|Roberta|GPT2|T5)Model"
_NAMES_OF_SUBCLASSES = {
    "GenerationMixin": _MODELS_END,
    "PreTrainedModel": _MODELS_END,
    "PreTrainedConfig": r"^(?!SFT|DPO|GRPO|KTO|RLOO|PPO|ORPO|CPO|Reward|Lora|Peft|BitsAndBytes|Generation|Vllm|Script)"
    r"[A-Z]\w+Config",
    "PreTrainedTokenizerBase": r"Tokenizer(?:Fast)?|TokenizersBackend",
}


@dataclass(frozen=True)
class Known:
    """What the tables hold about one argument, attribute, name or module of a package."""

    package: str  # import name
    added: str | None = None  # first release that has it; None: before the table begins
    removed: str | None = None  # first release without it
    instead: str | None = None  # what replaced it
    user: str | None = None  # import name of the package that is known to use it

    @property
    def requirement(self) -> str:
        """Return the releases that have it, for pip: "trl>=0.12,<0.16"."""
        bounds = (f">={self.added}" if self.added else "", f"<{self.removed}" if self.removed else "")
        return f"{distribution(self.package)}{','.join(bound for bound in bounds if bound)}"


def distribution(module: str) -> str:
    """Return the name on PyPI of a package, from the dotted name of a module in it."""
    if part := part_of(module):
        return part
    top = module.partition(".")[0]
    return _COMPILED.get(top) or _DISTRIBUTIONS.get(top) or top.lstrip("_").replace("_", "-")


def part_of(module: str) -> str | None:
    """Return the distribution of a module in a namespace that several distributions share; None for other modules."""
    return _PARTS.get(".".join(module.split(".")[:2]))


def requirement_for(module: str) -> str:
    """Return what pip must install for a module: its distribution, with extras and bounds."""
    return _REQUIREMENTS.get(module.partition(".")[0]) or distribution(module)


def is_known(package: str) -> bool:
    """Whether this is a package that others install too, not a folder of the user's."""
    return package in PAGES or package in _OTHERS


def compiled_by(module: str) -> str | None:
    """Return the package whose build makes this extension module; None if pip installs it as it is."""
    return _COMPILED.get(module)


def month(package: str, release: str) -> str:
    """Return "trl 0.16 (2025-03)", or without the month if it is not known."""
    tables = (first.RELEASED, later.RELEASED, of_megatron.RELEASED, of_trainers.RELEASED, of_data.RELEASED)
    words = " ".join(table.get(package, "") for table in tables).split()
    when = dict(zip(words[::2], words[1::2], strict=True)).get(release)
    return f"{distribution(package)} {release}{f' ({when})' if when else ''}"


def page(package: str, release: str) -> str:
    """Return the address of the notes of a release, or of the page about its changes."""
    return PAGES[package].format(release=release)


def find_argument(call: str, name: str) -> Known | None:
    """Look up an argument of a call as Python names it: "SFTTrainer.__init__", "hf_hub_download", "__init__"."""
    owner = call.removesuffix(".__init__").removesuffix(".init")  # issue trackers drop the underscores
    found = _table().get(f"{owner}({name})") or _table().get(f"{_base(owner)}({name})")
    if not found and re.search(rf"(?:{_MODELS_END})$", owner):  # from_pretrained() passes on what it does not know
        found = _table().get(f"PreTrainedModel({name})")
    if not found and owner.endswith("TransformerConfig"):  # MLATransformerConfig and others are derived from it
        found = _table().get(f"TransformerConfig({name})")
    if not found and call in ("__init__", "init"):  # Python before 3.10 does not name the class
        found = [
            one for what, known in _table().items() if what.endswith(f"({name})") and what[0].isupper() for one in known
        ]
    return found[0] if found and len({one.package for one in found}) == 1 else None


def class_with(name: str) -> str | None:
    """Return the only class in the table that has this argument: Python before 3.10 does not name it in a message."""
    found = [what.partition("(")[0] for what in _table() if what.endswith(f"({name})") and what[0].isupper()]
    return found[0] if len(found) == 1 else None


def find_passed(call: str, name: str) -> str | None:
    """Return the release of transformers that began to pass this argument to an overridden method."""
    wanted = f"{call.rpartition('.')[2]}({name})"
    cut = wanted[:-1] if len(name) >= _CUT else f"{wanted})"  # a message that was copied in part
    passed = [(line.split()[1], one) for line in PASSED.splitlines() for one in line.split()[2:]]
    return next((release for release, one in passed if one == wanted or one.startswith(cut)), None)


def find_attribute(owner: str, name: str) -> Known | None:
    """Look up an attribute of a class. Classes of models are taken for their base class."""
    found = _table().get(f"{owner}.{name}") or _table().get(f"{owner}({name})")  # fields of dataclasses are arguments
    found = found or [
        one
        for what, known in _table().items()
        if what.endswith(f".{name}") and what[0].isupper() and _derives(owner, what.partition(".")[0])
        for one in known
    ]
    return found[0] if found else None


def _derives(owner: str, base: str) -> bool:
    """Whether a class is probably a subclass, from its name: "MyTrainer" of Trainer, "LlamaForCausalLM" of a model."""
    names = _NAMES_OF_SUBCLASSES.get(base, base)
    return bool(re.search(rf"(?:{names})$", owner))


def attribute_names() -> tuple[str, ...]:
    """Return the attributes in the table."""
    return tuple(sorted({what.partition(".")[2] for what in _table() if re.fullmatch(r"[A-Z]\w*\.\w+", what)}))


def class_names() -> tuple[str, ...]:
    """Return the classes in the table that hold settings, which scripts read and other packages define."""
    names = {re.split(r"[.(]", what)[0] for what in _table() if re.match(r"[A-Z]\w*[.(]", what)}
    return tuple(sorted(name for name in names if re.search(r"(?:Config|Arguments|Configuration|Plugin|Cache)$", name)))


def find_name(module: str, name: str) -> Known | None:
    """Look up a name that was imported from a module, or read from it."""
    package, last = module.partition(".")[0], module.rpartition(".")[2]
    for key in (f"{name}@{last}", name, f"*@{last}"):
        for one in _table().get(key, ()):
            if one.package == package or (one.package, package) == ("setuptools", "pkg_resources"):
                return one
    release = find_model(name) if package == "transformers" else None
    return Known("transformers", added=release) if release else None


def find_module(module: str) -> Known | None:
    """Look up a module of a package, or the one that contains it: "transformers.deepspeed"."""
    package, _, rest = module.partition(".")
    while rest:
        for one in _table().get(f"/{rest}", ()):
            if one.package == package:
                return one
        if (found := re.fullmatch(r"models\.(\w+)", rest)) and package == "transformers":
            release = find_model(found[1])
            return Known(package, added=release) if release else None
        rest = rest.rpartition(".")[0]
    return None


def find_model(name: str) -> str | None:
    """Return the first release of transformers with a model: "qwen3_moe", "Qwen3MoeForCausalLM"."""
    key = _OF_MODEL.sub("", name).replace("_", "").replace("-", "").lower()
    return _models().get(key)


def model_types() -> tuple[str, ...]:
    """Return the model types in the table."""
    return tuple(word for line in MODELS.splitlines() for word in line.split()[1:])


def package_of(call: str) -> str | None:
    """Return the package whose class or function the table has under this name; None if several have."""
    owner = _base(call).partition(".")[0]
    if owner == "ConfigDict":  # also of mmengine and ml_collections, which name their configs so
        return None
    found = {one.package for what, known in _table().items() if re.split(r"[.(]", what)[0] == owner for one in known}
    if len(found) == 1:
        return found.pop()
    layer = _OF_LAYER.match(owner)
    of_model = bool(layer and (layer["model"] in _OLD_MODELS or layer["model"].lower() in _models()))
    return _OWNERS.get(owner) or ("transformers" if of_model else None)


def package_in_name(name: str) -> str | None:
    """Return the package that a name of a function or class contains; None if it contains none."""
    return next((package for pattern, package in _IN_NAMES if re.search(pattern, name)), None)


def _base(owner: str) -> str:
    """Return the class that a subclass was probably named after: "_UnslothSFTTrainer.x" -> "SFTTrainer.x"."""
    head, dot, rest = owner.partition(".")
    return f"{re.sub('^(?:_?Unsloth|_)', '', head)}{dot}{rest}"


@cache
def _models() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in MODELS.splitlines():
        release, *names = line.split() or [""]
        for name in names:
            found.setdefault(name.replace("_", ""), release)
    return found


@cache
def _table() -> dict[str, list[Known]]:
    """Return the changes by item: "SFTTrainer(tokenizer)", "Cache.seen_tokens", "AdamW", "VideoInput@image_utils"."""
    found: dict[str, list[Known]] = defaultdict(list)
    for package, release, sign, item in _changes():
        part = _ITEM.fullmatch(item)
        assert part is not None, item
        key = f"{part['what']}@{part['module']}" if part["module"] else part["what"]
        known = next((one for one in found[key] if one.package == package), None)
        if known is not None:
            found[key].remove(known)
        known = known or Known(package)
        known = (
            replace(known, added=release) if sign == "+" else replace(known, removed=release, instead=part["instead"])
        )
        found[key].append(replace(known, user=USED_BY.get((package, item.partition("=")[0]))))
    return dict(found)


def _changes() -> Iterator[tuple[str, str, str, str]]:
    for line in (CHANGES + of_megatron.CHANGES).splitlines():
        package, release, sign, *items = line.split() or ("", "", "")
        for item in items:
            owner, several, names = item.partition("(")
            if several and "," in names:
                yield from ((package, release, sign, f"{owner}({name})") for name in names.rstrip(")").split(","))
            else:
                yield package, release, sign, item
