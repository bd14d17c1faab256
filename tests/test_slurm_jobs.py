"""Job scripts that mgpu writes, run by a real Slurm: they train, fail, start again and end as they say."""

from __future__ import annotations

import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mgpu.job_files import sbatch
from mgpu.job_files.environment import setup_lines
from mgpu.job_files.job import Job
from mgpu.job_formats import Shape
from tests.conftest import ROOT
from tests.slurm import Cluster

YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 1
num_processes: 2
"""
# A rank that needs no torch: what its launcher told it, and then what the test asks of it.
RANK = """\
import os, signal, sys, time
def say(text): print(text, flush=True)
signal.signal(signal.SIGTERM, lambda *_: (say("told to end"), sys.exit(0)))
node, again = os.environ["SLURM_NODEID"], os.environ.get("SLURM_RESTART_COUNT", "0")
say(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, local {os.environ['LOCAL_RANK']}"
    f" of {os.environ['LOCAL_WORLD_SIZE']}, meets at {os.environ['MASTER_ADDR']}, start {again}")
task = sys.argv[1:]
if task[0] == "fail" and node == "1":
    sys.exit(7)
if task[0] == "fail" or (task[0] == "once" and again == "0"):
    time.sleep(300)
"""
TRAINED = re.compile(r"test accuracy [\d.]+ % on (\d) ranks")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"), nodes=4, gpus=2, cpus=16)
    yield cluster
    cluster.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user submits from."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "accelerate.yaml").write_text(YAML)
    (tmp_path / "rank.py").write_text(RANK)
    shutil.copy(ROOT / "tests" / "train_digits.py", tmp_path)
    return tmp_path


def written(folder: Path, job: Job, cpus: int | None = 1) -> Path:
    """The job's script, for ranks on the CPU with the software of this test."""
    here = setup_lines({}, sys.executable)
    script = folder / f"{job.name}.sbatch"
    script.write_text(sbatch.render(replace(job, gpus_per_node=0, cpus_per_node=cpus, setup=here, time="10:00")))
    return script


def test_jobs_that_train(cluster: Cluster, folder: Path) -> None:
    """Three nodes, by accelerate and by torchrun. Two: the rank that fails, the job that is cancelled."""
    nodes = 3
    shapes: tuple[Shape, ...] = ("accelerate", "torchrun")
    jobs = {}
    for shape in shapes:
        given = Job(("train_digits.py", "--epochs", "1"), shape=shape, nodes=nodes, name=f"{shape}{nodes}")
        jobs[cluster.batch(written(folder, given))] = shape
    for job, shape in jobs.items():
        found, output = cluster.ended(job, 240), cluster.output(job)
        assert (found["JobState"], found["ExitCode"], found["NumNodes"]) == ("COMPLETED", "0:0", str(nodes)), output
        assert TRAINED.findall(output) == [str(nodes)], output
        # and each node's ranks by themselves
        by_node = {path.parents[3].name for path in (folder / "logs").glob(f"{shape}{nodes}-{job}/*/*/*/0/stdout.log")}
        assert by_node == {f"node{number}" for number in range(1, nodes + 1)}


def test_a_rank_that_fails_ends_the_job(cluster: Cluster, folder: Path) -> None:
    """At once, with its exit code and its node in the output: the other node's rank would sleep for minutes."""
    shapes: tuple[Shape, ...] = ("accelerate", "plain")
    jobs = {
        cluster.batch(written(folder, Job(("rank.py", "fail"), shape=shape, nodes=2, name=f"fails-{shape}"))): shape
        for shape in shapes
    }
    for job, shape in jobs.items():
        found, output = cluster.ended(job, 100), cluster.output(job)
        assert found["JobState"] == "FAILED" and found["Reason"] == "NonZeroExitCode", output
        # of a launcher Slurm sees only that it failed; what its rank said stands in the launcher's summary
        code = {"accelerate": 1, "plain": 7}[shape]
        assert found["NodeList"] == "node[1-2]" or found["NodeList"] == "node[3-4]", found
        failed = "node2" if found["NodeList"] == "node[1-2]" else "node4"
        assert f"error: {failed}: task 1: Exited with exit code {code}" in output, output
        assert shape == "plain" or re.search(r"^1: .*exitcode\s*: 7 ", output, re.MULTILINE), output
        assert found["ExitCode"] != "0:0"  # the highest: where the others were killed, it is 128 + 15 or 9
    assert not cluster.quiet()


