"""What has the kernel written of memory, PCIe, network cards, disks and hanging processes into its log?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Host, KernelEvent, KernelLog, Plan
from mgpu.text import counted, listed

from ._kernel_log_lines import ago, none_of, recent

_NFS = "https://man7.org/linux/man-pages/man5/nfs.5.html"
_ADMIN = "https://docs.kernel.org/admin-guide"
# Azure's node health checks call a link that went down this often in a day flapping (azure_ib_link_flapping.nhc).
_FLAPS = 5
# Of a soft mount the kernel says "timed out" each time somebody asks, and never "OK" (net/sunrpc/clnt.c): past this, it
# says nothing of now.
_SOFT_TIMEOUT_S = 600.0
_LIMITED = re.compile(
    r"([\d.]+) Gb/s available PCIe bandwidth, limited by ([\d.]+) GT/s PCIe x(\d+) link at (\S+) "
    r"\(capable of ([\d.]+) Gb/s with ([\d.]+) GT/s PCIe x(\d+) link"
)


def _of(log: KernelLog, kind: str, *words: str) -> list[KernelEvent]:
    """Events of this kind of the last day, with one of the words in them."""
    return [
        e for e in log.events if e.kind == kind and recent(e) and (not words or any(word in e.text for word in words))
    ]


def several_nodes(plan: Plan) -> Skip | None:
    """What a check of network cards is asked for only."""
    return Skip("the run stays on one machine (--nodes)") if plan.nodes < 2 else None


@check(
    Severity.INFO,
    source=f"{_ADMIN}/mm/concepts.html#oom-killer",
    because_of=("memory_small_for_ranks", "processes_killed_for_memory"),
)
def oom_killer_struck(kernel_log: KernelLog) -> Answer:
    """The kernel killed a process because memory ran out.

    Why: the machine, or the cgroup of the job (Slurm's --mem, a container's limit), had none left. A rank that is
    killed so shows exit code -9 or 137 and no traceback; Slurm says "Detected 1 oom_kill event".

    Fix: if it was yours, ask for more, or start fewer workers.
    """
    events = _of(kernel_log, "oom")
    if not events:
        return none_of("OOM kill", kernel_log)
    newest = events[-1]
    group = "cgroup" in newest.text
    more = f" ({len(events)} kills in a day)" if len(events) > 1 else ""
    return Problem(
        f"{newest.process} was killed for want of memory {ago(newest.seconds_ago)}{more}",
        (
            "The cgroup of that process (job, container) was at its limit."
            if group
            else "The machine had no memory left."
        )
        + " A training that is killed so ends with exit code -9 or 137 and no traceback.",
        Fix(commands=("sbatch --mem=0 ...", "docker run --memory=64g ...")),
        {"log": newest.text, "origin": kernel_log.origin, "kills": len(events), "cgroup": group},
    )


@check(
    Severity.WARNING, source=f"{_ADMIN}/sysctl/kernel.html#hung-task-timeout-secs", because_of=("nfs_server_silent",)
)
def process_hung_in_kernel(kernel_log: KernelLog) -> Answer:
    """A process hung in the kernel for minutes.

    Why: it waited for minutes for a disk, a file server or a driver, out of reach of signals.
    More: A rank in that state makes all others wait, until NCCL's watchdog ends the run.

    Fix: the stack follows the line in the log.
    """
    events = _of(kernel_log, "hung_task")
    if not events:
        return none_of("hung process", kernel_log)
    newest = events[-1]
    names = listed(dict.fromkeys(event.process for event in events[-3:]))
    return Problem(
        f"{names} hung in the kernel, last {ago(newest.seconds_ago)}",
        fix=Fix(commands=("sudo dmesg -T | grep -A20 'blocked for more'",), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(
    Severity.WARNING,
    source="https://docs.kernel.org/PCI/index.html",
    because_of=("pcie_width_reduced", "pcie_switch_uplink_narrow"),
)
def pcie_bandwidth_limited(kernel_log: KernelLog, host: Host) -> Answer:
    """A GPU hangs behind a narrower PCIe link than it could use.

    Why: the link at this address came up with fewer lanes than the device has; everything behind it shares them.
    More: The card, or a bridge above it, came up with fewer lanes: a x4 or x8 slot, a riser, a bad contact. Copies to
    the host, and collectives without NVLink, run at that speed, and the slowest GPU sets the pace. NVML shows the link
    of the card only; the kernel names the one that limits.

    Fix: compare what the link can do with what it does; then reseat, or use another slot.
    More: Move or reseat the card; check the lanes of the slot in the manual and the BIOS.
    """
    if host.virtual:
        return Skip(f"this is a virtual machine ({host.virtual}): its bridges are made up, and so are their lanes")
    named = [e for e in kernel_log.events if e.kind == "pcie" and (e.gpu is not None or "mlx5_core" in e.text)]
    newest = {event.pci: event for event in named}
    narrow = [
        (event, match)
        for event in newest.values()
        if (match := _LIMITED.search(event.text)) and _int(match[3]) < _int(match[7])
    ]
    if not narrow:
        return none_of("PCIe link with too few lanes", kernel_log)
    event, match = narrow[0]
    who = f"GPU {event.gpu} ({event.pci})" if event.gpu is not None else f"the network card at {event.pci}"
    return Problem(
        f"{who}: {match[1]} of {match[5]} Gb/s, a x{match[3]} link at {match[4]} instead of x{match[7]}"
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
    """A PCIe device met an error that was not corrected.

    Why: transfers were lost, or the link was reset under the device.
    More: On the way to a GPU or a network card the rank there gets CUDA or NCCL errors; it comes from contacts, risers,
    power or the board.

    Fix: see what stands at this address.
    More: Find the device; reseat it, check the riser, then the vendor.
    """
    events = _of(kernel_log, "aer")
    if not events:
        return none_of("uncorrected PCIe error", kernel_log)
    newest = events[-1]
    who = f"GPU {newest.gpu} ({newest.pci})" if newest.gpu is not None else f"the device at {newest.pci}"
    return Problem(
        f"{who}: uncorrected PCIe error {ago(newest.seconds_ago)}",
        fix=Fix(commands=(shell("lspci -s {:id}", newest.pci), "sudo dmesg -T | grep -A6 AER"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
        subjects=tuple(dict.fromkeys(str(event.pci) for event in events)),
    )


@check(Severity.WARNING, source="https://docs.kernel.org/driver-api/edac.html")
def host_memory_faulty(kernel_log: KernelLog) -> Answer:
    """The host's memory or CPU reported an error that could not be corrected.

    Why: a page was lost; the process that held it is killed by SIGBUS.

    Fix: find the module, and have it replaced.
    More: Drain the machine.
    """
    events = _of(kernel_log, "mce")
    if not events:
        return none_of("uncorrected error of the host's memory", kernel_log)
    newest = events[-1]
    return Problem(
        f"uncorrected error of the host's memory or CPU {ago(newest.seconds_ago)}",
        fix=Fix(commands=("sudo ras-mc-ctl --errors", "sudo dmesg -T | grep -iE 'mce|edac'"), who="hardware"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


def _cards(events: Iterable[KernelEvent]) -> dict[str, list[KernelEvent]]:
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(event.pci or "an unknown address", []).append(event)
    return found


@check(Severity.WARNING, source="https://github.com/Azure/azurehpc-health-checks", given=several_nodes)
def nic_link_flapped(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network link goes down again and again.

    Why: connections over it break each time; NCCL ends the run when its retries are used up.
    More: Each time the connections of NCCL over it break; InfiniBand retries for seconds, then the collective ends with
    "NCCL WARN ... retry exceeded", hours into a run over several machines.

    Fix: clean or replace cable and transceiver.
    """
    flapping = {
        card: events
        for card, events in _cards(_of(kernel_log, "nic", "Link ", "link ")).items()
        if len(events) >= _FLAPS
    }
    if not flapping:
        return none_of("flapping link", kernel_log)
    card, events = next(iter(flapping.items()))
    last = ago(events[-1].seconds_ago)
    return Problem(
        f"the link of the network card at {card} went down {len(events)} times in a day, last {last}",
        fix=Fix(commands=(shell("sudo mlxlink -d {:id} -m -e", card),), who="hardware"),
        evidence={"log": events[-1].text, "origin": kernel_log.origin, "downs": len(events)},
        subjects=tuple(flapping),
    )


