"""Which kernel modules, settings and counters affect GPUs and ranks, and is a process stuck in the driver?

Shares a child with the system probe. The roots of /proc and /sys are arguments, so recorded trees can be replayed.
Standard library only. Everything is read as this user; values that only root can read stay None.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from typing import Any

# fmt: off
_MODULES = (
    "nvidia", "nouveau", "nova_", "ib_", "rdma_", "mlx4_", "mlx5_", "irdma", "efa", "bnxt_re", "hfi1", "gdrdrv",
    "nv_peer_mem", "vfio",
)
# The kernel command-line options about IOMMU, PCI and the driver; no others are recorded.
_OPTIONS = (
    "iommu", "intel_iommu=", "amd_iommu=", "pci", "nvidia", "nouveau.", "vfio", "rd.driver.blacklist=",
    "modprobe.blacklist=", "module_blacklist=", "nomodeset", "nosmt", "isolcpus=", "maxcpus=", "numa_balancing=",
    "transparent_hugepage=",
)
# fmt: on
# Programs that use GPUs. /proc truncates names to 15 characters.
_DRIVER_TOOLS = ("nvidia-", "nv-hostengine", "dcgm")
_PYTHONS = ("python", "pt_main_thread", "torchrun", "accelerate")
_LOOKS, _BETWEEN_LOOKS_S = 3, 0.05
_ENOUGH_S = 0.1  # time limit for reading the state of thousands of processes
_LOGIND = ("/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d")


def probe(
    proc: str = "/proc", sys_root: str = "/sys", root: str = "", stuck_age_s: float = 60.0
) -> Iterator[dict[str, Any]]:
    """Yield the fact kernel. A process younger than `stuck_age_s` is never reported as stuck."""
    command_line = _command_line(proc)
    memory = dict(re.findall(r"^(\w+):\s+(\d{1,15}) kB", _read(f"{proc}/meminfo") or "", re.MULTILINE))
    files_used, files_max = _files(proc)
    cpufreq = f"{sys_root}/devices/system/cpu/cpu0/cpufreq"
    yield {
        "kernel": {
            "modules": _modules(proc),
            "driver_flavour": _flavour(proc),
            "command_line": command_line,
            "iommu": _iommu(proc, sys_root, command_line),
            "dmesg_restricted": _switch(f"{proc}/sys/kernel/dmesg_restrict"),
            "overcommit_memory": _int(_read(f"{proc}/sys/vm/overcommit_memory")),
            "port_range": _port_range(proc),
            "files_used": files_used,
            "files_max": files_max,
            "cpus_online": _cpus(sys_root, "online"),
            "cpus_present": _cpus(sys_root, "present"),
            "cpu_governor": _read(f"{cpufreq}/scaling_governor") or None,
            "load_1min": _load(proc),
            "swap_used_bytes": _difference(memory, "SwapTotal", "SwapFree"),
            "remove_ipc": _remove_ipc(root),
            "stuck": _stuck(proc, stuck_age_s),
            "cpu_driver": _read(f"{cpufreq}/scaling_driver") or None,
            "smt": _read(f"{sys_root}/devices/system/cpu/smt/control") or None,
            "secure_boot": _secure_boot(sys_root),
            "reserved_ports": _read(f"{proc}/sys/net/ipv4/ip_local_reserved_ports"),
            "committed_bytes": _kib(memory, "Committed_AS"),
            "commit_limit_bytes": _kib(memory, "CommitLimit"),
            "peer_options": _peer_options(proc),
        }
    }


# ---- modules, drivers, IOMMU


def _modules(proc: str) -> list[str] | None:
    text = _read(f"{proc}/modules")
    return None if text is None else sorted(line.split()[0] for line in text.splitlines() if line.startswith(_MODULES))


def _flavour(proc: str) -> str | None:
    """Return the flavor from NVRM's first line: "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06"."""
    line = (_read(f"{proc}/driver/nvidia/version") or "").partition("\n")[0]
    if "Kernel Module" not in line:
        return None
    return "open" if "Open Kernel Module" in line else "proprietary"


