"""Does the pre-flight of a Slurm job find the bad nodes, name each with its own reason, and does the job go on without?

A real Slurm whose nodes share this machine; what is wrong with a node is mounted where only its processes see it.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mgpu import engine, hostlist
from mgpu.cli import json_schema
from mgpu.config import facts
from mgpu.errors import NOT_READY, UNKNOWN, USAGE, MgpuError
from mgpu.fleet import allocation as jobs
from mgpu.fleet import artifacts, bad_nodes, derived_config, framing, groups, srun_workers, stages
from mgpu.fleet import workers as fleet_workers
from mgpu.fleet.allocation import Allocation
from mgpu.fleet.examination import Examination
from mgpu.fleet.screen import Result, lines
from mgpu.report import screen as report_screen
from mgpu.smoke.request import Request
from mgpu.snapshot import Fleet, NodeFault, Snapshot
from tests import fake_nvml
from tests.conftest import ROOT, Run, environment, need
from tests.slurm import Cluster

BAD = {
    "node2": "torch",
    "node3": "GPU",
    "node4": "/dev/shm",
    "node5": "clock",
    "node6": "answer",
}
CLOCK_S = 600
CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 2
num_processes: 2
use_cpu: true
"""
TRAIN = """\
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
ones = torch.ones(1)
dist.all_reduce(ones)
print("trained", os.environ["SLURMD_NODENAME"], int(ones.item()), flush=True)
dist.destroy_process_group()
"""
JOB = """\
#!/bin/bash
set -e
{mgpu} smoke-test --slurm --need 2 --cpu 1 -c accelerate.yaml --log-dir out
. out/nodes.sh
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=$((12000 + SLURM_JOB_ID))
echo "on $SLURM_JOB_NUM_NODES nodes: $SLURM_JOB_NODELIST"
srun --kill-on-bad-exit=1 {python} train.py
"""


