"""What torch prints about each planted hang, and when; and what mgpu prints: measured, and written as docs/hangs.md.

    python -m tests.hangs.table measure FOLDER [PROGRAM ...]                    # each program under torchrun
    MGPU_HANGS=all MGPU_HANGS_KEEP=FOLDER python -m pytest tests/test_hang.py   # and under mgpu
    python -m tests.hangs.table write FOLDER                                    # docs/hangs.md

Each keeps one JSON file a program; `measure` runs what is not there yet. torch's timeout is shortened to LIMIT_S: its
defaults are 30 minutes for gloo and 10 for NCCL.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, environment
from tests.hangs.matrix import ENDED, HANGS, MATRIX, PROGRESS, Planted
from tests.scripts import kill_all

LIMIT_S = 20  # torch's timeout here
PATIENCE_S = 60  # how long torch may print nothing
AFTER_S = 4  # --hang-after of the tests
KEEP = "MGPU_HANGS_KEEP"
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


def keep(planted: Planted, result: Any, said: str) -> None:
    """Called by the tests: keep what mgpu said about a program, and when."""
    if not (place := os.environ.get(KEEP)):
        return
    hang, cause = result["hang"] or {}, result["probable_cause"] or {}
    found = {
        "after_s": hang.get("quiet_s"),
        "title": said.partition("\n")[0].partition(": ")[2] or cause.get("title"),
        "id": hang.get("id") or cause.get("id"),
    }
    _write(Path(place), planted, "mgpu", found)


def _write(folder: Path, planted: Planted, who: str, found: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"date": date.today().isoformat(), "load": round(os.getloadavg()[0], 1)}
    (folder / f"{planted.id}.{who}.json").write_text(json.dumps({**about, **found}, indent=1) + "\n")


def measure(folder: Path, names: list[str]) -> None:
    """Run under torchrun what has not been run."""

    def one(planted: Planted) -> None:
        if (folder / f"{planted.id}.torch.json").exists() or planted.missing:
            return
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            found = with_torch(planted, Path(place))
            kill_all(Path(place))
        _write(folder, planted, "torch", found)
        print(f"{planted.id}: {found['after_s']} s: {found['says']}", flush=True)

    chosen = [row for row in (*MATRIX, *ENDED) if not names or any(name in row.id for name in names)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, chosen))


# --- the page ---


_HEAD = """\
---
description: "What torch prints about a hang, and what mgpu reports, for each hang that was tested."
---

# What torch reports about a hang, and what mgpu reports

Each program has one planted fault (`tests/hangs/`) and runs on the CPU with gloo. `python -m tests.hangs.table` wrote
this page from real runs of {date} with torch {torch} and Python {python}, on a machine with {cpus} CPUs
and a load of up to {load:.0f}.

* **torch**: the program runs under `torchrun` with a timeout of {limit} s. The default is 30 minutes for gloo and
  10 minutes for NCCL. "At the timeout" means that nothing is printed before, so with the defaults you wait 30 or 10
  minutes. *Blames* is the rank that `torchrun` reports as the first observed failure. *Line* is whether the output
  shows the line of the fault.
* **mgpu**: the program runs under `mgpu launch --hang-after {after}` (default: 30 s). The time counts from the last
  progress, so all but {after} s of it is what mgpu needs to find the cause.

torch reports {late} of the {hangs} hangs at its timeout. In {known} hangs one rank keeps the others waiting; torch
blames this rank in {blamed} of them. mgpu reports the kind of every hang, and the rank if there is one to blame. The
tests verify the kind, the message, and the lines of the ranks where they are definite (`tests/test_hang.py`). The
median time is {median:.1f} s, the longest {longest:.1f} s. If two ranks call different collectives, either of them can
be wrong, so mgpu names both, with their lines.

| planted | rank | torch: when | torch: the first error | blames | line | mgpu: after | mgpu reports | check |
|---|---|---|---|---|---|---|---|---|
"""
_ENDED = """
## Faults that end the run at once

| planted | torch: the first error | blames | line | mgpu reports | check |
|---|---|---|---|---|---|
"""


def write(folder: Path, page: Path) -> None:
    """Write the page from the runs in a folder."""
    rows = [(planted, _kept(folder, planted, "torch"), _kept(folder, planted, "mgpu")) for planted in MATRIX]
    rows = [row for row in rows if row[1] and row[2]]
    times = [mgpu["after_s"] for _, _, mgpu in rows]
    known = [(planted, torch) for planted, torch, _ in rows if planted.rank is not None]
    text = _HEAD.format(
        date=max(mgpu["date"] for _, _, mgpu in rows),
        torch=version("torch"), python=platform.python_version(),
        cpus=os.cpu_count(), load=max(found["load"] for row in rows for found in row[1:]), limit=LIMIT_S, after=AFTER_S,
        hangs=len(rows), late=sum(_when(torch) == "at the timeout" for _, torch, _ in rows),
        blamed=sum(torch["blames"] == planted.rank for planted, torch in known), known=len(known),
        median=statistics.median(times), longest=max(times),
    )  # fmt: skip
    for planted, torch, mgpu in rows:
        rank = "" if planted.rank is None else str(planted.rank)
        cells = (_what(planted), rank, _when(torch), *_of_torch(torch), f"{mgpu['after_s']:.1f} s", *_of_mgpu(mgpu))
        text += f"| {' | '.join(cells)} |\n"
    text += _ENDED
    for planted in ENDED:
        torch, mgpu = _kept(folder, planted, "torch"), _kept(folder, planted, "mgpu")
        text += f"| {' | '.join((_what(planted), *_of_torch(torch), *_of_mgpu(mgpu)))} |\n"
    page.parent.mkdir(exist_ok=True)
    on_hosts = page.read_text("utf-8").partition("\n## On two hosts") if page.exists() else ("", "", "")
    page.write_text(text + on_hosts[1] + on_hosts[2], "utf-8")  # tests/hangs/on_hosts.py writes that section


def _kept(folder: Path, planted: Planted, who: str) -> dict[str, Any]:
    path = folder / f"{planted.id}.{who}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _what(planted: Planted) -> str:
    ranks = f", {planted.ranks} ranks" if planted.ranks != 2 else ""
    return f"`{planted.program.removeprefix('start_')}`{ranks}"


def _when(torch: dict[str, Any]) -> str:
    if torch["after_s"] is None:
        return f"nothing in {PATIENCE_S} s"
    return "at once" if torch["after_s"] < LIMIT_S / 2 else "at the timeout"


def _of_torch(torch: dict[str, Any]) -> tuple[str, str, str]:
    says = re.sub(r"\[/\S*/(\w+\.cc:\d+)\]", r"\1:", torch["says"] or "")
    blames = "" if torch["blames"] is None else str(torch["blames"])
    return f"`{says[:110]}`", blames, "yes" if torch["names_line"] else "no"


def _of_mgpu(mgpu: dict[str, Any]) -> tuple[str, str]:
    title = mgpu["title"].partition(" Collectives are matched")[0].partition(" The line is: ")[0]
    return title.replace("|", "\\|"), f"`{mgpu['id']}`"


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "measure":
        measure(Path(place), rest)
    else:
        write(Path(place), ROOT / "docs" / "hangs.md")
