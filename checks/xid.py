"""What did the driver log about GPUs in the kernel log?

The log is history, while NVML reports the current state (`gpu`, `driver`). So these checks are warnings at most, and
events before a logged recovery or before the driver was last loaded are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Evidence, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, KernelEvent, KernelLog
from mgpu.text import counted, listed

from ._kernel_log_lines import format_age, is_recent, no_events
from ._xid import CATALOG, XIDS, Kind

FAMILY = Family(gpu_only=True)
_SWITCH = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_RECOVERED = 154  # "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
_SUSPECT_CRASHES = 3  # program crashes that make a GPU suspect if no other GPU has any: a heuristic, hence an info


def _kind(event: KernelEvent) -> Kind | None:
    row = XIDS.get(event.code or 0)
    if row and row.kind == "link" and "Nonfatal" in event.text:  # NVLink 5 logs the severity
        return "note"
    return row.kind if row else None


def _xids_since_load(log: KernelLog) -> list[KernelEvent]:
    """Return the Xids since the driver was last loaded."""
    loads = [e.seconds_ago for e in log.events if e.kind == "driver" and "loading NVIDIA UNIX" in e.text]
    loaded = min((seconds for seconds in loads if seconds is not None), default=None)
    return [
        event
        for event in log.events
        if event.kind == "xid" and (loaded is None or event.seconds_ago is None or event.seconds_ago <= loaded)
    ]


def _current_events(log: KernelLog, *kinds: Kind | None) -> list[KernelEvent]:
    """Return the last day's Xids of these kinds after which the driver logged no recovery of the GPU."""
    xids = _xids_since_load(log)
    return [
        event
        for place, event in enumerate(xids)
        if is_recent(event)
        and _kind(event) in kinds
        and not any(later.pci == event.pci and _is_recovery(later) for later in xids[place + 1 :])
    ]


def _is_recovery(event: KernelEvent) -> bool:
    return event.code == _RECOVERED and "to 0x0" in event.text


def _name(event: KernelEvent) -> str:
    if event.gpu is not None:
        return f"GPU {event.gpu} ({event.pci})"
    return f"the GPU at {event.pci}" if event.pci else "a GPU"


def _title(events: list[KernelEvent]) -> str:
    """Return a title with the newest Xid, its meaning and the number of lines."""
    event = events[-1]
    row = XIDS.get(event.code or 0)
    more = f" ({len(events)} log lines)" if len(events) > 1 else ""
    meaning = row.meaning if row else "not classified"
    return f"{_name(event)}: Xid {event.code}, {meaning}, {format_age(event.seconds_ago)}{more}"


def _evidence(events: list[KernelEvent], log: KernelLog) -> Evidence:
    newest = events[-1]
    found: Evidence = {"log": newest.text, "origin": log.origin, "xids": listed(sorted({e.code or 0 for e in events}))}
    return {**found, **({"process": newest.process} if newest.process else {})}


def _gpu_names(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name(event) for event in events))


