"""What are the CPUs, memory and limits this process really has, and is this a container?

Runs in a child process: a hung mount must not take mgpu along. Roots of /proc and /sys are arguments, so that recorded
trees can be replayed. Standard library only.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from typing import Any


def probe(
    proc: str = "/proc", sys_root: str = "/sys", shm: str = "/dev/shm", root: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the facts host, container, slurm, then system (its statfs calls come last: they may hang)."""
    yield {"host": _host(sys_root, root), "container": _container(proc, sys_root, root), "slurm": _slurm()}
    yield {"asking": f"free space of {shm}, the temporary and the current folder"}
    yield {"system": _system(proc, sys_root, shm)}


def _host(sys_root: str, root: str) -> dict[str, Any]:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read(f"{root}/etc/os-release") or "", re.MULTILINE))
    product = _read(f"{sys_root}/class/dmi/id/product_name") or ""
    vendor = _read(f"{sys_root}/class/dmi/id/sys_vendor") or ""
    virtual = next(
        (name for word, name in _HYPERVISORS.items() if word in f"{vendor} {product}".lower()),
        None,
    )
    return {
        "name": platform.node(),
        "os": release.get("PRETTY_NAME") or platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "user_is_root": os.geteuid() == 0,
        "virtual": virtual,
    }


_HYPERVISORS = {
    "kvm": "KVM", "qemu": "QEMU", "vmware": "VMware", "virtualbox": "VirtualBox", "xen": "Xen",
    "virtual machine": "Hyper-V", "amazon ec2": "Amazon EC2", "google compute": "Google Compute Engine",
    "firecracker": "Firecracker",
}  # fmt: skip


def _container(proc: str, sys_root: str, root: str) -> dict[str, Any]:
    kind = None
    cgroup = (_read(f"{proc}/1/cgroup") or "") + (_read(f"{proc}/self/cgroup") or "")
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        kind = "kubernetes"
    elif os.environ.get("APPTAINER_NAME") or os.environ.get("SINGULARITY_NAME"):
        kind = "apptainer"
    elif os.path.exists(f"{root}/.dockerenv") or "/docker" in cgroup:
        kind = "docker"
    elif os.path.exists(f"{root}/run/.containerenv") or "libpod" in cgroup:
        kind = "podman"
    elif "/lxc/" in cgroup or (_read(f"{root}/run/systemd/container") or "").startswith("lxc"):
        kind = "lxc"
    elif _read(f"{root}/run/systemd/container"):
        kind = "other"
    version = None
    if os.path.isdir(f"{sys_root}/fs/cgroup"):
        version = 2 if os.path.exists(f"{sys_root}/fs/cgroup/cgroup.controllers") else 1
    wsl = "microsoft" in (_read(f"{proc}/sys/kernel/osrelease") or "").lower()
    return {"kind": kind, "wsl": wsl, "cgroup_version": version}


def _slurm() -> dict[str, Any]:
    found = shutil.which("srun") is not None
    env = os.environ
    if "SLURM_JOB_ID" not in env and not found:
        unknown = dict.fromkeys(("job_id", "nodes", "node_rank", "tasks_per_node", "gpus_on_node"))
        return {**unknown, "commands_found": False}
    return {
        "job_id": env.get("SLURM_JOB_ID"),
        "nodes": _int(env.get("SLURM_NNODES")),
        "node_rank": _int(env.get("SLURM_NODEID")),
        "tasks_per_node": env.get("SLURM_NTASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE"),
        "gpus_on_node": _int(env.get("SLURM_GPUS_ON_NODE")),
        "commands_found": found,
    }


def _system(proc: str, sys_root: str, shm: str) -> dict[str, Any]:
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", _read(f"{proc}/meminfo") or "", re.MULTILINE))
    total = int(memory.get("MemTotal", 0)) * 1024
    shm_total, shm_free, shm_writable = _space(shm)
    _, tmp_free, _ = _space(os.environ.get("TMPDIR") or "/tmp")
    _, cwd_free, cwd_writable = _space(".")
    return {
        "cpus_logical": os.cpu_count() or 1,
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpus_quota": _cpu_quota(proc, sys_root),
        "numa_nodes": _numa_nodes(sys_root),
        "memory_total_bytes": total,
        "memory_available_bytes": int(memory.get("MemAvailable", 0)) * 1024,
        "memory_limit_bytes": _memory_limit(proc, sys_root, total),
        "shm_total_bytes": shm_total,
        "shm_free_bytes": shm_free,
        "shm_writable": shm_writable,
        "limit_open_files": _limit(resource.RLIMIT_NOFILE),
        "limit_locked_memory_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "limit_processes": _limit(resource.RLIMIT_NPROC),
        "limit_stack_bytes": _limit(resource.RLIMIT_STACK),
        "tmp_free_bytes": tmp_free,
        "cwd_free_bytes": cwd_free,
        "cwd_writable": cwd_writable,
    }


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _space(path: str) -> tuple[int | None, int | None, bool | None]:
    """Total and free bytes (as a non-root user may use them), and whether it can be written."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None, None, None
    writable = os.access(path, os.W_OK) and not stat.f_flag & os.ST_RDONLY
    return stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail, bool(writable)


def _cgroup_folders(proc: str, sys_root: str, controller: str) -> Iterator[str]:
    """This process's cgroup folder for a controller and all above it: a limit anywhere on the way holds."""
    for line in (_read(f"{proc}/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if controllers == "":
            base = f"{sys_root}/fs/cgroup"
        elif controller in controllers.split(","):
            base = f"{sys_root}/fs/cgroup/{controllers}"
            base = base if os.path.isdir(base) else f"{sys_root}/fs/cgroup/{controller}"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield "/".join([base, *parts[:depth]])


def _cpu_quota(proc: str, sys_root: str) -> float | None:
    """CPUs the cgroup grants (cpu.max in v2, cpu.cfs_quota_us in v1), the smallest on the way up; None: no quota."""
    quotas = []
    for folder in _cgroup_folders(proc, sys_root, "cpu"):
        words = (_read(f"{folder}/cpu.max") or "").split()
        if not words:
            words = [_read(f"{folder}/cpu.cfs_quota_us") or "-1", _read(f"{folder}/cpu.cfs_period_us") or "100000"]
        quota, period = _int(words[0]), _int(words[1]) if len(words) > 1 else 100000
        if quota and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memory_limit(proc: str, sys_root: str, total: int) -> int | None:
    limits = []
    for folder in _cgroup_folders(proc, sys_root, "memory"):
        limit = _int(_read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes"))
        if limit and limit < total:  # v1 writes a huge number for "no limit"
            limits.append(limit)
    return min(limits, default=None)


def _numa_nodes(sys_root: str) -> int | None:
    try:
        names = os.listdir(f"{sys_root}/devices/system/node")
    except OSError:
        return None
    return sum(bool(re.fullmatch(r"node\d+", name)) for name in names) or None


def _int(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
