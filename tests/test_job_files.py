"""Do the files for torchrun, Kubeflow and SkyPilot say what these engines read, and do their commands run?"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mgpu import cli
from mgpu.errors import REFUSED, USAGE, MgpuError
from mgpu.job_files import parts, validating
from mgpu.job_files.engines import Plan, render
from mgpu.job_files.job import Container, Job
from mgpu.job_formats import FORMATS
from mgpu.planning import gpu_models
from mgpu.wizard import job_file, write_config
from mgpu.wizard.answers import collect
from mgpu.wizard.nodes import Site
from mgpu.wizard.proposal import propose
from tests.conftest import environment
from tests.test_schema import WRITTEN

WORDS = ("train.py", "--name", "it's $HOME $(date) $$ $(PET_NNODES) \\", 'two\nlines "of" it', "")
CONFIG = "# a comment\ncompute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\n"
OTHERS = tuple(engine for engine in FORMATS if engine != "slurm")

# The fields of TrainJob in kubeflow-trainer-api 2.3.0 (kubeflow_trainer_api.models, 2026-11) that this repository
# writes, each with what stands in it; and of a task in skypilot 0.14.1 (sky.utils.schemas.get_task_schema).
TRAIN_JOB: Mapping[str, Any] = {
    "apiVersion": str, "kind": str, "metadata": {"generateName": str},
    "spec": {
        "activeDeadlineSeconds": int,
        "runtimeRef": {"name": str},
        "trainer": {
            "image": str, "numNodes": int, "numProcPerNode": int, "command": [str],
            "env": [{"name": str, "value": str}],
            "resourcesPerNode": {"requests": {"cpu": str}, "limits": {"nvidia.com/gpu": str}},
        },
        "runtimePatches": [{
            "manager": str,
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{
                "name": str,
                "template": {"spec": {"template": {"spec": {
                    "volumes": [{"name": str, "emptyDir": {"medium": str}}],
                    "containers": [{"name": str, "volumeMounts": [{"name": str, "mountPath": str}]}],
                }}}},
            }]}}},
        }],
    },
}  # fmt: skip
TASK: Mapping[str, Any] = {
    "name": str, "num_nodes": int, "workdir": str, "setup": str, "run": str, "envs": {re.compile("[A-Z_]+"): str},
    "file_mounts": {re.compile("~/.+"): str},
    "resources": {"accelerators": str, "cpus": (str, int), "image_id": str},
}  # fmt: skip


def plan(**changes: Any) -> Plan:
    """Two nodes of 8 GPUs; `changes` of the job or the plan."""
    job = Job(WORDS, nodes=2, gpus_per_node=8, ranks_per_node=8, name="Train_1", threads=4)
    whole = Plan(job, {"distributed_type": "MULTI_GPU"}, CONFIG, gpu_model="A100-80GB")
    of_job = {name: value for name, value in changes.items() if hasattr(job, name)}
    rest = {name: value for name, value in changes.items() if name not in of_job}
    return replace(whole, job=replace(job, **of_job), **rest)


def on_cpus(**changes: Any) -> Plan:
    """The same with two ranks on the CPU each."""
    return plan(**{"gpus_per_node": 0, "ranks_per_node": 2, "cpu": True, "gpu_model": "", **changes})


def strangers(value: Any, known: Any, where: str = "") -> list[str]:
    """Fields that are not among those known, or hold something else."""
    if isinstance(known, Mapping):
        if not isinstance(value, dict):
            return [f"{where}: {value!r}"]
        found = []
        for name, part in value.items():
            inside = known.get(name) or next(
                (k for n, k in known.items() if isinstance(n, re.Pattern) and n.fullmatch(name)), None
            )
            found += strangers(part, inside, f"{where}.{name}") if inside else [f"{where}.{name}"]
        return found
    if isinstance(known, list):
        return [f for part in value for f in strangers(part, known[0], where)] if isinstance(value, list) else [where]
    return [] if isinstance(value, known) and not isinstance(value, bool) else [f"{where}: {value!r}"]


CASES = {
    "gpus": plan(time="1-02:00:00", cpus_per_node=88, env={"NCCL_DEBUG": "$$ $(X) 'é'"}),
    "one_node": plan(nodes=1),
    "torchrun": plan(shape="torchrun", environment={"ACCELERATE_MIXED_PRECISION": "bf16"}),
    "cpus": on_cpus(cpus_per_node=8),
    "image": plan(container=Container("pyxis", "nvcr.io#nvidia/pytorch:25.04-py3"), config_path="/etc/my config.yaml"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fields_are_those_of_the_engine(name: str) -> None:
    assert strangers(yaml.safe_load(render("kubeflow", CASES[name])), TRAIN_JOB) == []
    assert strangers(yaml.safe_load(render("skypilot", CASES[name])), TASK) == []
    script = render("torchrun", CASES[name])
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert script.startswith("#!/bin/bash\n") and (done.returncode, done.stderr) == (0, "")
    for engine in OTHERS:
        assert "NOT tested on a live cluster" in render(engine, CASES[name])


def test_a_strange_field_would_be_seen() -> None:
    job = yaml.safe_load(render("kubeflow", CASES["gpus"]))
    job["spec"]["podTemplateOverrides"] = []
    job["spec"]["trainer"]["numNodes"] = "2"
    assert strangers(job, TRAIN_JOB) == [".spec.trainer.numNodes: '2'", ".spec.podTemplateOverrides"]


def test_a_train_job_asks_for_what_the_job_needs() -> None:
    found = yaml.safe_load(render("kubeflow", CASES["gpus"]))
    assert found["metadata"] == {"generateName": "train-1-"}
    spec, trainer = found["spec"], found["spec"]["trainer"]
    assert (spec["activeDeadlineSeconds"], spec["runtimeRef"]) == (26 * 3600, {"name": "torch-distributed"})
    assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["image"]) == (2, 8, parts.NO_IMAGE)
    assert trainer["resourcesPerNode"] == {"requests": {"cpu": "88"}, "limits": {"nvidia.com/gpu": "8"}}
    assert {one["name"] for one in trainer["env"]} == {"NCCL_DEBUG", "OMP_NUM_THREADS"}
    assert not any(one["name"].startswith("PET_") for one in trainer["env"])  # the controller refuses them
    pod = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    pod = pod["template"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    image = yaml.safe_load(render("kubeflow", CASES["image"]))["spec"]["trainer"]["image"]
    assert image == "nvcr.io/nvidia/pytorch:25.04-py3"


def test_a_task_names_the_gpus_as_skypilot_does() -> None:
    found = yaml.safe_load(render("skypilot", CASES["image"]))
    assert (found["num_nodes"], found["resources"]["accelerators"]) == (2, "A100-80GB:8")
    assert found["resources"]["image_id"] == "docker:nvcr.io/nvidia/pytorch:25.04-py3"
    assert found["file_mounts"] == {"~/my config.yaml": "/etc/my config.yaml"}
    assert yaml.safe_load(render("skypilot", plan(gpu_model="A100-40GB")))["resources"]["accelerators"] == "A100:8"
    assert "accelerators" not in render("skypilot", CASES["cpus"])
    with pytest.raises(MgpuError, match="--gpu-model A100-80GB"):
        render("skypilot", plan(gpu_model=""))


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env": {"HF_TOKEN": "hf_x"}}, "HF_TOKEN is a secret"),
        ({"env": {"A B": "1"}}, "'A B' is not a valid variable name"),
        ({"command": ("train.py", "a\x1bb")}, "this file cannot contain"),
        ({"command": ()}, "no script or module given"),
    ],
)
def test_what_no_file_can_hold_is_refused(engine: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MgpuError, match=re.escape(words)) as refused:
        render(engine, plan(**changes))
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Train_1", "Train_1"), ("7b--x", "train-7b-x"), ("a-_.b", "a.b"), ("--", "train"), ("x_", "x"), ("", "train")],
)
def test_names_are_those_of_skypilot(name: str, plain: str) -> None:
    text = render("skypilot", plan(name=name))
    found = yaml.safe_load(text)["name"]
    assert re.fullmatch("[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*", found)  # _VALID_NAME_REGEX of sky/task.py
    assert re.fullmatch("[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?", found)  # of clusters: sky/skylet/constants.py
    assert found == plain and f"sky launch -c {plain} " in text


@pytest.mark.parametrize("engine", OTHERS)
def test_the_head_names_the_file_itself(engine: str) -> None:
    wanted = gpu_models.parse("2x8xH100")
    answers = collect({"nodes": "2", "command": "train.py THIS_FILE"}, (), {})
    proposal = propose(wanted.snapshot, answers, wanted.text, Site(engine=engine, named=True))
    text = job_file.text_of(proposal, Path("my file"), Path("accelerate.yaml"), CONFIG)
    assert "'my file'" in text.partition("NOT tried")[0] and text.count("THIS_FILE") == 2  # of the command


def test_an_image_that_is_a_file_is_refused() -> None:
    for engine in ("kubeflow", "skypilot"):
        with pytest.raises(MgpuError, match=r"\.sif is an Apptainer file"):
            render(engine, plan(container=Container("apptainer", "x.sif")))


@pytest.mark.parametrize(
    ("name", "plain"), [("Train_1", "train-1"), ("7.b", "b"), ("---", "train"), ("x" * 90, "x" * 40)]
)
def test_names_are_those_of_kubernetes(name: str, plain: str) -> None:
    assert yaml.safe_load(render("kubeflow", plan(name=name)))["metadata"]["generateName"] == f"{plain}-"


# ---- the engine's package


def test_what_the_package_says_is_told(tmp_path: Path) -> None:
    said = validating.validate_file("kubeflow", render("kubeflow", CASES["image"]))[0]
    assert said.startswith(("Not validated: package kubeflow-trainer-api is not", "Its fields are valid for"))
    python = tmp_path / "python"  # one that has it
    for answer, words in (
        ('["2.3.0", ""]', "Its fields are valid for kubeflow-trainer-api 2.3.0."),
        ('["2.1.0", "it does not know spec.x"]', "kubeflow-trainer-api 2.1.0 rejects it: it does not know spec.x"),
        ("nonsense", "Not validated: package kubeflow-trainer-api could not be run."),
    ):
        python.write_text(f"#!/bin/sh\ncat > /dev/null\necho a warning\necho '{answer}'\n")
        python.chmod(0o755)
        assert validating.validate_file("kubeflow", render("kubeflow", CASES["gpus"]), str(python)) == [
            words,
            "This file was not tested on a live Kubeflow cluster: start small. First set the name of your image in it, "
            "or add --container IMAGE.",
        ]


# ---- the commands, run


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text of a pod as Kubernetes hands it on: $(NAME) is a variable, $$ is $ (k8s.io/kubernetes, expansion.go)."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Path]:
    """A PATH on which accelerate and torchrun print their words and the config they are given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("accelerate", "torchrun"):
        path = folder / name
        path.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            "words = sys.argv[1:]\n"
            "at = words.index('--config_file') + 1 if '--config_file' in words else 0\n"
            "config = open(words[at]).read() if at else ''\n"
            "env = {k: v for k, v in os.environ.items() if k in ('OMP_NUM_THREADS', 'NCCL_DEBUG', 'ACCELERATE_X')}\n"
            f"print(json.dumps([{name!r}, words, config, env]))\n"
        )
        path.chmod(0o755)
    yield folder


