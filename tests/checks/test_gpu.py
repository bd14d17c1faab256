"""checks/gpu.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    Case,
    fails,
    gpu,
    gpus,
    informs,
    lost,
    process,
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
    warns("gpu_answers_in_part", "GPU 1: 2 queries failed with an error", "nvidia-smi -q -i 1",
        gpus=gpus(4, gpu(1, trouble=("ecc_enabled: NVML: UNKNOWN", "power_w: NVML: UNKNOWN")))),
    warns("gpu_answers_in_part", "GPUs 0 and 3: 2 queries failed with an error", "nvidia-smi -q -i 0",
        gpus=gpus(4, gpu(0, trouble=("power_w: UNKNOWN",)), gpu(3, trouble=("power_w: UNKNOWN",)))),
    well("gpu_answers_in_part", "4 GPUs answered every query"),
    well("gpu_answers_in_part", "3 GPUs answered every query", gpus=gpus(4, lost(1))),
    skips("gpu_answers_in_part", "no GPU here", gpus=()),
    informs("gpu_not_permitted", "GPUs 0 and 1 of 4: not accessible to this process", "srun --gpus",
        gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))),
    well("gpu_not_permitted", "this process may use all 4 GPUs"),
    skips("gpu_not_permitted", "no GPU here", gpus=()),
    # gpu_wants_recovery
    fails("gpu_wants_recovery", 'GPU 2: the driver requests "reset the GPU"', f"--gpu-reset -i {uuid(2)}",
        gpus=gpus(4, gpu(2, recovery_action=1))),
    fails("gpu_wants_recovery", "reboot the machine", "sudo reboot", gpus=gpus(4, gpu(2, recovery_action=2))),
    fails("gpu_wants_recovery", "reboot the system", "sudo reboot", gpus=gpus(4, gpu(2, recovery_action=7))),
    fails("gpu_wants_recovery", "recovery action 42", "--gpu-reset", gpus=gpus(4, gpu(2, recovery_action=42))),
    fails("gpu_wants_recovery", "drain P2P traffic", "nvidia-smi -q -i 2 | grep",
        gpus=gpus(4, gpu(2, recovery_action=3))),
    fails("gpu_wants_recovery", "drain and reset the GPU", f"--gpu-reset -i {uuid(2)}",
        gpus=gpus(4, gpu(2, recovery_action=4))),
    fails("gpu_wants_recovery", "recover the IMEX domain", "systemctl restart nvidia-imex",
        gpus=gpus(recovery_action=5), plan=Plan(nodes=2)),
    well("gpu_wants_recovery", "no action requested on 3 of 4 GPUs; recovery of the IMEX domain requested on 1 GPU",
        gpus=gpus(4, gpu(2, recovery_action=5))),
    well("gpu_wants_recovery", "no action requested on 4 of 4 GPUs"),
    skips("gpu_wants_recovery", "this driver does not report it", gpus=gpus(recovery_action=None)),
    # gpu_compute_prohibited, gpu_compute_exclusive
    fails("gpu_compute_prohibited", "GPU 1: compute mode prohibited", "sudo nvidia-smi -i 1 -c DEFAULT",
        gpus=gpus(4, gpu(1, compute_mode=2))),
    fails("gpu_compute_prohibited", "GPU 1: compute mode prohibited", "export CUDA_VISIBLE_DEVICES=0,2,3",
        gpus=gpus(4, gpu(1, compute_mode=2))),
    well("gpu_compute_prohibited", "3 of 3 visible GPUs allow compute",  # the display's, hidden
        gpus=gpus(4, gpu(3, compute_mode=2)), visible=seen(0, 1, 2, value="0,1,2")),
    well("gpu_compute_exclusive", "3 of 3 visible GPUs can be shared",
        gpus=gpus(4, gpu(3, compute_mode=3)), visible=seen(0, 1, 2, value="0,1,2")),
    well("gpu_compute_prohibited", "4 of 4 visible GPUs allow compute", gpus=gpus(compute_mode=3)),
    skips("gpu_compute_prohibited", "not reported by any visible GPU", gpus=gpus(compute_mode=None)),
    informs("gpu_compute_exclusive", "GPU 1: one process at a time", "sudo nvidia-smi -i 1 -c DEFAULT",
        gpus=gpus(4, gpu(1, compute_mode=3))),
    well("gpu_compute_exclusive", "4 of 4 visible GPUs can be shared"),
    skips("gpu_compute_exclusive", "not reported by any visible GPU", gpus=gpus(compute_mode=None)),
    # gpu_exclusive_taken
    fails("gpu_exclusive_taken", "GPU 1: allows one process at a time, and pid 4711 uses it",
        "export CUDA_VISIBLE_DEVICES=0,2,3", gpus=gpus(4, gpu(1, compute_mode=3, processes=(process(),)))),
    fails("gpu_exclusive_taken", "GPU 0: allows one process at a time, and pid 4711 uses it",
        "Wait until the process exits.",
        gpus=gpus(1, compute_mode=3, processes=(process(),))),
    well("gpu_exclusive_taken", "4 of 4 visible GPUs allow one process and are free", gpus=gpus(compute_mode=3)),
    well("gpu_exclusive_taken", "4 of 4 visible GPUs can be shared", gpus=gpus(processes=(process(),))),
    well("gpu_exclusive_taken", "are free",
        gpus=gpus(1, compute_mode=3, processes=(process(kind="graphics"),))),
    well("gpu_exclusive_taken", "1 of 1",
        gpus=gpus(2, gpu(1, compute_mode=3, processes=(process(),))), visible=seen(0)),
    skips("gpu_exclusive_taken", "lists its processes", gpus=gpus(processes=None)),
    # gpu_mode_change_pending
    informs("gpu_mode_change_pending", "GPU 0: mode change pending until a reset", f"--gpu-reset -i {uuid(0)}",
        gpus=gpus(4, gpu(0, ecc_pending=False))),
    informs("gpu_mode_change_pending", "GPU 2: mode change pending until a reset", uuid(2),
        gpus=gpus(4, gpu(2, mig_mode_pending=True))),
    well("gpu_mode_change_pending", "no change pending on 4 of 4 GPUs"),
    well("gpu_mode_change_pending", "4 of 4",
        gpus=gpus(ecc_pending=None)),
    skips("gpu_mode_change_pending", "no GPU here has these modes", gpus=gpus(ecc_enabled=None, mig_mode=None)),
    # gpus_of_mixed_models
    warns("gpus_of_mixed_models", "GPUs 1 and 2: ", "export CUDA_VISIBLE_DEVICES=0,1",
        gpus=gpus(4, gpu(0, permitted=False), gpu(3, name="NVIDIA A100")), visible=seen(1, 2, 3)),
    warns("gpus_of_mixed_models",
        "GPUs 0, 1 and 2: NVIDIA H100 80GB HBM3; GPU 3: NVIDIA RTX A6000", "export CUDA_VISIBLE_DEVICES=0,1,2",
        gpus=MIXED),
    warns("gpus_of_mixed_models", "GPU 3: NVIDIA RTX A6000", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", gpus=MIXED),
    well("gpus_of_mixed_models", "4 x NVIDIA H100"),
    well("gpus_of_mixed_models", "3 x NVIDIA H100", gpus=MIXED, visible=seen(0, 1, 2, value="0,1,2")),
    skips("gpus_of_mixed_models", "no visible GPU", gpus=()),
    # gpu_inforom_corrupt, gpu_vbios_differs
    warns("gpu_inforom_corrupt", "GPU 2: the InfoROM is corrupted", "nvidia-smi -q -i 2",
        gpus=gpus(4, gpu(2, inforom_valid=False))),
    well("gpu_inforom_corrupt", "valid on 3 of 4", gpus=gpus(4, gpu(2, inforom_valid=None))),
    skips("gpu_inforom_corrupt", "not reported by any GPU here", gpus=gpus(inforom_valid=None)),
    informs("gpu_vbios_differs", "96.00.89.00.01 on GPUs 0, 1 and 2; 96.00.a5.00.01 on GPU 3", "one version",
        gpus=gpus(4, gpu(3, vbios="96.00.a5.00.01"))),
    well("gpu_vbios_differs", "one VBIOS version on 4 of 4 visible GPUs"),
    well("gpu_vbios_differs", "4 of 4", gpus=gpus(4, gpu(3, name="NVIDIA L4", vbios="95.04.29.00.06"))),
    well("gpu_vbios_differs", "3 of 3", gpus=gpus(4, gpu(3, vbios="96.00.a5.00.01")), visible=seen(0, 1, 2)),
    skips("gpu_vbios_differs", "not reported by any visible GPU", gpus=gpus(vbios=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
