"""checks/config: texts of config files, as the reader understands them, and the place each problem names."""

from __future__ import annotations

from typing import Any

import pytest

from mgpu import engine
from mgpu.snapshot import Config, LoaderVerdict, Snapshot, Visible
from tests.checks.facts import (
    YAML,
    Case,
    config,
    facts,
    fails,
    gpu,
    gpus,
    informs,
    no_driver,
    problem,
    seen,
    skips,
    table,
    warns,
    well,
)
from tests.conftest import CHECKS


def said(**values: str) -> Config:
    """The healthy config with some keys given another value, or added at the end."""
    lines = YAML.splitlines()
    for key, value in values.items():
        place = next((n for n, line in enumerate(lines) if line.startswith(f"{key}:")), len(lines))
        lines[place : place + 1] = [f"{key}: {value}"]
    return config("\n".join(lines) + "\n")


def without(key: str) -> Config:
    return config("".join(f"{line}\n" for line in YAML.splitlines() if not line.startswith(key)))


BROKEN = config("distributed_type: [MULTI_GPU\n")
REFUSED = LoaderVerdict(False, "ValueError: unknown keys", "1.15.0")
VOLTA: dict[str, Any] = {"compute_capability": (7, 0)}
AMPERE: dict[str, Any] = {"compute_capability": (8, 0)}
ADA: dict[str, Any] = {"compute_capability": (8, 9)}
MIG = Visible("MIG-1", (), "MIG-1")
CASES = (
    # config_unreadable
    fails("config_unreadable", "mgpu.yaml: not YAML", "mgpu configure", at=(2, 1), config=BROKEN),
    fails("config_unreadable", "not YAML: while scanning for the next token", "mgpu configure",
        at=(2, 1), config=config("debug: true\n\tx: 1\n")),
    fails("config_unreadable", "the file is empty", "mgpu configure", config=config("# nothing\n")),
    fails("config_unreadable", "this is a list", "mgpu configure", at=(1, 1), config=config("- a\n- b\n")),
    fails("config_unreadable", "this is a single value", "mgpu configure", at=(1, 1), config=config("MULTI_GPU\n")),
    well("config_unreadable", "5 keys in mgpu.yaml"),
    # config_key_twice
    warns("config_key_twice", "num_processes: the key is also in line 4; the last one wins", "Delete the one",
        at=(6, 1), config=config(YAML + "num_processes: 2\n")),
    warns("config_key_twice", "fsdp_config.fsdp_version: the key is also in line 7", "Delete",
        at=(8, 3), config=config(YAML + "fsdp_config:\n  fsdp_version: 1\n  fsdp_version: 2\n")),
    well("config_key_twice", "every key stands once"),
    skips("config_key_twice", "cannot be read", config=BROKEN),
    # config_key_unknown
    fails("config_key_unknown", "unknown key 'num_procceses'. Did you mean num_processes?", "Correct the name",
        at=(6, 1), config=config(YAML + "num_procceses: 4\n", loader=REFUSED)),
    fails("config_key_unknown", "unknown key 'xyz'", "delete the line",
        at=(6, 1), config=config(YAML + "xyz: 4\n", loader=None)),
    well("config_key_unknown", "5 keys, all known"),
    well("config_key_unknown", "accelerate 1.15.0 takes new_in_2027", config=config(YAML + "new_in_2027: 4\n")),
    skips("config_key_unknown", "not a config for this machine", config=said(compute_environment="AMAZON_SAGEMAKER")),
    skips("config_key_unknown", "cannot be read", config=BROKEN),
    # config_environment_unknown
    fails("config_environment_unknown", "compute_environment: 'SLURM', not LOCAL_MACHINE", "Write LOCAL_MACHINE",
        at=(1, 1), config=said(compute_environment="SLURM")),
    fails("config_environment_unknown", "'local_machine'", "Write LOCAL_MACHINE",
        at=(1, 1), config=said(compute_environment="local_machine")),
    fails("config_environment_unknown", "'AMAZON_SAGEMAKER'", "Write LOCAL_MACHINE",
        at=(1, 1), config=said(compute_environment="AMAZON_SAGEMAKER")),
    well("config_environment_unknown", "LOCAL_MACHINE"),
    well("config_environment_unknown", "LOCAL_MACHINE", config=without("compute_environment")),
    skips("config_environment_unknown", "cannot be read", config=BROKEN),
    # config_type_invalid
    fails("config_type_invalid", "distributed_type is missing", "write MULTI_GPU", config=without("distributed_type")),
    fails("config_type_invalid",
        "distributed_type: 'MULTI_GPUS' does not exist", "write MULTI_GPU", at=(2, 1),
        config=said(distributed_type="MULTI_GPUS")),
    fails("config_type_invalid", "'multi_gpu' does not exist", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="multi_gpu")),
    fails("config_type_invalid", "distributed_type: True does not exist", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="YES")),
    fails("config_type_invalid", "distributed_type: 3 does not exist", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="3")),
    *(
        well("config_type_invalid", kind.strip("'"),
            config=said(distributed_type=kind))
        for kind in ("MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU", "'NO'", "NO")
    ),
    skips("config_type_invalid", "cannot be read", config=BROKEN),
    # config_processes_invalid
    fails("config_processes_invalid", "num_processes is missing", "Write the number of GPUs",
        config=without("num_processes")),
    *(
        fails("config_processes_invalid",
            f"num_processes: {shown} is not a whole number of at least 1", "Write the number", at=(4, 1),
            config=said(num_processes=text))
        for text, shown in (
            ("0", "0"), ("-1", "-1"), ("2.5", "2.5"), ("auto", "'auto'"), ("true", "True"), ("[4]", "[4]"),
        )
    ),
    fails("config_processes_invalid", "num_processes: '0'", "Write the number",
        at=(4, 1), config=said(num_processes="'0'")),
    fails("config_processes_invalid", "num_processes: '²'", "Write the number",
        at=(4, 1), config=said(num_processes="'²'")),
    well("config_processes_invalid", "4 processes"),
    well("config_processes_invalid", "1 processes", config=said(num_processes="1")),
    well("config_processes_invalid", "4 processes", config=said(num_processes="'4'")),
    well("config_processes_invalid", "1 processes", config=config("distributed_type: 'NO'\n")),
    skips("config_processes_invalid", "the type is not valid", config=without("distributed_type")),
    skips("config_processes_invalid", "cannot be read", config=BROKEN),
    # config_machines_invalid
    *(
        fails("config_machines_invalid",
            f"num_machines: {shown} is not a whole number of at least 1", "Write the number of machines", at=(3, 1),
            config=said(num_machines=text))
        for text, shown in (("0", "0"), ("-2", "-2"), ("'2'", "'2'"), ("true", "True"), ("1.0", "1.0"))
    ),
    well("config_machines_invalid", "1 machine"),
    well("config_machines_invalid", "2 machines", config=said(num_machines="2")),
    well("config_machines_invalid", "1 machine", config=without("num_machines")),
    skips("config_machines_invalid", "cannot be read", config=BROKEN),
    # config_ranks_uneven
    fails("config_ranks_uneven", "num_processes: 3 over 2 machines", "Write a multiple of 2",
        at=(4, 1), config=said(num_processes="3", num_machines="2")),
    fails("config_ranks_uneven", "num_processes: 1 over 2 machines", "Write a multiple of 2",
        at=(4, 1), config=said(num_processes="1", num_machines="2")),
    well("config_ranks_uneven", "2 on each of 2 machines", config=said(num_machines="2")),
    well("config_ranks_uneven", "4 on each of 1 machine"),
    skips("config_ranks_uneven", "not known", config=said(num_processes="auto")),
    # config_more_ranks_than_gpus
    fails("config_more_ranks_than_gpus", "8 ranks for 4 visible GPUs on this machine", "Set num_processes to 4",
        at=(4, 1), config=said(num_processes="8")),
    fails("config_more_ranks_than_gpus", "4 ranks for 2 visible GPUs", "Set num_processes to 2",
        at=(4, 1), visible=seen(0, 1, value="0,1")),
    fails("config_more_ranks_than_gpus", "5 ranks for 4 visible GPUs", "Set num_processes to 8",
        at=(4, 1), config=said(num_processes="10", num_machines="2")),
    fails("config_more_ranks_than_gpus", "4 ranks for 0 visible GPUs", "mgpu configure --yes", visible=seen(value="")),
    well("config_more_ranks_than_gpus", "4 ranks on 4 visible GPUs"),
    well("config_more_ranks_than_gpus", "4 ranks on 4", config=said(num_processes="8", num_machines="2")),
    skips("config_more_ranks_than_gpus", "MULTI_CPU does not use GPUs",
        config=said(distributed_type="MULTI_CPU", num_processes="8")),
    skips("config_more_ranks_than_gpus", "does not use GPUs", config=said(use_cpu="true", num_processes="8")),
    skips("config_more_ranks_than_gpus", "no NVIDIA GPU", driver=no_driver(), visible=seen(), gpus=()),
    skips("config_more_ranks_than_gpus", "not known", config=without("num_processes")),
    well("config_more_ranks_than_gpus", "1 rank",
        config=said(num_processes="1"), visible=MIG),
    fails("config_more_ranks_than_gpus", "4 ranks for 1 visible GPU", "Set num_processes to 1", visible=MIG),
    # config_leaves_gpus_idle
    warns("config_leaves_gpus_idle", "1 rank on 4 visible GPUs: 3 idle", "Set num_processes to 4",
        at=(4, 1), config=said(num_processes="1")),
    warns("config_leaves_gpus_idle", "3 ranks on 4 visible GPUs: 1 idle", "Set num_processes to 8",
        at=(4, 1), config=said(num_processes="6", num_machines="2")),
    well("config_leaves_gpus_idle", "4 visible GPUs, 4 ranks"),
    well("config_leaves_gpus_idle", "0 visible GPUs", visible=seen(value="")),
    well("config_leaves_gpus_idle", "chosen by gpu_ids: 0,1", config=said(num_processes="2", gpu_ids="'0,1'")),
    warns("config_leaves_gpus_idle", "2 ranks on 4 visible GPUs: 2 idle", "Set num_processes to 4",
        config=said(num_processes="2", gpu_ids="all")),
    skips("config_leaves_gpus_idle", "not known", config=BROKEN),
    # config_one_process_of_many
    fails("config_one_process_of_many", "distributed_type NO starts 1 process, not 4", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="'NO'")),
    fails("config_one_process_of_many", "distributed_type NO starts 1 process, not 4", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="NO")),
    fails("config_one_process_of_many", "distributed_type MULTI_CPU starts 1 process, not 4", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="MULTI_CPU")),
    well("config_one_process_of_many", "NO with 1 process", config=said(distributed_type="'NO'", num_processes="1")),
    well("config_one_process_of_many", "MULTI_GPU with 4 processes"),
    well("config_one_process_of_many", "MULTI_CPU with 4 processes",
        config=config(YAML.replace("GPU", "CPU") + "mpirun_config:\n  mpirun_hostfile: hosts\n")),
    skips("config_one_process_of_many", "not known", config=without("distributed_type")),
    # config_runs_on_cpu
    informs("config_runs_on_cpu", "no GPU here: 4 ranks on the CPU, over gloo", "Nothing, for a rehearsal",
        at=(2, 1), driver=no_driver()),
    well("config_runs_on_cpu", "has NVIDIA GPUs"),
    well("config_runs_on_cpu", "has NVIDIA GPUs", driver=no_driver("UNKNOWN")),
    skips("config_runs_on_cpu", "does not ask for GPUs", driver=no_driver(), config=said(distributed_type="MULTI_CPU")),
    # config_master_missing, config_master_is_loopback
    fails("config_master_missing", "2 machines and no main_process_ip", "--main_process_ip ADDRESS",
        at=(3, 1), config=said(num_machines="2")),
    fails("config_master_missing", "2 machines and no main_process_ip", "--main_process_ip",
        at=(3, 1), config=said(num_machines="2", main_process_ip="' '")),
    well("config_master_missing", "main_process_ip 10.0.0.1",
        config=said(num_machines="2", main_process_ip="10.0.0.1")),
    skips("config_master_missing", "one machine needs no address"),
    skips("config_master_missing", "cannot be read", config=BROKEN),
    *(
        fails("config_master_is_loopback", f"main_process_ip: {address} with 2 machines", "ip -brief address",
            at=(6, 1), config=said(num_machines="2", main_process_ip=f"'{address}'"))
        for address in ("localhost", "127.0.0.1", "127.0.1.1", "::1")
    ),
    well("config_master_is_loopback", "10.0.0.1", config=said(num_machines="2", main_process_ip="10.0.0.1")),
    skips("config_master_is_loopback", "one machine may", config=said(main_process_ip="127.0.0.1")),
    skips("config_master_is_loopback", "no address is given", config=said(num_machines="2")),
    skips("config_master_is_loopback", "cannot be read", config=BROKEN),
    # config_port_invalid
    *(
        fails("config_port_invalid", f"main_process_port: {shown}", "29500",
            at=(6, 1), config=said(main_process_port=text))
        for text, shown in (
            ("'29500'", "'29500'"), ("65536", "65536"), ("-1", "-1"), ("true", "True"), ("29500.0", "29500.0"),
        )
    ),
    fails("config_port_invalid", "main_process_port: 0", "29500",
        at=(6, 1), config=said(num_machines="2", main_process_port="0")),
    well("config_port_invalid", "port 65535", config=said(main_process_port="65535")),
    well("config_port_invalid", "port 1", config=said(main_process_port="1")),
    well("config_port_invalid", "port chosen at launch", config=said(main_process_port="0")),
    skips("config_port_invalid", "no port is given"),
    skips("config_port_invalid", "cannot be read", config=BROKEN),
    # config_gpu_ids_invalid
    fails("config_gpu_ids_invalid", "gpu_ids: 0 is not text", 'Write gpu_ids: "0"',
        at=(6, 1), config=said(gpu_ids="0")),
    fails("config_gpu_ids_invalid", "gpu_ids: [0, 1] is not text", 'Write gpu_ids: "0,1"',
        at=(6, 1), config=said(gpu_ids="[0, 1]")),
    fails("config_gpu_ids_invalid", "gpu_ids: '0,4': '4' is no GPU of this machine", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids="'0,4'")),
    fails("config_gpu_ids_invalid", "'x' is no GPU", "Name each GPU once", at=(6, 1), config=said(gpu_ids="'0,x'")),
    fails("config_gpu_ids_invalid", "1 stands twice", "Name each GPU once", at=(6, 1), config=said(gpu_ids="'1,1'")),
    fails("config_gpu_ids_invalid", "gpu_ids names 2 GPUs for 4 ranks", "as many GPUs as there are ranks",
        at=(6, 1), config=said(gpu_ids="'0,1'")),
    fails("config_gpu_ids_invalid", "'²' is no GPU", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids="'²'")),
    fails("config_gpu_ids_invalid", "'2' is no GPU", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids="'0,2'"), gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))),
    fails("config_gpu_ids_invalid", "gpu_ids: '9999", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids=f"'{'9' * 5000}'")),
    well("config_gpu_ids_invalid", "GPU 0 and 3", config=said(gpu_ids="'0, 3'", num_processes="2")),
    well("config_gpu_ids_invalid", "GPU 0 and 9", config=said(gpu_ids="'0,9'", num_processes="2"), gpus=()),
    skips("config_gpu_ids_invalid", "does not choose", config=said(gpu_ids="all")),
    skips("config_gpu_ids_invalid", "does not choose"),
    skips("config_gpu_ids_invalid", "cannot be read", config=BROKEN),
    # config_precision_invalid
    fails("config_precision_invalid", "mixed_precision: False", "mixed_precision: 'no' with quotes",
        at=(5, 1), config=said(mixed_precision="no")),
    fails("config_precision_invalid", "mixed_precision: 'bfloat16'. Did you mean bf16?", "'no', fp16, bf16 or fp8",
        at=(5, 1), config=said(mixed_precision="bfloat16")),
    fails("config_precision_invalid", "mixed_precision: 16", "fp16", at=(5, 1), config=said(mixed_precision="16")),
    *(
        well("config_precision_invalid", word.strip("'"),
            config=said(mixed_precision=word))
        for word in ("'no'", "fp16", "bf16", "fp8", "BF16")
    ),
    well("config_precision_invalid", "none", config=without("mixed_precision")),
    skips("config_precision_invalid", "cannot be read", config=BROKEN),
    # config_bf16_emulated: native from 8.0; config_fp8_unsupported: from 8.9
    warns("config_bf16_emulated",
        "bf16 on NVIDIA H100 80GB HBM3 (compute capability 7.5)", "Write mixed_precision: fp16", at=(5, 1),
        gpus=gpus(4, gpu(3, compute_capability=(7, 5)))),
    warns("config_bf16_emulated", "(compute capability 6.1)", "Write mixed_precision: 'no'",
        at=(5, 1), gpus=gpus(compute_capability=(6, 1))),
    well("config_bf16_emulated", "the weakest GPU has 8.0", gpus=gpus(4, gpu(3, **AMPERE))),
    well("config_bf16_emulated", "the weakest GPU has 9.0",
        gpus=gpus(4, gpu(3, **VOLTA)), visible=seen(0, 1, 2, value="0,1,2")),
    skips("config_bf16_emulated", "does not ask for bf16", config=said(mixed_precision="fp16"), gpus=gpus(**VOLTA)),
    skips("config_bf16_emulated", "no visible GPU", gpus=()),
    warns("config_bf16_emulated", "bf16 on", "fp16",
        config=said(mixed_precision="BF16"), gpus=gpus(**VOLTA)),
    fails("config_fp8_unsupported",
        "fp8 on NVIDIA H100 80GB HBM3 (compute capability 8.0)", "Write mixed_precision: bf16", at=(5, 1),
        config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **AMPERE))),
    fails("config_fp8_unsupported", "(compute capability 7.0)", "Write mixed_precision: fp16",
        at=(5, 1), config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **VOLTA))),
    well("config_fp8_unsupported", "the weakest GPU has 8.9",
        config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **ADA))),
    skips("config_fp8_unsupported", "does not ask for fp8"),
    skips("config_fp8_unsupported", "no visible GPU", config=said(mixed_precision="fp8"), gpus=()),
    fails("config_fp8_unsupported", "fp8 on", "bf16",
        config=said(mixed_precision="FP8"), gpus=gpus(4, gpu(1, **AMPERE))),
    # config_boolean_is_text
    fails("config_boolean_is_text", "debug: 'false' is text", "Write true or false, without quotes",
        at=(6, 1), config=said(debug="'false'")),
    *(
        fails("config_boolean_is_text", f"{key}: 'x' is text", "true or false",
            at=(6, 1), config=said(**{key: "x"}))
        for key in ("use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_sudo")
    ),
    well("config_boolean_is_text", "yes/no keys", config=said(debug="false", use_cpu="no", same_network="true")),
    skips("config_boolean_is_text", "cannot be read", config=BROKEN),
    # config_key_never_applied
    warns("config_key_never_applied",
        "rdzv_backend: 'c10d' has no effect in a file", "accelerate launch --rdzv_backend c10d", at=(6, 1),
        config=said(rdzv_backend="c10d")),
    warns("config_key_never_applied",
        "enable_cpu_affinity: True has no effect", "accelerate launch --enable_cpu_affinity ...", at=(6, 1),
        config=said(enable_cpu_affinity="true")),
    well("config_key_never_applied", "has an effect",
        config=said(rdzv_backend="static", enable_cpu_affinity="false", downcast_bf16="'no'")),
    well("config_key_never_applied", "has an effect"),
    skips("config_key_never_applied", "cannot be read", config=BROKEN),
    # config_section_ignored
    warns("config_section_ignored",
        "fsdp_config is ignored with distributed_type MULTI_GPU", "Write distributed_type: FSDP", at=(6, 1),
        config=config(YAML + "fsdp_config:\n  fsdp_version: 2\n")),
    warns("config_section_ignored", "deepspeed_config is ignored with distributed_type FSDP", "DEEPSPEED",
        at=(3, 1), config=config("distributed_type: FSDP\nnum_processes: 4\ndeepspeed_config: {zero_stage: 2}\n")),
    well("config_section_ignored", "every section belongs",
        config=config("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n")),
    well("config_section_ignored", "every section belongs", config=config(YAML + "fsdp_config: {}\n")),
    skips("config_section_ignored", "not known", config=without("distributed_type")),
    # config_refused_by_accelerate
    fails("config_refused_by_accelerate", "accelerate 1.15.0: ValueError: unknown keys", "mgpu configure --yes",
        config=config(loader=REFUSED)),
    well("config_refused_by_accelerate", "accelerate 1.15.0 takes it"),
    skips("config_refused_by_accelerate", "could not be asked", config=config(loader=None)),
    skips("config_refused_by_accelerate", "cannot be read", config=config("- a\n", loader=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("check", "text", "places"),
    [
        ("config_key_twice", "debug: true\nuse_cpu: true\ndebug: false\nuse_cpu: false\n", {"debug": 3, "use_cpu": 4}),
        ("config_key_unknown", "distributed_type: FSDP\naaa: 1\nbbb: 2\n", {"aaa": 2, "bbb": 3}),
        ("config_boolean_is_text", "debug: 'no'\nuse_cpu: 'yes'\n", {"debug": 1, "use_cpu": 2}),
        (
            "config_key_never_applied",
            "rdzv_backend: etcd\n\ndowncast_bf16: 'yes'\n",
            {"rdzv_backend": 1, "downcast_bf16": 3},
        ),
        (
            "config_section_ignored",
            "distributed_type: MULTI_GPU\nmegatron_lm_config: {a: 1}\nfsdp_config: {a: 1}\n",
            {"megatron_lm_config": 2, "fsdp_config": 3},
        ),
    ],
)  # fmt: skip
def test_every_fault_of_a_file_is_told_with_its_own_line(check: str, text: str, places: dict[str, int]) -> None:
    outcomes = engine.ask(CHECKS[check], Snapshot(**facts(config=config(text, loader=REFUSED))))
    found = {o.problem.place.key: o.problem.place.line for o in outcomes if o.problem and o.problem.place}
    assert found == places
    assert {o.problem.place.file for o in outcomes if o.problem and o.problem.place} == {"mgpu.yaml"}


def test_the_nearest_name_is_proposed() -> None:
    assert "Did you mean MULTI_GPU?" in problem("config_type_invalid", config=said(distributed_type="MULTI_GPUS")).title
    assert "Did you mean" not in problem("config_type_invalid", config=said(distributed_type="horovod")).title


def test_what_accelerate_says_is_cut_in_the_title_and_whole_in_the_evidence() -> None:
    verdict = LoaderVerdict(False, "ValueError: " + "x" * 500, "1.15.0")
    found = problem("config_refused_by_accelerate", config=config(loader=verdict))
    assert len(found.title) == 200
    assert found.evidence["error"] == verdict.error


def test_the_place_is_that_of_the_key_in_a_file_with_comments() -> None:
    text = "# a comment\n\n" + YAML.replace("num_processes: 4", "num_processes:   8  # too many")
    place = problem("config_more_ranks_than_gpus", config=config(text)).place
    assert place is not None
    assert (place.line, place.column, place.key) == (6, 1, "num_processes")