class Faulty:
    """A cluster of seven nodes, of which five have something of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "slurm").mkdir()
        self.cluster = Cluster(folder / "slurm", nodes=7, gpus=0, cpus=4, inside=self._faults())
        self.environment = environment(folder / "home", {
            **fake_nvml.environment(fake_nvml.build(folder / "nvml"), self.nvml),
            "SLURM_CONF": f"{folder}/slurm/slurm.conf",
            "LD_PRELOAD": str(folder / "clock.so"),
            "CLOCK_SHIFT": str(folder / "clock"),
        })  # fmt: skip

    def _faults(self) -> dict[str, str]:
        import torch

        folder = self.folder
        (folder / "home").mkdir()
        library = [need("cc"), "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(ROOT / "tests/clock_shift.c")]
        subprocess.run([*library, "-ldl"], check=True)
        (folder / "clock").write_text("0\n")
        (folder / "clock.off").write_text(f"{CLOCK_S}\n")
        version = Path(torch.__file__).with_name("version.py")
        (folder / "version.py").write_text(re.sub(r"'\d+\.\d+\.\d+", "'2.4.1", version.read_text(), count=1))
        self.nvml = fake_nvml.machine(folder, "a100_sxm_x4")
        seven = folder / "three.txt"
        seven.write_text(re.sub(r"(?m)^count = 4$", "count = 3", self.nvml.read_text()))
        (folder / "asleep.py").write_text("import time\n\ndef main() -> None:\n    time.sleep(600)\n")
        return {
            "node2": f"mount --bind {folder}/version.py {version}",
            "node3": f"mount --bind {seven} {self.nvml}",
            "node4": "mount -t tmpfs -o size=1M tmpfs /dev/shm",
            "node5": f"mount --bind {folder}/clock.off {folder}/clock",
            "node6": f"mount --bind {folder}/asleep.py {ROOT}/mgpu/fleet/worker.py",
        }

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A client's command in this cluster, in a user's environment."""
        return subprocess.run(
            command, cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip

    @property
    def work(self) -> Path:
        """Where jobs run."""
        work = self.folder / "work"
        if not work.exists():
            work.mkdir()
            (work / "accelerate.yaml").write_text(CONFIG)
            (work / "train.py").write_text(TRAIN)
            (work / "job.sh").write_text(JOB.format(mgpu=f"{sys.executable} -m mgpu", python=sys.executable))
        return work


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    made = Faulty(tmp_path_factory.mktemp("faulty"))
    yield made
    made.cluster.close()


def test_bad_nodes_are_named_and_the_training_runs_on_the_others(faulty: Faulty) -> None:
    """Five of seven nodes have a fault of their own; two are needed, and two are good."""
    submitted = faulty.run("sbatch", "--parsable", "--nodes=7", "--ntasks-per-node=1", "job.sh")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    ended = faulty.cluster.ended(job, 150)
    said = faulty.cluster.output(job)
    assert ended["JobState"] == "COMPLETED", said
    out = faulty.work / "out"
    failing = dict(line.split("\t") for line in (out / "failing_nodes.txt").read_text().splitlines())
    assert list(failing) == list(BAD), said
    for node, word in BAD.items():
        assert word in failing[node], (node, failing[node])
    assert (out / "passing_nodes.txt").read_text().split() == ["node1", "node7"]
    assert "--exclude=node[2-6]" in said
    assert sorted(line for line in said.splitlines() if line.startswith("trained")) == [
        "trained node1 2", "trained node7 2",
    ]  # fmt: skip
    assert "on 2 nodes: node[1,7]" in said
    document = json.loads((out / "preflight.json").read_text())
    assert document["verdict"] == "passed" and document["chosen"] == ["node1", "node7"]
    assert {stage["name"]: stage["status"] for stage in document["stages"]} == {
        "examine": "fail", "network": "ok", "compare": "fail", "alone": "ok", "pairs": "ok", "together": "skip",
    }  # fmt: skip
    assert faulty.cluster.quiet() == []


@pytest.mark.parametrize("step", [(), ("srun", "--nodes=1", "--ntasks=1", "--nodelist=node1")])
def test_in_a_shell_of_salloc_and_in_a_step_of_one_node(faulty: Faulty, step: Sequence[str]) -> None:
    """The shell runs where no node is. The job's nodes are examined in both, and one is too few."""
    done = faulty.run(
        "salloc", "--nodelist=node1,node4", "--ntasks-per-node=1", *step, sys.executable, "-m", "mgpu", "smoke-test",
        "--slurm", "--need", "2", "--cpu", "1", "-c", "accelerate.yaml", "--log-dir", "shell", "--json",
    )  # fmt: skip
    assert done.returncode == NOT_READY, done.stderr
    document = json.loads(done.stdout)
    Draft202012Validator(json_schema.preflight()).validate(document)
    assert (document["verdict"], document["good"], document["exclude"]) == ("failed", ["node1"], "--exclude=node4")
    assert [bad["node"] for bad in document["bad"]] == ["node4"] and "/dev/shm" in document["bad"][0]["reason"]
    assert not (faulty.work / "shell/nodes.sh").exists()
    assert faulty.cluster.quiet() == []


@pytest.mark.parametrize(
    ("number", "other", "word"),
    [(signal.SIGINT, "node6", "waiting for node6"), (signal.SIGTERM, "node7", "train alone")],
)
def test_stopped_while_nodes_are_asked(faulty: Faulty, number: signal.Signals, other: str, word: str) -> None:
    """Ctrl-C, scancel: neither a worker goes on, also not one that sleeps, nor a rank."""
    command = shlex.join([sys.executable, "-m", "mgpu", "smoke-test", "--slurm", "--cpu", "1", "--log-dir", "stopped"])
    with subprocess.Popen(
        ["salloc", f"--nodelist=node1,{other}", "--ntasks-per-node=1", "sh", "-c", f"echo $$ > pid; exec {command}"],
        cwd=faulty.work, env=faulty.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as shell:  # fmt: skip
        assert shell.stderr is not None
        said = [next(line for line in shell.stderr if word in line)]
        if other != "node6":
            said.append(shell.stderr.readline())  # the launchers run
        os.kill(pid := int((faulty.work / "pid").read_text()), number)
        os.kill(pid, signal.SIGHUP)  # impatience does not cut its end short
        said += shell.stderr.readlines()
        assert shell.wait(30) in (128 + number, 128 + signal.SIGHUP), (
            said
        )  # both are pending: Python takes the lower first
    assert "mgpu: interrupted\n" in said and not any("Traceback" in line for line in said)
    assert faulty.cluster.quiet() == []


# ---- the step

# Says what Slurm says when it cannot start a step on n3; on other nodes it starts the workers, here.
SRUN = """\
#!{python}
import os, subprocess, sys, threading
from subprocess import PIPE
from mgpu import hostlist
nodes = hostlist.expand(sys.argv[sys.argv.index("--nodelist") + 1])
if "n3" in nodes:
    sys.stderr.write(
        "srun: error: Task launch for StepId=7.0 failed on node n3: Communication connection failure\\n"
        "srun: error: Application launch failed: Communication connection failure\\n"
        "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\\n"
        "srun: error: n[1-2]: tasks 0-1: Killed\\n"
    )
    sys.exit(1)
command = sys.argv[sys.argv.index("-c", sys.argv.index("--job-name=mgpu-preflight")) - 1 :]
workers = [
    subprocess.Popen(command, env={{**os.environ, "SLURMD_NODENAME": node}}, stdin=PIPE, stdout=PIPE)
    for node in nodes
]
def label(number, worker):
    for line in worker.stdout:
        sys.stdout.buffer.write(b"%d: " % number + line)
        sys.stdout.buffer.flush()
for number, worker in enumerate(workers):
    threading.Thread(target=label, args=(number, worker)).start()
for line in sys.stdin.buffer:
    for worker in workers:
        worker.stdin.write(line)
        worker.stdin.flush()
for worker in workers:
    worker.stdin.close()
    worker.wait()
"""


def test_a_step_is_started_again_without_the_node_it_cannot_be_started_on(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text(SRUN.format(python=sys.executable))
    (tmp_path / "srun").chmod(0o755)
    environ = environment(tmp_path / "home", {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with srun_workers.SrunWorkers(Allocation("7", ("n1", "n2", "n3")), environ) as workers:
        answers = workers.ask({"do": "clock"}, 30)
        assert workers.lost == {"n3": "Communication connection failure"}
        assert sorted(answers) == ["n1", "n2"] and all(answer["time"] > 0 for answer in answers.values())
        assert sorted(workers.ask({"do": "clock"}, 30, of=["n2"])) == ["n2"]
        seen = {"do": "examine", "name": "a.yaml", "config": CONFIG, "cpu": True, "files": {"config": "/nowhere"}}
        seen |= {"tokens": {str(tmp_path): "srun", "/proc": "not-there"}, "ports": [12000]}
        seen |= {"nodes": 3, "data": [], "project": False, "own_configs": {}}
        answer = workers.ask(seen, 60, of=["n1"])["n1"]
        assert answer["unseen"] == ["/proc"] and answer["facts"]["host"]["name"]
        assert answer["files"] == {"config": "not readable: No such file or directory"}
        failed = workers.ask(
            {"do": "walk", "endpoints": [], "head": "n1", "by_name": True}, 30
        )  # before it was told to listen
        assert [answer["error"] for answer in failed.values()] == ["AssertionError", "AssertionError"]


def heard(*said: str) -> srun_workers.SrunWorkers:
    """Workers of three nodes that have heard these lines of stdout."""
    workers = srun_workers.SrunWorkers(Allocation("7", ("n1", "n2", "n3")))
    workers._tasks = {place: srun_workers._Task(node) for place, node in enumerate(workers.allocation.nodes)}
    for line in said:
        workers._take("out", line)
    return workers


def test_a_worker_of_another_version_is_not_misread() -> None:
    from mgpu.version import __version__

    same = next(framing.lines(1, {"node": "n1", "mgpu": __version__})).rstrip()
    other = next(framing.lines(1, {"node": "n2", "mgpu": "0.0.1"})).rstrip()
    silent = next(framing.lines(1, {"node": "n3"})).rstrip()
    workers = heard(f"0: module loaded{same}", f"1: {other}", f"2: {silent}")  # a word without an end of its line
    assert workers.nodes == ["n1"] and workers.lost == {
        "n2": f"mgpu there is 0.0.1, here it is {__version__}",
        "n3": f"mgpu there is another version, here it is {__version__}",
    }


@pytest.mark.parametrize(
    "line",
    [
        "0: slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T02:56:37 ***",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T02:56:37 DUE TO TIME LIMIT ***",
        "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
    ],
)
def test_a_step_that_is_cancelled_or_refused_blames_no_node(line: str) -> None:
    workers = heard()
    for said in (line, "srun: Job step aborted: Waiting up to 4 seconds for job step to finish."):
        workers._take("err", said)
    workers._take("err", "srun: error: n[1-3]: tasks 0-2: Terminated")
    with pytest.raises(MgpuError, match=r"not because of its nodes: .*(CANCELLED|Unable to create step)") as raised:
        workers._take("over", "1")
    assert raised.value.exit_code == UNKNOWN and workers.lost == {}


def test_srun_that_cannot_be_started(tmp_path: Path) -> None:
    with (
        pytest.raises(MgpuError, match="cannot start srun"),
        srun_workers.SrunWorkers(Allocation("7", ("n1",)), {"PATH": str(tmp_path)}),
    ):
        raise AssertionError("unreachable")


# ---- in pairs


def in_pairs(nodes: str, bad: str = "", broken: Sequence[set[str]] = ()) -> groups.Found:
    """Sort out nodes of one letter each, where `bad` ones fail with everybody and `broken` pairs with each other."""

    def attempt(wanted: Sequence[groups.Group]) -> dict[groups.Group, str | None]:
        seen = [node for group in wanted for node in group]
        assert len(seen) == len(set(seen)), "groups at the same time are disjoint"
        fails = {g for g in wanted if set(g) & set(bad) or any(pair <= set(g) for pair in broken)}
        return {group: "no way" if group in fails else None for group in wanted}

    return groups.sort_out(list(nodes), attempt)


@pytest.mark.parametrize("nodes", ["ab", "abc", "abcd", "abcde", "abcdefgh", "abcdefghi"])
def test_pairs_of_healthy_nodes_are_all_tried_at_once(nodes: str) -> None:
    found = in_pairs(nodes)
    assert (found.good, found.bad, found.failed) == (list(nodes), {}, [])
    assert sorted(node for group in found.tried for node in group) == list(nodes)


@pytest.mark.parametrize("bad", ["a", "b", "d", "e", "ab", "ac", "ad", "bd", "abd", "de", "acd"])
@pytest.mark.parametrize("nodes", ["abcdef", "abcde"])
def test_who_fails_with_everybody_is_bad_and_nobody_else(nodes: str, bad: str) -> None:
    found = in_pairs(nodes, bad)
    assert (sorted(found.bad), found.good) == (list(bad), [node for node in nodes if node not in bad])
    assert all(re.match(r"with [a-f]( and [a-f])?: no way$", why) for why in found.bad.values())


def test_two_nodes_that_fail_together_are_both_named_with_each_other() -> None:
    found = in_pairs("ab", "a")
    assert found.bad == {"a": "with b: no way", "b": "with a: no way"} and found.good == []


def test_a_broken_way_between_two_good_nodes_condemns_none_of_them() -> None:
    found = in_pairs("abcd", broken=[{"a", "b"}])
    assert (found.good, found.bad, found.failed) == (list("abcd"), {}, [("a", "b")])


def test_one_node_has_nobody_to_be_tried_with() -> None:
    assert in_pairs("a").good == ["a"] and in_pairs("").good == []


# ---- messages


def test_messages_of_any_size_survive_a_crowded_stdout() -> None:
    """Lines of two writers mixed with what shells print; none longer than Slurm passes on whole."""
    large = {"text": "\u00e9\n" * 200_000, "noise": [str(n * n) for n in range(2000)]}
    one, two = list(framing.lines(1, large)), list(framing.lines(1, {"small": True}))
    assert len(one) > 3 and all(len(line) < 1000 and line.isascii() for line in one)
    reader, other = framing.Reader(), framing.Reader()
    found = [reader.take(line) for line in ("Loading module cuda/12", one[0], "mgpu: not ours", *reversed(one[1:]))]
    assert found[:-1] == [None] * len(one[:-1]) + [None] * 2 and found[-1] == large
    assert other.take(f"0: {two[0]}") == {"small": True}


def test_of_what_srun_hands_on_only_whole_lines_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_LONGEST", 40)
    command = framing.encode_message({"do": "clock"})
    assert len(command) < 40 and framing.decode_message(command) == {"do": "clock"}
    said = io.StringIO(f"{command}\n{'A' * 100}\n{command}\nnone of ours\n{command}")
    lines = list(framing.whole_lines(said))
    assert lines == [command, command, "none of ours"]  # not what is too long, and not what is cut off
    assert framing.decode_message(lines[-1]) is None


def test_a_step_that_takes_no_command_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """srun whose nodes read nothing: its own memory is full, and so is the pipe."""
    monkeypatch.setattr(srun_workers, "_TAKEN_S", 0.2)
    (tmp_path / "srun").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "srun").chmod(0o755)
    environ = environment(tmp_path / "home", {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with (
        srun_workers.SrunWorkers(Allocation("7", ("n1",)), environ) as workers,
        pytest.raises(MgpuError, match="srun accepted no input") as raised,
    ):
        workers.ask({"do": "walk", "endpoints": os.urandom(1 << 18).hex()}, 30)
    assert raised.value.exit_code == UNKNOWN


def test_a_spoilt_message_is_none() -> None:
    lines = list(framing.lines(1, {"a": list(range(5000))}))
    reader = framing.Reader()
    spoilt = [line.replace(line.split()[-1][:40], "A" * 40) for line in lines]
    assert [reader.take(line) for line in spoilt] == [None] * len(lines)


# ---- the job


def allocated(**variables: str) -> Allocation:
    return jobs.allocation({"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", **variables})


def test_the_nodes_of_the_job() -> None:
    need("srun")
    assert allocated() == Allocation("7", ("n1", "n2", "n3"))
    tasks = allocated(SLURM_NTASKS_PER_NODE="4", SLURM_CPUS_PER_TASK="8")
    assert (tasks.tasks_per_node, tasks.cpus_per_node) == (4, 32)
    ranks = allocated(SLURM_TASKS_PER_NODE="2(x3)")
    assert (ranks.tasks_per_node, ranks.cpus_per_node, allocated().cpus_per_node) == (2, 2, None)
    shell = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_NODES": "1"}
    assert allocated(**shell).nodes == ("n1", "n2", "n3")  # a shell on one node of the job
    step = {**shell, "SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_NUM_NODES": "2"}
    assert allocated(**step).nodes == ("n2", "n3")


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"SLURM_JOB_ID": ""}, "mgpu launch --slurm"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST=n[1-"),
        ({"SLURM_JOB_NODELIST": ""}, "no nodes"),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "2"}, "task 2 of a step"),
        ({"PATH": "/nowhere"}, "srun is not on PATH"),
    ],
)
def test_no_job_to_examine(variables: Mapping[str, str], word: str) -> None:
    with pytest.raises(MgpuError, match=re.escape(word)) as raised:
        allocated(**variables)
    assert "Traceback" not in raised.value.message


def test_more_nodes_are_needed_than_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG)
    request = Request(config=str(tmp_path / "a.yaml"), slurm=True)
    job = Allocation("7", ("n1", "n2", "n3"))
    found = jobs.read_wanted(request, job, {}, tmp_path)
    assert (found.need, found.ranks_per_node, found.cpu) == (2, 1, True)
    with pytest.raises(MgpuError, match="--need 4: job 7 has only 3 nodes"):
        jobs.read_wanted(replace(request, need=4), job, {}, tmp_path)
    (tmp_path / "a.yaml").write_text(CONFIG.replace("num_processes: 2", "num_processes: 3"))
    with pytest.raises(MgpuError, match="3 processes cannot be divided equally among 2 machines"):
        jobs.read_wanted(request, job, {}, tmp_path)


def test_without_a_config_the_grant_says_how_many_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Allocation("7", ("n1", "n2"), tasks_per_node=3)
    (scratch := tmp_path / "scratch").mkdir()
    gpus = jobs.read_wanted(Request(slurm=True), job, {"SLURM_GPUS_ON_NODE": "8"}, scratch)
    assert (gpus.ranks_per_node, gpus.need, gpus.cpu) == (8, 2, False)
    bare = jobs.read_wanted(Request(slurm=True), job, {}, scratch)
    assert (bare.ranks_per_node, bare.cpu) == (3, True)


@pytest.mark.parametrize(
    "options",
    [{"need": 2}, {"slurm": True, "gpus": "2"}, {"slurm": True, "show": True}, {"slurm": True, "format": "junit"}],
)
def test_options_that_mean_nothing_together(options: Mapping[str, Any]) -> None:
    with pytest.raises(MgpuError) as raised:
        Request(**options).check()
    assert raised.value.exit_code == USAGE


def test_a_derived_config_is_the_job_s_own_but_for_the_nodes(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(CONFIG.replace("num_processes: 2", "num_processes: 16") + "fsdp_config: {fsdp_version: 2}\n")
    config = facts(path, ask_loader=False)
    pair = json.loads(derived_config.derive_config(config, (8, 8), ("n3", "n4"), 12007))
    assert pair["fsdp_config"] == {"fsdp_version": 2} and pair["mixed_precision"] == "no"
    assert {key: pair[key] for key in ("num_machines", "num_processes", "main_process_ip", "main_process_port")} == {
        "num_machines": 2, "num_processes": 16, "main_process_ip": "n3", "main_process_port": 12007,
    }  # fmt: skip
    alone = json.loads(derived_config.derive_config(config, (1,), ("n3",), 12007))
    assert (alone["num_machines"], alone["num_processes"], alone["distributed_type"]) == (1, 1, "NO")
    assert "main_process_ip" not in alone


def test_ports_are_below_those_that_linux_gives_away() -> None:
    for job in ("1", "19999", "20000", "4294967295", "12_3"):
        first = stages.first_port(job)
        assert first >= 12000 and first + stages.PORTS_TRIED < 32768
    assert stages.first_port("41") != stages.first_port("42")


# ---- who does not answer


def test_a_node_is_waited_for_as_long_as_half_of_the_others_took_three_times() -> None:
    assert fleet_workers.deadline([], 4, 90, 15) == 90
    assert fleet_workers.deadline([1.0], 4, 90, 15) == 90  # not half of them
    assert fleet_workers.deadline([1.0, 2.0], 4, 90, 15) == 15
    assert fleet_workers.deadline([10.0, 1.0], 4, 90, 15) == 30
    assert fleet_workers.deadline([10.0, 1.0], 4, 20, 15) == 20
    assert fleet_workers.deadline([10.0, 1.0], 4, 90, None) == 90


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("srun: error: n2: task 1: Exited with exit code 1", {"n2": "Exited with exit code 1"}),
        ("srun: error: n[1-2]: tasks 0-1: Killed", {"n1": "Killed", "n2": "Killed"}),
        (
            "srun: error: Task launch for StepId=7.0 failed on node n3: Communication connection failure",
            {"n3": "Communication connection failure"},
        ),
        (
            "srun: error: Task launch for 7.0 failed on node n3: Invalid job credential",
            {"n3": "Invalid job credential"},
        ),
        ("srun: error: Node failure on n1", {"n1": "Node failure"}),
        ("srun: error: elsewhere: task 9: Killed", {}),
        ("srun: Job step aborted: Waiting up to 4 seconds for job step to finish.", {}),
    ],
)
def test_srun_s_words_about_nodes(line: str, lost: Mapping[str, str]) -> None:
    workers = srun_workers.SrunWorkers(Allocation("7", ("n1", "n2", "n3")))
    workers.heard_from_srun(line)
    assert workers.lost == lost


