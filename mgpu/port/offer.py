"""Show the port of a script as a diff with reasons, and write it if the user agrees, with a backup."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu import files
from mgpu.errors import NOT_READY, REFUSED, USAGE, MgpuError
from mgpu.port import local_files
from mgpu.port.change import DECIDE
from mgpu.port.ported import Ported, PortedFile
from mgpu.port.source_tree import Place
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
    new = [_File(path, old, result.text), *(_other(path.parent / one.name, one) for one in result.others)]
    for one in new:
        files.target_inside(one.path)  # a link that cannot be written through is reported before the question
    if not yes and not _confirm(new):
        say("Not written: declined.")
        return False
    backups = _write(new)
    for one in new:
        backup = backups.get(one.path)
        say(f"Ported {one.path} (backup: {backup.name})." if backup is not None else f"Created {one.path}.")
    return True


@dataclass(frozen=True)
class _File:
    """A file to write."""

    path: Path
    old: bytes | None  # None: it does not exist
    text: str


def _other(path: Path, ported: PortedFile) -> _File:
    """A module that changes with the script. Raises MgpuError if it has changed since it was ported."""
    if ported.old is None:
        if path.exists() or path.is_symlink():
            raise MgpuError(f"{path} exists, but the port needs a new file of this name: rename it first", REFUSED)
        return _File(path, None, ported.text)
    raw = _read(path)
    if local_files.decoded(raw) != ported.old:
        raise MgpuError(f"{path} has changed in the meantime: not ported", NOT_READY)
    return _File(path, raw, ported.text)


def _write(new: Sequence[_File]) -> dict[Path, Path]:
    """Write all files or none, and return their backups. Raises MgpuError."""
    backups: dict[Path, Path] = {}
    written: list[_File] = []
    try:
        for one in new:
            if one.old is not None:
                backups[one.path] = files.back_up(one.path)
        for one in new:
            if one.old is not None and not (_read(one.path) == one.old == _read(backups[one.path])):
                raise MgpuError(f"{one.path} has changed in the meantime: not ported", NOT_READY)
        for one in new:
            marked = one.old is not None and one.old.startswith(codecs.BOM_UTF8)
            written.append(one)
            files.write(one.path, (_BOM if marked else "") + one.text)
    except MgpuError:
        _restore(written)
        for backup in backups.values():
            backup.unlink(missing_ok=True)
        raise
    return backups


def _restore(written: Sequence[_File]) -> None:
    """Put the old text back where a file was written. Raises MgpuError."""
    for one in written:
        if one.old is None:
            one.path.unlink(missing_ok=True)
        elif local_files.source_text(one.path) == one.text:
            files.write(one.path, one.old.decode())


def _read(path: Path) -> bytes:
    raw = python_source.read_python(path)
    if isinstance(raw, str):
        raise MgpuError(f"{path}: {raw}", USAGE)
    return raw


def _port(raw: bytes, path: Path, library: str) -> Ported:
    if (text := local_files.decoded(raw)) is None:
        raise MgpuError(f"{path} is not UTF-8: not ported", USAGE)
    try:
        from mgpu.port.port_script import port
    except ImportError as error:  # libcst has no wheel for every platform
        raise MgpuError(f"--script with --fix needs libcst ({error}): pip install libcst", NOT_READY) from None
    script = training_script_read.read(path)
    if script.error is not None:
        where = f"line {script.error_line}: " if script.error_line else ""
        newer = f" before Python {script.newer_python}" if script.newer_python else ""
        return Ported(text, refused=f"{where}it is not valid Python{newer} ({script.error})")
    others, module = local_files.find_modules(path, script)
    return port(text, script.speaks, ddp=library == "ddp", others=others, module=module)


def _show(result: Ported, path: Path, library: str, say: Callable[[str], None]) -> None:
    with_library = "torch.distributed" if library == "ddp" else "Accelerate"
    every = [(str(path), result.hunks), *((str(path.parent / one.name), one.hunks) for one in result.others)]
    count = counted(sum(len(hunks) for _, hunks in every), "change")
    of_files = f" in {counted(len(every), 'file')}" if len(every) > 1 else ""
    _say_wrapped(say, f"{path} for any number of ranks, with {with_library}: {count}{of_files}.")
    for name, hunks in every:
        if len(every) > 1:
            say(f"\n{visible(name)}")
        for hunk in hunks:
            say("")
            for reason in hunk.reasons:
                _say_wrapped(say, f"# {reason}", "# ")
            say("\n".join(hunk.lines))
    say("")
    for text, places in result.notes.items():
        where = _places(places)
        start = where.capitalize() if where.startswith("line") and "," not in where else where
        _say_wrapped(say, f"Note: {start}{': ' if where else ''}{text}", "  ")
    if result.decisions:
        say("")
        _say_wrapped(say, f"{counted(len(result.decisions), 'place')} for you to decide ({DECIDE.strip()}):")
    for text, places in _by_text(result.decisions).items():
        _say_wrapped(say, f"  {_places(places)}: {text}", "    ")


def _places(places: Sequence[Place]) -> str:
    """The places as text: `lines 3 and 4, engine.py line 5`."""
    lines: dict[str, list[int]] = {}
    for file, line in places:
        lines.setdefault(file, []).append(line)
    return ", ".join(f"{visible(file)} {plural(len(own), 'line')} {listed(own)}".strip() for file, own in lines.items())


def _by_text(decisions: Sequence[tuple[Place, str]]) -> dict[str, list[Place]]:
    """Return each text with its places."""
    found: dict[str, list[Place]] = {}
    for place, text in decisions:
        found.setdefault(text, []).append(place)
    return found


def _say_wrapped(say: Callable[[str], None], text: str, rest: str = "") -> None:
    """Print a paragraph as wide as the screen, its further lines with a prefix."""
    head = text[: len(text) - len(text.lstrip())]
    say("\n".join(wrapped(text.lstrip(), Screen.of().width, head, rest)))


def _confirm(new: Sequence[_File]) -> bool:
    names = listed([visible(one.path.name) for one in new])
    sys.stdout.write(f"  Write {names}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
