"""Which keys of a DeepSpeed file does DeepSpeed read, ignore, or stop at, and since which release?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mgpu.snapshot import DeepSpeedFile, DeepSpeedJson
from mgpu.text import listed

from ._deepspeed_values import IN_FILE, precisions, setting
from ._spelling import intended_name

# fmt: off
# DeepSpeed 0.19's own keys (runtime/config.py, and the config classes that it reads), with those of older releases.
_TOP = frozenset({
    "activation_checkpointing", "aio", "amp", "autotuning", "bf16", "bfloat16", "checkpoint", "comms_logger",
    "communication_data_type", "compile", "compression_training", "csv_monitor", "curriculum_learning",
    "data_efficiency", "data_types", "dataloader_drop_last", "disable_allgather", "disable_python_gc", "dump_state",
    "eigenvalue", "elasticity", "expert_parallel", "flops_profiler", "fp16", "gradient_accumulation_steps",
    "gradient_allreduce_op", "gradient_clipping", "gradient_predivide_factor", "graph_harvesting", "hybrid_engine",
    "memory_breakdown", "nebula", "optimizer", "pipeline", "prescale_gradients", "progressive_layer_drop",
    "quantize_training", "scheduler", "sparse_attention", "sparse_gradients", "steps_per_print", "tensor_parallel",
    "tensorboard", "timers", "torch_autocast", "train_batch_size", "train_micro_batch_size_per_gpu",
    "wall_clock_breakdown", "wandb", "weight_quantization", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "zero_optimization",
})
# The fields of zero_optimization in all releases since 0.7, which was the first to stop at other keys
# (runtime/zero/config.py, offload_config.py).
_STAGE3 = frozenset({
    "allgather_sequential", "gather_16bit_weights_on_model_save", "max_live_parameters", "max_reuse_distance",
    "model_persistence_threshold", "module_granularity_threshold", "param_persistence_threshold",
    "prefetch_bucket_size", "use_all_reduce_for_fetch_params",
})
_ZERO = frozenset({
    "allgather_bucket_size", "allgather_partitions", "compute_grad_norm", "contiguous_gradients", "cpu_offload",
    "cpu_offload_param", "cpu_offload_use_pin_memory", "elastic_checkpoint", "enable_sanity_checks",
    "ignore_unused_parameters", "leaf_module", "legacy_stage1", "load_from_fp32_weights", "log_trace_cache_warnings",
    "memory_efficient_linear", "mics_hierarchical_params_gather", "mics_shard_size", "offload_optimizer",
    "offload_param", "overlap_comm", "override_module_apply", "parameter_alignment", "pipeline_loading_checkpoint",
    "reduce_bucket_size", "reduce_scatter", "round_robin_gradients", "save_muon_momentum_buffer_in_memory", "stage",
    "stage3_gather_fp16_weights_on_model_save", "sub_group_size", "use_multi_rank_bucket_allreduce", "zenflow",
    "zero_hpz_partition_size", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
    "zero_quantized_weights", "zeropp_loco_param", *_STAGE3, *(f"stage3_{name}" for name in _STAGE3),
})
_OFFLOAD = {
    "offload_param": frozenset({"buffer_count", "buffer_size", "device", "max_in_cpu", "nvme_path", "pin_memory"}),
    "offload_optimizer": frozenset({
        "buffer_count", "cpuadam_cores_perc", "device", "fast_init", "nvme_path", "pin_memory", "pipeline_read",
        "pipeline_write", "ratio", "super_offload",
    }),
}
# The fields of the precisions (runtime/precision_config.py). Before 0.17.1, other keys were ignored.
_FP16_INTEGERS = frozenset({"hysteresis", "initial_scale_power", "loss_scale_window", "min_loss_scale"})
_BF16 = frozenset({
    "bf16_master_weights_and_grads", "bf16_optimizer_states", "check_grad_overflow", "enabled", "immediate_grad_update",
})
_PRECISION = {
    "fp16": frozenset({
        "auto_cast", "consecutive_hysteresis", "enabled", "fp16_master_weights_and_grads", "loss_scale",
        *_FP16_INTEGERS,
    }),
    "bf16": _BF16,
    "bfloat16": _BF16,
}
# Keys that newer releases reject, whatever their value (runtime/config.py: _reject_removed_config_keys).
_REMOVED = dict.fromkeys((
    "compression_training", "nebula", "quantize_training", "sparse_attention",
    "zero_optimization.mics_hierarchical_params_gather", "zero_optimization.mics_shard_size",
), "0.19.7") | dict.fromkeys((
    "amp", "curriculum_learning", "eigenvalue", "elasticity", "graph_harvesting", "progressive_layer_drop",
    "sparse_gradients", "zero_optimization.zeropp_loco_param",
), "0.19.8")
_STRICT_PRECISIONS = "0.17.1"
# Parameters of optimizers and schedulers, which DeepSpeed reads from `params` only.
_OF_PARAMS = {
    "optimizer": frozenset({
        "adam_w_mode", "amsgrad", "betas", "bias_correction", "eps", "freeze_step", "lr", "momentum", "torch_adam",
        "weight_decay",
    }),
    "scheduler": frozenset({
        "cos_min_ratio", "cycle_max_lr", "cycle_min_lr", "lr_range_test_min_lr", "total_num_steps", "warmup_max_lr",
        "warmup_min_lr", "warmup_min_ratio", "warmup_num_steps", "warmup_type",
    }),
}
# fmt: on
_ZERO_PREFIX = "zero_optimization."
ReadFile: TypeAlias = DeepSpeedFile | DeepSpeedJson  # named by a config, or examined itself


class Finding(NamedTuple):
    """What is wrong with a dotted key of a DeepSpeed file, and how to fix it if the check's own text does not fit."""

    key: str
    title: str
    fix: str = ""


