"""What is read from a launch line of the user's own? Compared with the parsers of the real launchers; nothing runs.

LLaMA-Factory and axolotl are not installed here. Their keys and variables are those of LLaMA-Factory ff6d4d1
(src/llamafactory/launcher.py, hparams/parser.py; examples/train_full/qwen3_full_sft.yaml,
examples/deepspeed/ds_z3_config.json) and axolotl 067b021 (src/axolotl/cli/main.py, cli/utils/train.py,
utils/schemas/training.py; examples/llama-3/qlora-fsdp-70b.yaml), shortened.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.cli import option_parser
from mgpu.errors import MgpuError
from mgpu.launch import complete_commands, foreign
from mgpu.launch.request import Request
from mgpu.launchers import foreign_line, foreign_programs, line_port, line_program, option_words
from mgpu.launchers.foreign_line import Line
from mgpu.snapshot import Config, Visible
from tests.checks import facts as known
from tests.scripts import write_config

QWEN3 = """\
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json  # choices: [ds_z0_config.json, ds_z2_config.json, ds_z3_config.json]
output_dir: saves/qwen3-4b/full/sft
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
bf16: true
resume_from_checkpoint: null
"""
ZERO3 = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "sub_group_size": 1e9}}\n'
LLAMA3 = """\
base_model: casperhansen/llama-3-70b-fp16
load_in_4bit: true
output_dir: ./outputs/out/qlora-llama3-70b
lora_model_dir:
gradient_accumulation_steps: 4
micro_batch_size: 1
bf16: auto
tf32: false
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
  fsdp_sharding_strategy: FULL_SHARD
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the YAML of both frameworks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3.yaml").write_text(QWEN3)
    (tmp_path / "llama3.yml").write_text(LLAMA3)
    (tmp_path / "examples" / "deepspeed").mkdir(parents=True)
    (tmp_path / "examples" / "deepspeed" / "ds_z3_config.json").write_text(ZERO3)
    return tmp_path


def read(text: str, gpus: int = 0, **environ: str) -> Line:
    return foreign_line.read(shlex.split(text), gpus, environ)


def shape(line: Line) -> tuple[object, ...]:
    return line.program.name, line.launcher, line.ranks, line.nodes, line.port


# Which program, how many ranks


