"""Does bare mgpu know the runs of this folder, and propose no second one while one is running?"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mgpu import durations
from mgpu.cli import guide
from mgpu.cli.runs_here import RunHere
from mgpu.hangs import hang_files
from mgpu.launch import registry
from mgpu.launch.registry import Entry
from mgpu.process import boot
from tests.checks.facts import hang, hang_rank, waits
from tests.conftest import Run, environment
from tests.terminal import ENTER, Terminal
from tests.test_hang_watch import SLEEPS

RUN = "20261201-113252-47a7"


@pytest.fixture
def supervisor() -> Iterator[int]:
    """The pid of a process that stands for the one that supervises a run."""
    process = subprocess.Popen(["sleep", "300"])
    yield process.pid
    process.kill()
    process.wait()


def saved(home: Path, pid: int, **changed: Any) -> Entry:
    """The entry of a run in the list, running unless something else is said."""
    runs = home / "state" / "mgpu" / "runs"
    for folder in (runs.parents[1], runs.parent, runs):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    entry = Entry(
        id=RUN, run_id="mark", host=socket.gethostname(), boot_id=boot.boot_id(), pid_space=registry.pid_space(),
        pid=pid, pid_started=registry.started_at(pid) or 0, folder=str(home.parent / "logs"), cwd=str(home.parent),
        target=("train.py", "--lr", "1"), command=("python", "train.py"), config="accelerate.yaml",
        started=durations.now(), ranks=2,
    )  # fmt: skip
    entry = dataclasses.replace(entry, **changed)
    (runs / f"{entry.id}.json").write_text(json.dumps(dataclasses.asdict(entry)))
    (runs / f"{entry.id}.json").chmod(0o600)
    return entry


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_running_run_and_its_hang(mgpu: Run, tmp_path: Path, supervisor: int) -> None:
    saved(tmp_path / "home", supervisor)
    shown = mgpu().stdout
    assert re.search(r"^Running   train\.py --lr 1 is running, started (just now|\d s ago)\.$", shown, re.MULTILINE)
    assert f"\nNext:  mgpu launch --status {RUN}\n" in shown and shown.count("mgpu launch --status") == 1
    assert "Next:  mgpu doctor" not in shown and re.search(r"^  mgpu launch .* running$", shown, re.MULTILINE)

    (tmp_path / "logs").mkdir()
    hang_files.write(tmp_path / "logs", hang(waits(0), hang_rank(1, SLEEPS), world=2))
    shown = mgpu().stdout
    assert re.search(r"Hang train\.py .* no progress for \d+ s: .*\[hang_rank_sleeps\]", words(shown)), shown
    assert f"\nNext:  mgpu launch --why {RUN}\n" in shown
    (tmp_path / "elsewhere").mkdir()
    assert "Hang" not in mgpu(cwd=tmp_path / "elsewhere").stdout


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        ({"exit_code": 1}, "Last run train.py --lr 1 FAILED just now after 0 s, exit 1."),
        ({"exit_code": 0}, ""),
        ({"exit_code": 130, "signalled": "SIGINT"}, ""),
    ],
)
def test_the_last_run_if_it_failed(ended: dict[str, Any], text: str, mgpu: Run, tmp_path: Path) -> None:
    now = durations.now()
    saved(tmp_path / "home", os.getpid(), started=now, ended=now, **ended)
    earlier = {"id": "20261130-000000-1111", "started": "2026-11-30T00:00:00Z", "ended": "2026-11-30T00:01:00Z"}
    saved(tmp_path / "home", os.getpid(), **earlier, exit_code=1)
    shown = mgpu().stdout
    assert ("Last run" in shown) is bool(text) and text in words(shown), shown
    assert (f"mgpu launch --report {RUN}\n" in shown) is bool(text)
    assert "Next:  mgpu doctor\n" in shown


def test_the_menu(tmp_path: Path, supervisor: int) -> None:
    """Its columns stay apart, and Enter asks about the run."""
    saved(tmp_path / "home", supervisor)
    env = environment(tmp_path / "home")
    terminal = Terminal([sys.executable, "-m", "mgpu"], env=env, cwd=tmp_path, lines=40)
    terminal.see("Leave")
    menu = [row for row in terminal.text.splitlines() if re.match(r" (> |  )\d\)", row)]
    assert menu == [
        " > 1) mgpu launch --status   show the run",
        "   2) mgpu doctor            is this machine ready?",
        "   3) mgpu configure         a few questions, then a config",
        "   4) mgpu smoke-test        prove the ranks train together",
        "   5) mgpu doctor --hosts    several machines, over ssh",
        "   6) Leave",
    ]
    terminal.press(ENTER)
    terminal.see(f"{RUN}  running, ")
    terminal.child.close(force=True)


def test_a_verdict_of_another_environment_or_host_is_none(mgpu: Run, tmp_path: Path) -> None:
    state = tmp_path / "home" / "state" / "mgpu"
    state.mkdir(parents=True)
    here = {"verdict": "no_gpu", "time": durations.now(), "host": os.uname().nodename, "python": sys.prefix}

    def doctor(**changed: Any) -> str:
        (state / "doctor.json").write_text(json.dumps(here | changed))
        text = mgpu().stdout
        found = re.search(r"ready\? +(.*?) +mgpu configure", words(text))
        assert found, text
        return found[1]

    assert doctor() == "no GPU here, just now"
    assert doctor(python="/another/.venv") == doctor(python=None) == "not run yet in this environment"
    assert doctor(host="another-host") == "not run yet on this host"


def test_launch_is_offered_if_it_is_next_and_its_script_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ready = [guide.Step(f"mgpu {name}", "", "done", "") for name in ("doctor", "configure", "smoke-test")]
    launch = guide.Step("mgpu launch", "", "todo", "", "mgpu launch 'my train.py'")

    def offered(*steps: guide.Step, runs: Sequence[RunHere] = ()) -> list[str]:
        here = guide.Here(steps, runs)
        return [choice.name for choice in guide._offered(here) if choice.name.startswith("mgpu launch")]

    assert offered(*ready, launch) == []
    Path("my train.py").touch()
    assert offered(*ready, launch) == [launch.typed] == [guide.Here([*ready, launch], ()).next_line]
    assert offered(dataclasses.replace(ready[0], state="todo"), *ready[1:], launch) == []
    running = RunHere("Running", "", "", f"mgpu launch --status {RUN}", "", running=True)
    assert offered(*ready, dataclasses.replace(launch, state="done"), runs=[running]) == [running.command]
    job = dataclasses.replace(launch, line="mgpu launch --slurm train.sbatch")
    assert offered(*ready, job) == [job.typed]
