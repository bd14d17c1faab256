"""An existing config changed in place: only what the answers change, everything else to the byte."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu.check import Edit
from mgpu.config import fixes
from mgpu.config.reading import parse, parse_config
from mgpu.errors import MgpuError
from mgpu.report import describe
from mgpu.snapshot import Config, DeepSpeedFile, Snapshot
from mgpu.wizard.answers import Answers, with_decision
from mgpu.wizard.edit_existing import answers_from, conversion_notes, edits_for, out_of_reach
from mgpu.wizard.proposal import Proposal, propose
from mgpu.wizard.render_yaml import recorded_answers, render
from tests.test_proposal import TODAY, asked, place
from tests.test_templates import TEMPLATES, every_template, made

MACHINE = "docker_a100_x4"


def config(text: str) -> Config:
    return parse_config(text.encode(), "accelerate.yaml")


def proposed(snapshot: Snapshot, answers: Answers) -> Proposal:
    return propose(snapshot, answers, describe.machine(snapshot))


def edited(text: str, **decisions: Any) -> str:
    """The file after these decisions on a machine of four A100."""
    snapshot = place(MACHINE, True)
    answers = answers_from(config(text), snapshot)
    for name, value in decisions.items():
        answers = with_decision(answers, name, value)
    proposal = proposed(snapshot, answers)
    assert not proposal.problems
    return fixes.apply(text, edits_for(config(text), proposal))


def lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Lines that went, and lines that came."""
    return (
        [line for line in old.splitlines() if line not in new.splitlines()],
        [line for line in new.splitlines() if line not in old.splitlines()],
    )


@every_template
def test_the_command_in_a_file_gives_its_decisions_back(name: str) -> None:
    first = made(name)
    kept = recorded_answers(render(first, TODAY, "other file.yaml", ["--target", "4xA100-80GB"]))
    assert set(kept.origins) == set(first.answers.origins)
    assert {field: kept[field] for field in kept.origins} == {field: first.answers[field] for field in kept.origins}


@pytest.mark.parametrize("text", ["", "a: 1", "# Regenerate:  mgpu configure --lr", "# Regenerate:  x '\\"])
def test_a_command_that_cannot_be_read_gives_nothing(text: str) -> None:
    assert recorded_answers(text) == Answers()


@every_template
def test_what_mgpu_wrote_needs_no_change(name: str) -> None:
    """Its own files say which answers they were made from, as far as a file can."""
    snapshot, first = place(TEMPLATES[name][0], True), made(name)
    found = config(render(first, TODAY))
    answers = answers_from(found, snapshot)
    assert set(answers.origins.values()) <= {"file"}
    again = proposed(snapshot, answers)
    assert not again.problems
    assert again.values == first.values if name != "two_nodes_some_gpus" else True  # its GPUs are on the command line
    assert edits_for(found, first) == ()
    assert (again.batch_per_gpu, again.accumulate) == (first.batch_per_gpu, first.accumulate)


WIZARD = """\
# by accelerate's own wizard, then by hand
compute_environment: LOCAL_MACHINE
debug: false   # mine
distributed_type: MULTI_GPU
downcast_bf16: 'no'
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: bf16   # A100
num_machines: 1
num_processes: 4
rdzv_backend: static
same_network: true
use_cpu: false
"""
FSDP1 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  # our model's layer
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_offload_params: false
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""
DEEPSPEED = """\
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  gradient_clipping: 1.0   # needed
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: false
  zero3_save_16bit_model: true
mixed_precision: bf16
num_processes: 4
"""


def test_nothing_asked_nothing_changed() -> None:
    for text in (WIZARD, DEEPSPEED):
        assert edited(text) == text


def test_one_decision_is_one_line() -> None:
    assert lines(WIZARD, edited(WIZARD, precision="fp16")) == (
        ["mixed_precision: bf16   # A100"], ["mixed_precision: fp16   # A100"],
    )  # fmt: skip
    assert lines(WIZARD, edited(WIZARD, gpus=2)) == (["num_processes: 4"], ["num_processes: 2"])