def test_a_job_whose_time_is_almost_up_starts_again(cluster: Cluster, folder: Path) -> None:
    """Slurm's signal is sent by hand: the least time limit is a minute."""
    job = Job(("rank.py", "once"), shape="plain", nodes=2, ranks_per_node=2, name="again", requeue=True, warn_s=60)
    number = cluster.batch(written(folder, job))
    spoken_to(cluster, number, "start 0", 4)
    assert cluster.run("scancel", "--signal=USR1", "--batch", number).returncode == 0
    found = cluster.until(number, ["PENDING", "FAILED", "COMPLETED"], 30)
    assert (found["JobState"], found["Restarts"]) == ("PENDING", "1"), cluster.output(number)
    # Slurm would wait for two minutes; slurmd refuses a start in the second in which the last one was ended
    assert cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now+2").returncode == 0
    found, output = cluster.ended(number, 60), cluster.output(number)
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), output
    assert f"requeueing job {number}" in output
    for start in (0, 1):  # both are in the one file
        said = sorted(re.findall(rf"^(\d): (rank .*), start {start}$", output, re.MULTILINE))
        assert said == [
            (str(rank), f"rank {rank} of 4, local {rank % 2} of 2, meets at {found['BatchHost']}") for rank in range(4)
        ]


def test_a_job_that_is_warned_lets_its_ranks_end(cluster: Cluster, folder: Path) -> None:
    """Without a requeue the ranks are told; what they then answer is the job's exit status. Of an array only the task
    that was warned: Slurm gives the last one the number of them all."""
    job = Job(("rank.py", "once"), shape="plain", nodes=2, name="warned", warn_s=60)
    whole = cluster.batch(written(folder, job), "--array=0-1")
    end = time.monotonic() + 60
    while sum(path.read_text().count("start 0") for path in (folder / "logs").glob("warned-*.out")) < 4:
        assert time.monotonic() < end
        time.sleep(0.1)
    tasks = cluster.run("squeue", "-h", "-r", "-j", whole, "-o", "%A").stdout.split()
    (other,) = set(tasks) - {whole}  # by its own number; the last one has the array's
    assert cluster.run("scancel", "--signal=USR1", "--batch", f"{whole}_1").returncode == 0
    found = cluster.ended(f"{whole}_1", 60)
    output = (folder / "logs" / f"warned-{whole}.out").read_text()
    assert (found["JobId"], found["JobState"], found["ExitCode"]) == (whole, "COMPLETED", "0:0"), output
    assert output.count("told to end") == 2
    assert cluster.job_of(f"{whole}_0")["JobState"] == "RUNNING"
    assert "told to end" not in (folder / "logs" / f"warned-{other}.out").read_text()
    cluster.run("scancel", whole)
    assert not cluster.quiet()


def test_a_job_that_is_cancelled_leaves_nothing(cluster: Cluster, folder: Path) -> None:
    number = cluster.batch(written(folder, Job(("rank.py", "once"), shape="torchrun", nodes=2, name="cancelled")))
    spoken_to(cluster, number, "start 0", 2)
    port = 12000 + int(number) % 20000
    assert listens(port)
    assert cluster.run("scancel", number).returncode == 0
    assert cluster.ended(number, 30)["JobState"] == "CANCELLED"
    assert not cluster.quiet() and not listens(port)


