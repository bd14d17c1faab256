"""What is wrong with the values of a DeepSpeed file, whether an accelerate config or another program names it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mgpu.check import Evidence
from mgpu.text import counted

from ._spelling import intended_name

# Keys that are not allowed next to deepspeed_config_file (DeepSpeedPlugin._deepspeed_config_checks), and the same
# setting in the file.
IN_FILE = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "offload_optimizer_nvme_path": "zero_optimization.offload_optimizer.nvme_path",
    "offload_param_nvme_path": "zero_optimization.offload_param.nvme_path",
    "zero3_save_16bit_model": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}
# fmt: off
# Entries whose "auto" accelerate or Trainer replaces with a value.
_FILLED = frozenset({
    *IN_FILE.values(), "train_batch_size", "train_micro_batch_size_per_gpu", "optimizer.params.lr",
    "optimizer.params.betas", "optimizer.params.eps", "optimizer.params.weight_decay",
    "scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps",
    "scheduler.params.total_num_steps", "fp16.enabled", "fp16.fp16_opt_level", "fp16.min_loss_scale", "bf16.enabled",
    "amp.enabled", "amp.opt_level", "checkpoint.use_node_local_storage", "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.stage3_param_persistence_threshold",
})
# DeepSpeed 0.19's own keys (runtime/config.py, and the config classes that it reads), and those of zero_optimization
# (runtime/zero/config.py), with those of older releases.
_TOP = frozenset({
    "activation_checkpointing", "aio", "amp", "autotuning", "bf16", "bfloat16", "checkpoint", "comms_logger",
    "communication_data_type", "compile", "compression_training", "csv_monitor", "curriculum_learning",
    "data_efficiency", "data_types", "dataloader_drop_last", "disable_allgather", "disable_python_gc", "dump_state",
    "eigenvalue", "elasticity", "expert_parallel", "flops_profiler", "fp16", "gradient_accumulation_steps",
    "gradient_allreduce_op", "gradient_clipping", "gradient_predivide_factor", "hybrid_engine", "memory_breakdown",
    "optimizer", "pipeline", "prescale_gradients", "progressive_layer_drop", "scheduler", "sparse_attention",
    "sparse_gradients", "steps_per_print", "tensor_parallel", "tensorboard", "timers", "torch_autocast",
    "train_batch_size", "train_micro_batch_size_per_gpu", "wall_clock_breakdown", "wandb", "weight_quantization",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "zero_optimization",
})
# Parameters of DeepSpeed's optimizers and schedulers (runtime/lr_schedules.py), which it reads from "params" only.
_SECTIONS_WITH_PARAMS = {
    "optimizer": frozenset({
        "lr", "betas", "eps", "weight_decay", "momentum", "bias_correction", "amsgrad", "adam_w_mode", "torch_adam",
        "freeze_step", "cuda_aware", "comm_backend_name", "max_grad_norm", "max_coeff", "min_coeff", "nesterov",
    }),
    "scheduler": frozenset({
        "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps", "warmup_min_ratio",
        "cos_min_ratio", "lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "cycle_min_lr",
        "cycle_max_lr", "last_batch_iteration", "decay_lr_rate",
    }),
}
_ZERO = frozenset({
    "allgather_bucket_size", "allgather_partitions", "contiguous_gradients", "cpu_offload", "elastic_checkpoint",
    "ignore_unused_parameters", "load_from_fp32_weights", "offload_optimizer", "offload_param", "overlap_comm",
    "reduce_bucket_size", "reduce_scatter", "round_robin_gradients", "stage", "sub_group_size",
    "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
    "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_param_persistence_threshold",
    "stage3_prefetch_bucket_size", "zero_hpz_partition_size", "zero_quantized_gradients", "zero_quantized_weights",
})
# fmt: on


def misspelled(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first dotted key that is probably another one, and what is wrong with it; None if there is none."""
    zero = values.get("zero_optimization")
    for prefix, keys, known, effect in (
        ("zero_optimization.", zero if isinstance(zero, Mapping) else {}, _ZERO, "which stops every worker"),
        ("", values, _TOP, "which DeepSpeed ignores"),
    ):
        for key in keys:
            meant = None if key in known else intended_name(str(key), known)
            if meant:
                return f"{prefix}{key}", f"unknown key {prefix}{key}, {effect}: probably {meant} is meant"
    return None


def outside_params(values: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return "optimizer" or "scheduler" with the keys in it that belong into its params; None if there are none."""
    for name, known in _SECTIONS_WITH_PARAMS.items():
        section = values.get(name)
        if isinstance(section, Mapping) and isinstance(section.get("type"), str):
            wrong = [str(key) for key in section if key in known]
            if wrong:
                return name, wrong
    return None


def setting(values: Mapping[str, Any], dotted: str) -> Any:
    """Return the value of a dotted key in a DeepSpeed file; None if it is not set."""
    node: Any = values
    for part in dotted.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def is_parallel(values: Mapping[str, Any]) -> bool:
    """Whether not every rank has its own data."""
    return bool(setting(values, "tensor_parallel") or setting(values, "pipeline"))


def batch_sizes(values: Mapping[str, Any], ranks: int | None) -> tuple[str, Evidence, bool]:
    """Return the batch sizes as text and as evidence, and whether they are consistent; `ranks`: None if not known."""
    whole, micro = (_positive_integer(values, key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu"))
    steps = _positive_integer(values, "gradient_accumulation_steps")
    if "gradient_accumulation_steps" not in values:
        steps = 1  # accelerate adds it
    if whole is None:
        return "accelerate computes train_batch_size", {}, True
    factors = f"{micro or 'micro-batch'} x {steps or 'accumulation'}"
    factors += f" x {counted(ranks, 'rank')}" if ranks else ""
    part = (steps or 1) * (ranks or 1)
    exact = micro and steps and ranks
    fits = whole == (micro or 1) * part if exact else whole % (part * (micro or 1)) == 0
    evidence: Evidence = {"train_batch_size": whole, "micro": micro, "accumulation": steps, "ranks": ranks}
    if fits:
        return f"train_batch_size {whole} = {factors}" + ("" if ranks else " x ranks"), evidence, True
    product = f" = {(micro or 1) * part}" if micro and steps else ""
    relation = "" if ranks else "a multiple of "
    return f"train_batch_size {whole} is not {relation}{factors}{product}", evidence, False


def _positive_integer(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    return value if type(value) is int and value > 0 else None


def precisions(values: Mapping[str, Any]) -> list[str]:
    """Return the precisions that a DeepSpeed file enables."""
    return [key for key in ("fp16", "bf16", "bfloat16") if setting(values, f"{key}.enabled") is True]


def unfilled(values: Mapping[str, Any]) -> list[str]:
    """Return the entries with "auto" that accelerate and Trainer do not fill in."""
    return [key for key in autos(values) if key not in _FILLED]


def autos(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the dotted keys whose value is "auto"."""
    for key, value in values.items():
        if value == "auto":
            yield f"{prefix}{key}"
        elif isinstance(value, Mapping) and depth < 20:
            yield from autos(value, f"{prefix}{key}.", depth + 1)