def test_a_step_that_slurm_gave_up_has_killed_good_workers_with_the_bad() -> None:
    workers = srun_workers.SrunWorkers(Allocation("7", ("n1", "n2", "n3")))
    for line in (
        "srun: error: Task launch for StepId=7.0 failed on node n3: Socket timed out on send/recv operation",
        "srun: error: Application launch failed: Socket timed out on send/recv operation",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: error: n[1-2]: tasks 0-1: Killed",
    ):
        workers.heard_from_srun(line)
    assert workers.lost == {"n3": "Socket timed out on send/recv operation"}


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, None),
        ({"SLURM_GPUS_PER_TASK": "1"}, "4"),
        ({"SLURM_GPUS_PER_TASK": "a100:2", "SLURM_TRES_PER_TASK": "gres/gpu:a100=2"}, "a100:8"),
        ({"SLURM_TRES_PER_TASK": "cpu=8,gres/gpu=1"}, "4"),
        ({"SLURM_TRES_PER_TASK": "cpu=8,gres/gpu:a100=2"}, "a100:8"),
        ({"SLURM_TRES_PER_TASK": "cpu=8"}, None),
    ],
)
def test_gpus_that_belong_to_tasks_are_asked_for_all_at_once(variables: Mapping[str, str], gpus: str | None) -> None:
    command = srun_workers.srun(allocated(SLURM_NTASKS_PER_NODE="4", **variables), ["n1", "n2"])
    assert [command[at + 1] for at, word in enumerate(command) if word == "--gpus-per-node"] == ([gpus] if gpus else [])


