"""What has the kernel logged about GPUs, memory, PCIe, network cards and disks since boot?

Reads /dev/kmsg if permitted, else the journal. If neither is readable, the fact is a gap: unknown, never clean.
Lines written by programs (facility other than the kernel's) are ignored. Standard library only.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from typing import Any

# Linux device number of /dev/kmsg (Documentation/admin-guide/devices.txt). In a container it can be something else.
_KMSG = (1, 11)
_RECORD_BYTES = 8192  # read() of /dev/kmsg returns one record, and fails if it does not fit (dmesg uses 2048)
_JOURNAL_LINES = 100_000
# Xids come in bursts. Only the newest of equal events are kept, so rare events are not lost.
_SAME_KEPT = 20
_ALL_KEPT = 400
_TEXT = 240

_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
# A quick filter that rejects almost all lines.
_WORTH = re.compile(
    r"NVRM|SXid|Killed process|PCIe bandwidth|PCIe Bus Error|Hardware Error|EDAC|blocked for more|soft lockup"
    r"|I/O |[Rr]emounting|access beyond end|md/raid|nvme|nfs: server|mlx5|Link |module.*reject|unsigned"
)
# NVRM: Xid (PCI:0000:1a:00): 79, pid=4711, name=python, GPU has fallen off the bus.
# NVRM: Xid (0000:03:00): 14, Channel 00000001            (old)
# NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=...        (MIG)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d{1,5})\b")
_XID_PID = re.compile(r"pid='?(\d+)")
_XID_NAME = re.compile(r"name=([^,<]+)")
_NAMED_GPU = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?({_PCI})")
# nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,6})\b")
# Memory cgroup out of memory: Killed process 4711 (python) total-vm:…   (old: "Killed process 123, UID 48, (httpd)")
_OOM = re.compile(r"Killed process (\d+)(?:, UID \d+,)? \((.+?)\)")
# pci 0000:1a:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1c.0 (capable …
_PCIE = re.compile(rf"({_PCI}): [\d.]+ Gb/s available PCIe bandwidth, limited by")
# nvidia 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)
_AER = re.compile(rf"({_PCI}): (?:AER: )?PCIe Bus Error: severity=Uncorrect")
_MCE = re.compile(r"EDAC \w+: \d+ UE\b|\[Hardware Error\]: .*[Uu]ncorrected")
_HUNG = re.compile(
    r"task (.+):(\d+) blocked for more than \d+ seconds|soft lockup - CPU#\d+ stuck for \d+s! \[(.+):(\d+)\]"
)
_DISK = re.compile(
    r"md/raid.*: Disk failure on .*|[Rr]emounting filesystem read-only|block nvme\S*: no available path"
    r"|nvme nvme\d+: I/O .*timeout, reset controller|nvme nvme\d+: Disabling device after reset failure"
    r"|attempt to access beyond end of device|I/O error while writing superblock"
    r"|(?:Buffer I/O error on|I/O error,) dev (?!fd\d|sr\d|loop)\S+,? (?:logical block|sector)"
    r"|nfs: server \S+ (?:not responding|OK)"
)
_NIC = re.compile(
    r"Port module event\[error\]|Port module event.*High Temperature|Detected insufficient power on the PCIe slot"
    rf"|mlx5_core {_PCI}.*(?:health compromised|[Ff]atal error)"
    rf"|{_PCI} \S+: .*\bLink (?:is )?(?:[Dd]own|DOWN)\b"
)
_DRIVER = re.compile(
    r"NVRM: .*(?:RmInitAdapter failed|rm_init_adapter failed|API mismatch|probe routine (?:failed|was not called)"
    r"|loading NVIDIA UNIX|fallen off the bus)|Loading of (?:unsigned module|module with unavailable key) is rejected"
    r"|Lockdown: .*unsigned module"
)
_MODULE_HAS = re.compile(r"NVRM: this kernel module has the version")
_ANY_PCI = re.compile(_PCI)
_JOURNAL = re.compile(r"\[\s*(\d+\.\d+)\] \S+ kernel: (.*)")

UNREADABLE = (
    "no permission to read the kernel log, so past GPU errors (Xid) are unknown; "
    'an administrator can list them with: sudo dmesg -T | grep -E "NVRM|Xid"'
)


def probe(
    kmsg: str = "/dev/kmsg",
    journalctl: str = "journalctl",
    gpus: str = "/proc/driver/nvidia/gpus",
    now_s: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the fact kernel_log, or the gap with the reason. `now_s`: seconds since boot."""
    now = time.monotonic() if now_s is None else now_s
    order = _pci_order(gpus)
    for origin, records in (("/dev/kmsg", _from_kmsg(kmsg)), ("journal", _from_journal(journalctl))):
        yield {"asking": f"kernel log in {origin}"}
        found = _Events(now, order)
        for seconds, text in records:
            found.take(seconds, text)
        if found.first is not None:
            since = max(0.0, now - found.first)
            yield {"kernel_log": {"origin": origin, "events": found.newest(), "since_s": round(since, 1)}}
            return
    yield {"gap": {"kernel_log": ["no_permission", UNREADABLE]}}


def _pci_order(folder: str) -> dict[tuple[int, int, int], int]:
    """Return PCI address -> index in PCI order, which is NVML's order."""
    try:
        addresses = sorted(address for name in os.listdir(folder) if (address := _address(name)))
    except OSError:
        return {}
    return {address: place for place, address in enumerate(addresses)}


