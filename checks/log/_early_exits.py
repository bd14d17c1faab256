"""Did a process exit as soon as its launcher had started it, without output? A case of `log_child_failed`."""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException, seconds_between_lines

_AT_ONCE_S = 2.5  # the launcher looks for processes that have ended each second
_CODE = re.compile(r"exits with return code = (?P<code>\d+)")


class EarlyExit(NamedTuple):
    """A process that exited right after its start."""

    seconds: float
    code: str | None  # None: the log does not show it


def early_exit(log: Log) -> EarlyExit | None:
    """Return how soon the first process exited, if that was right after the start and nothing was printed between."""
    shown = {one.name: one for one in log.shows}
    spawned, ended = shown.get("processes_spawned"), shown.get("process_ended")
    if spawned is None or ended is None or spawned.file != ended.file or ended.line != spawned.last + 1:
        return None
    seconds = seconds_between_lines(spawned, ended)
    if seconds is None:
        return None
    codes = (_CODE.search(one.text) for one in log.seen)
    code = next((found["code"] for found in codes if found), None)
    return EarlyExit(seconds, code) if 0 <= seconds <= _AT_ONCE_S else None


def exited_at_start(log: Log, raised: UncaughtException | None) -> bool:
    """Whether a process exited right after its start."""
    return early_exit(log) is not None


REASONS = (
    "Usual reasons are a syntax error, an import that fails, a file that does not exist, and an argument that the "
    "script does not accept."
)
TRY_ALONE = Fix(
    "Start the script by itself, in the environment of the job.",
    ("python -m py_compile train.py", "python train.py --help"),
)
# fmt: off
FAILED_AT_START = Case(
    exited_at_start,
    "a rank failed right at its start, and the log has no output of it",
    f"The launcher had just started the processes when one of them exited. {REASONS} Python prints these to stderr, "
    "which is probably in another file of the job, or was not kept.",
    (TRY_ALONE, Fix("Keep both outputs in one log.", ("deepspeed train.py > run.log 2>&1",))),
    "[2026-03-02 10:00:00,071] [INFO] [launch.py:256:main] process 71 spawned with command: ['python', 'fit.py']\n"
    "[2026-03-02 10:00:01,116] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 71\n"
    "[2026-03-02 10:00:01,143] [ERROR] [launch.py:325:sigkill_handler] ['python', 'a.py'] exits with return code = 1\n",
    "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/launch.py")
# fmt: on
