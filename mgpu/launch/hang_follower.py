"""Follows what the nodes of a run find out about its ranks: the verdict of the first node, as it changes; NaN and pace.

What a detached run in an allocation finds is also kept in the folder of the run, where `--status` and `--why` look.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from mgpu.hangs import hang_files, hang_watch
from mgpu.launch import node_ranks
from mgpu.launch.rank_follower import JobRanks
from mgpu.process.supervisor import Supervisor
from mgpu.snapshot import Hang, Run

_LOOK_S = 1.0


class JobHangs:
    """The verdict of a job's first node, as it changes, and what its nodes record of its ranks."""

    def __init__(self, folder: Path | None, *, stops: bool = False, copy: Path | None = None) -> None:
        """`folder`: what the nodes share; None: the job has no recorder. `stops`: a hang ends the job.

        `copy`: the folder of the run, if it is one of this machine.
        """
        self.folder, self._stops, self._copy = folder, stops, copy
        self._ranks = JobRanks(folder, copy) if folder is not None else None
        self.hang: Hang | None = None
        self.is_to_stop = False
        self._looked = float("-inf")
        self._told: tuple[str, ...] = ()

    def look(self, say: Callable[[str], None], *, at_once: bool = False) -> None:
        """Read the verdict if it is time to, and say what is new, once."""
        now = time.monotonic()
        if self.folder is None or (now - self._looked < _LOOK_S and not at_once):
            return
        self._looked = now
        hang = self._verdict()
        if hang is None and self.hang is not None and self.folder.is_dir():
            say("the run makes progress again")
            self._told = ()
        self._keep(hang)
        found = hang_watch.findings(hang) if hang is not None else []
        for outcome in found:
            if hang is not None and outcome.check.id not in self._told:
                self._told = (*self._told, outcome.check.id)
                for text in hang_watch.texts(outcome, hang):
                    say(text)
        self.is_to_stop = self._stops and any(one.status == "fail" for one in found)
        if self._ranks is not None and not at_once:  # at the end, the report has it
            self._ranks.look(say)

    def _verdict(self) -> Hang | None:
        """Return why the run makes no progress, according to the first node; None: it does."""
        return hang_files.read(self.folder) if self.folder is not None else None

    def _keep(self, hang: Hang | None) -> None:
        before, self.hang = self.hang, hang
        if self._copy is not None and hang != before:
            hang_files.remove(self._copy) if hang is None else hang_files.write(self._copy, hang)

    def with_records(self, run: Run) -> Run:
        """Return a run that has just ended, with what the nodes have recorded of its ranks."""
        return node_ranks.with_records(run, self.folder, wait_s=node_ranks.LAST_S)

    def tick(self, supervisor: Supervisor) -> None:
        """Look, in an allocation: the script runs here, its ranks are Slurm's."""
        self.look(lambda text: supervisor.say(text, important=True))
        if self.is_to_stop and not supervisor.timed_out:
            supervisor.timed_out = True
            supervisor.stop(signal.SIGTERM, "--on-hang stop")

    def before_signal(self, supervisor: Supervisor) -> None:
        """Nothing: the nodes report a hang by themselves."""

    def is_stopped_elsewhere(self) -> bool:
        """Nothing else stops such a run."""
        return False