@pytest.mark.parametrize(
    ("text", "gpus", "wanted"),
    [
        ("torchrun --nproc-per-node 2 t.py", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("torchrun --nproc_per_node=2 --master_port 4711 t.py", 0, ("torchrun", "torchrun", 2, 1, 4711)),
        ("torchrun --nproc_per 3 t.py --nproc-per-node 9", 0, ("torchrun", "torchrun", 3, 1, None)),
        ("torchrun --nproc-per-node gpu t.py", 4, ("torchrun", "torchrun", 4, 1, None)),
        ("torchrun --nproc-per-node gpu t.py", 0, ("torchrun", "torchrun", None, 1, None)),
        ("torchrun t.py", 4, ("torchrun", "torchrun", 1, 1, None)),
        ("/v/bin/torchrun --standalone --nproc-per-node=2 t.py", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("python -m torch.distributed.run --nproc-per-node=2 -m pkg.t", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("python3 -u -m torch.distributed.launch --nproc_per_node=2 t.py", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("env OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 t.py", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("numactl -N 0 torchrun --nproc-per-node 2 t.py", 0, ("torchrun", "torchrun", 2, 1, None)),
        ("torchrun --nnodes 2 --node-rank 1 --nproc-per-node 8 t.py", 0, ("torchrun", "torchrun", 8, 2, 29500)),
        (
            "torchrun --nnodes 1:4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint h:29400 t.py",
            0,
            ("torchrun", "torchrun", 8, 4, 29400),
        ),
        ("accelerate launch --multi_gpu --num-processes 2 t.py", 0, ("accelerate", "accelerate", 2, 1, None)),
        ("accelerate launch --num_processes 2 t.py", 0, ("accelerate", "accelerate", 1, 1, None)),
        ("accelerate launch --num_processes 2 t.py", 4, ("accelerate", "accelerate", 2, 1, None)),
        ("accelerate launch t.py", 4, ("accelerate", "accelerate", 4, 1, None)),
        ("accelerate launch --cpu --num_processes 2 t.py", 4, ("accelerate", "accelerate", 1, 1, None)),
        ("accelerate-launch --main_process_port=4711 t.py", 4, ("accelerate", "accelerate", 4, 1, 4711)),
        ("deepspeed --num_gpus 2 t.py", 4, ("deepspeed", "deepspeed", 2, 1, 29500)),
        ("deepspeed --master_port=1234 t.py", 4, ("deepspeed", "deepspeed", 4, 1, 1234)),
        ("deepspeed --include localhost:1,2,3 t.py", 4, ("deepspeed", "deepspeed", 3, 1, 29500)),
        ("deepspeed t.py", 0, ("deepspeed", "deepspeed", None, 1, 29500)),
        ("python t.py", 4, ("python", "command", 1, 1, None)),
        ("python -c 'print(1)'", 4, ("python", "command", 1, 1, None)),
        ("pkg-train --nproc-per-node 4", 4, ("", "command", None, 1, None)),
        ("bash run.sh", 4, ("", "command", None, 1, None)),
        ("llamafactory-cli train x.yaml", 1, ("llamafactory-cli", "command", 1, 1, None)),
        ("llamafactory-cli train x.yaml", 4, ("llamafactory-cli", "torchrun", 4, 1, None)),
        ("lmf chat x.yaml", 4, ("llamafactory-cli", "command", 1, 1, None)),
        ("env FORCE_TORCHRUN=1 llamafactory-cli train x.yaml", 1, ("llamafactory-cli", "torchrun", 1, 1, None)),
        ("python -m llamafactory.cli train x.yaml", 4, ("llamafactory-cli", "torchrun", 4, 1, None)),
        ("axolotl train x.yaml", 4, ("axolotl", "accelerate", 4, 1, None)),
        ("axolotl train x.yaml -- --num_processes 2", 4, ("axolotl", "accelerate", 2, 1, None)),
        ("axolotl train x.yaml --num-processes 2", 4, ("axolotl", "accelerate", 2, 1, None)),
        ("axolotl train x.yaml --launcher torchrun -- --nproc_per_node=3", 4, ("axolotl", "torchrun", 3, 1, None)),
        ("axolotl train x.yaml --launcher python", 4, ("axolotl", "command", 1, 1, None)),
        ("axolotl preprocess x.yaml", 4, ("axolotl", "command", 1, 1, None)),
    ],
)
def test_what_a_line_starts(here: Path, text: str, gpus: int, wanted: tuple[object, ...]) -> None:
    line = read(text, gpus)
    assert shape(line) == wanted
    assert line.words == tuple(shlex.split(text))


def test_what_the_ranks_run(here: Path) -> None:
    for text, script in (
        ("torchrun --nproc-per-node 2 t.py --m x", ("t.py", "--m", "x")),
        ("torchrun -m pkg.t x", ("-m", "pkg.t", "x")),
        ("deepspeed --module pkg.t x", ("-m", "pkg.t", "x")),
        ("python -u -m pkg.t x", ("-m", "pkg.t", "x")),
        ("python -u t.py x", ("t.py", "x")),
        ("python -c 'print(1)'", ()),
        ("bash run.sh", ()),
    ):
        assert read(text).script == script, text


def test_notes_on_what_accelerate_does(here: Path) -> None:
    assert "ignores the number" in read("accelerate launch --num_processes 2 t.py", 0).notes[0]
    assert "ACCELERATE_USE_CPU" in read("accelerate launch --multi_gpu --num_processes 2 t.py", 0).notes[0]
    assert not read("accelerate launch --multi_gpu --num_processes 2 t.py", 0, ACCELERATE_USE_CPU="true").notes
    assert not read("accelerate launch --multi_gpu --num_processes 2 t.py", 2).notes


def test_the_variables_of_launchers(here: Path) -> None:
    assert shape(read("torchrun t.py", PET_NPROC_PER_NODE="2", PET_NNODES="3"))[2:] == (2, 3, 29500)
    assert read("torchrun --nproc-per-node 4 t.py", PET_NPROC_PER_NODE="2").ranks == 4
    llamafactory = read(
        "llamafactory-cli train x.yaml", 4, NPROC_PER_NODE="2", NNODES="2", NODE_RANK="1", MASTER_PORT="29600"
    )
    assert shape(llamafactory)[1:] == ("torchrun", 2, 2, 29600) and llamafactory.node_rank == 1
    assert read("llamafactory-cli train x.yaml", 4, USE_RAY="1").launcher == "command"
    assert read("llamafactory-cli train x.yaml", 4, USE_RAY="1", FORCE_TORCHRUN="true").launcher == "torchrun"
    assert read("python t.py", RANK="0", WORLD_SIZE="2").launcher == "python"


def test_programs_that_start_their_ranks_elsewhere(here: Path) -> None:
    for text in ("srun -n 2 torchrun t.py", "docker run image torchrun t.py", "axolotl train x.yaml --cloud c.yaml"):
        line = read(text, 4)
        assert line.launcher == "command" and line.notes and "watch" in line.notes[0], text
    with pytest.raises(MgpuError, match="mgpu launch itself"):
        read("mgpu launch t.py")


def test_the_hosts_of_deepspeed(here: Path) -> None:
    (here / "hosts").write_text("# ours\nworker-0 slots=4\n\nworker-1 slots=8\n")
    both = read("deepspeed -H hosts t.py", 4)
    assert both.launcher == "command" and "worker-0, worker-1" in both.notes[0] and "ssh" in both.notes[0]
    assert shape(read("deepspeed --hostfile=hosts --no_ssh --node_rank 1 t.py"))[1:] == ("deepspeed", 8, 2, 29500)
    assert shape(read("deepspeed -H hosts -i worker-1:0,2 t.py"))[1:] == ("deepspeed", 2, 1, 29500)
    assert shape(read("deepspeed -H hosts --num_nodes 1 t.py"))[1:] == ("deepspeed", 4, 1, 29500)
    assert shape(read("deepspeed t.py", 4, CUDA_VISIBLE_DEVICES="0,3"))[2] == 2
    os.mkfifo(here / "fifo")
    assert shape(read("deepspeed -H fifo t.py", 4))[2] == 4  # no regular file: deepspeed ignores it


# accelerate's file and options


def test_options_replace_the_values_of_the_file(here: Path) -> None:
    write_config(here)
    file = read("accelerate launch --config_file accelerate.yaml --main_process_port 4711 t.py", 0)
    assert (file.ranks, file.port, file.config.given) == (2, 4711, ())
    bf16 = read("accelerate launch --config-file=accelerate.yaml --mixed_precision bf16 --zero_stage 2 t.py", 0)
    assert bf16.config.precision == "bf16" and bf16.config.values["deepspeed_config"] == {"zero_stage": 2}
    assert bf16.config.sha256 != file.config.sha256 and bf16.config.given == ("mixed_precision", "zero_stage")
    other = read("accelerate launch --config_file accelerate.yaml --max_restarts 3 t.py", 0)
    assert other.config.launch_flags == ("--max_restarts", "3") and other.config.sha256 != file.config.sha256
    with pytest.raises(MgpuError, match=r"nowhere\.yaml not found"):
        read("accelerate launch --config_file nowhere.yaml t.py")


def test_the_default_config_of_accelerate(here: Path) -> None:
    folder = here / "cache" / "huggingface" / "accelerate"
    folder.mkdir(parents=True)
    write_config(folder, name="default_config.yaml")
    line = read("accelerate launch t.py", 4, XDG_CACHE_HOME=str(here / "cache"))
    assert line.ranks == 2 and line.config.path == str(folder / "default_config.yaml")
    assert read("axolotl train x.yml", 4, XDG_CACHE_HOME=str(here / "cache")).ranks == 2
    assert read("accelerate launch --cpu t.py", 4, XDG_CACHE_HOME=str(here / "cache")).config.path == ""


def test_accelerate_decides_the_same(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Number of processes and precision are those of accelerate's own validation."""
    from accelerate.commands import launch

    write_config(here)
    for words in (
        ["--config_file", "accelerate.yaml"],
        ["--config_file", "accelerate.yaml", "--num_processes", "3", "--mixed-precision=bf16"],
        ["--multi_gpu", "--num_processes", "2"],
        ["--use_fsdp", "--num_processes", "4", "--num_machines", "2", "--machine_rank", "1"],
    ):
        monkeypatch.setattr(launch, "default_config_file", "nowhere")
        args, *_ = launch._validate_launch_command(launch.launch_command_parser().parse_args([*words, "t.py"]))
        line = foreign_line.read(["accelerate", "launch", *words, "t.py"], 0, {})
        assert line.ranks == int(args.num_processes) // int(args.num_machines), words
        if line.config.path:
            assert line.config.precision == args.mixed_precision


# The options are those of the real parsers


def parser_of_deepspeed(monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    runner = importlib.import_module("deepspeed.launcher.runner")
    found: list[argparse.ArgumentParser] = []
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda self, args=None: found.append(self))
    runner.parse_args([])
    monkeypatch.undo()
    return found[0]


def parser_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    from torch.distributed.run import get_args_parser

    found: argparse.ArgumentParser = get_args_parser()
    return found


@pytest.mark.parametrize(("name", "parser"), [("torchrun", parser_of_torchrun), ("deepspeed", parser_of_deepspeed)])
def test_the_options_of_the_installed_launchers(
    monkeypatch: pytest.MonkeyPatch, name: str, parser: Callable[..., argparse.ArgumentParser]
) -> None:
    options = foreign_programs.LAUNCHERS[name].options
    for action in parser(monkeypatch)._actions:
        for written in action.option_strings:
            found = option_words.long_name(written, options) if written.startswith("--") else options.short[written[1]]
            assert found in (options.values if action.nargs is None else options.switches), written


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc-per-node", "2", "-m", "pkg", "--x"],
        ["-r3", "-t", "1", "--standalone", "--", "t.py"],
        ["--log_dir=a b", "--max-restarts=3", "--rdzv-conf", "timeout=1,a=b", "t.py", "x", "-m"],
    ],
)
def test_words_are_read_as_by_torchrun(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    program = foreign_programs.LAUNCHERS["torchrun"]
    mine, real = option_words.read(words, program.options), get_args_parser().parse_args(words)
    assert mine.rest[:1] == (real.training_script,) and list(mine.rest[1:]) == real.training_script_args
    for name, value in mine.values.items():
        assert str(getattr(real, name)) == (value or "True"), name


# The YAML of the frameworks


def test_the_yaml_of_llamafactory(here: Path) -> None:
    found = read("llamafactory-cli train qwen3.yaml", 4).settings
    assert found is not None and not found.unread and not found.missing
    assert (found.batch, found.accumulate, found.precision) == (1, 2, "bf16")
    assert found.strategy == "DeepSpeed ZeRO-3 (examples/deepspeed/ds_z3_config.json)"
    assert found.output == "saves/qwen3-4b/full/sft"
    over = read("llamafactory-cli train qwen3.yaml per_device_train_batch_size=4 bf16=false deepspeed=null", 4).settings
    assert over is not None and (over.batch, over.precision, over.strategy) == (4, "", "")
    gone = read("llamafactory-cli train qwen3.yaml deepspeed=nowhere.json", 4).settings
    assert gone is not None and gone.missing == "nowhere.json" and gone.strategy == "DeepSpeed (nowhere.json)"


def test_a_script_whose_name_other_projects_have_too(here: Path) -> None:
    found = read("torchrun --nproc-per-node 2 src/train.py qwen3.yaml", 4).settings
    assert found is not None and (found.batch, found.precision) == (1, "bf16")
    (here / "other.yaml").write_text("bf16: true\nbatch_size: 4\n")
    assert read("torchrun --nproc-per-node 2 src/train.py other.yaml", 4).settings is None
    assert read("torchrun --nproc-per-node 2 train.py qwen3.yaml", 4).settings is None


def test_the_yaml_of_axolotl(here: Path) -> None:
    found = read("axolotl train llama3.yml", 4).settings
    assert found is not None and not found.unread
    assert (found.batch, found.accumulate, found.precision) == (1, 4, "bf16 if the GPUs have it")
    assert (found.strategy, found.output) == ("FSDP", "./outputs/out/qlora-llama3-70b")
    over = read("axolotl train llama3.yml --micro-batch-size 2 --gradient-accumulation-steps=8 --bf16 full", 4).settings
    assert over is not None and (over.batch, over.accumulate, over.precision) == (2, 8, "bf16")
    old = read("accelerate launch -m axolotl.cli.train llama3.yml --micro_batch_size=3", 4).settings
    assert old is not None and old.batch == 3
    (here / "llama3.yml").write_text(LLAMA3 + "fsdp_version: 2\n")
    second = read("axolotl train llama3.yml", 4).settings
    assert second is not None and second.strategy == "FSDP2"


@pytest.mark.parametrize(
    ("name", "content", "unread"),
    [
        ("x.yaml", b"a: [1\n", "not read"),
        ("x.yaml", b"per_device_train_batch_size: 1\nper_device_train_batch_size: 2\n", "twice"),
        ("x.yaml", b"\xff\xfe\x00", "not UTF-8"),
        ("x.yaml", b"- 1\n", "mapping"),
        ("x.yaml", b"a: &a [1]\nb: [" + b"*a, " * 20000 + b"1]\n", "not read"),
        ("x.yaml", None, "No such file"),
    ],
)
def test_a_yaml_that_the_framework_would_not_accept(here: Path, name: str, content: bytes | None, unread: str) -> None:
    if content is not None:
        (here / name).write_bytes(content)
    found = read(f"llamafactory-cli train {name}", 4).settings
    assert found is not None and unread in found.unread and found.batch is None


def test_a_value_that_only_the_framework_knows(here: Path) -> None:
    (here / "x.yaml").write_text("per_device_train_batch_size: ${n}\ngradient_accumulation_steps: many\nn: 4\n")
    found = read("llamafactory-cli train x.yaml", 4).settings
    assert found is not None and (found.batch, found.accumulate) == (None, None)


def test_deepspeed_without_ranks_is_refused_by_llamafactory(here: Path) -> None:
    assert "FORCE_TORCHRUN=1" in read("llamafactory-cli train qwen3.yaml", 1).notes[0]
    assert not read("llamafactory-cli train qwen3.yaml", 1, FORCE_TORCHRUN="1").notes


# Hostile words


def test_hostile_words(here: Path) -> None:
    hostile = ["a'b\"c", "x\ny", os.fsdecode(b"\xff\xfe"), "", "$(rm)", "--", "-", "=", "--=", "\x1b[2J"]
    many = [f"--a{n}={n}" for n in range(10_000)]
    for start in (["torchrun"], ["accelerate", "launch"], ["deepspeed"], ["axolotl", "train"], ["env"], ["python"], []):
        for words in (
            [*start, *hostile],
            [*start, *many, "t.py"],
            [*start, *hostile[::-1]],
            [*start, "--nnodes", "9" * 5000],
        ):
            line = foreign_line.read(words, 4, {})
            assert line.words == tuple(words)
    assert read("torchrun --nproc-per-node " + "9" * 5000 + " t.py").ranks is None


# What mgpu's own options say


@pytest.mark.parametrize(
    ("given", "text", "words"),
    [
        ({"gpus": "2"}, "torchrun t.py", "--gpus 2: the command after -- runs unchanged. Set --nproc-per-node"),
        ({"port": "1234"}, "accelerate launch t.py", "Set --main_process_port in the command"),
        ({"launcher": "torchrun"}, "axolotl train x.yml", "Use axolotl's own --launcher"),
        ({"config": "a.yaml"}, "accelerate launch t.py", "Set --config_file FILE in the command"),
        ({"config": "a.yaml"}, "torchrun t.py", "the command reads no accelerate config"),
        ({"module": True}, "torchrun t.py", "torchrun -m MODULE"),
        ({"node": 1}, "deepspeed t.py", "Set --node_rank with --no_ssh"),
        ({"port": "1"}, "llamafactory-cli train x.yaml", "Set MASTER_PORT before mgpu"),
        ({"smoke": "always"}, "torchrun t.py", "no accelerate config to test"),
    ],
)
def test_options_that_would_change_the_line(here: Path, given: Mapping[str, Any], text: str, words: str) -> None:
    request = Request(target=tuple(shlex.split(text)), dashes=True, **given)
    with pytest.raises(MgpuError) as error:
        foreign._refuse_options(request, foreign_line.read(request.target, 4, {}))
    assert words in error.value.message and error.value.exit_code == errors.USAGE and "\n" not in error.value.message


def test_every_program_says_what_to_change() -> None:
    wanted = {"--gpus", "--port", "--node-rank", "-m", "--config", "--launcher"}
    every = (*foreign_programs.LAUNCHERS.values(), *foreign_programs.FRAMEWORKS, foreign_programs.OTHER)
    assert all(set(one.change) == wanted and all(one.change.values()) for one in every)


@pytest.mark.parametrize(
    ("words", "foreign"),
    [
        ("-- torchrun t.py", True), ("torchrun t.py", False), ("-- t.py", False), ("-- ./x/t.py", False),
        ("-y -- nowhere --x", True), ("-- notes", False), ("--slurm -- torchrun", False), ("-- --epochs", False),
        ("-m -- pkg.train", False), ("-m -- python", True),
    ],
)  # fmt: skip
def test_what_counts_as_a_line(here: Path, words: str, foreign: bool) -> None:
    (here / "notes").write_text("print()\n")  # a script without a suffix, as before
    line = option_parser.read(["launch", *words.split()])
    assert line is not None
    values = {name: value for name, value in line[0].own(line[1]).items() if name != "json_schema"}
    assert Request(**values).foreign is foreign


def test_the_program_of_a_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "plain").write_text("x")
    (here / "tool").write_text(f"#!{sys.executable}\n")
    (here / "other").write_text("#!/usr/bin/env python3\n")
    for name in ("tool", "other"):
        (here / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(here))
    for word, code, words in (
        ("nowhere", errors.NOT_FOUND, "command nowhere not found in PATH"),
        ("torchrn", errors.NOT_FOUND, "Did you mean torchrun?"),
        ("./nowhere", errors.NOT_FOUND, "not found"),
        ("./plain", errors.CANNOT_RUN, "is not executable"),
        ("./examples", errors.CANNOT_RUN, "is a folder"),
        ("a\nb", errors.NOT_FOUND, "a\\nb"),
    ):
        with pytest.raises(MgpuError) as error:
            line_program.find(word)
        assert error.value.exit_code == code and words in error.value.message, error.value.message
    assert line_program.find("tool") == str(here / "tool")
    assert line_program.other_python(str(here / "tool"), "tool") is None
    (here / "python3").symlink_to(sys.executable)
    assert line_program.other_python(str(here / "other"), "other") == str(here / "python3")
    assert line_program.other_python("/bin/sh", "sh") is None


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            "torchrun --master-port 1 t.py --master-port 2",
            "mgpu launch -- torchrun --master-port 4711 t.py --master-port 2",
        ),
        ("torchrun t.py", "mgpu launch -- torchrun --master-port=4711 t.py"),
        (
            "accelerate launch --main_process_port=1 t.py",
            "mgpu launch -- accelerate launch --main_process_port=4711 t.py",
        ),
        ("llamafactory-cli train x", "env MASTER_PORT=4711 mgpu launch -- llamafactory-cli train x"),
        ("axolotl train x", ""),
        ("python t.py", ""),
    ],
)
def test_another_port(words: str, wanted: str) -> None:
    request = Request(target=tuple(words.split()), dashes=True)
    assert line_port.command(request.target, "4711") == wanted
    assert complete_commands.complete("mgpu launch --port 4711 ...", request) == wanted
    assert complete_commands.complete("mgpu launch --gpus 1 train.py", request) == ""


def test_the_script_of_a_line_is_in_the_commands_of_fixes() -> None:
    request = Request(target=("torchrun", "my.py", "-x"), dashes=True, script=("my.py", "-x"))
    assert complete_commands.complete("mgpu doctor --script train.py", request) == "mgpu doctor --script my.py"
    bare = Request(target=("bash", "run.sh"), dashes=True)
    assert complete_commands.complete("mgpu doctor --script train.py", bare) == "mgpu doctor --script train.py"


# Checks


def test_more_ranks_than_gpus_names_the_option(ask: Any) -> None:
    line = read("torchrun --nproc-per-node 4 t.py", 2)
    driver, visible = known.driver(), Visible(None, (0, 1))
    outcome = ask("config_more_ranks_than_gpus", config=line.config, driver=driver, visible=visible)
    assert outcome.problem is not None and outcome.problem.title.startswith("4 ranks for 2 visible GPUs")
    assert outcome.problem.fixes[0].text == "Set --nproc-per-node to 2." and not outcome.problem.fixes[0].commands
    assert isinstance(line.config, Config) and outcome.problem.place is None
