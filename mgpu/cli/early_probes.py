"""Which probes does this command line need before its command is imported?

Importing a command takes longer than most probes, so `mgpu.probes.prefetch` runs both at once. The command itself
names the probes (`Command.early`); the doctor starts its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.cli import option_parser
from mgpu.errors import MgpuError


def start(argv: Sequence[str]) -> None:
    """Start the probes that this command line will need."""
    try:
        line = option_parser.read(argv)
    except MgpuError:  # the command reports it
        return
    if line and (early := line[0].early) and (wanted := early(line[0].own(line[1]))):
        from mgpu.probes import prefetch

        prefetch.start(wanted)