def test_the_step_sees_all_of_a_node() -> None:
    command = srun_workers.srun(Allocation("7", ("n1", "n2"), tasks_per_node=4, cpus_per_task=8), ["n1", "n2"])
    assert command[:2] == ["srun", "--overlap"]
    assert command[command.index("--cpus-per-task") + 1] == "32"
    assert command[command.index("--ntasks-per-node") + 1] == "1"
    assert command[command.index("--nodelist") + 1] == "n[1-2]"


# ---- what is written

SHOWN = (
    'printf "%s\\n" "$SLURM_JOB_NODELIST" "$SLURM_NODELIST" "$SLURM_NNODES" "$SLURM_JOB_NUM_NODES" "$SLURM_NTASKS" '
    '"${SLURM_HOSTFILE:-}" "${SLURM_TASKS_PER_NODE:-}" "${SLURM_GPUS:-}"'
)


def sourced(folder: Path, text: str, shell: str) -> list[str]:
    (folder / "nodes.sh").write_text(text)
    before = {"SLURM_JOB_NODELIST": "whole", "SLURM_NTASKS": "9", "SLURM_NODELIST": "whole", "SLURM_NNODES": "3"}
    shown = subprocess.run(
        [shell, "-euc", f". ./nodes.sh; {SHOWN}"], cwd=folder, capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "3", **before},
    )  # fmt: skip
    return shown.stdout.split("\n")[:-1]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_what_the_job_script_sources(tmp_path: Path, shell: str) -> None:
    job = ("n1", "n2", "n3")
    text = artifacts.nodes_sh(("n1", "n3"), job, tmp_path / "a folder/hostfile", 2, {"SLURM_GPUS": "24"})
    shown = sourced(tmp_path, text, shell)
    assert shown == ["n[1,3]", "n[1,3]", "2", "2", "4", f"{tmp_path}/a folder/hostfile", "2(x2)", "16"]
    assert "excluded: n2" in text
    typed = artifacts.nodes_sh(("n1", "n3"), job, tmp_path / "hostfile", 2, {"SLURM_GPUS": "a100:24"})
    assert sourced(tmp_path, typed, shell)[-1] == "a100:16"
    nothing = artifacts.nodes_sh(job, job, tmp_path / "hostfile", 1, {})
    assert sourced(tmp_path, nothing, shell) == ["whole", "whole", "3", "3", "9", "", "", ""]
    assert artifacts.hostfile(("n1", "n3"), 2) == "n1\nn1\nn3\nn3\n"


