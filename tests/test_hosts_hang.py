"""A run on hosts that are reached with ssh: hangs, slow hosts, memory, NaN and logs of all of them in one answer.

Real ssh servers on hosts of namespaces, real torchrun with one CPU rank on each of two hosts.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.fleet import hosts_launch, hosts_run, part_files
from mgpu.fleet.hosts_watch import HostsHangs
from mgpu.hangs import hang_files
from mgpu.launch import node_answers
from mgpu.process.command import Command
from mgpu.snapshot import Hang, HangRank, StackFrame
from tests.scripts import wait_for
from tests.ssh_hosts import SshHosts
from tests.test_hosts_launch import Run
from tests.test_schema import RUN, WHY

_CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
mixed_precision: 'no'
num_machines: 1
num_processes: 1
use_cpu: true
"""
_SCRIPT = """\
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
on, step = torch.ones(1), 0
while on.item():
    step += 1
    time.sleep(0.03 + 0.12 * rank)
    loss = model(torch.randn(4, 20)).sum()
    if step == 12 and rank == 1:
        (loss * 0 / 0).backward()  # NAN
    else:
        loss.backward()  # WAITS
    optimizer.step()
    on = torch.tensor([0.0 if rank == 0 and os.path.exists("enough") else 1.0])
    dist.broadcast(on, 0)
print("enough", flush=True)
if rank == 1:
    time.sleep(1000)  # SLEEPS
dist.barrier()  # BARRIER
"""


def line(mark: str) -> str:
    return f"train.py:{[text.endswith(f'# {mark}') for text in _SCRIPT.splitlines()].index(True) + 1}"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh") / "hosts") as hosts:
        hosts.head.write("project/accelerate.yaml", _CONFIG)
        hosts.head.write("project/train.py", _SCRIPT)
        hosts.copy_project()
        yield hosts


def words(text: str) -> str:
    return " ".join(text.split())


