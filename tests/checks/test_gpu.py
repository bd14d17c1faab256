"""checks/gpu.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    GIB,
    Case,
    fails,
    gpu,
    gpus,
    informs,
    lost,
    problem,
    seen,
    skips,
    table,
    uuid,
    warns,
    well,
)

MIXED = gpus(4, gpu(3, name="NVIDIA RTX A6000"))
CASES = (
    # gpu_count_unexpected
    fails("gpu_count_unexpected", "4 usable GPUs, 8 expected", "mgpu doctor -v", plan=Plan(expect_gpus=8)),
    fails("gpu_count_unexpected", "3 usable GPUs, 4 expected", "mgpu doctor -v",
        plan=Plan(expect_gpus=4), gpus=gpus(4, lost(1))),
    fails("gpu_count_unexpected", "1 usable GPU, 4 expected", "mgpu doctor -v",
        plan=Plan(expect_gpus=4), visible=seen(2, value="2")),
    fails("gpu_count_unexpected", "4 usable GPUs, 3 expected", "mgpu doctor -v", plan=Plan(expect_gpus=3)),
    well("gpu_count_unexpected", "4 usable GPUs, as expected", plan=Plan(expect_gpus=4)),
    well("gpu_count_unexpected", "0 usable GPUs, as expected", plan=Plan(expect_gpus=0), gpus=()),
    skips("gpu_count_unexpected", "--expect-gpus"),
    # gpu_answers_in_part, gpu_not_permitted
    warns("gpu_answers_in_part", "GPU 1: 2 questions met an error", "nvidia-smi -q -i 1",
        gpus=gpus(4, gpu(1, trouble=("ecc_enabled: NVML: UNKNOWN", "power_w: NVML: UNKNOWN")))),
    warns("gpu_answers_in_part", "GPU 0 and 3: 2 questions met an error", "nvidia-smi -q -i 0",
        gpus=gpus(4, gpu(0, trouble=("power_w: UNKNOWN",)), gpu(3, trouble=("power_w: UNKNOWN",)))),
    well("gpu_answers_in_part", "4 GPUs answered every question"),
    well("gpu_answers_in_part", "3 GPUs answered every question", gpus=gpus(4, lost(1))),
    skips("gpu_answers_in_part", "no GPU here", gpus=()),
    informs("gpu_not_permitted", "GPU 0 and 1 of 4: not for this process", "srun --gpus",
        gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))),
    well("gpu_not_permitted", "this process may use all 4 GPUs"),
    skips("gpu_not_permitted", "no GPU here", gpus=()),
    # gpu_ecc_uncorrected
    fails("gpu_ecc_uncorrected", "1 uncorrected ECC error on GPU 1 since", f"sudo nvidia-smi --gpu-reset -i {uuid(1)}",
        gpus=gpus(4, gpu(1, ecc_uncorrected_volatile=1))),
    fails("gpu_ecc_uncorrected", "5 uncorrected ECC errors on GPU 1 and 2", uuid(2),
        gpus=gpus(4, gpu(1, ecc_uncorrected_volatile=2), gpu(2, ecc_uncorrected_volatile=3))),
    well("gpu_ecc_uncorrected", "no uncorrected errors on 4 of 4 GPUs"),
    # since it was built, not since the driver loaded
    well("gpu_ecc_uncorrected", "4 of 4",
        gpus=gpus(ecc_uncorrected_aggregate=7)),
    well("gpu_ecc_uncorrected", "3 of 4", gpus=gpus(4, gpu(2, ecc_uncorrected_volatile=None))),
    skips("gpu_ecc_uncorrected", "no GPU here reports ECC", gpus=gpus(ecc_uncorrected_volatile=None)),
    # gpu_row_remap_failed, gpu_row_remap_pending, gpu_retired_pages_pending
    fails("gpu_row_remap_failed", "row remapping failed on GPU 2", "nvidia-smi -q -d ROW_REMAPPER",
        gpus=gpus(4, gpu(2, rows_remap_failed=True))),
    well("gpu_row_remap_failed", "spare rows on 4 of 4", gpus=gpus(rows_remapped_uncorrectable=3)),
    skips("gpu_row_remap_failed", "no GPU here remaps rows", gpus=gpus(rows_remap_failed=None)),
    warns("gpu_row_remap_pending", "GPU 0 and 3: a row remap waits", f"--gpu-reset -i {uuid(3)}",
        gpus=gpus(4, gpu(0, rows_remap_pending=True), gpu(3, rows_remap_pending=True))),
    well("gpu_row_remap_pending", "no remap waits on 4 of 4"),
    skips("gpu_row_remap_pending", "no GPU here remaps rows", gpus=gpus(rows_remap_pending=None)),
    warns("gpu_retired_pages_pending", "GPU 1: page retirement waits", f"--gpu-reset -i {uuid(1)}",
        gpus=gpus(4, gpu(1, retired_pages_pending=True))),
    well("gpu_retired_pages_pending", "none waits on 4 of 4"),
    skips("gpu_retired_pages_pending", "no GPU here retires pages", gpus=gpus(retired_pages_pending=None)),
    warns("gpu_retired_pages_pending", "GPU 1", "--gpu-reset -i 1",
        gpus=gpus(2, gpu(1, retired_pages_pending=True, uuid=None))),
    # gpu_wants_recovery
    fails("gpu_wants_recovery", "GPU 2: the driver asks to reset the GPU", f"--gpu-reset -i {uuid(2)}",
        gpus=gpus(4, gpu(2, recovery_action=1))),
    fails("gpu_wants_recovery", "reboot the machine", "sudo reboot", gpus=gpus(4, gpu(2, recovery_action=2))),
    fails("gpu_wants_recovery", "reboot the system", "sudo reboot", gpus=gpus(4, gpu(2, recovery_action=7))),
    fails("gpu_wants_recovery", "recovery action 42", "--gpu-reset", gpus=gpus(4, gpu(2, recovery_action=42))),
    fails("gpu_wants_recovery", "drain P2P traffic", "Drain P2P traffic",
        gpus=gpus(4, gpu(2, recovery_action=3))),
    well("gpu_wants_recovery", "nothing on 4 of 4"),
    skips("gpu_wants_recovery", "does not tell", gpus=gpus(recovery_action=None)),
    # gpu_too_hot, gpu_power_braked: bits of one mask
    warns("gpu_too_hot", "GPU 1 slowed by temperature (91 C)", "TEMPERATURE",
        gpus=gpus(4, gpu(1, clock_event_reasons=0x20, temperature_c=91))),
    warns("gpu_too_hot", "GPU 1", "TEMPERATURE", gpus=gpus(4, gpu(1, clock_event_reasons=0x40 | 0x08))),
    warns("gpu_too_hot", "GPU 1 slowed by temperature", "TEMPERATURE", gpus=gpus(4, gpu(1, clock_event_reasons=0x40))),
    well("gpu_too_hot", "4 of 4", gpus=gpus(clock_event_reasons=0x04 | 0x08 | 0x80)),  # power cap, slowdown, brake
    well("gpu_too_hot", "4 of 4", gpus=gpus(temperature_c=86)),
    skips("gpu_too_hot", "tells", gpus=gpus(clock_event_reasons=None)),
    warns("gpu_power_braked", "GPU 0: hardware power brake", "POWER", gpus=gpus(4, gpu(0, clock_event_reasons=0x88))),
    well("gpu_power_braked", "no power brake on 4 of 4", gpus=gpus(clock_event_reasons=0x04 | 0x20 | 0x40)),
    skips("gpu_power_braked", "tells", gpus=gpus(clock_event_reasons=None)),
    # gpu_power_capped: below 95 % of the default
    warns("gpu_power_capped", "GPU 2 capped at 664 W of 700 W", "sudo nvidia-smi -i 2 -pl 700",
        gpus=gpus(4, gpu(2, power_limit_w=664.0))),
    warns("gpu_power_capped", "GPU 0, 1, 2 and 3 capped at 400 W of 700 W", "-i 3 -pl 700",
        gpus=gpus(power_limit_w=400.0)),
    well("gpu_power_capped", "default power limit on 4 of 4", gpus=gpus(power_limit_w=665.0)),
    well("gpu_power_capped", "4 of 4", gpus=gpus(power_limit_w=750.0)),
    skips("gpu_power_capped", "tells", gpus=gpus(power_limit_default_w=None)),
    # gpu_compute_prohibited, gpu_compute_exclusive
    fails("gpu_compute_prohibited", "GPU 1: compute mode prohibited", "sudo nvidia-smi -i 1 -c DEFAULT",
        gpus=gpus(4, gpu(1, compute_mode=2))),
    well("gpu_compute_prohibited", "4 of 4 GPUs allow compute", gpus=gpus(compute_mode=3)),
    skips("gpu_compute_prohibited", "tells", gpus=gpus(compute_mode=None)),
    informs("gpu_compute_exclusive", "GPU 1: one process at a time", "sudo nvidia-smi -i 1 -c DEFAULT",
        gpus=gpus(4, gpu(1, compute_mode=3))),
    well("gpu_compute_exclusive", "4 of 4 GPUs can be shared"),
    skips("gpu_compute_exclusive", "tells", gpus=gpus(compute_mode=None)),
    # gpu_split_by_mig, gpu_mode_change_pending
    warns("gpu_split_by_mig", "GPU 3 split by MIG", "sudo nvidia-smi -i 3 -mig 0",
        gpus=gpus(4, gpu(3, mig_mode=True, mig_uuids=("MIG-1", "MIG-2")))),
    well("gpu_split_by_mig", "MIG is off on 4 of 4"),
    skips("gpu_split_by_mig", "knows MIG", gpus=gpus(mig_mode=None)),
    informs("gpu_mode_change_pending", "GPU 0: a mode change waits", f"--gpu-reset -i {uuid(0)}",
        gpus=gpus(4, gpu(0, ecc_pending=False))),
    informs("gpu_mode_change_pending", "GPU 2: a mode change waits", uuid(2),
        gpus=gpus(4, gpu(2, mig_mode_pending=True))),
    well("gpu_mode_change_pending", "nothing waits on 4 of 4"),
    well("gpu_mode_change_pending", "4 of 4",
        gpus=gpus(ecc_pending=None)),
    skips("gpu_mode_change_pending", "no GPU here has these modes", gpus=gpus(ecc_enabled=None, mig_mode=None)),
    # gpus_of_mixed_models
    warns("gpus_of_mixed_models", "GPU 1 and 2: ", "export CUDA_VISIBLE_DEVICES=0,1",
        gpus=gpus(4, gpu(0, permitted=False), gpu(3, name="NVIDIA A100")), visible=seen(1, 2, 3)),
    warns("gpus_of_mixed_models",
        "GPU 0, 1 and 2: NVIDIA H100 80GB HBM3; GPU 3: NVIDIA RTX A6000", "export CUDA_VISIBLE_DEVICES=0,1,2",
        gpus=MIXED),
    warns("gpus_of_mixed_models", "GPU 3: NVIDIA RTX A6000", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", gpus=MIXED),
    well("gpus_of_mixed_models", "4 x NVIDIA H100"),
    well("gpus_of_mixed_models", "3 x NVIDIA H100", gpus=MIXED, visible=seen(0, 1, 2, value="0,1,2")),
    skips("gpus_of_mixed_models", "no visible GPU", gpus=()),
    # gpu_memory_below_plan
    fails("gpu_memory_below_plan", "GPU 1: 40 GiB free, 70 GiB expected", "nvidia-smi",
        gpus=gpus(4, gpu(1, memory_free_bytes=40 * GIB)), plan=Plan(expect_free_bytes=70 * GIB)),
    fails("gpu_memory_below_plan", "GPU 1", "nvidia-smi",
        gpus=gpus(4, gpu(1, memory_free_bytes=70 * GIB - 1)), plan=Plan(expect_free_bytes=70 * GIB)),
    well("gpu_memory_below_plan", "4 GPUs have 70 GiB free",
        gpus=gpus(4, gpu(1, memory_free_bytes=70 * GIB)), plan=Plan(expect_free_bytes=70 * GIB)),
    well("gpu_memory_below_plan", "3 GPUs",
        gpus=gpus(4, gpu(1, memory_free_bytes=0)), plan=Plan(expect_free_bytes=70 * GIB),
        visible=seen(0, 2, 3, value="0,2,3")),
    skips("gpu_memory_below_plan", "--expect-free"),
    skips("gpu_memory_below_plan", "no visible GPU tells",
        gpus=gpus(memory_free_bytes=None), plan=Plan(expect_free_bytes=1)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_temperature_that_is_not_known_is_not_told() -> None:
    found = problem("gpu_too_hot", gpus=gpus(1, clock_event_reasons=0x40, temperature_c=None))
    assert "None" not in found.title
