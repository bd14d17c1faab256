"""`mgpu launch --why`: which processes are the ranks, and what is said of a run that is stopped, finished or absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.launch import hang_report, why, why_subject
from mgpu.launch.request import Request
from mgpu.process import processes
from mgpu.report.screen import Screen
from mgpu.snapshot import HangRank, Worker
from tests.checks.facts import frame, hang, hang_rank, waits
from tests.checks.test_hang import REDUCE
from tests.scripts import wait_for
from tests.test_runs import entry, runs

__all__ = ["runs"]
# Starts processes as a launcher does its ranks, each of which starts two workers of its own, and writes their PIDs.
LAUNCHER = """\
import json, os, subprocess, sys, time
RANK = '''
import subprocess, sys, time
pids = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid for _ in range(2)]
print(*pids, flush=True)
time.sleep(60)
'''
found = {}
for rank in range(2):
    more = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "1"} | ({"LOCAL_RANK": str(rank)} if LOCAL else {})
    child = subprocess.Popen([sys.executable, "-c", RANK], env=os.environ | more, stdout=subprocess.PIPE)
    found[child.pid] = list(map(int, child.stdout.readline().split()))
open(sys.argv[1] + ".part", "w").write(json.dumps(found))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""


@pytest.fixture(params=["torchrun", "without LOCAL_RANK", "on Kubeflow"])
def launched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, dict[int, list[int]]]]:
    """A launcher, and the workers of each of its ranks. Kubeflow sets RANK for the launcher, too: that of the node."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    if request.param == "on Kubeflow":
        variables |= {"RANK": "0", "WORLD_SIZE": "1"}
    program = f"LOCAL = {request.param != 'without LOCAL_RANK'}\n{LAUNCHER}"
    pids = tmp_path / "pids"
    runner = subprocess.Popen([sys.executable, "-c", program, str(pids)], env=variables)
    try:
        wait_for(pids.exists, 20)
        yield runner.pid, {int(rank): workers for rank, workers in json.loads(pids.read_text()).items()}
    finally:
        for pid in reversed(processes.with_descendants(runner.pid)):
            processes.signal_all([pid], 9)
        runner.wait()


def test_workers_are_not_ranks(launched: tuple[int, dict[int, list[int]]]) -> None:
    """The workers of a rank inherit its RANK; the rank is the process above them."""
    launcher, workers = launched
    ranks = dict(enumerate(workers))
    for pid in (launcher, *ranks.values(), *(worker for of_rank in workers.values() for worker in of_rank)):
        found = {rank: process.pid for rank, process in processes.ranks_around(pid).items()}
        assert found == ranks, pid


def test_a_run_that_is_stopped_as_a_whole() -> None:
    """No rank waits, and `kill -CONT` of one rank would leave its launcher stopped."""
    workers = (Worker(21, "stopped"), Worker(22, "sleeping"))
    stopped = [
        HangRank(0, 10, "stopped", stopped_above=(3, 4), workers=workers[1:]),
        HangRank(1, 11, "stopped", stopped_above=(3, 4), workers=workers),
    ]
    found = hang_report.first_finding(hang(*stopped))
    assert found is not None and found.problem is not None
    assert found.problem.title == "ranks 0 and 1 are stopped (SIGSTOP)"
    assert "others" not in found.problem.cause
    (fix,) = found.problem.fixes
    assert "Type fg in the terminal of the run" in fix.text and fix.commands == ("kill -CONT 3 4 10 11 21",)
    one = hang_report.first_finding(hang(waits(0, REDUCE), HangRank(1, 11, "stopped")))
    assert one is not None and one.problem is not None
    assert "Rank 0 waits in" in one.problem.cause and "The others wait" in one.problem.cause
    assert one.problem.fixes[0].commands == ("kill -CONT 11",)
    on_hosts = [replace(rank, host=f"n{rank.rank}") for rank in stopped]
    far = hang_report.first_finding(hang(*on_hosts))
    assert far is not None and far.problem is not None
    assert far.problem.fixes[0].commands == ("ssh n0 kill -CONT 3 4 10", "ssh n1 kill -CONT 3 4 11 21")


def test_what_is_stopped_above_a_process() -> None:
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    outer = subprocess.Popen([sys.executable, "-c", inner])
    try:
        below = wait_for(lambda: processes.with_descendants(outer.pid)[1:])
        assert processes.stopped_above(below[0]) == ()
        processes.signal_all([outer.pid], 19)
        wait_for(lambda: processes.state_of(outer.pid) == "stopped")
        assert processes.stopped_above(below[0]) == (outer.pid,)
    finally:
        processes.signal_all([*processes.with_descendants(outer.pid)], 9)
        outer.wait()


def test_a_run_that_finishes_meanwhile(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ranks have ended, and then it has: that is no failure."""
    going = entry(runs, ranks=2)
    over: dict[str, Any] = {"ended": "2099-01-01T00:00:00Z", "exit_code": 0}
    monkeypatch.setattr("time.sleep", lambda seconds: entry(runs, ranks=2, started=going.started, **over))
    assert why.run(Request(why=True), None, [going]) == errors.READY
    said = capsys.readouterr().out
    assert f"{going.id} has finished after" in said and "exit 0" in said and "unknown" not in said, said
    assert why.run(Request(why=True, json_result="-"), going.id, [going]) == errors.READY
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["progress"], document["hang"]["ranks"]) == (0, None, [])


