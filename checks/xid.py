"""What has the driver written of GPUs into the kernel's log?

The log is history: whether a GPU is well now, NVML says (`gpu`, `driver`). So a line here warns at most, and a GPU the
driver reports as recovered since, or that was there before the driver was loaded anew, is no longer held against.
"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Evidence, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, KernelEvent, KernelLog
from mgpu.text import counted, listed

from ._kernel_log_lines import ago, none_of, recent
from ._xid import CATALOG, XIDS, Kind

FAMILY = Family(gpu_only=True)
_SWITCH = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_RECOVERED = 154  # "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
_SUSPECT_CRASHES = 3  # of programs, which make a GPU suspect when no other GPU has any: a proposal, hence an info


def _kind(event: KernelEvent) -> Kind | None:
    row = XIDS.get(event.code or 0)
    if row and row.kind == "link" and "Nonfatal" in event.text:  # NVLink 5 writes which it is
        return "note"
    return row.kind if row else None


def _since_load(log: KernelLog) -> list[KernelEvent]:
    """The Xids since the driver was loaded last."""
    loads = [e.seconds_ago for e in log.events if e.kind == "driver" and "loading NVIDIA UNIX" in e.text]
    loaded = min((seconds for seconds in loads if seconds is not None), default=None)
    return [
        event
        for event in log.events
        if event.kind == "xid" and (loaded is None or event.seconds_ago is None or event.seconds_ago <= loaded)
    ]


def _standing(log: KernelLog, *kinds: Kind | None) -> list[KernelEvent]:
    """Xids of these kinds of the last day, after which the driver has not called the GPU recovered."""
    xids = _since_load(log)
    return [
        event
        for place, event in enumerate(xids)
        if recent(event)
        and _kind(event) in kinds
        and not any(later.pci == event.pci and _recovered(later) for later in xids[place + 1 :])
    ]


def _recovered(event: KernelEvent) -> bool:
    return event.code == _RECOVERED and "to 0x0" in event.text


def _where(event: KernelEvent) -> str:
    if event.gpu is not None:
        return f"GPU {event.gpu} ({event.pci})"
    return f"the GPU at {event.pci}" if event.pci else "a GPU"


def _said(events: list[KernelEvent]) -> str:
    """The newest, by its meaning, and how many there are."""
    event = events[-1]
    row = XIDS.get(event.code or 0)
    more = f" ({len(events)} such lines)" if len(events) > 1 else ""
    return (
        f"{_where(event)}: Xid {event.code}, {row.meaning if row else 'not classified'}, {ago(event.seconds_ago)}{more}"
    )


def _evidence(events: list[KernelEvent], log: KernelLog) -> Evidence:
    newest = events[-1]
    found: Evidence = {"log": newest.text, "origin": log.origin, "xids": listed(sorted({e.code or 0 for e in events}))}
    return {**found, **({"process": newest.process} if newest.process else {})}


def _gpus(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_where(event) for event in events))


def _reset(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    """The commands that reset these GPUs; nvidia-smi takes PCI addresses."""
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    found = (address if "." in address else f"{address}.0" for address in addresses)
    return tuple(shell("sudo nvidia-smi --gpu-reset -i {:id}", address) for address in found) or (
        "sudo nvidia-smi --gpu-reset",
    )


def _problem(events: list[KernelEvent], log: KernelLog, cause: str, *fixes: Fix) -> Problem:
    return Problem(_said(events), cause, fixes, _evidence(events, log), _gpus(events))


@check(
    Severity.WARNING,
    source=CATALOG,
    because_of=("gpu_lost", "gpu_off_the_bus", "driver_does_not_answer", "gpus_on_bus_not_in_driver"),
)
def xid_gpu_fell_off_bus(kernel_log: KernelLog) -> Answer:
    """A GPU has fallen off the PCI bus (Xid 79).

    Why: the card stopped answering: power, heat, seating, a riser, or the board itself. Whoever asks it gets errors,
    NVML may hang on it, and a rank there never comes back: the others wait in their collective.

    Fix: restart the machine, as NVIDIA says; if it happens again, check power and seating, then the vendor.
    """
    events = _standing(kernel_log, "bus")
    if not events:
        return none_of("Xid 79", kernel_log)
    return _problem(
        events,
        kernel_log,
        "The card stopped answering on PCIe. Until the machine is restarted it is not to be trusted, even if listed.",
        Fix("Drain the machine and restart it.", ("sudo reboot",), who="admin"),
        Fix("Again? Check power cables, seating and riser, then the board goes to its vendor.", who="hardware"),
    )


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    because_of=("gpu_ecc_uncorrected", "gpu_row_remap_failed", "gpu_row_remap_pending", "gpu_wants_recovery"),
)
def xid_memory_damaged(kernel_log: KernelLog) -> Answer:
    """A GPU met memory errors that could not be contained (Xid 48, 64, 95, 140, 171, 172).

    Why: what was in that memory is lost and the page is used again until the GPU is reset. A rank that touches it is
    killed, and the others wait for it.

    Fix: reset the GPU when nothing runs on it; if it comes back, the board goes to its vendor.
    """
    events = _standing(kernel_log, "memory")
    if not events:
        return none_of("Xid of damaged memory", kernel_log)
    return _problem(
        events,
        kernel_log,
        "Only a reset takes the bad memory out of use; a rank that touches it before is killed.",
        Fix("Stop the jobs on it, then reset it. If it comes back: the vendor.", _reset(events), who="admin"),
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    because_of=("gpu_row_remap_pending", "xid_memory_damaged"),
)
def xid_memory_repaired(kernel_log: KernelLog) -> Answer:
    """A GPU contained a memory error, or marked a row for replacement (Xid 63, 92, 94, 160).

    Why: this is how such memory ages. With Xid 94 the program that was hit died, nobody else; the bad row is replaced
    at the next reset.

    Fix: restart the program; reset the GPU when it is idle.
    """
    events = _standing(kernel_log, "repaired")
    if not events:
        return none_of("Xid of repaired memory", kernel_log)
    return _problem(
        events,
        kernel_log,
        "The error was contained or the row is put out of use; the replacement takes effect at the next reset.",
        Fix("Reset it when nothing runs there.", _reset(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "nvlink_inactive", "nvlink_fabric_not_ready"))
def xid_nvlink_failed(kernel_log: KernelLog) -> Answer:
    """NVLink failed (Xid 74, 136, 144-150 marked fatal, 155).

    Why: a link went down or was retrained. NCCL's rings run over all links: the collective in flight is lost, and the
    next run is slower, or hangs, if the link does not come back.

    Fix: reset the GPUs of the board together; a link that fails again is a cable, a bridge or a board.
    """
    events = _standing(kernel_log, "link")
    if not events:
        notes = sum(e.code in range(144, 151) and _kind(e) == "note" for e in _since_load(kernel_log))
        return none_of("Xid of failed NVLink", kernel_log, f", {notes} nonfatal" if notes else "")
    return _problem(
        events,
        kernel_log,
        "A link went down under the driver. Collectives over it end in errors or hang.",
        Fix("See which links are down.", ("nvidia-smi nvlink --status", "nvidia-smi nvlink -e")),
        Fix("Reset the GPUs; if it comes back, the vendor.", ("sudo nvidia-smi --gpu-reset",), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "driver_does_not_answer", "gpu_wants_recovery"))
def xid_firmware_crashed(kernel_log: KernelLog) -> Answer:
    """The firmware of a GPU (GSP) stopped answering the driver (Xid 119, 120).

    Why: the driver waits for the firmware with its locks held, so nvidia-smi and every CUDA call on this GPU hang: the
    ranks stop at 100 % use and NCCL's watchdog or heartbeat monitor ends them. Many driver releases had such a fault.

    Fix: reset the GPU, then update the driver.
    """
    events = _standing(kernel_log, "firmware")
    if not events:
        return none_of("Xid of the GSP firmware", kernel_log)
    return _problem(
        events,
        kernel_log,
        "Calls into the driver wait for the firmware: ranks hang until a watchdog or heartbeat monitor ends them.",
        Fix("Reset the GPU; restart the machine if that hangs.", _reset(events), who="admin"),
        Fix(
            "If it comes back, update the driver.", ("nvidia-smi --query-gpu=driver_version --format=csv",), who="admin"
        ),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost", "gpu_wants_recovery"))
def xid_gpu_wants_reset(kernel_log: KernelLog) -> Answer:
    """A GPU stopped in a way that only a reset mends (Xid 46, 62, 109, 110, 143, 156, 158).

    Why: an engine or a controller of the card hangs. Programs on it wait or get errors from then on.

    Fix: reset the GPU.
    """
    events = _standing(kernel_log, "reset")
    if not events:
        return none_of("Xid that asks for a reset", kernel_log)
    return _problem(
        events,
        kernel_log,
        "NVIDIA's catalogue says: reset the GPU. The log does not show that this was done.",
        Fix("Reset it when nothing runs there.", _reset(events), who="admin"),
    )


@check(Severity.WARNING, source=CATALOG, because_of=("gpu_lost",))
def xid_board_faulty(kernel_log: KernelLog) -> Answer:
    """A GPU reports a fault of the board: power, PCIe, retirement (Xid 54, 157, 165, 167, 168).

    Why: no program causes these. The card runs slowed, or fails again under load, in the middle of the run.

    Fix: check power cables and seating; then the vendor.
    """
    events = _standing(kernel_log, "board")
    if not events:
        return none_of("Xid of the board", kernel_log)
    action = XIDS[events[-1].code or 0].action
    return _problem(
        events,
        kernel_log,
        "No program causes this; it fails again under load.",
        Fix(f"NVIDIA's catalogue: {action}.", who="hardware"),
        Fix("Until then leave this GPU out of CUDA_VISIBLE_DEVICES; its UUID is listed here.", ("nvidia-smi -L",)),
    )


@check(
    Severity.INFO,
    source=CATALOG,
    because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "xid_nvlink_failed", "xid_firmware_crashed"),
)
def xid_program_crashed(kernel_log: KernelLog) -> Answer:
    """A program crashed on a GPU (Xid 13, 31, 43 and their like).

    Why: nearly always an access out of bounds in a kernel or an extension; the program saw "an illegal memory access
    was encountered" or "unspecified launch failure". The GPU itself is well.

    Fix: run the program with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer.
    """
    events = _standing(kernel_log, "program")
    if not events:
        return none_of("Xid of a crashed program", kernel_log)
    who = events[-1].process or "a program"
    return _problem(
        events,
        kernel_log,
        f"{who} made the GPU stop its work; CUDA error 700 or 719 in its log. Other programs are not harmed.",
        Fix(
            "If it is yours, find the faulty kernel.",
            ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py"),
        ),
    )


@check(Severity.INFO, source=_DEBUG, because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "gpu_ecc_uncorrected"))
def xid_keeps_to_one_gpu(kernel_log: KernelLog, gpus: tuple[Gpu, ...]) -> Answer:
    """Programs crash on one GPU again and again, and on no other.

    Why: that is the same rank of one faulty program, or a faulty card; another order of the GPUs tells which.
    More: A faulty program crashes wherever it runs; a faulty GPU makes many programs crash. Or the same rank of the
    same program crashes each time.

    Fix: turn the order round: if the fault stays on the card, it is the card.
    """
    if len(gpus) < 2:
        return Skip("no second GPU to compare with")
    events = [e for e in _since_load(kernel_log) if _kind(e) == "program" and e.pci and e.process]
    crashed: dict[str | None, set[str | None]] = {}
    for event in events:
        crashed.setdefault(event.pci, set()).add(event.process)
    worst = max(crashed, key=lambda pci: len(crashed[pci]), default=None)
    if worst is None or len(crashed[worst]) < _SUSPECT_CRASHES or len(crashed) > 1:
        return Ok(f"{counted(sum(map(len, crashed.values())), 'crashed program')} on {counted(len(crashed), 'GPU')}")
    mine = [event for event in events if event.pci == worst]
    where = _where(mine[-1])
    return Problem(
        f"{len(crashed[worst])} programs crashed on {where}, none on another GPU",
        fix=Fix(commands=("export CUDA_VISIBLE_DEVICES=1,0",)),
        evidence={"xids": listed(sorted({event.code or 0 for event in mine})), "programs": len(crashed[worst])},
        subjects=(where,),
    )


@check(Severity.INFO, source=CATALOG)
def xid_not_classified(kernel_log: KernelLog) -> Answer:
    """The driver logged an Xid that mgpu has no verdict on.

    Why: NVIDIA publishes no action for it that a user could take, or it is newer than the table here.

    Fix: look it up.
    """
    events = _standing(kernel_log, "other", None)
    if not events:
        return none_of("Xid that is not classified", kernel_log)
    return _problem(
        events, kernel_log, "What it asks for is in NVIDIA's catalogue, if it is public.", Fix(f"Look it up: {CATALOG}")
    )


@check(Severity.INFO, source=CATALOG)
def xid_of_earlier_days(kernel_log: KernelLog) -> Answer:
    """A GPU was in trouble more than a day ago, or before the driver was loaded last.

    Why: whatever it was may have been mended since: the log does not say. It is worth knowing when this GPU fails
    again.

    Fix: nothing now.
    """
    serious = {"memory", "link", "firmware", "reset", "bus", "board"}
    now = {id(event) for event in _since_load(kernel_log) if recent(event)}
    events = [e for e in kernel_log.events if e.kind == "xid" and _kind(e) in serious and id(e) not in now]
    if not events:
        return Ok("no serious Xid of earlier days in the kernel's log")
    return _problem(
        events, kernel_log, "Not held against the GPU now; remember it when this one fails again.", Fix("Nothing now.")
    )


@check(Severity.WARNING, source=_SWITCH, because_of=("nvlink_fabric_not_ready", "nvlink_inactive"))
def nvswitch_failed(kernel_log: KernelLog) -> Answer:
    """An NVSwitch logged a fatal error (SXid).

    Why: a link or the switch failed; what ran over it was ended, and links may be out of use until a reset.
    More: The jobs that ran over it were ended, and the fabric manager takes links or GPUs out until they are reset: the
    next run may hang in its first collective, or be slower.

    Fix: stop all jobs and reset all GPUs; restart the machine if that fails.
    More: If it comes back, the vendor.
    """
    switch = [event for event in kernel_log.events if event.kind == "sxid"]
    fatal = [event for event in switch if ", Fatal" in event.text and recent(event)]
    if not fatal:
        return none_of("fatal SXid", kernel_log, f", {len(switch)} not fatal or old" if switch else "")
    newest = fatal[-1]
    return Problem(
        f"the NVSwitch at {newest.pci}: fatal SXid {newest.code}, {ago(newest.seconds_ago)}",
        fix=Fix(commands=("sudo nvidia-smi --gpu-reset", "sudo systemctl restart nvidia-fabricmanager"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "fatal_lines": len(fatal)},
    )


@check(
    Severity.WARNING,
    source=_DEBUG,
    because_of=("gpus_on_bus_not_in_driver", "driver_not_loaded", "driver_does_not_answer", "gpu_lost"),
)
def gpu_start_failed(kernel_log: KernelLog) -> Answer:
    """The driver could not start a GPU, or its module was refused.

    Why: RmInitAdapter failed, the probe routine failed or was not called (nouveau or vfio hold the card), or Secure
    Boot rejected an unsigned module. The GPU is then missing from nvidia-smi, and there are fewer than were bought.

    Fix: read the whole story, then restart the machine.
    More: Sign the module, or free the card from the other driver.
    """
    words = ("RmInitAdapter", "rm_init_adapter", "probe routine", "rejected", "Lockdown")
    events = [e for e in kernel_log.events if e.kind == "driver" and any(word in e.text for word in words)]
    loaded = [e for e in kernel_log.events if "loading NVIDIA UNIX" in e.text]
    standing = [e for e in events if recent(e) and not any(_after(load, e) for load in loaded)]
    if not standing:
        return none_of("failed start of a GPU", kernel_log)
    newest = standing[-1]
    refused = "rejected" in newest.text or "Lockdown" in newest.text
    fix = (
        Fix("Sign the module (enrol its key) or switch Secure Boot off.", ("mokutil --sb-state",), who="admin")
        if refused
        else Fix(commands=("sudo dmesg -T | grep NVRM",), who="admin")
    )
    where = f"GPU at {newest.pci}" if newest.pci else "a GPU"
    return Problem(
        f"the driver's module was refused, {ago(newest.seconds_ago)}"
        if refused
        else f"the driver could not start {where}, {ago(newest.seconds_ago)}",
        f"The kernel's log says: {newest.text}",
        fix,
        {"log": newest.text, "origin": kernel_log.origin, "lines": len(standing)},
    )


def _after(load: KernelEvent, event: KernelEvent) -> bool:
    """Whether the driver was loaded after the event, which is then history. The load follows a probe that failed."""
    if load.seconds_ago is None or event.seconds_ago is None:
        return False
    return load.seconds_ago < event.seconds_ago - 60.0


@check(Severity.INFO, source=_DEBUG, because_of=("driver_library_mismatch",))
def driver_mismatch_logged(kernel_log: KernelLog) -> Answer:
    """A program used a driver library of another version than the kernel module.

    Why: after an update without restart, or from a container or folder that brings its own libcuda. That program got
    "Driver/library version mismatch" or CUDA error 803.

    Fix: see whether a private libcuda is in the way.
    More: Restart after driver updates; remove the private copy of libcuda from LD_LIBRARY_PATH.
    """
    events = [e for e in kernel_log.events if e.kind == "driver" and "API mismatch" in e.text and recent(e)]
    if not events:
        return none_of("version mismatch of the driver", kernel_log)
    newest = events[-1]
    return Problem(
        f"a program used another driver version than the module's, {ago(newest.seconds_ago)}",
        f"The kernel's log says: {newest.text}",
        Fix(commands=("ldconfig -p | grep libcuda", "echo $LD_LIBRARY_PATH")),
        {"log": newest.text, "lines": len(events)},
    )
