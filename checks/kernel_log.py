"""What did the kernel log about memory, PCIe, network adapters, disks and hung processes?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Host, KernelEvent, KernelLog, Plan
from mgpu.text import counted, listed

from ._kernel_log_lines import format_age, is_recent, no_events

_NFS = "https://man7.org/linux/man-pages/man5/nfs.5.html"
_ADMIN = "https://docs.kernel.org/admin-guide"
# Azure's node health checks call a link flapping if it went down this often in a day (azure_ib_link_flapping.nhc).
_FLAPS = 5
# For a soft mount the kernel logs "timed out" on every access but never "OK" (net/sunrpc/clnt.c). After this time the
# line no longer shows the current state.
_SOFT_TIMEOUT_S = 600.0
_LIMITED = re.compile(
    r"([\d.]+) Gb/s available PCIe bandwidth, limited by ([\d.]+) GT/s PCIe x(\d+) link at (\S+) "
    r"\(capable of ([\d.]+) Gb/s with ([\d.]+) GT/s PCIe x(\d+) link"
)


def _recent_events(log: KernelLog, kind: str, *words: str) -> list[KernelEvent]:
    """Return the last day's events of this kind that contain one of the words."""
    return [
        e
        for e in log.events
        if e.kind == kind and is_recent(e) and (not words or any(word in e.text for word in words))
    ]


def several_nodes(plan: Plan) -> Skip | None:
    """Skip a check of network adapters if the run has only one node."""
    return Skip("single-node run (--nodes)") if plan.nodes < 2 else None


@check(
    Severity.INFO,
    source=f"{_ADMIN}/mm/concepts.html#oom-killer",
    because_of=("memory_small_for_ranks", "processes_killed_for_memory"),
)
def oom_killer_struck(kernel_log: KernelLog) -> Answer:
    """The kernel killed a process because memory ran out.

    Why: the machine, or the job's cgroup (Slurm's --mem, a container's limit), ran out of memory. A killed rank shows
    exit code -9 or 137 and no traceback, and Slurm reports "Detected 1 oom_kill event".

    Fix: if it was your process, request more memory or start fewer workers.
    """
    events = _recent_events(kernel_log, "oom")
    if not events:
        return no_events("OOM kill", kernel_log)
    newest = events[-1]
    group = "cgroup" in newest.text
    more = f" ({len(events)} kills in a day)" if len(events) > 1 else ""
    return Problem(
        f"{newest.process} was killed by the OOM killer {format_age(newest.seconds_ago)}{more}",
        (
            "The process's cgroup (job, container) was at its memory limit."
            if group
            else "The machine ran out of memory."
        )
        + " A rank killed this way exits with code -9 or 137 and no traceback.",
        Fix(commands=("sbatch --mem=0 ...", "docker run --memory=64g ...")),
        {"log": newest.text, "origin": kernel_log.origin, "kills": len(events), "cgroup": group},
    )


