"""The logs of a run: its output, and the actions of mgpu.

FOLDER/run.log contains the program's output, and the messages of mgpu that matter later (a hang, that mgpu stopped the
run), up to half of the limit, then run.log.1, run.log.2, ... a quarter each. The
last two of these are kept, so the log has the beginning and the end of a long run. FOLDER/mgpu.log has mgpu's actions
with timestamps. Only the owner can read the files.
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

LIMIT_BYTES = 256 << 20  # default of MGPU_LOG_LIMIT
_LEAST_BYTES = 64 << 10
NAME, NOTES = "run.log", "mgpu.log"
OWN = "mgpu: "  # how a message of mgpu begins
LOG_ENDS, NO_LOG = "the log ends here", "no log is written"  # how these messages begin
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never block on a pipe
_LINE_END = ord("\n")
_LINE = 120  # bytes of the first line of a part, which is rewritten when the part before it is deleted


def parts(folder: Path) -> list[Path]:
    """Return the files of a run's log, in the order of the output."""
    numbered = sorted(
        (int(found[1]), path)
        for path in folder.glob(f"{NAME}.*")
        if (found := re.fullmatch(rf"{re.escape(NAME)}\.(\d+)", path.name))
    )
    first = folder / NAME
    return [*([first] if first.is_file() else []), *(path for _, path in numbered)]


def limit() -> int:
    """Return the maximum size of a log in bytes."""
    wish = os.environ.get("MGPU_LOG_LIMIT", "")
    return max(_LEAST_BYTES, int(wish)) if wish.isdecimal() else LIMIT_BYTES


class RunLog:
    """The log of one run, opened for writing. A write error ends the log, never the run."""

    def __init__(self, folder: Path, notify: Callable[[str], None], most: int | None = None) -> None:
        """Create the log. `notify` shows a message of mgpu. Raises OSError if the log cannot be created."""
        self._folder, self._notify = folder, notify
        self._most = limit() if most is None else most
        self._number = 0  # of the current part
        self._room = self._most // 2
        self._written = 0  # bytes of output in all parts, including deleted ones
        self._starts: dict[int, int] = {}  # part -> its first byte in the whole output
        self._first_end = 0
        self._is_line_open = False
        self.is_disk_full = False  # the log ended early for this reason
        self._file: int | None = _create(folder / NAME)

    def write(self, data: memoryview) -> None:
        """Append output of the program."""
        self._is_line_open = data[-1] != _LINE_END if data else self._is_line_open
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
                    self._start_part()
            except OSError as error:
                self.close()
                self.is_disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                why = "the disk is full" if self.is_disk_full else reason(error)
                self._notify(f"{LOG_ENDS} ({why}). The run continues")

    def add_message(self, text: str) -> None:
        """Append a message of mgpu in its own line: a copy of the log then has it, too."""
        line = " ".join(clean(secrets_masking.masked(text)).split())
        start = "\n" if self._is_line_open else ""
        self.write(memoryview(f"{start}{OWN}{line}\n".encode("utf-8", "replace")))

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _start_part(self) -> None:
        """Start another part and delete the third-last one."""
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
        """Return the first line of a part, padded to a fixed length."""
        if dropped:
            left_out = self._starts[number] - self._first_end
            text = f"[mgpu: {left_out:,} bytes omitted here: the log is limited to {self._most:,} (MGPU_LOG_LIMIT)]"
        else:
            before = NAME if number == 1 else f"{NAME}.{number - 1}"
            text = f"[mgpu: {before} continues here, nothing is left out]"
        return text.ljust(_LINE - 1).encode("ascii") + b"\n"


class Notes:
    """mgpu.log, opened for writing: one line for each action of mgpu."""

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
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_log(folder: Path, notify: Callable[[str], None]) -> RunLog | None:
    """Open the run's log; None, with a message on stderr, if it cannot be written."""
    try:
        return RunLog(folder, notify)
    except OSError as error:
        from mgpu import messages

        messages.notice(f"{NO_LOG}: {reason(error)}")
        return None


def _create(path: Path, how: int = os.O_TRUNC) -> int:
    """Create a file that only its owner can read, never through a link. Raises OSError."""
    handle = os.open(path, _FLAGS | how, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    os.fchmod(handle, 0o600)
    os.set_blocking(handle, True)
    return handle


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
