"""What is wrong with the values of a DeepSpeed file, whether an accelerate config or another program names it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mgpu.check import Evidence
from mgpu.text import counted

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
# fmt: on


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