def test_ddp_becomes_fsdp_and_goes_back() -> None:
    split = edited(WIZARD, strategy="fsdp2")
    gone, came = lines(WIZARD, split)
    assert gone == ["distributed_type: MULTI_GPU"]
    assert came[0] == "distributed_type: FSDP" and "fsdp_config:" in came and "  fsdp_version: 2" in came
    back = edited(split, strategy="ddp", offload="auto")
    assert parse(back).values == parse(WIZARD).values
    assert back == WIZARD


def test_what_only_fsdp1_reads_goes_and_the_rest_stays() -> None:
    new = edited(FSDP1)
    gone, came = lines(FSDP1, new)
    assert gone == ["  fsdp_sharding_strategy: FULL_SHARD", "  fsdp_backward_prefetch: BACKWARD_PRE"]
    assert set(came) == {
        "  fsdp_version: 2", "  fsdp_reshard_after_forward: true", "  fsdp_cpu_ram_efficient_loading: true",
    }  # fmt: skip
    assert "  # our model's layer" in new and "fsdp_state_dict_type: FULL_STATE_DICT" in new


@pytest.mark.parametrize(
    ("strategy", "reshard", "said"),
    [("FULL_SHARD", True, 1), ("SHARD_GRAD_OP", False, 1), ("2", False, 1), ("NO_SHARD", False, 2),
     ("HYBRID_SHARD", True, 2), ("HYBRID_SHARD_ZERO2", False, 2)],
)  # fmt: skip
def test_fsdp1_becomes_what_accelerates_own_command_makes_of_it_and_it_is_told(
    strategy: str, reshard: bool, said: int
) -> None:
    from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2

    text = FSDP1.replace("FULL_SHARD", strategy)
    answers = answers_from(config(text), place(MACHINE, True))
    notes = conversion_notes(config(text), proposed(place(MACHINE, True), answers))
    section = parse(edited(text)).values["fsdp_config"]
    assert section["fsdp_reshard_after_forward"] is reshard
    if strategy != "2":  # a number it leaves as it is
        theirs = convert_config_to_fsdp2(parse(text).values)["fsdp_config"]
        assert theirs["fsdp_reshard_after_forward"] is reshard
    assert len(notes) == said and "becomes FSDP2" in notes[0] and f"after_forward: {str(reshard).lower()}" in notes[0]
    again = config(edited(text))
    assert conversion_notes(again, proposed(place(MACHINE, True), answers_from(again))) == ()
    assert (
        conversion_notes(config(text), proposed(place(MACHINE, True), with_decision(answers, "strategy", "ddp"))) == ()
    )


def test_what_fsdp2_refuses_does_not_stay() -> None:
    text = FSDP1.replace("fsdp_config:\n", "fsdp_config:\n  fsdp_state_dict_type: LOCAL_STATE_DICT\n")
    text = re.sub(r"(?m)^  fsdp_state_dict_type: (?!LOCAL).*\n", "", text)
    assert parse(edited(text)).values["fsdp_config"]["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"


def test_a_section_with_short_keys_keeps_them() -> None:
    short = re.sub("  fsdp_(?!trans)", "  ", FSDP1.replace("sharding_strategy: FULL_SHARD", "version: 2"))
    short = short.replace("  backward_prefetch: BACKWARD_PRE\n", "")
    new = edited(short, offload="cpu")
    assert "  offload_params: true" in new and "fsdp_offload_params" not in new and "fsdp_version" not in new


def test_deepspeed_keeps_what_mgpu_does_not_know() -> None:
    gone = ["  zero_stage: 3", "  zero3_init_flag: false", "  zero3_save_16bit_model: true"]
    assert lines(DEEPSPEED, edited(DEEPSPEED, strategy="zero2")) == (gone, ["  zero_stage: 2"])
    new = edited(DEEPSPEED, offload="cpu", accum=4, batch_per_gpu=2)
    assert "  offload_optimizer_device: cpu" in new and "  offload_param_device: cpu" in new
    assert "  gradient_accumulation_steps: 4" in new and "  gradient_clipping: 1.0   # needed" in new
    nvme = DEEPSPEED.replace("device: none", "device: nvme")
    assert edited(nvme) == nvme


def test_a_deepspeed_file_is_left_alone() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 4\n"
    found = replace(config(text), deepspeed_file=DeepSpeedFile("ds.json", True, {"zero_optimization": {"stage": 2}}))
    answers = answers_from(found)
    assert answers.strategy == "zero2"
    proposal = proposed(place(MACHINE, True), with_decision(answers, "gpus", 2))
    assert edits_for(found, proposal) == (Edit("set", "num_processes", 2),)


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [("strategy", "zero3", "stage"), ("offload", "cpu", "offload_optimizer"), ("precision", "fp16", "fp16.enabled"),
     ("accum", 4, "gradient_accumulation_steps"), ("gpus", 2, None), ("precision", "bf16", None),
     ("strategy", "fsdp2", None), ("accum", 1, None)],
)  # fmt: skip
def test_what_the_deepspeed_file_decides_cannot_be_decided_here(name: str, value: Any, key: str | None) -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 4\n"
    inside = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    found = replace(config(text), deepspeed_file=DeepSpeedFile("ds.json", True, inside))
    proposal = proposed(place(MACHINE, True), with_decision(answers_from(found), name, value))
    keys = out_of_reach(found, proposal)
    assert (key in keys[0]) if key else keys == ()


