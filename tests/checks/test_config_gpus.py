"""checks/config: the GPUs and the precision of a file, and the machine it is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Config, LoaderVerdict, Model, Visible
from tests.checks.configs import BROKEN, said, without
from tests.checks.facts import (
    GIB,
    Case,
    config,
    fails,
    gpu,
    gpus,
    informs,
    measurement,
    no_driver,
    problem,
    seen,
    skips,
    slurm,
    stamp,
    table,
    warns,
    well,
)

VOLTA: dict[str, Any] = {"compute_capability": (7, 0)}
AMPERE: dict[str, Any] = {"compute_capability": (8, 0)}
ADA: dict[str, Any] = {"compute_capability": (8, 9)}
MIG = Visible("MIG-1", (), "MIG-1")


def of(params: int, config: Config, **changes: Any) -> Config:
    """A config that says for how large a model it was made."""
    return replace(config, model=Model(params, **{"train": "full", "optimizer": "adamw", **changes}))


def with_batch(size: int) -> Config:
    """A config that says for which batch it was made."""
    return replace(said(), batch_per_gpu=size)


MEASURED = stamp(measurements=(measurement(),))
LARGE = gpus(4, memory_reserved_bytes=0)
SMALL = gpus(4, memory_total_bytes=24 * GIB, memory_reserved_bytes=0)
FSDP2 = said(distributed_type="FSDP", fsdp_config="{fsdp_version: 2}")
OFFLOADED = said(distributed_type="DEEPSPEED", deepspeed_config="{zero_stage: 2, offload_optimizer_device: cpu}")
BY_FILE = said(distributed_type="DEEPSPEED", deepspeed_config="{deepspeed_config_file: ds.json}")

CASES = (
    # config_gpu_ids_not_text
    fails("config_gpu_ids_not_text", "gpu_ids: 0 is not text", 'Write gpu_ids: "0"',
        at=(6, 1), config=said(gpu_ids="0")),
    fails("config_gpu_ids_not_text", "gpu_ids: [0, 1] is not text", 'Write gpu_ids: "0,1"',
        at=(6, 1), config=said(gpu_ids="[0, 1]")),
    fails("config_gpu_ids_not_text", "gpu_ids: 0_1 is not text", "in quotes", at=(6, 1), config=said(gpu_ids="0_1")),
    fails("config_gpu_ids_not_text", "gpu_ids: 1.5 is not text", "in quotes", at=(6, 1), config=said(gpu_ids="1.5")),
    well("config_gpu_ids_not_text", "does not select GPUs"),
    well("config_gpu_ids_not_text", "is text", config=said(gpu_ids="'0,1'")),
    skips("config_gpu_ids_not_text", "cannot be read", config=BROKEN),
    # config_gpu_ids_invalid
    *(
        fails("config_gpu_ids_invalid", f"gpu_ids: {text}{what}", fix, at=(6, 1), config=said(gpu_ids=text))
        for text, what, fix in (
            ('"0,x"', ": 'x' is not a GPU", "Name each GPU once"),
            ('"1,1"', ": 1 is listed twice", "Name each GPU once"),
            ('"-1,0"', ": '-1' is not a GPU", "Name each GPU once"),
            ('"²"', ": '²' is not a GPU", "Name each GPU once"),
            ('"0;1"', ": '0;1' is not a GPU", 'Write gpu_ids: "0,1"'),
            ('"0 1"', ": '0 1' is not a GPU", 'Write gpu_ids: "0,1"'),
            ('"0-3"', ": '0-3' is not a GPU", 'Write gpu_ids: "0,1,2,3"'),
            ('"[0, 1]"', ": '[0' is not a GPU", 'Write gpu_ids: "0,1"'),
            ("ALL", ": 'ALL' is not a GPU", 'Write gpu_ids: "all"'),
            ("banana", ": 'banana' is not a GPU", "Name each GPU once"),
            ("all,0", ": 'all' is not a GPU", "Name each GPU once"),
            ('""', ": hides all GPUs", "Name each GPU once"),
        )
    ),
    fails("config_gpu_ids_invalid", "gpu_ids: \"9999", "Name each GPU once", config=said(gpu_ids=f"'{'9' * 5000}'")),
    well("config_gpu_ids_invalid", "GPUs 0 and 3", config=said(gpu_ids="'0, 3'")),
    well("config_gpu_ids_invalid", "GPU 7", config=said(gpu_ids="'7,'")),
    well("config_gpu_ids_invalid", "GPU GPU-1a", config=said(gpu_ids="GPU-1a")),
    well("config_gpu_ids_invalid", "hides all GPUs", config=said(gpu_ids="''", distributed_type="'NO'")),
    skips("config_gpu_ids_invalid", "does not select GPUs", config=said(gpu_ids="all")),
    skips("config_gpu_ids_invalid", "does not select GPUs"),
    skips("config_gpu_ids_invalid", "cannot be read", config=BROKEN),
    # config_gpu_ids_single
    fails("config_gpu_ids_single", 'gpu_ids: "0" with MULTI_GPU: fewer than two GPUs', "distributed_type: 'NO'",
        at=(6, 1), config=said(gpu_ids='"0"')),
    well("config_gpu_ids_single", "gpu_ids: 0,1", config=said(gpu_ids='"0,1"')),
    well("config_gpu_ids_single", "gpu_ids: 7,", config=said(gpu_ids='"7,"')),
    skips("config_gpu_ids_single", "the type does not require", config=said(gpu_ids='"0"', distributed_type="FSDP")),
    skips("config_gpu_ids_single", "the type does not require", config=said(gpu_ids='"0"', num_machines="2")),
    skips("config_gpu_ids_single", "cannot be read", config=BROKEN),
    # config_gpu_ids_too_few, config_gpu_ids_idle
    fails("config_gpu_ids_too_few", "gpu_ids names 2 GPUs for 4 ranks", "one GPU for each rank.",
        at=(6, 1), config=replace(said(gpu_ids="'0,1'"), given=("config_file",))),
    skips("config_gpu_ids_too_few", "the command line can replace", config=said(gpu_ids="'0,1'")),
    well("config_gpu_ids_too_few", "2 ranks on GPUs 0 and 1", config=said(gpu_ids="'0,1'", num_processes="2")),
    well("config_gpu_ids_too_few", "2 ranks on", config=said(gpu_ids="'0,1'", num_machines="2")),
    skips("config_gpu_ids_too_few", "does not select GPUs"),
    skips("config_gpu_ids_too_few", "cannot be read", config=BROKEN),
    warns("config_gpu_ids_idle", "gpu_ids names 3 GPUs for 2 ranks: GPU 2 idle", "Set num_processes to 3",
        at=(6, 1), config=said(gpu_ids="'0,1,2'", num_processes="2")),
    well("config_gpu_ids_idle", "2 ranks on", config=said(gpu_ids="'0,1'", num_processes="2")),
    skips("config_gpu_ids_idle", "does not select GPUs"),
    skips("config_gpu_ids_idle", "cannot be read", config=BROKEN),
    # config_gpu_ids_not_here
    fails("config_gpu_ids_not_here", "gpu_ids: '0,4': '4' is not a GPU of this machine", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids="'0,4'")),
    fails("config_gpu_ids_not_here", "'2' is not a GPU", "Name each GPU once",
        at=(6, 1), config=said(gpu_ids="'0,2'"), gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))),
    well("config_gpu_ids_not_here", "GPUs 0 and 3", config=said(gpu_ids="'0,3'")),
    skips("config_gpu_ids_not_here", "no GPUs", config=said(gpu_ids="'0,9'"), gpus=()),
    skips("config_gpu_ids_not_here", "cannot be read", config=BROKEN),
    # config_gpu_ids_override_mask
    warns("config_gpu_ids_override_mask", "gpu_ids 0,1 overrides CUDA_VISIBLE_DEVICES=4,5",
        "that the variable applies.",
        at=(6, 1), config=said(gpu_ids="'0,1'"), env={"CUDA_VISIBLE_DEVICES": "4,5"}),
    well("config_gpu_ids_override_mask", "is within", config=said(gpu_ids="'0,1'"),
        env={"CUDA_VISIBLE_DEVICES": "0,1,2"}),
    well("config_gpu_ids_override_mask", "only one of the two", config=said(gpu_ids="'0,1'")),
    well("config_gpu_ids_override_mask", "only one of the two", env={"CUDA_VISIBLE_DEVICES": "0,1"}),
    skips("config_gpu_ids_override_mask", "cannot be read", config=BROKEN),
    # config_exceeds_slurm_grant
    warns("config_exceeds_slurm_grant", "4 ranks on a node where Slurm granted 2 GPUs", "--gpus-per-node=4",
        at=(4, 1), slurm=slurm(gpus_on_node=2)),
    well("config_exceeds_slurm_grant", "4 ranks, 4 GPUs granted"),
    skips("config_exceeds_slurm_grant", "not in a Slurm allocation", slurm=slurm(job_id=None)),
    skips("config_exceeds_slurm_grant", "not a GPU config", config=said(distributed_type="MULTI_CPU")),
    # config_type_of_other_hardware
    warns("config_type_of_other_hardware", "distributed_type MULTI_NPU on a machine with NVIDIA GPUs", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="MULTI_NPU")),
    warns("config_type_of_other_hardware", "distributed_type XLA", "MULTI_GPU", config=said(distributed_type="XLA")),
    well("config_type_of_other_hardware", "MULTI_GPU does not need hardware"),
    well("config_type_of_other_hardware", "FSDP does not need hardware", config=said(distributed_type="FSDP")),
    skips("config_type_of_other_hardware", "no NVIDIA GPU",
        config=said(distributed_type="MULTI_XPU"), driver=no_driver()),
    skips("config_type_of_other_hardware", "cannot be read", config=BROKEN),
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
    skips("config_more_ranks_than_gpus", "MULTI_CPU does not use the GPUs",
        config=said(distributed_type="MULTI_CPU", num_processes="8")),
    fails("config_more_ranks_than_gpus", "8 ranks for 4 visible GPUs", "Set num_processes to 4",
        config=said(use_cpu="true", num_processes="8")),  # the ranks use the GPUs all the same
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
    warns("config_leaves_gpus_idle", "2 ranks on 4 visible GPUs: 2 idle on each node",
        "Set num_processes to 16, 4 on each of 4 nodes.", config=said(num_processes="8", num_machines="4")),
    warns("config_leaves_gpus_idle", "1 rank on 4 visible GPUs",
        "Write distributed_type: MULTI_GPU and num_processes: 4.",
        config=said(distributed_type="'NO'", num_processes="1")),
    skips("config_leaves_gpus_idle", "not known", config=said(num_processes="1", num_machines="2")),
    skips("config_leaves_gpus_idle", "use_cpu", config=said(num_processes="1", use_cpu="true")),
    well("config_leaves_gpus_idle", "4 visible GPUs, 4 ranks"),
    well("config_leaves_gpus_idle", "0 visible GPUs", visible=seen(value="")),
    well("config_leaves_gpus_idle", "gpu_ids selects the GPUs: 0,1", config=said(num_processes="2", gpu_ids="'0,1'")),
    warns("config_leaves_gpus_idle", "2 ranks on 4 visible GPUs: 2 idle", "Set num_processes to 4",
        config=said(num_processes="2", gpu_ids="all")),
    skips("config_leaves_gpus_idle", "not known", config=BROKEN),
    skips("config_more_ranks_than_gpus", "gpu_ids selects", config=said(num_processes="8", gpu_ids="'0,1'")),
    # config_model_too_large: with DDP 16 bytes per parameter and 4 of gradient buckets, 3 GiB kept free of 80
    warns("config_model_too_large", "needs 150 GiB per GPU with DDP on 4 GPUs, a GPU here has 80 GiB",
        "Shard more", at=(2, 1), config=of(8_030_000_000, said()), gpus=LARGE),
    warns("config_model_too_large", "needs 77 GiB per GPU with DDP", "Shard more",
        config=of(4_150_000_000, said()), gpus=LARGE),
    warns("config_model_too_large", "with FSDP2 on 4 GPUs, a GPU here has 24 GiB", "Shard more",
        config=of(8_030_000_000, FSDP2), gpus=SMALL),
    well("config_model_too_large", "DDP needs 76 GiB of 80 GiB", config=of(4_100_000_000, said()), gpus=LARGE),
    well("config_model_too_large", "FSDP2 needs 30 GiB of 80 GiB", config=of(8_030_000_000, FSDP2), gpus=LARGE),
    well("config_model_too_large", "ZeRO-2 needs 15 GiB of 24 GiB", config=of(8_030_000_000, OFFLOADED),
        gpus=SMALL),
    well("config_model_too_large", "DDP needs 16 GiB", config=of(8_030_000_000, said(), train="lora")),
    skips("config_model_too_large", "does not contain"),
    skips("config_model_too_large", "the sharding of the model is", config=of(8_030_000_000, BY_FILE)),
    skips("config_model_too_large", "memory of the GPUs", config=of(8_030_000_000, said()),
        gpus=gpus(4, memory_total_bytes=None)),
    # config_batch_too_large: 10 GiB and 1 GiB for each sample; of 80 GiB, 3 are kept free and 10 % of the others
    warns("config_batch_too_large", "batch 64 per GPU needs 74 GiB, a GPU here has 80 GiB: 59 fit", "accumulate",
        config=with_batch(64), gpus=LARGE, stamp=MEASURED),
    well("config_batch_too_large", "batch 59 needs 69 GiB of 80 GiB",
        config=with_batch(59), gpus=LARGE, stamp=MEASURED),
    skips("config_batch_too_large", "was not measured", config=with_batch(64), gpus=LARGE),
    skips("config_batch_too_large", "was not measured", config=with_batch(64), gpus=LARGE,
        stamp=stamp(measurements=(measurement(cpu=True),))),
    skips("config_batch_too_large", "does not contain the batch", stamp=MEASURED),
    skips("config_batch_too_large", "no GPU memory", config=with_batch(64), stamp=MEASURED,
        gpus=gpus(4, memory_total_bytes=None)),
    # config_runs_on_cpu
    informs("config_runs_on_cpu", "no GPU here: 4 ranks on the CPU, over gloo", "Nothing to do for a dry run.",
        at=(2, 1), driver=no_driver()),
    well("config_runs_on_cpu", "has NVIDIA GPUs"),
    well("config_runs_on_cpu", "has NVIDIA GPUs", driver=no_driver("UNKNOWN")),
    *(skips("config_runs_on_cpu", "no rank of this config starts", driver=no_driver(), config=said(num_processes=one))
        for one in ("0", "2.0", "auto")),
    skips("config_runs_on_cpu", "no rank of this config starts", driver=no_driver(),
        config=config(loader=LoaderVerdict(False, "AssertionError", "1.15.0"))),
    informs("config_runs_on_cpu", "no GPU here: 1 rank on", "dry run", driver=no_driver(),
        config=without("num_processes")),
    skips("config_runs_on_cpu", "not a GPU config", driver=no_driver(), config=said(distributed_type="MULTI_CPU")),
    # config_cpu_with_gpu_type
    warns("config_cpu_with_gpu_type", "use_cpu: true has no effect with distributed_type MULTI_GPU",
        "Write use_cpu: false", at=(6, 1), config=said(use_cpu="true")),
    well("config_cpu_with_gpu_type", "not set"),
    skips("config_cpu_with_gpu_type", "not a GPU config", config=said(distributed_type="MULTI_CPU")),
    well("config_cpu_with_gpu_type", "no GPU here", config=said(use_cpu="true"), driver=no_driver()),
    # config_precision_invalid
    skips("config_precision_invalid", "left to the command line", config=said(mixed_precision="no")),
    fails("config_precision_invalid", "mixed_precision: bfloat16. Did you mean bf16?", "Write bf16.",
        at=(5, 1), config=said(mixed_precision="bfloat16")),
    fails("config_precision_invalid", "mixed_precision: 16", "fp16", at=(5, 1), config=said(mixed_precision="16")),
    *(
        well("config_precision_invalid", word.strip("'"),
            config=said(mixed_precision=word))
        for word in ("'no'", "fp16", "bf16", "fp8", "BF16")
    ),
    well("config_precision_invalid", "none", config=without("mixed_precision")),
    skips("config_precision_invalid", "cannot be read", config=BROKEN),
    fails("config_precision_invalid", "mixed_precision: fp32. Did you mean no?", "Write 'no'",
        config=said(mixed_precision="fp32")),
    fails("config_precision_invalid", "mixed_precision: int8", "fp16 or bf16",
        config=said(mixed_precision="int8")),
    skips("config_precision_invalid", "contains a shell", config=said(mixed_precision="$PRECISION")),
    # config_precision_twice
    warns("config_precision_twice", "fp16: true is overridden by mixed_precision: bf16", "Delete fp16",
        at=(6, 1), config=said(fp16="true")),
    well("config_precision_twice", "set once"),
    skips("config_precision_twice", "cannot be read", config=BROKEN),
    # config_bf16_emulated: native from 8.0; config_fp8_unsupported: from 8.9
    warns("config_bf16_emulated",
        "bf16 on NVIDIA H100 80GB HBM3 (compute capability 7.5)", "Write mixed_precision: fp16", at=(5, 1),
        gpus=gpus(4, gpu(3, compute_capability=(7, 5)))),
    warns("config_bf16_emulated", "(compute capability 6.1)", "Write mixed_precision: 'no'",
        at=(5, 1), gpus=gpus(compute_capability=(6, 1))),
    well("config_bf16_emulated", "bf16 needs 8.0", gpus=gpus(4, gpu(3, **AMPERE))),
    well("config_bf16_emulated", "lowest compute capability 9.0, bf16 needs 8.0",
        gpus=gpus(4, gpu(3, **VOLTA)), visible=seen(0, 1, 2, value="0,1,2")),
    skips("config_bf16_emulated", "does not use bf16", config=said(mixed_precision="fp16"), gpus=gpus(**VOLTA)),
    skips("config_bf16_emulated", "no visible GPU", gpus=()),
    warns("config_bf16_emulated", "bf16 on", "fp16",
        config=said(mixed_precision="BF16"), gpus=gpus(**VOLTA)),
    fails("config_fp8_unsupported",
        "fp8 on NVIDIA H100 80GB HBM3 (compute capability 8.0)", "Write mixed_precision: bf16", at=(5, 1),
        config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **AMPERE))),
    fails("config_fp8_unsupported", "(compute capability 7.0)", "Write mixed_precision: fp16",
        at=(5, 1), config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **VOLTA))),
    well("config_fp8_unsupported", "lowest compute capability 8.9",
        config=said(mixed_precision="fp8"), gpus=gpus(4, gpu(1, **ADA))),
    skips("config_fp8_unsupported", "does not use fp8"),
    skips("config_fp8_unsupported", "no visible GPU", config=said(mixed_precision="fp8"), gpus=()),
    fails("config_fp8_unsupported", "fp8 on", "bf16",
        config=said(mixed_precision="FP8"), gpus=gpus(4, gpu(1, **AMPERE))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_what_would_fit_is_named() -> None:
    """A split over the same GPUs, more of them, or offload."""
    cause = problem("config_model_too_large", config=of(8_030_000_000, said()), gpus=LARGE).cause
    assert cause.endswith("It fits with FSDP2 on 4 GPUs (30 GiB each).")
    cause = problem("config_model_too_large", config=of(8_030_000_000, FSDP2), gpus=SMALL).cause
    assert cause.endswith("It fits with FSDP2 on 6 such GPUs or FSDP2 with CPU offload on 4 GPUs (120 GiB of RAM).")
    cause = problem("config_batch_too_large", config=with_batch(64), gpus=LARGE, stamp=MEASURED).cause
    assert cause.startswith("Measured for train.py with batch 8: 18 GiB, of which 10 GiB do not depend on the batch.")
