"""What is in a Python file, or another small file, that a job script names?"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

from mgpu import file_reading

LARGEST_BYTES = 256 << 10


def content(path: Path, most: int = LARGEST_BYTES) -> str:
    """Return the text of a file; "" if it cannot be read, or is larger than `most` bytes."""
    try:
        return file_reading.read(path, most=most).decode("utf-8", "replace")
    except OSError:
        return ""


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a text; None if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
