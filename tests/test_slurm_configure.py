"""`mgpu configure --slurm`: the cluster's texts, the job made of answers, the questions, the files on a real Slurm."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from mgpu import cli, errors
from mgpu.config.reading import for_engine, parse_config, read
from mgpu.errors import MgpuError
from mgpu.job_files.job import Container, Job
from mgpu.job_files.sbatch import render as script_of
from mgpu.job_formats import FORMATS, SHAPES
from mgpu.planning import gpu_models
from mgpu.probes import cluster
from mgpu.smoke import machines as several
from mgpu.snapshot import Cluster, Gres, Snapshot
from mgpu.validate.run import judge
from mgpu.wizard import answers, flow, folder, job_file, questions, render_yaml, write_config
from mgpu.wizard.flow import Scene, State
from mgpu.wizard.job import job_of
from mgpu.wizard.nodes import Site
from mgpu.wizard.nodes import nodes as nodes_of
from mgpu.wizard.proposal import propose
from mgpu.wizard.proposal_types import Proposal
from tests import machines
from tests.checks import facts
from tests.conftest import environment
from tests.slurm import Cluster as RealCluster
from tests.terminal import ENTER, ESCAPE, Terminal
from tests.test_wizard import REVIEW, at, read_until, settled, until, words_of

# What the commands print. 22.05 is what this repository's tests see; the others are texts that users of those versions
# have published, names shortened.
NODES_22_05 = "gpu*|2|2|4000|idle|gpu:a100:2\n"
PARTITION_22_05 = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=01:00:00 "
    "MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=node[1-2] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO "
    "ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=4 TotalNodes=2 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED "
    "TRES=cpu=4,mem=8000M,node=2,billing=4\n"
)
PARTITIONS_23_11 = (
    "PartitionName=agro-b AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,gpupreempt AllocNodes=ood,g32[1-5],n[1-9] "
    "Default=NO QoS=N/A DefaultTime=03:00:00 DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=100 "
    "Hidden=NO MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 Nodes=g[384-385] PreemptMode=CANCEL State=UP "
    "TotalCPUs=48 TotalNodes=2 DefMemPerCPU=9000 TRES=cpu=48,mem=496000M,node=2,billing=72,gres/gpu=4 "
    "TRESBillingWeights=CPU=1.0,Mem=0,GRES/gpu=6.0\n"
    "PartitionName=gputest AllowGroups=ALL AllowAccounts=lab1,lab2 AllowQos=ALL Default=NO QoS=N/A "
    "DefaultTime=00:05:00 MaxNodes=2 MaxTime=00:15:00 MinNodes=0 Nodes=r01g01,r02g01 State=DOWN TotalNodes=2\n"
)
PARTITIONS_17_02 = (
    "PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllocNodes=ALL Default=YES DefaultTime=NONE "
    "MaxTime=INFINITE MaxNodes=UNLIMITED State=UP\n"
)
# Two kinds of GPU nodes in one partition; states with their marks; a MIG type; a login node's CPU partition.
NODES_MIXED = (
    "gpu|6|128|1031000|mix|gpu:a100:8(S:0-3)\n"
    "gpu|2|128|1031000|drain*|gpu:a100:8(S:0-3)\n"
    "gpu|1|128|1031000|idle~|gpu:a100:8(S:0-3)\n"
    "gpu|4|64|515000|alloc|gpu:h100:4(S:0-1),shard:64\n"
    "gpu|1|64|515000|inval|gpu:h100:4(S:0-1),shard:64\n"
    "mig|1|64|515000|idle|gpu:a100_3g.20gb:4,gpu:a100_1g.5gb:2\n"
    "day*|30|64|256000+|plnd|(null)\n"
)
PARTITIONS_MIXED = (
    "PartitionName=gpu AllowAccounts=ALL AllowQos=ALL Default=NO DefaultTime=01:00:00 MaxNodes=6 MaxTime=2-00:00:00 "
    "MinNodes=2 State=UP\n"
    "PartitionName=mig AllowAccounts=ALL Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP\n"
    "PartitionName=day AllowAccounts=ALL Default=YES DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=1-00:00:00 State=UP\n"
)
ASSOCIATIONS = "lab1||normal,high|normal\nlab2|gpu|normal|\n"


def known(nodes: str, partitions: str, accounts: str = "", **texts: str) -> Cluster:
    return cluster.parse_cluster({"nodes": nodes, "partitions": partitions, "accounts": accounts, **texts})


MIXED = known(NODES_MIXED, PARTITIONS_MIXED, ASSOCIATIONS, user="lab1\n", version="slurm 24.05.2")
SMALL = known(NODES_22_05, PARTITION_22_05, version="slurm-wlm 22.05.8", config="ClusterName             = mgpu\n")


# ---- the cluster's texts


def test_the_texts_of_22_05_make_a_cluster() -> None:
    (gpu,) = SMALL.partitions
    assert (SMALL.name, SMALL.version) == ("mgpu", "22.05.8")
    assert (gpu.name, gpu.default, gpu.up, gpu.max_time_s, gpu.default_time_s) == ("gpu", True, True, 3600, None)
    assert (gpu.max_nodes, gpu.min_nodes, gpu.accounts, gpu.qos) == (None, None, None, None)
    (kind,) = gpu.kinds
    assert (kind.nodes, kind.usable, kind.cpus, kind.memory_bytes) == (2, 2, 2, 4000 << 20)
    assert kind.gres == (Gres("gpu", "a100", 2),) and gpu.gpus_per_node == 2
    assert not SMALL.faults


def test_other_versions_write_other_fields() -> None:
    first, second = known("", PARTITIONS_23_11).partitions
    assert (first.max_time_s, first.qos) == (7 * 86400, ("normal", "gpupreempt"))
    assert (second.up, second.max_nodes, second.max_time_s, second.accounts) == (False, 2, 900, ("lab1", "lab2"))
    (old,) = known("", PARTITIONS_17_02).partitions
    assert (old.default, old.max_time_s, old.max_nodes, old.usable) == (True, None, None, 0)


def test_nodes_are_counted_by_what_they_are_and_whether_jobs_start_there() -> None:
    gpu, mig, day = MIXED.partitions
    assert [(kind.gpus, kind.nodes, kind.usable) for kind in gpu.kinds] == [(8, 9, 7), (4, 5, 4)]
    assert (gpu.nodes, gpu.usable, gpu.gpus_per_node) == (14, 11, 8)
    assert gpu.kinds[1].gres == (Gres("gpu", "h100", 4), Gres("shard", "", 64))
    assert [gres.type for gres in mig.kinds[0].gres] == ["a100_3g.20gb", "a100_1g.5gb"] and mig.kinds[0].gpus == 6
    assert (day.default, day.kinds[0].memory_bytes, day.gpus_per_node) == (True, 256000 << 20, 0)
    assert [a.account for a in MIXED.associations] == ["lab1", "lab2"]
    assert (MIXED.associations[0].qos, MIXED.associations[1].partition) == (("normal", "high"), "gpu")
    assert MIXED.default_account == "lab1"


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90", 5400), ("1:30", 90), ("12:00:00", 43200), ("2-0", 172800), ("1-12:30", 131400), ("7-00:00:00", 604800),
        ("UNLIMITED", None), ("INFINITE", None), ("NONE", None),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text: str, length: int | None) -> None:
    assert cluster.parse_time(text) == length


@pytest.mark.parametrize("text", ["tomorrow", "1:2:3:4", "-1", "1-", "1d", "٣"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Slurm time"):
        cluster.parse_time(text)


@pytest.mark.parametrize("text", ["", "\n\n", "|||", "gpu|many|2|3|idle|gpu", "slurm_load_partitions error", "a=b c"])
def test_texts_that_mean_nothing_make_no_partition_and_no_trouble(text: str) -> None:
    found = cluster.parse_cluster(dict.fromkeys(("version", "nodes", "partitions", "config", "accounts", "user"), text))
    assert found.partitions == () and found.associations == ()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Slurm's commands as scripts, each doing what a shell line says."""

    def made(**lines: str) -> None:
        for name, line in lines.items():
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{line}\n")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    return made


