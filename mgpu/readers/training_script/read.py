"""What does a training script do, according to its syntax tree? It is never imported or run."""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Sequence
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.probes.libraries import find_shadowed
from mgpu.readers.training_script.names import Scope, Source
from mgpu.readers.training_script.walk import Walk
from mgpu.secrets_masking import is_secret_name, masked, masked_argv
from mgpu.snapshot import Framework, Script

LARGEST_BYTES = 1 << 20  # of one file; Hugging Face's longest example scripts have 0.1 MiB
MOST_FILES = 50
MOST_BYTES = 256 << 10  # of all modules together: read in about 0.25 s (measured on one core, 2026-11)
MOST_BYTES_AT_LAUNCH = 64 << 10  # delays the start of a run by about 0.06 s
# A module without any of these words is irrelevant for training on several GPUs.
_RELEVANT = re.compile(rb"torch|accelerat|deepspeed|lightning|transformers|rank|distribut|cuda|wandb|save|device")
_OTHER = re.compile(
    r"\.(?:sh|bash|sbatch|slurm|ipynb|yaml|yml|json|toml|txt|log|so|pyc|zip|pt|safetensors)$", re.IGNORECASE
)
# fmt: off
# Libraries that do no distributed training by themselves. If any other imported library was not read, it is not certain
# that nothing is distributed.
_HARMLESS = frozenset({
    "PIL", "absl", "albumentations", "bitsandbytes", "click", "colorama", "cv2", "cycler", "datasets", "dill",
    "dotenv", "einops", "evaluate", "fire", "fsspec", "h5py", "huggingface_hub", "imageio", "jinja2", "joblib",
    "librosa", "loguru", "matplotlib", "medmnist", "mlflow", "networkx", "nltk", "numba", "numpy", "omegaconf",
    "opencv", "orjson", "packaging", "pandas", "plotly", "polars", "psutil", "pyarrow", "pycocotools", "pydantic",
    "regex", "requests", "rich", "rouge", "sacrebleu", "safetensors", "scipy", "seaborn", "sentencepiece",
    "skimage", "sklearn", "soundfile", "spacy", "tabulate", "tensorboard", "tensorboardX", "termcolor",
    "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torcheval", "torchinfo", "torchmetrics",
    "torchsummary", "torchtext", "torchvision", "tqdm", "transformers", "typer", "wandb", "yaml",
})
# fmt: on
_TRAINERS = re.compile(r"(?:transformers|trl|sentence_transformers|setfit|optimum|unsloth)\.(?:[\w.]+\.)?\w*Trainer$")
_LIGHTNING = re.compile(r"lightning\.(?:[\w.]+\.)?(?:Trainer|LightningCLI|Fabric)$|lightning\.fabric\.Fabric$")
_BY_HAND = re.compile(
    r"torch\.distributed\.(?:init_process_group|device_mesh\.init_device_mesh|init_device_mesh"
    r"|fsdp\.(?:FullyShardedDataParallel|fully_shard)|_composable\.fsdp\.fully_shard)$"
    r"|torch\.nn\.parallel\.DistributedDataParallel$"
)
# An object of a library that the file receives as an argument, without importing the library.
_LIBRARY_BACKWARD = re.compile(r"(?:.*[._])?(?:accelerator|fabric|engine)\.backward$", re.IGNORECASE)


def read(path: Path, arguments: Sequence[str] = (), *, follow: bool = True, most_bytes: int = MOST_BYTES) -> Script:
    """Return the fact `script`.

    With `follow`, also reads modules that it imports from its own folder, up to `most_bytes`. If the file is not valid
    Python, `error` has the reason. Raises MgpuError for a file that does not exist or cannot be read.
    """
    shown, given = str(path), tuple(masked_argv(arguments))
    raw = _python(path)
    if isinstance(raw, str):
        return Script(shown, given, error=raw)
    folder = _ScriptFolder(path, follow, most_bytes)
    walk = Walk(folder.find, _mask_value)
    try:
        tree, source = _parse(raw, "", "")
    except SyntaxError as error:
        return Script(shown, given, error=_syntax_error(error), error_line=error.lineno)
    except (ValueError, LookupError, UnicodeError) as error:  # a zero byte, an unknown encoding, not UTF-8
        return Script(shown, given, error=reason(error))
    except (RecursionError, MemoryError):
        return Script(shown, given, error="its expressions are nested too deeply to be read")
    try:
        walk.module(tree, source)
        walk.read_uncalled()
        results = walk.results()
    except RecursionError:
        return Script(shown, given, error="its statements are nested too deeply to be read")
    unread = tuple(sorted({module.partition(".")[0] for module in walk.elsewhere if not _is_harmless(module)}))
    return Script(
        shown,
        given,
        lines=len(source.lines) - (not source.lines[-1]),
        speaks=_speaks(walk, [call.name for call in results["calls"]], bool(unread) or folder.cut or not follow),
        unread=unread,
        files=tuple(folder.files),
        shadowed=find_shadowed(str(folder.folder)),
        **{**results, "cut": results["cut"] or folder.cut},
    )


