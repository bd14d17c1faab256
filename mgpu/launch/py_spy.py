"""The Python stacks of a rank without a recorder, if py-spy is installed and may read the process.

`--nonblocking`: py-spy reads the memory of the process and does not stop it, so a stack that changes in that moment may
be wrong. A rank that hangs does not change it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mgpu.process import child_process
from mgpu.readers.stack_dump import frame_at
from mgpu.snapshot import StackFrame
from mgpu.structured_text import json_of

_LIMIT_S = 3.0
_MOST_FRAMES = 60


def program(python: str) -> str | None:
    """Return py-spy: on PATH, or beside the interpreter of the rank."""
    beside = Path(python).with_name("py-spy") if python else None
    if beside is not None and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("py-spy")


def stack(spy: str, pid: int) -> tuple[tuple[StackFrame, ...], str | None]:
    """Return the frames of the main thread, the innermost first, and why there are none."""
    try:
        done = child_process.run([spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], _LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return (), "py-spy did not answer"
    if done.returncode:
        refused = b"ermission" in done.stderr or b"ptrace" in done.stderr
        return (), "py-spy may not read it" if refused else "py-spy could not read it"
    try:
        return frames(json_of(done.stdout), pid), None
    except ValueError:
        return (), "py-spy's answer could not be read"


def frames(threads: Any, pid: int) -> tuple[StackFrame, ...]:
    """Return the frames of the main thread in `py-spy dump --json` (py-spy 0.3.8 and later)."""
    found = [one for one in threads if isinstance(one, dict)] if isinstance(threads, list) else []
    main = next((one for one in found if one.get("os_thread_id") == pid), None) or next(
        (one for one in found if one.get("thread_name") == "MainThread"), found[0] if len(found) == 1 else {}
    )
    listed = main.get("frames")
    return tuple(
        frame_at(str(one.get("filename", "")), line, str(one.get("name", "")))
        for one in (listed if isinstance(listed, list) else [])[:_MOST_FRAMES]
        if isinstance(one, dict) and isinstance(line := one.get("line"), int)
    )