def test_a_controller_that_is_down_is_a_reason(commands: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "DEADLINE_S", 0.5)
    down = "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    accounts = "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1"
    commands(sinfo="exec sleep 60", scontrol=down, sacctmgr=accounts)
    found = cluster.read()
    assert found is not None and found.partitions == ()
    assert found.faults["nodes"] == "sinfo did not answer within 0.5 s (is slurmctld down?)"
    assert "Unable to contact slurm controller" in found.faults["partitions"]
    assert "accounts" not in found.faults  # a site without accounts lacks nothing
    assert "is slurmctld down?" not in Site(found).unknown_note and "Unable to contact" in Site(found).unknown_note


def test_without_slurm_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cluster.read() is None


# ---- the job of the answers


def here() -> Snapshot:
    """A login node: no GPU, the software of a training machine."""
    snapshot = machines.machine("recorded_vm_without_gpu")
    packages = {**(snapshot.packages or {}), "deepspeed": "0.19.8", "transformers": "4.57.1"}
    return replace(snapshot, packages=packages, pytorch=facts.pytorch(version="2.13.0+cu130"))


def made(found: Cluster | None = MIXED, site: Site | None = None, **flags: Any) -> Proposal:
    decided = answers.collect({"slurm": True, **flags}, (), {})
    return propose(here(), decided, "a login node", site or Site(found))


