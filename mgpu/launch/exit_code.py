"""What was the training's own exit code?

accelerate and torchrun end with 1 whatever a rank's code was; what they print names the first rank that failed and its
code. Pure.
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
# Every entry of that summary, the ones under "Other Failures" included.
_ENTRY = re.compile(rb"\n\s*rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
_PROBLEM_CODES = range(1, 256)


@dataclass(frozen=True)
class FirstFailure:
    """The first rank that failed, as the launcher tells it."""

    rank: int
    host: str | None
    exit_code: int  # 128 + N for a signal N

    @property
    def signal(self) -> str | None:
        """SIGKILL …, when a signal ended it."""
        try:
            return signal.Signals(self.exit_code - 128).name if self.exit_code > 128 else None
        except ValueError:
            return None


def first_failure(tail: bytes) -> FirstFailure | None:
    """The failure that the launcher's last words name."""
    text = _ANSI.sub(b"", tail)
    if found := list(_ROOT.finditer(text)):
        host, rank, code = found[-1].groups()
        return FirstFailure(int(rank), host.decode("utf-8", "replace"), _shell_code(int(code)))
    if called := list(_CALLED.finditer(text)):
        status, died = called[-1].groups()
        return FirstFailure(0, None, int(status) if status else 128 + int(died))
    return None


def of_ranks(text: bytes) -> dict[int, int]:
    """Every rank's exit code that torchrun's summary (or accelerate's launcher of one process) tells; negative for a
    signal."""
    plain = _ANSI.sub(b"", text)
    start = plain.rfind(b"FAILED")
    if start >= 0 and (found := _ENTRY.findall(plain[start:])):
        return {int(rank): int(code) for rank, code in found}
    alone = _CALLED.findall(plain)
    return {0: int(alone[-1][0]) if alone[-1][0] else -int(alone[-1][1])} if alone else {}


def of_training(returncode: int, tail: bytes, signalled: int | None) -> int:
    """The exit code mgpu ends with: 0, the first failing rank's own, or 128 + N."""
    if returncode == 0:
        return 0
    failure = first_failure(tail)
    if signalled is not None and (failure is None or failure.exit_code in (128 + signal.SIGTERM, 128 + signalled)):
        return 128 + signalled
    if failure is not None and failure.exit_code in _PROBLEM_CODES:
        return failure.exit_code
    return _shell_code(returncode)


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code
