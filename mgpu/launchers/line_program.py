"""Which file does a launch line run, and with which Python?"""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from pathlib import Path

from mgpu import file_reading
from mgpu.errors import CANNOT_RUN, NOT_FOUND, MgpuError
from mgpu.launchers.foreign_programs import FRAMEWORKS, LAUNCHERS
from mgpu.readers.job_script import programs
from mgpu.text import visible

_FIRST_LINE = 4096


def find(word: str) -> str:
    """Return the path of a line's program, as the shell would find it. Raises MgpuError (126, 127)."""
    if found := shutil.which(word):
        return found
    path = Path(word)
    if path.is_dir():
        raise MgpuError(f"{visible(path)} is a folder, not a command", CANNOT_RUN)
    if "/" in word and path.exists():
        raise MgpuError(f"{visible(path)} is not executable:  chmod +x, or start it with its interpreter", CANNOT_RUN)
    raise MgpuError(f"command {visible(path)} not found{_hint(word)}", NOT_FOUND)


def _hint(word: str) -> str:
    """Return where else the command is, or a similar name."""
    if "/" in word:
        return ""
    beside = Path(sys.executable).parent / word
    if os.access(beside, os.X_OK):
        return f" in PATH. It is installed beside mgpu: {visible(beside)}"
    frameworks = [name for one in FRAMEWORKS if one.framework for name in one.framework.commands]
    near = difflib.get_close_matches(word, [*LAUNCHERS, *frameworks, "python"], n=1)
    return f" in PATH. Did you mean {near[0]}?" if near and near[0] != word else " in PATH"


def other_python(program: str, word: str) -> str | None:
    """Return the Python of the ranks if it is in another environment than mgpu's; None if it is not, or not known.

    `program`: the path of the line's program `word`. A console script names its interpreter in its first line.
    """
    python = program if programs.is_python(word) else _of_shebang(program)
    if python is None:
        return None
    here, there = (os.path.realpath(os.path.dirname(one)) for one in (sys.executable, python))
    return None if here == there else python


def _of_shebang(program: str) -> str | None:
    try:
        first = file_reading.read_start(program, most=_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return None
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and programs.base(words[0]) == "env":
        words = [found for word in words[1:2] if (found := shutil.which(word))]
    return words[0] if words and programs.is_python(words[0]) and os.access(words[0], os.X_OK) else None