def job(proposal: Proposal) -> Job:
    assert proposal.job is not None and not proposal.problems, proposal.problems
    return proposal.job


def test_a_login_node_without_gpus_configures_for_the_partitions() -> None:
    proposal = made(nodes="4", time="12:00:00", command="train.py --lr 1e-4")
    assert job(proposal) == replace(
        job(proposal), command=("train.py", "--lr", "1e-4"), shape="accelerate", nodes=4, gpus_per_node=8,
        ranks_per_node=8, gpu_type="a100", name="train", partition="gpu", time="12:00:00", cpus_per_node=88, threads=4,
        account="", preflight=False, spare=0, container=None, env={},
    )  # fmt: skip
    assert proposal.values == {
        "distributed_type": "MULTI_GPU", "num_processes": 32, "num_machines": 4, "mixed_precision": "bf16",
    }  # fmt: skip
    assert proposal.machine == "4 Slurm nodes (gpu), 8 x a100 each"
    assert any("--gpu-model" in note for note in proposal.notes)  # of 40 or of 80 GB: nobody says


def test_the_model_of_the_gpus_picks_the_nodes_of_a_mixed_partition() -> None:
    proposal = made(nodes="2", gpu_model="h100", params="7B")
    assert (job(proposal).gpu_type, job(proposal).gpus_per_node, proposal.gpu_model) == ("h100", 4, "H100")
    assert proposal.free_bytes == 81559 << 20
    assert not any("--gpu-model" in note for note in proposal.notes)


def test_a_target_names_the_gpus_where_slurm_is_not() -> None:
    wanted = gpu_models.parse("4x8xH100")
    decided = answers.collect({"slurm": True, "nodes": str(wanted.nodes), "params": "8B"}, (), {})
    proposal = propose(wanted.snapshot, decided, wanted.text, Site(None, named=True))
    assert (job(proposal).nodes, job(proposal).gpus_per_node, proposal.values["num_processes"]) == (4, 8, 32)
    assert proposal.values["mixed_precision"] == "bf16" and proposal.values["distributed_type"] != "NO"
    assert job(proposal).cpus_per_node is None  # nothing is known of them
    assert any("Slurm is not installed here" in note for note in proposal.notes)


def test_cpus_are_those_of_the_ranks_and_at_most_those_of_the_node() -> None:
    assert job(made(nodes="2", threads="2", workers="3")).cpus_per_node == (2 + 3 + 1) * 8
    assert job(made(nodes="2", threads="16", workers="16")).cpus_per_node == 128
    part = made(nodes="2", gpus_per_node="2")
    assert part.chosen["threads"] == "4" and job(part).cpus_per_node == (4 + 6 + 1) * 2


def test_ranks_on_the_cpu_are_told_so() -> None:
    proposal = made(nodes="2", partition="day")
    assert (job(proposal).gpus_per_node, job(proposal).ranks_per_node) == (0, 2)
    assert job(proposal).env == {"ACCELERATE_USE_CPU": "true"} and proposal.values["num_processes"] == 4


