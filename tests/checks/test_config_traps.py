"""checks/config: what YAML makes of the words, what has no effect, and which repairs are safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.check import Edit
from mgpu.snapshot import Config, Snapshot
from mgpu.validate.run import judge
from tests.checks.configs import BROKEN, refused, said
from tests.checks.facts import Case, config, fails, informs, problem, skips, table, warns, well

CASES = (
    # config_type_is_false
    informs("config_type_is_false", "distributed_type: NO without quotes means false", "'NO' with quotes",
        at=(2, 1), config=said(distributed_type="NO", num_processes="1")),
    well("config_type_is_false", "the type is text"),
    skips("config_type_is_false", "cannot be read", config=BROKEN),
    # config_backend_invalid
    fails("config_backend_invalid", "dynamo_backend: no without quotes means false", "Write 'NO' with quotes",
        at=(6, 1), config=said(dynamo_backend="no")),
    fails("config_backend_invalid", "dynamo_backend: INDUCTR. Did you mean INDUCTOR?", "INDUCTOR",
        at=(6, 1), config=said(dynamo_backend="INDUCTR")),
    well("config_backend_invalid", "inductor", config=said(dynamo_backend="inductor")),
    well("config_backend_invalid", "none"),
    skips("config_backend_invalid", "DEEPSPEED does not compile",
        config=said(dynamo_backend="no", distributed_type="DEEPSPEED")),
    skips("config_backend_invalid", "cannot be read", config=BROKEN),
    # config_number_misread
    warns("config_number_misread", "num_processes: 010 means 8 in YAML", "Write 8, or the number you mean",
        at=(4, 1), config=said(num_processes="010")),
    warns("config_number_misread", "num_machines: 1:30 means 90 in YAML", "Write 90",
        at=(3, 1), config=said(num_machines="1:30")),
    well("config_number_misread", "decimals"),
    well("config_number_misread", "decimals", config=said(num_processes="1_0", num_machines="0x2", machine_rank="00")),
    skips("config_number_misread", "cannot be read", config=BROKEN),
    # config_number_in_quotes
    informs("config_number_in_quotes", 'num_processes: "4" is text', "Remove the quotes.",
        at=(4, 1), config=said(num_processes='"4"')),
    informs("config_number_in_quotes", 'machine_rank: "0" is text', "Remove the quotes.",
        at=(6, 1), config=said(machine_rank='"0"')),
    well("config_number_in_quotes", "not in quotes", config=said(num_processes='"4"', num_machines="2")),
    well("config_number_in_quotes", "not in quotes"),
    skips("config_number_in_quotes", "cannot be read", config=BROKEN),
    # config_boolean_is_text
    warns("config_boolean_is_text", "debug: \"false\" is text", "Write true or false, without quotes",
        at=(6, 1), config=said(debug="'false'")),
    *(
        warns("config_boolean_is_text", f"{key}: x is text", "true or false",
            at=(6, 1), config=said(**{key: "x"}))
        for key in ("same_network", "enable_cpu_affinity", "tpu_use_sudo")
    ),
    warns("config_boolean_is_text", "use_cpu: x is text", "Write false. The ranks of this type use the GPUs.",
        at=(6, 1), config=said(use_cpu="x")),
    well("config_boolean_is_text", "yes/no keys", config=said(debug="false", use_cpu="no", same_network="true")),
    skips("config_boolean_is_text", "cannot be read", config=BROKEN),
    # config_cpu_switch_invalid
    fails("config_cpu_switch_invalid", "use_cpu: maybe is neither true nor false", "Write true or false",
        at=(6, 1), config=said(use_cpu="maybe", distributed_type="'NO'", num_processes="1")),
    fails("config_cpu_switch_invalid", "use_cpu: null is neither", "Write true or false",
        at=(6, 1), config=said(use_cpu="null", distributed_type="MULTI_CPU")),
    well("config_cpu_switch_invalid", "not set", config=said(use_cpu="maybe")),
    well("config_cpu_switch_invalid", "true or false", config=said(use_cpu="'false'", distributed_type="'NO'")),
    skips("config_cpu_switch_invalid", "cannot be read", config=BROKEN),
    # config_variable_not_expanded
    *(
        fails("config_variable_not_expanded", f"main_process_ip: {text} is used literally",
            f'accelerate launch --main_process_ip "{text}" ...',
            at=(6, 1), config=said(num_machines="2", main_process_ip=text))
        for text in ("$MASTER_ADDR", "${MASTER_ADDR}", "$(hostname)")
    ),
    fails("config_variable_not_expanded", "num_processes: $N is used", "--num_processes",
        at=(4, 1), config=said(num_processes="$N")),
    well("config_variable_not_expanded", "no value contains"),
    well("config_variable_not_expanded", "no value contains", config=said(main_process_ip="$MASTER_ADDR")),
    well("config_variable_not_expanded", "no value contains", config=said(main_training_function="cost$")),
    skips("config_variable_not_expanded", "cannot be read", config=BROKEN),
    # config_key_never_applied
    warns("config_key_never_applied",
        "rdzv_backend: c10d has no effect in a file", "accelerate launch --rdzv_backend c10d", at=(6, 1),
        config=said(rdzv_backend="c10d")),
    warns("config_key_never_applied",
        "enable_cpu_affinity: true has no effect", "accelerate launch --enable_cpu_affinity ...", at=(6, 1),
        config=said(enable_cpu_affinity="true")),
    well("config_key_never_applied", "has an effect",
        config=said(rdzv_backend="static", enable_cpu_affinity="false", downcast_bf16="'no'")),
    well("config_key_never_applied", "has an effect"),
    well("config_key_never_applied", "has an effect",
        config=replace(said(rdzv_backend="c10d"), given=("config_file", "rdzv_backend"))),
    skips("config_key_never_applied", "cannot be read", config=BROKEN),
    warns("config_key_never_applied", "rdzv_backend: foo has no effect", "torch supports static, c10d",
        at=(6, 1), config=said(rdzv_backend="foo")),
    warns("config_key_never_applied", "downcast_bf16: \"yes\" has no effect", "it is for TPUs",
        at=(6, 1), config=said(downcast_bf16="'yes'")),
    warns("config_key_never_applied", "downcast_bf16: true has no effect", "accelerate launch --downcast_bf16 ...",
        at=(6, 1), config=said(downcast_bf16="true", distributed_type="XLA")),
    warns("config_key_never_applied", "downcast_bf16: \"yes\" has no effect", "accelerate launch --downcast_bf16 ...",
        at=(6, 1), config=said(downcast_bf16="'yes'", distributed_type="TPU")),
    # config_same_network_unread
    informs("config_same_network_unread", "same_network: true is not read", "Leave it", at=(6, 1),
        config=said(num_machines="2", same_network="true")),
    well("config_same_network_unread", "is not set", config=said(same_network="true")),
    skips("config_same_network_unread", "cannot be read", config=BROKEN),
    # config_tpu_keys_left
    skips("config_tpu_keys_left", "the type is not known", config=said(tpu_name="x", distributed_type="TPU")),
    informs("config_tpu_keys_left", "tpu_name is for TPUs, and has no effect with MULTI_GPU", "Delete it",
        at=(6, 1), config=said(tpu_name="x")),
    well("config_tpu_keys_left", "no unused TPU settings", config=said(tpu_env="[]", tpu_use_cluster="false")),
    well("config_tpu_keys_left", "no unused TPU settings", config=said(tpu_name="x", distributed_type="XLA")),
    skips("config_tpu_keys_left", "cannot be read", config=BROKEN),
    # config_debug_left_on
    informs("config_debug_left_on", "debug: true slows accelerate's own collectives", "debug: false",
        at=(6, 1), config=said(debug="true")),
    well("config_debug_left_on", "debug is off"),
    skips("config_debug_left_on", "cannot be read", config=BROKEN),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("check", "file", "edits"),
    [
        ("config_type_is_false", said(distributed_type="no"), [Edit("set", "distributed_type", "NO")]),
        ("config_type_invalid", said(distributed_type="multi-gpu"), [Edit("set", "distributed_type", "MULTI_GPU")]),
        ("config_type_invalid", said(distributed_type="DDP"), []),
        ("config_type_invalid", said(distributed_type="null"), []),
        ("config_backend_invalid", said(dynamo_backend="no"), [Edit("set", "dynamo_backend", "NO")]),
        ("config_options_missing", said(mixed_precision="no"), [Edit("set", "mixed_precision", "no")]),
        ("config_precision_invalid", said(mixed_precision="float16"), [Edit("set", "mixed_precision", "fp16")]),
        ("config_precision_invalid", said(mixed_precision="16"), []),
        ("config_processes_invalid", said(num_processes="2.0"), [Edit("set", "num_processes", 2)]),
        ("config_processes_invalid", said(num_processes="0"), []),
        ("config_machines_invalid", said(num_machines="'2'"), [Edit("set", "num_machines", 2)]),
        ("config_machines_taken_as_one", said(num_machines="0"), [Edit("set", "num_machines", 1)]),
        ("config_port_invalid", said(main_process_port="'29500'"), [Edit("set", "main_process_port", 29500)]),
        ("config_port_invalid", said(main_process_port="70000"), []),
        ("config_number_misread", said(num_processes="010"), []),
        ("config_gpu_ids_not_text", said(gpu_ids="[0, 1]"), [Edit("set", "gpu_ids", "0,1")]),
        ("config_gpu_ids_not_text", said(gpu_ids="0_1"), []),
        ("config_gpu_ids_not_text", said(gpu_ids="[a]"), []),
        ("config_gpu_ids_invalid", said(gpu_ids="'0;1'"), [Edit("set", "gpu_ids", "0,1")]),
        ("config_gpu_ids_invalid", said(gpu_ids="'0,0'"), []),
        ("config_boolean_is_text", said(debug="'false'"), [Edit("set", "debug", False)]),
        ("config_boolean_is_text", said(debug="'On'"), [Edit("set", "debug", True)]),
        ("config_boolean_is_text", said(debug="'maybe'"), []),
        ("config_master_invalid", said(num_machines="2", main_process_ip="10.0.0.1:29500"),
         [Edit("set", "main_process_ip", "10.0.0.1"), Edit("set", "main_process_port", 29500)]),
        ("config_master_invalid",
         said(num_machines="2", main_process_ip="10.0.0.1:29500", main_process_port="1234"), []),
        ("config_precision_twice", said(fp16="true"), [Edit("delete", "fp16")]),
        ("config_key_never_applied", said(rdzv_backend="foo"), [Edit("delete", "rdzv_backend")]),
        ("config_key_never_applied", said(rdzv_backend="c10d"), []),
        ("config_tpu_keys_left", said(tpu_name="x"), [Edit("delete", "tpu_name")]),
        ("config_key_twice", said(num_processes="4\nnum_processes: 2"), [Edit("drop_line", "num_processes", line=4)]),
        ("config_key_removed", refused(ipex_config="{a: 1}"), [Edit("delete", "ipex_config")]),
        ("config_key_removed", refused(tp_config="{a: 1}"), []),
        ("config_key_unknown", refused(machine_rnak="0"), [Edit("rename", "machine_rnak", to="machine_rank")]),
        ("config_key_unknown", refused(num_procces="4"), []),  # num_processes stands there already
        ("config_key_unknown", refused(use_gpu="true"), []),
        ("config_key_unknown", refused(use_npu="false"), [Edit("delete", "use_npu")]),
        ("config_key_unknown", refused(bf16="true"), []),
        ("config_key_outside_its_section", refused(zero_stage="2"), []),
        ("config_key_outside_its_section", config("distributed_type: DEEPSPEED\nzero_stage: 2\n", loader=None),
         [Edit("rename", "zero_stage", to="deepspeed_config.zero_stage")]),
        ("config_key_outside_its_section",
         config("distributed_type: DEEPSPEED\nzero_stage: 2\ndeepspeed_config: {zero_stage: 3}\n", loader=None), []),
        ("config_key_of_the_command_line", refused(multi_gpu="true"), [Edit("delete", "multi_gpu")]),
        ("config_key_of_the_command_line", refused(use_fsdp="true"), []),
        ("config_key_of_the_command_line", refused(max_restarts="3"), []),
        ("config_environment_unknown", said(compute_environment="slurm"),
         [Edit("set", "compute_environment", "LOCAL_MACHINE")]),
        ("config_environment_unknown", said(compute_environment="AMAZON_SAGEMAKER"), []),
    ],
)  # fmt: skip
def test_only_what_is_certain_is_mended(check: str, file: Config, edits: list[Edit]) -> None:
    assert [edit for fix in problem(check, config=file).fixes for edit in fix.edits] == edits


def test_every_variable_is_named_where_the_number_of_machines_is_one() -> None:
    values = {"machine_rank": "$R", "main_process_ip": "$A", "main_process_port": "$P"}
    outcomes = judge(said(num_machines="$N", **values), Snapshot())
    found = [o.problem for o in outcomes if o.problem and o.status in ("fail", "warn")]
    assert [problem.place.key for problem in found if problem.place] == ["num_machines", *values]
