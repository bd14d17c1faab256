"""Events of the kernel log: which still count, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Evidence, Fix, Problem
from mgpu.command_line import shell
from mgpu.snapshot import KernelEvent, KernelLog
from mgpu.text import listed

from .._kernel_log_lines import format_age, is_recent
from .._xid import XIDS, Kind

_RECOVERED = 154  # "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def kind_of(event: KernelEvent) -> Kind | None:
    row = XIDS.get(event.code or 0)
    if row and row.kind == "link" and "Nonfatal" in event.text:  # NVLink 5 logs the severity
        return "note"
    return row.kind if row else None


def xids_since_load(log: KernelLog) -> list[KernelEvent]:
    """Return the Xids since the driver was last loaded."""
    loads = [e.seconds_ago for e in log.events if e.kind == "driver" and "loading NVIDIA UNIX" in e.text]
    loaded = min((seconds for seconds in loads if seconds is not None), default=None)
    return [
        event
        for event in log.events
        if event.kind == "xid" and (loaded is None or event.seconds_ago is None or event.seconds_ago <= loaded)
    ]


def current_events(log: KernelLog, *kinds: Kind | None) -> list[KernelEvent]:
    """Return the last day's Xids of these kinds after which the driver logged no recovery of the GPU."""
    xids = xids_since_load(log)
    return [
        event
        for place, event in enumerate(xids)
        if is_recent(event)
        and kind_of(event) in kinds
        and not any(later.pci == event.pci and is_recovery(later) for later in xids[place + 1 :])
    ]


def is_recovery(event: KernelEvent) -> bool:
    return event.code == _RECOVERED and "to 0x0" in event.text


def gpu_name(event: KernelEvent) -> str:
    if event.gpu is not None:
        return f"GPU {event.gpu} ({event.pci})"
    return f"the GPU at {event.pci}" if event.pci else "a GPU"


def title_of(events: list[KernelEvent]) -> str:
    """Return a title with the newest Xid, its meaning and the number of lines."""
    event = events[-1]
    row = XIDS.get(event.code or 0)
    more = f" ({len(events)} log lines)" if len(events) > 1 else ""
    meaning = row.meaning if row else "not classified"
    return f"{gpu_name(event)}: Xid {event.code}, {meaning}, {format_age(event.seconds_ago)}{more}"


def evidence_of(events: list[KernelEvent], log: KernelLog) -> Evidence:
    newest = events[-1]
    found: Evidence = {"log": newest.text, "origin": log.origin, "xids": listed(sorted({e.code or 0 for e in events}))}
    return {**found, **({"process": newest.process} if newest.process else {})}


def gpu_names(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gpu_name(event) for event in events))


def reset_commands(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    """Return the commands that reset these GPUs; nvidia-smi accepts PCI addresses."""
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    found = (address if "." in address else f"{address}.0" for address in addresses)
    return tuple(shell("sudo nvidia-smi --gpu-reset -i {:id}", address) for address in found) or (
        "sudo nvidia-smi --gpu-reset",
    )


def problem_of(events: list[KernelEvent], log: KernelLog, cause: str, *fixes: Fix) -> Problem:
    return Problem(title_of(events), cause, fixes, evidence_of(events, log), gpu_names(events))
