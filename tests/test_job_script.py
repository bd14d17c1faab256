"""Is a job script read as Slurm and the shells would read it, and told so that it helps?"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.cli import json_schema
from mgpu.engine import selections
from mgpu.errors import MgpuError
from mgpu.job_files import sbatch
from mgpu.job_files.job import Container, Job
from mgpu.job_formats import SHAPES
from mgpu.process import interpreter
from mgpu.readers.job_script import read as job_script_read
from mgpu.snapshot import JobCommand, JobScript, Snapshot, from_json, to_json
from tests.bad_jobs import bad, good, pairs, read
from tests.checks.test_job import found
from tests.conftest import ROOT, Run
from tests.slurm import Cluster

Told: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n"


def launch(*lines: str) -> JobCommand:
    """The one launch of a script of these lines."""
    (command,) = read("\n".join(("#!/bin/bash", *lines)) + "\n").launches
    return command


def uses(command: JobCommand) -> dict[str, bool]:
    """Variables in a command's words, and whether a shell on the node expands them."""
    return {one.name: one.on_node for one in command.variables}


# --- which shell expands what ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "on_node"),
    [
        (("srun torchrun --node_rank $SLURM_NODEID train.py",), False),
        (('srun bash -c "torchrun --node_rank $SLURM_NODEID train.py"',), False),
        (("srun bash -c 'torchrun --node_rank $SLURM_NODEID train.py'",), True),
        (('srun bash -c "torchrun --node_rank \\$SLURM_NODEID train.py"',), True),
        (("srun bash -lc 'exec torchrun --node_rank ${SLURM_NODEID} train.py'",), True),
        (('CMD="torchrun --node_rank \\$SLURM_NODEID train.py"', 'srun bash -c "$CMD"'), True),
        (('CMD="torchrun --node_rank $SLURM_NODEID train.py"', 'srun bash -c "$CMD"'), False),
        (("CMD='torchrun --node_rank $SLURM_NODEID train.py'", "srun sh -c \"$CMD\""), True),
        (("export R=$SLURM_NODEID", "srun bash -c 'torchrun --node_rank $R train.py'"), False),
        (("srun bash -c 'R=$SLURM_NODEID; torchrun --node_rank $R train.py'",), True),
        (("srun bash << 'END'", "torchrun --node_rank $SLURM_NODEID train.py", "END"), True),
        (("srun bash << END", "torchrun --node_rank $SLURM_NODEID train.py", "END"), False),
        (("srun apptainer exec --nv x.sif bash -c 'torchrun --node_rank $SLURM_NODEID train.py'",), True),
        (("A=(--node_rank '$SLURM_NODEID')", 'srun bash -c "torchrun ${A[*]} train.py"'), True),
        (("run() { torchrun --node_rank $1 train.py; }", "run $SLURM_NODEID"), False),
        (("eval \"srun torchrun --node_rank \\$SLURM_NODEID train.py\"",), False),
        (("srun bash -c 'torchrun \"$@\" train.py' bash --node_rank $SLURM_NODEID",), False),
        (("ssh n1 'torchrun --node_rank $SLURM_NODEID train.py'",), True),
    ],
)  # fmt: skip
def test_which_shell_expands_a_variable(lines: tuple[str, ...], on_node: bool) -> None:
    command = launch(*lines)
    assert uses(command)["SLURM_NODEID"] is on_node
    assert command.words[0] == "torchrun" and "--node_rank" in command.words
    assert command.script is not None and command.words[command.script] == "train.py"


def test_a_dollar_that_nobody_expands_is_no_variable() -> None:
    assert launch("srun torchrun --node_rank '$SLURM_NODEID' train.py").variables == ()


def test_values_are_put_in_and_sums_kept() -> None:
    command = launch(
        "GPUS=4", "NODES=${SLURM_NNODES}", "WORLD=$((GPUS * NODES))", "PORT=29500", "PORT=$((PORT + 1))",
        'srun torchrun --nnodes $NODES --nproc_per_node "$GPUS" --master_port $PORT train.py --world $WORLD',
    )  # fmt: skip
    assert command.words[:7] == (
        "torchrun", "--nnodes", "$SLURM_NNODES", "--nproc_per_node", "4", "--master_port", "$((29500 + 1))",
    )  # fmt: skip
    assert command.words[-1] == "$((4 * $SLURM_NNODES))"


def test_a_value_of_one_branch_is_not_known_after_it() -> None:
    both = launch('if [ -n "$X" ]; then N=2; else N=4; fi', "srun torchrun --nnodes $N train.py")
    assert both.words[2] == "$N"
    same = launch('if [ -n "$X" ]; then N=2; else N=2; fi', "srun torchrun --nnodes $N train.py")
    assert same.words[2] == "2"
    looped = launch("A=''", 'for x in 1 2; do A="$A --x $x"; done', "srun torchrun $A train.py")
    assert looped.words[1] == "$A"


def test_what_is_set_and_not_exported_is_unset_on_the_node() -> None:
    command = launch("HEAD=n1", "export PORT=2", "srun bash -c 'torchrun --master_addr $HEAD:$PORT$OTHER train.py'")
    assert [(one.name, one.unset) for one in command.variables] == [("HEAD", True), ("OTHER", False)]


