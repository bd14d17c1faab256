"""Which CPUs, memory and limits does this process have, is this a container, and what did Slurm allocate?

Runs in a child process, because a hung mount must not hang mgpu. The roots of /proc and /sys are arguments, so recorded
trees can be replayed. Imports only fast modules of the standard library: importing `platform` and `shutil` would take
longer than the whole probe.
"""

from __future__ import annotations

import _thread
import os
import re
import resource
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Link of the kernel's initial PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_FIRST_PIDS = "pid:[4026531836]"
# Bits of CapEff (include/uapi/linux/capability.h).
_CAPABILITIES = {14: "ipc_lock", 19: "sys_ptrace", 21: "sys_admin", 23: "sys_nice", 24: "sys_resource", 34: "syslog"}
# Number of get_mempolicy(2), by `uname -m`; 32-bit machines do not matter here.
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236, "ppc64le": 260}
# fmt: off
# Parts of a container's root mount (folder or overlay layers) -> container runtime.
_ROOT_MOUNTS = {
    "/enroot": "enroot", "pyxis_": "enroot", "/docker/": "docker", "/containers/storage/": "podman",
    "/containerd/": "containerd",
}
_HYPERVISORS = {
    "kvm": "KVM", "qemu": "QEMU", "vmware": "VMware", "virtualbox": "VirtualBox", "xen": "Xen",
    "virtual machine": "Hyper-V", "amazon ec2": "Amazon EC2", "google compute": "Google Compute Engine",
    "firecracker": "Firecracker",
}
# fmt: on
# Files on a file server can hang: that loses only their own values, not those of later probes.
_PATIENCE_S = 0.5
_NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


