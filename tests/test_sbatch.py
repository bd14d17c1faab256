"""Job scripts as text: what stands in them, that no value can break out of them, and what the parts of them do."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.errors import MgpuError
from mgpu.job_files import preflight_block, sbatch
from mgpu.job_files.environment import setup_lines
from mgpu.job_files.job import Container, Job
from mgpu.job_formats import SHAPES
from mgpu.readers.job_script import read
from mgpu.snapshot import Snapshot
from tests.conftest import CHECKS, ROOT
from tests.conftest import need as need_program

GOLDEN = ROOT / "tests" / "screens"
JOBS = {
    "accelerate": Job(
        ("train.py", "--lr", "3e-4"), nodes=4, spare=1, preflight=True, gpus_per_node=8, ranks_per_node=8,
        gpu_type="h100", name="llama", partition="gpu", account="project", time="12:00:00", cpus_per_node=96,
        memory="0", exclusive=True, requeue=True, warn_s=300, setup=("source /opt/venv/bin/activate",),
        env={"NCCL_DEBUG": "WARN"},
    ),
    "torchrun": Job(
        ("-m", "package.train"), shape="torchrun", nodes=2, gpus_per_node=4, ranks_per_node=4, cpus_per_node=32,
        warn_s=120, container=Container("apptainer", "/images/torch.sif", ("/data:/data",)), logs="runs",
    ),
    "plain": Job(
        ("train.py",), shape="plain", nodes=2, gpus_per_node=4, ranks_per_node=4, cpus_per_node=32, exclude="n[3,17]",
        container=Container("pyxis", "nvcr.io#nvidia/pytorch:26.01-py3"),
    ),
    "cpu": Job(("train.py",), nodes=2, gpus_per_node=0, ranks_per_node=4, logs="."),
    "one": Job(("train.py",), gpus_per_node=8, ranks_per_node=8, constraint="a100&nvlink"),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_the_scripts(name: str) -> None:
    """Golden: write them anew with `python -m tests.test_sbatch`, and read the difference."""
    assert (GOLDEN / f"job_{name}.sbatch").read_text() == sbatch.render(JOBS[name])


# ---- any text


# srun, scontrol and timeout as they matter here: one task, run by srun itself, whose command is what it was given.
STUBS = {
    "srun": """while [[ "$1" == --* ]]; do shift; done; exec "$@" """,
    "scontrol": "echo head",
    "apptainer": """while [[ "$1" != bash ]]; do shift; done; exec "$@" """,
    "timeout": "exit 1",
    **dict.fromkeys(("accelerate", "torchrun", "python3"), r"""printf '%s\0' "$0" "$@" "$TOLD" > "$ARGV" """),
}
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
LINE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)
NASTY = """ $HOME `id` "$(id)" '\\' \n#SBATCH --nodes=9\n && exit 9; * ~ \\"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "bin").mkdir()
    for name, text in STUBS.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    yield folder