# --- what is started ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "launcher", "script", "through"),
    [
        ("torchrun --standalone -m pkg.train", "torchrun", "pkg.train", ()),
        ("python -u -m torch.distributed.run --nproc_per_node 4 train.py", "torchrun", "train.py", ()),
        ("srun -N2 -n 2 -l accelerate launch --multi_gpu --config_file c.yaml train.py", "accelerate", "train.py",
         ("srun",)),
        ("srun --container-image=x --container-mounts a:b python -m accelerate.commands.launch t.py", "accelerate",
         "t.py", ("srun",)),
        ("time srun apptainer exec --nv -B /a:/b img.sif torchrun t.py", "torchrun", "t.py",
         ("srun", "apptainer")),
        ("srun singularity_wrapper exec deepspeed --num_gpus 4 t.py", "deepspeed", "t.py",
         ("srun", "singularity_wrapper")),
        ("srun $ARGS python train.py --x", "python", "train.py", ("srun",)),
        ("$CONTAINER torchrun t.py", "torchrun", "t.py", ("$CONTAINER",)),
        ("srun numactl --cpunodebind 0 python3.11 /a/b.py", "python", "/a/b.py", ("srun", "numactl")),
        ("srun uv run accelerate launch train.py", "accelerate", "train.py", ("srun", "uv")),
        ("mgpu launch --gpus 2 train.py", "mgpu", "train.py", ()),
        ("conda run -n deepspeed python train.py", "python", "train.py", ("conda",)),
        ("uv run --with deepspeed torchrun train.py", "torchrun", "train.py", ("uv",)),
        ("docker run --name deepspeed img python train.py", "python", "train.py", ("docker",)),
        ("$PYTHON_CMD train.py", "python", "train.py", ()),
        ("${PY_BIN} -m torch.distributed.run train.py", "torchrun", "train.py", ()),
        *(  # what `mgpu launch --print-command` shows
            (f"srun {shlex.join(interpreter.module('/env/bin/python', version, module))} --a b t.py", launcher, "t.py",
             ("srun",))
            for version in ("3.10.13", "3.11.7")
            for module, launcher in (
                ("accelerate.commands.launch", "accelerate"), ("torch.distributed.run", "torchrun"),
            )
        ),
    ],
)  # fmt: skip
def test_launchers_are_seen_through_what_starts_them(
    line: str, launcher: str, script: str, through: tuple[str, ...]
) -> None:
    command = launch(line)
    assert (command.launcher, command.through) == (launcher, through)
    assert command.script is not None and command.words[command.script] == script


@pytest.mark.parametrize(
    "line",
    ["echo torchrun train.py", "pip install torchrun", "python -m pip install x", "which accelerate launch",
     "cat << EOF > run.sh\nsrun torchrun train.py\nEOF", "# srun torchrun train.py", "python -c 'import torch'",
     "python -c 'import torch.distributed.run' t.py",
     "grep torchrun x.py", "unused() { torchrun train.py; }", "conda create -n deepspeed python=3.11 -y",
     "conda activate deepspeed", "uv pip install deepspeed", "poetry add deepspeed accelerate", "$RUN train.py"],
)  # fmt: skip
def test_what_starts_nothing_is_no_launch(line: str) -> None:
    assert read(f"#!/bin/bash\n{line}\n").launches == ()


@pytest.mark.parametrize(
    "line",
    ["torchrun ${ENTRY:-'-m pkg.train'} data.path=x", "torchrun $ARGS data.path=x model.size=1", "torchrun $ARGS +a=1"],
)  # fmt: skip
def test_a_setting_for_hydra_is_not_the_training_script(line: str) -> None:
    command = launch(line)
    assert (command.launcher, command.script) == ("torchrun", None)


def test_the_report_names_a_module_as_one(told: Told) -> None:
    assert "Starts torchrun -m pkg.train on line 2." in told("#!/bin/bash\ntorchrun -m pkg.train a.b=1\n").stdout


def test_the_first_launch_is_told_by_the_statement_it_stands_in() -> None:
    script = read(
        "#!/bin/bash\nCMD='torchrun train.py'\nif true; then\n    for x in 1 2; do\n        srun bash -c \"$CMD\"\n"
        "    done\nfi\n"
    )
    assert script.launches[0].line == 2
    assert script.first_launch_line == 3
    assert read("#!/bin/bash\npython prepare.py\nsrun torchrun train.py\n").first_launch_line == 3
    assert read("#!/bin/bash\nhostname\n").first_launch_line is None


# --- the files it starts -----------------------------------------------------------------------------------------

TRAIN = "torchrun --nnodes 2 --nproc_per_node 4 --master_addr localhost $@ train.py\n"


