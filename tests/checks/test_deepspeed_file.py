"""checks/deepspeed_file.py: a DeepSpeed file itself, given to --validate or named in a job script."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from mgpu.config.deepspeed_json import read_text
from mgpu.snapshot import DeepSpeedJson, DeepSpeedRefusal, DeepSpeedVerdict
from tests.checks.facts import Case, fails, informs, problem, skips, table, warns, well

AUTO = '"train_batch_size": "auto"'
STAGE = '"zero_optimization": {"stage": 2}'


def ds(*lines: str, only_deepspeed: bool = False, others: bool = False) -> tuple[DeepSpeedJson, ...]:
    """A file with these lines between its braces; the first of them is line 2."""
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    return (replace(read_text(text, "ds.json"), by_deepspeed=only_deepspeed, by_others=others),)


def loaded(
    files: tuple[DeepSpeedJson, ...], *refusals: tuple[str, str | None], version: str = "0.19.8"
) -> tuple[DeepSpeedJson, ...]:
    """The files with DeepSpeed's own verdict: messages and keys; without any, it accepts them."""
    verdict = DeepSpeedVerdict(version, tuple(DeepSpeedRefusal(*one) for one in refusals))
    return tuple(replace(file, loader=verdict) for file in files)


OVERLAP = "zero_optimization.overlap_com"
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
    warns("deepspeed_file_not_strict", "trailing comma", "strict JSON", at=(2, 34),
        deepspeed_json=ds(STAGE, "", others=True)),
    well("deepspeed_file_not_strict", "DeepSpeed itself", deepspeed_json=ds(STAGE, "")),
    informs("deepspeed_file_only_for_deepspeed", "only deepspeed.initialize can read this file: not JSON: trailing",
        "strict JSON", at=(2, 34), deepspeed_json=ds(STAGE, "")),
    well("deepspeed_file_only_for_deepspeed", "a command shows", deepspeed_json=ds(STAGE, "", others=True)),
    well("deepspeed_file_only_for_deepspeed", "a command shows", deepspeed_json=ds(STAGE, "", only_deepspeed=True)),
    well("deepspeed_file_only_for_deepspeed", "strict JSON", deepspeed_json=ds(STAGE, AUTO, "")),  # an error
    skips("deepspeed_file_only_for_deepspeed", "could not be read", deepspeed_json=BROKEN),
    warns("deepspeed_file_not_strict", "bf16 is there twice", "each key once", at=(4, 1),
        deepspeed_json=ds('"bf16": {"enabled": true}', STAGE, '"bf16": {"enabled": false}')),
    well("deepspeed_file_not_strict", "strict JSON", deepspeed_json=ds(STAGE, AUTO)),
    well("deepspeed_file_not_strict", "DeepSpeed itself", deepspeed_json=ds(STAGE, "", only_deepspeed=True)),
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
    warns("deepspeed_key_misspelled", "zero3_save_16bit_model is a key of accelerate configs, which DeepSpeed ignores: "
        "DeepSpeed calls it zero_optimization.stage3_gather_16bit", "Correct the name", at=(3, 1),
        deepspeed_json=ds(STAGE, '"zero3_save_16bit_model": true')),
    warns("deepspeed_key_misspelled", "zero3_init_flag is a key of accelerate configs", "delete", at=(3, 1),
        deepspeed_json=ds(STAGE, '"zero3_init_flag": true')),
    well("deepspeed_key_misspelled", "no key is", deepspeed_json=ds(STAGE, '"zero3_save_16bit_model": false',
        '"gradient_clipping": 1.0', '"zero3_init_flag": false')),
    well("deepspeed_key_misspelled", "no key is", deepspeed_json=ds(STAGE, AUTO, '"my_own_notes": 1')),
    # deepspeed_zero_key_unknown
    fails("deepspeed_zero_key_unknown", "unknown key zero_optimization.overlap_com: probably overlap_comm is meant",
        "Correct the name", at=(2, 23), deepspeed_json=ds('"zero_optimization": {"overlap_com": true}')),
    fails("deepspeed_zero_key_unknown", "unknown key zero_optimization.my_notes", "delete the key", at=(2, 23),
        deepspeed_json=ds('"zero_optimization": {"my_notes": 1}')),
    fails("deepspeed_zero_key_unknown", "unknown key zero_optimization.offload_param.fast_init", "delete", at=(2, 41),
        deepspeed_json=ds('"zero_optimization": {"offload_param": {"fast_init": true}}')),
    fails("deepspeed_zero_key_unknown", "unknown key zero_optimization.overlap_com", "delete", deepspeed_json=loaded(
        ds('"zero_optimization": {"overlap_com": true}'), ("Extra inputs are not permitted", OVERLAP))),
    well("deepspeed_zero_key_unknown", "all keys", deepspeed_json=ds('"zero_optimization": {"stage": 2, '
        '"prefetch_bucket_size": 1, "stage3_max_live_parameters": 1, "mics_shard_size": 4, "my_notes": "auto"}')),
    well("deepspeed_zero_key_unknown", "all keys", deepspeed_json=loaded(ds('"zero_optimization": {"of_later": 1}'))),
    well("deepspeed_zero_key_unknown", "all keys", deepspeed_json=ds('"zero_optimization": true')),
    skips("deepspeed_zero_key_unknown", "could not be read", deepspeed_json=BROKEN),
    # deepspeed_file_refused
    fails("deepspeed_file_refused", "DeepSpeed 0.19.8 rejects fp16.opt_level: Extra inputs are not permitted",
        "Delete it, or train with a DeepSpeed older than 0.17.1.", at=(3, 10), deepspeed_json=loaded(
            ds(STAGE, '"fp16": {"opt_level": "O2"}'), ("Extra inputs are not permitted", "fp16.opt_level"))),
    fails("deepspeed_file_refused", "rejects amp: DeepSpeedConfigError: removed", "older than 0.19.8", at=(2, 1),
        deepspeed_json=loaded(ds('"amp": {"enabled": false}'), ("DeepSpeedConfigError: removed", "amp"))),
    fails("deepspeed_file_refused", "0.19.8 rejects bf16.enabled: a valid boolean", "Correct it.", at=(2, 10),
        deepspeed_json=loaded(ds('"bf16": {"enabled": "x"}'), ("a valid boolean", "bf16.enabled"))),
    fails("deepspeed_file_refused", "0.19.8 rejects AssertionError: both", "Correct it.", at=(1, 1),
        deepspeed_json=loaded(ds(STAGE), ("AssertionError: both", None))),
    fails("deepspeed_file_refused", "DeepSpeed 0.19.8 rejects amp: amp was removed", "Delete it", at=(2, 1),
        deepspeed_json=loaded(ds('"amp": {"enabled": false}'), ("amp was removed.", "amp"))),
    well("deepspeed_file_refused", "DeepSpeed 0.19.8 accepts it", deepspeed_json=loaded(ds(STAGE))),
    well("deepspeed_file_refused", "accepts", deepspeed_json=loaded(
        ds('"zero_optimization": {"overlap_com": true}'), ("Extra inputs are not permitted", OVERLAP))),
    well("deepspeed_file_refused", "accepts", deepspeed_json=loaded(
        ds('"fp16": {"enabled": true}', '"bf16": {"enabled": true}'),
        ("AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled", "fp16.enabled"))),
    skips("deepspeed_file_refused", "did not load", deepspeed_json=ds('"amp": {"enabled": false}')),
    # deepspeed_key_removed
    warns("deepspeed_key_removed", "amp was removed: DeepSpeed 0.19.8 and newer reject it", "older", at=(2, 1),
        deepspeed_json=ds('"amp": {"enabled": false}')),
    warns("deepspeed_key_removed", "fp16.opt_level is an unknown key: DeepSpeed 0.17.1 and newer", "Delete", at=(2, 10),
        deepspeed_json=ds('"fp16": {"opt_level": "O2"}')),
    warns("deepspeed_key_removed", "fp16.min_loss_scale: 0.5 is not a whole number: DeepSpeed 0.17.1", "older",
        at=(2, 10), deepspeed_json=ds('"fp16": {"min_loss_scale": 0.5}')),
    warns("deepspeed_key_removed", "zero_optimization.mics_shard_size was removed: DeepSpeed 0.19.7", "older",
        at=(2, 23), deepspeed_json=ds('"zero_optimization": {"mics_shard_size": 4}')),
    well("deepspeed_key_removed", "accepts it", deepspeed_json=loaded(ds('"amp": {"enabled": false}'))),
    well("deepspeed_key_removed", "no key", deepspeed_json=ds('"fp16": {"enabled": "auto", "min_loss_scale": 1.0, '
        '"initial_scale_power": 16, "loss_scale": 0.5}', '"bf16": {"enabled": "auto"}', STAGE)),
    skips("deepspeed_key_removed", "could not be read", deepspeed_json=BROKEN),
    # deepspeed_key_outside_params
    warns("deepspeed_key_outside_params", "optimizer.eps and optimizer.weight_decay are not in optimizer.params",
        "Move them into optimizer.params.", at=(2, 52), deepspeed_json=ds(
            '"optimizer": {"type": "Adam", "params": {"lr": 1}, "eps": 1e-8, "weight_decay": 0.01}')),
    warns("deepspeed_key_outside_params", "scheduler.warmup_num_steps is not in scheduler.params", "Move it",
        deepspeed_json=ds('"scheduler": {"type": "WarmupLR", "warmup_num_steps": 100}')),
    well("deepspeed_key_outside_params", "all parameters", deepspeed_json=ds(
        '"optimizer": {"type": "Adam", "legacy_fusion": true, "params": {"lr": 1, "eps": 1e-8}, "_note": "eps"}')),
    well("deepspeed_key_outside_params", "all parameters", deepspeed_json=ds('"optimizer": "adam"')),
    skips("deepspeed_key_outside_params", "could not be read", deepspeed_json=BROKEN),
    # deepspeed_learning_rate_lost
    warns("deepspeed_learning_rate_lost", "WarmupDecayLR without warmup_max_lr rises to 0.001, not to the learning rate"
        " of the run", 'Add "warmup_max_lr" with "auto"', at=(3, 15),
        deepspeed_json=ds(AUTO, '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}')),
    warns("deepspeed_learning_rate_lost", "not to optimizer.params.lr 2e-05", "with the number", at=(3, 15),
        deepspeed_json=ds('"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}',
            '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}')),
    warns("deepspeed_learning_rate_lost", "AdamW without lr trains with its default 0.001", 'Add "lr" with "auto"',
        at=(3, 15), deepspeed_json=ds(AUTO, '"optimizer": {"type": "AdamW", "params": {"eps": 1e-8}}')),
    warns("deepspeed_learning_rate_lost", "SGD without lr trains with its default, not", 'Add "lr" with "auto"',
        deepspeed_json=ds(AUTO, '"optimizer": {"type": "SGD"}')),
    well("deepspeed_learning_rate_lost", "is set", deepspeed_json=ds(AUTO,
        '"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}',
        '"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto"}}')),
    # The scheduler sets it; since 0.17.2, WarmupLR keeps that of the optimizer; a script fills in the others.
    well("deepspeed_learning_rate_lost", "is set", deepspeed_json=ds(AUTO, '"optimizer": {"type": "AdamW"}',
        '"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}')),
    well("deepspeed_learning_rate_lost", "is set", deepspeed_json=ds(AUTO, '"scheduler": {"type": "WarmupLR"}')),
    well("deepspeed_learning_rate_lost", "is set", deepspeed_json=ds('"optimizer": {"type": "AdamW"}')),
    skips("deepspeed_learning_rate_lost", "could not be read", deepspeed_json=BROKEN),
    # deepspeed_offload_without_zero3
    warns("deepspeed_offload_without_zero3", "zero_optimization.offload_param has no effect with ZeRO-2", '"stage": 3',
        at=(2, 35), deepspeed_json=ds('"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}')),
    warns("deepspeed_offload_without_zero3", "cpu_offload_param has no effect with ZeRO-0", '"stage": 3',
        deepspeed_json=ds('"zero_optimization": {"cpu_offload_param": true}')),
    well("deepspeed_offload_without_zero3", "supports its offloading", deepspeed_json=ds(
        '"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}')),
    well("deepspeed_offload_without_zero3", "supports its offloading", deepspeed_json=ds(
        '"zero_optimization": {"stage": 2, "offload_param": {"device": "none"}}')),
    well("deepspeed_offload_without_zero3", "supports its offloading", deepspeed_json=ds(
        '"zero_optimization": {"stage": "auto", "offload_param": {"device": "cpu"}}')),
    skips("deepspeed_offload_without_zero3", "could not be read", deepspeed_json=BROKEN),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def test_a_message_that_ends_with_a_period_has_none_in_a_title() -> None:
    found = problem("deepspeed_file_refused", deepspeed_json=loaded(ds('"amp": {}'), ("amp was removed.", "amp")))
    assert found.title == "DeepSpeed 0.19.8 rejects amp: amp was removed"


def test_thousands_of_unknown_keys_are_compared_with_names_that_are_prepared_once() -> None:
    _spelling = importlib.import_module("mgpu.checks.config._spelling")
    names = frozenset({"overlap_comm", "sub_group_size"})
    _spelling._known.cache_clear()
    meant = {_spelling.intended_name(f"overlap_com{number}", names) for number in range(500)}
    assert meant == {"overlap_comm", None} and _spelling._known.cache_info().misses == 1