def judged(tmp_path: Path, good: Sequence[str], bad: Mapping[str, str], need: int, **more: Any) -> Result:
    passed = len(good) >= need
    return Result(
        job="7", of_job=("n1", "n2", "n3"), need=need, what="a.yaml, 8 GPUs a node",
        stages=(stages.Stage("examine", "fail", 3.2, "2 of 3 nodes answered"),), outcomes=(), good=tuple(good),
        bad=tuple(stages.Bad(node, "alone", "", why, "Mend it.") for node, why in bad.items()),
        label="job 7", hosts="", chosen=tuple(good[:need]) if passed else (), trouble="",
        verdict="passed" if passed else "failed",
        code=0 if passed else 1, seconds=12.0, folder=str(tmp_path), **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("good", "bad", "need"),
    [
        (("n1", "n2", "n3"), {}, 3),
        (("n1", "n2", "n3"), {}, 2),
        (("n1", "n3"), {"n2": "no answer:\ntimed\tout"}, 2),
        (("n1",), {"n2": "why " * 40, "n3": "why " * 40}, 2),
        ((), {"n1": "x", "n2": "x", "n3": "y"}, 1),
    ],
)
def test_the_files_and_the_screen(tmp_path: Path, good: Sequence[str], bad: Mapping[str, str], need: int) -> None:
    result = judged(tmp_path, good, bad, need)
    told = bad_nodes.make_document(result)
    Draft202012Validator(json_schema.preflight()).validate(told)
    (tmp_path / "nodes.sh").write_text("of an earlier run")
    artifacts.write(tmp_path, told, of_job=result.of_job, tasks_per_node=1, environ={})
    assert artifacts.read(tmp_path) == told
    assert (tmp_path / "passing_nodes.txt").read_text().split() == list(good)
    failing = [line.split("\t") for line in (tmp_path / "failing_nodes.txt").read_text().splitlines()]
    assert failing == [[node, " ".join(why.split())] for node, why in bad.items()]
    assert (tmp_path / "nodes.sh").exists() == (len(good) >= need)
    screen = report_screen.Screen(80, False, False, io.StringIO())
    screen.show(lines(result, screen))
    text = screen.stream.getvalue()  # type: ignore[attr-defined]
    assert text.isascii() and max(map(len, text.splitlines())) <= max(80, len(f"Files    {tmp_path}/") + 80)
    assert ("PASSED" in text) == (len(good) >= need)
    assert (result.exclude in text) == bool(bad) or not bad
    assert all(node in text or hostlist.fold(bad) in text for node in bad)


