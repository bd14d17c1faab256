"""The configs mgpu writes, as whole files, and how they are started on several machines.

`tests/templates/NAME.yaml` is what is written; MGPU_UPDATE_TEMPLATES=1 writes the files anew (then read them: they are
the product's text).
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu.config import loader
from mgpu.config.reading import parse_config
from mgpu.report import describe
from mgpu.version import __version__
from mgpu.wizard.answers import Answers
from mgpu.wizard.manual_commands import command, environment, first_and_last
from mgpu.wizard.proposal import Proposal, propose
from mgpu.wizard.proposal_types import Setting
from mgpu.wizard.render_yaml import render, scalar
from tests.test_proposal import TODAY, place

FOLDER = Path(__file__).with_name("templates")
# One write for each rank: the ranks of a machine share its output.
SCRIPT = (
    "import sys; from accelerate import Accelerator; a = Accelerator(); "
    "sys.stdout.write(f'world {a.num_processes} rank {a.process_index} {a.device}\\n')"
)

TEMPLATES: dict[str, tuple[str, dict[str, Any]]] = {
    "one_gpu": ("laptop_rtx4060", {"batch_per_gpu": 4}),
    "one_node_fp16": ("t4_x4_vm", {"batch_per_gpu": 16, "accum": 2}),
    "one_node_bf16": ("docker_a100_x4", {"batch_per_gpu": 8, "dataset_size": 52002, "lr": 2e-5, "lr_ref_batch": 8}),
    "one_node_fp8": ("hgx_h100_x8", {"precision": "fp8", "batch_per_gpu": 8}),
    "some_gpus": ("docker_a100_x4", {"gpus": (1, 3)}),
    "compiled": ("rtx5090_x2", {"compile": True, "port": 29600}),
    "fsdp2": ("docker_a100_x4", {"params": 8_030_000_000, "batch_per_gpu": 8}),
    "fsdp2_fp8": ("hgx_h100_x8", {"params": 8_030_000_000, "strategy": "fsdp2", "precision": "fp8"}),
    "fsdp2_offload": ("docker_a100_x4", {"params": 24_000_000_000}),
    "zero2": ("docker_a100_x4", {"params": 8_030_000_000, "strategy": "zero2", "batch_per_gpu": 2, "accum": 4}),
    "zero3": ("docker_a100_x4", {"params": 8_030_000_000, "strategy": "zero3"}),
    "zero3_offload": ("docker_a100_x4", {"params": 8_030_000_000, "strategy": "zero3", "offload": "cpu"}),
    "cpu": ("recorded_vm_without_gpu", {"batch_per_gpu": 4}),
    "two_nodes": ("docker_a100_x4", {"nodes": 2, "address": "10.0.0.1", "batch_per_gpu": 8}),
    "two_nodes_fsdp2": ("hgx_h100_x8", {"nodes": 2, "address": "node-0", "params": 70_000_000_000}),
    "eight_nodes_zero3": ("dgx_a100_x8", {"nodes": 8, "address": "10.0.0.1", "port": 31000, "strategy": "zero3"}),
    "two_nodes_some_gpus": ("docker_a100_x4", {"nodes": 2, "address": "10.0.0.1", "gpus": (2, 3)}),
}  # fmt: skip
every_template = pytest.mark.parametrize("name", TEMPLATES)
several = pytest.mark.parametrize("name", [name for name, (_, given) in TEMPLATES.items() if "nodes" in given])


def made(name: str) -> Proposal:
    where, given = TEMPLATES[name]
    snapshot = place(where, True)
    origins: Any = dict.fromkeys(given, "you")
    return propose(snapshot, Answers(**given, origins=origins), describe.machine(snapshot))


@every_template
def test_a_template_is_written_as_it_stands(name: str) -> None:
    proposal = made(name)
    assert not proposal.problems
    text = render(proposal, TODAY).replace(f"mgpu {__version__} ", "mgpu VERSION ", 1)
    golden = FOLDER / f"{name}.yaml"
    if os.environ.get("MGPU_UPDATE_TEMPLATES"):
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@every_template
def test_a_template_is_taken_by_accelerate(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import accelerate.utils.launch as launch

    monkeypatch.setattr(launch, "is_fp8_available", lambda: True)  # no fp8 library is installed here
    path = tmp_path / "accelerate.yaml"
    path.write_text(render(made(name), TODAY), encoding="utf-8")
    assert loader.verdicts([str(path)])[0]["error"] is None


def test_no_template_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(TEMPLATES)


def test_nothing_of_one_machine_stands_in_a_file_for_several() -> None:
    for name in TEMPLATES:
        values = made(name).values
        if values["num_machines"] > 1:
            assert not {"machine_rank", "gpu_ids"} & set(values)
            assert values["main_process_ip"] and values["main_process_port"]
        else:
            assert not {"machine_rank", "main_process_ip"} & set(values)


def per_node_commands(proposal: Proposal, **wanted: Any) -> list[str]:
    """The line for each machine, machine 0 first."""
    return [command(proposal, node, **wanted) for node in range(proposal.nodes)]


@pytest.mark.parametrize(
    "value", ["no", "NO", "y", "null", "1e5", "0x1f", "10.0.0.1", "0,1", "GPU-a,GPU-b", "it's", "1:30", "", "~", "a: b",
              "node-0.cluster", "INDUCTOR", "#x", True, 3, "2026-11-21", "- a", "a\nb"],
)  # fmt: skip
def test_a_scalar_comes_back_as_itself(value: Any) -> None:
    import yaml

    again = yaml.safe_load(f"key: {scalar(value)}")["key"]
    assert again == (value.replace("\n", " ") if isinstance(value, str) else value)


def test_words_of_a_machine_cannot_leave_their_comment() -> None:
    proposal = made("one_gpu")
    evil = Setting("precision", "bf16", "probe", "named\nnum_processes: 99\x85x: 1", None, {"mixed_precision": "bf16"})
    others = tuple(setting for setting in proposal.settings if setting.label != "precision")
    text = render(replace(proposal, machine="a\nnum_processes: 99", settings=(*others, evil)), TODAY)
    assert parse_config(text.encode(), "x.yaml").values["num_processes"] == 1


# ---- several machines


@several
def test_each_machine_has_its_own_command(name: str) -> None:
    proposal = made(name)
    lines = per_node_commands(proposal, script=("train.py", "--name", "my run"), config="my config.yaml")
    assert len(lines) == len(set(lines)) == proposal.nodes
    for rank, line in enumerate(lines):
        words = shlex.split(line)
        assert words[:4] == ["accelerate", "launch", "--config_file", "my config.yaml"]
        assert words[words.index("--machine_rank") + 1] == str(rank)
        assert words[-3:] == ["train.py", "--name", "my run"]
        assert ("--gpu_ids" in words) == (name == "two_nodes_some_gpus")
    for rank, line in enumerate(per_node_commands(proposal, tool="torchrun")):
        words = shlex.split(line)
        told = words[words.index("torchrun") :]
        assert told == [
            "torchrun", "--nnodes", str(proposal.nodes), "--nproc-per-node", str(proposal.ranks_here), "--node-rank",
            str(rank), "--master-addr", proposal.values["main_process_ip"], "--master-port",
            str(proposal.values["main_process_port"]), "train.py",
        ]  # fmt: skip


def test_a_comment_does_not_grow_with_the_machines() -> None:
    proposal = made("eight_nodes_zero3")
    lines = first_and_last(proposal)
    assert [line.split("--machine_rank ")[1][0] if line != "..." else line for line in lines] == ["0", "1", "...", "7"]


@several
def test_accelerates_own_parser_takes_each_command(name: str, tmp_path: Path) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    proposal = made(name)
    path = tmp_path / "accelerate.yaml"
    path.write_text(render(proposal, TODAY), encoding="utf-8")
    for rank, line in enumerate(per_node_commands(proposal, config=str(path))):
        args, *_ = _validate_launch_command(launch_command_parser().parse_args(shlex.split(line)[2:]))
        assert (int(args.machine_rank), args.num_machines) == (rank, proposal.nodes)
        assert args.gpu_ids == (proposal.gpu_ids or "all")
        assert args.training_script == "train.py"


@pytest.mark.parametrize("name", [*(n for n, (_, given) in TEMPLATES.items() if "nodes" in given), "fsdp2_offload",
                                  "zero2", "zero3_offload", "compiled", "one_node_bf16", "fsdp2_fp8"])  # fmt: skip
def test_torchrun_is_told_what_accelerate_tells_its_ranks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables in front of torchrun, against those accelerate's launcher sets, and the plugins made of both."""
    import accelerate.utils.launch as launch
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    monkeypatch.setattr(launch, "is_fp8_available", lambda: True)
    monkeypatch.setattr(launch, "is_port_in_use", lambda port: False)
    proposal = made(name)
    path = tmp_path / "accelerate.yaml"
    path.write_text(render(proposal, TODAY), encoding="utf-8")
    line = shlex.split(per_node_commands(proposal, config=str(path))[0])
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(line[2:]))
    args.deepspeed_fields_from_accelerate_config = ""
    prepared = launch.prepare_deepspeed_cmd_env(args)[1] if args.use_deepspeed else launch.prepare_multi_gpu_env(args)
    told = environment(proposal)
    assert {key: prepared.get(key) for key in told} == told
    assert plugin(told, monkeypatch) == plugin(prepared, monkeypatch)


