"""Records the smoke tests of the README's pictures anew: `python -m tests.scripts.records_smoke` (a minute, by hand).

Two real runs of two CPU ranks: one passes, in the other rank 1 is stopped with SIGSTOP while it trains. What is kept is
what `mgpu smoke-test --show` reads, redacted, without what tells of this machine only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from mgpu.report import document
from mgpu.smoke.report import result_paths
from mgpu.snapshot import Snapshot, loads, to_json
from mgpu.snapshot.redaction import redact
from tests.conftest import ROOT, environment
from tests.scripts import kill_all, write_config

RECORDED = ROOT / "tests" / "smoke_runs"
_LONGEST_STACK = 2000


def main() -> None:
    """Both runs."""
    for name, flags in (("passed", ()), ("stopped", ("--stall-timeout", "5"))):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "project"
            folder.mkdir()
            write_config(folder)
            run = subprocess.Popen(
                [sys.executable, "-m", "mgpu", "smoke-test", *flags], cwd=folder,
                env=environment(Path(scratch) / "home", {"OMP_NUM_THREADS": "1"}),
            )  # fmt: skip
            try:
                if name == "stopped":
                    _stop_when_training(folder, run)
                run.wait()
            finally:
                kill_all(folder)
            (logs,) = (folder / "runs").iterdir()
            _keep(logs, RECORDED / name)


def _stop_when_training(folder: Path, run: subprocess.Popen[bytes]) -> None:
    while run.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            for journal in folder.glob(".mgpu/runs/*/rank1.jsonl"):
                lines = [json.loads(line) for line in journal.read_text().splitlines()]
                if re.match(r"step \d+ of", str(lines[-1].get("word"))):
                    os.kill(next(line["identity"]["pid"] for line in lines if "identity" in line), signal.SIGSTOP)
                    return
        time.sleep(0.001)


def _keep(logs: Path, to: Path) -> None:
    told, facts = result_paths(str(logs))
    whole = redact(loads(facts.read_text("utf-8")))
    assert whole.ranks is not None
    ranks = [replace(r, stack=(r.stack or "")[:_LONGEST_STACK] or None, pid=4300 + r.rank) for r in whole.ranks.ranks]
    snapshot = Snapshot(
        driver=whole.driver, gpus=whole.gpus, visible=whole.visible, plan=whole.plan, config=whole.config,
        taken=whole.taken, mgpu=whole.mgpu,
        ranks=replace(whole.ranks, ranks=tuple(ranks), launcher_output=None, folder=".mgpu/runs/smoke-20261121-100412"),
        redacted=True,
    )  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    text = document.text(to_json(snapshot), indent=1)
    for path in {str(Path(sys.prefix)), sys.base_prefix}:
        text = text.replace(path, "/opt/env")
    text = text.replace(str(ROOT), "/opt/env/src").replace(str(logs.parents[1]), "/home/user/project")
    (to / facts.name).write_text(text, "utf-8")
    whole_document = json.loads(told.read_text("utf-8"))
    short = {key: whole_document[key] for key in ("schema", "verdict", "exit_code", "duration_s", "stamp", "config")}
    (to / told.name).write_text(document.text(short), "utf-8")


if __name__ == "__main__":
    main()