def started(folder: Path, text: str, **files: str) -> JobScript:
    """A job script of this text, next to files: train="..." is train.sh."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.sh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    (folder / "job.sbatch").write_text(f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\n{text}\n")
    return job_script_read.read(folder / "job.sbatch")


@pytest.mark.parametrize(
    ("text", "through"),
    [
        ("srun bash train.sh --a 1", ("srun", "bash")),
        ("srun ./train.sh --a 1", ("srun", "bash")),
        ("bash -e train.sh --a 1", ("bash",)),
        (". ./train.sh --a 1", ()),
        ("source train.sh --a 1", ()),
        ("exec train.sh --a 1", ("exec", "bash")),
        ("time srun env X=1 ./train.sh --a 1", ("srun", "env", "bash")),
        ("srun apptainer exec --nv x.sif bash train.sh --a 1", ("srun", "apptainer", "bash")),
        ('bash "$(dirname "$0")/train.sh" --a 1', ("bash",)),
        ('D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nbash $D/train.sh --a 1', ("bash",)),
        ("bash $SLURM_SUBMIT_DIR/train.sh --a 1", ("bash",)),
        ("bash ${SLURM_SUBMIT_DIR:?submit it from the project}/train.sh --a 1", ("bash",)),
        ('R="${ROOT:-${SLURM_SUBMIT_DIR:?submit it from the project}}"\ncd "$R"\nbash train.sh --a 1', ("bash",)),
        ("R=${ROOT:-${BASE:-${PWD}}}\nbash $R/train.sh --a 1", ("bash",)),
        ("bash ${RUN:-train.sh} --a 1", ("bash",)),
        ("cd $WORK/project\nsrun bash train.sh --a 1", ("srun", "bash")),
        ("cd /no/such/folder\nsrun bash train.sh --a 1", ("srun", "bash")),
        ("run() { bash train.sh $1 1; }\nrun --a", ("bash",)),
    ],
)
def test_a_started_file_is_read(text: str, through: tuple[str, ...], tmp_path: Path) -> None:
    script = started(tmp_path, text, train=f"# the run\n{TRAIN}")
    assert [Path(one.path).name for one in script.files] == ["train.sh"]
    assert script.unread == ()
    (command,) = script.launches
    assert command.through == through
    assert script.place(command.line) == (script.files[0].path, 2)
    assert command.words[7:9] == ("--a", "1")


@pytest.mark.parametrize(
    ("text", "why", "shown"),
    [
        ("srun bash ${ROOT:-${PWD:?start it from the project}}/no/run.sh", "no such file", "$ROOT/no/run.sh"),
        ("srun bash ${RUN:-$KIND.sh}", "its name is known only in the job", "$RUN"),
        ("srun bash $(pick --model ${MODEL:-small})/run.sh", "no such file", "$(...)/run.sh"),
        ("srun bash " + "runs/" * 30 + "of_two.sh", "no such file", f"...{'/runs' * 9}/of_two.sh"),
    ],
)  # fmt: skip
def test_an_unread_file_is_named_without_raw_shell(text: str, why: str, shown: str, tmp_path: Path) -> None:
    (one,) = [o.problem for o in findings(started(tmp_path, text)) if o.check.id == "job_file_not_examined"]
    assert one is not None and f"{shown} was not examined: {why}" in one.title


FIT = "pl.Trainer(devices=4, strategy='ddp').fit(model)\n"


@pytest.mark.parametrize(
    ("files", "uses"),
    [
        ({"train.py": f"import lightning.pytorch as pl\n{FIT}"}, True),
        ({"train.py": f"import torch, pytorch_lightning as pl\n{FIT}"}, True),
        ({"train.py": "from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n"}, True),
        ({"train.py": f"import lightning as pl\n{FIT.replace('4', '1')}"}, False),
        ({"train.py": f"import lightning as pl\nenv = LightningEnvironment()\n{FIT}"}, False),
        ({"train.py": "from transformers import Trainer\nTrainer(model).train()\n"}, False),
        ({"train.py": "from parts import fit\n", "parts/fit.py": f"import lightning as pl\n{FIT}"}, False),
        ({"lightning_train.py": "from parts import fit\n", "parts/fit.py": "from parts.run import go\n",
          "parts/run.py": f"import lightning as pl\n{FIT}"}, True),
    ],
)  # fmt: skip
def test_a_script_that_trains_with_lightning(files: dict[str, str], uses: bool, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "job.sbatch").write_text(f"#!/bin/bash\npython {next(iter(files))}\n")
    (command,) = job_script_read.read(tmp_path / "job.sbatch").launches
    assert ("Lightning" in (command.uses or ())) is uses


def test_a_finding_names_the_file_and_its_line(tmp_path: Path) -> None:
    script = started(tmp_path, "srun bash train.sh", train=f"set -e\n{TRAIN}")
    found_at = {(o.problem.place.file, o.problem.place.line): o.problem.title for o in findings(script) if o.problem}
    assert "train.sh line 2: the rendezvous host is localhost" in found_at[(script.files[0].path, 2)]


def findings(script: JobScript) -> list[Any]:
    """The outcomes of the checks on a job script."""
    return list(engine.judge(Snapshot(job_script=script), selections.JOB_SCRIPT))


def test_folders_functions_and_exports_are_those_of_the_shell(tmp_path: Path) -> None:
    script = started(
        tmp_path, "A=1\nexport B=2\nf() { srun false; }\ncd sub\nbash go.sh\nsource set.sh\nsrun python a.py $C",
        sub__go="f\ntorchrun t.py $A $B\n", sub__set="C=3\nset -e\n",
    )  # fmt: skip
    inner, outer = script.launches
    assert inner.words[2:] == ("$A", "2") and outer.words[2] == "3"
    assert ("f",) in {one.words for one in script.commands}  # not the script's function
    assert script.stops_at_errors


def test_files_are_read_three_deep_and_not_in_circles(tmp_path: Path) -> None:
    script = started(
        tmp_path, "bash a.sh", a="bash b.sh\n", b="bash c.sh\n", c="bash d.sh\nbash a.sh\n", d="torchrun t.py\n"
    )
    assert [Path(one.path).stem for one in script.files] == ["a", "b", "c", "d"]
    assert script.launches == ()
    assert [(one.path, one.why) for one in script.unread] == [("d.sh", "too many files start each other")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("srun bash train.sh", "no such file here"),
        ("srun bash $SCRIPT", "its name is known only in the job"),
        ("srun bash scripts/$MODEL.sh", "its name is known only in the job"),
        ("srun bash large.sh", "it is larger than 0.2 MiB"),
    ],
)
def test_what_was_not_read_is_named_with_the_reason(text: str, why: str, tmp_path: Path) -> None:
    script = started(tmp_path, text, large="#" * (256 << 10) + "\n")
    (unread,) = script.unread
    assert (unread.line, unread.on_node, unread.sourced) == (3, True, False)
    assert unread.why.startswith(why[:18])


def test_a_program_that_is_not_a_shell_script_is_not_a_started_file(tmp_path: Path) -> None:
    script = started(tmp_path, "srun ./tool\nsrun ./prog.sh", prog="#!/usr/bin/env python3\nimport torch\n")
    (tmp_path / "tool").write_bytes(b"\x7fELF\0")
    assert job_script_read.read(tmp_path / "job.sbatch").unread == script.unread == ()


def test_a_fault_of_syntax_in_a_started_file_is_found(tmp_path: Path) -> None:
    script = started(tmp_path, "bash a.sh", a="echo 1\nif true; then\n")
    assert script.syntax is not None and script.syntax_line is not None
    assert script.place(script.syntax_line) == (script.files[0].path, 2)  # its last line


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("import torch.distributed as d\nd.init_process_group('nccl')\n", ("process group",)),
        ("import subprocess\nsubprocess.run(['srun', 'x'])\n", ("srun",)),
        ("net.to('cuda:0')\n", ("first GPU",)),
        ("print(1)  # no init_process_group here\n# srun x\n", ()),
        ("a = int(b)\na = 0\ntorch.cuda.set_device(a)\n", ("first GPU",)),
        ("def f():\n    a: int = 0\n    cuda.set_device(a)\n    return f'cuda:{a}'\n", ("first GPU",)),
        ("a = 0\ndef f(net):\n    DDP(net.cuda(a), device_ids=[a])\n", ("first GPU",)),
        ("for x in y:\n    a = 0\n    d = torch.device('cuda', a)\n", ("first GPU",)),
        ("class A:\n    def f(self):\n        a = 0\n        set_device(a)\n        set_device(0 )\n", ("first GPU",)),
        (
            "def f():\n    a = 0\n    set_device(a)\n    return 1, a\n\nb, c = f()\nD(device_ids=[c])\n",
            ("first GPU",),
        ),
        ("def f():\n    a = 0\n    set_device(a)\n    return 1, a\n\nc, b = f()\nDDP(x, device_ids=[c])\n", ()),
        ("def f():\n    a = 0\n    set_device(a)\n    return g, g\n\n\nb, c = f()\nDDP(x, device_ids=[c])\n", ()),
        ("if b:\n    a = int(b)\nelse:\n    a = 0\nset_device(a)\n", ()),
        ("if b:\n    a = int(b)\n    set_device(a)\nelse:\n    a = 0\n    set_device(a)\n", ()),
        ("a = 0\nif b:\n    a = int(b)\nset_device(a)\n", ()),
        ("a = 0\nwhile b:\n    set_device(a)\n    a += 1\n", ()),
        ("a = 0\nfor a in b:\n    set_device(a)\n", ()),
        ("def f(a=0):\n    set_device(a)\n", ()),
        ("a = 0\ndef f():\n    global a\n    a = int(b)\ndef g():\n    set_device(a)\n", ()),
        ("a = 0\nset_device(a)\nnet.to(f'cuda:{b}')\n", ()),
        ("a = 0\nargs.a = b\nset_device(args.a)\n", ()),
        ("a = False\nset_device(a)\n", ()),
        ("a = 0\nset_device(a\n", ()),  # not Python
    ],
)
def test_what_a_python_script_uses_is_read(text: str, uses: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(text)
    script = started(tmp_path, "python main.py\npython -m main\npython other.py")
    assert [one.uses for one in script.launches] == [uses, uses, None]


def test_the_comments_at_an_assignment_are_read(tmp_path: Path) -> None:
    script = started(tmp_path, "#SBATCH -J x\n# hangs\n# without\nexport A=1\nexport B=2  # needed\n\nC=3\nD='#x'")
    assert [(one.name, one.comment) for one in script.sets] == [
        ("A", "hangs without"), ("B", "hangs without needed"), ("C", ""), ("D", ""),
    ]  # fmt: skip


def test_functions_that_call_themselves_many_times_are_examined_once(tmp_path: Path) -> None:
    (trap,) = started(tmp_path, "end() { end; end; end; end; end; }\ntrap end EXIT").traps
    assert trap.exit_code is None


TORCHRUN = "torchrun --nproc_per_node=4 t.py"
# A command in a variable: how it is set and run, and the launch that is examined.
IN_VARIABLE: tuple[tuple[str, str], ...] = (
    (f'C="{TORCHRUN}"\n$C --x', f"{TORCHRUN} --x"),
    (f'C="{TORCHRUN}"\nsrun $C', TORCHRUN),
    (f"C='{TORCHRUN}'\neval \"$C\"", TORCHRUN),
    (f'C="{TORCHRUN}"\nsrun bash -c "$C" 2>&1 | tee log', TORCHRUN),
    (f"export C='{TORCHRUN}'\nsrun bash -c 'exec $C'", TORCHRUN),
    (f"read -r -d '' C << END || true\n{TORCHRUN}\nEND\nsrun bash -c \"$C\"", TORCHRUN),
    (f"read -rd '' C << 'END'\n  {TORCHRUN} \\\n    --x\nEND\neval \"$C\"", f"{TORCHRUN} --x"),
    (f"C=$(cat << END\n{TORCHRUN}\nEND\n)\n$C", TORCHRUN),
    (f'C="{TORCHRUN}"\nif [ -n "$R" ]; then C="$C --resume"; fi\nsrun $C', f"{TORCHRUN} $C"),
)


@pytest.mark.parametrize(("text", "launch"), IN_VARIABLE)
def test_a_command_in_a_variable_is_examined(text: str, launch: str, tmp_path: Path) -> None:
    assert [" ".join(one.words) for one in started(tmp_path, text).launches] == [launch]


@pytest.mark.parametrize(
    "text",
    [
        f"read -r C << END\n{TORCHRUN}\nEND\n$C",  # one line of it
        f"read -d '' C << END\n{TORCHRUN}\\\\\nEND\n$C",  # without -r
        f"read -r -d '' A C << END\n{TORCHRUN}\nEND\n$C",
        f"C=$(cat f << END\n{TORCHRUN}\nEND\n)\n$C",
        f'if [ -n "$R" ]; then C="{TORCHRUN}"; else C="{TORCHRUN}2"; fi\n$C',
        f'if [ -n "$R" ]; then C="{TORCHRUN}"; fi\n$C',
    ],
)
def test_a_command_in_a_variable_that_is_known_only_in_the_job(text: str, tmp_path: Path) -> None:
    assert started(tmp_path, text).launches == ()


EITHER = ("if [ $N -gt 1 ]; then", "  PYTHON=(torchrun --nproc_per_node=4)", "else PYTHON=(python); fi")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("V=./venv", "X=1", "srun bash -c '\\", "  '\"$V\"'/bin/torchrun \\", "  --x t.py'"), 6),
        (("V=./venv", "X=1", "srun $V/bin/torchrun t.py"), 5),
        (("P=/env/bin/python", "X=1", "$P t.py"), 5),
        (("P=/env/bin/python", "X=1", "$P \\", "  -m torch.distributed.run t.py"), 5),
        (("P=/env/bin/python", "X=1", 'mpirun bash -c "set -e; \\', '  $P t.py"'), 6),
        (("L='torchrun --nnodes 2'", "X=1", 'srun bash -c "$L t.py"'), 3),
        (("C='torchrun t.py'", "X=1", 'srun bash -c "$C"'), 3),  # all of it is there
        (("f() {", "    torchrun $1 t.py", "}", "f --x"), 4),
        ((*EITHER, "X=1", 'C=("${PYTHON[@]}" t.py', "  --x)", '"${C[@]}"'), 7),  # known only in the job, after an if
        ((*EITHER, "X=1", '"${PYTHON[@]}" t.py'), 7),
        (("PYTHON=(python)", "X=1", 'C=("${PYTHON[@]}" t.py', "  --x)", '"${C[@]}"'), 3),
    ],
)
def test_a_command_is_on_the_line_of_its_own_words(lines: tuple[str, ...], line: int, tmp_path: Path) -> None:
    script = started(tmp_path, "\n".join(lines))
    assert [one.line for one in script.launches] == [line]


def test_work_in_a_file_that_is_not_here_is_unknown(told: Told) -> None:
    done = told("#!/bin/bash\n#SBATCH --nodes=2\nsrun bash scripts/train.sh\n")
    assert done.returncode == 3
    assert "No findings" not in done.stdout
    assert "scripts/train.sh was not examined: no such file here" in done.stdout
    assert "Unknown (exit 3)" in done.stdout
    content = json.loads(told("#!/bin/bash\n#SBATCH --nodes=2\nsrun bash scripts/train.sh\n", "--json").stdout)
    assert (content["verdict"], content["exit_code"]) == ("unknown", 3)


# --- directives --------------------------------------------------------------------------------------------------


def test_directives_are_read_as_slurm_reads_them() -> None:
    script = read(
        "#!/bin/bash\n#SBATCH -N 2 -n4 --gres gpu:4 --exclusive # a remark\n#SBATCH --job-name='a b' --ntasks-per-n=1\n"
        "\n# a comment\n#SBATCH -t1:00:00\ncd x\n#SBATCH --mem=1G\n"
    )
    assert [(one.line, one.option, one.value, one.obeyed) for one in script.directives] == [
        (2, "nodes", "2", True), (2, "ntasks", "4", True), (2, "gres", "gpu:4", True), (2, "exclusive", None, True),
        (3, "job-name", "a b", True), (3, "ntasks-per-node", "1", True), (6, "time", "1:00:00", True),
        (8, "mem", "1G", False),
    ]  # fmt: skip
    assert script.directive("mem") is None
    nodes = script.directive("nodes", "ntasks")
    assert nodes is not None and nodes.value == "4"  # the last counts


def test_directives_of_a_script_that_it_writes_are_not_its_own() -> None:
    script = read("#!/bin/bash\nsbatch << EOF\n#!/bin/bash\n#SBATCH --nodes=2\nEOF\n")
    assert script.directives == ()


# Each on a line of its own; whether sbatch takes it (and what it then does with it) is asked of a real one.
OPTIONS = (
    "-N 1#", "-N1", "--nodes=1-2", "--nodes=2,", "--nodes=abc", "--nodes 2", "--ntasks=0", "--ntasks=2x", "--time=90",
    "--time=1-", "--time=0:60", "--time=1:2:3:4", "--time=1h", "--time=infinite", "--time=1-00:00", "--gres=gpu",
    "--gres=gpu:a100:1", "--gres=gpus:2", "--gres=gpu=2", "--gres=4", "--gpus=a100:1", "--gpus-per-node=0", "--mem=0",
    "--mem=1.5G", "--mem=1G", "--mem=1 GB", "--signal=B:USR1", "--signal=10@60", "--signal=R:USR1@60",
    "--signal=SIGUSR1@60", "--mail-type=ALL,TIME_LIMIT_80", "--mail-type=end", "--mail-type=finish", "--ntask=2",
    "hetjob", "-N=2", "-c=2", "--gpus=a100", "--gpus-per-node=a100", "--comment=\u201cx\u201d", "--core-spec=1",
    "--cpus-per-tasks=2", "--ntasks-per-n=1", "--job-name='a b'", "--job-name=a b", "--exclusive", "--gpu-per-node=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with four GPUs each."""
    found = Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4, cpus=32, gpu_type="a100")
    try:
        yield found
    finally:
        found.close()