def test_the_same_script_in_an_allocation(cluster: Cluster, folder: Path) -> None:
    """salloc sets fewer variables than sbatch: neither the CPUs of a task nor those of the node are known there."""
    for cpus in (1, None):
        script = written(folder, Job(("rank.py", "go"), shape="plain", nodes=2, name="inside"), cpus)
        result = cluster.run("salloc", "--nodes=2", "--ntasks-per-node=1", "bash", str(script), cwd=folder)
        assert result.returncode == 0, result.stderr
        (head,) = set(re.findall(r"meets at (node\d),", result.stdout))
        assert sorted(result.stdout.splitlines()) == [
            f"{rank}: rank {rank} of 2, local 0 of 1, meets at {head}, start 0" for rank in (0, 1)
        ]


def test_spare_nodes_do_not_train_unexamined(cluster: Cluster, folder: Path) -> None:
    """The ranks are as many as were planned, on the job's first nodes; srun and the head node are of these."""
    job = Job(("rank.py", "go"), shape="plain", nodes=2, ranks_per_node=2, spare=1, preflight=True, name="spare")
    number = cluster.batch(written(folder, job), "--export=ALL,MGPU_PREFLIGHT=0")
    found, output = cluster.ended(number, 60), cluster.output(number)
    assert (found["JobState"], found["NumNodes"]) == ("COMPLETED", "3"), output
    said = sorted(re.findall(r"rank (\d) of (\d), local (\d) of 2, meets at (\S+),", output))
    assert said == [(str(rank), "4", str(rank % 2), found["BatchHost"]) for rank in range(4)], output
    assert "the first 2 nodes train" in output


def test_a_port_that_is_taken_is_passed_over(cluster: Cluster, folder: Path) -> None:
    """Submitted with one variable alone: what the script sets reaches the nodes all the same."""
    job = Job(("rank.py", "go"), shape="plain", name="taken")
    script = written(folder, job)
    script.write_text(re.sub(r"(?m)^MASTER_PORT=.*", "MASTER_PORT=$TAKEN", script.read_text()))
    script.write_text(script.read_text().replace("\nsrun", '\necho "port $MASTER_PORT"\nsrun'))
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        number = cluster.batch(script, f"--export=TAKEN={port}")
        assert cluster.ended(number, 30)["JobState"] == "COMPLETED", cluster.output(number)
    assert re.search(r"port (\d+)", cluster.output(number))
    assert f"port {port}\n" not in cluster.output(number)


@pytest.mark.parametrize("shape", ["accelerate", "torchrun", "plain"])
def test_slurm_takes_every_script(cluster: Cluster, folder: Path, shape: Shape) -> None:
    full = Job(
        ("train.py", "it's"), shape=shape, nodes=2, gpus_per_node=2, ranks_per_node=2, name='a "name" #1',
        partition="gpu", account="project", qos="normal", exclude="node4", time="1-00:00:00", cpus_per_node=4,
        memory="100M", exclusive=True, requeue=True, warn_s=300,
    )  # fmt: skip
    for job in (full, Job(("train.py",), shape=shape)):
        script = folder / "job.sbatch"
        script.write_text(sbatch.render(job))
        result = cluster.run("sbatch", "--test-only", str(script))
        assert result.returncode == 0, result.stderr
    number = cluster.batch(script, "--hold")
    assert cluster.job_of(number)["JobName"] == "job.sbatch"
    script.write_text(sbatch.render(replace(full, time="10:00")))
    named = cluster.batch(script, "--hold")
    assert cluster.job_of(named)["JobName"] == full.name
    cluster.run("scancel", number, named)


def spoken_to(cluster: Cluster, job: str, text: str, times: int) -> None:
    """Wait until the job's output has the text so often."""
    end = time.monotonic() + 60
    while (said := cluster.output(job)).count(text) < times:
        assert time.monotonic() < end, said
        assert cluster.job_of(job)["JobState"] in ("PENDING", "CONFIGURING", "RUNNING"), said
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether somebody listens at a port of this machine."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
