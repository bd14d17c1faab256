"""When is a training ended because its time is up? `--timeout`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgpu.process.supervisor import Supervisor


def tick(seconds: float) -> Callable[[Supervisor], None]:
    """What the supervisor calls while the launcher lives: after `seconds` it asks the launcher to end, once."""

    def ask(supervisor: Supervisor) -> None:
        if not supervisor.timed_out and time.monotonic() - supervisor.started >= seconds:
            supervisor.timed_out = True
            supervisor.stop(signal.SIGTERM, f"--timeout {seconds:g} s ran out")

    return ask