def test_what_all_nodes_have_in_common_is_no_reason_to_exclude_them(tmp_path: Path) -> None:
    """No accelerate on any of them: other nodes would have none either."""
    nodes = ("n1", "n2", "n3")
    same = judged(tmp_path, (), dict.fromkeys(nodes, "no accelerate"), 2)
    screen = report_screen.Screen(80, False, False, io.StringIO())
    screen.show(lines(same, screen))
    text = " ".join(screen.stream.getvalue().split())  # type: ignore[attr-defined]
    assert same.exclude == "" and "--exclude" not in text and "all nodes have this problem" in text
    assert bad_nodes.make_document(same)["exclude"] is None
    assert judged(tmp_path, (), {**dict.fromkeys(nodes, "x"), "n3": "y"}, 2).exclude == "--exclude=n[1-3]"
    with_each_other = [stages.Bad(node, "pairs", "", "x") for node in nodes]
    assert replace(same, bad=tuple(with_each_other)).exclude == "--exclude=n[1-3]"


# ---- the stages, with nodes that answer as they are told

HOW = dict[str, Any]
GOOD: HOW = {"verdict": "passed", "problems": [], "culprit": None, "seconds": 1.0}


def failed(title: str, host: str | None = None, check: str = "ranks_hang") -> HOW:
    problem = {"id": check, "title": title, "cause": "", "fix": [{"text": "Look.", "commands": []}]}
    return {"verdict": "failed", "problems": [problem], "culprit": {"host": host} if host else None, "seconds": 1.0}


