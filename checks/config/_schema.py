"""Which keys do accelerate's nested sections have, which distributed types use them, and what reads them?

accelerate checks nothing below the top level: a key is read by a worker, or never. The tables follow accelerate 1.15's
launch parser, its `utils/launch.py` (what is exported) and its plugins (what is read). A test compares them with the
installed accelerate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mgpu.check import Skip
from mgpu.snapshot import Config, DeepSpeedFile

from ._config_file import ACCELERATORS, is_in_file, is_readable
from ._spelling import intended_name
from ._value_kinds import Key, Section, integer

NO_FILE = "the config names no DeepSpeed file"
NOT_FSDP = "the config has no fsdp_config that applies"


def fsdp_version(values: Mapping[str, Any]) -> int:
    """Return 1 or 2; any other value counts as 1, the launcher's default, and has its own check."""
    return 2 if str(values.get("fsdp_version", 1)).strip() == "2" else 1


def _is_fsdp1(values: Mapping[str, Any]) -> bool:
    return fsdp_version(values) == 1


def _is_fsdp2(values: Mapping[str, Any]) -> bool:
    return fsdp_version(values) == 2


def policy(values: Mapping[str, Any]) -> str:
    """Return fsdp_auto_wrap_policy as the plugin reads it; of an invalid one, the policy that is meant."""
    given = str(values.get("fsdp_auto_wrap_policy") or "NO_WRAP").upper()
    return intended_name(given, WRAPPING) or given


