"""`mgpu launch --why`, `--status`, result.json and Ctrl-C, with real ranks over gloo that hang or train."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from mgpu import errors
from mgpu.hangs import hang_files
from mgpu.launch import registry
from tests.conftest import Run, environment
from tests.hosts import Network
from tests.scripts import kill_all, wait_for, write_config
from tests.test_schema import RUN, STATUS, WHY

LAUNCH = ("launch", "--yes", "--unverified", "allow", "--launcher", "torchrun", "--hang-after", "4")
# Trains; at step 8, rank 1 sleeps, or only rank 0 calls a collective.
TRAIN = """\
import sys
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12 if sys.argv[1] == "skips" else 100000):
    if step == 8 and sys.argv[1] == "sleeps" and dist.get_rank() == 1:
        time.sleep(1000)
    if step == 8 and sys.argv[1] == "skips" and dist.get_rank() == 0:
        dist.all_reduce(torch.ones(420))
    model(torch.randn(2, 20)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
dist.barrier()
"""
# Prints what py-spy would of a rank that sleeps, and of one that waits for it.
PY_SPY = """\
#!/bin/sh
for last; do :; done
rank=$(tr '\\0' '\\n' < /proc/$last/environ | sed -n 's/^RANK=//p')
if [ "$rank" = 1 ]; then file=/home/me/train.py name=sleep_here
else file=/v/site-packages/torch/distributed/distributed_c10d.py name=barrier; fi
echo "[{\\"os_thread_id\\": $last, \\"thread_name\\": \\"MainThread\\", \\"frames\\":
 [{\\"name\\": \\"$name\\", \\"filename\\": \\"$file\\", \\"line\\": 7}]}]"
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with a config and programs; nothing that runs here outlives the test."""
    (tmp_path / "train.py").write_text(TRAIN)
    write_config(tmp_path)
    yield tmp_path
    for path in (tmp_path / "home" / "state" / "mgpu" / "runs").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if registry.is_supervised(left := registry.load(path)):
                os.kill(left.pid, signal.SIGKILL)
    kill_all(tmp_path)


def why(mgpu: Run, *arguments: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of --why."""
    done = mgpu("launch", "--why", "--json-result", "-", *arguments, **more)
    if not done.stdout:
        return done.returncode, {"error": done.stderr}
    document = json.loads(done.stdout)
    WHY.validate(document)
    return done.returncode, document


def test_a_run_that_hangs(mgpu: Run, here: Path) -> None:
    """What --why says is what the run itself says, --status shows and result.json keeps."""
    run = mgpu(*LAUNCH, "--detach", "--log-dir", "logs", "train.py", "sleeps").stdout.strip()
    code, found = wait_for(lambda: answer if _steps(answer := why(mgpu)) == 8 and answer[0] else None)
    assert code == errors.NOT_READY, found
    assert found["run"] == run
    assert (found["progress"], found["hang"]["id"], found["hang"]["rank"]) == (False, "hang_rank_sleeps", 1)
    assert found["hang"]["collective"].startswith("all_reduce #")
    rows = {row["rank"]: row for row in found["hang"]["ranks"]}
    assert rows[1]["line"] == "time.sleep(1000)"
    assert rows[0]["collective"] == found["hang"]["collective"]
    shown = mgpu("launch", "--why", run).stdout
    assert "Rank 1 sleeps at train.py:" in shown, shown
    assert "hang_rank_sleeps" in shown
    wait_for(lambda: hang_files.read(here / "logs"))
    status = mgpu("launch", "--status", "--json-result", "-", run)
    assert status.stdout, status.stderr
    STATUS.validate(document := json.loads(status.stdout))
    assert document["runs"][0]["hang"]["id"] == "hang_rank_sleeps"
    assert "rank 1 sleeps at train.py:" in " ".join(mgpu("launch", "--status", run).stdout.split())
    assert mgpu("launch", "--stop", run).returncode == errors.READY
    document = json.loads((here / "logs" / "result.json").read_text())
    RUN.validate(document)
    assert document["hang"]["id"] == document["probable_cause"]["id"] == "hang_rank_sleeps"
    ended = mgpu("launch", "--why", run)
    assert ended.returncode == errors.NOT_READY
    assert "Rank 1 sleeps at train.py:" in ended.stdout and "it has ended" in ended.stdout
    of_folder = mgpu("doctor", "--log", "logs")
    assert "rank 1 sleeps at train.py:" in " ".join(of_folder.stdout.split()), of_folder.stdout + of_folder.stderr
    (here / "mailed.log").write_bytes((here / "logs" / "run.log").read_bytes())  # without hang.json beside it
    mailed = mgpu("doctor", "--log", "mailed.log").stdout
    assert "rank 1 sleeps at train.py:" in " ".join(mailed.split()) and "log_run_hung" in mailed, mailed
    again = mgpu(*LAUNCH, "--dry-run", "--log-dir", "logs", "train.py", "sleeps")  # its files are ours to remove
    assert again.returncode == errors.READY, again.stderr
    assert "Recorder   in each rank, for hangs" in again.stdout
    assert "Recorder" not in mgpu(*LAUNCH, "--dry-run", "--no-recorder", "train.py", "sleeps").stdout


def _steps(answer: tuple[int, dict[str, Any]]) -> int:
    ranks = answer[1].get("hang", {}).get("ranks", [])
    return min((rank["steps"] or 0 for rank in ranks), default=0)


