"""How does a run come to have an entry, and what is written into it?

By its own supervisor alone: at the start, when the launcher is there, and at the end. What cannot be written costs the
entry, never the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import durations, errors, files
from mgpu.errors import MgpuError
from mgpu.launch import registry
from mgpu.launch.registry import Entry

if TYPE_CHECKING:
    from mgpu.launch.request import Request
    from mgpu.process.command import Command
    from mgpu.process.supervisor import Supervisor

_LONGEST_WORD = 1000
_MOST_WORDS = 100
_KEPT_ENDED = 50
_KEPT_ELSEWHERE = 200  # of which this machine cannot tell whether they have ended


class Kept:
    """The entry of the run that this process supervises. What cannot be written costs only the entry."""

    def __init__(self, entry: Entry, started: Callable[[Entry], None] | None) -> None:
        self.entry, self._tell = entry, started
        _write(entry)

    def tick(self, supervisor: Supervisor) -> None:
        """Called while the launcher lives: the first time it is noted, and whoever waits for it is told."""
        if self.entry.launcher is None and supervisor.launcher is not None:
            self.entry = replace(self.entry, launcher=supervisor.launcher.pid)
            _write(self.entry)
            if self._tell is not None:
                self._tell(self.entry)

    def ended(self, code: int | None, *, signalled: int | None = None, timed_out: bool = False) -> None:
        """How the run has ended; the last word of the entry."""
        self.entry = replace(
            self.entry,
            ended=durations.now(fine=True),
            exit_code=code,
            signalled=_signal_name(signalled),
            timed_out=timed_out,
        )
        _write(self.entry)


@contextlib.contextmanager
def running(
    command: Command, logs: Path, request: Request, started: Callable[[Entry], None] | None = None
) -> Iterator[Kept]:
    """The entry of a run of this process, for as long as the block lasts."""
    kept = Kept(new(command, logs, request), started)
    code: int | None = None
    try:
        yield kept
    except MgpuError as error:
        code = error.exit_code
        raise
    finally:
        if kept.entry.ended is None:
            kept.ended(code)
        _forget_old()  # now, since at the start somebody waits


def new(command: Command, logs: Path, request: Request) -> Entry:
    """The entry of a run that this process is about to start."""
    from mgpu.secrets_masking import masked_argv

    whole = masked_argv(command.argv)
    script = masked_argv([command.script, *command.arguments])
    where = logs.resolve()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", where.name)[:40].strip("-.") or "run"
    digits = next((n for n in (4, 8, 16) if not _is_taken(f"{name}-{command.run_id[:n]}")), 32)
    return Entry(
        id=f"{name}-{command.run_id[:digits]}",
        run_id=command.run_id,
        host=socket.gethostname(),
        boot_id=registry.boot_id(),
        pid_space=registry.pid_space(),
        pid=os.getpid(),
        pid_started=registry.started_at(os.getpid()) or 0,
        folder=_text(str(where)),
        cwd=_text(os.path.realpath(".")),
        target=_words(["-m", *script] if request.module else script),
        command=_words(whole),
        config=_text(request.config or os.environ.get("MGPU_CONFIG") or "accelerate.yaml"),
        started=durations.now(fine=True),  # it orders them
        ranks=command.ranks or None,
        detached=request.detach or request.watch,
    )


def _is_taken(name: str) -> bool:
    try:
        return (registry.folder() / f"{name}.json").exists()
    except OSError:  # no state can be kept: nothing is taken
        return False


def end_lost(entry: Entry) -> None:
    """A run without a supervisor is over: its last processes were ended by somebody else."""
    _write(replace(entry, ended=durations.now(), signalled="SIGTERM"))


def can_keep() -> None:
    """Raises MgpuError when no entry can be kept: a run without a terminal could not be found again."""
    try:
        _private()
    except (OSError, ValueError) as error:
        words = errors.reason(error) if isinstance(error, OSError) else str(error)
        raise MgpuError(f"a detached run could not be found again: {words}", errors.LAUNCH_REFUSED) from None


def _signal_name(number: int | None) -> str | None:
    """SIGTERM ..."""
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _private() -> Path:
    """The folder of the entries: this user's own, and nobody else writes there. Raises OSError and ValueError."""
    files.private_folder(registry.folder().parent)
    path = files.private_folder(registry.folder())
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written")
    return path


def _write(entry: Entry) -> None:
    """Replace the entry in one step; a link in its place is replaced, not followed."""
    with contextlib.suppress(OSError, ValueError, MgpuError):
        path = _private() / f"{entry.id}.json"
        if path.is_symlink():
            path.unlink()
        files.write(path, json.dumps(dataclasses.asdict(entry), indent=1) + "\n", mode=0o600)


def _forget_old() -> None:
    """Drop the oldest entries of runs that are over."""
    kept = {"ended": _KEPT_ENDED, "elsewhere": _KEPT_ELSEWHERE}
    for entry in registry.entries()[0]:
        kind = "ended" if (now := registry.look(entry)[1]) == "lost" else now
        if kind == "running":
            continue
        kept[kind] -= 1
        if kept[kind] < 0:
            with contextlib.suppress(OSError):
                registry.path_of(entry).unlink()


def _words(words: Sequence[str]) -> tuple[str, ...]:
    short = tuple(_text(word[:_LONGEST_WORD]) for word in words[:_MOST_WORDS])
    return (*short, "...") if len(words) > _MOST_WORDS else short


def _text(text: str) -> str:
    """What was no text (a surrogate of os.fsdecode) cannot be written."""
    return text.encode("utf-8", "replace").decode("utf-8")