def _fp8(backend: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda values: values.get("fp8_backend") == backend


def _is_above_one(name: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda values: integer(values.get(name)) not in (None, 1)


SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
WRAPPING = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_PREFETCH = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_STATE = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
_DEVICES = ("none", "cpu", "nvme")
LAUNCHERS = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")
# fmt: off
DYNAMO_BACKENDS = (
    "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT",
    "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND", "NEURON",
)
DYNAMO_MODES = ("default", "reduce-overhead", "max-autotune")

_FLAG, _TEXT = Key("flag"), Key("text", null=True)
_FLAG_OR_NULL = Key("flag", null=True)
_TE_INTEGER = Key("integer", null=True, read=_fp8("TE"))

FSDP = Section(
    "fsdp_config",
    "fsdp_",
    {
        "fsdp_version": Key("integer", least=1, most=2),
        "fsdp_sharding_strategy": Key("choice", (*SHARDING, "1", "2", "3", "4", "5"), read=_is_fsdp1),
        "fsdp_reshard_after_forward": Key("flag", read=_is_fsdp2),
        "fsdp_offload_params": _FLAG,
        "fsdp_min_num_params": Key("integer", read=lambda values: policy(values) == "SIZE_BASED_WRAP"),
        "fsdp_auto_wrap_policy": Key("choice", WRAPPING, null=True),
        "fsdp_transformer_layer_cls_to_wrap": _TEXT,
        "fsdp_backward_prefetch": Key("choice", (*_PREFETCH, "1", "2"), null=True),
        "fsdp_state_dict_type": Key("choice", (*_STATE, "1", "2", "3"), null=True),
        "fsdp_forward_prefetch": Key("flag", read=_is_fsdp1),
        "fsdp_use_orig_params": Key("flag", read=_is_fsdp1),
        "fsdp_sync_module_states": Key("flag", read=_is_fsdp1),
        "fsdp_cpu_ram_efficient_loading": _FLAG,
        "fsdp_activation_checkpointing": _FLAG,
        "fsdp_activation_checkpointing_offload": _FLAG,
        "fsdp_ignored_modules": _TEXT,
    },
    ("FSDP",),
    root="fsdp",
    renamed={
        "fsdp_backward_prefetch_policy": "fsdp_backward_prefetch",
        # Names of the plugin's own arguments and of Trainer's fsdp_config.
        "fsdp_cpu_offload": "fsdp_offload_params",
        "fsdp_transformer_cls_names_to_wrap": "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_transformer_cls_to_wrap": "fsdp_transformer_layer_cls_to_wrap",
    },
    unread={"fsdp_limit_all_gathers": "it is on by default, and only the script can change it"},
)

_NEVER_EXPORTED = "the launcher never passes it to the workers"

DEEPSPEED = Section(
    "deepspeed_config",
    "deepspeed_",
    {
        "zero_stage": Key("integer", null=True, least=0, most=3),
        "gradient_accumulation_steps": Key("integer", ("auto",), null=True, least=1),
        "gradient_clipping": Key("number", ("auto",), null=True),
        "offload_optimizer_device": Key("choice", _DEVICES, null=True),
        "offload_param_device": Key("choice", _DEVICES, null=True),
        "zero3_init_flag": _FLAG_OR_NULL,
        "zero3_save_16bit_model": Key("truth", null=True),
        "deepspeed_config_file": _TEXT,
        "deepspeed_hostfile": _TEXT,
        "deepspeed_exclusion_filter": _TEXT,
        "deepspeed_inclusion_filter": _TEXT,
        "deepspeed_multinode_launcher": _TEXT,
        "deepspeed_moe_layer_cls_names": _TEXT,
    },
    ("DEEPSPEED",),
    renamed={
        "hostfile": "deepspeed_hostfile",
        "config_file": "deepspeed_config_file",
        "multinode_launcher": "deepspeed_multinode_launcher",
        "exclusion_filter": "deepspeed_exclusion_filter",
        "inclusion_filter": "deepspeed_inclusion_filter",
        "stage": "zero_stage",
    },
    unread={"offload_optimizer_nvme_path": _NEVER_EXPORTED, "offload_param_nvme_path": _NEVER_EXPORTED},
)

_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")

PARALLELISM = Section(
    "parallelism_config",
    "parallelism_config_",
    {
        "parallelism_config_dp_replicate_size": Key("integer", least=1),
        "parallelism_config_dp_shard_size": Key("integer", least=1),
        "parallelism_config_tp_size": Key("integer", least=1),
        "parallelism_config_cp_size": Key("count", least=1),
        "parallelism_config_cp_backend": Key("choice", ("torch",), exact=True),
        "parallelism_config_cp_comm_strategy": Key(
            "choice", ("allgather", "alltoall"), exact=True, read=_is_above_one("parallelism_config_cp_size")
        ),
        "parallelism_config_sp_size": Key("count", least=1),
        "parallelism_config_sp_backend": Key("choice", ("deepspeed",), exact=True),
        "parallelism_config_sp_seq_length": Key(
            "integer", ("none",), null=True, read=lambda values: _needs_fixed_length(values)
        ),
        "parallelism_config_sp_seq_length_is_variable": Key("truth"),
        "parallelism_config_sp_attn_implementation": Key(
            "choice",
            ("flash_attention_2", "flash_attention_3", "sdpa"),
            exact=True,
            also=lambda name: "/" in name and "flash-attn" in name,
            read=_is_above_one("parallelism_config_sp_size"),
        ),
    },
    (*ACCELERATORS, "FSDP", "DEEPSPEED", "MEGATRON_LM"),
    renamed={
        name: f"parallelism_config_{name}"
        for name in (
            *_SIZES,
            "cp_backend",
            "cp_comm_strategy",
            "sp_backend",
            "sp_seq_length",
            "sp_seq_length_is_variable",
            "sp_attn_implementation",
        )
    },
)

_MEGATRON: dict[str, Key] = {
    "tp_degree": Key("integer", least=1),
    "pp_degree": Key("integer", least=1),
    "num_micro_batches": Key("integer", null=True, least=1),
    "gradient_clipping": Key("number"),
    "use_custom_fsdp": _FLAG,
    "no_load_optim": _FLAG_OR_NULL,
    "no_save_optim": _FLAG_OR_NULL,
    "eod_mask_loss": _FLAG_OR_NULL,
    "overlap_cpu_optimizer_d2h_h2d": _FLAG_OR_NULL,
    "optimizer_cpu_offload": _FLAG_OR_NULL,
    "use_precision_aware_optimizer": _FLAG_OR_NULL,
    "decoder_last_pipeline_num_layers": Key("integer", null=True),
    "sequence_parallelism": _FLAG_OR_NULL,
    "recompute_activations": _FLAG_OR_NULL,
    "use_distributed_optimizer": _FLAG_OR_NULL,
    "recompute_granularity": _TEXT,
    "recompute_method": _TEXT,
    "recompute_num_layers": Key("integer", null=True),
    "attention_backend": _FLAG_OR_NULL,  # read with str_to_bool, despite its name
    "expert_model_parallel_size": Key("integer", null=True),
    "context_parallel_size": Key("integer", null=True),
    "attention_dropout": Key("number", null=True),
    "hidden_dropout": Key("number", null=True),
    "attention_softmax_in_fp32": _FLAG_OR_NULL,
    "expert_tensor_parallel_size": Key("integer", null=True),
    "calculate_per_token_loss": _FLAG_OR_NULL,
    "use_rotary_position_embeddings": _FLAG_OR_NULL,
}

MEGATRON = Section(
    "megatron_lm_config",
    "megatron_lm_",
    {f"megatron_lm_{name}": key for name, key in _MEGATRON.items()},
    ("MEGATRON_LM",),
    renamed={
        **{name: f"megatron_lm_{name}" for name in _MEGATRON},
        # Names of Megatron-LM's own arguments and of parallelism_config.
        "megatron_lm_tp_size": "megatron_lm_tp_degree",
        "megatron_lm_pp_size": "megatron_lm_pp_degree",
        "megatron_lm_tensor_model_parallel_size": "megatron_lm_tp_degree",
        "megatron_lm_pipeline_model_parallel_size": "megatron_lm_pp_degree",
        "tp_size": "megatron_lm_tp_degree",
        "pp_size": "megatron_lm_pp_degree",
    },
)

DYNAMO = Section(
    "dynamo_config",
    "dynamo_",
    {
        "dynamo_backend": Key("choice", DYNAMO_BACKENDS, null=True),
        "dynamo_mode": Key(
            "choice",
            DYNAMO_MODES,
            exact=True,
            plain=True,
            also=lambda name: not name,
            read=lambda values: _uses_inductor(values),
        ),
        "dynamo_use_dynamic": _FLAG,
        "dynamo_use_fullgraph": _FLAG,
        "dynamo_use_regional_compilation": _FLAG,
    },
    # Not DEEPSPEED: prepare_deepspeed_cmd_env exports none of them.
    ("NO", "MULTI_CPU", *ACCELERATORS, "FSDP", "MEGATRON_LM"),
    root="dynamo_",
    renamed={"dynamo_fullgraph": "dynamo_use_fullgraph", "dynamo_dynamic": "dynamo_use_dynamic"},
)

FP8 = Section(
    "fp8_config",
    "fp8_",
    {
        "fp8_backend": Key("choice", ("TE", "AO", "MSAMP", "NO"), exact=True, null=True),
        "fp8_use_autocast_during_eval": Key("flag", null=True, read=_fp8("TE")),
        "fp8_margin": _TE_INTEGER,
        "fp8_interval": _TE_INTEGER,
        "fp8_format": Key("choice", ("HYBRID", "E4M3", "E5M2"), null=True, read=_fp8("TE")),
        "fp8_amax_history_len": _TE_INTEGER,
        "fp8_amax_compute_algo": Key("choice", ("max", "most_recent"), null=True, read=_fp8("TE")),
        "fp8_override_linear_precision": Key("triple", null=True, read=_fp8("TE")),
        "fp8_use_mxfp8_block_scaling": Key("flag", null=True, read=_fp8("TE")),
        "fp8_opt_level": Key("choice", ("O1", "O2"), exact=True, null=True, read=_fp8("MSAMP")),
        "fp8_enable_fsdp_float8_all_gather": Key("flag", null=True, read=_fp8("AO")),
        "fp8_pad_inner_dim": Key("flag", null=True, read=_fp8("AO")),
    },
    ("NO", "MULTI_CPU", *ACCELERATORS, "FSDP", "DEEPSPEED", "MEGATRON_LM"),
    root="fp8",
    renamed={
        # Written by accelerate's own wizard, read by no recipe.
        "fp8_amax_history_length": "fp8_amax_history_len",
        "fp8_amax_compute_algorithm": "fp8_amax_compute_algo",
        "fp8_optimization_level": "fp8_opt_level",
    },
)

MPIRUN = Section(
    "mpirun_config",
    "mpirun_",
    {"mpirun_hostfile": _TEXT, "bind-to": _TEXT},
    ("NO", "MULTI_CPU"),
    renamed={"hostfile": "mpirun_hostfile"},
    unread={"mpirun_ccl": "accelerate 1.13 removed oneCCL support"},
)

SECTIONS = (FP8, DEEPSPEED, FSDP, PARALLELISM, MEGATRON, MPIRUN, DYNAMO)  # in the launcher's order

# Launcher arguments that belong to no section. In a section whose keys get no prefix they are applied anyway,
# and override the top-level key.
LAUNCHER = (
    "cpu", "debug", "downcast_bf16", "enable_cpu_affinity", "gpu_ids", "log_dir", "machine_rank", "main_process_ip",
    "main_process_port", "main_training_function", "max_restarts", "mixed_precision", "module", "monitor_interval",
    "multi_gpu", "no_python", "num_cpu_threads_per_process", "num_machines", "num_processes", "quiet", "rdzv_backend",
    "rdzv_conf", "role", "same_network", "tee", "tpu", "tpu_use_cluster", "tpu_use_sudo", "use_cpu", "use_deepspeed",
    "use_fsdp", "use_megatron_lm", "use_parallelism_config",
)

# Settings of DeepSpeed's own JSON file, at its top level and in zero_optimization.
DEEPSPEED_JSON = frozenset({
    "activation_checkpointing", "aio", "allgather_bucket_size", "allgather_partitions", "amp", "autotuning", "bf16",
    "bfloat16", "checkpoint", "comms_logger", "communication_data_type", "compression_training", "contiguous_gradients",
    "csv_monitor", "curriculum_learning", "data_efficiency", "data_types", "disable_allgather", "dump_state",
    "elasticity", "flops_profiler", "fp16", "gradient_predivide_factor", "load_from_fp32_weights",
    "memory_breakdown", "offload_optimizer", "offload_param", "optimizer", "overlap_comm", "prescale_gradients",
    "reduce_bucket_size", "reduce_scatter", "round_robin_gradients", "scheduler",
    "seq_parallel_communication_data_type", "sparse_attention", "sparse_gradients",
    "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
    "stage3_max_live_parameters", "stage3_max_reuse_distance",
    "stage3_param_persistence_threshold", "stage3_prefetch_bucket_size", "steps_per_print", "sub_group_size",
    "tensor_parallel", "tensorboard", "train_batch_size", "train_micro_batch_size_per_gpu", "wall_clock_breakdown",
    "wandb", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "zero_optimization",
    "zero_quantized_gradients", "zero_quantized_weights",
})
# fmt: on


def precision(config: Config) -> str:
    """Return mixed_precision as accelerate reads it."""
    return config.precision


def is_applied(config: Config, section: Section) -> bool:
    """Whether the launcher passes this section to the workers, given the distributed type."""
    return config.distributed_type in section.types and (section is not FP8 or precision(config) == "fp8")


def entries(config: Config, section: Section) -> dict[str, str]:
    """Map the launcher's name of each key in the section to its dotted key in the file; the last one wins."""
    values = config.values.get(section.name)
    if not isinstance(values, Mapping):
        return {}
    return {section.canonical(key): f"{section.name}.{key}" for key in values}


def settings(config: Config, section: Section) -> dict[str, Any]:
    """Return the section's values under the launcher's names; empty if it is not a mapping or does not apply."""
    values = config.values.get(section.name)
    if not isinstance(values, Mapping) or not is_applied(config, section):
        return {}
    return {section.canonical(key): value for key, value in values.items()}


def fsdp_settings(config: Config) -> Mapping[str, Any]:
    """Return the values of fsdp_config; empty if it does not apply."""
    return settings(config, FSDP) if is_readable(config) else {}


def deepspeed_settings(config: Config) -> Mapping[str, Any]:
    """Return the values of deepspeed_config; empty if it does not apply."""
    return settings(config, DEEPSPEED) if is_readable(config) else {}


def readable_deepspeed_file(config: Config) -> DeepSpeedFile | None:
    """Return the DeepSpeed file that the config names, if it applies and could be parsed."""
    found = config.deepspeed_file if "deepspeed_config_file" in deepspeed_settings(config) else None
    return found if found is not None and (found.exists or found.start) and found.fault is None else None


def skip_without_fsdp(config: Config) -> Skip | None:
    """Skip a config without an fsdp_config that applies."""
    return None if fsdp_settings(config) else Skip(NOT_FSDP)


def skip_without_deepspeed(config: Config) -> Skip | None:
    """Skip a config without a deepspeed_config that applies."""
    return None if deepspeed_settings(config) else Skip("the config has no deepspeed_config that applies")


def nested_keys(config: Config) -> Iterator[tuple[Section, str, str, Any]]:
    """Yield every key of the file in the sections that apply: section, the launcher's name, the dotted key, the value.

    Not those that only the command line of a job sets: the launcher's own parser rejects them if they are wrong.
    """
    for section in SECTIONS:
        values = settings(config, section)
        for name, dotted in entries(config, section).items():
            if name in values and is_in_file(config, dotted):
                yield section, name, dotted, values[name]


def enables_compilation(values: Mapping[str, Any]) -> bool:
    """Whether the dynamo section turns on torch.compile."""
    backend = values.get("dynamo_backend")
    return isinstance(backend, str) and backend.upper() != "NO"


def _needs_fixed_length(values: Mapping[str, Any]) -> bool:
    """Whether sequence parallelism needs one length for all sequences."""
    variable = str(values.get("parallelism_config_sp_seq_length_is_variable", True)).lower() == "true"
    return integer(values.get("parallelism_config_sp_size")) not in (None, 1) and not variable


def _uses_inductor(values: Mapping[str, Any]) -> bool:
    """Whether the backend is inductor, the only one that reads a mode and rejects unknown ones."""
    return intended_name(str(values.get("dynamo_backend")), DYNAMO_BACKENDS) == "INDUCTOR"
