"""How is a Slurm command run? With a timeout, because it waits for minutes if the controller is unreachable."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.process import child_process

# Measured: a client of Slurm 22.05 gives up after 9 s if the controller is down, and waits for MessageTimeout (10 s)
# several times if it is busy.
LIMIT_S = 60.0
LOOK_S = 15.0  # for one of many repeated queries
_MOST = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The result of a client's command."""

    code: int | None  # None: timed out
    out: str
    err: str


class Question:
    """A running client command. It has its own session, so that only mgpu receives a Ctrl-C."""

    def __init__(self, *words: str, limit_s: float = LIMIT_S, folder: Path | None = None) -> None:
        """Start the command `words`. Raises MgpuError (125) if the program is not installed."""
        program = shutil.which(words[0])
        if program is None:
            raise MgpuError(f"{words[0]} is not installed here: use a login node", errors.LAUNCH_REFUSED)
        self._until = time.monotonic() + limit_s
        self._streams: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        try:
            self._process = child_process.start(
                [program, *words[1:]], stdout=self._streams[0], stderr=self._streams[1], cwd=folder
            )
        except OSError as error:
            raise MgpuError(f"{words[0]} cannot be started: {errors.reason(error)}", errors.LAUNCH_REFUSED) from None

    def poll(self) -> Answer | None:
        """Return the result if the command has finished or timed out, else None."""
        code = self._process.poll()
        if code is None and time.monotonic() < self._until:
            return None
        if code is None:
            self.drop()
        return Answer(code, *map(_text, self._streams))

    def wait(self) -> Answer:
        """Wait for the command and return its result."""
        try:
            self._process.wait(max(0.0, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.drop()
            return Answer(None, *map(_text, self._streams))
        return Answer(self._process.returncode, *map(_text, self._streams))

    def drop(self) -> None:
        """Stop the command."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def ask(*words: str, limit_s: float = LIMIT_S, folder: Path | None = None) -> Answer:
    """Run a client command and return its result. Raises MgpuError (125) if the program is not installed."""
    return Question(*words, limit_s=limit_s, folder=folder).wait()


def is_there(program: str = "sbatch") -> bool:
    """Whether Slurm's clients are installed here."""
    return shutil.which(program) is not None


def is_unreachable(answer: Answer) -> bool:
    """Whether the controller did not respond, so that the result says nothing about a job."""
    return answer.code is None or any(text in answer.err for text in _UNREACHABLE)


# fmt: off
_UNREACHABLE: Sequence[str] = (
    "Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "Connection refused",
    "slurm_persist_conn", "backup controller", "Transport endpoint", "Unable to establish",
)
# fmt: on


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MOST).decode("utf-8", "replace")