def test_which_run_is_meant_without_a_name(runs: Path) -> None:
    """That of this folder: the running one, else the last one if it hung; one of another folder only after these."""
    found = [entry(runs, "theirs-bbbb", cwd="/projects/other")]

    def meant() -> str:
        return why_subject.find_subject(None, found).name

    assert meant() == "theirs-bbbb"
    hung = entry(runs, "hung-aaaa", ended="2026-11-21T10:12:01Z", exit_code=124, started="2026-11-21T10:12:00Z")
    found.append(hung)
    assert meant() == "theirs-bbbb"
    Path(hung.folder).mkdir()
    hang_files.write(Path(hung.folder), hang(HangRank(1, 11, "stopped")))
    assert meant() == "hung-aaaa"
    found.append(entry(runs, "mine-cccc"))
    assert meant() == "mine-cccc"


def test_a_run_without_ranks(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It may just be starting: its ranks have not "ended"."""
    monkeypatch.setattr(why_subject, "_ENDS_S", 0.0)
    assert why.run(Request(why=True), None, [entry(runs, ranks=2)]) == errors.UNKNOWN
    said = capsys.readouterr().out
    assert "no rank of it is running now: it is starting or ending" in said and "ended" not in said, said


def test_a_number_that_is_nothing_here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a process nor a run; with Slurm's commands it may be a job, whose messages are one line."""
    from mgpu.cli import launch

    (tmp_path / "scontrol").write_text(
        "#!/bin/sh\necho 'scontrol: error: fetch_config: DNS SRV lookup failed' >&2\n"
        "echo 'scontrol: fatal: Could not establish a configuration source' >&2\nexit 1\n"
    )
    (tmp_path / "scontrol").chmod(0o755)
    for path, rest in (("/nowhere", "List all runs:  mgpu launch --status"), (str(tmp_path), "As a Slurm job: ")):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(MgpuError, match=r"^there is no process 99999999 on this machine") as error:
            launch.launch(Request(why=True, target=("99999999",)))
        assert rest in error.value.message and error.value.exit_code == errors.UNKNOWN
    assert error.value.message.endswith("job 99999999: Could not establish a configuration source")
    named = entry(runs, "20261121-1012-99999999", ended="2026-11-21T10:12:01Z", exit_code=0)
    assert launch.launch(Request(why=True, target=("99999999",))) == errors.READY, named


@pytest.mark.parametrize(
    ("options", "schema"),
    [("--status", "mgpu.runs/1.0"), ("--why", "mgpu.why/1.0")],
)
def test_options_after_the_name_of_a_run(
    options: str, schema: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was started earlier has no arguments: they are mgpu's."""
    from mgpu.cli import launch, option_parser

    named = entry(runs, ended="2026-11-21T10:12:01Z", exit_code=0)

    def code_of(*words: str) -> int:
        line = option_parser.read(["launch", *words])
        assert line is not None
        return launch.run({name: value for name, value in line[1].items() if name != "no_color"})

    for words in ((options, named.id, "--json-result", "-"), (options, named.id, "--json-result=-")):
        assert code_of(*words) == errors.READY
        assert json.loads(capsys.readouterr().out)["schema"] == schema
    path = tmp_path / "found.json"
    assert code_of(options, named.id, "--json-result", str(path)) == errors.READY
    assert json.loads(path.read_text())["schema"] == schema
    for words in ((options, named.id, "--epochs", "3"), (options, named.id, "another"), (options, named.id, "--stop")):
        with pytest.raises(MgpuError, match=r"at most one run|choose one"):
            code_of(*words)


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_the_ranks_fit_and_no_line_of_code_is_cut(columns: int) -> None:
    screen = replace(Screen.of(sys.stderr), width=columns)
    code = "loss = torch.nn.functional.cross_entropy(model(batch), labels, weight=weights)"
    found = hang(waits(0, REDUCE), hang_rank(1, frame(code, line=31)), quiet_s=42.0)
    shown = ["".join(text for text, _ in line).rstrip() for line in hang_report.table(found, screen)]
    assert max(map(len, shown)) <= columns, shown
    joined = "".join("".join(shown).split())
    assert code.replace(" ", "") in joined and "train.py:31" in joined


def test_stored_hangs_still_load(tmp_path: Path) -> None:
    """A hang that an older mgpu stored has no list of what is stopped above a rank."""
    known = hang(HangRank(1, 11, "stopped", stopped_above=(3,)))
    hang_files.write(tmp_path, known)
    assert hang_files.read(tmp_path) == known