def run(folder: Path, script: str) -> list[str]:
    """Run a job script on the stubs: the launcher's argv, and last what the variable TOLD was for it."""
    (folder / "job.sbatch").write_text(script, newline="")
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "head,other", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "4",
        "SLURM_CPUS_ON_NODE": "4", "SLURM_JOB_NAME": "it's", "SLURMD_NODENAME": "other", "SLURM_NODEID": "1",
        "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4", "ARGV": str(folder / "argv"), "TOLD": "",
    }  # fmt: skip
    (folder / "argv").unlink(missing_ok=True)
    result = subprocess.run(
        ["bash", "job.sbatch"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, (result.stderr, script)
    return (folder / "argv").read_bytes().decode().split("\0")[:-1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.sampled_from(list(SHAPES)),
    command=st.lists(TEXT, min_size=1, max_size=3),
    told=TEXT,
    config=TEXT,
    line=LINE,
    kind=st.sampled_from(["pyxis", "apptainer", None]),
)
@example(shape="accelerate", command=[NASTY, ""], told=NASTY, config=NASTY, line="# $HOME `id` 'x", kind="apptainer")
@example(shape="torchrun", command=["-m", NASTY], told=NASTY, config=NASTY, line="x\" 'y", kind="pyxis")
def test_any_text_arrives(
    stubs: Path, shape: Any, command: list[str], told: str, config: str, line: str, kind: Any
) -> None:
    """Byte for byte, in any field; and bash reads the script."""
    job = Job(
        tuple(command), shape=shape, nodes=2, config=config, name=line.replace("/", ""), partition=line, account=line,
        constraint=line, logs=re.sub(r"[\\%]", "", line) or ".", env={"TOLD": told}, cpus_per_node=4,
        container=Container(kind, line or "image", (line.replace(",", ""),)) if kind else None,
    )  # fmt: skip
    script = sbatch.render(job)
    argv = run(stubs, script)
    assert argv[-1] == told
    assert argv[-1 - len(command) : -1] == command
    assert Path(argv[0]).name == {"plain": "python3"}.get(shape, shape)
    if shape == "accelerate":
        assert argv[argv.index("--config_file") + 1] == config
        assert argv[argv.index("--machine_rank") + 1] == "1"  # the node's own, not the batch shell's
        assert argv[argv.index("--num_processes") + 1] == "2"
    if shape != "plain":
        flag = {"accelerate": "--log_dir", "torchrun": "--log-dir"}[shape]
        assert argv[argv.index(flag) + 1] == f"{job.logs}/it's-7/other"
    else:
        assert len(argv) == len(command) + 2


@pytest.mark.parametrize(
    "line", [NASTY.replace("\n", " "), "a b", "#1", 'say "no"', "it's", "back\\slash \\ x", "%j", ""]
)
def test_a_directive_reads_back(line: str) -> None:
    """As sbatch reads it (source=https://github.com/SchedMD/slurm, src/sbatch/opt.c, get_argument)."""
    assert read_back(sbatch.render(Job(("t.py",), account=line))).get("account", "") == line


def read_back(script: str) -> dict[str, str]:
    """The options of #SBATCH lines, taken apart by sbatch's own rules."""
    found = {}
    for line in script.splitlines():
        if not line.startswith("#SBATCH"):
            continue
        word, quote, place, text = "", "", 0, line[len("#SBATCH ") :]
        while place < len(text) and (quote or not text[place].isspace()):
            byte = text[place]
            if byte == "\\":
                place += 1
                byte = text[place]
            elif byte == quote:
                quote, byte = "", ""
            elif not quote and byte in "\"'":
                quote, byte = byte, ""
            elif not quote and byte == "#":
                break
            word += byte
            place += 1
        assert not quote and place == len(text), (line, word)
        name, _, value = word.removeprefix("--").partition("=")
        found[name] = value
    return found


# ---- what cannot stand in one


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a\n#SBATCH --nodes=9"}, "name: 'a\\n#SBATCH --nodes=9' has a control character"),
        ({"partition": "gpu\r"}, "partition"),
        ({"account": "a\x1b[0m"}, "account"),
        ({"time": "1\u2028"}, "time"),
        ({"setup": ("module load a\nrm -r x",)}, "setup"),
        ({"logs": "a\nb"}, "logs"),
        ({"logs": "a\\b"}, "part of a pattern"),
        ({"logs": "%j"}, "part of a pattern"),
        ({"mgpu": "mgpu\nrm"}, "mgpu"),
        ({"name": "a/b"}, "has a /"),
        ({"gpu_type": "a100:4"}, "gpu_type"),
        ({"env": {"A B": "x"}}, "not a valid variable name"),
        ({"env": {"WANDB_API_KEY": "0123456789"}}, "WANDB_API_KEY is a secret"),
        ({"command": ("train.py", "--hf_token", "hf_0123456789")}, "an argument is a secret"),
        ({"command": ()}, "no script or module given"),
        ({"command": ("a\0b",)}, "NUL"),
        ({"command": ("\udcff.py",)}, "not valid UTF-8"),
        ({"time": "soon"}, "not a valid Slurm time"),
        ({"time": "3:00", "requeue": True}, "time: 3:00 is too short"),
        ({"time": "5:00", "warn_s": 300}, "up to 60 s earlier"),
        ({"warn_s": 65536}, "more than 65535"),
        ({"nodes": 0}, "nodes: 0 is less than 1"),
        ({"cpus_per_node": 0}, "cpus_per_node"),
        ({"spare": 1}, "pre-flight"),
        ({"shape": "mpirun"}, "accelerate, torchrun, plain"),
        ({"container": Container("pyxis", "i", ("/a:/a,/b:/b",))}, "comma"),
    ],
)
def test_what_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(MgpuError) as caught:
        sbatch.render(replace(Job(("train.py",)), **change))
    assert said in caught.value.message and caught.value.exit_code == 2