def test_what_sbatch_refuses_is_what_is_found(cluster: Cluster, tmp_path: Path) -> None:
    wrong = {}
    for line in OPTIONS:
        text = f"#!/bin/bash\n#SBATCH {line}\nhostname\n"
        (tmp_path / "job.sbatch").write_text(text)
        said = cluster.run("sbatch", "--test-only", "job.sbatch", cwd=tmp_path)
        judged = {name for name, _ in found(read(text)) if name.startswith("job_directive")}
        if bool(judged) != (said.returncode != 0):
            wrong[line] = (judged, said.stderr)
    assert wrong == {}


def test_what_is_known_of_slurm_is_so(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=1 --exclusive --gres=gpu:1\n"
        "echo GPUS=$SLURM_GPUS_ON_NODE, CPUS=$SLURM_CPUS_PER_TASK,\n"
        "A=1; B=2; SLURM_GPUS_ON_NODE=7\n"
        "srun -n1 -c2 --export=ALL,A=$A bash -c 'echo A=$A, B=$B, CPUS=$SLURM_CPUS_PER_TASK,'\n"
        "bash -c 'echo now=$SLURM_GPUS_ON_NODE,'\n"
        "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK srun -n1 true\n"
    )
    job = cluster.batch(tmp_path / "job.sbatch")
    cluster.ended(job, 60)
    said = cluster.output(job)
    assert "GPUS=4, CPUS=,\nA=1, B=, CPUS=2,\nnow=7,\n" in said  # --exclusive gives all GPUs
    assert "Invalid numeric value" in said


