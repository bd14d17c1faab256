"""Did only the ranks of one node report a failure, while those of the other nodes were killed without reporting it?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import Log
from mgpu.text import counted

_FEWEST_RANKS = 2  # on that node: what one rank reports can be of its own GPU or data
_KILLED = 128  # exit codes above it are signals, as shells report them


class OneNode(NamedTuple):
    """The only node whose ranks report a failure."""

    host: str
    ranks: int
    others: int  # nodes whose ranks were killed, and do not report it

    @property
    def sentence(self) -> str:
        """State it, for the reason of a problem."""
        ranks = "Both" if self.ranks == _FEWEST_RANKS else f"All {self.ranks}"
        others = "other node" if self.others == 1 else counted(self.others, "other node")
        return (
            f" {ranks} ranks on {self.host} report it, and none on the {others}: something is different on that node."
        )

    def fix(self, log: Log) -> Fix:
        """Return how to find out whether the node is the reason."""
        of_slurm = any(one.signature.startswith("log_slurm_") for one in log.seen)
        commands = (shell("sbatch --exclude={host} job.sh", host=self.host),) if of_slurm else ()
        return Fix(f"Run without {self.host}. If that works, report the node to its administrators.", commands)


def only_node(log: Log, ranks: Iterable[int]) -> OneNode | None:
    """Return the node of these ranks if they are all of its ranks, and a launcher killed those of all other nodes."""
    hosts = {one.rank: one.host for one in log.fallen if one.host}
    reporting = set(ranks)
    found = {hosts.get(rank) for rank in reporting}
    host = found.pop() if len(found) == 1 else None
    if host is None or len(reporting) < _FEWEST_RANKS:
        return None
    here = {rank for rank, name in hosts.items() if name == host}
    others = [one for one in log.fallen if one.host and one.host != host]
    if not others or not here <= reporting or any(0 <= one.exit_code <= _KILLED for one in others):
        return None
    return OneNode(host, len(reporting), len({one.host for one in others}))
