"""What the ranks of a run on several hosts do, joined here: why it makes no progress, which host is slower, NaN.

Each host's own mgpu asks its ranks, and what it stores travels here (part_files.py). A host that has not noticed a hang
when another one has is asked: if its ranks go on, there is none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.launch import node_answers, node_ranks
from mgpu.launch.hang_follower import JobHangs
from mgpu.launch.node_pace import PaceOfNodes
from mgpu.process.supervisor import Supervisor
from mgpu.snapshot import Hang, Run

_OTHERS_S = 3.0  # until the other hosts have noticed too
_ANSWER_S = 6.0  # … and until those that have not have answered
_AGAIN_S = 20.0  # until a host whose ranks go on is asked again
_GOES_ON = 0.5  # of --hang-after: ranks that made progress this recently go on


class HostsHangs(JobHangs):
    """Joins what the hosts store; reports it like what the nodes of a job find."""

    def __init__(
        self, run: Path, shared: Path, hosts: Sequence[str], *, world: int, after_s: float, stops: bool
    ) -> None:
        """`run`: the folder of the run. `shared`: with the files of the hosts. `world`: ranks of the run."""
        super().__init__(shared, stops=stops, copy=run)
        self._shared, self._after_s = shared, after_s
        self._places = [hang_files.folder_of(shared, host) for host in hosts]
        self._pace = PaceOfNodes(shared, len(hosts), world, hang_files.node_name)
        self._first: float | None = None  # when the first host has reported
        self._asked: tuple[int, float] | None = None  # the last request, and when it was made

    def tick(self, supervisor: Supervisor) -> None:
        """Look at what is new."""
        self._pace.tick(supervisor)
        super().tick(supervisor)

    def with_records(self, run: Run) -> Run:
        """Return a run that has just ended, with what the hosts have recorded of its ranks."""
        if known := self._reported():
            self._keep(self._merged(known))
        return node_ranks.with_records(run, self._shared, host_of=hang_files.node_name)

    def _verdict(self) -> Hang | None:
        """Return what the ranks of all hosts do, if the run makes no progress."""
        known = self._reported()
        if not known:
            self._first = self._asked = None
            return None
        now = time.monotonic()
        self._first = self._first or now
        if silent := [place for place in self._places if place not in known]:
            if now - self._first < _OTHERS_S:
                return self.hang
            answers = self._answers(silent, now)
            if answers is None:
                return self.hang
            if any(hang.quiet_s < _GOES_ON * self._after_s for hang in answers.values()):
                return None
            known |= answers
        return self._merged(known)

    def _answers(self, silent: Sequence[Path], now: float) -> dict[Path, Hang] | None:
        """Ask hosts that have not reported a hang; return what has been answered, None while answers may come."""
        if self._asked is None or now - self._asked[1] > _AGAIN_S:
            try:
                self._asked = (node_answers.request(self._shared), now)
            except MgpuError:  # the disk is full
                return {}
        number, since = self._asked
        there = [place for place in silent if node_answers.has_answered(place, number)]
        if len(there) < len(silent) and now - since < _ANSWER_S:
            return None
        return {place: hang for place in there if (hang := hang_files.read(place, node_answers.ANSWER)) is not None}

    def _reported(self) -> dict[Path, Hang]:
        return {place: hang for place in self._places if (hang := hang_files.read(place)) is not None}

    def _merged(self, known: dict[Path, Hang]) -> Hang:
        return hang_files.merged([hang_files.on_host(hang, place) for place, hang in known.items()])