@pytest.mark.parametrize(("partition", "cpu"), [("day", True), ("gpu", False)])
def test_what_the_job_does_is_read_from_the_config(partition: str, cpu: bool) -> None:
    """Its comments are true of the job script, and tell whether the ranks are to run on the CPU."""
    proposal = replace(
        made(nodes="2", partition=partition, threads="3"),
        launch_flags=("--num_cpu_threads_per_process", "3", "--enable_cpu_affinity"),
    )
    text = render_yaml.render(proposal, date(2026, 11, 22))
    config = parse_config(text.encode(), "accelerate.yaml")
    assert (config.engine, config.cpu_job, config.written_by_mgpu) == ("slurm", cpu, True)
    assert config.launch_flags == proposal.launch_flags and "mgpu launch adds" not in text
    site = Site(MIXED)
    script = script_of(job_of(proposal, nodes_of(here(), proposal.answers, site), site))
    assert "# The job written with it sets: OMP_NUM_THREADS=3 ACCELERATE_CPU_AFFINITY=1\n" in text
    assert "export OMP_NUM_THREADS=3" in script and "export ACCELERATE_CPU_AFFINITY=1" in script
    assert ("ACCELERATE_USE_CPU=true" in script) == cpu


def test_deepspeed_starts_on_every_node_by_itself() -> None:
    proposal = made(nodes="2", strategy="zero3", gpu_model="A100-80GB", params="8B")
    assert proposal.values["deepspeed_config"]["deepspeed_multinode_launcher"] == "standard"
    assert not any("export OMP_NUM_THREADS" in note for note in proposal.notes)  # the job sets it
    assert "export OMP_NUM_THREADS=4" in script_of(job(proposal))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"time": "3-00:00:00"}, "--time 3-00:00:00: partition gpu allows 2-00:00:00, so the job would never start"),
        ({"nodes": "7"}, "7 nodes: partition gpu allows at most 6 per job (MaxNodes)"),
        ({"nodes": "6", "spare": "1"}, "6 nodes and 1 spare: partition gpu allows at most 6 per job (MaxNodes)"),
        ({"nodes": "1"}, "1 node: partition gpu requires at least 2 (MinNodes)"),
        ({"nodes": "2", "partition": "mig"}, "2 nodes: partition mig has 1 available with 6 GPUs"),
        ({"partition": "gpus"}, "--partition gpus: no such partition. Did you mean gpu?"),
        ({"gpus_per_node": "16"}, "--gpus-per-node 16: partition gpu: its nodes have 8"),
        ({"partition": "day", "gpus_per_node": "1"}, "--gpus-per-node 1: partition day: its nodes have none"),
        ({"account": "lab3"}, "--account lab3: choose one of your accounts: lab1, lab2"),
        ({"qos": "top"}, "--qos top: choose one of your QOS: normal, high"),
        ({"gpu_model": "B200", "partition": "gpu"}, "--gpu-model B200: partition gpu: its GPUs are a100, h100"),
        ({"gpu_model": "H100", "partition": "day"}, "--gpu-model H100: partition day: its nodes have none"),
        ({"address": "n1"}, "--address n1: Slurm sets the rendezvous endpoint itself"),
        ({"gpus": "0,1"}, "--gpus lists GPUs of this machine"),
        ({"spare": "1", "preflight": False}, "cannot be used with --no-preflight"),
    ],
)
def test_what_slurm_would_let_wait_for_ever_is_said_before(flags: dict[str, Any], words: str) -> None:
    proposal = made(**{"nodes": "2", **flags})
    assert any(words in problem for problem in proposal.problems), proposal.problems


def test_a_partition_that_is_down_or_not_ones_own_is_not_offered() -> None:
    found = known(
        NODES_MIXED + "closed|9|64|1000|idle|gpu:4\n", PARTITIONS_MIXED + "PartitionName=closed State=DRAIN\n"
    )
    proposal = made(found, nodes="2", partition="closed")
    assert "--partition closed: accepts no jobs now" in proposal.problems
    assert [option.name for option in proposal.options["partition"]] == ["gpu", "mig", "day"]
    others = known(NODES_MIXED, PARTITIONS_MIXED.replace("AllowAccounts=ALL", "AllowAccounts=other", 1), ASSOCIATIONS)
    assert [option.name for option in made(others).options["partition"]] == ["mig", "day"]


ONE = "PartitionName=gpu Default=YES MaxTime=1-00:00:00 MaxNodes=UNLIMITED State=UP\n"


def test_nodes_that_nobody_can_use_are_not_taken_for_a_cluster_without_gpus() -> None:
    for state in ("drain", "down*"):
        proposal = made(known(f"gpu*|4|64|500000|{state}|gpu:h100:8\n", ONE), nodes="2")
        assert proposal.problems == ("no partition accepts your job now: gpu has 0 of 4 nodes available",)
    closed = ONE.replace("State=UP", "AllowAccounts=lab9 State=UP") + "PartitionName=b State=DOWN\n"
    proposal = made(known("gpu*|4|64|500000|idle|gpu:8\nb|1|2|3|idle|(null)\n", closed, ASSOCIATIONS), nodes="2")
    assert proposal.problems == (
        "no partition accepts your job now: gpu accepts only the accounts lab9; b accepts no jobs",
    )


