"""checks/config: the nested sections, their keys and values, and what may be mended unasked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.check import Edit
from mgpu.snapshot import Config
from tests.checks.facts import Case, config, fails, informs, no_driver, problem, pytorch, skips, table, warns, well
from tests.checks.sections import BROKEN, DDP, STAGE2, dynamo, fp8, fsdp, fsdp2, megatron, mesh, named, of, zero

SECTIONS = (
    # config_section_unreadable
    fails("config_section_unreadable", "deepspeed_config is 'ds.json', not keys", "deepspeed_config_file",
        at=(3, 1), config=config("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: ds.json\n")),
    fails("config_section_unreadable", "deepspeed_config is a list", "Write its keys below it",
        at=(5, 1), config=of("DEEPSPEED", "deepspeed_config", "- zero_stage: 2")),
    well("config_section_unreadable", "has keys", config=zero("zero_stage: 2")),
    well("config_section_unreadable", "has keys", config=of("DEEPSPEED", "deepspeed_config")),
    skips("config_section_unreadable", "not DEEPSPEED", config=of("FSDP", "deepspeed_config", "- zero_stage: 2")),
    skips("config_section_unreadable", "cannot be read", config=BROKEN),
    # config_section_not_mapping
    warns("config_section_not_mapping", "fsdp_config is a list, not keys with values: accelerate ignores it",
        "Write fsdp_config:", at=(5, 1), config=of("FSDP", "fsdp_config", "- fsdp_version: 2")),
    warns("config_section_not_mapping", "dynamo_config is 'inductor', not keys", "Write dynamo_config:",
        at=(3, 1), config=config("distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_config: inductor\n")),
    well("config_section_not_mapping", "1 section with keys", config=fsdp("fsdp_version: 2")),
    well("config_section_not_mapping", "0 sections", config=config("distributed_type: FSDP\nfsdp_config:\n")),
    well("config_section_not_mapping", "0 sections", config=of("DEEPSPEED", "deepspeed_config", "- zero_stage: 2")),
    skips("config_section_not_mapping", "cannot be read", config=BROKEN),
    # config_section_ignored
    warns("config_section_ignored", "fsdp_config is ignored with distributed_type MULTI_GPU",
        "Delete the section", at=(5, 1), config=of("MULTI_GPU", "fsdp_config", "fsdp_version: 2")),
    warns("config_section_ignored", "deepspeed_config is ignored with distributed_type FSDP", "Delete the section",
        at=(3, 1), config=config("distributed_type: FSDP\nnum_processes: 4\ndeepspeed_config: {zero_stage: 2}\n")),
    warns("config_section_ignored", "fsdp_config is ignored with distributed_type NO", "Delete the section",
        at=(2, 1), config=config("distributed_type: NO\nfsdp_config: {fsdp_version: 2}\n")),
    warns("config_section_ignored", "dynamo_config is ignored with distributed_type DEEPSPEED", "Compile in the script",
        at=(5, 1), config=of("DEEPSPEED", "dynamo_config", "dynamo_backend: INDUCTOR")),
    warns("config_section_ignored", "fp8_config is ignored with mixed_precision bf16", "Delete the section",
        at=(5, 1), config=of("MULTI_GPU", "fp8_config", "backend: TE")),
    warns("config_section_ignored", "mpirun_config is ignored with distributed_type MULTI_GPU", "Delete the section",
        at=(5, 1), config=of("MULTI_GPU", "mpirun_config", "mpirun_hostfile: hosts")),
    warns("config_section_ignored", "parallelism_config is ignored with distributed_type NO", "Delete the section",
        at=(5, 1), config=of("'NO'", "parallelism_config", "parallelism_config_tp_size: 2")),
    warns("config_section_ignored", "dynamo_backend: 'INDUCTOR' is ignored with distributed_type DEEPSPEED",
        "Compile in the script", at=(7, 1), config=zero("zero_stage: 2", more="dynamo_backend: INDUCTOR\n")),
    well("config_section_ignored", "belongs to the type", config=zero("zero_stage: 2", more="dynamo_backend: 'NO'\n")),
    well("config_section_ignored", "belongs to the type",
        config=of("DEEPSPEED", "dynamo_config", "dynamo_backend: 'no'")),
    well("config_section_ignored", "belongs to the type", config=fsdp("fsdp_version: 2")),
    well("config_section_ignored", "belongs to the type",
        config=config("distributed_type: MULTI_GPU\nfsdp_config: {}\n")),
    warns("config_section_ignored", "deepspeed_config is ignored with distributed_type MULTI_GPU", "to a JSON file",
        at=(5, 1), config=of("MULTI_GPU", "deepspeed_config", "zero_optimization: {stage: 3}")),
    warns("config_section_ignored", "fsdp_config is ignored with --use_deepspeed", "Delete the section", at=(5, 1),
        config=replace(of("DEEPSPEED", "fsdp_config", "fsdp_version: 2"), given=("use_deepspeed",))),
    skips("config_section_ignored", "not known", config=config("num_processes: 4\n")),
    # config_section_missing
    informs("config_section_missing", "distributed_type FSDP without fsdp_config", "mgpu configure",
        at=(1, 1), config=config("distributed_type: FSDP\nnum_processes: 4\n")),
    informs("config_section_missing", "distributed_type DEEPSPEED without deepspeed_config", "mgpu configure",
        at=(1, 1), config=config("distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {}\n")),
    informs("config_section_missing", "--use_fsdp without fsdp_config", "mgpu configure", at=(1, 1),
        config=replace(config("distributed_type: FSDP\nnum_processes: 4\n"), given=("use_fsdp",))),
    well("config_section_missing", "MULTI_GPU has the section"),
    well("config_section_missing", "FSDP has the section", config=fsdp("fsdp_version: 2")),
    skips("config_section_missing", "not known", config=BROKEN),
    # config_section_key_unknown
    warns("config_section_key_unknown",
        "fsdp_config.fsdp_auto_wrap_polcy is not applied: accelerate has no such key. Did you mean"
        " fsdp_auto_wrap_policy?", "Write it as fsdp_auto_wrap_policy", at=(6, 3),
        config=fsdp("fsdp_auto_wrap_polcy: NO_WRAP")),
    warns("config_section_key_unknown", "deepspeed_config.bf16 is not applied: it belongs in DeepSpeed's own JSON",
        "name the file in deepspeed_config_file", at=(6, 3), config=zero("bf16:", "  enabled: true")),
    warns("config_section_key_unknown",
        "deepspeed_config.zero3_prefetch_bucket_size is not applied: accelerate has no such key", "DeepSpeed's own",
        at=(6, 3), config=zero("zero3_prefetch_bucket_size: 1")),
    warns("config_section_key_unknown", "bf16 and optimizer in deepspeed_config are not applied: they belong",
        "JSON", at=(6, 3), config=zero("bf16: {enabled: true}", "optimizer: {type: Adam}")),
    warns("config_section_key_unknown", "deepspeed_config.zero_optimization is not applied", "Move it to a JSON file",
        at=(6, 3), config=zero("zero_optimization: {stage: 3}")),
    well("config_section_key_unknown", "0 nested keys",  # of the command line: the launcher's parser checks it
        config=replace(DDP, values={**DDP.values, "distributed_type": "FSDP", "fsdp_config": {"fsdp_x": 1}},
            given=("use_fsdp", "fsdp_x"))),
    warns("config_section_key_unknown", "fsdp_config.zero_stage is not applied", "it belongs in deepspeed_config",
        at=(6, 3), config=fsdp("zero_stage: 2")),
    warns("config_section_key_unknown", "fsdp_config.mixed_precision is not applied", "the top level sets it",
        at=(6, 3), config=fsdp("mixed_precision: bf16")),
    warns("config_section_key_unknown", "dynamo_config.dynamo_backnd", "Write it as dynamo_backend",
        at=(6, 3), config=dynamo("dynamo_backnd: INDUCTOR")),
    well("config_section_key_unknown", "2 nested keys, all known",
        config=fsdp("fsdp_version: 2", "offload_params: true")),
    well("config_section_key_unknown", "0 nested keys", config=DDP),
    skips("config_section_key_unknown", "cannot be read", config=BROKEN),
    # config_section_key_renamed
    warns("config_section_key_renamed", "fsdp_config.fsdp_backward_prefetch_policy: 'BACKWARD_PRE' is not applied:"
        " accelerate reads fsdp_backward_prefetch", "Write it as fsdp_backward_prefetch: 'BACKWARD_PRE'",
        at=(6, 3), config=fsdp("fsdp_backward_prefetch_policy: BACKWARD_PRE")),
    warns("config_section_key_renamed", "which the file also sets", "Delete it", at=(7, 3),
        config=fsdp("fsdp_backward_prefetch: BACKWARD_PRE", "fsdp_backward_prefetch_policy: BACKWARD_POST")),
    warns("config_section_key_renamed", "fp8_config.amax_history_length: 16 is not applied: accelerate reads"
        " fp8_amax_history_len", "Write", at=(7, 3), config=fp8("backend: TE", "amax_history_length: 16")),
    warns("config_section_key_renamed", "parallelism_config.dp_shard_size: 4 is not applied: accelerate reads"
        " parallelism_config_dp_shard_size", "Write them as parallelism_config_dp_shard_size: 4", at=(5, 23),
        config=config("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 4\n"
            "parallelism_config:  {dp_shard_size: 4}\n")),
    well("config_section_key_renamed", "current name", config=fsdp("fsdp_backward_prefetch: BACKWARD_PRE")),
    skips("config_section_key_renamed", "cannot be read", config=BROKEN),
    # config_section_key_unread
    warns("config_section_key_unread", "fsdp_config.fsdp_limit_all_gathers has no effect", "Delete it",
        at=(6, 3), config=fsdp("fsdp_limit_all_gathers: true")),
    warns("config_section_key_unread", "deepspeed_config.offload_param_nvme_path has no effect", "Delete it",
        at=(6, 3), config=zero("offload_param_nvme_path: /nvme")),
    well("config_section_key_unread", "every nested key is read", config=zero("offload_param_nvme_path:")),
    well("config_section_key_unread", "every nested key is read",
        config=zero("offload_param_nvme_path: /nvme", "offload_param_device: nvme")),
    skips("config_section_key_unread", "cannot be read", config=BROKEN),
    # config_section_key_misplaced
    warns("config_section_key_misplaced",
        "mpirun_config.num_processes: 8 is a top-level key, but is applied from here and overrides num_processes: 4",
        "at the top level", at=(6, 3),
        config=of("MULTI_CPU", "mpirun_config", "num_processes: 8")),
    warns("config_section_key_misplaced", "deepspeed_config.mixed_precision: 'bf16'", "top level", at=(6, 3),
        config=zero("mixed_precision: bf16")),
    well("config_section_key_misplaced", "no section has a top-level key", config=zero("zero_stage: 2")),
    skips("config_section_key_misplaced", "cannot be read", config=BROKEN),
    # config_section_value_invalid
    fails("config_section_value_invalid", "fsdp_config.fsdp_auto_wrap_policy: 'TRANSFORMER' is not one of"
        " TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP. Did you mean TRANSFORMER_BASED_WRAP?",
        "Write 'TRANSFORMER_BASED_WRAP'", at=(6, 3), config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER")),
    fails("config_section_value_invalid", "fsdp_config.fsdp_version: 3 is not a number from 1 to 2", "from 1 to 2",
        at=(6, 3), config=fsdp("fsdp_version: 3")),
    fails("config_section_value_invalid", "fsdp_config.fsdp_sharding_strategy: 'FULLSHARD' is not one of", "FULL_SHARD",
        at=(6, 3), config=fsdp("fsdp_sharding_strategy: FULLSHARD")),
    fails("config_section_value_invalid", "fsdp_config.fsdp_offload_params has no value", "delete it", at=(6, 3),
        config=fsdp("fsdp_offload_params:")),
    fails("config_section_value_invalid", "fsdp_config.fsdp_reshard_after_forward: 'FULL_SHARD' is not true or false",
        "Write true or false", at=(7, 3), config=fsdp2("fsdp_reshard_after_forward: FULL_SHARD")),
    fails("config_section_value_invalid", "deepspeed_config.zero_stage: 9 is not a number from 0 to 3", "0 to 3",
        at=(6, 3), config=zero("zero_stage: 9")),
    fails("config_section_value_invalid", "deepspeed_config.zero_stage: 2.0 is not a whole number", "Write 2",
        at=(6, 3), config=zero("zero_stage: 2.0")),
    fails("config_section_value_invalid",
        "deepspeed_config.offload_param_device: YAML reads an unquoted no as false",
        "Write 'none'", at=(6, 3), config=zero("offload_param_device: no")),
    fails("config_section_value_invalid", "deepspeed_config.gradient_clipping: 'x' is not a number", "a number",
        at=(6, 3), config=zero("gradient_clipping: x")),
    fails("config_section_value_invalid",
        "dynamo_config.dynamo_backend: YAML reads an unquoted no as false. Did you mean NO?", "Write 'NO'",
        at=(6, 3), config=dynamo("dynamo_backend: no")),
    fails("config_section_value_invalid", "dynamo_config.dynamo_mode: 'fastest' is not one of", "max-autotune",
        at=(7, 3), config=dynamo("dynamo_backend: INDUCTOR", "dynamo_mode: fastest")),
    fails("config_section_value_invalid", "fp8_config.backend: 'te' is not one of TE, AO", "Write 'TE'", at=(6, 3),
        config=fp8("backend: te")),
    fails("config_section_value_invalid", "fp8_config.override_linear_precision: true is not a list of three", "[false",
        at=(7, 3), config=fp8("backend: TE", "override_linear_precision: true")),
    fails("config_section_value_invalid", "override_linear_precision: '(false, true, false)' is not a list of three",
        "Write [false, true, false]", at=(7, 3),
        config=fp8("backend: TE", "override_linear_precision: (false, true, false)")),
    fails("config_section_value_invalid", "parallelism_config.parallelism_config_cp_size: '4' is not a whole number",
        "Write 4", at=(6, 3), config=mesh("cp_size: '4'")),
    fails("config_section_value_invalid", "megatron_lm_config.megatron_lm_attention_backend: 'flash' is not true or",
        "true or false", at=(6, 3), config=megatron("megatron_lm_attention_backend: flash")),
    well("config_section_value_invalid", "can be read",
        config=fsdp("fsdp_sharding_strategy: 1", "offload_params: 'no'")),
    well("config_section_value_invalid", "can be read", config=fsdp2("fsdp_sharding_strategy: FULLSHARD")),
    well("config_section_value_invalid", "can be read", config=dynamo("dynamo_backend: inductor")),
    skips("config_section_value_invalid", "cannot be read", config=BROKEN),
    # config_section_value_misread
    warns("config_section_value_misread", "deepspeed_config.zero3_save_16bit_model: 'yes' counts as false",
        "true or false", at=(6, 3), config=zero("zero3_save_16bit_model: 'yes'")),
    well("config_section_value_misread", "as written", config=zero("zero3_save_16bit_model: true")),
    skips("config_section_value_misread", "cannot be read", config=BROKEN),
)  # fmt: skip

PARALLEL = (
    # config_parallel_sizes_mismatch
    fails("config_parallel_sizes_mismatch", "dp_shard 2 = 2, but num_processes is 4", "product is 4",
        at=(6, 3), config=mesh("dp_shard_size: 2")),
    well("config_parallel_sizes_mismatch", "dp_shard 2 x tp 2 = 4 ranks",
        config=mesh("dp_shard_size: 2", "tp_size: 2")),
    well("config_parallel_sizes_mismatch", "no mesh", config=mesh("sp_size: 2", kind="DEEPSPEED")),
    skips("config_parallel_sizes_mismatch", "no parallelism_config", config=DDP),
    # config_parallel_kind_invalid
    fails("config_parallel_kind_invalid", "cp_size and sp_size are both above 1", "Keep one", at=(6, 3),
        config=mesh("cp_size: 2", "sp_size: 2")),
    fails("config_parallel_kind_invalid", "dp_replicate 2 x tp 2: tensor or context", "dp_shard_size above 1",
        at=(6, 3),
        config=mesh("dp_replicate_size: 2", "tp_size: 2")),
    fails("config_parallel_kind_invalid", "FSDP has no dimension to shard along", "Set dp_shard_size", at=(6, 3),
        config=mesh("tp_size: 4")),
    fails("config_parallel_kind_invalid", "does not support FSDP 1", "fsdp_version: 2", at=(6, 3),
        config=of("FSDP", "parallelism_config", "parallelism_config_dp_shard_size: 4")),
    well("config_parallel_kind_invalid", "dp_shard 4 with FSDP", config=mesh("dp_shard_size: 4")),
    well("config_parallel_kind_invalid", "all sizes are 1", config=mesh("tp_size: 1", kind="MULTI_GPU")),
    skips("config_parallel_kind_invalid", "no parallelism_config", config=DDP),
    # config_megatron_sizes_mismatch
    fails("config_megatron_sizes_mismatch", "tp 8 x pp 1 = 8 does not divide the 4 ranks", "whose product divides 4",
        at=(6, 3), config=megatron("megatron_lm_tp_degree: 8")),
    well("config_megatron_sizes_mismatch", "1 x 2 x 2 = 4 ranks",
        config=megatron("megatron_lm_tp_degree: 2", "megatron_lm_pp_degree: 2")),
    skips("config_megatron_sizes_mismatch", "no megatron_lm_config", config=DDP),
)  # fmt: skip

COMPILING = (
    # config_compile_said_twice
    warns("config_compile_said_twice",
        "dynamo_config is not applied: the top-level dynamo_backend: 'INDUCTOR' replaces it", "Delete the top-level",
        at=(5, 1),
        config=dynamo("dynamo_mode: max-autotune", more="dynamo_backend: INDUCTOR\n")),
    well("config_compile_said_twice", "no dynamo_config",
        config=config("distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_backend: INDUCTOR\n")),
    skips("config_compile_said_twice", "no dynamo_backend", config=dynamo("dynamo_backend: INDUCTOR")),
    # config_compile_off
    warns("config_compile_off", "dynamo_config.dynamo_mode: 'max-autotune' has no effect without dynamo_backend",
        "dynamo_backend: INDUCTOR", at=(6, 3), config=dynamo("dynamo_mode: max-autotune")),
    well("config_compile_off", "settings take effect", config=dynamo("dynamo_mode: default",
        "dynamo_use_dynamic: false")),
    well("config_compile_off", "settings take effect", config=dynamo("dynamo_backend: 'NO'",
        "dynamo_mode: max-autotune")),
    skips("config_compile_off", "no dynamo_config", config=DDP),
    # config_fp8_library_missing
    fails("config_fp8_library_missing", "fp8 needs transformer-engine, which is not installed", "pip install",
        at=(6, 3), config=fp8("backend: TE")),
    fails("config_fp8_library_missing", "(torchao from 0.6.1)", "pip install torchao", at=(6, 3),
        config=fp8("backend: AO"), packages={"torchao": "0.5.0"}),
    fails("config_fp8_library_missing", "fp8 needs transformer-engine, torchao or ms-amp", "pip install torchao",
        at=(3, 1), config=config("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp8\n")),
    well("config_fp8_library_missing", "torchao 0.14.1", config=fp8("backend: AO"), packages={"torchao": "0.14.1"}),
    skips("config_fp8_library_missing", "does not use fp8", config=DDP),
    # config_deepspeed_not_installed
    fails("config_deepspeed_not_installed", "deepspeed is not installed", "pip install deepspeed", at=(1, 1),
        config=zero("zero_stage: 2")),
    well("config_deepspeed_not_installed", "deepspeed 0.19.8", config=zero("zero_stage: 2"),
        packages={"deepspeed": "0.19.8"}),
    skips("config_deepspeed_not_installed", "does not use", config=DDP),
    # config_deepspeed_without_transformers
    fails("config_deepspeed_without_transformers", "transformers is not installed", "pip install transformers",
        at=(1, 1), config=zero("zero_stage: 2"), packages={"deepspeed": "0.19.8"}),
    well("config_deepspeed_without_transformers", "transformers 4.57.1", config=zero("zero_stage: 2"),
        packages={"deepspeed": "0.19.8", "transformers": "4.57.1"}),
    skips("config_deepspeed_without_transformers", "does not use", config=DDP),
    skips("config_deepspeed_without_transformers", "on the CPU", config=zero("zero_stage: 2"), driver=no_driver()),
    # config_software_too_old
    fails("config_software_too_old", "FSDP 2 needs torch 2.6, but 2.5.1+cu124 is installed", "upgrade torch",
        at=(6, 3), config=fsdp2(), pytorch=pytorch(version="2.5.1+cu124")),
    fails("config_software_too_old", "tensor parallelism needs transformers 4.52, but 4.44.0 is installed",
        "upgrade", at=(7, 3), config=mesh("dp_shard_size: 2", "tp_size: 2"), packages={"transformers": "4.44.0"}),
    well("config_software_too_old", "FSDP 2 (needs torch 2.6)", config=fsdp2()),
    skips("config_software_too_old", "feature that needs a minimum version", config=DDP),
)  # fmt: skip

CASES = SECTIONS + PARALLEL + COMPILING


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


EDITS: tuple[tuple[str, Config, tuple[Edit, ...]], ...] = (
    ("config_section_key_unknown", fsdp("fsdp_auto_wrap_polcy: NO_WRAP"),
        (Edit("rename", "fsdp_config.fsdp_auto_wrap_polcy", to="fsdp_config.fsdp_auto_wrap_policy"),)),
    # near, and perhaps something else; unmistakable, and its value would stop the launch
    ("config_section_key_unknown", fsdp("fsdp_wrap_policy: NO_WRAP"), ()),
    ("config_section_key_unknown", fsdp("fsdp_auto_wrap_polcy: LAYERS"), ()),
    ("config_section_key_renamed", fsdp("fsdp_backward_prefetch_policy: BACKWARD_PRE"),
        (Edit("rename", "fsdp_config.fsdp_backward_prefetch_policy", to="fsdp_config.fsdp_backward_prefetch"),)),
    ("config_section_key_renamed", fsdp("fsdp_backward_prefetch_policy: 'yes'"), ()),
    ("config_section_key_renamed", fp8("backend: TE", "amax_history_length: 16"),
        (Edit("rename", "fp8_config.amax_history_length", to="fp8_config.fp8_amax_history_len"),)),
    ("config_section_key_unread", fsdp("fsdp_limit_all_gathers: true"),
        (Edit("delete", "fsdp_config.fsdp_limit_all_gathers"),)),
    ("config_section_value_invalid", fsdp("fsdp_offload_params:"),
        (Edit("delete", "fsdp_config.fsdp_offload_params"),)),
    ("config_section_value_invalid", zero("zero_stage: 2.0"), (Edit("set", "deepspeed_config.zero_stage", 2),)),
    ("config_section_value_invalid", zero("zero_stage: 9"), ()),
    ("config_section_value_invalid", fsdp("fsdp_offload_params: maybe"), ()),
    ("config_fsdp_key_of_other_version", fsdp("fsdp_reshard_after_forward: shard_grad_op"),
        (Edit("rename", "fsdp_config.fsdp_reshard_after_forward", to="fsdp_config.fsdp_sharding_strategy"),
            Edit("set", "fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP"))),
    ("config_section_key_renamed", fsdp2("fsdp_backward_prefetch_policy: NONE"),
        (Edit("delete", "fsdp_config.fsdp_backward_prefetch_policy"),)),
    ("config_section_key_renamed", fsdp("fsdp_backward_prefetch_policy: NONE"),
        (Edit("rename", "fsdp_config.fsdp_backward_prefetch_policy", to="fsdp_config.fsdp_backward_prefetch"),
            Edit("set", "fsdp_config.fsdp_backward_prefetch", "NO_PREFETCH"))),
    ("config_section_key_renamed", fsdp("fsdp_transformer_cls_to_wrap: Block"),
        (Edit("rename", "fsdp_config.fsdp_transformer_cls_to_wrap",
                to="fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
            Edit("set", "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"))),
    ("config_fsdp_key_of_other_version", fsdp2("fsdp_sharding_strategy: SHARD_GRAD_OP"),
        (Edit("delete", "fsdp_config.fsdp_sharding_strategy"),
            Edit("set", "fsdp_config.fsdp_reshard_after_forward", False))),
    ("config_fsdp_loading_conflict", fsdp("fsdp_sync_module_states: false"), ()),
    ("config_fsdp_loading_conflict", fsdp2("fsdp_sync_module_states: false"),
        (Edit("delete", "fsdp_config.fsdp_sync_module_states"),)),
    ("config_deepspeed_file_conflict", named(STAGE2, "zero_stage: 2"),
        (Edit("delete", "deepspeed_config.zero_stage"),)),
    ("config_deepspeed_file_conflict", named(STAGE2, "zero_stage: 3"), ()),
    ("config_deepspeed_file_conflict", named(None, "zero_stage: 3"), ()),
    ("config_options_missing", named({**STAGE2, "bf16": {"enabled": True}}, more="mixed_precision: bf16\n"),
        (Edit("delete", "mixed_precision"),)),
    ("config_options_missing", named({**STAGE2, "bf16": {"enabled": "auto"}}, more="mixed_precision: bf16\n"), ()),
    ("config_options_missing", named(STAGE2, more="mixed_precision: 'no'\n"), (Edit("delete", "mixed_precision"),)),
    ("config_options_missing", named(STAGE2, more="mixed_precision: no\n"), (Edit("delete", "mixed_precision"),)),
)  # fmt: skip


@pytest.mark.parametrize(("check", "said", "edits"), EDITS)
def test_an_edit_is_offered_only_where_nothing_else_can_be_meant(
    check: str, said: Config, edits: tuple[Edit, ...]
) -> None:
    assert next((fix.edits for fix in problem(check, config=said).fixes if fix.edits), ()) == edits


@pytest.mark.parametrize(
    ("file", "option"), [({"fp16": {"enabled": True}}, "fp16"), ({"bf16": {"enabled": True}}, "bf16"), ({}, "bf16")]
)
def test_the_option_is_the_precision_that_the_file_of_deepspeed_enables(file: dict[str, object], option: str) -> None:
    found = problem("config_options_missing", config=named({**STAGE2, **file}, more="mixed_precision: bf16\n"))
    commands = [command for fix in found.fixes for command in fix.commands]
    assert any(f"--mixed_precision {option}" in command for command in commands)
    assert ("The file enables" in found.cause) is bool(file)
