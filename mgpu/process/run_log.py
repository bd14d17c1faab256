"""What is kept of what a run prints, and of what mgpu itself does meanwhile?

FOLDER/run.log has every byte of the program up to half of the limit; after it come run.log.1, run.log.2 ..., a quarter
each, of which the last two are kept: the beginning and the end of a long run are there. FOLDER/mgpu.log has mgpu's own
doings with their times. Only their owner reads them.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from mgpu import durations, secrets_masking
from mgpu.errors import reason
from mgpu.text import clean

LIMIT_BYTES = 256 << 20  # MGPU_LOG_LIMIT sets another
_LEAST_BYTES = 64 << 10
NAME, NOTES = "run.log", "mgpu.log"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in its place is no log
_LINE = 120  # bytes of the line at the head of a part: it is written anew when the part before it goes


def parts(folder: Path) -> list[Path]:
    """The files of a run's log, in the order of what was printed."""
    numbered = sorted(
        (int(found[1]), path)
        for path in folder.glob(f"{NAME}.*")
        if (found := re.fullmatch(rf"{re.escape(NAME)}\.(\d+)", path.name))
    )
    first = folder / NAME
    return [*([first] if first.is_file() else []), *(path for _, path in numbered)]


def limit() -> int:
    """How many bytes a log may have."""
    wish = os.environ.get("MGPU_LOG_LIMIT", "")
    return max(_LEAST_BYTES, int(wish)) if wish.isdecimal() else LIMIT_BYTES


class RunLog:
    """The log of one run, being written. What cannot be written ends the log, never the run."""

    def __init__(self, folder: Path, tell: Callable[[str], None], most: int | None = None) -> None:
        """Raises OSError when there can be no log."""
        self._folder, self._tell = folder, tell
        self._most = limit() if most is None else most
        self._number = 0  # of the part that is being written
        self._room = self._most // 2
        self._written = 0  # bytes of the program that were written at all
        self._starts: dict[int, int] = {}  # with which byte of the program a part begins
        self._first_end = 0
        self._file: int | None = _create(folder / NAME)

    def write(self, data: memoryview) -> None:
        """Keep what the program printed."""
        while data and self._file is not None:
            cut = len(data)
            if cut > self._room:
                ended = bytes(data[: self._room]).rfind(b"\n") + 1
                cut = ended or self._room
            try:
                _write(self._file, data[:cut])
                self._written += cut
                self._room -= cut
                data = data[cut:]
                if data:
                    self._next()
            except OSError as error:
                self.close()
                why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else reason(error)
                self._tell(f"the log ends here ({why}); the run goes on")

    def close(self) -> None:
        """No more is kept."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _next(self) -> None:
        """Go on in another part; the last but two goes."""
        self.close()
        if self._number == 0:
            self._first_end = self._written
        self._number += 1
        self._starts[self._number] = self._written
        self._file = _create(self._part(self._number))
        self._room = self._most // 4
        _write(self._file, memoryview(self._head(self._number)))
        if (old := self._number - 2) > 0:
            self._part(old).unlink(missing_ok=True)
            following = os.open(self._part(old + 1), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(following, self._head(old + 1, dropped=True), 0)
            finally:
                os.close(following)

    def _part(self, number: int) -> Path:
        return self._folder / f"{NAME}.{number}"

    def _head(self, number: int, *, dropped: bool = False) -> bytes:
        """The line at the head of a part, always of the same length."""
        if dropped:
            left_out = self._starts[number] - self._first_end
            text = f"[mgpu: {left_out:,} bytes left out here: the log keeps {self._most:,} (MGPU_LOG_LIMIT)]"
        else:
            before = NAME if number == 1 else f"{NAME}.{number - 1}"
            text = f"[mgpu: {before} goes on here, nothing is left out]"
        return text.ljust(_LINE - 1).encode("ascii") + b"\n"


class Notes:
    """mgpu.log, being written: one line for each thing that mgpu did."""

    def __init__(self, folder: Path) -> None:
        try:
            self._file: int | None = _create(folder / NOTES, os.O_APPEND)
        except OSError:
            self._file = None

    def __call__(self, text: str) -> None:
        """Add a line, without secrets."""
        if self._file is None:
            return
        line = " ".join(clean(secrets_masking.masked(text)).split())
        try:
            os.write(self._file, f"{durations.now()} {line}\n".encode("utf-8", "replace"))
        except OSError:
            self.close()

    def close(self) -> None:
        """No more is written."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_log(folder: Path, tell: Callable[[str], None]) -> RunLog | None:
    """The run's log; None, with a word about it, when it cannot be written."""
    try:
        return RunLog(folder, tell)
    except OSError as error:
        from mgpu import messages

        messages.notice(f"no log is kept: {reason(error)}")
        return None


def _create(path: Path, how: int = os.O_TRUNC) -> int:
    """A file that only its owner reads; never through a link. Raises OSError."""
    handle = os.open(path, _FLAGS | how, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    os.fchmod(handle, 0o600)
    os.set_blocking(handle, True)
    return handle


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
