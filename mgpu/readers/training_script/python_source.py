"""Can a file be parsed as Python, and if not, why?"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.readers.training_script.scopes import Source

LARGEST_BYTES = 1 << 20  # of one file; Hugging Face's longest example scripts have 0.1 MiB
PYTHON = ".".join(str(part) for part in sys.version_info[:2])  # its grammar is the one that is used
_OTHER = re.compile(
    r"\.(?:sh|bash|sbatch|slurm|ipynb|yaml|yml|json|toml|txt|log|so|pyc|zip|pt|safetensors)$", re.IGNORECASE
)
# Syntax that only newer versions of Python accept: the version, a pattern of the line, a pattern of the error.
# Source: "What's New In Python" 3.11 to 3.14 (https://docs.python.org/3/whatsnew/).
_NEWER: tuple[tuple[tuple[int, int], str, str], ...] = (
    ((3, 11), r"\s*except\s*\*", ""),  # PEP 654
    ((3, 11), r".*\[.*\*\w", ""),  # PEP 646: a starred expression in an index
    ((3, 12), r"\s*type\s+\w+\s*(?:\[.*\])?\s*=", ""),  # PEP 695
    ((3, 12), r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[", ""),
    ((3, 12), r".*\b[rR]?[fF][rR]?['\"]", ""),  # PEP 701: quotes, backslashes and comments in f-strings
    ((3, 12), "", r"f-string"),
    ((3, 13), r"\s*(?:async\s+)?(?:def|class|type)\s+\w+\s*\[[^\]]*=", ""),  # PEP 696: defaults of type parameters
    ((3, 14), r".*\b[rR]?[tT][rR]?['\"]", ""),  # PEP 750
    ((3, 14), r"\s*except\*?\s+[A-Z][\w.]*\s*(?:,\s*[A-Z][\w.]*\s*)+:", ""),  # PEP 758
)


def read_python(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to parse it as Python. Raises MgpuError if it cannot be read."""
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    return raw if isinstance(raw, str) else _not_python(path, raw) or raw


def read_bytes(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to read it. Raises OSError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except file_reading.Unreadable as error:
        return error.strerror or "it cannot be read"


def _not_python(path: Path, raw: bytes) -> str | None:
    """Return why a file is not a Python script; None if it may be one."""
    first = raw[:200].partition(b"\n")[0]
    if first.startswith(b"#!") and b"python" not in first and not is_python_despite_shebang(path, raw):
        return f"it is not a Python script (it starts with {first.decode('utf-8', 'replace').strip()[:40]})"
    if _OTHER.search(path.name):
        return f"it is not a Python script: its name ends in {path.suffix}"
    if raw.startswith((b"\x7fELF", b"PK\x03\x04", b"\x80\x02", b"\x1f\x8b")):
        return "it is not a text file"
    return None


def is_python_despite_shebang(path: Path, raw: bytes) -> bool:
    """Whether a file whose first line names a shell is valid Python.

    Such a script starts Python with itself, and what the shell runs is a string for Python. Some shell commands are
    valid Python too (`ulimit -n`), so without the suffix .py its second line must begin with a quote.
    """
    second = raw.partition(b"\n")[2].lstrip()[:1]
    if path.suffix != ".py" and (_OTHER.search(path.name) or second not in (b"'", b'"')):
        return False
    try:
        parse(raw, path.name, "")
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return False
    return True


def parse(raw: bytes, file: str, module: str, package: str = "") -> tuple[ast.Module, Source]:
    """Return the syntax tree of a file's content. Raises what `ast.parse` raises."""
    coding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    text = raw.decode(coding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    return tree, Source(file, module, re.split(rb"\r\n|\r|\n", text.encode()), package)


def syntax_error(error: SyntaxError) -> str:
    """Return the text of a syntax error without names of files that do not exist."""
    if "encoding declaration" in (error.msg or ""):  # Python's message contains an unknown file name
        return "it is not UTF-8 and does not declare another encoding"
    return (error.msg or "invalid syntax").partition("; use sys.set_int_max_str_digits")[0]


def newer_python(error: SyntaxError, running: tuple[int, int] = sys.version_info[:2]) -> str | None:
    """Return the version of Python in which the line may be valid, if it is newer than the running one."""
    line, message = error.text or "", error.msg or ""
    for version, of_line, of_message in _NEWER:
        if version > running and re.match(of_line, line) and re.search(of_message, message):
            return ".".join(str(part) for part in version)
    return None
