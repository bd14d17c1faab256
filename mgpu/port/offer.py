"""Show the port of a script as a diff with reasons, and write it if the user agrees, with a backup."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mgpu import files
from mgpu.errors import NOT_READY, USAGE, MgpuError
from mgpu.port.change import DECIDE
from mgpu.port.ported import Ported
from mgpu.readers.job_script.read import is_job_script
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script import read as training_script_read
from mgpu.text import counted


def offer(path: Path, library: str, say: Callable[[str], None], *, yes: bool, dry_run: bool, can_ask: bool) -> bool:
    """Offer to port a script; return whether it was written. Raises MgpuError."""
    if is_job_script(path):
        raise MgpuError(f"{path} is a job script: --script with --fix ports a training script", USAGE)
    old = _text(path)
    result = _port(old, path, library)
    if result.refused:
        say(f"Not ported: {result.refused}.")
        return False
    _show(result, path, library, say)
    if dry_run:
        return False
    if not yes and not can_ask:
        raise MgpuError("--fix asks before it writes, but cannot prompt here. Add --yes, or --dry-run to list", USAGE)
    if not yes and not _confirm(path):
        say("Not written: declined.")
        return False
    if _text(path) != old:
        raise MgpuError(f"{path} has changed in the meantime: not ported", NOT_READY)
    backup = files.back_up(path)
    try:
        files.write(path, result.text)
    except MgpuError:
        backup.unlink(missing_ok=True)
        raise
    say(f"Ported {path} (backup: {backup.name}).")
    return True


def _text(path: Path) -> str:
    raw = python_source.read_python(path)
    if isinstance(raw, str):
        raise MgpuError(f"{path}: {raw}", USAGE)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise MgpuError(f"{path} is not UTF-8: not ported", USAGE) from None


def _port(text: str, path: Path, library: str) -> Ported:
    try:
        from mgpu.port.port_script import port
    except ImportError as error:  # libcst has no wheel for every platform
        raise MgpuError(f"--script with --fix needs libcst ({error}): pip install libcst", NOT_READY) from None
    return port(text, path.name, training_script_read.read(path).speaks, ddp=library == "ddp")


def _show(result: Ported, path: Path, library: str, say: Callable[[str], None]) -> None:
    with_library = "torch.distributed" if library == "ddp" else "Accelerate"
    say(f"{path} for any number of ranks, with {with_library}: {counted(len(result.hunks), 'change')}.\n")
    for hunk in result.hunks:
        for reason in hunk.reasons:
            say(f"# {reason}")
        say("\n".join(hunk.lines) + "\n")
    for note in result.notes:
        say(f"Note: {note}")
    if result.decisions:
        say(f"\n{counted(len(result.decisions), 'place')} for you to decide ({DECIDE.strip()}):")
        for line, text in result.decisions:
            say(f"  line {line}: {text}")


def _confirm(path: Path) -> bool:
    sys.stdout.write(f"  Write {path.name}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