def ran(script: str, folder: Path, **variables: str) -> tuple[str, list[str], str, dict[str, str]]:
    """What the launcher of the stub was given by a script."""
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), **variables},
        capture_output=True, text=True, cwd=folder.parent, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, words, config, env = json.loads(done.stdout.splitlines()[-1])
    return name, words, config, env


def test_the_pod_hands_the_variables_of_the_controller_to_accelerate(stub: Path) -> None:
    trainer = yaml.safe_load(render("kubeflow", plan(env={"NCCL_DEBUG": "$$ $(PET_NNODES)"})))["spec"]["trainer"]
    told = {
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-1-x-node-0-0.train-1-x", "PET_MASTER_PORT": "29500",
    }  # fmt: skip
    shell, flag, script = (expanded(word, told) for word in trainer["command"])
    given = {one["name"]: expanded(one["value"], told) for one in trainer["env"]}
    assert (shell, flag) == ("/bin/bash", "-c")
    name, words, config, env = ran(script, stub, **told, **given)
    assert (name, words[0]) == ("accelerate", "launch")
    assert words[3:] == [
        "--num_machines", "2", "--num_processes", "16", "--machine_rank", "1", "--main_process_ip",
        told["PET_MASTER_ADDR"], "--main_process_port", "29500", *WORDS,
    ]  # fmt: skip
    assert yaml.safe_load(config) == yaml.safe_load(CONFIG) and config.startswith("# For Kubeflow: ")
    assert env == {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "$$ $(PET_NNODES)"}
    script = expanded(yaml.safe_load(render("kubeflow", plan(shape="torchrun")))["spec"]["trainer"]["command"][2], told)
    assert ran(script, stub, **told)[:2] == ("torchrun", list(WORDS))  # the rest it reads from PET_ itself