def test_partitions_whose_nodes_are_not_told_are_no_partitions_without_nodes() -> None:
    found = replace(known("", ONE), faults={"nodes": "sinfo did not answer within 5 s (is slurmctld down?)"})
    proposal = made(found, nodes="2", gpus_per_node="8", gpu_model="H100")
    assert (job(proposal).partition, job(proposal).gpus_per_node) == ("gpu", 8)
    assert any("Slurm does not report its nodes (sinfo did not answer" in note for note in proposal.notes)


def test_gpus_without_a_type_and_partitions_without_a_default() -> None:
    whole = job(made(known("gpu*|4|64|500000|idle|gpu:8\ngpu*|2|64|500000|idle|gpu:a100:4\n", ONE), nodes="2"))
    assert (whole.gpu_type, whole.gpus_per_node) == ("", 8)
    two = known(
        "a|4|64|500000|idle|gpu:v100:4\nb|4|64|500000|idle|gpu:h100:4\n",
        "PartitionName=a Default=NO State=UP\nPartitionName=b Default=NO State=UP\n",
    )
    assert job(made(two, nodes="2")).partition == "a"  # it is named: Slurm has none to take by itself
    assert job(made(two, nodes="2", gpu_model="H100")).partition == "b"
    assert "--gpus-per-node" not in script_of(job(made(nodes="2", partition="gpu", gpus_per_node="0")))


def test_accounts_and_qos_that_a_partition_wants_are_named() -> None:
    closed = ONE.replace("State=UP", "AllowAccounts=lab2 AllowQos=high State=UP")
    mine = "lab1||normal|normal\nlab2||normal,high|normal\n"
    found = known("gpu*|4|64|500000|idle|gpu:h100:8\n", closed, mine, user="lab1\n")
    assert "partition gpu accepts only the accounts lab2, not lab1: --account lab2" in made(found, nodes="2").problems
    assert made(found, nodes="2", account="lab2").problems == (
        "partition gpu accepts only the QOS high, not normal: --qos high",
    )
    assert job(made(found, nodes="2", account="lab2", qos="high")).qos == "high"


def test_every_answer_comes_into_the_job() -> None:
    whole = job(
        made(
            nodes="3", account="lab2", qos="normal", constraint="ib&h100", container="image.sif", requeue=True,
            spare="1", shape="torchrun", command="-m pkg.train --x 1",
        )
    )  # fmt: skip
    assert (whole.account, whole.qos, whole.constraint, whole.spare) == ("lab2", "normal", "ib&h100", 1)
    assert whole.preflight and whole.requeue and whole.warn_s == 300 and whole.shape == "torchrun"
    assert whole.container == Container("apptainer", "image.sif") and whole.name == "pkg.train"
    assert whole.env["ACCELERATE_MIXED_PRECISION"] == "bf16"  # torchrun reads no config
    text = script_of(whole)
    for line in ("--account=lab2", "--qos=normal", "--constraint=ib&h100", "--nodes=4", "--gpus-per-node=a100:8"):
        assert f"#SBATCH {line}" in text
    assert job(made(nodes="2", container="nvcr.io/nvidia/pytorch:25.10-py3")).container == Container(
        "pyxis", "nvcr.io/nvidia/pytorch:25.10-py3"
    )


def test_the_shapes_are_those_of_a_job() -> None:
    assert answers.parse("shape", "plain") in SHAPES
    for shape in SHAPES:
        assert answers.parse("shape", shape) == shape
    with pytest.raises(ValueError, match=f"choose {', '.join(SHAPES)} or auto"):
        answers.parse("shape", "mpi")


def test_the_script_of_a_folder(tmp_path: Path) -> None:
    assert folder.command(tmp_path) == ("train.py",)
    (tmp_path / "data.py").write_text("print(1)\n")
    (tmp_path / "finetune.py").write_text("loss.backward()\n")
    assert folder.command(tmp_path) == ("finetune.py",)
    (tmp_path / "other.py").write_text("Trainer(model).train()\n")
    assert folder.command(tmp_path) == ("train.py",)  # nobody can tell which
    (tmp_path / "train.py").write_text("")
    assert folder.command(tmp_path) == ("train.py",)