def _resets(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    """Return the commands that reset these GPUs; nvidia-smi accepts PCI addresses."""
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    found = (address if "." in address else f"{address}.0" for address in addresses)
    return tuple(shell("sudo nvidia-smi --gpu-reset -i {:id}", address) for address in found) or (
        "sudo nvidia-smi --gpu-reset",
    )


def _problem(events: list[KernelEvent], log: KernelLog, cause: str, *fixes: Fix) -> Problem:
    return Problem(_title(events), cause, fixes, _evidence(events, log), _gpu_names(events))


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
    events = _current_events(kernel_log, "bus")
    if not events:
        return no_events("Xid 79", kernel_log)
    return _problem(
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
    events = _current_events(kernel_log, "memory")
    if not events:
        return no_events("Xid for damaged memory", kernel_log)
    return _problem(
        events,
        kernel_log,
        "Only a reset takes the bad memory out of use. Until then, a rank that accesses it is killed.",
        Fix("Stop the jobs on it, then reset it. If it recurs, contact the vendor.", _resets(events), who="admin"),
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
    events = _current_events(kernel_log, "repaired")
    if not events:
        return no_events("Xid for repaired memory", kernel_log)
    return _problem(
        events,
        kernel_log,
        "The error was contained, or the row was marked for remapping, which takes effect at the next reset.",
        Fix("Reset it when nothing runs on it.", _resets(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "nvlink_inactive", "nvlink_fabric_not_ready"))
def xid_nvlink_failed(kernel_log: KernelLog) -> Answer:
    """An NVLink failed (Xid 74, 136, 144-150 marked fatal, 155).

    Why: a link went down or was retrained. NCCL's rings use all links, so the running collective fails. If the link
    stays down, the next run is slower or hangs.

    Fix: reset all GPUs of the board together. If the link fails again, a cable, a bridge or a board is faulty.
    """
    events = _current_events(kernel_log, "link")
    if not events:
        notes = sum(e.code in range(144, 151) and _kind(e) == "note" for e in _xids_since_load(kernel_log))
        return no_events("Xid for a failed NVLink", kernel_log, f", {notes} nonfatal" if notes else "")
    return _problem(
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
    events = _current_events(kernel_log, "firmware")
    if not events:
        return no_events("Xid for the GSP firmware", kernel_log)
    return _problem(
        events,
        kernel_log,
        "Driver calls wait for the firmware. Ranks hang until a watchdog or heartbeat monitor stops them.",
        Fix("Reset the GPU. If that hangs, reboot the machine.", _resets(events), who="admin"),
        Fix("If it recurs, update the driver.", ("nvidia-smi --query-gpu=driver_version --format=csv",), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "gpu_wants_recovery"))
def xid_gpu_wants_reset(kernel_log: KernelLog) -> Answer:
    """A GPU stopped and needs a reset (Xid 46, 62, 109, 110, 143, 156, 158).

    Why: an engine or a controller of the GPU hangs. From then on, programs on it hang or fail.

    Fix: reset the GPU.
    """
    events = _current_events(kernel_log, "reset")
    if not events:
        return no_events("Xid that requires a reset", kernel_log)
    return _problem(
        events,
        kernel_log,
        "NVIDIA's catalog recommends a reset of the GPU. The log does not show one.",
        Fix("Reset it when nothing runs on it.", _resets(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost",))
def xid_board_faulty(kernel_log: KernelLog) -> Answer:
    """A GPU reports a hardware fault: power, PCIe or retirement (Xid 54, 157, 165, 167, 168).

    Why: no program causes these errors. The GPU runs slower, or fails again under load in the middle of a run.

    Fix: check power cables and seating, then contact the vendor.
    """
    events = _current_events(kernel_log, "board")
    if not events:
        return no_events("Xid for a board fault", kernel_log)
    action = XIDS[events[-1].code or 0].action
    return _problem(
        events,
        kernel_log,
        "No program causes this error. It will recur under load.",
        Fix(f"NVIDIA's recommendation: {action}.", who="hardware"),
        Fix("Until then, exclude this GPU with CUDA_VISIBLE_DEVICES. This lists the UUIDs.", ("nvidia-smi -L",)),
    )


@check(
    Severity.INFO,
    source=CATALOG,
    because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "xid_nvlink_failed", "xid_firmware_crashed"),
)
def xid_program_crashed(kernel_log: KernelLog) -> Answer:
    """A program crashed on a GPU (Xid 13, 31, 43 and similar).

    Why: nearly always an out-of-bounds access in a kernel or an extension. The program got "an illegal memory access
    was encountered" or "unspecified launch failure". The GPU itself is healthy.

    Fix: run the program with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer.
    """
    events = _current_events(kernel_log, "program")
    if not events:
        return no_events("Xid for a crashed program", kernel_log)
    who = events[-1].process or "a program"
    return _problem(
        events,
        kernel_log,
        f"{who} caused the error (CUDA error 700 or 719 in its log). Other programs are not affected.",
        Fix(
            "If it is yours, find the faulty kernel.",
            ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py"),
        ),
    )


@check(Severity.INFO, source=_DEBUG, because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "gpu_ecc_uncorrected"))
def xid_keeps_to_one_gpu(kernel_log: KernelLog, gpus: tuple[Gpu, ...]) -> Answer:
    """Programs crash repeatedly on one GPU and on no other.

    Why: either the same rank of a faulty program crashes each time, or the GPU is faulty.
    More: A faulty program crashes on any GPU, while a faulty GPU makes many programs crash.

    Fix: reverse the order of the GPUs. If the crashes stay on the same GPU, the GPU is faulty.
    """
    if len(gpus) < 2:
        return Skip("no second GPU to compare with")
    events = [e for e in _xids_since_load(kernel_log) if _kind(e) == "program" and e.pci and e.process]
    crashed: dict[str | None, set[str | None]] = {}
    for event in events:
        crashed.setdefault(event.pci, set()).add(event.process)
    worst = max(crashed, key=lambda pci: len(crashed[pci]), default=None)
    if worst is None or len(crashed[worst]) < _SUSPECT_CRASHES or len(crashed) > 1:
        return Ok(f"{counted(sum(map(len, crashed.values())), 'crashed program')} on {counted(len(crashed), 'GPU')}")
    mine = [event for event in events if event.pci == worst]
    where = _name(mine[-1])
    return Problem(
        f"{len(crashed[worst])} programs crashed on {where}, none on another GPU",
        fix=Fix(commands=("export CUDA_VISIBLE_DEVICES=1,0",)),
        evidence={"xids": listed(sorted({event.code or 0 for event in mine})), "programs": len(crashed[worst])},
        subjects=(where,),
    )


@check(Severity.INFO, source=CATALOG)
def xid_not_classified(kernel_log: KernelLog) -> Answer:
    """The driver logged an Xid that mgpu does not classify.

    Why: NVIDIA publishes no action that a user could take, or the Xid is newer than mgpu's table.

    Fix: look it up.
    """
    events = _current_events(kernel_log, "other", None)
    if not events:
        return no_events("unclassified Xid", kernel_log)
    return _problem(events, kernel_log, "NVIDIA's catalog may recommend an action.", Fix(f"Look it up: {CATALOG}"))


@check(Severity.INFO, source=CATALOG)
def xid_of_earlier_days(kernel_log: KernelLog) -> Answer:
    """A GPU had errors more than a day ago, or before the driver was last loaded.

    Why: the cause may have been fixed since, which the log does not show. It matters if this GPU fails again.

    Fix: nothing now.
    """
    serious = {"memory", "link", "firmware", "reset", "bus", "board"}
    now = {id(event) for event in _xids_since_load(kernel_log) if is_recent(event)}
    events = [e for e in kernel_log.events if e.kind == "xid" and _kind(e) in serious and id(e) not in now]
    if not events:
        return Ok("no serious Xid of earlier days in the kernel log")
    return _problem(
        events,
        kernel_log,
        "This is not a current fault, but it matters if the GPU fails again.",
        Fix("Nothing now."),
    )


@check(Severity.WARNING, source=_SWITCH, because_of=("nvlink_fabric_not_ready", "nvlink_inactive"))
def nvswitch_failed(kernel_log: KernelLog) -> Answer:
    """An NVSwitch logged a fatal error (SXid).

    Why: a link or the switch failed. Jobs that used it were stopped, and links may stay disabled until a reset.
    More: The fabric manager disables links or GPUs until they are reset. The next run may hang in its first collective,
    or be slower.

    Fix: stop all jobs and reset all GPUs. If that fails, reboot the machine.
    More: If it recurs, contact the vendor.
    """
    switch = [event for event in kernel_log.events if event.kind == "sxid"]
    fatal = [event for event in switch if ", Fatal" in event.text and is_recent(event)]
    if not fatal:
        return no_events("fatal SXid", kernel_log, f", {len(switch)} nonfatal or old" if switch else "")
    newest = fatal[-1]
    return Problem(
        f"the NVSwitch at {newest.pci}: fatal SXid {newest.code}, {format_age(newest.seconds_ago)}",
        fix=Fix(commands=("sudo nvidia-smi --gpu-reset", "sudo systemctl restart nvidia-fabricmanager"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "fatal_lines": len(fatal)},
    )


@check(
    Severity.WARNING,
    source=_DEBUG,
    because_of=("gpus_on_bus_not_in_driver", "driver_not_loaded", "driver_does_not_answer", "gpu_lost"),
)
def gpu_start_failed(kernel_log: KernelLog) -> Answer:
    """The driver could not initialize a GPU, or its kernel module was rejected.

    Why: RmInitAdapter failed, the probe routine failed or was not called (nouveau or vfio uses the GPU), or Secure Boot
    rejected an unsigned module. The GPU is then missing from nvidia-smi.

    Fix: read the driver's full log, then reboot the machine.
    More: Sign the module, or detach the GPU from the other driver.
    """
    patterns = ("RmInitAdapter", "rm_init_adapter", "probe routine", "rejected", "Lockdown")
    events = [e for e in kernel_log.events if e.kind == "driver" and any(text in e.text for text in patterns)]
    loaded = [e for e in kernel_log.events if "loading NVIDIA UNIX" in e.text]
    standing = [e for e in events if is_recent(e) and not any(_is_loaded_after(load, e) for load in loaded)]
    if not standing:
        return no_events("failed GPU initialization", kernel_log)
    newest = standing[-1]
    refused = "rejected" in newest.text or "Lockdown" in newest.text
    fix = (
        Fix("Sign the module (enroll its key) or disable Secure Boot.", ("mokutil --sb-state",), who="admin")
        if refused
        else Fix(commands=("sudo dmesg -T | grep NVRM",), who="admin")
    )
    where = f"the GPU at {newest.pci}" if newest.pci else "a GPU"
    return Problem(
        f"the driver's kernel module was rejected, {format_age(newest.seconds_ago)}"
        if refused
        else f"the driver could not initialize {where}, {format_age(newest.seconds_ago)}",
        f"Kernel log: {newest.text}",
        fix,
        {"log": newest.text, "origin": kernel_log.origin, "lines": len(standing)},
    )


def _is_loaded_after(load: KernelEvent, event: KernelEvent) -> bool:
    """Return whether the driver was loaded well after the event. A load right after it is the same failed start."""
    if load.seconds_ago is None or event.seconds_ago is None:
        return False
    return load.seconds_ago < event.seconds_ago - 60.0


@check(Severity.INFO, source=_DEBUG, because_of=("driver_library_mismatch",))
def driver_mismatch_logged(kernel_log: KernelLog) -> Answer:
    """A program used a driver library whose version differs from the kernel module's.

    Why: the driver was updated without a reboot, or a container or directory provides its own libcuda. The program got
    "Driver/library version mismatch" or CUDA error 803.

    Fix: check whether another libcuda is loaded.
    More: Reboot after driver updates, and remove the other libcuda from LD_LIBRARY_PATH.
    """
    events = [e for e in kernel_log.events if e.kind == "driver" and "API mismatch" in e.text and is_recent(e)]
    if not events:
        return no_events("driver version mismatch", kernel_log)
    newest = events[-1]
    return Problem(
        f"a program's driver library did not match the kernel module, {format_age(newest.seconds_ago)}",
        f"Kernel log: {newest.text}",
        Fix(commands=("ldconfig -p | grep libcuda", "echo $LD_LIBRARY_PATH")),
        {"log": newest.text, "lines": len(events)},
    )
