"""checks/xid/"""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from mgpu.snapshot import KernelEvent
from tests.checks.facts import Case, event, gpus, informs, kernel_log, problem, skips, table, warns, well

DAY = 86400.0


def xid(code: int, **changes: object) -> KernelEvent:
    """An Xid of GPU 2, two minutes ago."""
    return event("xid", code, **{"gpu": 2, **changes})


def driver(text: str, seconds_ago: float = 120.0, pci: str | None = None) -> KernelEvent:
    return event("driver", None, process=None, seconds_ago=seconds_ago, text=text, pci=pci)


LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06"
RECOVERED = "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
WANTED = "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
FATAL = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
HARMLESS = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
NONFATAL = "NVRM: Xid (PCI:0008:01:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008)"
FAILED = "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0xffff:1474)"
REFUSED = "Loading of unsigned module is rejected"
MISMATCH = (
    "NVRM: API mismatch: the client has the version 535.183.01, but this kernel module has the version 550.54.15."
)

# One code of each kind, and the check that reports it.
SERIOUS = {
    "xid_gpu_fell_off_bus": 79,
    "xid_memory_damaged": 48,
    "xid_nvlink_failed": 74,
    "xid_firmware_crashed": 119,
    "xid_gpu_wants_reset": 62,
    "xid_board_faulty": 54,
}
CASES = (
    # xid_gpu_fell_off_bus: whoever else is asked then hangs, so the check needs nothing but the log
    warns("xid_gpu_fell_off_bus", "GPU 2 (0000:1a:00): Xid 79, GPU has fallen off the bus, 2 min ago", "sudo reboot",
        kernel_log=kernel_log(xid(79))),
    warns("xid_gpu_fell_off_bus", "the GPU at 0000:1a:00: Xid 79", "power cables", kernel_log=kernel_log(event())),
    warns("xid_gpu_fell_off_bus", "a GPU: Xid 79", "reboot", kernel_log=kernel_log(event(pci=None))),
    warns("xid_gpu_fell_off_bus", "Xid 79", "reboot", kernel_log=kernel_log(xid(79, seconds_ago=DAY))),
    warns("xid_gpu_fell_off_bus", "GPU 2 (0000:1a:00): Xid 79, GPU has fallen off the bus, at an unknown time",
        "reboot", kernel_log=kernel_log(xid(79, seconds_ago=None))),
    warns("xid_gpu_fell_off_bus", "GPU 2 (0000:1a:00): Xid 79, GPU has fallen off the bus, 2 min ago (2 log lines)",
        "reboot", kernel_log=kernel_log(xid(79), xid(79)), gpus=None),
    well("xid_gpu_fell_off_bus", "no Xid 79 in the kernel log (last 24 h)"),
    well("xid_gpu_fell_off_bus", "no Xid 79 in the kernel log (last 5 min)", kernel_log=kernel_log(since_s=300.0)),
    well("xid_gpu_fell_off_bus", "no Xid 79", kernel_log=kernel_log(xid(79, seconds_ago=DAY + 1))),
    well("xid_gpu_fell_off_bus", "no Xid 79", kernel_log=kernel_log(xid(79, seconds_ago=7200), driver(LOADED, 3600))),
    skips("xid_gpu_fell_off_bus", "kernel log was not checked", kernel_log=None),
    # xid_memory_damaged
    *(warns("xid_memory_damaged", f"GPU 2 (0000:1a:00): Xid {code}, ", "--gpu-reset -i 0000:1a:00.0",
        kernel_log=kernel_log(xid(code))) for code in (48, 64, 95, 140, 171, 172)),
    warns("xid_memory_damaged", "Xid 95", "gpu-reset", kernel_log=kernel_log(xid(95), xid(154, text=WANTED))),
    warns("xid_memory_damaged", "Xid 95", "gpu-reset",
        kernel_log=kernel_log(xid(95), xid(154, text=RECOVERED, pci="0000:1b:00"))),
    well("xid_memory_damaged", "no Xid", kernel_log=kernel_log(xid(95), xid(154, text=RECOVERED))),
    well("xid_memory_damaged", "no Xid for damaged memory in the kernel log (last 24 h)",
        kernel_log=kernel_log(xid(63), xid(94), xid(31))),
    # xid_memory_repaired
    *(informs("xid_memory_repaired", f"Xid {code}", "Reset it when nothing runs on it.",
        kernel_log=kernel_log(xid(code))) for code in (63, 92, 94, 160)),
    well("xid_memory_repaired", "no Xid", kernel_log=kernel_log(xid(48))),
    # xid_nvlink_failed: NVLink 5 writes whether it was fatal
    *(warns("xid_nvlink_failed", f"Xid {code}", "nvidia-smi nvlink --status", kernel_log=kernel_log(xid(code)))
      for code in (74, 136, *range(144, 151), 155)),
    well("xid_nvlink_failed", "no Xid for a failed NVLink in the kernel log (last 24 h)"),
    well("xid_nvlink_failed", ", 1 nonfatal", kernel_log=kernel_log(xid(145, text=NONFATAL))),
    # xid_firmware_crashed: what stands behind most "watchdog got stuck" reports with a GPU at 100 %
    warns("xid_firmware_crashed",
        "GPU 2 (0000:1a:00): Xid 119, the GPU's firmware (GSP) did not respond to the driver, 2 min ago",
        "update the driver",
        kernel_log=kernel_log(xid(119))),
    warns("xid_firmware_crashed", "Xid 120", "gpu-reset", kernel_log=kernel_log(xid(120))),
    well("xid_firmware_crashed", "no Xid for the GSP firmware in the kernel log (last 24 h)",
        kernel_log=kernel_log(xid(62))),
    # xid_gpu_wants_reset
    *(warns("xid_gpu_wants_reset", f"Xid {code}", "gpu-reset", kernel_log=kernel_log(xid(code)))
      for code in (46, 62, 109, 110, 143, 156, 158)),
    well("xid_gpu_wants_reset", "no Xid", kernel_log=kernel_log(xid(13))),
    # xid_board_faulty
    *(warns("xid_board_faulty", f"Xid {code}", "nvidia-smi -L", kernel_log=kernel_log(xid(code)))
      for code in (54, 157, 165, 167, 168)),
    well("xid_board_faulty", "no Xid for a board fault in the kernel log (last 24 h)"),
    # xid_program_crashed: the user's own crash is no fault of the machine
    *(informs("xid_program_crashed", f"Xid {code}", "compute-sanitizer", kernel_log=kernel_log(xid(code)))
      for code in (13, 31, 43, 69, 137)),
    well("xid_program_crashed", "no Xid for a crashed program in the kernel log (last 24 h)",
        kernel_log=kernel_log(xid(45))),
    # xid_keeps_to_one_gpu: three programs, and no other GPU
    informs("xid_keeps_to_one_gpu", "3 programs crashed on GPU 2 (0000:1a:00), none on another", "CUDA_VISIBLE_DEVICES",
        kernel_log=kernel_log(*(xid(31, process=f"python (pid {pid})", seconds_ago=9 * DAY) for pid in (1, 2, 3)))),
    skips("xid_keeps_to_one_gpu", "no second GPU", gpus=gpus(1),
        kernel_log=kernel_log(*(xid(31, process=f"python (pid {pid})") for pid in (1, 2, 3)))),
    well("xid_keeps_to_one_gpu", "2 crashed programs on 1 GPU",
        kernel_log=kernel_log(*(xid(31, process=f"python (pid {pid})") for pid in (1, 2, 2)))),
    well("xid_keeps_to_one_gpu", "4 crashed programs on 2 GPUs",
        kernel_log=kernel_log(*(xid(31, process=f"pid {pid}") for pid in (1, 2, 3)), xid(31, pci="0000:1b:00"))),
    # xid_not_classified: unknown codes and those without a public action
    informs("xid_not_classified", "Xid 9999, not classified", "xid-catalog", kernel_log=kernel_log(xid(9999))),
    informs("xid_not_classified", "Xid 173", "Look it up", kernel_log=kernel_log(xid(173))),
    informs("xid_not_classified", "Xid 159, CHI error", "Look it up", kernel_log=kernel_log(xid(159))),
    well("xid_not_classified", "no unclassified Xid in the kernel log (last 24 h)",
        kernel_log=kernel_log(xid(79), xid(45), xid(154))),
    # xid_of_earlier_days
    informs("xid_of_earlier_days", "Xid 79, GPU has fallen off the bus, 4 days ago", "Nothing now",
        kernel_log=kernel_log(xid(79, seconds_ago=4 * DAY))),
    informs("xid_of_earlier_days", "Xid 79", "Nothing",
        kernel_log=kernel_log(xid(79, seconds_ago=7200), driver(LOADED, 3600))),
    well("xid_of_earlier_days", "no serious Xid", kernel_log=kernel_log(xid(79))),
    well("xid_of_earlier_days", "no serious Xid", kernel_log=kernel_log(xid(31, seconds_ago=4 * DAY))),
    # nvswitch_failed
    warns("nvswitch_failed", "the NVSwitch at 0000:a9:00.0: fatal SXid 20034, 2 min ago", "nvidia-fabricmanager",
        kernel_log=kernel_log(event("sxid", 20034, pci="0000:a9:00.0", process=None, text=FATAL))),
    well("nvswitch_failed", "no fatal SXid"),
    well("nvswitch_failed", "no fatal SXid in the kernel log (last 24 h), 1 nonfatal or old",
        kernel_log=kernel_log(event("sxid", 12028, text=HARMLESS))),
    well("nvswitch_failed", "no fatal", kernel_log=kernel_log(event("sxid", 20034, text=FATAL, seconds_ago=DAY + 1))),
    # gpu_start_failed
    warns("gpu_start_failed", "the driver could not initialize the GPU at 0000:1a:00.0, 2 min ago", "grep NVRM",
        kernel_log=kernel_log(driver(FAILED, pci="0000:1a:00.0"))),
    warns("gpu_start_failed", "the driver could not initialize a GPU, 2 min ago", "grep NVRM",
        kernel_log=kernel_log(driver("NVRM: rm_init_adapter failed, device minor number 0"))),
    warns("gpu_start_failed", "the driver could not initialize a GPU, 2 min ago", "grep NVRM",
        kernel_log=kernel_log(driver(LOADED), driver("NVRM: The NVIDIA probe routine was not called."))),
    warns("gpu_start_failed", "the driver's kernel module was rejected, 2 min ago",
        "mokutil", kernel_log=kernel_log(driver(REFUSED))),
    well("gpu_start_failed", "no failed GPU initialization in the kernel log (last 24 h)"),
    well("gpu_start_failed", "no failed GPU initialization in the kernel log (last 24 h)",
        kernel_log=kernel_log(driver(LOADED), driver(MISMATCH))),
    well("gpu_start_failed", "no failed GPU initialization in the kernel log (last 24 h)",
        kernel_log=kernel_log(driver(REFUSED, 7200), driver(LOADED, 3600))),
    well("gpu_start_failed", "no failed GPU initialization in the kernel log (last 24 h)",
        kernel_log=kernel_log(driver(FAILED, DAY + 1))),
    # driver_mismatch_logged
    informs("driver_mismatch_logged", "a program's driver library did not match the kernel module, 2 min ago",
        "ldconfig -p | grep libcuda",
        kernel_log=kernel_log(driver(MISMATCH))),
    well("driver_mismatch_logged", "no driver version mismatch in the kernel log (last 24 h)",
        kernel_log=kernel_log(driver(FAILED))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(("check", "code"), SERIOUS.items(), ids=SERIOUS)
def test_a_gpu_that_recovered_is_not_held_to_account(check: str, code: int) -> None:
    well(check, "no Xid", kernel_log=kernel_log(xid(code), xid(154, text=RECOVERED))).verify()
    again = kernel_log(xid(154, text=RECOVERED), xid(code))
    assert f"Xid {code}" in problem(check, kernel_log=again).title


@pytest.mark.parametrize("code", sorted(importlib.import_module("mgpu.checks._xid").XIDS))
def test_every_classified_xid_is_told_by_one_check_at_most(code: int) -> None:
    log = kernel_log(xid(code))
    found = [case.check for case in {case.check: case for case in CASES}.values() if dataclasses.replace(
        case, changes={"kernel_log": log}).answer().problem]  # fmt: skip
    assert len(found) <= 1
    assert bool(found) == (code not in (45, 93, 106, 107, 121, 154, 162, 163, 164))


def test_the_evidence_is_the_line_and_the_process() -> None:
    found = problem("xid_program_crashed", kernel_log=kernel_log(xid(31)))
    assert found.evidence["log"] == "NVRM: Xid (PCI:0000:1a:00): 31"
    assert found.evidence["process"] == "python (pid 4711)"
    assert found.cause.startswith("python (pid 4711) caused")
    assert found.subjects == ("GPU 2 (0000:1a:00)",)