# ---- the config of a job


def text_for(proposal: Proposal) -> str:
    from datetime import date

    return render_yaml.render(proposal, date(2026, 11, 22))


def test_a_config_for_slurm_is_known_by_a_comment_and_nobody_misses_an_address() -> None:
    from mgpu import engine

    text = text_for(made(nodes="4"))
    assert for_engine("slurm") in text.splitlines()
    config = parse_config(text.encode(), "accelerate.yaml")
    assert config.for_slurm and config.written_by_mgpu and config.num_machines == 4
    assert not {"main_process_ip", "main_process_port", "machine_rank"} & set(config.values)
    outcomes = {o.check.id: o for o in engine.run(engine.load(), Snapshot(config=config))}
    assert outcomes["config_options_missing"].status == "ok"
    assert [o.check.id for o in outcomes.values() if o.status in ("fail", "warn")] == []
    without = parse_config(text.replace(for_engine("slurm"), "#").encode(), "accelerate.yaml")
    assert not without.for_slurm
    outcomes = {o.check.id: o for o in engine.run(engine.load(), Snapshot(config=without))}
    assert outcomes["config_options_missing"].status == "warn"


def test_a_login_node_is_not_what_a_config_for_slurm_is_judged_by() -> None:
    """Two GPUs on a workstation beside the cluster, eight ranks on each node of the job."""
    config = parse_config(text_for(made(nodes="2")).encode(), "accelerate.yaml")
    workstation = machines.machine("rtx4090_x2")
    assert workstation.slurm is not None and workstation.slurm.job_id is None
    found = {o.check.id: o.status for o in judge(config, workstation)}
    assert found["config_more_ranks_than_gpus"] == found["config_leaves_gpus_idle"] == "skip"
    inside = replace(workstation, slurm=replace(workstation.slurm, job_id="7", nodes=2))
    assert {o.check.id: o.status for o in judge(config, inside)}["config_more_ranks_than_gpus"] == "fail"
    wanted = gpu_models.parse("2x4xA100-40GB").snapshot
    assert {o.check.id: o.status for o in judge(config, wanted)}["config_more_ranks_than_gpus"] == "fail"


@pytest.mark.parametrize("name", FORMATS)
def test_the_comment_of_every_engine_is_read_back(name: str) -> None:
    config = parse_config(f"{for_engine(name)}\nnum_machines: 2\n".encode(), "a.yaml")
    assert (config.engine, config.for_slurm) == (name, name == "slurm")


def test_a_config_for_slurm_is_no_work_by_hand(tmp_path: Path) -> None:
    config = parse_config(text_for(made(nodes="2")).encode(), "accelerate.yaml")
    with pytest.raises(MgpuError, match=r"mgpu launch --slurm JOB\.sbatch") as caught:
        several.node_number(None, config, "")
    assert caught.value.exit_code == errors.USAGE and "--node-rank" not in caught.value.message
    assert several.node_number(1, config, "") == 1  # a number is still a number


def test_the_decisions_are_remembered_in_the_first_lines() -> None:
    flags: dict[str, Any] = {
        "nodes": "2",
        "partition": "gpu",
        "gpus_per_node": "4",
        "command": "train.py --name 'my run'",
        "spare": "1",
    }
    remembered = render_yaml.recorded_answers(text_for(made(**flags)))
    for name, value in flags.items():
        assert answers.as_typed(name, remembered[name]) == value
    assert remembered.slurm is True


# ---- the questions


def scene(found: Cluster, **more: Any) -> Scene:
    site = Site(found)
    return Scene(lambda a: propose(here(), a, "a login node", site), replaces=lambda name: False, **more)


def answered(state: State, typed: str, on: Scene) -> State:
    question = questions.build(state, on)
    assert question.problem(typed) is None, question.problem(typed)
    return flow.take(state, questions.reply(question, typed, state, on.propose(state.answers)), on)


def walked(found: Cluster, mode: str, typed: dict[str, str]) -> tuple[State, list[str]]:
    """The end, and what was asked on the way; what is not named is accepted as it stands."""
    on, state, asked = scene(found), State(answers.Answers(), output="accelerate.yaml"), []
    state = answered(state, mode, on)
    while not state.ended:
        asked.append(state.step)
        question = questions.build(state, on)
        state = answered(state, typed.get(state.step, question.default), on)
        assert len(asked) < 60
    return state, asked


