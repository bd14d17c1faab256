"""Did the driver log an Xid of faulty hardware or firmware?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Severity, check
from mgpu.snapshot import KernelLog

from .._kernel_log_lines import no_events
from .._xid import CATALOG, XIDS
from ._events import current_events, kind_of, problem_of, reset_commands, xids_since_load


@check(
    Severity.WARNING,
    source=CATALOG,
    because_of=("gpu_lost", "gpu_off_the_bus", "driver_does_not_answer", "gpus_on_bus_not_in_driver"),
)
def xid_gpu_fell_off_bus(kernel_log: KernelLog) -> Answer:
    """A GPU has fallen off the PCI bus (Xid 79).

    Why: the GPU stopped responding because of power, heat, seating, a riser or the board itself. Calls to it fail, NVML
    may hang, and a rank on it never returns: the others wait in their collective.

    Fix: reboot the machine, as NVIDIA recommends. If it recurs, check power and seating, then contact the vendor.
    """
    events = current_events(kernel_log, "bus")
    if not events:
        return no_events("Xid 79", kernel_log)
    return problem_of(
        events,
        kernel_log,
        "The GPU stopped responding on PCIe. Do not rely on it until a reboot, even if it is listed.",
        Fix("Drain the machine and reboot it.", ("sudo reboot",), who="admin"),
        Fix("If it recurs, check power cables, seating and riser, then return the board.", who="hardware"),
    )


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    because_of=("gpu_ecc_uncorrected", "gpu_row_remap_failed", "gpu_row_remap_pending", "gpu_wants_recovery"),
)
def xid_memory_damaged(kernel_log: KernelLog) -> Answer:
    """A GPU had memory errors that could not be contained (Xid 48, 64, 95, 140, 171, 172).

    Why: data in that memory is lost, and the page stays in use until the GPU is reset. A rank that accesses it is
    killed, and the others wait for it.

    Fix: reset the GPU when nothing runs on it. If it recurs, return the board.
    """
    events = current_events(kernel_log, "memory")
    if not events:
        return no_events("Xid for damaged memory", kernel_log)
    return problem_of(
        events,
        kernel_log,
        "Only a reset takes the bad memory out of use. Until then, a rank that accesses it is killed.",
        Fix(
            "Stop the jobs on it, then reset it. If it recurs, contact the vendor.", reset_commands(events), who="admin"
        ),
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    because_of=("gpu_row_remap_pending", "xid_memory_damaged"),
)
def xid_memory_repaired(kernel_log: KernelLog) -> Answer:
    """A GPU contained a memory error, or marked a row for replacement (Xid 63, 92, 94, 160).

    Why: this is normal aging of GPU memory. With Xid 94 only the affected program died. The bad row is replaced at the
    next reset.

    Fix: restart the program, and reset the GPU when it is idle.
    """
    events = current_events(kernel_log, "repaired")
    if not events:
        return no_events("Xid for repaired memory", kernel_log)
    return problem_of(
        events,
        kernel_log,
        "The error was contained, or the row was marked for remapping, which takes effect at the next reset.",
        Fix("Reset it when nothing runs on it.", reset_commands(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "nvlink_inactive", "nvlink_fabric_not_ready"))
def xid_nvlink_failed(kernel_log: KernelLog) -> Answer:
    """An NVLink failed (Xid 74, 136, 144-150 marked fatal, 155).

    Why: a link went down or was retrained. NCCL's rings use all links, so the running collective fails. If the link
    stays down, the next run is slower or hangs.

    Fix: reset all GPUs of the board together. If the link fails again, a cable, a bridge or a board is faulty.
    """
    events = current_events(kernel_log, "link")
    if not events:
        notes = sum(e.code in range(144, 151) and kind_of(e) == "note" for e in xids_since_load(kernel_log))
        return no_events("Xid for a failed NVLink", kernel_log, f", {notes} nonfatal" if notes else "")
    return problem_of(
        events,
        kernel_log,
        "A link went down. Collectives over it fail or hang.",
        Fix("Check which links are down.", ("nvidia-smi nvlink --status", "nvidia-smi nvlink -e")),
        Fix("Reset the GPUs. If it recurs, contact the vendor.", ("sudo nvidia-smi --gpu-reset",), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "driver_does_not_answer", "gpu_wants_recovery"))
def xid_firmware_crashed(kernel_log: KernelLog) -> Answer:
    """A GPU's firmware (GSP) stopped responding to the driver (Xid 119, 120).

    Why: the driver waits for the firmware while holding its locks, so nvidia-smi and every CUDA call on this GPU hang:
    ranks hang at 100 % utilization until NCCL's watchdog or heartbeat monitor stops them. Many driver releases had this
    bug.

    Fix: reset the GPU, then update the driver.
    """
    events = current_events(kernel_log, "firmware")
    if not events:
        return no_events("Xid for the GSP firmware", kernel_log)
    return problem_of(
        events,
        kernel_log,
        "Driver calls wait for the firmware. Ranks hang until a watchdog or heartbeat monitor stops them.",
        Fix("Reset the GPU. If that hangs, reboot the machine.", reset_commands(events), who="admin"),
        Fix("If it recurs, update the driver.", ("nvidia-smi --query-gpu=driver_version --format=csv",), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "gpu_wants_recovery"))
def xid_gpu_wants_reset(kernel_log: KernelLog) -> Answer:
    """A GPU stopped and needs a reset (Xid 46, 62, 109, 110, 143, 156, 158).

    Why: an engine or a controller of the GPU hangs. From then on, programs on it hang or fail.

    Fix: reset the GPU.
    """
    events = current_events(kernel_log, "reset")
    if not events:
        return no_events("Xid that requires a reset", kernel_log)
    return problem_of(
        events,
        kernel_log,
        "NVIDIA's catalog recommends a reset of the GPU. The log does not show one.",
        Fix("Reset it when nothing runs on it.", reset_commands(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost",))
def xid_board_faulty(kernel_log: KernelLog) -> Answer:
    """A GPU reports a hardware fault: power, PCIe or retirement (Xid 54, 157, 165, 167, 168).

    Why: no program causes these errors. The GPU runs slower, or fails again under load in the middle of a run.

    Fix: check power cables and seating, then contact the vendor.
    """
    events = current_events(kernel_log, "board")
    if not events:
        return no_events("Xid for a board fault", kernel_log)
    action = XIDS[events[-1].code or 0].action
    return problem_of(
        events,
        kernel_log,
        "No program causes this error. It will recur under load.",
        Fix(f"NVIDIA's recommendation: {action}.", who="hardware"),
        Fix("Until then, exclude this GPU with CUDA_VISIBLE_DEVICES. This lists the UUIDs.", ("nvidia-smi -L",)),
    )
