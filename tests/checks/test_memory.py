"""checks/memory.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    DOCKER,
    GIB,
    MIB,
    WSL,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    informs,
    lost,
    problem,
    process,
    seen,
    skips,
    table,
    warns,
    well,
)

RESERVED = 551 * MIB
CASES = (
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
    skips("gpu_memory_below_plan", "not reported by any visible GPU",
        gpus=gpus(memory_free_bytes=None), plan=Plan(expect_free_bytes=1)),
    # gpu_memory_sizes_differ: by more than 1 %
    warns("gpu_memory_sizes_differ", "GPU 1: 75 GiB of memory, the others have 80 GiB", "nvidia-smi -q -d ECC",
        gpus=gpus(5, gpu(1, memory_total_bytes=75 * GIB), gpu(4, ecc_enabled=False))),
    warns("gpu_memory_sizes_differ", "GPUs 0 and 1: 40 GiB of memory", "mgpu configure",
        gpus=gpus(4, *(gpu(n, memory_total_bytes=40 * GIB) for n in (0, 1)))),
    well("gpu_memory_sizes_differ", "equal memory on 4 of 4",
        gpus=gpus(4, gpu(1, memory_total_bytes=80 * GIB * 99 // 100 + 1))),
    well("gpu_memory_sizes_differ", "4 of 4", gpus=gpus(4, gpu(1, name="NVIDIA L4", memory_total_bytes=23 * GIB))),
    well("gpu_memory_sizes_differ", "3 of 4", gpus=gpus(4, gpu(1, mig_mode=True, memory_total_bytes=40 * GIB))),
    well("gpu_memory_sizes_differ", "2 of 2", gpus=gpus(3, gpu(1, memory_total_bytes=40 * GIB)), visible=seen(0, 2)),
    skips("gpu_memory_sizes_differ", "no visible GPU reports its memory size", gpus=gpus(memory_total_bytes=None)),
    skips("gpu_memory_sizes_differ", "no visible GPU reports its memory size", gpus=(lost(0),)),
    # gpu_free_memory_uneven: by 1 GiB
    informs("gpu_free_memory_uneven", "GPU 0: 78 GiB free, others up to 79 GiB", "nvidia-smi",
        gpus=gpus(2, gpu(0, memory_free_bytes=78 * GIB), memory_free_bytes=79 * GIB)),
    well("gpu_free_memory_uneven", "free memory is similar on 2 of 2 visible GPUs",
        gpus=gpus(2, gpu(0, memory_free_bytes=78 * GIB + 1), memory_free_bytes=79 * GIB)),
    well("gpu_free_memory_uneven", "4 of 4", gpus=gpus(4, gpu(3, name="NVIDIA L4", memory_free_bytes=22 * GIB))),
    skips("gpu_free_memory_uneven", "no visible GPU reports its free memory", gpus=gpus(memory_free_bytes=None)),
    # gpu_memory_used_from_outside: more than 2 GiB beyond what the driver reserves, in a container
    warns("gpu_memory_used_from_outside", "GPU 1: 31 GiB in use, but no process is listed",
        "export CUDA_VISIBLE_DEVICES=0,2,3", container=DOCKER,
        gpus=gpus(4, gpu(1, memory_used_bytes=31 * GIB + RESERVED))),
    warns("gpu_memory_used_from_outside", "GPU 0: 2.0 GiB", "nvidia-smi", container=DOCKER,
        gpus=gpus(1, memory_used_bytes=2 * GIB + RESERVED + 1)),
    well("gpu_memory_used_from_outside", "memory of 1 GPU is accounted for", container=DOCKER,
        gpus=gpus(1, memory_used_bytes=2 * GIB + RESERVED)),
    well("gpu_memory_used_from_outside", "memory of 1 GPU", container=DOCKER,
        gpus=gpus(1, memory_used_bytes=31 * GIB, processes=(process(memory_bytes=30 * GIB),))),
    skips("gpu_memory_used_from_outside", "not a container", gpus=gpus(memory_used_bytes=31 * GIB)),
    skips("gpu_memory_used_from_outside", "not a container", container=WSL, gpus=gpus(memory_used_bytes=31 * GIB)),
    # on a Grace machine the kernel keeps pages in the GPU's memory
    skips("gpu_memory_used_from_outside", "not reported by any visible GPU", container=DOCKER,
        gpus=gpus(c2c_enabled=True, memory_used_bytes=31 * GIB)),
    skips("gpu_memory_used_from_outside", "not reported by any visible GPU", container=DOCKER,
        gpus=gpus(memory_used_bytes=31 * GIB, processes=(process(memory_bytes=None),))),
    # gpu_busy_without_process: above 20 %
    warns("gpu_busy_without_process", "GPU 2: 21 % busy, but no process is listed", "sudo fuser -v /dev/nvidia6",
        gpus=gpus(4, gpu(2, utilization_percent=21, minor=6))),
    warns("gpu_busy_without_process", "GPU 2", "export CUDA_VISIBLE_DEVICES=0,1,3", container=DOCKER,
        gpus=gpus(4, gpu(2, utilization_percent=97))),
    warns("gpu_busy_without_process", "GPU 2", "/dev/nvidia2",
        gpus=gpus(4, gpu(2, utilization_percent=97, minor=None))),
    well("gpu_busy_without_process", "4 of 4", gpus=gpus(utilization_percent=20)),
    well("gpu_busy_without_process", "4 of 4", gpus=gpus(utilization_percent=97, processes=(process(),))),
    # while a driver starts, it scrubs the memory
    skips("gpu_busy_without_process", "not reported by any visible GPU, or the driver was only just started",
        driver=driver(init_s=0.5),
        gpus=gpus(utilization_percent=97, persistence_mode=False)),
    warns("gpu_busy_without_process", "GPU 0", "/dev/nvidia0", driver=driver(init_s=0.49),
        gpus=gpus(1, utilization_percent=97, persistence_mode=False)),
    skips("gpu_busy_without_process", "Windows", container=WSL, gpus=gpus(utilization_percent=97)),
    skips("gpu_busy_without_process", "not reported by any visible GPU, or the driver was only just started",
        gpus=gpus(processes=None)),
    # gpu_bar1_exhausted: at 95 %
    warns("gpu_bar1_exhausted", "GPU 0: BAR1 is full (243 MiB of 256 MiB)", "nvidia-smi -q -d MEMORY",
        gpus=gpus(1, bar1_total_bytes=256 * MIB, bar1_used_bytes=256 * MIB * 95 // 100 + 1)),
    well("gpu_bar1_exhausted", "free space in BAR1 on 1 of 1 visible GPUs",
        gpus=gpus(1, bar1_total_bytes=256 * MIB, bar1_used_bytes=256 * MIB * 95 // 100)),
    skips("gpu_bar1_exhausted", "not reported by any visible GPU", gpus=gpus(bar1_total_bytes=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_screen_is_named_as_what_takes_the_memory() -> None:
    shown = problem("gpu_free_memory_uneven", gpus=gpus(2, gpu(0, memory_free_bytes=70 * GIB, display_active=True)))
    assert shown.cause == "GPU 0 drives a display."
    desktop = process(kind="graphics", name="Xorg")
    listed = problem("gpu_free_memory_uneven", gpus=gpus(2, gpu(0, memory_free_bytes=70 * GIB, processes=(desktop,))))
    assert listed.cause == "GPU 0 drives a display."
    other = problem("gpu_free_memory_uneven", gpus=gpus(2, gpu(0, memory_free_bytes=70 * GIB)))
    assert "screen" not in other.cause