class Answering(srun_workers.SrunWorkers):
    """Workers whose answers are made up: `how` gives that of a node in a group; None: it answers no more."""

    def __init__(self, nodes: Sequence[str], how: Callable[[str, Sequence[str]], HOW | None]) -> None:
        super().__init__(Allocation("7", tuple(nodes)))
        self.greetings = {node: {"host": f"{node}.site"} for node in nodes}
        self.how = how
        self.asked: list[list[list[str]]] = []

    def ask(self, command: Mapping[str, Any], limit_s: float, **options: Any) -> dict[str, dict[str, Any]]:
        self.asked.append([group["nodes"] for group in command["groups"]])
        found = {}
        for group in command["groups"]:
            for node in group["nodes"]:
                answer = self.how(node, group["nodes"])
                if answer is None:
                    self.lost[node] = "no answer in 9 s"
                else:
                    found[node] = answer
        return found


def staged(
    tmp_path: Path, nodes: str, need: int, how: Callable[[str, Sequence[str]], HOW | None]
) -> tuple[stages.Tested, Answering, dict[str, str]]:
    """All stages over nodes of one letter: what was found, what was asked, how each stage ended."""
    (tmp_path / "a.yaml").write_text(CONFIG)
    workers = Answering(list(nodes), how)
    ended: dict[str, str] = {}
    testing = stages.Testing(
        workers=workers, config=facts(tmp_path / "a.yaml", ask_loader=False), ranks_on=lambda node: 1, need=need,
        rehearsal=False, ports=iter(range(12000, 30000)), busy={"a": [12000]}, addresses={}, interfaces={}, options=[],
        start_s=9, stall_s=9,
        folder=tmp_path, left_s=lambda: 99.0, began=lambda stage, groups: None,
        ended=lambda stage, status, detail: ended.__setitem__(stage, status), show=lambda *told: None,
    )  # fmt: skip
    return testing.run(list(nodes)), workers, ended


def test_all_stages_of_good_nodes(tmp_path: Path) -> None:
    found, workers, ended = staged(tmp_path, "abcd", 3, lambda node, group: GOOD)
    assert (found.good, found.bad, found.trouble) == (list("abcd"), [], "")
    assert workers.asked == [[["a"], ["b"], ["c"], ["d"]], [["a", "b"], ["c", "d"]], [["a", "b", "c"]]]
    assert ended == {"alone": "ok", "pairs": "ok", "together": "ok"}


def test_a_node_that_fails_alone_is_in_no_pair(tmp_path: Path) -> None:
    how = {"b": failed("GPU 3 computes wrong results", check="gpu_wrong")}
    found, workers, ended = staged(tmp_path, "abc", 2, lambda node, group: how.get(node, GOOD))
    assert found.bad == [stages.Bad("b", "alone", "gpu_wrong", "gpu_wrong: GPU 3 computes wrong results", "Look.")]
    assert workers.asked[1:] == [[["a", "c"]]] and ended["together"] == "skip"
    too_few, workers, ended = staged(tmp_path, "ab", 2, lambda node, group: how.get(node, GOOD))
    assert too_few.good == ["a"] and len(workers.asked) == 1
    assert ended == {"alone": "fail", "pairs": "skip", "together": "skip"}


def test_a_node_that_falls_silent_in_a_pair_does_not_take_its_partner_along(tmp_path: Path) -> None:
    def how(node: str, group: Sequence[str]) -> HOW | None:
        if len(group) > 1 and "b" in group:
            return None if node == "b" else failed("machine 1 never came", check="machines_never_came")
        return GOOD

    found, workers, _ = staged(tmp_path, "abcd", 2, how)
    assert (found.good, [bad.node for bad in found.bad]) == (["a", "c", "d"], ["b"])
    assert "no answer in 9 s" in found.bad[0].reason
    assert ["c", "b"] not in [group for asked in workers.asked for group in asked]  # nobody waits for it again


def test_a_spare_stands_in_for_the_node_that_all_name(tmp_path: Path) -> None:
    def how(node: str, group: Sequence[str]) -> HOW:
        return failed("b.site is slow to come", host="b.site") if len(group) == 3 and "b" in group else GOOD

    found, workers, ended = staged(tmp_path, "abcd", 3, how)
    assert workers.asked[2:] == [[["a", "b", "c"]], [["a", "c", "d"]]]
    assert (found.good, [bad.node for bad in found.bad], found.trouble) == (["a", "c", "d"], ["b"], "")
    assert ended["together"] == "ok"


def test_where_nobody_is_named_all_together_is_the_trouble(tmp_path: Path) -> None:
    found, _, ended = staged(tmp_path, "abcd", 4, lambda node, group: failed("x") if len(group) == 4 else GOOD)
    assert (found.good, found.bad, found.trouble, ended["together"]) == (list("abcd"), [], "ranks_hang: x", "fail")


