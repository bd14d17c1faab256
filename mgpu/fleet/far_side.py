"""A worker on a host that was reached with ssh. It stops by itself when no more messages arrive.

It runs from a private folder with mgpu's source (hosts/payload.py), which it removes at its end. The network may break
without the connection ending here, so the other side sends a message every two seconds.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mgpu.fleet import worker
from mgpu.process import scratch

if TYPE_CHECKING:
    from mgpu.fleet import far_run

SILENT_S = 12.0  # without a message, of which one comes every 2 s: the network or the other side has failed
_IDLE_S = 0.5


def main(place: str, name: str, folder: str, wanted: str) -> None:
    """Serve commands until the connection ends; then remove `place`, the folder with mgpu's source.

    `folder`: the project's; `wanted`: the project's Python, which may not be the one that runs this.
    """
    error = None
    try:
        os.chdir(folder)
    except OSError as failure:
        error = failure.strerror
    other = "" if sys.executable == wanted else environment(wanted)
    with scratch.adopted(place):
        incoming = _Incoming()
        worker.serve(lambda answers: _FarNode(answers, name, error, incoming, other), incoming)
    os._exit(0)  # without flushing: where the network broke, the connection takes nothing more


def environment(wanted: str) -> str:
    """Return a Python with torch where the wanted one is missing: in the project, or at that path below this home."""
    below_home = re.sub(r"^/(?:home/[^/]+|root)/", "~/", wanted)
    for name in (f"{one}/bin/python" for one in (".venv", "venv", "env")):
        if _has_torch(Path(name).absolute()):
            return str(Path(name).absolute())
    path = Path(below_home).expanduser()
    return str(path) if below_home != wanted and _has_torch(path) else ""


def _has_torch(python: Path) -> bool:
    """Whether an environment's interpreter can be started and torch is in its folder."""
    return os.access(python, os.X_OK) and any(python.parents[1].glob("lib/python3*/site-packages/torch"))


class _FarNode(worker.Node):
    """This host."""

    carried = True

    def __init__(
        self, answers: IO[str], name: str, folder_error: str | None, incoming: _Incoming, environment: str
    ) -> None:
        super().__init__(answers, name)
        self._environment = environment
        self._folder_error = folder_error
        self._incoming = incoming
        self._part: far_run.Part | None = None

    def greeting(self) -> dict[str, Any]:
        """Return the first message."""
        return {
            **super().greeting(),
            "python": sys.executable,
            "folder_error": self._folder_error,
            "folder_writable": None if self._folder_error else os.access(".", os.W_OK),
            "environment": self._environment,
            "connection": os.environ.get("SSH_CONNECTION", ""),
        }

    def commands(self) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """Return what this host can do."""
        return {**super().commands(), "launch": self._launch}

    def close(self) -> None:
        """Stop everything that this host started."""
        if self._part is not None:
            self._part.end()
        super().close()

    def _launch(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run this host's part of a training run; meanwhile the other side may stop it."""
        from mgpu.fleet import far_run

        self._part = part = far_run.Part(command["hosts"][self.name], self._interface(command), self._send)
        self._incoming.stop, self._incoming.answer = part.stop, part.answer
        return part.run()


class _Incoming(Iterable[Mapping[str, Any]]):
    """The commands. A thread reads them, so that the end of the connection also ends a command that is running."""

    def __init__(self) -> None:
        self._commands: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._heard = time.monotonic()
        self._idle = threading.Event()  # no command is running, and none follows
        self._ending = threading.Lock()  # taken once, by the first that notices the end
        self._turn, self._running = threading.Lock(), False  # a command
        self.stop: Callable[[int], None] = lambda number: None  # what a message to stop does
        self.answer: Callable[[int], None] = lambda number: None  # … and one that asks what the ranks do
        for work in (self._read, self._notice_silence):
            threading.Thread(target=work, daemon=True).start()

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield the commands until the connection ends."""
        while (command := self._commands.get()) is not None:
            self._running = True
            yield command
            with self._turn:
                self._running = False
        self._idle.set()

    def _read(self) -> None:
        for command in worker.read_commands():
            self._heard = time.monotonic()
            if command.get("do") == "stop":
                self.stop(int(command["signal"]))
            elif command.get("do") == "why":
                self.answer(int(command["request"]))
            elif command.get("do") != "ping":
                self._commands.put(command)
        self._end()

    def _notice_silence(self) -> None:
        while time.monotonic() - self._heard < SILENT_S:
            time.sleep(1)
        self._end()

    def _end(self) -> None:
        """End this process and all that it started.

        The signal is for a command that is running, and comes once: later it would interrupt the clean-up.
        """
        if not self._ending.acquire(blocking=False):
            return
        self._commands.put(None)
        if not self._idle.wait(_IDLE_S):
            with self._turn:
                if self._running:
                    os.kill(os.getpid(), signal.SIGTERM)
