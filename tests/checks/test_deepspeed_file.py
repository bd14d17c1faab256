"""checks/deepspeed_file.py: a DeepSpeed file itself, given to --validate or named in a job script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.config.deepspeed_json import read_text
from mgpu.snapshot import DeepSpeedJson
from tests.checks.facts import Case, fails, skips, table, warns, well

AUTO = '"train_batch_size": "auto"'
STAGE = '"zero_optimization": {"stage": 2}'


def ds(*lines: str, only_deepspeed: bool = False) -> tuple[DeepSpeedJson, ...]:
    """A file with these lines between its braces; the first of them is line 2."""
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    return (replace(read_text(text, "ds.json"), by_deepspeed=only_deepspeed),)


BROKEN = ds('"bf16": {')
CASES = (
    fails("deepspeed_file_invalid", "not JSON", "Correct the file", at=(4, 1), deepspeed_json=BROKEN),
    fails("deepspeed_file_invalid", "comments are not allowed in JSON", "auto", at=(2, 36),
        deepspeed_json=ds(f"{STAGE}, # all\n{AUTO}")),
    fails("deepspeed_file_invalid", "trailing comma", "auto", at=(3, 27), deepspeed_json=ds(STAGE, AUTO, "")),
    fails("deepspeed_file_invalid", "no zero_optimization", '"stage": 2', at=(1, 1), deepspeed_json=ds(AUTO)),
    well("deepspeed_file_invalid", "ds.json can be read", deepspeed_json=ds(STAGE, AUTO)),
    well("deepspeed_file_invalid", "can be read", deepspeed_json=ds('"train_batch_size": 8, # no ZeRO')),
    well("deepspeed_file_invalid", "can be read", deepspeed_json=ds(f"{AUTO} # mine", only_deepspeed=True)),
    warns("deepspeed_file_not_strict", "trailing comma", "deepspeed.initialize", at=(2, 34),
        deepspeed_json=ds(STAGE, "")),
    warns("deepspeed_file_not_strict", "bf16 is there twice", "each key once", at=(4, 1),
        deepspeed_json=ds('"bf16": {"enabled": true}', STAGE, '"bf16": {"enabled": false}')),
    well("deepspeed_file_not_strict", "strict JSON", deepspeed_json=ds(STAGE, AUTO)),
    well("deepspeed_file_not_strict", "only DeepSpeed", deepspeed_json=ds(STAGE, "", only_deepspeed=True)),
    skips("deepspeed_file_not_strict", "could not be read", deepspeed_json=BROKEN),
    fails("deepspeed_batch_mismatch", "train_batch_size 64 is not a multiple of 6 x 2 = 12", "leave", at=(2, 1),
        deepspeed_json=ds('"train_batch_size": 64', '"train_micro_batch_size_per_gpu": 6',
            '"gradient_accumulation_steps": 2')),
    well("deepspeed_batch_mismatch", "consistent", deepspeed_json=ds('"train_batch_size": 64',
        '"train_micro_batch_size_per_gpu": 8', '"gradient_accumulation_steps": 2')),
    well("deepspeed_batch_mismatch", "consistent", deepspeed_json=ds('"train_batch_size": 64',
        '"train_micro_batch_size_per_gpu": 6', '"tensor_parallel": {"autotp_size": 2}')),
    well("deepspeed_batch_mismatch", "consistent", deepspeed_json=ds(AUTO)),
    fails("deepspeed_precision_twice", "fp16 and bf16 are both enabled", "false", at=(3, 10),
        deepspeed_json=ds('"fp16": {"enabled": true}', '"bf16": {"enabled": true}')),
    well("deepspeed_precision_twice", "at most one",
        deepspeed_json=ds('"fp16": {"enabled": "auto"}', '"bf16": {"enabled": "auto"}')),
    fails("deepspeed_auto_unfilled", 'zero_optimization.sub_group_size: "auto"', "Write a value", at=(2, 23),
        deepspeed_json=ds('"zero_optimization": {"sub_group_size": "auto"}')),
    well("deepspeed_auto_unfilled", "all auto values", deepspeed_json=ds(STAGE, AUTO)),
    warns("deepspeed_key_misspelled", "unknown key gradient_clippin, which DeepSpeed ignores: probably "
        "gradient_clipping is meant", "Correct the name", at=(3, 1),
        deepspeed_json=ds(STAGE, '"gradient_clippin": 1.0')),
    warns("deepspeed_key_misspelled", "unknown key zero_optimization.overlap_com, which stops every worker: probably "
        "overlap_comm is meant", "Correct the name", at=(2, 23),
        deepspeed_json=ds('"zero_optimization": {"overlap_com": true}')),
    warns("deepspeed_key_outside_params", "optimizer: eps beside params, where DeepSpeed does not read it", "Move it",
        at=(3, 55), deepspeed_json=ds(STAGE, '"optimizer": {"type": "Adam", "params": {"lr": 1e-4}, "eps": 1e-6}')),
    warns("deepspeed_key_outside_params", "scheduler: warmup_num_steps, warmup_max_lr beside params, where DeepSpeed "
        "does not read them", "Move it", at=(2, 35), deepspeed_json=ds(
            '"scheduler": {"type": "WarmupLR", "warmup_num_steps": 10, "warmup_max_lr": 1e-4}')),
    well("deepspeed_key_outside_params", "no parameter", deepspeed_json=ds(
        STAGE, '"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "eps": 1e-6}, "legacy_fusion": true}')),
    well("deepspeed_key_outside_params", "no parameter", deepspeed_json=ds('"optimizer": {"lr": 1e-4}')),
    well("deepspeed_key_misspelled", "no key is", deepspeed_json=ds(STAGE, AUTO, '"my_own_notes": 1')),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()
