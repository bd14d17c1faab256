"""Do the FSDP settings fit the version of FSDP, each other, and the machine?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Config, Driver

from ._config_file import LAUNCH, PLUGINS, is_readable, place_of
from ._schema import FP8, FSDP, NOT_FSDP, SHARDING, entries, fsdp_settings, fsdp_version, settings, skip_without_fsdp
from ._spelling import intended_name, yaml_text
from ._value_kinds import truth
from .parallel import splits_ranks

_FSDP2 = "https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2"
_MEASURED = "measured accelerate 1.15 torch 2.13 2026-11"

# Keys of FSDP 1 that FSDP 2 does not read, with the value that FSDP 2 uses anyway.
_OLD: dict[str, tuple[Any, str]] = {
    "fsdp_use_orig_params": (True, "FSDP 2 always keeps the original parameters"),
    "fsdp_sync_module_states": (True, "FSDP 2 does not need it"),
    "fsdp_forward_prefetch": (False, "accelerate does not support it with FSDP 2"),
    "fsdp_backward_prefetch": (None, "FSDP 2 prefetches by itself"),
}
FSDP1_ONLY = (*_OLD, "fsdp_sharding_strategy")
# fsdp_reshard_after_forward of FSDP 2, as a strategy of FSDP 1.
_AS_STRATEGY: dict[bool | None, str] = {True: "FULL_SHARD", False: "SHARD_GRAD_OP"}
_OLD_SHARDING = {
    "SHARD_GRAD_OP": "Write fsdp_reshard_after_forward: false.",
    "HYBRID_SHARD": "Write a parallelism_config with dp_replicate_size and dp_shard_size.",
    "HYBRID_SHARD_ZERO2": "Write a parallelism_config with dp_replicate_size and dp_shard_size.",
    "NO_SHARD": "That is DDP: write distributed_type: MULTI_GPU.",
}


@check(Severity.WARNING, source=_FSDP2, given=skip_without_fsdp)
def config_fsdp_key_of_other_version(config: Config) -> Answer:
    """fsdp_config sets a key that only the other version of FSDP reads.

    Why: accelerate passes on all keys, and each version reads its own. FSDP 2 ignores fsdp_sharding_strategy and the
    prefetch keys. FSDP 1, the default, ignores fsdp_reshard_after_forward, although accelerate's own wizard writes the
    answer to its sharding question there, so the launcher's FULL_SHARD applies.

    Fix: Use the key that this version reads.
    """
    values = fsdp_settings(config)
    dotted = entries(config, FSDP)
    found = (_fsdp2_key_problems if fsdp_version(values) == 1 else _fsdp1_key_problems)(config, values, dotted)
    return tuple(found) or Ok(f"every key has an effect with FSDP {fsdp_version(values)}, or sets its default")


def _fsdp2_key_problems(config: Config, values: Mapping[str, Any], dotted: Mapping[str, str]) -> list[Problem]:
    """Return the problem of a key that only FSDP 2 reads, in a config of FSDP 1."""
    key, value = "fsdp_reshard_after_forward", values.get("fsdp_reshard_after_forward")
    if value is None:
        return []
    strategy = _AS_STRATEGY.get(truth(value)) or intended_name(str(value), SHARDING)
    own = values.get("fsdp_sharding_strategy")
    if strategy == (str(own).upper() if own is not None else "FULL_SHARD") or (own == 1 and strategy == "FULL_SHARD"):
        return []  # not read, but the result is the same
    if strategy is not None and own is None:
        to = "fsdp_config.fsdp_sharding_strategy"
        edits = (Edit("rename", dotted[key], to=to), *((Edit("set", to, strategy),) if value != strategy else ()))
        fix = Fix(f"Write it as fsdp_sharding_strategy: {strategy}.", edits=edits)
    else:
        fix = Fix("Delete it.", edits=(Edit("delete", dotted[key]),))
    holds = f"fsdp_sharding_strategy: {own if own is not None else 'FULL_SHARD'} applies"
    return [
        Problem(
            f"{dotted[key]}: {yaml_text(value)} is not applied with FSDP 1: {holds}",
            "FSDP 1 (the default unless fsdp_version is 2) reads fsdp_sharding_strategy, and the launcher always sets"
            " one.",
            fix,
            {"key": dotted[key], "fsdp_version": 1},
            place=place_of(config, dotted[key]),
        )
    ]


def _fsdp1_key_problems(config: Config, values: Mapping[str, Any], dotted: Mapping[str, str]) -> list[Problem]:
    """Return the problems of keys that only FSDP 1 reads, in a config of FSDP 2, if FSDP 2 behaves differently."""
    found = []
    for key, (same, why) in _OLD.items():
        value = values.get(key)
        nothing = value is None or (isinstance(same, bool) and truth(value) is same)
        if key not in values or nothing or (same is None and str(value).upper() == "NO_PREFETCH"):
            continue
        if key == "fsdp_sync_module_states" and _loading_conflicts(values):
            continue  # reported by config_fsdp_loading_conflict
        found.append(
            _unused_key_problem(
                config, dotted[key], value, why, Fix("Delete it.", edits=(Edit("delete", dotted[key]),))
            )
        )
    strategy = str(values.get("fsdp_sharding_strategy", 1)).upper()
    strategy = SHARDING[int(strategy) - 1] if strategy in ("1", "2", "3", "4", "5") else strategy
    if strategy in _OLD_SHARDING and not (
        strategy == "SHARD_GRAD_OP" and truth(values.get("fsdp_reshard_after_forward")) is False
    ):
        at = dotted["fsdp_sharding_strategy"]
        edits: tuple[Edit, ...] = ()
        if strategy == "SHARD_GRAD_OP" and "fsdp_reshard_after_forward" not in values:
            edits = (Edit("delete", at), Edit("set", "fsdp_config.fsdp_reshard_after_forward", False))
        why = "FSDP 2 reads fsdp_reshard_after_forward, and shards everything"
        found.append(
            _unused_key_problem(
                config, at, values["fsdp_sharding_strategy"], why, Fix(_OLD_SHARDING[strategy], edits=edits)
            )
        )
    return found


def _unused_key_problem(config: Config, dotted: str, value: Any, why: str, fix: Fix) -> Problem:
    return Problem(
        f"{dotted}: {yaml_text(value)} is not applied with FSDP 2: {why}",
        "Only FSDP 1 reads this key.",
        fix,
        {"key": dotted, "fsdp_version": 2},
        place=place_of(config, dotted),
    )


def _loading_conflicts(values: Mapping[str, Any]) -> bool:
    """Repeat the launcher's own test, which sees the values before they are text: "false" in quotes counts as true."""
    return bool(values.get("fsdp_cpu_ram_efficient_loading", True)) and not values.get("fsdp_sync_module_states", True)


