"""checks/visibility.py; which GPUs a value of CUDA_VISIBLE_DEVICES leaves is tests/test_visibility.py."""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.probes.environ import resolve_visible
from mgpu.snapshot import Container, Plan, TorchDevice
from tests.checks.facts import (
    GIB,
    YAML,
    Case,
    config,
    fails,
    gpu,
    gpus,
    informs,
    lost,
    seen,
    skips,
    table,
    torch_runtime,
    uuid,
    warns,
    well,
)


def value(text: str | None, number: int = 4) -> dict[str, Any]:
    """The facts of a shell in which CUDA_VISIBLE_DEVICES has this value."""
    env = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    return {"gpus": gpus(number), "visible": resolve_visible(text, gpus(number)), "env": env}


def in_torch(*indices: int) -> dict[str, Any]:
    """PyTorch shows these GPUs of nvidia-smi, in this order; it writes their UUIDs without the prefix."""
    devices = tuple(
        TorchDevice(place, "NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, uuid(index).removeprefix("GPU-"))
        for place, index in enumerate(indices)
    )
    return {"torch_runtime": torch_runtime(len(indices), devices=devices)}


def gpu_ids(text: str) -> dict[str, Any]:
    return {"config": config(YAML + f"gpu_ids: {text}\n")}


GRANTED = gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))  # by Slurm: CUDA numbers the others from 0
MIXED = gpus(4, gpu(3, name="NVIDIA RTX A6000"))
MIG = "MIG-77777777-0000-4000-8000-0123456789ab"
CASES = (
    # visible_devices_cut_short
    fails("visible_devices_cut_short",
        "CUDA_VISIBLE_DEVICES=0,1,9,2 is cut off at '9'", "export CUDA_VISIBLE_DEVICES=0,1", **value("0,1,9,2")),
    fails("visible_devices_cut_short", "CUDA_VISIBLE_DEVICES=0,2,-1,1 is cut off at '-1'",
        "export CUDA_VISIBLE_DEVICES=0,2", **value("0,2,-1,1")),
    fails("visible_devices_cut_short", "CUDA_VISIBLE_DEVICES=0, is cut off at ''",
        "unset CUDA_VISIBLE_DEVICES", **value("0,")),
    fails("visible_devices_cut_short", "CUDA_VISIBLE_DEVICES=0,4 is cut off at '4'",
        "export CUDA_VISIBLE_DEVICES=0", **value("0,4")),
    fails("visible_devices_cut_short",
        "CUDA_VISIBLE_DEVICES=MIG-77777777-0000-4000-8000-0123456789ab,MIG-b is cut off at 'MIG-b'",
        f"export CUDA_VISIBLE_DEVICES={MIG}",
        visible=seen(value=f"{MIG},MIG-b", mig=MIG, stopped_by="MIG-b", why="one per process", by_number=False)),
    fails("visible_devices_cut_short",
        "CUDA_VISIBLE_DEVICES=MIG-77777777-0000-4000-8000-0123456789ab,MIG-b,MIG-c is cut off at 'MIG-c'",
        f"export CUDA_VISIBLE_DEVICES={MIG},MIG-b",
        visible=seen(value=f"{MIG},MIG-b,MIG-c", mig=MIG, more_mig=("MIG-b",), stopped_by="MIG-c", why="unknown",
            by_number=False)),
    well("visible_devices_cut_short", "2 entries, all valid",
        visible=seen(value=f"{MIG},MIG-b", mig=MIG, more_mig=("MIG-b",), by_number=False)),
    well("visible_devices_hide_all",
        "2 GPUs visible with CUDA_VISIBLE_DEVICES=MIG-77777777-0000-4000-8000-0123456789ab,MIG-b",
        visible=seen(value=f"{MIG},MIG-b", mig=MIG, more_mig=("MIG-b",), by_number=False)),
    # CUDA counts only the GPUs this process may open
    fails("visible_devices_cut_short", "CUDA_VISIBLE_DEVICES=1,2 is cut off at '2'", "export CUDA_VISIBLE_DEVICES=1",
        gpus=GRANTED, visible=seen(3, value="1,2", stopped_by="2", why="only 0-1 exist")),
    fails("visible_devices_cut_short", "CUDA_VISIBLE_DEVICES=0,4 is cut off at '4'",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID", **value("0,4")),
    fails("visible_devices_hide_all", "CUDA_VISIBLE_DEVICES='2' hides all 2 GPUs", "export CUDA_VISIBLE_DEVICES=0,1",
        gpus=GRANTED, visible=seen(value="2", stopped_by="2", why="only 0-1 exist")),
    skips("visible_devices_hide_all", "no GPU accessible to this process",
        gpus=gpus(2, permitted=False), visible=seen(value="0", stopped_by="0", why="there is no GPU")),
    informs("visible_devices_hide_some", "GPU 2 hidden", "unset", gpus=GRANTED, visible=seen(3, value="1")),
    well("visible_devices_cut_short", "4 entries, all valid", **value("3,2,1,0")),
    well("visible_devices_cut_short", "1 entry, all valid", **value("0")),
    skips("visible_devices_cut_short", "not set"),
    skips("visible_devices_cut_short", "see visible_devices_hide_all", **value("9")),
    skips("visible_devices_cut_short", "no GPU", **value("0", 0)),
    # visible_devices_hide_all
    fails("visible_devices_hide_all", "CUDA_VISIBLE_DEVICES='' hides all 4 GPUs", "unset CUDA_VISIBLE_DEVICES",
        **value("")),
    fails("visible_devices_hide_all",
        "CUDA_VISIBLE_DEVICES='-1' hides all 4 GPUs", "export CUDA_VISIBLE_DEVICES=0,1,2,3", **value("-1")),
    fails("visible_devices_hide_all", "CUDA_VISIBLE_DEVICES='0,1,1' hides all 4 GPUs", "unset", **value("0,1,1")),
    well("visible_devices_hide_all", "2 GPUs visible with CUDA_VISIBLE_DEVICES=0,1,9", **value("0,1,9")),
    well("visible_devices_hide_all", "1 GPU visible with CUDA_VISIBLE_DEVICES=MIG-77777777-0000-4000-8000-0123456789ab",
        visible=seen(value=MIG, mig=MIG)),
    # hidden on purpose
    *(
        well("visible_devices_hide_all", "as planned", plan=plan, **value(text))
        for text in ("", "-1", "none")
        for plan in (Plan(expect_gpus=0), Plan(cpu_ranks=2))
    ),
    fails("visible_devices_hide_all", "CUDA_VISIBLE_DEVICES='-1' hides all 4 GPUs",
        "unset", plan=Plan(expect_gpus=4), **value("-1")),
    well("visible_devices_hide_all", "CUDA_VISIBLE_DEVICES is not set: no GPU is hidden"),
    skips("visible_devices_hide_all", "no GPU", **value("", 0)),
    # visible_devices_hide_some
    informs("visible_devices_hide_some", "GPUs 1 and 2 hidden by CUDA_VISIBLE_DEVICES=0,3", "unset",
        **value("0,3")),
    informs("visible_devices_hide_some", "GPUs 0, 1 and 2 hidden", "unset", **value(uuid(3))),
    # which card a number means is not known: GPUs of several models, and CUDA counts by speed
    informs("visible_devices_hide_some", "2 of 4 GPUs hidden by CUDA_VISIBLE_DEVICES=0,3", "unset",
        gpus=MIXED, visible=resolve_visible("0,3", MIXED)),
    informs("visible_devices_hide_some", "GPUs 1 and 2 hidden by CUDA_VISIBLE_DEVICES=0,3", "unset",
        gpus=MIXED, visible=resolve_visible("0,3", MIXED), env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    informs("visible_devices_hide_some", "GPUs 0, 1 and 2 hidden", "unset",
        gpus=MIXED, visible=resolve_visible(uuid(3), MIXED)),
    well("visible_devices_hide_some", "all 4 GPUs are used", **value("3,2,1,0")),
    well("visible_devices_hide_some", "used",
        gpus=GRANTED, visible=seen(2, 3, value="0,1")),
    skips("visible_devices_hide_some", "CUDA_VISIBLE_DEVICES is not set: all GPUs are used"),
    skips("visible_devices_hide_some", "the list is invalid", **value("0,9")),
    skips("visible_devices_hide_some", "the list is invalid", **value("")),
    # visible_devices_order_differs
    warns("visible_devices_order_differs",
        "2 GPU models, but CUDA_DEVICE_ORDER is not set", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", gpus=MIXED,
        visible=seen(0, value="0")),
    warns("visible_devices_order_differs", "2 GPU models", "PCI_BUS_ID", gpus=MIXED),
    warns("visible_devices_order_differs", "CUDA_DEVICE_ORDER is FASTEST_FIRST", "PCI_BUS_ID",
        gpus=MIXED, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}),
    well("visible_devices_order_differs", "CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA and nvidia-smi use the same order",
        gpus=MIXED, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    well("visible_devices_order_differs", "the GPUs are listed by UUID",
        gpus=MIXED, visible=resolve_visible(uuid(0), MIXED)),
    skips("visible_devices_order_differs", "all GPUs are of one model"),
    skips("visible_devices_order_differs", "no GPU", gpus=()),
    skips("visible_devices_order_differs", "all GPUs are of one model", gpus=gpus(4, lost(3))),
    # visible_devices_for_other_variable
    *(
        warns("visible_devices_for_other_variable",
            f"CUDA_VISIBLE_DEVICES={word} is not a list of GPUs", "unset CUDA_VISIBLE_DEVICES", **value(word),
            container=Container("docker", False, 2))
        for word in ("all", "none", "void", "NoDevFiles", " all ")
    ),
    warns("visible_devices_for_other_variable", "CUDA_VISIBLE_DEVICES=all", "unset",
        plan=Plan(expect_gpus=0), **value("all")),
    well("visible_devices_for_other_variable", "no GPU is planned", plan=Plan(expect_gpus=0), **value("none")),
    well("visible_devices_for_other_variable", "it is a list of GPUs", **value("0,1")),
    skips("visible_devices_for_other_variable", "not set"),
    # torch_numbers_gpus_otherwise
    warns("torch_numbers_gpus_otherwise", "cuda:0 is GPU 2 in nvidia-smi, not GPU 0",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID", **in_torch(2, 0, 1, 3)),
    warns("torch_numbers_gpus_otherwise", "cuda:1 is GPU 1 in nvidia-smi, not GPU 3", "PCI_BUS_ID",
        visible=seen(0, 3, 1, value="0,3,1"), **in_torch(0, 1, 3)),
    well("torch_numbers_gpus_otherwise", "4 GPUs, in the same order", **in_torch(0, 1, 2, 3)),
    well("torch_numbers_gpus_otherwise", "2 GPUs, in the same",
        visible=seen(3, 1, value="3,1"), **in_torch(3, 1)),
    skips("torch_numbers_gpus_otherwise", "PyTorch shows fewer than two GPUs",
        visible=seen(0, value="0"), **in_torch(0)),
    skips("torch_numbers_gpus_otherwise", "PyTorch and NVML do not show the same GPUs", **in_torch(0, 1)),
    skips("torch_numbers_gpus_otherwise", "PyTorch and NVML do not show the same GPUs",
        gpus=gpus(4, gpu(1, uuid=None))),
    skips("torch_numbers_gpus_otherwise", "PyTorch shows fewer than two GPUs",
        torch_runtime=torch_runtime(0, import_error="ImportError")),
    # visible_devices_of_other_vendor
    informs("visible_devices_of_other_vendor", "HIP_VISIBLE_DEVICES=0,1 has no effect on NVIDIA GPUs",
        "export CUDA_VISIBLE_DEVICES=0,1", env={"HIP_VISIBLE_DEVICES": "0,1"}),
    informs("visible_devices_of_other_vendor", "ZE_AFFINITY_MASK=0.1", "unset ZE_AFFINITY_MASK",
        env={"ZE_AFFINITY_MASK": "0.1"}),
    well("visible_devices_of_other_vendor", "GPUs are not selected with another vendor's variable alone",
         # as Slurm sets them
        env={"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0"}),
    well("visible_devices_of_other_vendor", "GPUs are not selected with another vendor's variable alone"),
    skips("visible_devices_of_other_vendor", "no NVIDIA GPU", env={"HIP_VISIBLE_DEVICES": "0"}, gpus=()),
    # visible_devices_replaced_by_config
    warns("visible_devices_replaced_by_config", "gpu_ids: 0,1 overrides CUDA_VISIBLE_DEVICES=2,3",
        "unset CUDA_VISIBLE_DEVICES", **gpu_ids("'0,1'"), **value("2,3")),
    warns("visible_devices_replaced_by_config", "gpu_ids: 1,0 overrides CUDA_VISIBLE_DEVICES=0,1",
        "Remove gpu_ids from the config to use the variable.",
        **gpu_ids("'1,0'"), **value("0,1")),
    well("visible_devices_replaced_by_config", "agree: GPUs 2 and 3", **gpu_ids("'2,3'"), **value("2, 3")),
    well("visible_devices_replaced_by_config", "agree: GPU 3", **gpu_ids("'3'"), **value(uuid(3))),
    well("visible_devices_replaced_by_config", "only gpu_ids selects GPUs: 2,3", **gpu_ids("'2,3'")),
    skips("visible_devices_replaced_by_config", "gpu_ids selects no GPUs", **gpu_ids("all"), **value("2,3")),
    skips("visible_devices_replaced_by_config", "config_gpu_ids_invalid", **gpu_ids("'0,9'"), **value("2,3")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