def test_a_deepspeed_file_that_is_not_there_decides_nothing() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: nowhere.json\n"
    with pytest.raises(MgpuError, match=r"nowhere\.json, which cannot be read"):
        answers_from(config(text))


def test_a_machine_more_gets_its_keys_and_loses_them_again() -> None:
    two = edited(WIZARD, nodes=2, address="10.0.0.1")
    assert lines(WIZARD, two)[0] == ["num_machines: 1", "num_processes: 4"]
    values = parse(two).values
    assert (values["num_processes"], values["main_process_ip"], values["main_process_port"]) == (8, "10.0.0.1", 29500)
    one = edited(two, nodes=1, port=None)
    assert parse(one).values == parse(WIZARD).values


@pytest.mark.parametrize(
    "text", ["distributed_type: MEGATRON_LM\nnum_processes: 4\n", "num_processes: 4\n", "distributed_type: MULTI_CPU\n",
             "distributed_type: MULTI_GPU\nuse_cpu: true\n", "distributed_type: XLA\n",
             "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 0\n"],
)  # fmt: skip
def test_what_mgpu_does_not_write_it_does_not_edit(text: str) -> None:
    with pytest.raises(MgpuError, match="mgpu cannot edit"):
        answers_from(config(text))


@pytest.mark.parametrize("junk", ["fsdp_config: 3", "deepspeed_config: [1]", "gpu_ids: 7", "mixed_precision: [a]",
                                  "main_process_port: x", "num_processes: a", "dynamo_config: x",
                                  "gpu_ids: ','"])  # fmt: skip
@pytest.mark.parametrize("kind", ["NO", "MULTI_GPU", "FSDP", "DEEPSPEED"])
def test_a_broken_file_is_no_traceback(kind: str, junk: str) -> None:
    text = f"distributed_type: '{kind}'\n{junk}\n"
    answers = answers_from(config(text))
    proposal = proposed(place(MACHINE, True), answers)
    edits_for(config(text), proposal)


def wanted(name: str, proposal: Proposal) -> dict[str, Any]:
    """What the file must say: where it has false for the efficient loading, nobody asked for true."""
    values = dict(proposal.values)
    if name == "fsdp2_fp8" and "fsdp_config" in values:
        values["fsdp_config"] = {**values["fsdp_config"], "fsdp_cpu_ram_efficient_loading": False}
    return values


@every_template
def test_any_template_becomes_any_other(name: str, tmp_path: Path) -> None:
    """Written by one hand, edited towards another: the result is what accelerate takes, and says the new answers."""
    text = "# kept\n" + render(made(name), TODAY) + "debug: false  # kept, too\n"
    for other in TEMPLATES:
        proposal = made(other)
        new = fixes.apply(text, edits_for(config(text), proposal))
        assert new.startswith("# kept\n") and "debug: false  # kept, too" in new
        values = parse(new).values
        assert values.pop("debug") is False
        assert {key: values.get(key) for key in proposal.values} == wanted(name, proposal), other
        assert set(values) - {"compute_environment"} == set(proposal.values), other
        assert asked(new, values, tmp_path).accepted, new
