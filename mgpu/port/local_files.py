"""The modules of its own that a script imports, from its folder or its package: they are ported with it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mgpu.errors import MgpuError
from mgpu.port.script_files import SourceFile
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script.local_modules import MODEL_FOLDERS
from mgpu.snapshot import Script

# A module without any of these words needs no change, and nothing in it decides about one.
_RELEVANT = re.compile(
    r"\.cuda\(|cuda:|device|\.backward\(|\.step\(|optim|Loader|Dataset|Sampler|_split\(|shuffle|randperm|\.(?:save|load)\("
    r"|print\(|tqdm|Writer|wandb|open\(|mkdirs?\(|savefig|save_image|reduction|size_average|autocast|GradScaler|DataParallel"
    r"|seed|^class \w+\((?!.*(?:Module|Function)\))",
    re.MULTILINE,
)
# Models are often many and large: only where they place something themselves.
_RELEVANT_IN_MODEL = re.compile(
    r"DataParallel|\.cuda\(|cuda:|device|\.backward\(|DataLoader|optim\.|\.(?:save|load)\(|reduction="
)
_MOST_FILES = 60
_MOST_BYTES = 512 << 10  # of all files together: ported in about 10 s (measured on one core, 2026-11)


def find_modules(path: Path, script: Script) -> tuple[list[SourceFile], str]:
    """Return the modules of the script's own that it imports, and its own dotted name if it is run with `python -m`."""
    package = script.module.rpartition(".")[0] if _is_run_as_module(path, script) else ""
    found: list[SourceFile] = []
    size = 0
    for name in script.files:
        if (module := _module(name, package)) is None:
            continue
        text = source_text(path.parent / name)
        if text is None or len(found) >= _MOST_FILES or size + len(text) > _MOST_BYTES:
            continue
        relevant = _RELEVANT_IN_MODEL if MODEL_FOLDERS.intersection(Path(name).parts[:-1]) else _RELEVANT
        if not relevant.search(text) and not name.endswith("__init__.py"):
            continue
        size += len(text)
        found.append(SourceFile(name, module, text))
    return found, script.module if package else ""


def _is_run_as_module(path: Path, script: Script) -> bool:
    """Whether a script in a package imports it by name, or relative to itself: `python -m pkg.train`."""
    if not script.module:
        return False
    top = script.module.partition(".")[0]
    return any(name.startswith(".") or name.partition(".")[0] == top for name in _imported(path))


def _imported(path: Path) -> Iterable[str]:
    raw = python_source.read_python(path)
    if isinstance(raw, str):
        return []
    tree, _ = python_source.parse(raw, path.name, "")
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names]
    return found


def _module(name: str, package: str) -> str | None:
    """The dotted name of a file relative to the script's folder; None if it is in another project or package."""
    parts = [*package.split("."), *PurePosixPath(name).parts] if package else [*PurePosixPath(name).parts]
    while ".." in parts:
        place = parts.index("..")
        if place == 0:
            return None
        del parts[place - 1 : place + 1]
    if package and parts[0] != package.partition(".")[0]:
        return None
    last = parts[-1].removesuffix(".py")
    return ".".join(parts[:-1] if last == "__init__" else [*parts[:-1], last]) or None


def source_text(path: Path) -> str | None:
    """Return the text of a Python file in UTF-8; None if it is not one, or cannot be read."""
    try:
        raw = python_source.read_python(path)
    except MgpuError:
        return None
    return None if isinstance(raw, str) else decoded(raw)


def decoded(raw: bytes) -> str | None:
    """Return the text without a byte order mark. Only UTF-8 is ported, because the new text is written as UTF-8."""
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode("utf-8-sig" if coding in ("utf-8", "utf-8-sig") else "ascii")
    except (SyntaxError, UnicodeDecodeError):
        return None
