"""Probes that are on their way before the command line is read.

Reading options costs more than asking most probes, and the probes run in children: with a second CPU both is done at
once. `mgpu.cli.early_probes` starts them, `take` hands them over; `mgpu.__main__` stops those that are not taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from mgpu.probes import runner
from mgpu.probes.runner import Child, Probe

_started: list[Child] | None = None


def start(probes: Sequence[Probe]) -> None:
    """Start these probes, for whoever takes them."""
    global _started
    with contextlib.suppress(OSError):  # no process could be started: the command will meet it again, and say so
        _started = runner.start(probes)


def take() -> list[Child] | None:
    """The children, once."""
    global _started
    taken, _started = _started, None
    return taken