def test_a_run_that_trains(mgpu: Run, here: Path) -> None:
    mgpu(*LAUNCH, "--detach", "train.py", "trains")
    _, found = wait_for(lambda: answer if _steps(answer := why(mgpu)) > 3 else None)
    assert (found["exit_code"], found["progress"]) == (errors.READY, True)
    shown = mgpu("launch", "--why")
    assert shown.returncode == errors.READY
    assert "All ranks make progress." in shown.stdout
    assert mgpu("launch", "--stop").returncode == errors.READY
    nothing = mgpu("launch", "--why")
    assert nothing.returncode == errors.UNKNOWN
    assert "mgpu launch --why PID" in nothing.stderr


def test_a_process_that_mgpu_did_not_start(mgpu: Run, here: Path) -> None:
    """Without a recorder and without py-spy, only a rank that is stopped is certain."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    variables = environment(here / "home", {"MGPU_RUN_ID": "a test's"})
    runner = subprocess.Popen([*command, "train.py", "sleeps"], cwd=here, env=variables, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(_pids(why(mgpu, str(runner.pid)))) == 2)
        time.sleep(6)
        code, found = why(mgpu, str(runner.pid))
        assert (code, found["run"], found["progress"]) == (errors.UNKNOWN, None, None), found
        assert any("it has no recorder" in gap for gap in found["gaps"])
        assert any("mgpu launch" in gap for gap in found["gaps"])
        (here / "py-spy").write_text(PY_SPY)
        (here / "py-spy").chmod(0o755)
        path = {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
        code, found = why(mgpu, str(runner.pid), env=path)
        assert (code, found["hang"]["rank"], found["hang"]["at"]) == (errors.NOT_READY, 1, "train.py:7"), found
        rank = _pids((code, found))[1]
        code, of_rank = why(mgpu, str(rank))  # the PID of one of its ranks
        assert sorted(_pids((code, of_rank)).values()) == sorted(_pids((code, found)).values())
        os.kill(rank, signal.SIGSTOP)
        code, found = why(mgpu, str(runner.pid))
        assert (code, found["hang"]["id"]) == (errors.NOT_READY, "hang_rank_stopped")
        assert runner.poll() is None
    finally:
        runner.kill()
        runner.wait()
        kill_all(here)


def _pids(answer: tuple[int, dict[str, Any]]) -> dict[int, int]:
    return {rank["rank"]: rank["pid"] for rank in answer[1].get("hang", {}).get("ranks", [])}


def test_ctrl_c_collects_and_a_second_one_does_not_wait(here: Path) -> None:
    terminal = pexpect.spawn(
        sys.executable, ["-m", "mgpu", *LAUNCH[:-2], "train.py", "skips"],
        cwd=str(here), env=environment(here / "home", {"TERM": "xterm"}), encoding="utf-8", timeout=60,
    )  # fmt: skip
    terminal.expect("your program's output starts here")
    wait_for(lambda: sorted(beat.read_bytes()[0] for beat in here.glob(".mgpu/runs/*/recorder/*.beat")) == [11, 12])
    time.sleep(11)  # without a step
    terminal.sendcontrol("c")
    terminal.expect(r"collecting what the ranks do \(2 s\); Ctrl-C again to stop at once", timeout=10)
    terminal.expect(r"ending the run: the launcher waits up to 30 s for ranks that hang, Ctrl-C\s+again", timeout=15)
    time.sleep(0.5)
    terminal.sendcontrol("c")
    terminal.expect(pexpect.EOF, timeout=25)  # the launcher itself would wait 30 s for its ranks
    assert "hang_collectives_differ" in terminal.before
    terminal.close()
    assert terminal.exitstatus == errors.INTERRUPTED


def test_two_nodes_that_share_a_log_dir_are_one_run(mgpu: Run, tmp_path: Path) -> None:
    """Node 0 says what is wrong on node 1."""
    logs = tmp_path / "logs"
    with Network(tmp_path / "hosts") as hosts:
        for name in hosts.names:
            (hosts.folder / name / "train.py").write_text(TRAIN)
            write_config(hosts.folder / name, _TWO_NODES)
        options = (*LAUNCH, "--log-dir", str(logs))
        runners = [
            hosts.start(name, *options, "--node-rank", str(node), "train.py", "sleeps")
            for node, name in enumerate(hosts.names)
        ]
        notes = logs / "node0" / "mgpu.log"
        wait_for(lambda: notes.exists() and "rank 1 sleeps at train.py:" in notes.read_text(), 90)
        code, found = why(mgpu, str(logs))
        for runner in runners:
            runner.terminate()
    assert (code, found["hang"]["id"], found["hang"]["rank"]) == (errors.NOT_READY, "hang_rank_sleeps", 1), found
    assert [rank["rank"] for rank in found["hang"]["ranks"]] == [0, 1]


_TWO_NODES = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 2
machine_rank: 0
main_process_ip: 10.200.0.1
main_process_port: 29655
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    "given",
    [("--why", "--stop"), ("--why", "--gpus", "2"), ("--why", "a", "b")],
)
def test_what_goes_with_why(mgpu: Run, given: tuple[str, ...]) -> None:
    done = mgpu("launch", *given)
    assert done.returncode == errors.USAGE
    assert "--why" in done.stderr
