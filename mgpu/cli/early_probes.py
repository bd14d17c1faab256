"""Which probes does this command line want, before its command is imported?

Importing a command costs more than asking most probes: `mgpu.probes.prefetch` lets both happen at once. Which probes is
said by the command itself (`Command.early`); the doctor starts its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.cli import option_parser


def start(argv: Sequence[str]) -> None:
    """Start the probes that this command line will want, just as they are."""
    line = option_parser.read(argv)
    if line and (early := line[0].early) and (wanted := early(line[1])):
        from mgpu.probes import prefetch

        prefetch.start(wanted)
