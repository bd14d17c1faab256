"""How is Slurm asked? One client's command, with a limit: a client waits for minutes where the controller is away."""

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

# A client of Slurm 22.05 gives up after 9 s where nothing listens, and waits for MessageTimeout (10 s), several times,
# where the controller is busy: measured.
LIMIT_S = 60.0
LOOK_S = 15.0  # one of many looks
_MOST = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What a client said."""

    code: int | None  # None: it did not answer in time
    out: str
    err: str


class Question:
    """A client's command on its way. In a session of its own: a Ctrl-C is for mgpu, which knows what to do."""

    def __init__(self, *words: str, limit_s: float = LIMIT_S, folder: Path | None = None) -> None:
        """Raises MgpuError (125) where there is no such program."""
        program = shutil.which(words[0])
        if program is None:
            raise MgpuError(f"no {words[0]} here: Slurm's commands are on the login nodes", errors.LAUNCH_REFUSED)
        self._until = time.monotonic() + limit_s
        self._streams: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        try:
            self._process = child_process.start(
                [program, *words[1:]], stdout=self._streams[0], stderr=self._streams[1], cwd=folder
            )
        except OSError as error:
            raise MgpuError(f"{words[0]} cannot be started: {errors.reason(error)}", errors.LAUNCH_REFUSED) from None

    def poll(self) -> Answer | None:
        """The answer, when it is there, or when the time for it is over."""
        code = self._process.poll()
        if code is None and time.monotonic() < self._until:
            return None
        if code is None:
            self.drop()
        return Answer(code, *map(_text, self._streams))

    def wait(self) -> Answer:
        """The answer."""
        try:
            self._process.wait(max(0.0, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.drop()
            return Answer(None, *map(_text, self._streams))
        return Answer(self._process.returncode, *map(_text, self._streams))

    def drop(self) -> None:
        """Do not wait for it any more."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def ask(*words: str, limit_s: float = LIMIT_S, folder: Path | None = None) -> Answer:
    """A client's answer. Raises MgpuError (125) where there is no such program."""
    return Question(*words, limit_s=limit_s, folder=folder).wait()


def is_there(program: str = "sbatch") -> bool:
    """Whether Slurm's clients are installed here."""
    return shutil.which(program) is not None


def lost(answer: Answer) -> bool:
    """Whether the controller did not answer, which says nothing about a job."""
    return answer.code is None or any(text in answer.err for text in _AWAY)


# fmt: off
_AWAY: Sequence[str] = (
    "Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "Connection refused",
    "slurm_persist_conn", "backup controller", "Transport endpoint", "Unable to establish",
)
# fmt: on


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MOST).decode("utf-8", "replace")