@check(Severity.ERROR, source=LAUNCH, given=skip_without_fsdp)
def config_fsdp_loading_conflict(config: Config) -> Answer:
    """fsdp_sync_module_states is off, but only rank 0 loads the weights.

    Why: The other ranks would never get the weights, so the launcher stops with ValueError.
    More: fsdp_cpu_ram_efficient_loading is on unless the file sets it to false. The launcher also stops with FSDP 2,
    which ignores the key otherwise.

    Fix: Delete the line, or write fsdp_cpu_ram_efficient_loading: false.
    """
    values = fsdp_settings(config)
    if not _loading_conflicts(values):
        return Ok("loading and broadcasting are consistent")
    dotted = entries(config, FSDP)
    at = dotted["fsdp_sync_module_states"]
    loading = values.get("fsdp_cpu_ram_efficient_loading", True)
    edits: tuple[Edit, ...] = ()
    if fsdp_version(values) == 2:
        edits = (Edit("delete", at),)
    elif loading is not True and truth(loading) is False:  # "false" in quotes: both were meant to be off
        edits = (Edit("set", dotted["fsdp_cpu_ram_efficient_loading"], False),)
    given = (
        "which is on by default" if "fsdp_cpu_ram_efficient_loading" not in values else f"which is {yaml_text(loading)}"
    )
    return Problem(
        f"{at}: {yaml_text(values['fsdp_sync_module_states'])} contradicts fsdp_cpu_ram_efficient_loading, {given}",
        fix=Fix(edits=edits),
        place=place_of(config, at),
    )


