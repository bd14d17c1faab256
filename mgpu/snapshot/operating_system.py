"""What does the operating system provide (CPUs, memory, limits, disks), and what did earlier runs leave behind?"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import (
    History,
    Identity,
    Label,
    Measure,
    Moment,
    Name,
    Near,
    Pid,
    Same,
    Text,
    Version,
    Wording,
)


@dataclass(frozen=True)
class Host:
    """The machine and the current user."""

    name: Annotated[Identity[Name], Wording("host")]
    os: Annotated[Same[Version], Wording("operating system")]
    kernel: Annotated[Same[Version], Wording("Linux kernel", of_nodes="kernel")]
    machine: Annotated[Same[Label], Wording("architecture")]  # uname -m
    user_is_root: bool
    virtual: Same[Label | None] = None  # hypervisor, if DMI names one


@dataclass(frozen=True)
class System:
    """CPUs, memory and limits."""

    cpus_logical: Same[int]
    cpus_allowed: Annotated[Same[int], Wording("CPUs allowed")]  # by affinity
    cpus_quota: Annotated[Same[float | None], Wording(none="no limit")]  # by cgroup; None = no quota
    numa_nodes: Annotated[Same[int | None], Wording("NUMA nodes")]
    memory_total_bytes: Annotated[Near[int], Wording("RAM")]
    memory_available_bytes: Moment[int]
    # by cgroup; None = no limit
    memory_limit_bytes: Annotated[Near[int | None], Wording("memory limit", none="no limit")]
    shm_total_bytes: Annotated[Near[int | None], Wording("/dev/shm")]
    shm_free_bytes: Moment[int | None]
    shm_writable: bool | None
    # soft; None = unlimited
    limit_open_files: Annotated[Same[int | None], Wording("open file limit", none="unlimited")]
    limit_locked_memory_bytes: Annotated[Same[int | None], Wording("locked memory limit", none="unlimited")]
    limit_processes: Annotated[Near[int | None], Wording("process limit", none="unlimited")]
    limit_stack_bytes: Annotated[Same[int | None], Wording("stack limit", none="unlimited")]
    tmp_free_bytes: Moment[int | None] = None
    cwd_free_bytes: Moment[int | None] = None
    cwd_writable: bool | None = None
    # hard limits, up to which this user can raise the soft ones; None = unlimited
    hard_open_files: Annotated[Same[int | None], Wording(none="unlimited")] = None
    hard_locked_memory_bytes: Annotated[Same[int | None], Wording(none="unlimited")] = None
    memory_limit_used_bytes: Moment[int | None] = None  # of the limiting cgroup, without reclaimable file cache
    tasks_used: Moment[int | None] = None  # processes and threads, in the cgroup with the fewest left
    tasks_max: Annotated[Near[int | None], Wording(none="no limit")] = None  # by cgroup; None = no limit
    oom_kills: Moment[int | None] = None  # in this cgroup or this Slurm job, since its creation

    @property
    def cpus_usable(self) -> int:
        """Number of CPUs this process can use, by affinity and cgroup quota; at least 1."""
        return max(1, min(self.cpus_allowed, int(self.cpus_quota) if self.cpus_quota else self.cpus_allowed))


ContainerKind: TypeAlias = Literal[
    "docker", "podman", "kubernetes", "containerd", "apptainer", "enroot", "lxc", "nspawn", "other"
]


@dataclass(frozen=True)
class Container:
    """The container this process runs in, if any, and what it permits."""

    kind: Annotated[ContainerKind | None, Wording("container", none="none")]
    wsl: bool
    cgroup_version: Literal[1, 2] | None
    # the relevant ones: ipc_lock, sys_nice … (also outside a container)
    capabilities: Same[tuple[Label, ...] | None] = None
    syscalls_filtered: bool | None = None  # by seccomp
    mempolicy: bool | None = None  # NUMA memory policies are permitted; NCCL's host buffers need them
    own_pids: bool | None = None  # PID namespace: outside processes are hidden, and NVML's PIDs do not match


@dataclass(frozen=True)
class Kernel:
    """The running kernel: modules, command line and settings that affect GPUs and ranks."""

    modules: Same[tuple[Label, ...] | None]  # the relevant ones; None: /proc/modules could not be read
    driver_flavour: Literal["open", "proprietary"] | None  # /proc/driver/nvidia/version
    command_line: Same[Text | None]  # only the options for IOMMU, PCI and the driver
    iommu: Literal["off", "passthrough", "translating"] | None
    dmesg_restricted: bool | None
    overcommit_memory: Same[int | None]  # 0 heuristic, 1 always, 2 strict
    port_range: tuple[int, int] | None  # net.ipv4.ip_local_port_range
    files_used: Moment[int | None]
    files_max: Near[int | None]
    cpus_online: Same[int | None]
    cpus_present: Same[int | None]
    cpu_governor: Same[Label | None]
    load_1min: Annotated[Moment[float | None], Measure("high", share=1.0, least=8, what="load")]
    swap_used_bytes: Moment[int | None]
    remove_ipc: bool | None  # logind removes a user's /dev/shm files at logout
    # processes blocked in the driver: "nvidia-smi (pid 4711)"; None: not checked
    stuck: Moment[tuple[Text, ...] | None] = ()
    cpu_driver: Same[Label | None] = None  # cpufreq's: intel_pstate, acpi-cpufreq …
    smt: Same[Label | None] = None  # on, off, forceoff, notsupported
    secure_boot: bool | None = None
    reserved_ports: Same[Label | None] = None  # net.ipv4.ip_local_reserved_ports
    committed_bytes: Moment[int | None] = None  # Committed_AS; commit_limit_bytes is its limit under strict overcommit
    commit_limit_bytes: Near[int | None] = None
    # RegistryDwords about peer access in /proc/driver/nvidia/params: "RMForceStaticBar1=1"; None: could not be read
    peer_options: Same[tuple[Label, ...] | None] = None


@dataclass(frozen=True)
class KernelEvent:
    """A line of the kernel log that is relevant to GPUs."""

    kind: Literal["xid", "sxid", "oom", "pcie", "aer", "mce", "hung_task", "disk", "nic", "driver"]
    code: int | None  # of an Xid or SXid
    pci: Label | None
    process: Text | None  # "python (pid 4711)", if the kernel names one
    seconds_ago: float | None
    text: Text
    gpu: int | None = None  # the GPU at that address, in PCI order, as NVML counts


@dataclass(frozen=True)
class KernelLog:
    """Kernel messages about GPUs, memory and PCIe since the machine booted."""

    origin: Literal["/dev/kmsg", "journal"]
    events: tuple[KernelEvent, ...]
    since_s: float | None  # age of the oldest line


FolderRole: TypeAlias = Literal[
    "current",
    "temporary",
    "home",
    "named",
    "output",
    "hf_cache",
    "torch_cache",
    "triton_cache",
    "inductor_cache",
    "extensions",
]


@dataclass(frozen=True)
class Folder:
    """A folder the run will use."""

    role: Identity[FolderRole]
    path: Same[Text]
    # None: its file system did not answer. If the folder is missing, the other fields describe its parent
    exists: History[bool | None]
    filesystem: Same[Label | None] = None  # ext4, nfs4, lustre, overlay, tmpfs …
    mount: Same[Text | None] = None
    total_bytes: Moment[int | None] = None
    free_bytes: Moment[int | None] = None  # available to this user
    free_inodes: Moment[int | None] = None  # also None if the file system does not count inodes
    writable: bool | None = None
    read_only: bool | None = None
    # response time of the file system
    stat_s: Annotated[Moment[float | None], Measure("high", share=5.0, least=0.5, what="slowest folder")] = None
    error: Moment[Text | None] = None
    answered: bool = True  # False: the file system did not answer in time


@dataclass(frozen=True)
class Storage:
    """The folders of the run, and the contents of the Hugging Face cache."""

    folders: tuple[Folder, ...]
    hf_cache_models: Moment[int | None] = None  # models and datasets in the hub cache
    lustre_health: Same[Label | None] = None  # as reported by Lustre: healthy …

    def role(self, role: str) -> Folder | None:
        """Return the folder with this role."""
        return next((folder for folder in self.folders if folder.role == role), None)


@dataclass(frozen=True)
class LeftFile:
    """A file left behind by an earlier run."""

    path: Text
    kind: Literal["shm", "lock"]
    size_bytes: int
    age_s: float
    owner_alive: bool | None  # None: its name contains no process ID


@dataclass(frozen=True)
class LeftProcess:
    """A process of this user that looks like a rank of an earlier run, or a service that shares the GPUs."""

    pid: Pid
    name: Text
    kind: Literal["rank", "zombie", "mps", "profiler", "fabric_manager", "dcgm", "persistence", "ray"]
    mine: bool
    age_s: float | None = None
    rank: int | None = None
    port: int | None = None  # MASTER_PORT in its environment
    orphan: bool | None = None  # its parent has exited
    ray_gpus: float | None = None  # of Ray's node process: how many GPUs its tasks can get


@dataclass(frozen=True)
class Leftovers:
    """Files and processes left by earlier runs, and relevant services."""

    files: tuple[LeftFile, ...]
    processes: tuple[LeftProcess, ...]
    sees_all_processes: bool | None = None  # False: a PID namespace or hidepid hides some
    locks_searched: bool = True  # False: the folder of torch's extensions did not answer, or cannot be read
