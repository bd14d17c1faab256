"""When is a training run stopped because of `--timeout`?"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgpu.process.supervisor import Supervisor


def tick(seconds: float) -> Callable[[Supervisor], None]:
    """Return a callback for the supervisor that stops the launcher once after `seconds`."""

    def stop_if_late(supervisor: Supervisor) -> None:
        if not supervisor.timed_out and time.monotonic() - supervisor.started >= seconds:
            supervisor.timed_out = True
            supervisor.stop(signal.SIGTERM, f"--timeout {seconds:g} s reached")

    return stop_if_late