def test_where_always_another_node_is_named_nobody_is_called_good(tmp_path: Path) -> None:
    """Three tries of all together, each without the last one's node; those that are left were never tried."""

    def how(node: str, group: Sequence[str]) -> HOW:
        return failed("slow to come", host=f"{group[0]}.site") if len(group) == 3 else GOOD

    found, workers, ended = staged(tmp_path, "abcdefgh", 3, how)
    assert [bad.node for bad in found.bad] == ["a", "b", "c"] and len(found.good) == 5
    assert found.trouble.startswith("3 attempts with all nodes failed") and ended["together"] == "fail"
    assert len([asked for asked in workers.asked if len(asked[0]) == 3]) == 3


REPORTED = """\
import os, sys
from pathlib import Path
from mgpu import exit_status
from mgpu.fleet import preflight, screen

def conclude():
    preflight._report("-", lambda stream: preflight._put(stream, "x" * 99999), Path("out"))
    screen.Progress().say("the job goes on")
    return 0

exit_status.tolerate_encoding_errors()
sys.exit(exit_status.guarded(conclude))
"""


@pytest.mark.parametrize("stderr", ["kept", "lost"])
@pytest.mark.parametrize("stdout", ["full", "closed"])
def test_a_report_that_nobody_can_take_does_not_stop_the_job(stdout: str, stderr: str, tmp_path: Path) -> None:
    """A full disk, a pipe whose reader is gone: the nodes are good all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(tmp_path / "words", "w") as words:
        lost = full if stdout == "full" else writer
        done = subprocess.run(
            [sys.executable, "-c", REPORTED], stdout=lost, stderr=words if stderr == "kept" else lost,
            cwd=ROOT, timeout=60, check=False,
        )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0
    if stderr == "kept":
        why = "No space left on device" if stdout == "full" else "Broken pipe"
        said = (tmp_path / "words").read_text()
        reported = f"mgpu: cannot write the report: {why}. It is also in out/preflight.json\n"
        assert said == f"{reported}mgpu: the job goes on\n"


def test_a_bad_node_is_named_once_and_for_what_is_its_own() -> None:
    faults = tuple(
        NodeFault(node, "shm_small", f"/dev/shm is {size} MiB") for node, size in (("node3", 1), ("node2", 64))
    )
    nodes = ("node1", "node2", "node3")
    fleet = Fleet(nodes, faults=faults, roles={"no GPU": nodes})
    for given, reasons in ((faults, ["/dev/shm is 64 MiB", "/dev/shm is 1 MiB"]), (faults[:1], ["/dev/shm is 1 MiB"])):
        seen = replace(fleet, faults=given)
        outcomes = engine.run(engine.load(only=("fleet",)), Snapshot(fleet=seen))
        assert [bad.reason for bad in bad_nodes.bad_nodes(outcomes, seen, {}, nodes)] == reasons


def test_a_clock_is_off_whichever_of_the_questions_was_answered_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """n1 keeps time, n2 is ten minutes ahead, n3 behind; each question takes another time to be answered."""
    off = {"n1": 0.0, "n2": 600.0, "n3": -600.0}
    for ways in itertools.permutations((0.1, 0.2, 0.4)):
        left = list(ways)

        def ask(*_: Any, left: list[float] = left) -> dict[str, dict[str, float]]:
            way = left.pop()
            return {node: {"time": 1e6 + way / 2 + seconds, "heard": 1e6 + way} for node, seconds in off.items()}

        monkeypatch.setattr("time.time", lambda: 1e6)
        asking: Any = SimpleNamespace(left_s=lambda: 99.0, workers=SimpleNamespace(ask=ask))
        assert Examination._clocks(asking) == off, ways


def test_two_clocks_that_do_not_agree_fail_the_pre_flight_and_no_node() -> None:
    fleet = Fleet(("n1", "n2"), clock_offsets_s={"n1": -300.0, "n2": 300.0}, roles={"no GPU": ("n1", "n2")})
    outcomes = engine.run(engine.load(only=("fleet",)), Snapshot(fleet=fleet))
    assert bad_nodes.bad_nodes(outcomes, fleet, {}, fleet.nodes) == []
    (of_nobody,) = [outcome.problem for outcome in outcomes if bad_nodes.is_job_wide(outcome)]
    assert of_nobody and of_nobody.title == "clock of n1 10 min behind n2"


def test_outside_of_a_job(mgpu: Run) -> None:
    done = mgpu("smoke-test", "--slurm", "--need", "2")
    assert done.returncode == USAGE and "salloc" in done.stderr and done.stdout == ""
    listed = mgpu("smoke-test", "--slurm", "--json-schema")
    assert json.loads(listed.stdout)["$id"] == "mgpu.preflight/1.0"


def test_a_job_in_a_container_is_told_what_is_not_examined() -> None:
    from mgpu.job_files import preflight_block
    from mgpu.job_files.job import Container, Job

    job = Job(("train.py",), preflight=True)
    assert not any("container" in line for line in preflight_block.of_job(job))
    (said,) = [
        line for line in preflight_block.of_job(replace(job, container=Container("pyxis", "a"))) if "container" in line
    ]
    assert shlex.split(said)[0] == "echo" and "software in its image is not checked" in said and said.endswith(">&2")
