"""What is in an existing config, and which of its lines would change?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.config.reading import LARGEST_BYTES
from mgpu.errors import MgpuError


def text_of(path: Path) -> str:
    """Return the text of a file that may be a config. Raises MgpuError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {errors.reason(error)}", errors.NOT_READY) from None


def differences(path: Path, text: str) -> list[str]:
    """Return the lines the file would lose (-) and gain (+), without comments."""
    before = text_of(path).splitlines() if path.is_file() else []
    return changed_lines(filter(None, map(_bare, before)), filter(None, map(_bare, text.splitlines())))


def changed_lines(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Return the lines that are removed (-) and added (+)."""
    found = difflib.unified_diff([*old], [*new], lineterm="", n=0)
    return [f"  {line}" for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _bare(line: str) -> str:
    return "" if line.lstrip().startswith("#") else re.sub(r"\s{2,}#.*$", "", line).rstrip()
