"""Memory, pace and values that are not finite of the ranks of a Slurm job, on all its nodes; and what is left there.

Real Slurm with two nodes, real ranks over gloo.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu.process import processes
from tests.conftest import PYTHONPATH
from tests.scripts import wait_for
from tests.slurm import Cluster
from tests.test_schema import RUN
from tests.test_slurm_hang import YAML, mgpu, start

LAUNCH = ("--slurm", "--no-preflight", "--nodes", "2", "--launcher", "torchrun", "--yes", "--log-dir", "logs")
# Rank 1 allocates 300 MiB, and has a NaN in its batch in step 15. Rank 0 takes 60 ms more for each step.
TRAIN = """\
import sys
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_rank() == 1:
    kept = torch.ones(300 << 20, dtype=torch.uint8)
begin, step = time.time(), torch.zeros(1)
while step < int(sys.argv[1]):
    step += 1
    batch = torch.randn(2, 20)
    if step == 15 and dist.get_rank() == 1:
        batch[0, 0] = float("nan")
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.1 + 0.06 * (dist.get_rank() == 0))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=0, cpus=4)
    yield made
    made.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "accelerate.yaml").write_text(YAML)
    (tmp_path / "home").mkdir()
    return tmp_path


def left(job: str | int) -> list[str]:
    """What is left of a job on its nodes, which share the machine."""
    return [str(path) for path in Path("/tmp").glob(f"mgpu-*-{job}-*")]


def test_a_job_reports_its_ranks(cluster: Cluster, here: Path) -> None:
    """One answer for both nodes: at the end, in the result, and with --status, while it runs and later."""
    running = start(cluster, here, *LAUNCH, "train.py", "330")
    (watched,) = wait_for(lambda: list((here / "logs").glob("watch-*/pace.json")), 90)
    job = watched.parent.name.removeprefix("watch-")
    finite = watched.parent / "node-node2" / "ranks.json"
    wait_for(lambda: finite.is_file() and json.loads(finite.read_text())["not_finite"], 30)
    code, status, err = mgpu(cluster, here, "--slurm", "--status", job)
    said = " ".join(status.split())
    assert code == 0 and "State RUNNING" in said, err
    assert "rank 0 comes last in" in said and "the loss of rank 1 (host node2) is nan in step 15 (train.py:16)" in said
    assert "RANK STEP LOADER WAITS" in said and "Memory peak: host" in said
    as_json = json.loads(mgpu(cluster, here, "--slurm", "--status", "--json-result", "-", job)[1])
    assert as_json["pace"]["steps"] >= 10 and [one["host"] for one in as_json["ranks"]] == ["node1", "node2"]
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err + out
    said = " ".join(err.split())
    assert "rank 0 comes last in" in said and "the loss of rank 1 (host node2) is nan in step 15 (train.py:16)" in said
    for finding in ("rank 0 comes last in", "the loss of rank 1 (host node2) is nan"):
        assert said.count(f"mgpu: {finding}") == 1, "it is reported while the job runs; its end repeats it in its rows"
    assert "RANK STEP LOADER WAITS" in said and "(rank 1)" in said.partition("Memory peak: host")[2]
    document = json.loads((here / "logs" / "result.json").read_text())
    RUN.validate({key: value for key, value in document.items() if key != "slurm"})
    assert [(one["rank"], one["host"], one["exit"]) for one in document["ranks"]] == [
        (0, "node1", None), (1, "node2", None)
    ]  # fmt: skip
    host = {one["rank"]: one["peak_host"] for one in document["ranks"]}
    assert 250 << 20 < host[1] - host[0] < 350 << 20
    assert {one["id"] for one in document["remarks"]} == {"run_not_finite", "run_rank_slows_others"}
    last = {one["rank"]: one["last_share"] for one in document["pace"]["ranks"]}
    assert last[0] > 0.7 > 0.3 > last[1]
    assert left(job) == []


def watches(cluster: Cluster, node: str = "") -> set[int]:
    """The processes that watch: two on each node, the second one a child of the first."""
    found = set()
    for pid in cluster.processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            of_node = f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            if any(b"node_watch import" in word for word in words) and b"srun" not in words and of_node:
                found.add(pid)
    return found


def test_a_watch_that_was_killed(cluster: Cluster, here: Path) -> None:
    """By the kernel on one node, then the whole step, of which a process survives for a moment on each node.

    The job is watched on, and nothing is left after scancel.
    """
    code, out, err = mgpu(cluster, here, *LAUNCH, "--detach", "train.py", "100000")
    assert code == 0, err
    job = out.strip()
    records = here / "logs" / f"watch-{job}" / "node-node2" / "ranks.json"
    wait_for(records.is_file, 60)
    first = wait_for(lambda: len(now := watches(cluster, "node2")) == 2 and now, 20)  # those of the last job end
    child = next(pid for pid in first if processes.parent_of(pid) in first)  # not the larger number: they start again
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: len(now := watches(cluster, "node2")) == 2 and now != first, 20)
    before = watches(cluster)
    for pid in {processes.parent_of(pid) for pid in before} & before:
        os.kill(pid or 0, signal.SIGKILL)
    try:
        wait_for(lambda: len(now := watches(cluster)) == 4 and not now & before, 90)
    except AssertionError as error:
        log = (records.parent.parent / "watch.log").read_text()
        raise AssertionError(log, before, watches(cluster)) from error
    records.unlink(missing_ok=True)
    wait_for(records.is_file, 40)
    assert len(left(job)) == 2
    cluster.run("scancel", job)
    cluster.ended(job)
    assert cluster.quiet() == [] and left(job) == []


def test_an_allocation_reports_its_ranks(cluster: Cluster, here: Path) -> None:
    words = [sys.executable, "-m", "mgpu", "launch", *LAUNCH, "train.py", "40"]
    done = cluster.run(
        "salloc", "--nodes=2", "--ntasks-per-node=1", "--time=5", "--quiet", "sh", "-c",
        '"$@" 2>err; echo "code $?"; ls -d /tmp/mgpu-*-$SLURM_JOB_ID-*; true', "sh", *words, timeout=180, cwd=here,
        env={"OMP_NUM_THREADS": "1", "HOME": str(here / "home"), "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    said = " ".join((here / "err").read_text().split())
    assert done.stdout.endswith("code 0\n"), done.stdout + said
    assert "the loss of rank 1 (host node2) is nan in step 15" in said and "Memory peak: host" in said
    document = json.loads((here / "logs" / "result.json").read_text())
    assert [(one["rank"], one["host"]) for one in document["ranks"]] == [(0, "node1"), (1, "node2")]
    assert "leftover" not in said and "still running" not in said