def test_a_config_that_cannot_be_looked_for_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"srun accelerate launch --config_file {'a' * 300}.yaml train.py\n")
    assert job_script_read.named_config(job_script_read.read(path)) is None


def test_sbatch_takes_the_repaired_scripts(cluster: Cluster, tmp_path: Path) -> None:
    refused = {
        "job_shebang_missing", "job_directive_unknown", "job_directive_value_invalid", "job_lines_end_as_on_windows",
    }  # fmt: skip
    for pair in pairs():
        for text, certain in ((pair.bad, {name for name, _ in pair.expected} & refused), (pair.good, None)):
            (tmp_path / "job.sbatch").write_text(text)
            said = cluster.run("sbatch", "--test-only", "job.sbatch", cwd=tmp_path)
            if certain is None or certain:
                assert (said.returncode != 0) is bool(certain), (pair.name, said.stderr)


# --- our own scripts ---------------------------------------------------------------------------------------------

OF_FOLDERS = {"job_output_folder_missing", "job_output_folder_not_in_repository"}
OURS: tuple[dict[str, Any], ...] = (
    {}, {"preflight": True, "spare": 1}, {"requeue": True, "warn_s": 300}, {"gpus_per_node": 0}, {"nodes": 1},
    {"container": Container("pyxis", "nvcr.io#nvidia/pytorch")}, {"container": Container("apptainer", "torch.sif")},
    {"setup": ("module load cuda",), "env": {"NCCL_SOCKET_IFNAME": "eth0"}}, {"gpu_type": "a100", "exclusive": True},
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("changes", OURS, ids=lambda changes: "-".join(changes) or "plain")
def test_nothing_is_found_in_what_mgpu_writes(shape: str, changes: dict[str, Any]) -> None:
    plain = Job(("train.py", "--epochs", "3"), nodes=2, gpus_per_node=4, ranks_per_node=4, cpus_per_node=32, name="x")
    job = replace(plain, shape=shape, **changes)  # type: ignore[arg-type]
    script = read(sbatch.render(job))
    assert {name for name, _ in found(script)} <= OF_FOLDERS  # that is for whoever submits
    assert script.launches and not script.cut and script.first_launch_line


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "screens").glob("job_*.sbatch")), ids=lambda path: path.stem)
def test_nothing_is_found_in_the_pictured_scripts(path: Path) -> None:
    assert {name for name, _ in found(read(path.read_text("utf-8")))} <= OF_FOLDERS