def mgpu(bed: SshHosts, *arguments: str) -> tuple[int, str, str]:
    done = bed.head.run(sys.executable, "-m", "mgpu", *arguments, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_run_whose_second_host_is_slow_then_has_a_nan_then_hangs(bed: SshHosts) -> None:
    """One run: each answer is one for all hosts, while it lasts and after its end."""
    run = Run(bed, "all", "--hang-after", "12", "--on-hang", "stop")
    wait_for(lambda: "is slower" in run.text or run.process.poll() is not None, 180)
    status = mgpu(bed, "launch", "--status", run.folder.name)[1]
    assert "Hosts n1: rank 0; n2: rank 1" in words(status) and "RANK HOST STEP LOADER WAITS" in words(status), status
    bed["n1"].write("project/enough", "")
    run.ready("[n1] enough", "[n2] enough")

    def why(*more: str) -> dict[str, Any] | None:
        code, out, _ = mgpu(bed, "launch", "--why", "--json-result", "-", *more)
        found: Any = json.loads(out) if out else {"hang": {"id": None}}
        return found if code == errors.NOT_READY and found["hang"]["id"] != "hang_rank_works" else None

    asked: Any = wait_for(why, 60)
    WHY.validate(asked)
    assert not asked["gaps"] and [one["host"] for one in asked["hang"]["ranks"]] == ["n1", "n2"]
    assert run.ends() == errors.TIMED_OUT, run.text
    said, result = words(run.text), run.result
    RUN.validate(result)
    ended: Any = why(run.folder.name)
    for hang in (asked["hang"], result["hang"], ended["hang"]):
        assert (hang["id"], hang["rank"], hang["at"]) == ("hang_rank_sleeps", 1, line("SLEEPS")), hang
    notes, said = (re.sub(r"\d+%", "N%", text) for text in ((run.folder / "mgpu.log").read_text(), said))
    for finding in (
        f"rank 1 (host n2) sleeps at {line('SLEEPS')}. Rank 0 (host n1) waits in barrier #",
        f"the loss of rank 1 (host n2) is nan in step 12 ({line('NAN')})",
        "host n2 is slower: its ranks come last in N% of the steps, and the other host waits ",
    ):
        assert notes.count(finding) == 1 and finding in said, (finding, said)
    assert said.count("what the other rank") == 0, "the hosts' own verdicts, each on its own ranks, are not shown"
    assert (result["first_failure"]["rank"], result["first_failure"]["host"]) == (1, "n2")
    assert {one["id"] for one in result["remarks"]} == {"run_not_finite", "run_host_slows_others"}
    assert [(one["host"], round(one["last_share"])) for one in result["pace"]["ranks"]] == [("n1", 0), ("n2", 1)]
    assert [(one["rank"], one["host"]) for one in result["ranks"]] == [(0, "n1"), (1, "n2")]
    assert all((one["peak_host"] or 0) > 1 << 20 for one in result["ranks"]), (result["ranks"], run.text)
    for number, name in enumerate(bed.nodes):
        place = run.folder / "hosts" / f"node-{name}"
        assert "enough" in (place / "run.log").read_text() and (place / "result.json").is_file()
        assert list((place / "recorder").glob(f"{number}.*.stacks"))
    _, out, _ = mgpu(bed, "doctor", "--log", run.place)
    assert f"rank 1 (host n2) sleeps at {line('SLEEPS')}" in words(out), out


# Without hosts: what has come from them is planted.


def test_a_host_has_the_time_to_stop_that_its_own_launcher_has() -> None:
    """Else it would count as lost while torchrun there still waits for a rank that ignores SIGTERM."""
    launcher_s = Command(()).stop_s
    assert launcher_s < hosts_run.STOP_S < hosts_launch.STOPS_WITHIN_S


WAITS = HangRank(
    0,
    7,
    "sleeping",
    busy=False,
    frames=(
        StackFrame("/torch/distributed/distributed_c10d.py", 9, "barrier", library=True),
        StackFrame("train.py", 9, "<module>"),
    ),
)
SLEEPS = HangRank(1, 7, "sleeping", busy=False, frames=(StackFrame("train.py", 8, "<module>", "time.sleep(9)"),))


@pytest.fixture
def joined(tmp_path: Path) -> tuple[HostsHangs, Path, Path]:
    shared = tmp_path / "hosts"
    shared.mkdir()
    part_files.Received(shared, ["n1", "n2"])
    hangs = HostsHangs(tmp_path, shared, ["n1", "n2"], world=2, after_s=30.0, stops=True)
    return hangs, shared / "node-n1", shared / "node-n2"


def looked(hangs: HostsHangs) -> list[str]:
    said: list[str] = []
    hangs.look(said.append, at_once=True)
    return said


@pytest.mark.parametrize("answer", ["goes on", "hangs too", "none"])
def test_a_host_that_has_not_noticed_is_asked(
    joined: tuple[HostsHangs, Path, Path], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks may go on: then there is no hang. Without an answer, no rank of it is blamed."""
    hangs, first, second = joined
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    hang_files.write(first, Hang(40.0, 1.0, (WAITS,), 1, 2))
    assert looked(hangs) == [] and not (first.parent / node_answers.REQUEST).exists()
    now[0] += 4
    assert looked(hangs) == []
    number = node_answers.requested(first.parent)
    assert number > 0
    if answer != "none":
        quiet = 1.0 if answer == "goes on" else 44.0
        node_answers.answer(second, number, Hang(quiet, 1.0, (SLEEPS,), 1, 2))
    now[0] += 1
    said = looked(hangs)
    if answer == "hangs too":
        assert said[0].startswith("no progress for 40 s: rank 1 (host n2) sleeps at train.py:8") and hangs.is_to_stop
        return
    assert said == []
    now[0] += 10
    said = looked(hangs)
    assert not hangs.is_to_stop
    assert said == [] if answer == "goes on" else "what the other rank of this run does is not known here" in said[0]


def test_what_a_host_may_store(tmp_path: Path) -> None:
    """Only known names, no more than so much, and no other place."""
    received = part_files.Received(tmp_path, ["n1"])
    names = [
        "hang.json",
        "recorder/0.7.stacks",
        "run.log",
        "../x",
        "recorder/../../x",
        "/tmp/x",
        "run.log/x",
        ".mgpu-run.json",
    ]
    for name in names:
        received.take("n1", {"event": "file", "name": name, "text": "{}"})
    received.take("n1", {"event": "file", "name": "mgpu.log", "text": "x" * (17 << 20)})
    received.take("n3", {"event": "file", "name": "run.log", "text": "x"})
    received.take("n1", {"event": "file", "name": ["run.log"], "text": 3})
    place = tmp_path / "node-n1"
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [f"node-n1/{name}" for name in (".mgpu-run.json", "hang.json", "recorder/0.7.stacks", "run.log")]
    received.take("n1", {"event": "file", "name": "hang.json", "text": None})
    assert not (place / "hang.json").exists()