@pytest.mark.parametrize("time", ["", "0", "UNLIMITED", "3:01", "1-0"])
def test_times_that_leave_room_for_the_warning(time: str) -> None:
    assert "--signal=B:USR1@120" in sbatch.render(Job(("train.py",), time=time, requeue=True))


# ---- held to what mgpu says of anybody's script


def variants() -> Iterator[Job]:
    """Every golden job in every shape, on one node and on several, with and without what can be left out."""
    for job, shape, nodes in itertools.product(JOBS.values(), SHAPES, (1, 3)):
        yield replace(job, shape=shape, nodes=nodes)
        yield replace(job, shape=shape, nodes=nodes, requeue=not job.requeue, warn_s=None, preflight=True, setup=())


def test_nothing_is_found_in_them(tmp_path: Path) -> None:
    for folder in ("logs", "runs"):
        (tmp_path / folder).mkdir()
    checks = [check for check in CHECKS.values() if check.area == "job"]
    seen = set()
    for job in variants():
        script = tmp_path / "job.sbatch"
        script.write_text(sbatch.render(job))
        facts = Snapshot(job_script=read.read(script))
        for outcome in engine.run(checks, facts):
            assert outcome.status in ("ok", "skip"), (outcome.check.id, outcome.answer, script.read_text())
            if outcome.status == "ok":
                seen.add(outcome.check.id)
    assert {"job_launcher_outside_srun", "job_goes_on_without_a_rank", "job_trap_never_runs"} <= seen, sorted(
        seen
    )  # they were looked at


# ---- its parts