def _peer_options(proc: str) -> list[str] | None:
    """Return the entries of RegistryDwords about peer access, such as `ForceP2P=17` or `RMForceStaticBar1=1`."""
    text = _read(f"{proc}/driver/nvidia/params")
    found = re.search(r'^RegistryDwords: "([^"]*)"', text or "", re.MULTILINE)
    if found is None:
        return None
    entries = (entry.strip() for entry in found[1].split(";"))
    return [entry for entry in entries if re.fullmatch(r"\w*(?:p2p|peer|bar1)\w*=\w{1,18}", entry, re.IGNORECASE)]


def _command_line(proc: str) -> str | None:
    text = _read(f"{proc}/cmdline")
    return None if text is None else " ".join(word for word in text.split() if word.startswith(_OPTIONS))


def _iommu(proc: str, sys_root: str, command_line: str | None) -> str | None:
    """Return the IOMMU mode of the GPUs, or else of the first groups (ABI/testing/sysfs-kernel-iommu_groups)."""
    try:
        groups = os.listdir(f"{sys_root}/kernel/iommu_groups")
    except OSError:
        return None
    if not groups:
        return "off"
    files = [f"{sys_root}/bus/pci/devices/{gpu}/iommu_group/type" for gpu in _list(f"{proc}/driver/nvidia/gpus")]
    files += [f"{sys_root}/kernel/iommu_groups/{group}/type" for group in sorted(groups)[:8]]
    for file in files:
        kind = _read(file) or ""
        if kind.startswith("DMA"):
            return "translating"
        if kind == "identity":
            return "passthrough"
    words = (command_line or "").split()  # Linux before 5.11 does not report the type
    return "passthrough" if "iommu=pt" in words or "iommu.passthrough=1" in words else None


def _secure_boot(sys_root: str) -> bool | None:
    """Return the EFI variable SecureBoot: four bytes of attributes, then 1 or 0."""
    folder = f"{sys_root}/firmware/efi/efivars"
    if not os.path.isdir(f"{sys_root}/firmware"):
        return None
    if not os.path.isdir(f"{sys_root}/firmware/efi"):
        return False  # booted by a BIOS, which has no Secure Boot
    try:
        with open(f"{folder}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "rb") as file:
            value = file.read(5)
    except OSError:
        return None
    return value[4] == 1 if len(value) == 5 else None


# ---- settings and counters


def _files(proc: str) -> tuple[int | None, int | None]:
    words = (_read(f"{proc}/sys/fs/file-nr") or "").split()
    return (_int(words[0]), _int(words[2])) if len(words) == 3 else (None, None)


def _port_range(proc: str) -> list[int] | None:
    ends = [_int(word) for word in (_read(f"{proc}/sys/net/ipv4/ip_local_port_range") or "").split()]
    return [end for end in ends if end is not None] if len(ends) == 2 and None not in ends else None


def _cpus(sys_root: str, which: str) -> int | None:
    """Return the number of CPUs in a list such as "0-63,128-191"."""
    text = _read(f"{sys_root}/devices/system/cpu/{which}")
    number = 0
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        low, high = _int(first), _int(last or first)
        if low is None or high is None:
            return None
        number += high - low + 1
    return number


def _load(proc: str) -> float | None:
    found = re.match(r"\d{1,6}\.\d+ ", _read(f"{proc}/loadavg") or "")
    return float(found.group()) if found else None


def _remove_ipc(root: str) -> bool | None:
    """Return RemoveIPC from logind's files; None if not set, in which case systemd's build default applies."""
    named = {name: f"{folder}/{name}" for folder in _LOGIND for name in sorted(_list(f"{root}{folder}"))}
    files = ["/etc/systemd/logind.conf", *(path for name, path in sorted(named.items()) if name.endswith(".conf"))]
    said = None
    for file in files:
        for value in re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", _read(f"{root}{file}") or "", re.MULTILINE):
            said = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False}.get(
                value.lower(), False
            )
    return said


# ---- processes


