"""Is anything left of the run?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check
from mgpu.snapshot import Ranks

from .._knowledge import counted


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/agent.html")
def ranks_left_running(ranks: Ranks) -> Answer:
    """Processes of the smoke test are still there after it was ended.

    Why: they hold GPU memory and ports; the next launch would meet them. A process in uninterruptible sleep cannot be
    killed: a device or a file system hangs in the kernel.

    Fix: kill them; if that does not work, reboot.
    """
    if not ranks.left_running:
        return Ok("no process was left behind")
    pids = " ".join(map(str, ranks.left_running))
    return Problem(
        f"{counted(len(ranks.left_running), 'process', 'processes')} could not be ended: {pids}",
        "They survived SIGKILL, so they hang in the kernel.",
        Fix("Try again; then reboot.", (f"kill -9 {pids}", "sudo reboot"), who="admin"),
        {"pids": pids},
    )