@check(
    Severity.WARNING, source="https://docs.nvidia.com/networking/display/cx5vpisd/troubleshooting", given=several_nodes
)
def nic_faulty(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network card reports a fault: hot or broken transceiver, firmware in trouble.

    Why: the port goes down or loses packets under load; collectives between machines slow down or end with errors.

    Fix: look at cable, transceiver and cooling.
    More: After that look at the firmware.
    """
    events = _of(kernel_log, "nic", "Port module event", "health compromised", "atal error")
    if not events:
        return none_of("fault of a network card", kernel_log)
    newest = events[-1]
    what = "a transceiver that is too hot" if "High Temperature" in newest.text else "a fault"
    where = f" at {newest.pci}" if newest.pci else ""
    return Problem(
        f"the network card{where} reports {what} {ago(newest.seconds_ago)}",
        f"The kernel's log says: {newest.text}",
        Fix(commands=("sudo mlxlink -d mlx5_0 -m",), who="hardware"),
        {"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/networking/display/cx5vpisd/troubleshooting", given=several_nodes)
def nic_slot_power_low(kernel_log: KernelLog, plan: Plan) -> Answer:
    """A network card finds too little power promised by its slot.

    Why: many boards announce less than they give, so this is mostly harmless; where it is true, the transceiver is
    switched off under load and the port goes down.

    Fix: nothing, unless the port fails.
    More: After that look at the slot's power setting in the BIOS.
    """
    events = [e for e in kernel_log.events if e.kind == "nic" and "insufficient power" in e.text]
    if not events:
        return Ok("no network card complains of its slot's power")
    newest = events[-1]
    return Problem(
        f"the network card at {newest.pci} finds too little power promised by its slot",
        f"The kernel's log says: {newest.text}",
        Fix(commands=("ibstat",)),
        {"log": newest.text, "cards": len(_cards(events))},
    )


@check(Severity.WARNING, source="https://github.com/leptonai/gpud/tree/main/components/disk")
def disk_error_logged(kernel_log: KernelLog) -> Answer:
    """A disk or file system met an error.

    Why: the kernel could not read or write; what lies there may be lost.
    More: Checkpoints on it are lost, data sets on it end the run with "Input/output error".

    Fix: see which disk it is, and have it looked at.
    More: Do not write there.
    """
    events = [e for e in kernel_log.events if e.kind == "disk" and "nfs: server" not in e.text and recent(e)]
    if not events:
        return none_of("disk error", kernel_log)
    newest = events[-1]
    return Problem(
        f"disk error {ago(newest.seconds_ago)}: {newest.text}",
        fix=Fix(commands=("lsblk", "sudo dmesg -T | grep -iE 'I/O error|read-only'"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "lines": len(events)},
    )


@check(Severity.WARNING, source=_NFS, because_of=("folder_does_not_answer",))
def nfs_server_silent(kernel_log: KernelLog) -> Answer:
    """The kernel waits for an NFS server.

    Why: processes that touch its files hang, out of reach of signals.
    More: The last it wrote of this server is "not responding", and no "OK" since. Every process that touches a file
    there hangs, and cannot be killed.

    Fix: find the mounts; have server and network looked at.
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
        return Skip(f"the kernel does not say whether {listed(past)} is back, that timed out {ago(when[first])}")
    if not silent:
        return none_of("NFS server that is silent", kernel_log, f", {len(last)} came back" if last else "")
    return Problem(
        f"NFS server {listed(silent)} does not respond, last {ago(when[silent[0]])}",
        fix=Fix(commands=("findmnt -t nfs,nfs4",), who="admin"),
        evidence={"log": last[silent[0]], "origin": kernel_log.origin},
        subjects=tuple(silent),
    )


def _int(text: str) -> int:
    return int(text) if len(text) < 6 else 0