def plugin(told: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What Accelerator() makes of an environment."""
    from accelerate.utils import dataclasses as made_of

    with monkeypatch.context() as patch:
        for key in [key for key in os.environ if key.startswith(("ACCELERATE_", "FSDP_"))]:
            patch.delenv(key)
        for key, value in told.items():
            patch.setenv(key, value)
        if told.get("ACCELERATE_USE_DEEPSPEED"):
            return made_of.DeepSpeedPlugin().deepspeed_config
        if told.get("ACCELERATE_USE_FSDP"):
            found = made_of.FullyShardedDataParallelPlugin()
            names = ("fsdp_version", "reshard_after_forward", "state_dict_type", "cpu_ram_efficient_loading",
                     "cpu_offload", "activation_checkpointing", "sync_module_states", "use_orig_params")  # fmt: skip
            return {key: str(getattr(found, key)) for key in names} | {"wrap": str(found.auto_wrap_policy)}
        dynamo = made_of.TorchDynamoPlugin()
        on = "NO" not in str(dynamo.backend).upper()
        return dynamo.backend, dynamo.mode, dynamo.fullgraph, dynamo.dynamic if on else None


@pytest.mark.parametrize("tool", ["accelerate", "torchrun"])
def test_two_machines_by_hand_meet(tool: Any, tmp_path: Path) -> None:
    """Both commands for real, on one host: two machines of two CPU ranks each are one world of four."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    snapshot = place("recorded_vm_without_gpu", True)
    given: dict[str, Any] = {"nodes": 2, "address": "10.0.0.1", "port": port}
    proposal = propose(snapshot, Answers(**given, origins=dict.fromkeys(given, "you")), "two machines")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    text = render(proposal, TODAY).replace("10.0.0.1", "127.0.0.1")  # a loopback address would be refused
    (tmp_path / "accelerate.yaml").write_text(text, encoding="utf-8")
    home = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{home}:{os.environ['PATH']}", "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(line.replace("10.0.0.1", "127.0.0.1"), shell=True, cwd=tmp_path, env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in per_node_commands(proposal, tool=tool)
    ]  # fmt: skip
    said = "".join(process.communicate(timeout=120)[0] for process in started)
    assert [process.returncode for process in started] == [0, 0], said
    assert sorted(re.findall(r"world 4 rank (\d) cpu", said)) == ["0", "1", "2", "3"], said