def test_the_block_stands_in_any_shell(tmp_path: Path) -> None:
    """The pre-flight ends the script where it fails, is left out on request, and what it exports is seen below it."""
    log = tmp_path / "my logs"
    (log / "preflight-7").mkdir(parents=True)
    (log / "preflight-7" / "nodes.sh").write_text("export SLURM_NNODES=1\n")
    lines = preflight_block.lines(mgpu="./mgpu", need=1, config="a b.yaml", logs="my logs")
    assert preflight_block.present("\n".join(lines)) and not preflight_block.present(
        "srun mgpu doctor\n# mgpu smoke-test --slurm\n"
    )
    (tmp_path / "mgpu").write_text('#!/bin/sh\nfor word; do echo "$word"; done\nexit $CODE\n')
    (tmp_path / "mgpu").chmod(0o755)
    for shell in (need_program("bash"), need_program("dash")):
        for code, preflight, said in (("0", "1", "1"), ("3", "1", None), ("3", "0", "2")):
            environment = {"CODE": code, "MGPU_PREFLIGHT": preflight, "SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}
            result = subprocess.run(
                [shell, "-c", "\n".join([*lines, "echo nodes $SLURM_NNODES"])], cwd=tmp_path, env=environment,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert result.returncode == (3 if said is None else 0)
            assert ("nodes" in result.stdout) is (said is not None)
            assert said is None or f"nodes {said}\n" in result.stdout
            asked = ["smoke-test", "--slurm", "--need", "1", "-c", "a b.yaml", "--log-dir", "my logs/preflight-7"]
            assert (result.stdout.splitlines()[: len(asked)] == asked) is (preflight == "1")


@pytest.mark.parametrize(("tasks", "need"), [(1, 2), (4, 2), (1, 1), (None, 2)])
def test_spare_nodes_that_nobody_examines_do_not_train(tmp_path: Path, tasks: int | None, need: int) -> None:
    """MGPU_PREFLIGHT=0: the world stays as large as it was planned, in any shell; or the job ends."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'n1\\nn2\\nn3\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    lines = preflight_block.lines(mgpu="false", need=need, config=None, logs="my logs", spare=1, tasks_per_node=tasks)
    names = ("JOB_NODELIST", "NODELIST", "NNODES", "JOB_NUM_NODES", "NTASKS", "NPROCS", "TASKS_PER_NODE", "HOSTFILE")
    shown = "\n".join(f'echo "${{SLURM_{name}-}}"' for name in names)
    for shell in (need_program("bash"), need_program("dash")):
        for granted in (3, need):
            environment = {
                "PATH": f"{tmp_path}:{os.environ['PATH']}", "MGPU_PREFLIGHT": "0", "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": str(granted),
            }  # fmt: skip
            result = subprocess.run(
                [shell, "-c", "\n".join(["set -eu", *lines, shown])], cwd=tmp_path, env=environment,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if granted == need:  # nobody asked for the spare ones (sbatch --nodes=N): nothing changes
                assert result.stdout.splitlines() == ["n[1-3]", "", "", str(need), "", "", "", ""], result.stderr
                continue
            if tasks is None:
                assert (result.returncode, result.stdout) == (1, "") and "--nodes=2" in result.stderr
                continue
            *told, hostfile = result.stdout.splitlines()
            few, all_, each = ["n1", "n2"][:need], str(tasks * need), f"{tasks}(x2)" if need == 2 else str(tasks)
            joined = ",".join(few)
            assert told == [joined, joined, str(need), str(need), all_, all_, each], result.stderr
            assert Path(hostfile) == tmp_path / "my logs" / "preflight-7" / "hostfile"
            assert Path(hostfile).read_text().split() == [node for node in few for _ in range(tasks)]


def test_a_block_is_switched_off() -> None:
    text = sbatch.render(JOBS["accelerate"])
    off = preflight_block.off(text)
    assert off is not None and off.replace("MGPU_PREFLIGHT=0  # --no-preflight\n", "") == text
    assert off.index("MGPU_PREFLIGHT=0  #") < off.index('if [ "${MGPU_PREFLIGHT')
    assert preflight_block.off("mgpu smoke-test --slurm\nsrun torchrun t.py\n") is None  # lines of somebody's own


def test_the_head_is_of_bearable_length() -> None:
    job = replace(JOBS["cpu"], nodes=1000, spare=1000, preflight=True, ranks_per_node=128, logs="/scratch/" + "x" * 90)
    for shape in SHAPES:
        head = [line for line in sbatch.render(replace(job, shape=shape)).splitlines() if line.startswith("# ")]
        assert max(map(len, head)) <= 120, head


def test_the_block_ends_a_script_that_cannot_read_its_nodes(tmp_path: Path) -> None:
    """Without `set -e` too: bash goes on behind a `.` that failed, and would train on the bad nodes."""
    lines = preflight_block.lines(mgpu="true", need=1, config=None, logs="logs")
    for shell in (need_program("bash"), need_program("dash")):
        result = subprocess.run(
            [shell, "-c", "\n".join([*lines, "echo trains"])], cwd=tmp_path, env={"SLURM_JOB_ID": "7"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode != 0 and "trains" not in result.stdout, (shell, result)


def test_the_software_of_here(tmp_path: Path) -> None:
    """Modules, conda and a virtual environment, in this order; each only where it is in use."""
    venv, conda, modules = tmp_path / "my venv", tmp_path / "conda", tmp_path / "modules"
    for place in (
        venv / "pyvenv.cfg", venv / "bin" / "activate", conda / "etc" / "profile.d" / "conda.sh",
        modules / "init" / "bash", conda / "envs" / "torch" / "conda-meta" / "history",
        conda / "envs" / "torch" / "bin" / "python",
    ):  # fmt: skip
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    module = {"LOADEDMODULES": "cuda/13.0:gcc/14 x", "MODULESHOME": str(modules)}
    in_conda = {"CONDA_PREFIX": str(conda / "envs" / "torch"), "CONDA_EXE": str(conda / "bin" / "conda")}
    loads = (f"source {modules}/init/bash", "module load cuda/13.0 'gcc/14 x'")
    activates = (f"source {conda}/etc/profile.d/conda.sh", f"conda activate {conda}/envs/torch")
    sources = (f"source '{venv}/bin/activate'",)
    python = str(venv / "bin" / "python")
    assert setup_lines({"VIRTUAL_ENV": str(venv)}) == sources
    assert setup_lines({}, python) == sources
    assert setup_lines(module | in_conda | {"VIRTUAL_ENV": str(venv)}) == (*loads, *activates, *sources)
    assert setup_lines(in_conda) == activates
    # the training's interpreter counts, not the shell's
    assert setup_lines({"VIRTUAL_ENV": "/elsewhere"}, python) == sources
    assert (
        setup_lines({"VIRTUAL_ENV": str(venv), **in_conda}, str(conda / "envs" / "torch" / "bin" / "python"))
        == activates
    )
    without = {"CONDA_PREFIX": "/opt/a b"}
    assert setup_lines(without) == ("""export PATH='/opt/a b/bin':"$PATH\"""",)
    mamba = setup_lines({"CONDA_PREFIX": "/opt/env", "MAMBA_EXE": "/opt/micromamba"})
    assert mamba == ('eval "$(/opt/micromamba shell hook --shell bash)"', "micromamba activate /opt/env")
    assert setup_lines({"LOADEDMODULES": ""}) == setup_lines({})
    # of no environment: the shell's is not the training's
    assert setup_lines(module | in_conda | {"VIRTUAL_ENV": str(venv)}, "/opt/a b/python3") == (
        *loads,
        """export PATH='/opt/a b':"$PATH\"""",
    )


@pytest.mark.parametrize(
    ("change", "granted", "threads"),
    [
        ({"cpus_per_node": 32}, {"SLURM_CPUS_PER_TASK": "32"}, "4"),
        ({"cpus_per_node": 32}, {"SLURM_CPUS_PER_TASK": "2"}, "1"),  # sbatch --cpus-per-task=2
        ({"cpus_per_node": 32}, {}, "1"),
        ({}, {"SLURM_CPUS_ON_NODE": "17"}, "2"),
        ({}, {}, "1"),  # salloc
        ({"ranks_per_node": 1}, {"SLURM_CPUS_ON_NODE": "6"}, "6"),
        ({"ranks_per_node": 1}, {}, "1"),
        ({"shape": "plain", "cpus_per_node": 32}, {"SLURM_CPUS_PER_TASK": "4"}, "4"),
        ({"shape": "plain"}, {"SLURM_CPUS_ON_NODE": "4"}, "1"),
        ({"threads": 3}, {"SLURM_CPUS_ON_NODE": "64"}, "3"),
        ({"env": {"OMP_NUM_THREADS": "5"}}, {}, "5"),
    ],
)
def test_the_threads_of_a_rank(change: dict[str, Any], granted: dict[str, str], threads: str) -> None:
    """From what was granted, in the shell's own arithmetic; never none."""
    text = sbatch.render(replace(JOBS["one"], **change))
    lines = [line for line in text.splitlines() if re.match(r"cpus=|export OMP", line)]
    script = "\n".join(["set -euo pipefail", *lines, 'echo "$OMP_NUM_THREADS"'])
    result = subprocess.run(
        [need_program("bash"), "-c", script], env=granted, capture_output=True, text=True, check=False
    )
    assert result.stdout == f"{threads}\n", result.stderr


if __name__ == "__main__":
    for name, job in JOBS.items():
        (GOLDEN / f"job_{name}.sbatch").write_text(sbatch.render(job))