@check(Severity.ERROR, source=PLUGINS, given=skip_without_fsdp)
def config_fsdp_setting_unsupported(config: Config) -> Answer:
    """fsdp_config has a setting that this version of FSDP, or the rest of the section, does not support.

    Why: FSDP 2 has no LOCAL_STATE_DICT. Offloading checkpointed activations needs FSDP 2 and activation checkpointing.
    torchao's fp8 is incompatible with loading on rank 0, which is on by default. MS-AMP is incompatible with FSDP.
    Every worker stops with ValueError.

    Fix: Change the setting named in the message.
    """
    values = fsdp_settings(config)
    dotted, version = entries(config, FSDP), fsdp_version(values)
    found = []

    def add(key: str, title: str, fix: str) -> None:
        at = dotted.get(key, "fsdp_config")
        cause = "Every worker stops with ValueError."
        found.append(Problem(title.format(at=at), cause, Fix(fix), {"key": at}, place=place_of(config, at)))

    if version == 2 and str(values.get("fsdp_state_dict_type")).upper() in ("LOCAL_STATE_DICT", "2"):
        title = "{at} is LOCAL_STATE_DICT, which FSDP 2 does not have"
        add("fsdp_state_dict_type", title, "Write SHARDED_STATE_DICT or FULL_STATE_DICT.")
    offload = "fsdp_activation_checkpointing_offload"
    if truth(values.get(offload)) and not truth(values.get("fsdp_activation_checkpointing", False)):
        title = "{at} needs fsdp_activation_checkpointing: true"
        add(offload, title, "Write fsdp_activation_checkpointing: true.")
    elif truth(values.get(offload)) and version == 1:
        add(offload, "{at} needs FSDP 2", "Write fsdp_version: 2.")
    backend = str(settings(config, FP8).get("fp8_backend")).upper()
    loading = "fsdp_cpu_ram_efficient_loading"
    if backend == "AO" and truth(values.get(loading, True)):
        title = f"{{at}}: torchao's fp8 is incompatible with {loading}, which is on unless set to false"
        add(loading, title, f"Write {loading}: false.")
    if backend == "MSAMP":
        add("fsdp_version", "FSDP is incompatible with MS-AMP's fp8", "Write fp8_config.backend: TE or AO.")
    return tuple(found) or Ok(f"FSDP {version} supports them all")


@check(Severity.INFO, source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html")
def config_one_rank_splits_nothing(config: Config) -> Answer:
    """FSDP or ZeRO is used with a single rank.

    Why: All weights, gradients and optimizer state stay on that rank.
    More: Only offloading to the CPU saves memory. --num_processes on the command line overrides the file.

    Fix: Set num_processes to the number of GPUs, or train with distributed_type: 'NO'.
    """
    if not is_readable(config) or config.distributed_type not in ("FSDP", "DEEPSPEED"):
        return Skip("the type does not shard")
    if config.num_processes != 1:
        return Ok("more than one rank")
    values = config.values.get("deepspeed_config" if config.distributed_type == "DEEPSPEED" else "fsdp_config")
    section = values if isinstance(values, Mapping) else {}
    offloads = any(
        str(section.get(key)).lower() in ("cpu", "nvme", "true")
        for key in ("offload_optimizer_device", "offload_param_device", "fsdp_offload_params", "offload_params")
    )
    if offloads or section.get("deepspeed_config_file"):
        return Ok("one rank, possibly with offloading")
    return Problem(
        f"{config.distributed_type} with num_processes: 1 shards nothing, unless --num_processes overrides it",
        place=place_of(config, "num_processes"),
    )


@check(Severity.WARNING, source=_MEASURED)
def config_fsdp_not_on_cpu(config: Config, driver: Driver) -> Answer:
    """The config uses FSDP 2 on a machine without a GPU.

    Why: accelerate does not apply FSDP 2 on CPU ranks: each has the whole model, as with DDP.

    Fix: Nothing to do for a dry run.
    """
    if not driver.any_gpu and splits_ranks(config):
        return Skip("with parallelism_config, no rank starts on the CPU")
    return _on_cpu(config, driver, 2, "is not applied: the ranks train as plain DDP", Fix())


@check(Severity.WARNING, source=_MEASURED, stops_start=True)
def config_fsdp1_needs_gpu(config: Config, driver: Driver) -> Answer:
    """The config uses FSDP 1 on a machine without a GPU.

    Why: accelerate's FSDP 1 stops with "There are currently no available devices found" on a machine without GPUs. The
    file may be meant for another machine.

    Fix: Use it on a machine with GPUs. For a dry run here, run the smoke test without it.
    """
    dry_run = commands("mgpu smoke-test --cpu 2")
    return _on_cpu(config, driver, 1, "does not start: it needs a GPU", dry_run)


def _on_cpu(config: Config, driver: Driver, version: int, what: str, fix: Fix) -> Answer:
    if config.distributed_type != "FSDP" or not is_readable(config):
        return Skip(NOT_FSDP)
    if driver.any_gpu:
        return Ok("this machine has NVIDIA GPUs")
    if fsdp_version(fsdp_settings(config)) != version:
        return Ok(f"not FSDP {version}")
    return Problem(
        f"FSDP {version} on the CPU {what}",
        "accelerate enables FSDP only for accelerators.",
        fix,
        place=place_of(config, "distributed_type"),
    )
