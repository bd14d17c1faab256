"""Write the registry entry of a run.

Only the run's own supervisor writes it: at the start, once the launcher is running, and at the end. A write error
loses the entry, never the run.
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
from mgpu.process.boot import boot_id

if TYPE_CHECKING:
    from mgpu.launch.request import Request
    from mgpu.process.command import Command
    from mgpu.process.supervisor import Supervisor

_LONGEST_ARGUMENT = 1000  # characters
_MOST_ARGUMENTS = 100
_KEPT_ENDED = 50
_KEPT_ELSEWHERE = 200  # runs of other hosts: this machine cannot determine whether they have ended


class Kept:
    """The entry of the run that this process supervises. A write error loses only the entry."""

    def __init__(self, entry: Entry, started: Callable[[Entry], None] | None) -> None:
        self.entry, self._on_start = entry, started
        _write(entry)

    @property
    def name(self) -> str:
        """Return the ID by which `mgpu launch --report` finds the run; "" if the entry could not be written."""
        return self.entry.id if registry.path_of(self.entry).exists() else ""

    def tick(self, supervisor: Supervisor) -> None:
        """Record the launcher's pid on the first call that sees it, and call `started`."""
        if self.entry.launcher is None and supervisor.launcher is not None:
            self.entry = replace(self.entry, launcher=supervisor.launcher.pid)
            _write(self.entry)
            if self._on_start is not None:
                self._on_start(self.entry)

    def ended(self, code: int | None, *, signalled: int | None = None, timed_out: bool = False) -> None:
        """Record how the run ended; nothing is written to the entry after this."""
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
    """Keep the entry of a run of this process while the block runs."""
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
        _drop_old()  # at the end, because at the start the user is waiting


def new(command: Command, logs: Path, request: Request) -> Entry:
    """Return the entry of a run that this process is about to start."""
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
        boot_id=boot_id(),
        pid_space=registry.pid_space(),
        pid=os.getpid(),
        pid_started=registry.started_at(os.getpid()) or 0,
        folder=_text(str(where)),
        cwd=_text(os.path.realpath(".")),
        target=_shorten(["-m", *script] if request.module else script),
        command=_shorten(whole),
        config=_text(request.config or _default_config(request)),
        started=durations.now(fine=True),  # runs are sorted by it
        ranks=command.ranks or None,
        detached=request.detach or request.watch,
    )


def _default_config(request: Request) -> str:
    return "none" if request.foreign else os.environ.get("MGPU_CONFIG") or "accelerate.yaml"


def _is_taken(name: str) -> bool:
    try:
        return (registry.folder() / f"{name}.json").exists()
    except OSError:  # no state folder: no name is taken
        return False


def end_lost(entry: Entry) -> None:
    """Record the end of a run without a supervisor, whose last processes were just stopped."""
    _write(replace(entry, ended=durations.now(), signalled="SIGTERM"))


def can_keep() -> None:
    """Raise MgpuError if no entry can be written: a run without a terminal could not be found again."""
    try:
        _private_folder()
    except (OSError, ValueError) as error:
        why = errors.reason(error) if isinstance(error, OSError) else str(error)
        raise MgpuError(f"a detached run could not be found again: {why}", errors.LAUNCH_REFUSED) from None


def _signal_name(number: int | None) -> str | None:
    """Return the name of a signal (SIGTERM)."""
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _private_folder() -> Path:
    """Return the folder of the entries, writable by this user only. Raises OSError and ValueError."""
    files.private_folder(registry.folder().parent)
    path = files.private_folder(registry.folder())
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"{path} is not writable")
    return path


def _write(entry: Entry) -> None:
    """Replace the entry atomically; a symbolic link in its place is replaced, not followed."""
    with contextlib.suppress(OSError, ValueError, MgpuError):
        path = _private_folder() / f"{entry.id}.json"
        if path.is_symlink():
            path.unlink()
        files.write(path, json.dumps(dataclasses.asdict(entry), indent=1) + "\n", mode=0o600)


def _drop_old() -> None:
    """Drop the oldest entries of finished runs."""
    kept = {"ended": _KEPT_ENDED, "elsewhere": _KEPT_ELSEWHERE}
    for entry in registry.entries()[0]:
        kind = "ended" if (now := registry.refresh(entry)[1]) == "lost" else now
        if kind == "running":
            continue
        kept[kind] -= 1
        if kept[kind] < 0:
            with contextlib.suppress(OSError):
                registry.path_of(entry).unlink()


def _shorten(arguments: Sequence[str]) -> tuple[str, ...]:
    short = tuple(_text(argument[:_LONGEST_ARGUMENT]) for argument in arguments[:_MOST_ARGUMENTS])
    return (*short, "...") if len(arguments) > _MOST_ARGUMENTS else short


def _text(text: str) -> str:
    """Replace what is not valid text (surrogates of os.fsdecode), because it cannot be written."""
    return text.encode("utf-8", "replace").decode("utf-8")