@check(
    Severity.WARNING, source=f"{_ADMIN}/sysctl/kernel.html#hung-task-timeout-secs", because_of=("nfs_server_silent",)
)
def process_hung_in_kernel(kernel_log: KernelLog) -> Answer:
    """A process hung in the kernel for minutes.

    Why: it waited for minutes for a disk, a file server or a driver, and could not be killed.
    More: All other ranks wait for a rank in this state, until NCCL's watchdog stops the run.

    Fix: read the stack that follows the line in the log.
    """
    events = _recent_events(kernel_log, "hung_task")
    if not events:
        return no_events("hung process", kernel_log)
    newest = events[-1]
    names = listed(dict.fromkeys(event.process for event in events[-3:]))
    return Problem(
        f"{names} hung in the kernel, last {format_age(newest.seconds_ago)}",
        fix=Fix(commands=("sudo dmesg -T | grep -A20 'blocked for more'",), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(
    Severity.WARNING,
    source="https://docs.kernel.org/PCI/index.html",
    because_of=("pcie_width_reduced", "pcie_switch_uplink_narrow"),
)
def pcie_bandwidth_limited(kernel_log: KernelLog, host: Host) -> Answer:
    """A GPU or network adapter is connected through a narrower PCIe link than it supports.

    Why: the link at this address came up with fewer lanes than the device has, and everything below it shares them.
    More: Causes are an x4 or x8 slot, a riser or a bad contact. Copies to the host, and collectives without NVLink, run
    at that speed, and the slowest GPU sets the pace. NVML shows only the link of the card, while the kernel names the
    limiting link.

    Fix: compare the link's capability with its status, then reseat the card or use another slot.
    More: Check the lanes of the slot in the manual and the BIOS.
    """
    if host.virtual:
        return Skip(f"in a virtual machine ({host.virtual}) bridges and lanes are emulated")
    named = [e for e in kernel_log.events if e.kind == "pcie" and (e.gpu is not None or "mlx5_core" in e.text)]
    newest = {event.pci: event for event in named}
    narrow = [
        (event, match)
        for event in newest.values()
        if (match := _LIMITED.search(event.text)) and _to_int(match[3]) < _to_int(match[7])
    ]
    if not narrow:
        return no_events("PCIe link with too few lanes", kernel_log)
    event, match = narrow[0]
    who = f"GPU {event.gpu} ({event.pci})" if event.gpu is not None else f"the network adapter at {event.pci}"
    return Problem(
        f"{who}: {match[1]} of {match[5]} Gb/s, an x{match[3]} link at {match[4]} instead of x{match[7]}"
        + (f" (and {counted(len(narrow) - 1, 'more device')})" if len(narrow) > 1 else ""),
        fix=Fix(commands=(shell("sudo lspci -vv -s {:id} | grep -E 'LnkCap|LnkSta'", match[4]),), who="admin"),
        evidence={"log": event.text, "origin": kernel_log.origin},
        subjects=tuple(str(found.pci) for found, _ in narrow),
    )


@check(
    Severity.WARNING,
    source="https://docs.kernel.org/PCI/pcieaer-howto.html",
    because_of=("gpu_lost", "gpu_off_the_bus", "pcie_fatal_errors", "xid_gpu_fell_off_bus"),
)
def pcie_error_logged(kernel_log: KernelLog) -> Answer:
    """A PCIe device had an uncorrected error.

    Why: transfers were lost, or the link was reset during use.
    More: If a GPU or network adapter is affected, its rank gets CUDA or NCCL errors. Causes are contacts, risers, power
    or the board.

    Fix: identify the device at this address.
    More: Reseat it, check the riser, then contact the vendor.
    """
    events = _recent_events(kernel_log, "aer")
    if not events:
        return no_events("uncorrected PCIe error", kernel_log)
    newest = events[-1]
    who = f"GPU {newest.gpu} ({newest.pci})" if newest.gpu is not None else f"the device at {newest.pci}"
    return Problem(
        f"{who}: uncorrected PCIe error {format_age(newest.seconds_ago)}",
        fix=Fix(commands=(shell("lspci -s {:id}", newest.pci), "sudo dmesg -T | grep -A6 AER"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
        subjects=tuple(dict.fromkeys(str(event.pci) for event in events)),
    )


@check(Severity.WARNING, source="https://docs.kernel.org/driver-api/edac.html")
def host_memory_faulty(kernel_log: KernelLog) -> Answer:
    """The host's memory or CPU reported an uncorrected error.

    Why: a memory page was lost, and the process that used it is killed by SIGBUS.

    Fix: find the memory module and have it replaced.
    More: Drain the machine.
    """
    events = _recent_events(kernel_log, "mce")
    if not events:
        return no_events("uncorrected host memory error", kernel_log)
    newest = events[-1]
    return Problem(
        f"uncorrected error in the host's memory or CPU {format_age(newest.seconds_ago)}",
        fix=Fix(commands=("sudo ras-mc-ctl --errors", "sudo dmesg -T | grep -iE 'mce|edac'"), who="hardware"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


def _events_by_card(events: Iterable[KernelEvent]) -> dict[str, list[KernelEvent]]:
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(event.pci or "an unknown address", []).append(event)
    return found


@check(Severity.WARNING, source="https://github.com/Azure/azurehpc-health-checks", given=several_nodes)
def nic_link_flapped(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network link goes down repeatedly.

    Why: connections over it break each time, and NCCL stops the run when its retries are exhausted.
    More: InfiniBand retries for seconds, then the collective fails with "NCCL WARN ... retry exceeded", possibly hours
    into a multi-node run.

    Fix: clean or replace the cable and transceiver.
    """
    flapping = {
        card: events
        for card, events in _events_by_card(_recent_events(kernel_log, "nic", "Link ", "link ")).items()
        if len(events) >= _FLAPS
    }
    if not flapping:
        return no_events("flapping link", kernel_log)
    card, events = next(iter(flapping.items()))
    last = format_age(events[-1].seconds_ago)
    return Problem(
        f"the link of the network adapter at {card} went down {len(events)} times in a day, last {last}",
        fix=Fix(commands=(shell("sudo mlxlink -d {:id} -m -e", card),), who="hardware"),
        evidence={"log": events[-1].text, "origin": kernel_log.origin, "downs": len(events)},
        subjects=tuple(flapping),
    )


@check(
    Severity.WARNING, source="https://docs.nvidia.com/networking/display/cx5vpisd/troubleshooting", given=several_nodes
)
def nic_faulty(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network adapter reports a fault of its transceiver or firmware.

    Why: the port goes down or loses packets under load. Collectives between nodes slow down or fail.

    Fix: check cable, transceiver and cooling.
    More: Then check the firmware.
    """
    events = _recent_events(kernel_log, "nic", "Port module event", "health compromised", "atal error")
    if not events:
        return no_events("network adapter fault", kernel_log)
    newest = events[-1]
    what = "an overheated transceiver" if "High Temperature" in newest.text else "a fault"
    where = f" at {newest.pci}" if newest.pci else ""
    return Problem(
        f"the network adapter{where} reported {what} {format_age(newest.seconds_ago)}",
        f"Kernel log: {newest.text}",
        Fix(commands=("sudo mlxlink -d mlx5_0 -m",), who="hardware"),
        {"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/networking/display/cx5vpisd/troubleshooting", given=several_nodes)
def nic_slot_power_low(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network adapter's slot advertises too little power.

    Why: this is mostly harmless, because many boards advertise less power than they supply. If power really is too low,
    the transceiver is switched off under load and the port goes down.

    Fix: nothing, unless the port fails.
    More: In that case, check the slot's power setting in the BIOS.
    """
    events = [e for e in kernel_log.events if e.kind == "nic" and "insufficient power" in e.text]
    if not events:
        return Ok("no network adapter reports too little slot power")
    newest = events[-1]
    return Problem(
        f"the slot of the network adapter at {newest.pci} advertises too little power",
        f"Kernel log: {newest.text}",
        Fix(commands=("ibstat",)),
        {"log": newest.text, "cards": len(_events_by_card(events))},
    )


@check(Severity.WARNING, source="https://github.com/leptonai/gpud/tree/main/components/disk")
def disk_error_logged(kernel_log: KernelLog) -> Answer:
    """A disk or file system had an error.

    Why: the kernel could not read or write. Data on the disk may be lost.
    More: Checkpoints on it may be lost, and a run that reads data from it fails with "Input/output error".

    Fix: identify the disk and have it checked.
    More: Do not write to it.
    """
    events = [e for e in kernel_log.events if e.kind == "disk" and "nfs: server" not in e.text and is_recent(e)]
    if not events:
        return no_events("disk error", kernel_log)
    newest = events[-1]
    return Problem(
        f"disk error {format_age(newest.seconds_ago)}: {newest.text}",
        fix=Fix(commands=("lsblk", "sudo dmesg -T | grep -iE 'I/O error|read-only'"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(Severity.WARNING, source=_NFS, because_of=("folder_does_not_answer",))
def nfs_server_silent(kernel_log: KernelLog) -> Answer:
    """The kernel is waiting for an NFS server.

    Why: processes that access its files hang and cannot be killed.
    More: The latest log line about this server is "not responding", with no "OK" since.

    Fix: find the mounts, and have server and network checked.
    """
    last: dict[str, str] = {}
    when: dict[str, float | None] = {}
    for event in kernel_log.events:
        words = event.text.partition("nfs: server ")[2].split()
        if event.kind == "disk" and words:
            last[words[0]], when[words[0]] = event.text, event.seconds_ago
    silent = [server for server, text in last.items() if "not responding" in text]
    past = [s for s in silent if "timed out" in last[s] and (when[s] or 0) > _SOFT_TIMEOUT_S]
    silent = [server for server in silent if server not in past]
    if past and not silent:
        first = past[0]
        return Skip(f"{listed(past)} timed out {format_age(when[first])}, and the log does not show whether it is back")
    if not silent:
        return no_events("unresponsive NFS server", kernel_log, f", {len(last)} recovered" if last else "")
    return Problem(
        f"NFS server {listed(silent)} does not respond (last logged {format_age(when[silent[0]])})",
        fix=Fix(commands=("findmnt -t nfs,nfs4",), who="admin"),
        evidence={"log": last[silent[0]], "origin": kernel_log.origin},
        subjects=tuple(silent),
    )


def _to_int(text: str) -> int:
    return int(text) if len(text) < 6 else 0
