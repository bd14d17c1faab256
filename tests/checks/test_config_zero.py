"""checks/config: deepspeed_config, and the DeepSpeed file it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Config, DeepSpeedFile, DeepSpeedRefusal, DeepSpeedVerdict
from tests.checks.facts import Case, config, fails, informs, skips, table, warns, well
from tests.checks.sections import DDP, STAGE2, named, zero


def at_home(path: str) -> Config:
    """A config whose DeepSpeed file is named from the home folder."""
    return replace(zero(f"deepspeed_config_file: {path}"), deepspeed_file=DeepSpeedFile(path, exists=False))


def missing(path: str, **changes: Any) -> Config:
    """A config that names a file that does not exist."""
    return replace(zero(f"deepspeed_config_file: {path}"), deepspeed_file=DeepSpeedFile(path, False, **changes))


def loaded(config: Config, *refusals: DeepSpeedRefusal) -> Config:
    """A config whose DeepSpeed file was loaded with DeepSpeed."""
    assert config.deepspeed_file is not None
    file = replace(config.deepspeed_file, loader=DeepSpeedVerdict("0.19.8", refusals))
    return replace(config, deepspeed_file=file)


BATCH = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
CASES = (
    # config_deepspeed_file_conflict
    fails("config_deepspeed_file_conflict",
        "deepspeed_config.zero_stage: 2 is not allowed together with deepspeed_config_file",
        "(zero_optimization.stage)", at=(6, 3), config=named(STAGE2, "zero_stage: 2")),
    fails("config_deepspeed_file_conflict", "deepspeed_config.zero_stage: 2 is not allowed", "stage", at=(6, 3),
        config=replace(named(STAGE2, "zero_stage: 2"), given=("mixed_precision", "zero_stage"))),
    well("config_deepspeed_file_conflict", "no setting",  # of the command line, and replaced by it
        config=replace(named(STAGE2, more="mixed_precision: bf16\n"), given=("mixed_precision",))),
    skips("config_deepspeed_file_invalid", "command line",
        config=replace(named(STAGE2), deepspeed_file=None, given=("deepspeed_config_file",))),
    fails("config_deepspeed_file_conflict", "deepspeed_config.mixed_precision: 'no' is not allowed", "bf16 or fp16",
        at=(6, 3), config=named(STAGE2, "mixed_precision: 'no'")),
    well("config_deepspeed_file_conflict", "no setting next to", config=named(STAGE2, more="mixed_precision: bf16\n")),
    well("config_deepspeed_file_conflict", "no setting next to ds.json", config=named(STAGE2,
        "zero3_init_flag: false")),
    skips("config_deepspeed_file_conflict", "names no DeepSpeed file", config=zero("zero_stage: 2")),
    # config_deepspeed_file_missing
    warns("config_deepspeed_file_missing", "ds.json does not exist in the current folder", "Start the launch",
        at=(5, 3),
        config=named(None)),
    warns("config_deepspeed_file_missing", "~/my ds.json does not exist: accelerate looks for a folder named ~",
        "realpath ~/'my ds.json'", at=(6, 3), config=at_home("~/my ds.json")),
    warns("config_deepspeed_file_missing", "/tmp/ds.json does not exist", "Correct the path: there is conf/ds.json",
        at=(6, 3), config=missing("/tmp/ds.json", similar="conf/ds.json")),
    *(
        warns("config_deepspeed_file_missing", f"{path} is used literally", f'--deepspeed_config_file "{path}"',
            at=(6, 3), config=missing(path, elsewhere=path.startswith("/")))
        for path in ("${DS_CONFIG}", "$WORK/ds.json", "/scratch/$USER/ds.json")
    ),
    skips("config_deepspeed_file_elsewhere", "not a path", config=missing("/w/$USER/d.json", elsewhere=True)),
    well("config_deepspeed_file_missing", "exists", config=replace(
        missing("d.json"), deepspeed_file=DeepSpeedFile('{"zero_optimization": {"stage": 2}}', exists=False))),
    skips("config_deepspeed_file_missing", "a path of another machine",
        config=missing("/cluster/me/ds.json", elsewhere=True)),
    informs("config_deepspeed_file_elsewhere", "/cluster/me/ds.json is not on this machine, but conf/ds.json is",
        "relative", at=(6, 3), config=missing("/cluster/me/ds.json", elsewhere=True, similar="conf/ds.json")),
    well("config_deepspeed_file_elsewhere", "ds.json exists", config=named(STAGE2)),
    skips("config_deepspeed_file_elsewhere", "not a path of another", config=named(None)),
    skips("config_deepspeed_file_elsewhere", "names no DeepSpeed file", config=zero("zero_stage: 2")),
    well("config_deepspeed_file_missing", "ds.json exists", config=named(STAGE2)),
    skips("config_deepspeed_file_missing", "names no DeepSpeed file", config=zero("zero_stage: 2")),
    skips("config_deepspeed_file_missing", "no deepspeed_config", config=DDP),
    # config_deepspeed_file_of_other_folder
    informs("config_deepspeed_file_of_other_folder", "conf/ds.json is not here, but in examples/a: start the",
        "cd examples/a", at=(6, 3), config=missing("conf/ds.json", start="examples/a")),
    skips("config_deepspeed_file_missing", "it is in examples/a",
        config=missing("conf/ds.json", start="examples/a")),
    skips("config_deepspeed_file_of_other_folder", "no folder above", config=missing("conf/ds.json")),
    well("config_deepspeed_file_of_other_folder", "ds.json exists", config=named(STAGE2)),
    skips("config_deepspeed_file_of_other_folder", "names no", config=zero("zero_stage: 2")),
    # config_deepspeed_file_invalid
    fails("config_deepspeed_file_invalid", "ds.json cannot be read: Expecting value", "Correct the file.", at=(5, 3),
        config=named({}, fault="Expecting value")),
    fails("config_deepspeed_file_invalid", "ds.json has no zero_optimization", "zero_optimization", at=(5, 3),
        config=named({"bf16": {"enabled": True}})),
    fails("config_deepspeed_file_invalid", "deepspeed_config_file: '' names no file", "delete the key", at=(6, 3),
        config=zero("deepspeed_config_file: ''")),
    well("config_deepspeed_file_invalid", "can be read", config=named(STAGE2)),
    skips("config_deepspeed_file_invalid", "does not exist", config=named(None)),
    skips("config_deepspeed_file_invalid", "names no DeepSpeed file", config=zero("deepspeed_config_file: none")),
    # config_deepspeed_batch_mismatch
    fails("config_deepspeed_batch_mismatch", "train_batch_size 64 is not 4 x 2 x 4 ranks = 32, in ds.json", '"auto"',
        at=(5, 3), config=named({**STAGE2, **BATCH})),
    fails("config_deepspeed_batch_mismatch", "train_batch_size 66 is not micro-batch x 1 x 4 ranks, in ds.json",
        '"auto"',
        at=(5, 3), config=named({**STAGE2, "train_batch_size": 66, "train_micro_batch_size_per_gpu": "auto"})),
    well("config_deepspeed_batch_mismatch", "32 = 4 x 2 x 4 ranks",
        config=named({**STAGE2, **BATCH, "train_batch_size": 32})),
    well("config_deepspeed_batch_mismatch", "accelerate computes train_batch_size", config=named(STAGE2)),
    skips("config_deepspeed_batch_mismatch", "has its own data",
        config=named({**STAGE2, **BATCH, "tensor_parallel": {"autotp_size": 2}})),
    skips("config_deepspeed_batch_mismatch", "could not be read", config=named(None)),
    # config_deepspeed_precision_twice
    fails("config_deepspeed_precision_twice", "fp16 and bf16 are both enabled in ds.json", "false", at=(5, 3),
        config=named({**STAGE2, "fp16": {"enabled": True}, "bf16": {"enabled": True}})),
    well("config_deepspeed_precision_twice", "bf16 is enabled", config=named({**STAGE2, "bf16": {"enabled": True}})),
    skips("config_deepspeed_precision_twice", "names no", config=zero("zero_stage: 2")),
    # config_deepspeed_auto_unfilled
    fails("config_deepspeed_auto_unfilled", 'zero_optimization.sub_group_size: "auto" in ds.json', "Write a value",
        at=(5, 3), config=named({"zero_optimization": {"stage": 3, "sub_group_size": "auto"}})),
    well("config_deepspeed_auto_unfilled", "2 auto values, all filled in",
        config=named({**STAGE2, "train_batch_size": "auto", "fp16": {"enabled": "auto"}})),
    skips("config_deepspeed_auto_unfilled", "names no", config=zero("zero_stage: 2")),
    # config_deepspeed_key_misspelled
    warns("config_deepspeed_key_misspelled", "unknown key steps_per_prnt, which DeepSpeed ignores: probably "
        "steps_per_print is meant, in ds.json", "Correct the name", at=(5, 3),
        config=named({**STAGE2, "steps_per_prnt": 10})),
    well("config_deepspeed_key_misspelled", "no key is", config=named({**STAGE2, "steps_per_print": 10})),
    skips("config_deepspeed_key_misspelled", "names no", config=zero("zero_stage: 2")),
    # What else is wrong in the file: as in test_deepspeed_file.py
    fails("config_deepspeed_zero_key_unknown", "unknown key zero_optimization.my_notes, in ds.json", "delete the key",
        at=(5, 3), config=named({"zero_optimization": {"my_notes": 1}})),
    well("config_deepspeed_zero_key_unknown", "all keys", config=named(STAGE2)),
    skips("config_deepspeed_zero_key_unknown", "names no", config=zero("zero_stage: 2")),
    fails("config_deepspeed_file_refused", "DeepSpeed 0.19.8 rejects amp: removed, in ds.json", "older than 0.19.8",
        at=(5, 3), config=loaded(named({**STAGE2, "amp": {}}), DeepSpeedRefusal("removed", "amp"))),
    well("config_deepspeed_file_refused", "DeepSpeed 0.19.8 accepts it", config=loaded(named(STAGE2))),
    skips("config_deepspeed_file_refused", "did not load", config=named({**STAGE2, "amp": {}})),
    skips("config_deepspeed_file_refused", "names no", config=zero("zero_stage: 2")),
    warns("config_deepspeed_key_removed", "amp was removed: DeepSpeed 0.19.8 and newer reject it, in ds.json", "older",
        at=(5, 3), config=named({**STAGE2, "amp": {}})),
    well("config_deepspeed_key_removed", "accepts it", config=loaded(named({**STAGE2, "amp": {}}))),
    skips("config_deepspeed_key_removed", "names no", config=zero("zero_stage: 2")),
    warns("config_deepspeed_key_outside_params", "optimizer.eps is not in optimizer.params, in ds.json", "Move it",
        at=(5, 3), config=named({**STAGE2, "optimizer": {"type": "Adam", "eps": 1e-8}})),
    well("config_deepspeed_key_outside_params", "all parameters", config=named(STAGE2)),
    skips("config_deepspeed_key_outside_params", "names no", config=zero("zero_stage: 2")),
    warns("config_deepspeed_learning_rate_lost", "AdamW without lr trains with its default 0.001", 'Add "lr"',
        at=(5, 3), config=named({**STAGE2, "train_batch_size": "auto", "optimizer": {"type": "AdamW"}})),
    well("config_deepspeed_learning_rate_lost", "is set", config=named(STAGE2)),
    skips("config_deepspeed_learning_rate_lost", "names no", config=zero("zero_stage: 2")),
    warns("config_deepspeed_offload_without_zero3", "zero_optimization.offload_param has no effect with ZeRO-1",
        '"stage": 3', at=(5, 3),
        config=named({"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}})),
    well("config_deepspeed_offload_without_zero3", "supports its offloading", config=named(STAGE2)),
    skips("config_deepspeed_offload_without_zero3", "names no", config=zero("zero_stage: 2")),
    # config_deepspeed_auto_inline
    warns("config_deepspeed_auto_inline",
        "deepspeed_config.gradient_accumulation_steps: 'auto' works with Trainer only",
        "Write the number", at=(6, 3), config=zero("gradient_accumulation_steps: auto")),
    well("config_deepspeed_auto_inline", "a number", config=zero("gradient_accumulation_steps: 4")),
    skips("config_deepspeed_auto_inline", "no auto", config=DDP),
    # config_deepspeed_key_of_other_stage
    warns("config_deepspeed_key_of_other_stage",
        "deepspeed_config.offload_param_device: 'cpu' has no effect with ZeRO-2",
        "zero_stage: 3", at=(7, 3), config=zero("zero_stage: 2", "offload_param_device: cpu")),
    warns("config_deepspeed_key_of_other_stage",
        "deepspeed_config.offload_optimizer_device: 'cpu' has no effect with ZeRO-0", "zero_stage: 1", at=(7, 3),
        config=zero("zero_stage: 0", "offload_optimizer_device: cpu")),
    warns("config_deepspeed_key_of_other_stage", "deepspeed_config.zero3_init_flag: true has no effect with ZeRO-2",
        "zero_stage: 3",
        at=(6, 3), config=zero("zero3_init_flag: true")),
    well("config_deepspeed_key_of_other_stage", "ZeRO-3 supports all",
        config=zero("zero_stage: 3", "zero3_init_flag: true")),
    well("config_deepspeed_key_of_other_stage", "ZeRO-2 supports all", config=zero("offload_param_device: none")),
    skips("config_deepspeed_key_of_other_stage", "elsewhere", config=named(STAGE2, "zero3_init_flag: true")),
    # config_deepspeed_nvme_lost
    warns("config_deepspeed_nvme_lost", "deepspeed_config.offload_param_nvme_path: '/nvme' does not reach the workers",
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", at=(7, 3),
        config=zero("offload_param_device: nvme", "offload_param_nvme_path: /nvme")),
    warns("config_deepspeed_nvme_lost", "offload_optimizer_device: nvme without a path", "OPTIMIZER_NVME_PATH",
        at=(6, 3), config=zero("offload_optimizer_device: nvme")),
    well("config_deepspeed_nvme_lost", "nothing is offloaded", config=zero("offload_optimizer_device: cpu")),
    skips("config_deepspeed_nvme_lost", "in the DeepSpeed file", config=named(STAGE2)),
    # config_deepspeed_launcher_unknown
    fails("config_deepspeed_launcher_unknown",
        "deepspeed_config.deepspeed_multinode_launcher: 'Standard' is not a launcher. Did you mean standard?",
        "standard", at=(5, 3), config=config(
            "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\ndeepspeed_config:\n"
            "  deepspeed_multinode_launcher: Standard\n")),
    well("config_deepspeed_launcher_unknown", "launcher standard", config=config(
        "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\n"
        "deepspeed_config: {deepspeed_multinode_launcher: standard}\n")),
    skips("config_deepspeed_launcher_unknown", "not DeepSpeed", config=zero("zero_stage: 2")),
    # config_deepspeed_filter_ignored
    warns("config_deepspeed_filter_ignored", "deepspeed_inclusion_filter is not applied", "Keep only one", at=(7, 3),
        config=zero("deepspeed_exclusion_filter: a:0", "deepspeed_inclusion_filter: b:0")),
    well("config_deepspeed_filter_ignored", "at most one", config=zero("deepspeed_exclusion_filter: a:0")),
    skips("config_deepspeed_filter_ignored", "no deepspeed_config", config=DDP),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
