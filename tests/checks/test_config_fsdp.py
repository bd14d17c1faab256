"""checks/config: fsdp_config, its two versions, and what it wraps."""

from __future__ import annotations

import pytest

from tests.checks.facts import Case, config, fails, informs, no_driver, skips, table, warns, well
from tests.checks.sections import DDP, fsdp, fsdp2

SPLIT = config(
    "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\nnum_machines: 1\n"
    "parallelism_config:\n  parallelism_config_cp_size: 2\n"
)
SIZES = (
    "distributed_type: MULTI_GPU\nnum_processes: 2\nparallelism_config:\n  parallelism_config_dp_replicate_size: 1\n"
)
CASES = (
    # config_fsdp_key_of_other_version
    warns("config_fsdp_key_of_other_version",
        "fsdp_config.fsdp_reshard_after_forward: 'SHARD_GRAD_OP' is not applied with FSDP 1: fsdp_sharding_strategy:"
        " FULL_SHARD applies", "Write it as fsdp_sharding_strategy: SHARD_GRAD_OP",
        at=(6, 3), config=fsdp("fsdp_reshard_after_forward: SHARD_GRAD_OP")),
    warns("config_fsdp_key_of_other_version", "fsdp_reshard_after_forward: false is not applied with FSDP 1",
        "Write it as fsdp_sharding_strategy: SHARD_GRAD_OP", at=(6, 3),
        config=fsdp("fsdp_reshard_after_forward: false")),
    well("config_fsdp_key_of_other_version", "sets its default", config=fsdp("fsdp_reshard_after_forward: true")),
    warns("config_fsdp_key_of_other_version", "fsdp_sharding_strategy: NO_SHARD applies", "Delete it", at=(6, 3),
        config=fsdp("fsdp_reshard_after_forward: FULL_SHARD", "fsdp_sharding_strategy: NO_SHARD")),
    warns("config_fsdp_key_of_other_version", "fsdp_config.fsdp_sharding_strategy: 'SHARD_GRAD_OP' is not applied with"
        " FSDP 2", "fsdp_reshard_after_forward: false", at=(7, 3),
        config=fsdp2("fsdp_sharding_strategy: SHARD_GRAD_OP")),
    warns("config_fsdp_key_of_other_version", "fsdp_sharding_strategy: 4 is not applied", "parallelism_config",
        at=(7, 3), config=fsdp2("fsdp_sharding_strategy: 4")),
    warns("config_fsdp_key_of_other_version", "fsdp_forward_prefetch: true is not applied with FSDP 2", "Delete it",
        at=(7, 3), config=fsdp2("fsdp_forward_prefetch: true")),
    warns("config_fsdp_key_of_other_version", "fsdp_backward_prefetch: 'BACKWARD_PRE' is not applied", "Delete it",
        at=(7, 3), config=fsdp2("fsdp_backward_prefetch: BACKWARD_PRE")),
    well("config_fsdp_key_of_other_version", "every key has an effect with FSDP 1",
        config=fsdp("fsdp_reshard_after_forward: FULL_SHARD")),
    well("config_fsdp_key_of_other_version", "every key has an effect with FSDP 2", config=fsdp2(
        "fsdp_use_orig_params: true", "fsdp_forward_prefetch: false", "fsdp_backward_prefetch: NO_PREFETCH",
        "fsdp_sharding_strategy: FULL_SHARD")),
    skips("config_fsdp_key_of_other_version", "no fsdp_config", config=DDP),
    # config_fsdp_loading_conflict
    fails("config_fsdp_loading_conflict", "fsdp_config.fsdp_sync_module_states: false contradicts"
        " fsdp_cpu_ram_efficient_loading, which is true", "Delete the line", at=(7, 3),
        config=fsdp("fsdp_cpu_ram_efficient_loading: true", "fsdp_sync_module_states: false")),
    fails("config_fsdp_loading_conflict", "which is on by default", "Delete the line", at=(7, 3),
        config=fsdp2("fsdp_sync_module_states: false")),
    fails("config_fsdp_loading_conflict", "which is 'false'", "fsdp_cpu_ram_efficient_loading: false", at=(7, 3),
        config=fsdp("cpu_ram_efficient_loading: 'false'", "sync_module_states: false")),
    well("config_fsdp_loading_conflict", "are consistent",
        config=fsdp("fsdp_cpu_ram_efficient_loading: false", "fsdp_sync_module_states: false")),
    skips("config_fsdp_loading_conflict", "no fsdp_config", config=DDP),
    # config_fsdp_setting_unsupported
    fails("config_fsdp_setting_unsupported", "fsdp_config.fsdp_state_dict_type is LOCAL_STATE_DICT, which",
        "SHARDED_STATE_DICT", at=(7, 3), config=fsdp2("fsdp_state_dict_type: LOCAL_STATE_DICT")),
    fails("config_fsdp_setting_unsupported", "needs fsdp_activation_checkpointing: true", "checkpointing: true",
        at=(7, 3), config=fsdp2("fsdp_activation_checkpointing_offload: true")),
    fails("config_fsdp_setting_unsupported", "needs FSDP 2", "fsdp_version: 2", at=(7, 3), config=fsdp(
        "fsdp_activation_checkpointing: true", "fsdp_activation_checkpointing_offload: true")),
    fails("config_fsdp_setting_unsupported", "fsdp_config: torchao's fp8 is incompatible with", "loading: false",
        at=(5, 1),
        config=fsdp2(precision="fp8", more="fp8_config:\n  backend: AO\n")),
    fails("config_fsdp_setting_unsupported", "FSDP is incompatible with MS-AMP's fp8", "TE or AO", at=(6, 3),
        config=fsdp2(precision="fp8", more="fp8_config:\n  backend: MSAMP\n")),
    well("config_fsdp_setting_unsupported", "FSDP 1 supports", config=fsdp("fsdp_state_dict_type: LOCAL_STATE_DICT")),
    skips("config_fsdp_setting_unsupported", "no fsdp_config", config=DDP),
    # config_fsdp_layer_unreadable
    fails("config_fsdp_layer_unreadable", "fsdp_config.fsdp_transformer_layer_cls_to_wrap: ['A', 'B'] is a list",
        "or write A,B if the model has", at=(7, 3),
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap: [A, B]")),
    fails("config_fsdp_layer_unreadable", "has spaces", "Delete it to use the model's own _no_split_modules, or write "
        "LlamaDecoderLayer: in transformers", at=(7, 3),
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap: LlamaLayer, LlamaBlock")),
    fails("config_fsdp_layer_unreadable", "'' names no class", "Delete it", at=(7, 3),
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap: ''")),
    fails("config_fsdp_layer_unreadable", "'A, B' has spaces or empty names", "or write A,B if", at=(7, 3),
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap: A, B")),
    well("config_fsdp_layer_unreadable", "A,B",
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap: 'A,B'")),
    well("config_fsdp_layer_unreadable", "own list",
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap: null")),
    skips("config_fsdp_layer_unreadable", "no layer class", config=fsdp("fsdp_version: 2")),
    # config_fsdp_layer_unused
    warns("config_fsdp_layer_unused", "is not applied without fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "Write fsdp_auto_wrap_policy", at=(6, 3), config=fsdp("fsdp_transformer_layer_cls_to_wrap: Block")),
    warns("config_fsdp_layer_unused", "0 wraps nothing", "1000000", at=(7, 3),
        config=fsdp("fsdp_auto_wrap_policy: SIZE_BASED_WRAP", "fsdp_min_num_params: 0")),
    well("config_fsdp_layer_unused", "SIZE_BASED_WRAP", config=fsdp("fsdp_auto_wrap_policy: SIZE_BASED_WRAP")),
    skips("config_fsdp_layer_unused", "no fsdp_config", config=DDP),
    # config_fsdp_layer_unnamed
    informs("config_fsdp_layer_unnamed", "no layer class is set", "your own model", at=(6, 3),
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP")),
    # config_fsdp_policy_missing
    warns("config_fsdp_policy_missing", "FSDP 2 without fsdp_auto_wrap_policy: the whole model is one unit",
        "Write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", at=(5, 1), config=fsdp("fsdp_version: 2")),
    well("config_fsdp_policy_missing", "NO_WRAP", config=fsdp("fsdp_auto_wrap_policy: NO_WRAP")),
    well("config_fsdp_policy_missing", "covered by", config=fsdp("fsdp_transformer_layer_cls_to_wrap: Block")),
    well("config_fsdp_policy_missing", "one rank",
        config=config("distributed_type: FSDP\nnum_processes: 1\nfsdp_config: {fsdp_version: 2}\n")),
    skips("config_fsdp_policy_missing", "no fsdp_config", config=DDP),
    well("config_fsdp_layer_unnamed", "NO_WRAP", config=fsdp("fsdp_auto_wrap_policy: NO_WRAP")),
    well("config_fsdp_layer_unnamed", "TRANSFORMER_BASED_WRAP",
        config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap: Block")),
    skips("config_fsdp_layer_unnamed", "no fsdp_config", config=DDP),
    # config_one_rank_splits_nothing
    informs("config_one_rank_splits_nothing", "FSDP with num_processes: 1 shards nothing, unless --num_processes",
        "number of GPUs", at=(2, 1),
        config=config("distributed_type: FSDP\nnum_processes: 1\nfsdp_config: {fsdp_version: 2}\n")),
    well("config_one_rank_splits_nothing", "more than one", config=fsdp("fsdp_version: 2")),
    well("config_one_rank_splits_nothing", "with offloading", config=config(
        "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config: {offload_optimizer_device: cpu}\n")),
    skips("config_one_rank_splits_nothing", "does not shard", config=DDP),
    # config_fsdp_not_on_cpu
    warns("config_fsdp_not_on_cpu", "FSDP 2 on the CPU is not applied: the ranks train as plain DDP", "dry run.",
        at=(1, 1), config=fsdp("fsdp_version: 2"), driver=no_driver()),
    well("config_fsdp_not_on_cpu", "not FSDP 2", config=fsdp("fsdp_version: 1"), driver=no_driver()),
    well("config_fsdp_not_on_cpu", "has NVIDIA GPUs", config=fsdp("fsdp_version: 2")),
    skips("config_fsdp_not_on_cpu", "no fsdp_config", config=DDP, driver=no_driver()),
    skips("config_fsdp_not_on_cpu", "no rank starts on the CPU", config=SPLIT, driver=no_driver()),
    well("config_fsdp_not_on_cpu", "has NVIDIA GPUs", config=SPLIT),
    # config_parallelism_needs_gpu
    warns("config_parallelism_needs_gpu", "cp 2 on the CPU does not start", "machine with GPUs", at=(6, 3),
        config=SPLIT, driver=no_driver()),
    warns("config_parallelism_needs_gpu", "dp_replicate 2 on the CPU does not start", "smoke-test --cpu 2",
        config=config(SIZES.replace("size: 1", "size: 2")), driver=no_driver()),
    well("config_parallelism_needs_gpu", "all sizes are 1", config=config(SIZES), driver=no_driver()),
    well("config_parallelism_needs_gpu", "has NVIDIA GPUs", config=SPLIT),
    skips("config_parallelism_needs_gpu", "no parallelism_config", config=DDP, driver=no_driver()),
    # config_runs_on_cpu
    skips("config_runs_on_cpu", "no rank of this config starts", config=SPLIT, driver=no_driver()),
    skips("config_runs_on_cpu", "no rank of this config starts", config=fsdp("fsdp_version: 1"), driver=no_driver()),
    informs("config_runs_on_cpu", "ranks on the CPU", "dry run", config=fsdp("fsdp_version: 2"), driver=no_driver()),
    informs("config_runs_on_cpu", "2 ranks on the CPU", "dry run", config=config(SIZES), driver=no_driver()),
    # config_fsdp1_needs_gpu
    warns("config_fsdp1_needs_gpu", "FSDP 1 on the CPU does not start", "machine with GPUs", at=(1, 1),
        config=fsdp("fsdp_version: 1"), driver=no_driver()),
    well("config_fsdp1_needs_gpu", "not FSDP 1", config=fsdp("fsdp_version: 2"), driver=no_driver()),
    well("config_fsdp1_needs_gpu", "has NVIDIA GPUs", config=fsdp("fsdp_version: 1")),
    skips("config_fsdp1_needs_gpu", "no fsdp_config", config=DDP, driver=no_driver()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
