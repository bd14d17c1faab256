"""checks/ecc.py"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.facts import Case, fails, gpu, gpus, informs, problem, skips, table, uuid, warns, well

T4: dict[str, Any] = {"name": "Tesla T4", "rows_remap_failed": None}
ECC_OFF: dict[str, Any] = {"ecc_enabled": False, "ecc_pending": False}
CASES = (
    # gpu_ecc_uncorrected
    fails("gpu_ecc_uncorrected", "1 uncorrected ECC error on GPU 1 since", f"sudo nvidia-smi --gpu-reset -i {uuid(1)}",
        gpus=gpus(4, gpu(1, ecc_uncorrected_volatile=1))),
    fails("gpu_ecc_uncorrected", "5 uncorrected ECC errors on GPUs 1 and 2", uuid(2),
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
    well("gpu_row_remap_failed", "no failed row remapping on 4 of 4 GPUs", gpus=gpus(rows_remapped_uncorrectable=3)),
    skips("gpu_row_remap_failed", "no GPU here remaps rows", gpus=gpus(rows_remap_failed=None)),
    warns("gpu_row_remap_pending", "GPUs 0 and 3: row remapping pending until a reset", f"--gpu-reset -i {uuid(3)}",
        gpus=gpus(4, gpu(0, rows_remap_pending=True), gpu(3, rows_remap_pending=True))),
    well("gpu_row_remap_pending", "no pending remap on 4 of 4 GPUs"),
    skips("gpu_row_remap_pending", "no GPU here remaps rows", gpus=gpus(rows_remap_pending=None)),
    warns("gpu_retired_pages_pending", "GPU 1: page retirement pending until a reset", f"--gpu-reset -i {uuid(1)}",
        gpus=gpus(4, gpu(1, retired_pages_pending=True))),
    well("gpu_retired_pages_pending", "no pending retirement on 4 of 4 GPUs"),
    skips("gpu_retired_pages_pending", "no GPU here retires pages", gpus=gpus(retired_pages_pending=None)),
    warns("gpu_retired_pages_pending", "GPU 1", "--gpu-reset -i 1",
        gpus=gpus(2, gpu(1, retired_pages_pending=True, uuid=None))),
    # gpu_memory_unrepairable, gpu_sram_errors_exceeded: flags of the driver
    fails("gpu_memory_unrepairable", "GPU 2: unrepairable memory", "field diagnostic",
        gpus=gpus(4, gpu(2, memory_unrepairable=True))),
    well("gpu_memory_unrepairable", "no unrepairable memory on 3 of 4 GPUs",
        gpus=gpus(4, gpu(2, memory_unrepairable=None))),
    skips("gpu_memory_unrepairable", "driver 590", gpus=gpus(memory_unrepairable=None)),
    fails("gpu_sram_errors_exceeded", "GPUs 0 and 1: uncorrected SRAM errors above the threshold",
        "sudo nvidia-smi -q -d ECC",
        gpus=gpus(2, ecc_sram_threshold_exceeded=True)),
    well("gpu_sram_errors_exceeded", "below the threshold on 4 of 4"),
    skips("gpu_sram_errors_exceeded", "reported to root only: sudo nvidia-smi -q -d ECC",
        gpus=gpus(ecc_sram_threshold_exceeded=None)),
    skips("gpu_sram_errors_exceeded", "no GPU here counts", gpus=gpus(ecc_sram_threshold_exceeded=None, **T4)),
    skips("gpu_sram_errors_exceeded", "no GPU here counts",
        gpus=gpus(ecc_sram_threshold_exceeded=None, ecc_enabled=None)),
    # gpu_spare_rows_used_up, gpu_pages_retired_to_the_limit, gpu_repair_pending
    warns("gpu_spare_rows_used_up", "GPU 3: 1 memory bank without spare rows", "ROW_REMAPPER",
        gpus=gpus(4, gpu(3, rows_banks_without_spare=1))),
    well("gpu_spare_rows_used_up", "spare rows on 4 of 4"),
    skips("gpu_spare_rows_used_up", "no GPU here reports its spare rows", gpus=gpus(rows_banks_without_spare=None)),
    warns("gpu_pages_retired_to_the_limit", "GPU 1: 63 memory pages retired (limit 63)", "PAGE_RETIREMENT",
        gpus=gpus(2, gpu(1, retired_pages=63))),
    well("gpu_pages_retired_to_the_limit", "at most 62 pages retired on 2 of 2",
        gpus=gpus(2, gpu(1, retired_pages=62))),
    skips("gpu_pages_retired_to_the_limit", "no GPU here retires pages", gpus=gpus(retired_pages=None)),
    informs("gpu_repair_pending", "GPU 1: repair pending until a reset", f"--gpu-reset -i {uuid(1)}",
        gpus=gpus(4, gpu(1, repair_pending=True))),
    well("gpu_repair_pending", "no pending repair on 4 of 4 GPUs"),
    skips("gpu_repair_pending", "not reported by any GPU here", gpus=gpus(repair_pending=None)),
    # gpu_memory_errors_before: in its life, not since the driver was loaded, which is gpu_ecc_uncorrected
    informs("gpu_memory_errors_before", "GPU 1: 3 uncorrected memory errors in the past", "Nothing to do",
        gpus=gpus(4, gpu(1, ecc_uncorrected_aggregate=3))),
    well("gpu_memory_errors_before", "no earlier errors on 4 of 4",
        gpus=gpus(4, gpu(1, ecc_uncorrected_aggregate=3, ecc_uncorrected_volatile=3))),
    skips("gpu_memory_errors_before", "no GPU here counts", gpus=gpus(ecc_uncorrected_aggregate=None)),
    # gpu_ecc_off: of the models that come with it on
    warns("gpu_ecc_off", "ECC is off on GPU 1", "sudo nvidia-smi -i 1 -e 1", gpus=gpus(4, gpu(1, **ECC_OFF))),
    warns("gpu_ecc_off", "GPU 0", "-e 1", gpus=gpus(1, name="NVIDIA A10G", **ECC_OFF)),
    warns("gpu_ecc_off", "GPU 0", "-e 1", gpus=gpus(1, name="NVIDIA A100-SXM4-80GB", **ECC_OFF)),
    well("gpu_ecc_off", "on 4 of 4"),
    well("gpu_ecc_off", "ECC is on, or pending until a reset, on 4 of 4 GPUs",
        gpus=gpus(4, gpu(1, ecc_enabled=False, ecc_pending=True))),
    skips("gpu_ecc_off", "by default", gpus=gpus(name="NVIDIA RTX A6000", **ECC_OFF)),
    skips("gpu_ecc_off", "by default", gpus=gpus(name="NVIDIA GeForce RTX 4090", ecc_enabled=None)),
    skips("gpu_ecc_off", "by default", gpus=gpus(name="NVIDIA A10-24Q", virtualization=2, **ECC_OFF)),
    skips("gpu_ecc_off", "by default", gpus=gpus(name=None, **ECC_OFF)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_board_to_send_back_is_named() -> None:
    found = problem("gpu_memory_unrepairable", gpus=gpus(4, gpu(2, memory_unrepairable=True)))
    assert found.evidence == {"gpu_2_serial": gpu(2).serial}
