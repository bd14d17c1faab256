"""Scripts that are rehearsed: `faults/` (the docstring names the check, `# here` its line) and `healthy/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mgpu.launchers.port import free_port
from mgpu.recorder.inject import _mgpu_rehearsal
from mgpu.rehearse import run
from mgpu.snapshot import Rehearsal, RehearsalEnd
from tests.conftest import environment

FOLDER = Path(__file__).parent
INJECTED = Path(_mgpu_rehearsal.__file__).parent
STEPS = 8


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
        codes = json.loads(self.process.stdout.readline())
        ranks = run.read_ranks(folder)
        reached = bool(ranks) and all(rank.reached for rank in ranks)
        ended: RehearsalEnd = "stopped" if reached else "stalled" if None in codes else "failed"
        ended = "finished" if not reached and codes == [0, 0] else ended
        return Rehearsal(
            str(script), STEPS, 2, ended, ranks, True, "torchrun", max(code or 0 for code in codes),
            folder=str(folder), own_folder=str(folder / "run"),
        )  # fmt: skip

    def end(self) -> None:
        """End the process."""
        self.process.communicate()
