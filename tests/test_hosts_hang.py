"""A run on hosts that are reached with ssh: hangs, slow hosts, memory, NaN and logs of all of them in one answer.

Real ssh servers on hosts of namespaces, real torchrun with one CPU rank on each of two hosts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mgpu import errors
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
    notes = (run.folder / "mgpu.log").read_text()
    for finding in (
        f"rank 1 (host n2) sleeps at {line('SLEEPS')}. Rank 0 (host n1) waits in barrier #",
        f"the loss of rank 1 (host n2) is nan in step 12 ({line('NAN')})",
        "host n2 is slower: its ranks come last in 100% of the steps, and the other host waits ",
    ):
        assert notes.count(finding) == 1 and finding in said, (finding, said)
    assert said.count("what the other rank") == 0, "the hosts' own verdicts, each on its own ranks, are not shown"
    assert (result["first_failure"]["rank"], result["first_failure"]["host"]) == (1, "n2")
    assert {one["id"] for one in result["remarks"]} == {"run_not_finite", "run_host_slows_others"}
    assert [(one["host"], one["last_share"]) for one in result["pace"]["ranks"]] == [("n1", 0.0), ("n2", 1.0)]
    assert [(one["rank"], one["host"], one["peak_host"] > 1 << 20) for one in result["ranks"]] == [
        (0, "n1", True),
        (1, "n2", True),
    ]
    for number, name in enumerate(bed.nodes):
        place = run.folder / "hosts" / f"node-{name}"
        assert "enough" in (place / "run.log").read_text() and (place / "result.json").is_file()
        assert list((place / "recorder").glob(f"{number}.*.stacks"))
    _, out, _ = mgpu(bed, "doctor", "--log", run.place)
    assert f"rank 1 (host n2) sleeps at {line('SLEEPS')}" in words(out), out