def test_slurm_is_taken_where_this_machine_has_no_gpu_and_asks_what_has_two_answers() -> None:
    state, asked = walked(MIXED, "ask", {"nodes": "2", "time": "2:00:00"})
    assert asked[:8] == ["slurm", "partition", "nodes", "gpus_per_node", "gpu_model", "time", "account", "command"]
    assert state.answers.slurm is True and state.answers.time == "2:00:00"
    assert state.answers.partition is None and state.answers.account is None  # accepted: nothing was decided
    assert "address" not in asked and "port" not in asked
    _, asked = walked(SMALL, "ask", {"nodes": "2"})
    assert "partition" not in asked and "account" not in asked  # one possibility each


def test_everything_can_be_asked_and_here_stays_here() -> None:
    state, asked = walked(
        MIXED,
        "everything",
        {"nodes": "2", "preflight": "yes", "spare": "1", "partition": "gpu", "gpu_model": "A100-80GB"},
    )
    assert {"constraint", "container", "shape", "requeue", "preflight", "spare", "qos", "precision"} <= set(asked)
    assert state.answers.gpu_model == "A100-80GB" and state.answers.spare == 1
    state, asked = walked(MIXED, "ask", {"slurm": "no"})
    assert asked[0] == "slurm" and not set(asked) & {"partition", "time", "command", "nodes"}
    assert state.answers.slurm is False


def test_going_back_and_editing_stay_within_the_job() -> None:
    on = scene(MIXED)
    state = answered(State(answers.Answers(), output="a.yaml"), "ask", on)
    state = answered(answered(state, "yes", on), "gpu", on)
    assert state.step == "nodes"
    assert flow.back(flow.back(state, on), on).step == "slurm"
    state = replace(state, step=flow.REVIEW, answers=answers.with_decision(state.answers, "nodes", 2))
    edited = answered(state, "partition", on)
    assert edited.step == "partition"
    assert answered(edited, "mig", on).step == "gpus_per_node"
    off = answered(answered(state, "slurm", on), "no", on)
    assert off.step == flow.REVIEW and on.propose(off.answers).job is None


# ---- files


def test_a_file_of_ours_is_known_and_a_changed_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "train.sbatch"
    text = job_file.text_of(made(nodes="2"), path, Path("accelerate.yaml"), "")
    assert text.startswith("#!/bin/bash\n# Written by mgpu ") and f"sbatch {path}" in text
    path.write_text(text)
    assert job_file.is_unmodified(path) and job_file.is_up_to_date(path, text.replace("2026", "2027", 1))
    job_file.refuse_foreign(path, agreed=False)
    path.write_text(text + "echo done\n")
    assert not job_file.is_unmodified(path)
    with pytest.raises(MgpuError, match="was changed since mgpu wrote it"):
        job_file.refuse_foreign(path, agreed=False)
    assert job_file.differences(path, text) == ["  -echo done"]
    path.write_text("#!/bin/bash\n#SBATCH --nodes=9\n")
    with pytest.raises(MgpuError, match="was not written by mgpu"):
        job_file.refuse_foreign(path, agreed=False)
    assert "  -#SBATCH --nodes=9" in job_file.differences(path, text)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    running = RealCluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=2, gpu_type="a100")
    yield running
    running.close()