def _address(text: str) -> tuple[int, int, int] | None:
    """Return "0000:1a:00.0" as numbers; the domain has four or eight digits."""
    parts = text.partition(".")[0].split(":")
    try:
        domain, bus, device = (int(part, 16) for part in parts)
    except ValueError:
        return None
    return domain, bus, device


def _from_kmsg(path: str) -> Iterator[tuple[float, str]]:
    """Yield time (seconds since boot) and text of every kernel record; nothing if /dev/kmsg cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return
    try:
        kind = os.fstat(fd)
        number = (os.major(kind.st_rdev), os.minor(kind.st_rdev))
        if not stat.S_ISREG(kind.st_mode) and not (stat.S_ISCHR(kind.st_mode) and number == _KMSG):
            return
        rest = b""
        while True:
            try:
                data = os.read(fd, _RECORD_BYTES)
            except BlockingIOError:
                break  # the end of the log
            except BrokenPipeError:
                continue  # records were overwritten meanwhile: continue with the oldest one left
            except OSError:
                break
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if record := _record(line):
                    yield record
        if record := _record(rest):
            yield record
    finally:
        os.close(fd)


def _record(line: bytes) -> tuple[float, str] | None:
    """Parse "4,1234,5678901,-;NVRM: …" to (5.678901, "NVRM: …"); None for continuation lines and other facilities."""
    head, semicolon, text = line.partition(b";")
    if not semicolon or line[:1] == b" ":
        return None
    fields = head.split(b",")
    try:
        priority, microseconds = int(fields[0]), int(fields[2])
    except (ValueError, IndexError):
        return None
    if priority >> 3:
        return None
    return microseconds / 1e6, text.decode("utf-8", "replace").replace("\\x0a", "\n")


def _from_journal(journalctl: str) -> Iterator[tuple[float, str]]:
    """Yield the same from the journal of this boot, which is empty, without an error, for unprivileged users."""
    import subprocess  # only needed if /dev/kmsg is not readable

    command = [journalctl, "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", str(_JOURNAL_LINES)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except OSError:
        return
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if match := _JOURNAL.match(line):
                yield float(match[1]), match[2]


class _Events:
    """Collects the events among the records, keeping the newest."""

    def __init__(self, now: float, order: dict[tuple[int, int, int], int]) -> None:
        self.now, self.order = now, order
        self.first: float | None = None
        self.same: dict[tuple[Any, ...], list[tuple[float, dict[str, Any]]]] = {}
        self.gpu_named: str | None = None  # from "NVRM: The NVIDIA GPU 0000:b3:00.0"; details follow on later lines
        self.mismatch: dict[str, Any] | None = None

    def take(self, seconds: float, text: str) -> None:
        """Process one record."""
        if self.first is None or seconds < self.first:
            self.first = seconds
        if not _WORTH.search(text):
            return
        text = " ".join(text.split())
        if self.mismatch and _MODULE_HAS.match(text):
            self.mismatch["text"] = f"{self.mismatch['text']} {text.removeprefix('NVRM: ')}"[:_TEXT]
            self.mismatch = None
            return
        if event := self._event(text):
            event["seconds_ago"] = round(max(0.0, self.now - seconds), 1)
            event["text"] = text[:_TEXT]
            address = _address(event["pci"]) if event["pci"] else None
            event["gpu"] = self.order.get(address) if address else None
            self.mismatch = event if "API mismatch" in text and "this kernel module" not in text else None
            key = (event["kind"], event["code"], event["pci"] or re.sub(r"\d+", "", text)[:60])
            kept = self.same.setdefault(key, [])
            kept.append((seconds, event))
            del kept[:-_SAME_KEPT]

    def newest(self) -> list[dict[str, Any]]:
        """Return the events in chronological order."""
        every = sorted((pair for kept in self.same.values() for pair in kept), key=lambda pair: pair[0])
        return [event for _, event in every[-_ALL_KEPT:]]

    def _event(self, text: str) -> dict[str, Any] | None:
        if match := _XID.search(text):
            return _event("xid", match[1], int(match[2]), _process(_XID_NAME.search(text), _XID_PID.search(text)))
        if match := _NAMED_GPU.search(text):
            self.gpu_named = match[1]
        if "NVRM" in text and "fallen off the bus" in text:  # the driver also logs it without an Xid
            return _event("xid", self.gpu_named, 79)
        if match := _SXID.search(text):
            return _event("sxid", match[1], int(match[2]))
        if match := _OOM.search(text):
            return _event("oom", process=f"{match[2]} (pid {match[1]})")
        if match := _PCIE.search(text):
            return _event("pcie", match[1])
        if match := _AER.search(text):
            return _event("aer", match[1])
        if match := _HUNG.search(text):
            return _event("hung_task", process=f"{match[1] or match[3]} (pid {match[2] or match[4]})")
        for kind, pattern in (("driver", _DRIVER), ("mce", _MCE), ("disk", _DISK), ("nic", _NIC)):
            if pattern.search(text):
                named = _ANY_PCI.search(text)
                return _event(kind, named[0] if named else None)
        return None


def _event(kind: str, pci: str | None = None, code: int | None = None, process: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "code": code, "pci": pci, "process": process}


def _process(name: re.Match[str] | None, pid: re.Match[str] | None) -> str | None:
    if not pid:
        return None
    return f"{name[1].strip() if name else 'a process'} (pid {pid[1]})"
