"""Why did a network card not register memory, by the error of the call?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained

LINE = "node1:41:87 [0] misc/ibvwrap.cc:182 NCCL WARN Call to ibv_reg_mr_iova2 failed with error {}\n"


@pytest.mark.parametrize(
    ("error", "row", "there", "absent"),
    [
        ("Bad address", "log_gpu_memory_not_registered", "does not recognize GPU memory", "rejected the request"),
        ("Invalid argument", "log_gpu_memory_not_registered", "NCCL_IB_PCI_RELAXED_ORDERING=0", "does not recognize"),
        ("Operation not supported", "log_gpu_memory_not_registered", "no DMA-BUF for GPUs", "does not recognize"),
        ("Cannot allocate memory", "log_memory_not_locked", "ulimit -l unlimited", "nvidia-peermem"),
    ],
)
def test_the_error_decides(error: str, row: str, there: str, absent: str, tmp_path: Path) -> None:
    found, _, rest = explained(tmp_path, LINE.format(error))
    assert found == row
    assert there in rest
    assert absent not in rest