def _syntax_error(error: SyntaxError) -> str:
    if "encoding declaration" in (error.msg or ""):  # Python's message contains an unknown file name
        return "it is not UTF-8 and does not declare another encoding"
    return (error.msg or "invalid syntax").partition("; use sys.set_int_max_str_digits")[0]


def _python(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to parse it as Python. Raises MgpuError if it cannot be read."""
    try:
        raw = _bytes(path)
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    return raw if isinstance(raw, str) else _not_python(path, raw) or raw


def _bytes(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to read it. Raises OSError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except file_reading.Unreadable as error:
        return error.strerror or "it cannot be read"


def _not_python(path: Path, raw: bytes) -> str | None:
    """Return why a file is not a Python script; None if it may be one."""
    first = raw[:200].partition(b"\n")[0]
    if first.startswith(b"#!") and b"python" not in first:
        return f"it is not a Python script (it starts with {first.decode('utf-8', 'replace').strip()[:40]})"
    if _OTHER.search(path.name):
        return f"it is not a Python script: its name ends in {path.suffix}"
    if raw.startswith((b"\x7fELF", b"PK\x03\x04", b"\x80\x02", b"\x1f\x8b")):
        return "it is not a text file"
    return None


def _parse(raw: bytes, file: str, module: str, package: str = "") -> tuple[ast.Module, Source]:
    coding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    text = raw.decode(coding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    return tree, Source(file, module, re.split(rb"\r\n|\r|\n", text.encode()), package)


def _mask_value(name: str, text: str) -> str:
    """Mask a secret value, recognized by the name it is assigned to or by its format."""
    quoted = text[:1] in "'\"" and len(text) > 2
    if quoted and name and is_secret_name(name):
        return "'***'"
    return masked(text) if len(text) >= 16 and ("'" in text or '"' in text or "://" in text) else text


class _ScriptFolder:
    """The modules in the script's folder. Each is read once, when it is imported, up to a limit."""

    def __init__(self, script: Path, follow: bool, most_bytes: int) -> None:
        self.folder = Path(os.path.realpath(script.parent))
        self.follow, self.most_bytes = follow, most_bytes
        self.files: list[str] = []
        self.scopes: dict[str, Scope | None] = {script.stem: None}
        self.bytes = 0
        self.cut = False

    def find(self, walk: Walk, module: str) -> Scope | None:
        """Return the names of a module; None if it is not in the folder."""
        if module in self.scopes:
            return self.scopes[module]
        self.scopes[module] = None
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):
            return None
        if len(parts) > 1:
            self.find(walk, ".".join(parts[:-1]))  # the package's __init__.py comes first
        place = self.folder.joinpath(*parts)
        path = next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)
        if path is None:
            if place.is_dir() and parts[0] not in sys.stdlib_module_names | _HARMLESS:
                self.scopes[module] = Scope({})
            return self.scopes[module]
        package = module if path.name == "__init__.py" else ".".join(parts[:-1])
        self.scopes[module] = self._read(walk, path, module, package)
        return self.scopes[module]

    def _read(self, walk: Walk, path: Path, module: str, package: str) -> Scope | None:
        real = os.path.realpath(path)
        if not self.follow or os.path.commonpath([real, self.folder]) != str(self.folder):
            return None
        try:
            raw = _bytes(path)
        except OSError:
            return None
        if isinstance(raw, str) or len(self.files) >= MOST_FILES or self.bytes + len(raw) > self.most_bytes:
            self.cut = True
            return None
        name = os.path.relpath(path, self.folder)
        self.files.append(name)
        if not _RELEVANT.search(raw):
            return Scope({})
        self.bytes += len(raw)
        try:
            tree, source = _parse(raw, name, module, package)
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            self.cut = True
            return None
        scope = self.scopes[module] = Scope({})  # for modules that import each other
        scope.names = walk.module(tree, source).names
        return scope


def _is_harmless(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _HARMLESS or top in sys.stdlib_module_names


def _speaks(walk: Walk, calls: Sequence[str], uncertain: bool) -> Framework | None:
    """Return the library that distributes the training; "nothing" if certainly none, None if not known."""
    names = set(calls)
    for name in calls:  # a class of the script, derived from a library's
        seen: set[str] = set()
        while name in walk.bases and name not in seen:
            seen.add(name)
            name = next(iter(walk.bases[name]), "")
            names.add(name)
    if names & {"accelerate.Accelerator", "accelerate.PartialState", "accelerate.AcceleratorState"}:
        return "accelerate"
    if any(_TRAINERS.match(name) for name in names):
        return "trainer"
    if any(_LIGHTNING.match(name) for name in names):
        return "lightning"
    if names & {"deepspeed.initialize", "deepspeed.init_distributed"}:
        return "deepspeed"
    if any(_BY_HAND.match(name) for name in names):
        return "ddp"
    trains = any(name.endswith(".backward") for name in names) and any(name.endswith(".step") for name in names)
    distributed = any(
        re.match(r"torch\.distributed|accelerate\b|deepspeed|lightning|xm\.", name) for name in walk.imports
    ) or any(_LIBRARY_BACKWARD.match(name) for name in names)
    return "nothing" if trains and not uncertain and not distributed else None