def configure(slurm: RealCluster, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**slurm.environment, "XDG_STATE_HOME": str(place / ".state")}
    return subprocess.run(
        [sys.executable, "-m", "mgpu", "configure", *arguments], cwd=place, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def inside(monkeypatch: pytest.MonkeyPatch, slurm: RealCluster, place: Path) -> None:
    """What follows in this process is on the cluster; accelerate's loader is not asked again."""
    for name, value in {**slurm.environment, "XDG_STATE_HOME": str(place / ".state")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    monkeypatch.setattr(write_config, "ask_loader", lambda *_: "accelerate 1.15.0")


def test_on_a_real_slurm_both_files_are_written_and_slurm_takes_the_job(
    real: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "finetune.py").write_text("loss.backward()\n")
    done = configure(real, tmp_path, "--slurm", "--yes", "--nodes", "2", "--time", "30", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["job"] == {"path": "train.sbatch", "engine": "slurm", "checked": "bash -n and sbatch --test-only"}
    assert told["next"] == ["mgpu launch --slurm train.sbatch"]
    assert yaml.safe_load((tmp_path / "accelerate.yaml").read_text())["num_processes"] == 4
    text = (tmp_path / "train.sbatch").read_text()
    for line in ("--partition=gpu", "--nodes=2", "--gpus-per-node=2", "--time=30"):
        assert f"#SBATCH {line}\n" in text
    assert "finetune.py" in text and (tmp_path / "logs").is_dir()
    assert read(tmp_path / "accelerate.yaml").for_slurm
    tried = real.run("sbatch", "--test-only", str(tmp_path / "train.sbatch"))
    assert tried.returncode == 0 and "to start at" in tried.stderr, tried.stderr
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    inside(monkeypatch, real, tmp_path)
    assert cli.run(["configure", "--slurm", "--yes", "--nodes", "2", "--constraint", "nowhere"]) == errors.NOT_READY
    assert "no node has the feature" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_what_slurm_allows_is_known_without_asking_it_twice(
    real: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside(monkeypatch, real, tmp_path)
    assert cli.run(["configure", "--slurm", "--yes", "--nodes", "2", "--time", "2:00:00"]) == errors.NOT_READY
    assert "partition gpu allows 1:00:00" in capsys.readouterr().err
    words = "configure --slurm --dry-run --nodes 2 -- train.py --name 'it is'"
    assert cli.run(shlex.split(words)) == 0
    dry = capsys.readouterr().out
    assert "# ==> accelerate.yaml <==" in dry and "# ==> train.sbatch <==" in dry
    assert "train.py --name 'it is' &" in dry and list(tmp_path.glob("*.*")) == []


def test_a_word_too_many_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mgpu", "configure", "--yes", "--", "train.py"], cwd=tmp_path, capture_output=True,
        text=True, check=False, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    assert (
        done.returncode == errors.USAGE and "unexpected argument 'train.py': use --validate to check it" in done.stderr
    )


def test_a_person_on_a_login_node_is_asked_about_the_job(real: RealCluster, tmp_path: Path) -> None:
    place = tmp_path / "project"
    place.mkdir()
    (place / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=9\n")
    added = {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "SLURM_CONF": real.environment["SLURM_CONF"]}
    terminal = Terminal(
        [sys.executable, "-m", "mgpu", "configure"], env=environment(tmp_path / "home", added), cwd=place, columns=80,
        lines=60,
    )  # fmt: skip
    try:
        at(terminal, "What next?")
        assert "Slurm found: partition gpu with 2 nodes, 2 x a100, up to 1:00:00." in words_of(terminal.text)
        terminal.press(ENTER)
        assert "2) As a Slurm job" in at(terminal, "Where will it run?")
        walk = (
            ("Where will it run?", ""), ("How many nodes?", "\x7f2"), ("GPUs per node?", ""),
            ("Which GPUs do the nodes have?", "A100-80GB"), ("Time limit of the job?", "2:00:00"),
        )  # fmt: skip
        for words, typed in walk:
            at(terminal, words)
            terminal.press(typed)
            settled(terminal)
            terminal.press(ENTER)
        assert "partition gpu allows 1:00:00" in words_of(at(terminal, "Which training script?"))
        terminal.press(ESCAPE)
        at(terminal, "Time limit of the job?")
        terminal.press("\x7f" * 7 + "30")
        read_until(terminal, "time limit: 30")
        terminal.press(ENTER)
        for words in ("Which training script?", "How big is", "Samples per GPU", "How many samples", "Known-good"):
            at(terminal, words)
            terminal.press(ENTER)
        review = at(terminal, REVIEW)
        assert "2 x 2 x NVIDIA A100-80GB" in review and "Slurm, train.sbatch" in review
        terminal.press(ENTER)
        confirm = at(terminal, "Replace train.sbatch?")
        assert (
            "-#SBATCH --nodes=9" in terminal.text and "more lines" in terminal.text and "accelerate.yaml" not in confirm
        )
        terminal.press(ENTER)
        until(terminal, lambda: "or without mgpu: sbatch train.sbatch" in words_of(terminal.text))
    finally:
        terminal.child.close(force=True)
    assert "--nodes=9" in (place / "train.sbatch.bak").read_text()
    assert "#SBATCH --time=30" in (place / "train.sbatch").read_text()
    assert "bash -n and sbatch --test-only" in words_of(terminal.text)
