"""Scripts that are rehearsed: `faults/` (the docstring names the check, `# here` its line) and `healthy/`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mgpu.launchers.port import free_port
from mgpu.process import processes
from mgpu.process.command import Command
from mgpu.recorder.inject import _mgpu_rehearsal
from mgpu.rehearse import run, stall_watch
from mgpu.rehearse.stall_watch import StallWatch
from mgpu.snapshot import Rehearsal, RehearsalEnd
from tests.conftest import environment

FOLDER = Path(__file__).parent
INJECTED = Path(_mgpu_rehearsal.__file__).parent
STEPS = 8
STALL_S = 3.0  # without progress, until the ranks are asked


class Ranks:
    """Two ranks at a time, forked from a process that has imported torch."""

    def __init__(self, folder: Path) -> None:
        (folder / "unused").mkdir()
        env = {
            **environment(folder),
            "PYTHONPATH": f"{INJECTED}{os.pathsep}{FOLDER}",
            "MGPU_RECORDER": str(folder / "unused"),
            "MGPU_REHEARSAL": str(STEPS),
        }
        command = [sys.executable, str(FOLDER / "forks_ranks.py")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=folder)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def rehearse(
        self,
        script: Path,
        folder: Path,
        seconds: float = 30.0,
        *,
        measured: float | None = None,
        checkpoint: bool = False,
    ) -> Rehearsal:
        """Run a script on two ranks. `measured`: seconds in which steps may be measured; None: none are."""
        (folder / run.RECORDED).mkdir()
        order: dict[str, Any] = {
            "script": str(script), "folder": str(folder), "port": free_port(), "steps": STEPS, "seconds": seconds,
            "until": 0 if measured is None else time.monotonic() + measured, "checkpoint": checkpoint,
        }  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        pids = json.loads(self.process.stdout.readline())
        watch = StallWatch(folder, Command(("x",), ranks=len(pids)), self.process.pid, STALL_S)
        watch.ranks = {number: processes.Rank(pid) for number, pid in enumerate(pids)}
        stalled = self._wait(watch, folder, pids)
        codes = json.loads(self.process.stdout.readline())
        ranks = run.read_ranks(folder)
        reached = bool(ranks) and all(rank.reached for rank in ranks)
        ended: RehearsalEnd = "stopped" if reached else "stalled" if stalled or None in codes else "failed"
        ended = "finished" if not reached and codes == [0, 0] else ended
        cause = stall_watch.cause_of(watch.hang) if stalled and watch.hang else None
        return Rehearsal(
            str(script), STEPS, 2, ended, ranks, True, "torchrun", max(code or 0 for code in codes),
            folder=str(folder), own_folder=str(folder / "run"), cause=cause,
        )  # fmt: skip

    def _wait(self, watch: StallWatch, folder: Path, pids: list[int]) -> bool:
        """Wait for the ranks; those that make no progress are killed. Returns whether they were."""
        written, moved_at, answers = -1, time.monotonic(), self.process.stdout
        assert answers is not None
        while not select.select([answers], [], [], 0.1)[0]:
            done_at, size = run._progress(folder / run.RECORDED, folder / "0.log")
            if size != written:
                written, moved_at = size, time.monotonic()
            if done_at is None and watch.is_stalled(moved_at):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return True
        return False

    def end(self) -> None:
        """End the process."""
        self.process.communicate()
