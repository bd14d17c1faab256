"""Probes that start before the command line is parsed.

Parsing options takes longer than most probes, and probes run in children: with a second CPU both run in parallel.
`mgpu.cli.early_probes` starts them, `take` returns them, and `mgpu.__main__` stops those that were not taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from mgpu.probes import runner
from mgpu.probes.runner import Child, Probe

_started: list[Child] | None = None


def start(probes: Sequence[Probe]) -> None:
    """Start these probes; `take` returns them later."""
    global _started
    with contextlib.suppress(OSError):  # no process could be started: the command will fail the same way, and report it
        _started = runner.start(probes)


def take() -> list[Child] | None:
    """Return the started children, and forget them."""
    global _started
    taken, _started = _started, None
    return taken