def _stuck(proc: str, age_s: float) -> list[str] | None:
    """Return processes that are blocked in the driver, where even SIGKILL has no effect. None: too many processes.

    These are in uninterruptible sleep at every look, without running in between. Considers only tools of the driver and
    Python processes that have a GPU open, because a process that waits for a slow disk can look the same.
    """
    until, uptime = time.monotonic() + _ENOUGH_S, _uptime(proc)
    asleep: dict[str, tuple[str, float | None]] = {}
    for pid in _list(proc):
        if not pid.isdecimal():
            continue
        if time.monotonic() > until:
            return None
        if not _name(proc, pid).startswith((*_DRIVER_TOOLS, *_PYTHONS)):
            continue
        name, state, started = _stat(proc, pid)
        age = None if uptime is None or started is None else uptime - started
        if state == "D" and (age is None or age >= age_s) and _uses_gpu(proc, pid, name):
            asleep[pid] = name, age
    switches = {pid: _switches(proc, pid) for pid in asleep}
    for _ in range(_LOOKS - 1 if asleep else 0):
        time.sleep(_BETWEEN_LOOKS_S)
        for pid in list(asleep):
            if _stat(proc, pid)[1] != "D" or _switches(proc, pid) != switches[pid]:
                del asleep[pid]
    return [f"{name} (pid {pid}{_start_text(age)})" for pid, (name, age) in asleep.items()]


def _start_text(age_s: float | None) -> str:
    """`, started 3 h ago`: the process cannot have been stuck for longer."""
    if age_s is None:
        return ""
    units = ((86400, "days"), (3600, "h"), (60, "min"))
    size, unit = next((one for one in units if age_s >= 2 * one[0]), (1, "s"))
    return f", started {age_s / size:.0f} {unit} ago"


def _name(proc: str, pid: str) -> str:
    """Return a process's name only. Reading /proc/PID/stat takes twice as long, and there can be thousands."""
    return _read_fast(f"{proc}/{pid}/comm")


def _read_fast(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY)  # open() would take twice as long
        try:
            return os.read(file, 1024).decode("utf-8", "replace")
        finally:
            os.close(file)
    except OSError:
        return ""


def _stat(proc: str, pid: str) -> tuple[str, str, float | None]:
    """Return name, state and start time in seconds since boot. The name can contain any character."""
    text = _read_fast(f"{proc}/{pid}/stat")
    name, _, rest = text.partition("(")[2].rpartition(") ")
    words = rest.split()
    ticks = _int(words[19]) if len(words) > 19 else None
    return name, words[0] if words else "", None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def _switches(proc: str, pid: str) -> list[str]:
    return re.findall(r"ctxt_switches:\s+(\d+)", _read(f"{proc}/{pid}/status") or "")


def _uses_gpu(proc: str, pid: str, name: str) -> bool:
    """Whether it is a driver tool, or a Python process with a GPU open, which only root sees for other users."""
    if name.startswith(_DRIVER_TOOLS):
        return True
    for number in _list(f"{proc}/{pid}/fd") if name.startswith(_PYTHONS) else ():
        try:
            if os.readlink(f"{proc}/{pid}/fd/{number}").startswith("/dev/nvidia"):
                return True
        except OSError:
            continue
    return False


def _uptime(proc: str) -> float | None:
    found = re.match(r"\d{1,12}\.\d+", _read(f"{proc}/uptime") or "")
    return float(found.group()) if found else None


# ---- reading


def _kib(memory: dict[str, str], name: str) -> int | None:
    return int(memory[name]) * 1024 if name in memory else None


def _difference(memory: dict[str, str], whole: str, free: str) -> int | None:
    return (int(memory[whole]) - int(memory[free])) * 1024 if whole in memory and free in memory else None


def _switch(path: str) -> bool | None:
    value = _int(_read(path))
    return None if value is None else value > 0


def _int(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str, most: int = 4 << 20) -> str | None:
    """Return the text of a regular file; None if there is none, or it has more than `most` bytes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        data = b""
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        while regular and len(data) <= most and (piece := os.read(file, 1 << 20)):
            data += piece
    except OSError:
        return None
    finally:
        os.close(file)
    return data.decode("utf-8", "replace").strip() if regular and len(data) <= most else None
