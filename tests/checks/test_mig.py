"""checks/mig.py"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.facts import Case, config, driver, fails, gpu, gpus, informs, problem, seen, skips, table, warns, well

OLD = driver(version="565.57.01")  # shows a process one instance
SPLIT: dict[str, Any] = {"mig_mode": True, "mig_uuids": ("MIG-1", "MIG-2")}
MIXED = gpus(4, gpu(3, **SPLIT))
EMPTY: dict[str, Any] = {"mig_mode": True, "mig_uuids": ()}
CPU = config("compute_environment: LOCAL_MACHINE\nnum_processes: 4\nuse_cpu: true\n")
ONE = config("compute_environment: LOCAL_MACHINE\nnum_processes: 1\n")
CASES = (
    # gpu_split_by_mig: among whole ones
    warns("gpu_split_by_mig", "GPU 3 split by MIG", "sudo nvidia-smi -i 3 -mig 0", gpus=MIXED),
    warns("gpu_split_by_mig", "GPU 3 split by MIG", "export CUDA_VISIBLE_DEVICES=0,1,2", gpus=MIXED, driver=OLD),
    well("gpu_split_by_mig", "MIG is off on 4 of 4"),
    well("gpu_split_by_mig", "MIG is off on 3 of 3", gpus=MIXED, visible=seen(0, 1, 2, value="0,1,2")),
    well("gpu_split_by_mig", "all visible GPUs are split", gpus=gpus(**SPLIT)),
    skips("gpu_split_by_mig", "no visible GPU supports MIG", gpus=gpus(mig_mode=None)),
    # gpus_all_split_by_mig
    informs("gpus_all_split_by_mig", "GPUs 0 and 1 split by MIG into 4 instances", "export CUDA_VISIBLE_DEVICES=MIG-1",
        gpus=gpus(2, **SPLIT)),
    informs("gpus_all_split_by_mig", "GPU 0 split by MIG into 2 instances", "-mig 0",
        gpus=gpus(1, **SPLIT), driver=OLD),
    well("gpus_all_split_by_mig", "there are whole GPUs", gpus=MIXED),
    well("gpus_all_split_by_mig", "CUDA_VISIBLE_DEVICES selects the instance MIG-2",
        gpus=gpus(1, **SPLIT), visible=seen(mig="MIG-2")),
    well("gpus_all_split_by_mig", "CUDA_VISIBLE_DEVICES selects the instance MIG-2 and 1 more", gpus=gpus(1, **SPLIT),
        visible=seen(mig="MIG-2", more_mig=("MIG-1",))),
    skips("gpus_all_split_by_mig", "no visible GPU supports MIG", gpus=gpus(mig_mode=None)),
    # mig_without_instance
    warns("mig_without_instance", "GPU 1: MIG is enabled, but there is no instance to use",
        "sudo nvidia-smi mig -i 1 -cgi 0 -C",
        gpus=gpus(4, gpu(1, **EMPTY))),
    well("mig_without_instance", "instances on 1 of 4", gpus=MIXED),
    skips("mig_without_instance", "no visible GPU is split"),
    skips("mig_without_instance", "no visible GPU is split",
        gpus=gpus(4, gpu(1, trouble=("mig_uuids: NVML: UNKNOWN",), **EMPTY))),
    # mig_with_several_ranks: where CUDA shows one instance
    fails("mig_with_several_ranks", "4 ranks, but CUDA shows each of them the same MIG instance", "mgpu configure",
        gpus=gpus(**SPLIT), driver=OLD),
    fails("mig_with_several_ranks", "4 ranks", "export CUDA_VISIBLE_DEVICES=0,1,2", gpus=MIXED, driver=OLD),
    fails("mig_with_several_ranks", "4 ranks", "mgpu configure", gpus=gpus(**SPLIT), driver=OLD,
        visible=seen(mig="MIG-1")),
    well("mig_with_several_ranks", "one process, one instance", gpus=gpus(**SPLIT), driver=OLD, config=ONE),
    skips("mig_with_several_ranks", "driver 580.65.06 lists", gpus=gpus(**SPLIT)),
    skips("mig_with_several_ranks", "driver 570.26 lists", gpus=gpus(**SPLIT), driver=driver(version="570.26")),
    skips("mig_with_several_ranks", "the driver does not report its version",
        gpus=gpus(**SPLIT), driver=driver(version=None)),
    skips("mig_with_several_ranks", "no visible GPU is split", driver=OLD),
    skips("mig_with_several_ranks", "on the CPU", gpus=gpus(**SPLIT), driver=OLD, config=CPU),
    skips("mig_with_several_ranks", "number of processes", gpus=gpus(**SPLIT), driver=OLD,
        config=config("debug: false\n")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_what_cuda_shows_depends_on_the_driver() -> None:
    assert "no whole GPU." in problem("gpu_split_by_mig", gpus=MIXED, driver=OLD).cause
    assert "alongside whole GPUs" in problem("gpu_split_by_mig", gpus=MIXED).cause