def probe(
    proc: str = "/proc", sys_root: str = "/sys", shm: str = "/dev/shm", root: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the facts host, container, slurm, then system (last, because its statfs calls can hang)."""
    yield {"host": _host(sys_root, root), "container": _container(proc, sys_root, root), "slurm": _slurm(os.environ)}
    yield {"asking": f"free space of {shm}, the temporary and the current folder"}
    yield {"system": _system(proc, sys_root, shm)}


# ---- the machine


def _host(sys_root: str, root: str) -> dict[str, Any]:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read(f"{root}/etc/os-release") or "", re.MULTILINE))
    product = _read(f"{sys_root}/class/dmi/id/product_name") or ""
    vendor = _read(f"{sys_root}/class/dmi/id/sys_vendor") or ""
    here = os.uname()
    return {
        "name": here.nodename,
        "os": release.get("PRETTY_NAME") or here.sysname,
        "kernel": here.release,
        "machine": here.machine,
        "user_is_root": os.geteuid() == 0,
        "virtual": next((name for word, name in _HYPERVISORS.items() if word in f"{vendor} {product}".lower()), None),
    }


# ---- the container


def _container(proc: str, sys_root: str, root: str) -> dict[str, Any]:
    version = None
    if os.path.isdir(f"{sys_root}/fs/cgroup"):
        version = 2 if os.path.exists(f"{sys_root}/fs/cgroup/cgroup.controllers") else 1
    status = dict(re.findall(r"^(\w+):\s+(\S+)$", _read(f"{proc}/self/status") or "", re.MULTILINE))
    filtered = status["Seccomp"] == "2" if "Seccomp" in status else None
    return {
        "kind": _kind(proc, root),
        "wsl": "microsoft" in (_read(f"{proc}/sys/kernel/osrelease") or "").lower()
        or os.path.exists(
            f"{proc}/sys/fs/binfmt_misc/WSLInterop"
        ),  # a user-built WSL kernel does not contain "microsoft"
        "cgroup_version": version,
        "capabilities": _capabilities(status.get("CapEff")),
        "syscalls_filtered": filtered,
        # Needs ctypes, so only if system calls are filtered; not possible with a recorded tree.
        "mempolicy": _mempolicy() if filtered and proc == "/proc" else None,
        "own_pids": _own_pids(proc),
    }


def _kind(proc: str, root: str) -> str | None:
    """Return the runtime of the innermost container; None if no container is detected."""
    env = os.environ
    cgroup = (_read(f"{proc}/1/cgroup") or "") + (_read(f"{proc}/self/cgroup") or "")
    systemd = _read(f"{root}/run/systemd/container") or env.get("container", "")
    mounts = _read(f"{proc}/self/mountinfo") or ""
    roots = [line for line in mounts.splitlines() if " / " in line and line.split()[4:5] == ["/"]]
    if env.get("APPTAINER_NAME") or env.get("SINGULARITY_NAME") or os.path.exists(f"{root}/.singularity.d"):
        return "apptainer"
    if " /.lock " in mounts:  # enroot mounts its lock over itself, and detects its own containers this way
        return "enroot"
    if env.get("KUBERNETES_SERVICE_HOST") or "kubepods" in cgroup:
        return "kubernetes"
    if os.path.exists(f"{root}/.dockerenv") or "/docker/" in cgroup or "/docker-" in cgroup:
        return "docker"
    if os.path.exists(f"{root}/run/.containerenv") or "libpod" in cgroup:
        return "podman"
    if "/lxc/" in cgroup or systemd.startswith("lxc"):
        return "lxc"
    if systemd == "systemd-nspawn":
        return "nspawn"
    top = roots[-1] if roots else ""  # the last one hides the earlier ones
    return next((kind for word, kind in _ROOT_MOUNTS.items() if word in top), "other" if systemd else None)


def _capabilities(effective: str | None) -> list[str] | None:
    try:
        bits = int(effective or "", 16)
    except ValueError:
        return None
    return [name for bit, name in _CAPABILITIES.items() if bits >> bit & 1]


def _mempolicy() -> bool | None:
    """Whether get_mempolicy is permitted. The same filter applies to set_mempolicy, which would have effects."""
    number = _GET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return None
    try:
        import ctypes

        return bool(ctypes.CDLL(None).syscall(number, None, None, 0, None, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return None


def _own_pids(proc: str) -> bool | None:
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PIDS
    except OSError:
        return None


# ---- Slurm


def _slurm(env: Mapping[str, str]) -> dict[str, Any]:
    job, gpus = env.get("SLURM_JOB_ID"), _int(env.get("SLURM_GPUS_ON_NODE"))
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID") if job else None
    end = _int(env.get("SLURM_JOB_END_TIME"))
    return {
        "job_id": job,
        "nodes": _int(env.get("SLURM_NNODES")),
        "node_rank": _int(env.get("SLURM_NODEID")),
        # A step can have a different number of tasks than the job requested.
        "tasks_per_node": (env.get("SLURM_STEP_TASKS_PER_NODE") if step else None)
        or env.get("SLURM_NTASKS_PER_NODE")
        or env.get("SLURM_TASKS_PER_NODE"),
        "gpus_on_node": gpus,
        "commands_found": _in_time(lambda: _on_path("srun", env), False),
        "on_allocated_node": _on_allocated_node(env) if job else None,
        "step_id": step,
        # In a step SLURM_JOB_GPUS may be inherited from the batch script, which ran on another node.
        "job_gpus": env.get("SLURM_STEP_GPUS") or (None if step else env.get("SLURM_JOB_GPUS")),
        "gpus_per_task": env.get("SLURM_GPUS_PER_TASK"),
        # slurmd sets the binding of the task; srun's request is visible only if it came from a variable.
        "gpu_bind": env.get("SLURMD_TRES_BIND") or env.get("SLURM_TRES_BIND") or env.get("SLURM_GPU_BIND"),
        "cpus_per_task": _int(env.get("SLURM_CPUS_PER_TASK")),
        "cpus_on_node": _int(env.get("SLURM_CPUS_ON_NODE")),
        "memory_bytes": _granted_memory(env, gpus),
        "local_id": _int(env.get("SLURM_LOCALID")),
        "seconds_left": None if end is None or not job else end - time.time(),
    }


def _on_allocated_node(env: Mapping[str, str]) -> bool | None:
    """Whether this process runs on an allocated node. slurmd sets SLURMD_NODENAME; a plain salloc shell has none."""
    if env.get("SLURMD_NODENAME"):
        return True
    nodes = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST")
    if re.search(r"\][^,\[\]]*\[", nodes or ""):
        return None  # several dimensions: rack[1-2]n[01-04]
    return os.uname().nodename.partition(".")[0] in _expand_hosts(nodes) if nodes else None


def _expand_hosts(nodes: str) -> set[str]:
    """Expand a Slurm node list: "gpu[01-03,7],login" -> gpu01, gpu02, gpu03, gpu7, login."""
    hosts: set[str] = set()
    for prefix, ranges, suffix in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)", nodes):
        if not ranges:
            hosts.add(prefix)
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            low, high = _int(first), _int(last or first)
            if low is not None and high is not None and high - low < 100_000:
                hosts |= {f"{prefix}{number:0{len(first)}d}{suffix}" for number in range(low, high + 1)}
    return hosts


def _granted_memory(env: Mapping[str, str], gpus: int | None) -> int | None:
    """Return the job's memory on this node in bytes. Slurm uses MiB, and 0 means all memory."""
    whole = _int(env.get("SLURM_MEM_PER_NODE"))
    for name, count in (("SLURM_MEM_PER_CPU", _int(env.get("SLURM_CPUS_ON_NODE"))), ("SLURM_MEM_PER_GPU", gpus)):
        part = _int(env.get(name))
        if whole is None and part and count:
            whole = part * count
    return whole * 1024 * 1024 if whole else None


def _on_path(program: str, env: Mapping[str, str]) -> bool:
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    return any(folder and os.access(f"{folder}/{program}", os.X_OK) for folder in folders)


# ---- CPUs, memory, limits


def _system(proc: str, sys_root: str, shm: str) -> dict[str, Any]:
    memory = dict(re.findall(r"^(\w+):\s+(\d{1,15}) kB", _read(f"{proc}/meminfo") or "", re.MULTILINE))
    total = int(memory.get("MemTotal", 0)) * 1024
    limit, used = _memory_limit(proc, sys_root, total)
    tasks_used, tasks_max = _tasks(proc, sys_root)
    shm_total, shm_free, shm_writable = _space(shm)
    unknown = (None, None, None)
    _, tmp_free, _ = _in_time(lambda: _space(os.environ.get("TMPDIR") or "/tmp"), unknown)
    _, cwd_free, cwd_writable = _in_time(lambda: _space("."), unknown)
    open_files, hard_open_files = _limit(resource.RLIMIT_NOFILE)
    locked, hard_locked = _limit(resource.RLIMIT_MEMLOCK)
    return {
        "cpus_logical": os.cpu_count() or 1,
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpus_quota": _cpu_quota(proc, sys_root),
        "numa_nodes": _numa_nodes(sys_root),
        "memory_total_bytes": total,
        "memory_available_bytes": int(memory.get("MemAvailable") or memory.get("MemFree", 0)) * 1024,
        "memory_limit_bytes": limit,
        "shm_total_bytes": shm_total,
        "shm_free_bytes": shm_free,
        "shm_writable": shm_writable,
        "limit_open_files": open_files,
        "limit_locked_memory_bytes": locked,
        "limit_processes": _limit(resource.RLIMIT_NPROC)[0],
        "limit_stack_bytes": _limit(resource.RLIMIT_STACK)[0],
        "tmp_free_bytes": tmp_free,
        "cwd_free_bytes": cwd_free,
        "cwd_writable": cwd_writable,
        "hard_open_files": hard_open_files,
        "hard_locked_memory_bytes": hard_locked,
        "memory_limit_used_bytes": used,
        "tasks_used": tasks_used,
        "tasks_max": tasks_max,
        "oom_kills": _oom_kills(proc, sys_root),
    }


def _limit(which: int) -> tuple[int | None, int | None]:
    """Return the soft and the hard limit; None: unlimited."""
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return soft, hard


def _in_time(question: Callable[[], Any], otherwise: Any) -> Any:
    """Run a function that can hang in its own thread, and return its result; `otherwise` after a timeout."""
    answers: list[Any] = []
    answered = _thread.allocate_lock()

    def ask() -> None:
        try:
            answers.append(question())
        finally:
            answered.release()

    answered.acquire()
    _thread.start_new_thread(ask, ())
    answered.acquire(timeout=_PATIENCE_S)
    return answers[0] if answers else otherwise


def _space(path: str) -> tuple[int | None, int | None, bool | None]:
    """Return total and free bytes (available to non-root users), and whether it is writable."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None, None, None
    writable = os.access(path, os.W_OK) and not stat.f_flag & os.ST_RDONLY
    return stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail, bool(writable)


def _cgroup_folders(proc: str, sys_root: str, controller: str) -> Iterator[str]:
    """Yield this process's cgroup folder for a controller and all its parents, whose limits apply too."""
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
    """Return the smallest CPU quota of the cgroup and its parents (v2 cpu.max, v1 cpu.cfs_quota_us); None: no quota."""
    quotas = []
    for folder in _cgroup_folders(proc, sys_root, "cpu"):
        words = (_read(f"{folder}/cpu.max") or "").split()
        if not words:
            words = [_read(f"{folder}/cpu.cfs_quota_us") or "-1", _read(f"{folder}/cpu.cfs_period_us") or "100000"]
        quota, period = _int(words[0]), _int(words[1]) if len(words) > 1 else 100000
        if quota and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memory_limit(proc: str, sys_root: str, total: int) -> tuple[int | None, int | None]:
    """Return the smallest limit of the cgroup and its parents, and its usage without inactive file cache."""
    limits = []
    for folder in _cgroup_folders(proc, sys_root, "memory"):
        limit = _int(_read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes"))
        if limit and limit < (total or _NO_LIMIT):
            limits.append((limit, folder))
    if not limits:
        return None, None
    limit, folder = min(limits)
    used = _int(_read(f"{folder}/memory.current") or _read(f"{folder}/memory.usage_in_bytes"))
    stat = dict(re.findall(r"^(\w+) (\d{1,18})$", _read(f"{folder}/memory.stat") or "", re.MULTILINE))
    idle = int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)
    return limit, None if used is None else max(0, used - idle)


def _tasks(proc: str, sys_root: str) -> tuple[int | None, int | None]:
    """Return used and allowed tasks of the cgroup with the fewest left, among this one and its parents."""
    own, tightest = None, None
    for folder in _cgroup_folders(proc, sys_root, "pids"):
        used, most = _int(_read(f"{folder}/pids.current")), _int(_read(f"{folder}/pids.max"))
        own = used if own is None else own
        if used is not None and most is not None and (tightest is None or most - used < tightest[1] - tightest[0]):
            tightest = (used, most)
    return tightest or (own, None)


def _oom_kills(proc: str, sys_root: str) -> int | None:
    """Return the number of OOM kills in this cgroup, or anywhere in this Slurm job."""
    counts, own = [], True
    for folder in _cgroup_folders(proc, sys_root, "memory"):
        if not os.path.isdir(folder):  # outside what a container shows
            continue
        if own or folder.rpartition("/")[2].startswith("job_"):
            text = f"{_read(f'{folder}/memory.events')}\n{_read(f'{folder}/memory.oom_control')}"
            counts += [int(number) for number in re.findall(r"^oom_kill (\d{1,18})$", text, re.MULTILINE)]
        own = False
    return max(counts, default=None)


def _numa_nodes(sys_root: str) -> int | None:
    try:
        names = os.listdir(f"{sys_root}/devices/system/node")
    except OSError:
        return None
    return sum(bool(re.fullmatch(r"node\d+", name)) for name in names) or None


def _int(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None


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