def unknown_zero_keys(file: ReadFile) -> list[Finding]:
    """Return the keys in zero_optimization that every DeepSpeed rejects; none if the installed one accepts the file."""
    if file.loader is not None and not file.loader.refusals:
        return []
    sections = {_ZERO_PREFIX: (file.values.get("zero_optimization"), _ZERO)}
    for name, known in _OFFLOAD.items():
        sections[f"{_ZERO_PREFIX}{name}."] = (setting(file.values, f"{_ZERO_PREFIX}{name}"), known)
    return [
        Finding(f"{prefix}{key}", f"unknown key {prefix}{key}{_probably(str(key), known)}")
        for prefix, (section, known) in sections.items()
        if isinstance(section, Mapping)
        for key, value in section.items()
        if key not in known and value != "auto"  # DeepSpeed drops the "auto" entries of a section
    ]


def _probably(key: str, known: frozenset[str]) -> str:
    meant = intended_name(key, known)
    return f": probably {meant} is meant" if meant else ""


def refused(file: ReadFile) -> list[Finding]:
    """Return what the installed DeepSpeed rejects, without what other checks report; nothing if it was not asked."""
    if file.loader is None:
        return []
    reported = {finding.key for finding in unknown_zero_keys(file)}
    since = {finding.key: version for finding, version in _removals(file.values)}
    twice = len(precisions(file.values)) > 1
    found = []
    for message, key in ((one.message, one.key) for one in file.loader.refusals):
        if key in reported or (twice and "simultaneously enabled" in message):
            continue
        fix = "Delete it" if key in _REMOVED or "Extra inputs" in message else "Correct it"
        older = f", or train with a DeepSpeed older than {since[key]}" if key in since else ""
        message = message.removesuffix(".")  # in a title
        text = f"{key}: {message}" if key else message
        found.append(Finding(key or "", f"DeepSpeed {file.loader.deepspeed} rejects {text}", fix=f"{fix}{older}."))
    return found


def removed_keys(file: ReadFile) -> list[Finding]:
    """Return the keys that only newer releases of DeepSpeed reject; none if the installed one was asked."""
    return [finding for finding, _ in _removals(file.values)] if file.loader is None else []


def _removals(values: Mapping[str, Any]) -> Iterator[tuple[Finding, str]]:
    """Yield each such key, with the first release that rejects it."""
    for key, version in _REMOVED.items():
        parent, _, name = key.rpartition(".")
        found = values.get(parent) if parent else values
        if isinstance(found, Mapping) and name in found:
            yield Finding(key, f"{key} was removed: DeepSpeed {version} and newer reject it"), version
    for name, known in _PRECISION.items():
        section = values.get(name)
        for key, value in section.items() if isinstance(section, Mapping) else ():
            if value == "auto":
                continue
            if key not in known:
                what = f"{name}.{key} is an unknown key"
            elif key in _FP16_INTEGERS and isinstance(value, float) and not value.is_integer():
                what = f"{name}.{key}: {value} is not a whole number"
            else:
                continue
            title = f"{what}: DeepSpeed {_STRICT_PRECISIONS} and newer reject it"
            yield Finding(f"{name}.{key}", title), _STRICT_PRECISIONS


def ignored_keys(file: ReadFile) -> list[Finding]:
    """Return the keys at the top level that are probably other ones, and those of an accelerate config."""
    found = []
    for key, value in file.values.items():
        other = IN_FILE.get(key)
        if key == "zero3_init_flag" or (other and other != key):
            if value in (None, False, "none", "false"):
                continue  # nothing is lost
            instead = f": DeepSpeed calls it {other}" if other else ""
            found.append(Finding(key, f"{key} is a key of accelerate configs, which DeepSpeed ignores{instead}"))
        elif key not in _TOP and (meant := intended_name(str(key), _TOP)):
            found.append(Finding(key, f"unknown key {key}, which DeepSpeed ignores: probably {meant} is meant"))
    return found


def keys_outside_params(file: ReadFile) -> list[Finding]:
    """Return the parameters of optimizer and scheduler that are not in `params`."""
    found = []
    for name, known in _OF_PARAMS.items():
        section = file.values.get(name)
        outside: Sequence[str] = [key for key in section if key in known] if isinstance(section, Mapping) else []
        if outside:
            are, them = ("is", "it") if len(outside) == 1 else ("are", "them")
            title = f"{listed(f'{name}.{key}' for key in outside)} {are} not in {name}.params"
            found.append(Finding(f"{name}.{outside[0]}", title, f"Move {them} into {name}.params."))
    return found


def idle_offload(file: ReadFile) -> list[Finding]:
    """Return the offloading of parameters, if the ZeRO stage does not partition them."""
    values = file.values
    stage = setting(values, f"{_ZERO_PREFIX}stage")
    stage = 0 if stage is None else stage
    device = setting(values, f"{_ZERO_PREFIX}offload_param.device")
    old = setting(values, f"{_ZERO_PREFIX}cpu_offload_param") is True
    if type(stage) is not int or stage > 2 or not (device in ("cpu", "nvme") or old):
        return []
    name = f"{_ZERO_PREFIX}{'cpu_offload_param' if old else 'offload_param'}"
    return [Finding(name, f"{name} has no effect with ZeRO-{stage}")]
