"""What was the training's own exit code?

accelerate and torchrun exit with 1 for any exit code of a rank; their output names the first rank that failed and its
code. `Tables` keeps that part of the output, no matter how much is printed after it. Pure.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
# torchrun's summary: "Root Cause (first observed failure):\n[0]:\n  time …\n  host …\n  rank : 1 (local_rank: 1)\n
#   exitcode : 3 (pid: 123)" or "exitcode : -9 (pid: 123)\n  … traceback : Signal 9 (SIGKILL) received by PID 123"
_ROOT = re.compile(
    rb"Root Cause \(first observed failure\):.*?host\s*:\s*(\S+).*?rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL
)
# accelerate's single-process launcher: subprocess.CalledProcessError
_CALLED = re.compile(rb"returned non-zero exit status (\d+)\.|CalledProcessError.* died with <Signals\.\w+: (\d+)>")
# Every entry of that summary, including those under "Other Failures".
_ENTRY = re.compile(rb"\n\s*rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
_PROBLEM_CODES = range(1, 256)
_MARK = b"Root Cause (first observed"
_TAIL_BYTES = 64 << 10  # kept before the root cause: the list of the other ranks, 300 bytes each
_AFTER_BYTES = 16 << 10  # … and after it: its own entry, with the traceback from the rank's error file


class Tables:
    """Keeps the end of the output, and the launcher's last table of failed ranks."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._table = bytearray()
        self._wanted = 0  # bytes of the table that are still to come

    def feed(self, buffer: bytes | bytearray, size: int | None = None) -> None:
        """Process the next output: `buffer`, or its first `size` bytes. Avoids large copies."""
        size = len(buffer) if size is None else size
        if self._wanted:
            self._table += buffer[: min(size, self._wanted)]
            self._wanted = max(0, self._wanted - size)
        if (place := buffer.rfind(_MARK, 0, size)) >= 0:
            self._begin(bytes(self._tail) + buffer[:place], buffer[place:size])
        elif (
            place := (self._tail[-len(_MARK) :] + buffer[: min(size, len(_MARK))]).find(_MARK)
        ) >= 0:  # split over two reads
            begun = min(len(self._tail), len(_MARK)) - place
            self._begin(bytes(self._tail[:-begun]), bytes(self._tail[-begun:]) + buffer[:size])
        if size >= _TAIL_BYTES:
            self._tail[:] = buffer[size - _TAIL_BYTES : size]
        else:
            self._tail += buffer[:size]
            if len(self._tail) > 2 * _TAIL_BYTES:
                del self._tail[:-_TAIL_BYTES]

    def _begin(self, before: bytes, table: bytes | bytearray) -> None:
        """Start a table; the last one counts."""
        self._table = bytearray(before[-_TAIL_BYTES:] + table[:_AFTER_BYTES])
        self._wanted = max(0, _AFTER_BYTES - len(table))

    @property
    def tail(self) -> bytes:
        """Return the end of the output."""
        return bytes(self._tail[-_TAIL_BYTES:])

    @property
    def last(self) -> bytes:
        """Return the last table with some context before and after it; empty if there was none."""
        return bytes(self._table)


@dataclass(frozen=True)
class FirstFailure:
    """The first rank that failed, as reported by the launcher."""

    rank: int
    host: str | None
    exit_code: int  # 128 + N for a signal N

    @property
    def signal(self) -> str | None:
        """Return the name of the signal that killed it ("SIGKILL"), or None."""
        try:
            return signal.Signals(self.exit_code - 128).name if self.exit_code > 128 else None
        except ValueError:
            return None


def first_failure(printed: bytes) -> FirstFailure | None:
    """Return the failure that the end of the launcher's output reports."""
    text = _ANSI.sub(b"", printed)
    if found := list(_ROOT.finditer(text)):
        host, rank, code = found[-1].groups()
        return FirstFailure(int(rank), host.decode("utf-8", "replace"), _shell_code(int(code)))
    if called := list(_CALLED.finditer(text)):
        status, died = called[-1].groups()
        return FirstFailure(0, None, int(status) if status else 128 + int(died))
    return None


def rank_exit_codes(text: bytes) -> dict[int, int]:
    """Return the exit code of each rank in torchrun's summary or accelerate's error; negative for a signal."""
    plain = _ANSI.sub(b"", text)
    start = plain.rfind(b"FAILED")
    if start >= 0 and (found := _ENTRY.findall(plain[start:])):
        return {int(rank): int(code) for rank, code in found}
    alone = _CALLED.findall(plain)
    return {0: int(alone[-1][0]) if alone[-1][0] else -int(alone[-1][1])} if alone else {}


def training_exit_code(returncode: int, printed: bytes, signalled: int | None, *, flattened: bool = True) -> int:
    """Return mgpu's exit code: 0, the first failing rank's own, or 128 + N for signal N.

    `flattened`: a launcher exits with 1 for any exit code of its ranks, and for a signal to itself (torchrun raises
    SignalException; accelerate's single-process launcher dies by it). Otherwise the output does not matter, and a
    training run that exits on its own after a signal, for example after saving its state, has its own code.
    """
    if returncode == 0:
        return 0
    flat = flattened and returncode == 1
    failure = first_failure(printed) if flat else None
    its_own = failure.exit_code if failure is not None else None
    if signalled is not None and (flat or returncode < 0) and its_own in (None, 128 + signal.SIGTERM, 128 + signalled):
        return 128 + signalled
    if failure is not None and failure.exit_code in _PROBLEM_CODES:
        return failure.exit_code
    return _shell_code(returncode)


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code
