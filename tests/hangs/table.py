"""What torch prints about each planted hang, and when; and what mgpu prints: measured, and written as docs/hangs.md.

    python -m tests.hangs.table measure FOLDER [PROGRAM ...]     # runs each program under torchrun and under mgpu
    python -m tests.hangs.table write FOLDER                     # docs/hangs.md

`measure` keeps one JSON file a program, and runs what is not there yet. torch's timeout is shortened to LIMIT_S: its
defaults are 30 minutes for gloo and 10 for NCCL.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, environment
from tests.hangs.matrix import ENDED, HANGS, MATRIX, Planted
from tests.hangs.training import PROGRESS
from tests.scripts import TWO_RANKS, kill_all, marked, write_config

LIMIT_S = 20  # torch's timeout here
PATIENCE_S = 60  # how long torch may print nothing
AFTER_S = 4  # --hang-after
AT_ONCE = 3  # run at a time: they wait most of the time
_SAYS = re.compile(r"^(?:\[rank\d+\]: *)?([\w.]*(?:Error|Exception|Interrupt)\b.*|.*terminate called.*)$")
_BLAMED = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)


class _Lines:
    """The lines of a process, each with the time at which it came."""

    def __init__(self, command: list[str], folder: Path, added: Mapping[str, str]) -> None:
        variables = environment(folder / "home", added)
        self.process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.lines: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def progress_at(self) -> float | None:
        """When the last step began, or the process group was made."""
        return max((at for at, line in list(self.lines) if PROGRESS in line), default=None)

    def text(self) -> str:
        return "\n".join(line for _, line in list(self.lines) if PROGRESS not in line)


def with_torch(planted: Planted, folder: Path) -> dict[str, Any]:
    """Run a program under torchrun: the first error that is printed, when, and which rank it names."""
    file, _, name = planted.program.partition(".")
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(planted.ranks)]
    added = {
        "MGPU_HANGS_TIMEOUT_S": str(LIMIT_S),
        "MGPU_HANGS_SHOW": "1",
        "PYTHONPATH": str(ROOT),
        "MGPU_RUN_ID": "table",
    }
    began = time.monotonic()
    run = _Lines([sys.executable, *start, str(HANGS / f"{file}.py"), name], folder, added)
    error: tuple[float, str] | None = None
    while run.process.poll() is None and time.monotonic() < (run.progress_at() or began + 40) + PATIENCE_S:
        time.sleep(0.2)
    ended = run.process.poll() is not None
    since = run.progress_at() or began
    kill_all(folder)
    run.process.wait()
    text = run.text()
    error = next(((at, found[1]) for at, line in run.lines if (found := _SAYS.match(line.strip()))), None)
    blamed = _BLAMED.search(text)
    return {
        "after_s": round(error[0] - since, 1) if error else None,
        "says": error[1].strip() if error else None,
        "blames": int(blamed[1]) if blamed else None,
        "names_line": bool(re.search(rf'{file}\.py", line {planted.line.rpartition(":")[2]}\b', text)),
        "ended": ended,
        "text": text[-6000:],
    }


def with_mgpu(planted: Planted, folder: Path) -> dict[str, Any]:
    """Run a program under mgpu: what is said, and when."""
    file, _, name = planted.program.partition(".")
    write_config(folder, TWO_RANKS.replace("2", str(planted.ranks)))
    options = ["launch", "--yes", "--unverified", "allow", "--log-dir", "log", "--timeout", "110", "--on-hang", "stop"]
    command = [sys.executable, "-m", "mgpu", *options, "--hang-after", str(AFTER_S), str(HANGS / f"{file}.py"), name]
    run = _Lines(command, folder, {"MGPU_HANGS_SHOW": "1"})
    notes = folder / "log" / "mgpu.log"
    said_at = None
    while run.process.poll() is None:
        if said_at is None and notes.exists() and "message: no progress" in notes.read_text("utf-8", "replace"):
            said_at = time.monotonic()
        time.sleep(0.1)
    said = [x.partition(" message: ")[2] for x in notes.read_text("utf-8", "replace").splitlines() if " message: " in x]
    result = json.loads((folder / "log" / "result.json").read_bytes())
    since = run.progress_at()
    quiet = (result.get("hang") or {}).get("quiet_s")
    cause = result.get("probable_cause") or {}
    return {
        "after_s": round(said_at - since, 1) if said_at and since else quiet,
        "says": next((line for line in said if line.startswith("no progress")), None),
        "hang": {name: value for name, value in (result.get("hang") or {}).items() if name not in ("ranks", "finding")},
        "title": ((result.get("hang") or {}).get("finding") or {}).get("title"),
        "cause": cause.get("id"),
        "code": run.process.returncode,
        "left": len(marked(folder)),
        "said": said,
        "text": run.text()[-4000:],
    }


def measure(folder: Path, names: list[str]) -> None:
    """Run what has not been run."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(job: tuple[Planted, str]) -> None:
        planted, who = job
        kept = folder / f"{planted.id}.{who}.json"
        if kept.exists() or planted.missing:
            return
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            found = (with_torch if who == "torch" else with_mgpu)(planted, Path(place))
            kill_all(Path(place))
        kept.write_text(json.dumps({"date": date.today().isoformat(), "load": os.getloadavg()[0], **found}, indent=1))
        print(f"{planted.id} {who}: {found['after_s']} s: {found['says']}", flush=True)

    chosen = [row for row in (*MATRIX, *ENDED) if not names or any(name in row.id for name in names)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, [(row, who) for row in chosen for who in ("mgpu", "torch")]))


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    measure(Path(place), rest)