# --- hostile -----------------------------------------------------------------------------------------------------


def test_nothing_of_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker, startup = tmp_path / "marker", tmp_path / "startup"
    startup.write_text(f"touch {marker}\n")
    monkeypatch.setenv("BASH_ENV", str(startup))
    path = tmp_path / "job.sh"
    path.write_text(f"touch {marker}\nx=$(touch {marker})\nif then\n")
    script = job_script_read.read(path)
    assert script.syntax and script.syntax_line == 3
    assert not marker.exists()


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(MgpuError, match="No such file"):
        job_script_read.read(tmp_path / "none.sh")
    for content, words in ((b"", "it is empty"), (b"#!/bin/sh\n\0", "not a text"), (b"#" * 300_000, "larger than")):
        (tmp_path / "x.sh").write_bytes(content)
        assert words in (job_script_read.read(tmp_path / "x.sh").error or "")
    assert job_script_read.read(tmp_path).error == "it is a folder"


@pytest.mark.parametrize(("does", "why"), [("exec sleep 60", "did not finish"), ("kill $$", "exited with code -15")])
def test_a_shell_that_does_not_answer_has_not_said_yes(
    does: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash, script = tmp_path / "bin" / "bash", tmp_path / "job.sbatch"
    bash.parent.mkdir()
    bash.write_text(f"#!/bin/sh\n{does}\n")
    bash.chmod(0o755)
    script.write_text(SBATCH + "srun true\n")
    monkeypatch.setenv("PATH", str(bash.parent), prepend=":")
    monkeypatch.setattr(job_script_read, "_SYNTAX_S", 0.5)
    seen = job_script_read.read(script)
    assert why in (seen.syntax_unread or seen.syntax or "it has said yes")


@pytest.mark.parametrize(
    "text",
    ["$(" * 50_000, "a=$a$a\n" * 2_500, "if " * 50_000, "{ " * 50_000, "`" * 20_000, '"$(' * 50_000,
     "f() { f; f; }\nf\n", "A=x\n" + "A=$A$A\n" * 100 + "srun $A\n", "((" * 50_000, "cat <<E\n" * 20_000,
     "case x in " * 20_000, "bash -c '" * 5_000, "x() { " * 20_000, "${" * 50_000, "eval eval eval $(eval)\n" * 700,
     "f() { $@ $@; }\nf f f f f\n", "trap 'trap \"trap x USR1\" USR1' USR1\n" * 500,
     "a=(x)\nsrun ${a[" + "9" * 5_000 + "]}\n", "f() { srun ${" + "9" * 5_000 + "}; }\nf x\n"],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_what_is_made_to_be_slow_ends_soon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(text[: job_script_read.LARGEST_BYTES])
    began = time.monotonic()
    job_script_read.read(path)
    assert time.monotonic() - began < 30


WORDS = st.sampled_from(
    ["srun", "torchrun", "accelerate launch", "bash", "-c", "'", '"', "$", "${", "}", "$(", ")", "((", "))", "`", "\\",
     "\n", "#", "#SBATCH", "--nodes=2", "<<", "EOF", "|", "&&", "||", "&", ";", ";;", "if", "then", "fi", "for", "do",
     "done", "case", "esac", "in", "function", "f()", "{", "A=", "A=(", "export", "$A", "${A[@]}", "$((A+1))", "eval",
     "trap", "USR1", "=", "[[", "]]", " ", "\t", "\r", "é", "\U000f0000", "–", "ssh", "srun bash << EOF", "train.py"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.one_of(st.binary(max_size=300), st.lists(WORDS, max_size=40).map(lambda w: " ".join(w).encode())))
def test_any_bytes_are_read_and_judged_without_a_crash(
    raw: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # bash is not what is tested here
    monkeypatch.setattr(job_script_read, "_syntax", lambda path, shell: (None, None, None))
    path = tmp_path / "job.sbatch"
    path.write_bytes(b"#!/bin/bash\n" + raw)
    assert job_script_read.is_job_script(path)
    script = job_script_read.read(path)
    found(script)
    assert all(command.words for command in script.commands)


def test_a_secret_is_told_by_its_name_alone(tmp_path: Path) -> None:
    secret = "hf_" + "aB3" * 12
    text = f"export HF_TOKEN={secret}\nsrun torchrun train.py --hf_token {secret} --api-key={secret[:20]}\n"
    script = read(f"#!/bin/bash\n{text}WANDB_API_KEY={secret} python train.py\n")
    assert secret[:20] not in repr(script)
    assert {one.line for one in script.texts if one.kind == "secret"} == {2, 3}


# --- told --------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(mgpu: Run, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`mgpu doctor --script job.sbatch` on a text."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "job.sbatch").write_text(text, newline="")
        return mgpu("doctor", "--script", "job.sbatch", *arguments)

    return run


def text_of(name: str, *, fault: bool = True) -> str:
    pair = next(pair for pair in pairs() if pair.name == name)
    return pair.bad if fault else pair.good


def test_the_report_names_line_fix_and_the_training_script(told: Told, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    done = told(text_of("ranks-double-quotes"))
    assert done.returncode == 1, done.stderr
    assert "job.sbatch:11" in done.stdout and "$SLURM_NODEID is expanded here" in done.stdout
    assert "Requests --nodes=2" in done.stdout
    assert "mgpu doctor --script train.py" in done.stdout
    assert "mgpu launch --slurm" not in done.stdout  # not before it is mended
    fine = told(text_of("ranks-double-quotes", fault=False))
    assert fine.returncode == 0
    assert "No findings from" in fine.stdout and "mgpu launch --slurm job.sbatch" in fine.stdout
    assert all(len(line) <= 80 for line in fine.stdout.splitlines())


def test_programs_get_line_and_schema(told: Told, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    done = told(text_of("world-seven-on-two-nodes"), "--json")
    content = json.loads(done.stdout)
    jsonschema.validate(content, json_schema.doctor())
    assert (done.returncode, content["verdict"], content["exit_code"]) == (1, "not_ready", 1)
    (entry,) = [one for one in content["checks"] if one["status"] == "fail"]
    assert (entry["id"], entry["file"], entry["line"]) == ("job_processes_do_not_divide", "job.sbatch", 10)
    assert entry["verify"] == "mgpu doctor --script job.sbatch --only job_processes_do_not_divide"
    assert content["next"] == ["mgpu doctor --script train.py"]
    marks = told(text_of("world-seven-on-two-nodes"), "--format", "github").stdout
    assert "::error file=job.sbatch,line=10,title=job_processes_do_not_divide::" in marks


def test_the_config_that_the_launcher_is_given_is_read(told: Told, tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
        "srun --kill-on-bad-exit=1 bash -c 'accelerate launch --config_file c.yaml --machine_rank $SLURM_NODEID t.py'\n"
    )
    (tmp_path / "c.yaml").write_text("num_machines: 4\nnum_processes: 16\nmain_process_ip: n1\n")
    done = told(text)
    assert "num_machines is 4, but the job has 2 nodes" in done.stdout and "with c.yaml" in done.stdout
    fits = "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmain_process_ip: n1\n"
    (tmp_path / "d.yaml").write_text(fits)
    assert "No findings" in told(text, "-c", "d.yaml").stdout


IF = 'if [ -n "$Q" ]; then\n'
# What a script has, what the report says of it, and whether `mgpu launch --slurm` is the next step.
REPORTS: tuple[tuple[str, str, bool], ...] = (
    ("#PBS -l select=4\nmpirun -np 4 python t.py", "Its directives are for PBS and were not", False),
    ("#BSUB -n 4\npython t.py", "Its directives are for LSF and", False),
    ("#$ -pe mpi 4\npython t.py", "Its directives are for Grid Engine and", False),
    ("#PBS -l x\n#SBATCH --nodes=2\npython t.py", "Requests --nodes=2.", True),
    ("# PBS is not used\npython t.py", "Has no #SBATCH lines: without Slurm, it runs", False),
    ("srun python t.py", "Requests no resources: sbatch's options decide.", True),
    ("torchrun --nnodes $SLURM_NNODES t.py", "Requests no resources: sbatch's options decide.", True),
    ("sbatch --nodes 2 -J x train.sbatch $A", "Submits train.sbatch with sbatch (not examined).", False),
    ("#SBATCH -N 1\nsrun python t.py\nsbatch $0", "srun starts python t.py on line 3.", True),
    ("#SBATCH -N 1\nsbatch --wrap 'python x.py'", "No launcher and no Python script found in it.", True),
    (f"{IF}C='torchrun -m a.b'\nelse C='python -m a.b'; fi\n$C x=1", "$C on line 5: torchrun or python", False),
    (f"{IF}C=(torchrun t.py)\nelse C=(python t.py); fi\n\"${{C[@]}}\" --x", "line 5: torchrun or python", False),
    (f"{IF}C=ls\nelse C=cat; fi\n$C x", "What it starts is known only in the job: $C on line 5.", False),
    ("source env.sh\n$TRAIN --x 1", "What it starts is known only in the job: $TRAIN on line 3.", False),
    ("C=ls\n$C x", "No launcher and no Python script found in it.", False),
    ("python a.py\ntorchrun t.py\npython b.py", "torchrun t.py on line 3, python a.py on line 2 and python", False),
    ("srun torchrun t.py\npython b.py", "srun starts torchrun t.py on line 2. Starts python b.py on line 3.", True),
    ("for x in 1 2; do torchrun t.py; torchrun t.py; done", "Starts torchrun t.py on line 2.", False),
    ("/some/where/with/a/long/name/envs/mine/bin/accelerate launch t.py", "Starts accelerate launch t.py on", False),
    ("/some/where/with/a/long/name/envs/mine/bin/swift sft --model a", "Starts swift sft on line 2.", False),
    ("accelerate launch --config_file $C t.py", "2 lines; not read: $C. Nothing", False),
    ("accelerate launch --config_file ${3:-a.yaml} t.py", "not read: $3.", False),
    ("accelerate launch --config_file no.yaml t.py", "missing: no.yaml.", False),
    ("accelerate launch --config_file c.yaml t.py", "2 lines. Nothing was run", False),
    ("accelerate launch --config_file c.yaml t.py\naccelerate launch --config_file d.yaml u.py", "d.yaml.", False),
    ("deepspeed t.py --deepspeed no.json", "missing: no.json.", False),
    ("accelerate launch --config_file no.yaml here.py", "2 lines; missing: no.yaml. Nothing was run", False),
    ("bash a.sh\ntorchrun here.py --deepspeed no.json", "not read: no.json, a.sh. Nothing", False),
)  # fmt: skip


@pytest.mark.parametrize(("text", "words", "for_slurm"), REPORTS)
def test_the_report_says_what_is_requested_started_and_not_read(
    text: str, words: str, for_slurm: bool, mgpu: Run, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    for name in ("here.py", "t.py", "u.py"):
        (tmp_path / name).write_text("pass\n")
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{text}\n")
    said = mgpu("doctor", "--script", "job.sh", cwd=tmp_path).stdout
    assert words in " ".join(said.split())
    if "error" not in said:
        assert ("mgpu launch --slurm" in said) is for_slurm


def test_the_job_that_a_script_submits_is_the_next_to_examine(told: Told, tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(SBATCH)
    done = told("#!/bin/bash\nfor x in 1 2; do sbatch train.sbatch $x; done\nsbatch other.sbatch\n")
    assert "Next:  mgpu doctor --script train.sbatch\nExplain" in done.stdout  # other.sbatch is not here
    assert done.returncode == 3 and "train.sbatch was not examined: it runs as a job of its own" in done.stdout
    (tmp_path / "other.sbatch").write_text(SBATCH)
    done = told("#!/bin/bash\nsbatch train.sbatch\nsbatch other.sbatch\n")
    assert "Next:  mgpu doctor --script train.sbatch\n       mgpu doctor --script other.sbatch\n" in done.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sbatch --wrap 'torchrun t.py'", 3), ("for one in jobs/*.sh; do sbatch $one; done", 3),
        ("JOB=$(sbatch --parsable a.sbatch)", 3), ("sbatch $0", 0), ("sbatch job.sbatch --again", 0),
        ("sbatch --version", 0), ("sbatch a.sbatch\nsrun python train.py", 0), ("hostname", 0),
    ],
)  # fmt: skip
def test_a_script_that_only_submits_jobs_is_unknown(text: str, code: int, told: Told) -> None:
    done = told(f"#!/bin/bash\n{text}\n")
    assert (done.returncode, "was not examined" in done.stdout) == (code, code == 3), done.stdout


def test_the_next_step_names_only_files_that_are_here(told: Told, tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=1\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.py").write_text("pass\n")
    assert "Next:  mgpu doctor --script run/train.py\n" in told(f"{head}torchrun /data/me/run/train.py\n").stdout
    assert "Next:  mgpu doctor --script run/train.py\n" in told(f"{head}cd run\ntorchrun -m train\n").stdout
    gone = told(f"{head}torchrun /data/me/src/fit.py\n").stdout
    assert "not here: /data/me/src/fit.py." in gone and "Next:  mgpu launch --slurm job.sbatch\n" in gone
    near = told(f"{head}torchrun run/train2.py\n").stdout
    assert "run/train2.py does not exist" in near and "missing: run/train2.py." in near and "Next:" not in near


@pytest.mark.parametrize(
    ("name", "text", "job"),
    [("a.sbatch", "hostname\n", True), ("a.slurm", "hostname\n", True), ("a.sh", "hostname\n", True),
     ("a", "#!/usr/bin/env bash\n", True), ("a", "#SBATCH --nodes=2\n", True), ("a.py", "#SBATCH -N 2\n", False),
     ("a", "#!/usr/bin/env python3\nimport torch\n", False), ("a", "import torch\n", False),
     ("a.txt", "#!/bin/tcsh\n#SBATCH -N 2\n", True)],
)  # fmt: skip
def test_a_job_script_is_told_from_a_training_script(name: str, text: str, job: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert job_script_read.is_job_script(tmp_path / name) is job


def test_a_shell_that_is_not_read_is_said(told: Told) -> None:
    done = told("#!/bin/tcsh\n#SBATCH --nodes=2 --gpus-per-node=4\nsetenv X 1\nsrun python t.py\n")
    assert done.returncode == 0 and "mgpu cannot parse" in done.stdout and "bash -n" not in done.stdout


def test_what_is_no_script_is_one_message(told: Told) -> None:
    done = told("#!/bin/sh\n\0")
    assert (done.returncode, done.stdout) == (2, "") and "it is not a text file" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_readers_fact_survives_json() -> None:
    for script in (bad("ranks-double-quotes"), good("starting-deepspeed-alone")):
        again = from_json(json.loads(json.dumps(to_json(Snapshot(job_script=script)))))
        assert again.job_script == script
