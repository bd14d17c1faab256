"""checks/processes.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import (
    DOCKER,
    GIB,
    MIB,
    WSL,
    Case,
    gpu,
    gpus,
    lost,
    problem,
    process,
    seen,
    skips,
    table,
    warns,
    well,
)

TRAINING = gpu(2, processes=(process(),), memory_used_bytes=31 * GIB)
CASES = (
    # gpu_busy: a compute process with 1 GiB or more
    warns("gpu_busy", "GPU 2 in use (30 GiB of 80 GiB)", "export CUDA_VISIBLE_DEVICES=0,1,3",
        gpus=gpus(4, TRAINING)),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", gpus=gpus(4, TRAINING)),
    warns("gpu_busy", "GPU 0", "kill 4711", gpus=gpus(4, gpu(0, processes=(process(mine=True),)))),
    warns("gpu_busy", "GPU 0 and 1 in use (30 GiB of 80 GiB on GPU 0)", "nvidia-smi",
        gpus=gpus(2, processes=(process(user=None, mine=None),))),
    warns("gpu_busy", "GPU 0 in use (1.0 GiB", "CUDA_VISIBLE_DEVICES=1,2,3",
        gpus=gpus(4, gpu(0, processes=(process(memory_bytes=GIB),)))),
    warns("gpu_busy", "GPU 0 in use", "CUDA_VISIBLE_DEVICES=1,2,3",
        gpus=gpus(4, gpu(0, processes=(process(memory_bytes=None),)))),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_VISIBLE_DEVICES=1",
        gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False), TRAINING), visible=seen(2, 3)),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_VISIBLE_DEVICES=0,3", gpus=gpus(4, TRAINING, lost(1))),
    well("gpu_busy", "nobody computes on 4 of 4 visible GPUs"),
    well("gpu_busy", "4 of 4", gpus=gpus(processes=(process(memory_bytes=GIB - 1),))),
    well("gpu_busy", "4 of 4", gpus=gpus(processes=(process(kind="graphics"),))),
    well("gpu_busy", "2 of 2", gpus=gpus(4, TRAINING), visible=seen(0, 1, value="0,1")),
    well("gpu_busy", "3 of 4", gpus=gpus(4, gpu(1, processes=None))),
    skips("gpu_busy", "no visible GPU lists", gpus=gpus(processes=None)),
    # gpu_memory_without_process: more than 2 GiB that nobody holds
    warns("gpu_memory_without_process", "GPU 1: 40 GiB in use by no process", "sudo fuser -v /dev/nvidia1",
        gpus=gpus(4, gpu(1, memory_used_bytes=40 * GIB))),
    warns("gpu_memory_without_process", "GPU 1", "fuser", gpus=gpus(4, gpu(1, memory_used_bytes=2 * GIB + 1))),
    warns("gpu_memory_without_process", "GPU 1", "fuser",
        gpus=gpus(4, gpu(1, memory_used_bytes=32 * GIB + 1, processes=(process(),)))),
    warns(
        "gpu_memory_without_process",
        "GPU 1: 5.0 GiB in use by no process",
        "fuser",
        gpus=gpus(4, gpu(1, memory_used_bytes=35 * GIB, processes=(process(),))),
    ),
    well("gpu_memory_without_process", "memory of 4 GPUs is accounted for"),
    well("gpu_memory_without_process", "4 GPUs", gpus=gpus(memory_used_bytes=2 * GIB)),
    well("gpu_memory_without_process", "4 GPUs",
        gpus=gpus(memory_used_bytes=30 * GIB + 600 * MIB, processes=(process(),))),
    well("gpu_memory_without_process", "3 GPUs", gpus=gpus(4, gpu(0, memory_used_bytes=None))),
    skips("gpu_memory_without_process", "cannot be seen", container=DOCKER),
    skips("gpu_memory_without_process", "cannot be seen", container=WSL),
    skips("gpu_memory_without_process", "no visible GPU tells",
        gpus=gpus(memory_used_bytes=40 * GIB, processes=(process(memory_bytes=None),))),
    skips("gpu_memory_without_process", "no visible GPU tells", gpus=gpus(processes=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_memory_that_is_not_known_is_not_told() -> None:
    found = problem("gpu_busy", gpus=gpus(4, gpu(0, processes=(process(memory_bytes=None),))))
    assert found.title == "GPU 0 in use"
