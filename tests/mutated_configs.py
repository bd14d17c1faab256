"""Configs with one fault each, generated: a key misspelt, renamed, moved or dropped, or a value of another kind.

Synthetic: no file here is anybody's. `mutants` yields each with a name that tells what was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from checks.config import _schema
from checks.config.keys import _FLAGS, _OTHER_NAMES, _PER_MACHINE, _REMOVED, _SWITCHED_ON

_TOP = {"compute_environment": "LOCAL_MACHINE", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 8}
_SEVERAL = {"num_machines": 2, "num_processes": 16, "main_process_ip": "10.0.0.1", "main_process_port": 29500}
_FSDP2 = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
}
_FSDP1 = {
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_backward_prefetch": "BACKWARD_PRE",
    "fsdp_sharding_strategy": "FULL_SHARD",
    "fsdp_transformer_layer_cls_to_wrap": "MyBlock",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_sync_module_states": True,
}
_ZERO2 = {"zero_stage": 2, "gradient_accumulation_steps": 1, "offload_optimizer_device": "none"}
_ZERO3 = {"zero_stage": 3, "zero3_init_flag": True, "zero3_save_16bit_model": True, "offload_param_device": "cpu"}
_MESH = {"parallelism_config_dp_shard_size": 4, "parallelism_config_tp_size": 2}
_MEGATRON = {"megatron_lm_tp_degree": 2, "megatron_lm_pp_degree": 2, "megatron_lm_num_micro_batches": 4}
_COMPILED = {"dynamo_backend": "INDUCTOR", "dynamo_mode": "default", "dynamo_use_fullgraph": False}
BASES: dict[str, dict[str, Any]] = {
    "ddp": {**_TOP, "distributed_type": "MULTI_GPU", "gpu_ids": "all", "machine_rank": 0, "use_cpu": False},
    "ddp_nodes": {**_TOP, **_SEVERAL, "distributed_type": "MULTI_GPU", "rdzv_backend": "static"},
    "one": {**_TOP, "distributed_type": "NO", "num_processes": 1},
    "fsdp2": {**_TOP, "distributed_type": "FSDP", "fsdp_config": _FSDP2},
    "fsdp1": {**_TOP, "distributed_type": "FSDP", "fsdp_config": _FSDP1},
    "zero2": {**_TOP, "distributed_type": "DEEPSPEED", "deepspeed_config": _ZERO2},
    "zero3": {**_TOP, "distributed_type": "DEEPSPEED", "deepspeed_config": _ZERO3},
    "zero3_nodes": {
        **_TOP, **_SEVERAL, "distributed_type": "DEEPSPEED",
        "deepspeed_config": {**_ZERO3, "deepspeed_multinode_launcher": "standard"},
    },
    "mesh": {**_TOP, "distributed_type": "FSDP", "fsdp_config": _FSDP2, "parallelism_config": _MESH},
    "megatron": {**_TOP, "distributed_type": "MEGATRON_LM", "megatron_lm_config": _MEGATRON},
    "compiled": {**_TOP, "distributed_type": "MULTI_GPU", "dynamo_config": _COMPILED},
}  # fmt: skip
MACHINES = ("8 x A100", "2 x T4", "none")
# fmt: off
VALUES: tuple[Any, ...] = (
    None, "NONE", "none", "no", True, False, "true", "False", "yes", "on", 0, 1, 2, -1, "2", 2.0, 2.5, 3, 16, "abc",
    "$VALUE", "<value>", "NUM_VALUE", "", " 2 ", [0, 1], [], "0,1", "0, 1", "bfloat16", "fp32", "DDP", "auto",
    "BACKWARD", "full shard", "TRANSFORMER_BASED", "SIZE_BASED_WRAP", "NO_WRAP", "SHARD_GRAD_OP", "Standard", "pdsh",
    "127.0.0.1", "10.0.0.1:29500", "max_autotune", "inductor", "cpu", "nvme", "LOCAL_STATE_DICT",
)
# fmt: on


def mutants() -> Iterator[tuple[str, str]]:
    """Yield a name and the text of every mutant of every base."""
    for name, base in BASES.items():
        for what, values in _changed(base):
            yield f"{name}: {what}", yaml.safe_dump(values, sort_keys=False)


def _changed(base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in base.items():
        if isinstance(value, dict):
            section = next(one for one in _schema.SECTIONS if one.name == key)
            names = {**value, **dict.fromkeys(section.keys, 1)}
            for what, inner in _one_changed(value, names):
                yield f"{key}.{what}", {**base, key: inner}
            for old, new in section.renamed.items():
                for other in (value.get(new, 2), *VALUES):
                    inner = {k: v for k, v in value.items() if k != new}
                    yield f"{key}.{old}: {other!r}", {**base, key: {**inner, old: other}}
            for old in section.unread:
                yield f"{key}.{old}", {**base, key: {**value, old: True}}
            for inside in names:
                rest = {k: v for k, v in value.items() if k != inside}
                yield f"{inside} at the top", {**base, key: rest, inside: value.get(inside, 2)}
            for kind in ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU", "MEGATRON_LM"):
                yield f"{key} with {kind}", {**base, "distributed_type": kind}
    plain = {key: value for key, value in base.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in base.items() if isinstance(value, dict)}
    for what, values in _one_changed(plain, plain):
        yield what, {**values, **sections}
    for key in (
        *_FLAGS,
        *_REMOVED,
        *_OTHER_NAMES,
        *_PER_MACHINE,
        *_SWITCHED_ON,
        "use_npu",
        "use_cuda",
        "learning_rate",
    ):
        for value in (True, False, 2, "text"):
            yield f"{key}: {value!r}", {**base, key: value}
    for key in ("use_cpu", "debug", "gpu_ids", "machine_rank", "main_process_ip", "main_process_port", "num_machines",
                "dynamo_backend", "fp16", "rdzv_backend", "downcast_bf16", "enable_cpu_affinity"):  # fmt: skip
        for value in VALUES:
            yield f"{key}: {value!r}", {**base, key: value}


def _one_changed(values: dict[str, Any], names: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the values with one key dropped, misspelt or set to something else."""
    for key in names:
        rest = {k: v for k, v in values.items() if k != key}
        old = values.get(key, 2)
        yield f"without {key}", rest
        for other in (key[:-1], key[1:], key.upper(), key.replace("_", "-"), key.replace("_", ""), f"{key}s",
                      key.partition("_")[2], f"{key[:3]}{key[4:3:-1]}{key[5:]}"):  # fmt: skip
            if other and other not in values:
                yield f"{other}: {old!r}", {**rest, other: old}
        for value in VALUES:
            yield f"{key}: {value!r}", {**values, key: value}
