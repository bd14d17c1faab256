"""Show the port of a script as a diff with reasons, and write it if the user agrees, with a backup."""

from __future__ import annotations

import codecs
import io
import sys
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path

from mgpu import files
from mgpu.errors import NOT_READY, USAGE, MgpuError
from mgpu.port.change import DECIDE
from mgpu.port.ported import Ported
from mgpu.readers.job_script.read import is_job_script
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script import read as training_script_read
from mgpu.report.screen import Screen, wrapped
from mgpu.text import counted, listed, plural, visible

_BOM = codecs.BOM_UTF8.decode()


def offer(path: Path, library: str, say: Callable[[str], None], *, yes: bool, dry_run: bool, can_ask: bool) -> bool:
    """Offer to port a script; return whether it was written. Raises MgpuError."""
    if is_job_script(path):
        raise MgpuError(f"{path} is a job script: --script with --fix ports a training script", USAGE)
    old = _read(path)
    result = _port(old, path, library)
    if result.refused:
        _say_wrapped(say, f"Not ported: {result.refused}.")
        return False
    _show(result, path, library, say)
    if dry_run:
        return False
    if not yes and not can_ask:
        raise MgpuError("--fix asks before it writes, but cannot prompt here. Add --yes, or --dry-run to list", USAGE)
    files.target_inside(path)  # a link that cannot be written through is reported before the question
    if not yes and not _confirm(path):
        say("Not written: declined.")
        return False
    backup = files.back_up(path)
    try:
        if _read(path) != old or _read(backup) != old:
            raise MgpuError(f"{path} has changed in the meantime: not ported", NOT_READY)
        files.write(path, (_BOM if old.startswith(codecs.BOM_UTF8) else "") + result.text)
    except MgpuError:
        backup.unlink(missing_ok=True)
        raise
    say(f"Ported {path} (backup: {backup.name}).")
    return True


def _read(path: Path) -> bytes:
    raw = python_source.read_python(path)
    if isinstance(raw, str):
        raise MgpuError(f"{path}: {raw}", USAGE)
    return raw


def _text(raw: bytes, path: Path) -> str:
    """The text without a byte order mark. Only UTF-8 is ported, because the new text is written as UTF-8."""
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode("utf-8-sig" if coding in ("utf-8", "utf-8-sig") else "ascii")
    except (SyntaxError, UnicodeDecodeError):
        raise MgpuError(f"{path} is not UTF-8: not ported", USAGE) from None


def _port(raw: bytes, path: Path, library: str) -> Ported:
    text = _text(raw, path)
    try:
        from mgpu.port.port_script import port
    except ImportError as error:  # libcst has no wheel for every platform
        raise MgpuError(f"--script with --fix needs libcst ({error}): pip install libcst", NOT_READY) from None
    script = training_script_read.read(path)
    if script.error is not None:
        where = f"line {script.error_line}: " if script.error_line else ""
        newer = f" before Python {script.newer_python}" if script.newer_python else ""
        return Ported(text, refused=f"{where}it is not valid Python{newer} ({script.error})")
    return port(text, path.name, script.speaks, ddp=library == "ddp")


def _show(result: Ported, path: Path, library: str, say: Callable[[str], None]) -> None:
    with_library = "torch.distributed" if library == "ddp" else "Accelerate"
    _say_wrapped(say, f"{path} for any number of ranks, with {with_library}: {counted(len(result.hunks), 'change')}.")
    for hunk in result.hunks:
        say("")
        for reason in hunk.reasons:
            _say_wrapped(say, f"# {reason}", "# ")
        say("\n".join(hunk.lines))
    say("")
    for text, lines in result.notes.items():
        where = f"{plural(len(lines), 'line').capitalize()} {listed(lines)}: " if lines else ""
        _say_wrapped(say, f"Note: {where}{text}", "  ")
    if result.decisions:
        say("")
        _say_wrapped(say, f"{counted(len(result.decisions), 'place')} for you to decide ({DECIDE.strip()}):")
    for text, lines in _by_text(result.decisions).items():
        _say_wrapped(say, f"  {plural(len(lines), 'line')} {listed(lines)}: {text}", "    ")


def _by_text(decisions: Sequence[tuple[int, str]]) -> dict[str, list[int]]:
    """Return each text with its lines."""
    found: dict[str, list[int]] = {}
    for line, text in decisions:
        found.setdefault(text, []).append(line)
    return found


def _say_wrapped(say: Callable[[str], None], text: str, rest: str = "") -> None:
    """Print a paragraph as wide as the screen, its further lines with a prefix."""
    head = text[: len(text) - len(text.lstrip())]
    say("\n".join(wrapped(text.lstrip(), Screen.of().width, head, rest)))


def _confirm(path: Path) -> bool:
    sys.stdout.write(f"  Write {visible(path.name)}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