def test_skypilots_nodes_meet_at_the_first_of_its_list(stub: Path) -> None:
    told = {
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.9", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    }  # fmt: skip
    (stub.parent / "accelerate.yaml").write_text(CONFIG)
    name, words, config, _ = ran(yaml.safe_load(render("skypilot", plan()))["run"], stub, **told)
    assert (name, config) == ("accelerate", CONFIG)
    assert words[1:] == [
        "--config_file", "accelerate.yaml", "--num_machines", "2", "--num_processes", "16", "--machine_rank", "1",
        "--main_process_ip", "10.0.0.7", "--main_process_port", "29500", *WORDS,
    ]  # fmt: skip
    script = yaml.safe_load(render("skypilot", plan(shape="torchrun")))["run"]
    assert ran(script, stub, **told)[:2] == (
        "torchrun",
        ["--nnodes", "2", "--nproc-per-node", "8", "--node-rank", "1", "--master-addr", "10.0.0.7", "--master-port",
         "29500", *WORDS],
    )  # fmt: skip
    (stub / "my config.yaml").write_text(CONFIG)  # the home folder
    script = yaml.safe_load(render("skypilot", CASES["image"]))["run"]
    assert ran(script, stub, **told)[2] == CONFIG
    script = yaml.safe_load(render("skypilot", on_cpus()))["run"]
    words = ran(script, stub, **{**told, "SKYPILOT_NUM_GPUS_PER_NODE": "0"})[1]
    assert words[words.index("--num_processes") + 1] == "4" and "--multi_gpu" in words


def test_the_script_of_torchrun_asks_for_what_only_the_machine_knows(stub: Path) -> None:
    script = render("torchrun", plan(environment={"ACCELERATE_X": "a b"}))
    name, words, _, env = ran(script, stub, HEAD="node1", NODE_RANK="1")
    assert (name, words[:10]) == (
        "torchrun",
        ["--nnodes", "2", "--nproc-per-node", "8", "--node-rank", "1", "--master-addr", "node1", "--master-port",
         "29500"],
    )  # fmt: skip
    assert words[10:] == list(WORDS) and env == {"OMP_NUM_THREADS": "4", "ACCELERATE_X": "a b"}
    missing = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": os.environ["PATH"], "HEAD": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert missing.returncode != 0 and "the number of this machine, 0 to 1" in missing.stderr
    assert ran(render("torchrun", plan(nodes=1)), stub)[1][:5] == [
        "--nnodes",
        "1",
        "--nproc-per-node",
        "8",
        "--standalone",
    ]


# torchrun gives a rank its number only after the launchers of all machines have met.
_RANK = """\
import os
print(*(os.environ.get(name) for name in ("GROUP_RANK", "RANK", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION")))
"""


def test_two_machines_of_torchrun_meet(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(_RANK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    whole = on_cpus(
        command=("rank.py",), ranks_per_node=1, threads=1, environment={"ACCELERATE_MIXED_PRECISION": "no"},
    )  # fmt: skip
    script = tmp_path / "train.torchrun.sh"
    script.write_text(render("torchrun", whole))
    added = {
        "HEAD": "127.0.0.1", "PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    machines = [
        subprocess.Popen(
            ["bash", str(script)], env=environment(tmp_path, {**added, "NODE_RANK": str(rank)}), cwd=tmp_path,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [machine.communicate(timeout=120)[0] for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert "0 0 2 no" in said[0].splitlines() and "1 1 2 no" in said[1].splitlines(), said


# ---- configure, in this process


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`mgpu configure --target 2x8xA100-80GB ...` in an empty folder: its exit code, stdout and stderr. accelerate's
    loader is not asked: it sees nothing of an engine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(write_config, "ask_loader", lambda *_: "accelerate 1.15.0")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(["configure", "--target", "2x8xA100-80GB", *arguments])
        return (code, *capsys.readouterr())

    return run


def test_configure_writes_the_files(tmp_path: Path, configure: Any) -> None:
    code, out, error = configure("--emit", "kubeflow", "--yes", "--", "train.py")
    assert code == 0, error
    path = tmp_path / "train.trainjob.yaml"
    job = yaml.safe_load(path.read_text())
    assert (job["kind"], job["spec"]["trainer"]["numNodes"]) == ("TrainJob", 2)
    assert "live Kubeflow cluster" in out and "kubectl create -f train.trainjob.yaml" in out
    code, out, error = configure("--emit", "kubeflow", "--diff", "--", "train.py")
    assert (code, out) == (0, "") and error.count("would stay unchanged") == 2
    path.write_text("kind: Mine\n")
    code, _, error = configure("--emit", "kubeflow", "--yes", "--", "train.py")
    assert code == REFUSED and path.read_text() == "kind: Mine\n"
    assert "mgpu configure --emit kubeflow --yes --force" in error and "--slurm" not in error
    assert "doctor --script" not in error  # which reads no TrainJob


def test_a_program_is_told_as_well_that_nobody_ran_the_file(configure: Any) -> None:
    code, out, error = configure("--emit", "skypilot", "--yes", "--json", "--", "train.py")
    assert code == 0, error
    document = json.loads(out)
    WRITTEN.validate(document)
    notes = document["notes"]
    assert any("This file was not tested on a live SkyPilot cluster" in note for note in notes)
    assert any(note.startswith(("Not validated", "Its fields are valid for")) for note in notes)


@pytest.mark.parametrize(
    ("engine", "options", "told"),
    [
        ("skypilot", "--partition gpu --requeue --time 10",
         ["--partition gpu: not supported by SkyPilot", "--requeue: not supported", "--time 10: not supported"]),
        ("kubeflow", "--account a --qos q --constraint c --preflight --spare 1 --time 10",
         ["--account a:", "--qos q:", "--constraint c:", "--preflight:", "--spare 1:"]),
        ("kubeflow", "--shape plain", ["--shape plain: Kubeflow only supports accelerate or torchrun"]),
        ("torchrun", "--shape accelerate --container i",
         ["--shape accelerate: torchrun only supports torchrun", "--container i: not supported by torchrun"]),
        ("torchrun", "--address n1 --port 7777", ["--address n1: set it when you start", "--port 7777: set it"]),
        ("kubeflow", "--address n1", ["--address n1: Kubeflow sets the rendezvous endpoint itself"]),
        ("", "--partition gpu", ["--partition gpu has no effect without a job: add --slurm or --emit ENGINE"]),
        ("", "--requeue", ["--requeue has no effect without a job"]),
        ("kubeflow", "--command 'train.py --hf_token abcdefgh'", ["--hf_token *** is a secret"]),
        ("slurm", "--command 'train.py --api_key=abcdefgh'", ["--api_key=*** is a secret"]),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_be_told_is_not_dropped(
    engine: str, options: str, told: list[str], configure: Any, tmp_path: Path
) -> None:
    code, _, error = configure("--yes", *(["--emit", engine] if engine else []), *shlex.split(options))
    assert code != 0 and not list(tmp_path.glob("*.*"))
    assert [words for words in told if words not in error] == [], error
    assert "abcdefgh" not in error and ("--time 10" in error) == (engine == "skypilot")
