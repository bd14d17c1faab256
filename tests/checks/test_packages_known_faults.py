"""checks/packages/known_faults.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Config, NcclLibrary, Plan
from tests.checks.facts import (
    Case,
    config,
    driver,
    gpu,
    gpus,
    informs,
    lost,
    nccl,
    no_driver,
    pytorch,
    seen,
    skips,
    table,
    warns,
    well,
)

ZERO_2 = """\
    distributed_type: DEEPSPEED
    num_processes: 4
    deepspeed_config:
      zero_stage: 2
"""
FSDP_2 = """\
    distributed_type: FSDP
    mixed_precision: bf16
    num_processes: 4
    fsdp_config:
      fsdp_version: 2
"""
B200 = gpus(2, name="NVIDIA B200", compute_capability=(10, 0))
RTX_5090 = gpus(2, name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0))


def zero(stage: str) -> Config:
    return config(ZERO_2.replace("zero_stage: 2", stage))


def fsdp(*lines: str) -> Config:
    return config(FSDP_2 + "".join(f"      {line}\n" for line in lines))


CASES = (
    # torch_version_known_bad: every row is also tested in test_known_faults.py
    warns("torch_version_known_bad",
        "triton 3.2.0: torch.compile fails: this triton does not know sm_120. Fixed in 3.3.0.",
        "pip install --upgrade 'triton>=3.3.0'",
        packages={"torch": "2.6.0", "triton": "3.2.0"}, pytorch=pytorch(version="2.6.0+cu124"), gpus=RTX_5090),
    well("torch_version_known_bad", "no known bug of torch 2.7.0+cu128 affects these GPUs",
        packages={"torch": "2.7.0", "triton": "3.3.0"}, pytorch=pytorch(version="2.7.0+cu128"), gpus=RTX_5090),
    well("torch_version_known_bad", "no known bug of torch 2.9.0+cu130", packages={"triton": "3.2.0"}),
    well("torch_version_known_bad", "; not known: compute capability",
        packages={"triton": "3.2.0"}, gpus=gpus(2, compute_capability=None)),
    well("torch_version_known_bad", "no known bug",  # hidden GPUs
        packages={"triton": "3.2.0"}, gpus=RTX_5090, visible=seen()),
    skips("torch_version_known_bad", "no torch with CUDA", pytorch=pytorch(cuda=None)),
    # driver_version_known_bad
    warns("driver_version_known_bad", "driver 525.85.12: Calls to the GPU's firmware time out (Xid 119)",
        "Update the driver to 525.105.17 or newer.", driver=driver(version="525.85.12")),
    well("driver_version_known_bad", "; not known: GPU firmware",  # off, or not to be had
        driver=driver(version="525.85.12"), gpus=gpus(gsp_firmware=None)),
    well("driver_version_known_bad", "no known bug of driver 525.105.17", driver=driver(version="525.105.17")),
    warns("driver_version_known_bad", "driver 570.124.06: NVIDIA supports HGX B200 from 570.133.20 on.", "570.133.20",
        driver=driver(version="570.124.06"), gpus=B200),
    well("driver_version_known_bad", "no known bug",
        driver=driver(version="570.124.06"), gpus=gpus(2, name="NVIDIA GB200")),
    well("driver_version_known_bad", "no known bug of driver 580.65.06", gpus=gpus(4, lost(1))),
    well("driver_version_known_bad", "; not known: GPU model",
        driver=driver(version="570.124.06"), gpus=gpus(2, name=None)),
    skips("driver_version_known_bad", "no GPU here", driver=no_driver(), gpus=(), visible=seen()),
    skips("driver_version_known_bad", "version is unknown", driver=driver(version=None)),
    # versions_known_bad_for_config
    warns("versions_known_bad_for_config",
        "deepspeed 0.18.2: ZeRO stage 2 silently computes wrong gradients",
        "pip install --upgrade 'deepspeed>=0.18.3'", packages={"deepspeed": "0.18.2"}, config=config(ZERO_2)),
    warns("versions_known_bad_for_config", "deepspeed 0.17.6", "--upgrade",
        packages={"deepspeed": "0.17.6"}, config=config(ZERO_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"deepspeed": "0.17.5"}, config=config(ZERO_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"deepspeed": "0.18.3"}, config=config(ZERO_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"deepspeed": "0.18.2"}, config=zero("zero_stage: 3")),
    well("versions_known_bad_for_config", "no known bad version",  # DeepSpeed's own file decides the stage
        packages={"deepspeed": "0.18.2"}, config=zero("deepspeed_config_file: ds.json")),
    warns("versions_known_bad_for_config", "deepspeed 0.18.6: Every backward pass", "--upgrade",
        packages={"deepspeed": "0.18.6"}, config=zero("zero_stage: 1")),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"deepspeed": "0.18.7"}, config=config(ZERO_2)),
    well("versions_known_bad_for_config", "no known bad version", packages={"deepspeed": "0.18.2"}),
    warns("versions_known_bad_for_config", "accelerate 1.13.0: FSDP2 no longer keeps", "accelerate>=1.14.0",
        packages={"accelerate": "1.13.0"}, config=config(FSDP_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"accelerate": "1.14.0"}, config=config(FSDP_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"accelerate": "1.12.0"}, config=config(FSDP_2)),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"accelerate": "1.13.0"}, config=config(FSDP_2.replace("bf16", "'no'"))),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"accelerate": "1.13.0"}, config=config(FSDP_2.replace("fsdp_version: 2", "fsdp_version: 1"))),
    warns("versions_known_bad_for_config", "deepspeed 0.18.3: DeepSpeed divides the gradients", "deepspeed>=0.18.4",
        packages={"deepspeed": "0.18.3"}, config=zero("zero_stage: 3\n      gradient_accumulation_steps: 4")),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"deepspeed": "0.18.3"}, config=zero("zero_stage: 3\n      gradient_accumulation_steps: 1")),
    well("versions_known_bad_for_config", "; whether gradients are accumulated is not known",
        packages={"deepspeed": "0.18.3"}, config=zero("zero_stage: 3\n      gradient_accumulation_steps: auto")),
    warns("versions_known_bad_for_config",
        "accelerate 1.12.0: FSDP2 without fsdp_transformer_layer_cls_to_wrap", "accelerate>=1.14.0",
        packages={"accelerate": "1.12.0"}, config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP")),
    well("versions_known_bad_for_config", "no known bad version",
        packages={"accelerate": "1.12.0"}, config=fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
                                                        "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer")),
    # versions_known_bad_in_some_uses
    informs("versions_known_bad_in_some_uses",
        "1 known bug in some uses: torch 2.13.0 (scaled_dot_product_attention with a mask)",
        "No release with a fix was known", pytorch=pytorch(version="2.13.0")),
    informs("versions_known_bad_in_some_uses", "nccl 2.31.2 (collectives captured in CUDA graphs)",
        "export NCCL_GRAPH_REGISTER=0", nccl=nccl(NcclLibrary("/x", "2.31.2", "wheel")), plan=Plan(nodes=2)),
    well("versions_known_bad_in_some_uses", "no such bug in the installed versions",
        nccl=nccl(NcclLibrary("/x", "2.31.2", "wheel"))),
    well("versions_known_bad_in_some_uses", "no such bug",  # NCCL is not used with a single GPU
        nccl=nccl(NcclLibrary("/x", "2.20.5", "wheel")), gpus=gpus(1), visible=seen(0)),
    informs("versions_known_bad_in_some_uses", "nccl 2.20.5 (collectives captured in CUDA graphs)",
        "nvidia-nccl-cu13>=2.22.3",
        nccl=nccl(NcclLibrary("/x", "2.20.5", "wheel"))),
    # versions_newer_than_mgpu_knows
    informs("versions_newer_than_mgpu_knows",
        "newer than this mgpu knows (tables of 2026-11): NCCL 2.33.1 and torch 3.0.0",
        "No action needed. A newer mgpu may know them.",
        nccl=nccl(NcclLibrary("/x", "2.33.1", "wheel")), pytorch=pytorch(version="3.0.0")),
    informs("versions_newer_than_mgpu_knows", "driver 640.10", "No action needed", driver=driver(version="640.10")),
    informs("versions_newer_than_mgpu_knows", "GPU architecture 10.7", "No action needed",
        gpus=(gpu(0, compute_capability=(10, 7)), gpu(1))),
    informs("versions_newer_than_mgpu_knows", "GPU architecture 10.7 and 13.0", "No action needed",
        gpus=(gpu(0, compute_capability=(10, 7)), gpu(1, compute_capability=(13, 0)))),
    informs("versions_newer_than_mgpu_knows", "accelerate 1.16.0", "No action needed",
        packages={"accelerate": "1.16.0"}),
    well("versions_newer_than_mgpu_knows", "no release newer than the tables of 2026-11",  # a patch release is known
        nccl=nccl(NcclLibrary("/x", "2.32.6", "wheel")), packages={"accelerate": "1.15.3"}),
    well("versions_newer_than_mgpu_knows", "no release newer", gpus=gpus(2, compute_capability=(6, 1))),
    well("versions_newer_than_mgpu_knows", "no release newer",
        nccl=nccl(libraries=()), pytorch=pytorch(version=None), driver=no_driver(), gpus=(), visible=seen(),
        packages={}),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
