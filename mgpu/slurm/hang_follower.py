"""Follows what the nodes of a job find out about its ranks: the verdict of its first node, as it changes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from mgpu.hangs import hang_files, hang_watch
from mgpu.process.supervisor import Supervisor
from mgpu.slurm import node_ranks
from mgpu.snapshot import Hang, Run

_LOOK_S = 1.0


class JobHangs:
    """The verdict of a job's first node, as it changes."""

    def __init__(self, folder: Path | None, *, stops: bool = False) -> None:
        """`folder`: what the nodes share; None: the job has no recorder. `stops`: a hang ends the job."""
        self.folder, self._stops = folder, stops
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
        hang = hang_files.read(self.folder)
        if hang is None and self.hang is not None and self.folder.is_dir():
            say("the run makes progress again")
            self._told = ()
        self.hang = hang
        found = hang_watch.findings(hang) if hang is not None else []
        for outcome in found:
            if hang is not None and outcome.check.id not in self._told:
                self._told = (*self._told, outcome.check.id)
                for text in hang_watch.texts(outcome, hang):
                    say(text)
        self.is_to_stop = self._stops and any(one.status == "fail" for one in found)

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
