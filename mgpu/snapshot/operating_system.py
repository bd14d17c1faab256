"""What does the operating system offer a run: CPUs, memory, limits, disks, and what do earlier runs leave on it?"""

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
    """The machine and who asks."""

    name: Annotated[Identity[Name], Wording("host")]
    os: Annotated[Same[Version], Wording("operating system")]
    kernel: Annotated[Same[Version], Wording("Linux kernel", of_nodes="kernel")]
    machine: Annotated[Same[Label], Wording("architecture")]  # uname -m
    user_is_root: bool
    virtual: Same[Label | None] = None  # hypervisor, when one is named by DMI


@dataclass(frozen=True)
class System:
    """CPUs, memory, limits."""

    cpus_logical: Same[int]
    cpus_allowed: Annotated[Same[int], Wording("CPUs allowed")]  # by affinity
    cpus_quota: Annotated[Same[float | None], Wording(none="no limit")]  # by cgroup; None = no quota
    numa_nodes: Annotated[Same[int | None], Wording("NUMA nodes")]
    memory_total_bytes: Annotated[Near[int], Wording("RAM")]
    memory_available_bytes: Moment[int]
    # by cgroup; None = no limit
    memory_limit_bytes: Annotated[Near[int | None], Wording("limit of memory", none="no limit")]
    shm_total_bytes: Annotated[Near[int | None], Wording("/dev/shm")]
    shm_free_bytes: Moment[int | None]
    shm_writable: bool | None
    # soft; None = unlimited
    limit_open_files: Annotated[Same[int | None], Wording("limit of open files", none="unlimited")]
    limit_locked_memory_bytes: Annotated[Same[int | None], Wording("limit of locked memory", none="unlimited")]
    limit_processes: Annotated[Near[int | None], Wording("limit of processes", none="unlimited")]
    limit_stack_bytes: Annotated[Same[int | None], Wording("limit of the stack", none="unlimited")]
    tmp_free_bytes: Moment[int | None] = None
    cwd_free_bytes: Moment[int | None] = None
    cwd_writable: bool | None = None
    # what this user may raise the soft limit to; None = unlimited
    hard_open_files: Annotated[Same[int | None], Wording(none="unlimited")] = None
    hard_locked_memory_bytes: Annotated[Same[int | None], Wording(none="unlimited")] = None
    memory_limit_used_bytes: Moment[int | None] = None  # of the cgroup that limits it, less the file cache it can drop
    tasks_used: Moment[int | None] = None  # processes and threads, in the cgroup that has the fewest left
    tasks_max: Annotated[Near[int | None], Wording(none="no limit")] = None  # by cgroup; None = no limit
    oom_kills: Moment[int | None] = None  # in this cgroup or this Slurm job, since it was made

    @property
    def cpus_usable(self) -> int:
        """CPUs this process may really use: affinity and cgroup quota, at least 1."""
        return max(1, min(self.cpus_allowed, int(self.cpus_quota) if self.cpus_quota else self.cpus_allowed))


ContainerKind: TypeAlias = Literal[
    "docker", "podman", "kubernetes", "containerd", "apptainer", "enroot", "lxc", "nspawn", "other"
]


@dataclass(frozen=True)
class Container:
    """Whether this is a container, and what the NVIDIA container toolkit was told."""

    kind: Annotated[ContainerKind | None, Wording("container", none="none")]
    wsl: bool
    cgroup_version: Literal[1, 2] | None
    # of those that matter: ipc_lock, sys_nice … (also outside a container)
    capabilities: Same[tuple[Label, ...] | None] = None
    syscalls_filtered: bool | None = None  # by seccomp
    mempolicy: bool | None = None  # NUMA memory policies may be asked for; NCCL's host buffers need them
    own_pids: bool | None = None  # a PID namespace: processes outside are not shown, NVML's numbers mean others


@dataclass(frozen=True)
class Kernel:
    """The kernel that runs: its modules, command line and settings that matter to GPUs and ranks."""

    modules: Same[tuple[Label, ...] | None]  # of those that matter; None: /proc/modules could not be read
    driver_flavour: Literal["open", "proprietary"] | None  # /proc/driver/nvidia/version
    command_line: Same[Text | None]  # only the words about IOMMU, PCI and the driver
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
    remove_ipc: bool | None  # logind removes /dev/shm files of a user who logs out
    # processes asleep in the driver: "nvidia-smi (pid 4711)"; None: not looked
    stuck: Moment[tuple[Text, ...] | None] = ()
    cpu_driver: Same[Label | None] = None  # cpufreq's: intel_pstate, acpi-cpufreq …
    smt: Same[Label | None] = None  # on, off, forceoff, notsupported
    secure_boot: bool | None = None
    reserved_ports: Same[Label | None] = None  # net.ipv4.ip_local_reserved_ports
    committed_bytes: Moment[int | None] = None  # Committed_AS, and what it may reach under strict overcommit
    commit_limit_bytes: Near[int | None] = None


@dataclass(frozen=True)
class KernelEvent:
    """A line of the kernel's log that matters to GPUs."""

    kind: Literal["xid", "sxid", "oom", "pcie", "aer", "mce", "hung_task", "disk", "nic", "driver"]
    code: int | None  # of an Xid or SXid
    pci: Label | None
    process: Text | None  # "python (pid 4711)" where the kernel names one
    seconds_ago: float | None
    text: Text
    gpu: int | None = None  # the GPU at that address, in PCI order, as NVML counts


@dataclass(frozen=True)
class KernelLog:
    """What the kernel said of GPUs, memory and PCIe since the machine started."""

    origin: Literal["/dev/kmsg", "journal"]
    events: tuple[KernelEvent, ...]
    since_s: float | None  # how far back it reaches


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
    # None: its file system did not answer. Where it is absent, the rest is of the one above it
    exists: History[bool | None]
    filesystem: Same[Label | None] = None  # ext4, nfs4, lustre, overlay, tmpfs …
    mount: Same[Text | None] = None
    total_bytes: Moment[int | None] = None
    free_bytes: Moment[int | None] = None  # as this user may use them
    free_inodes: Moment[int | None] = None  # None also where the file system counts none
    writable: bool | None = None
    read_only: bool | None = None
    # how long the file system took to answer
    stat_s: Annotated[Moment[float | None], Measure("high", share=5.0, least=0.5, what="slowest folder")] = None
    error: Moment[Text | None] = None
    answered: bool = True  # False: asked, and waited in vain


@dataclass(frozen=True)
class Storage:
    """The folders of the run, and what the Hugging Face cache holds."""

    folders: tuple[Folder, ...]
    hf_cache_models: Moment[int | None] = None  # models and datasets in the hub cache
    lustre_health: Same[Label | None] = None  # what Lustre says of itself: healthy …

    def role(self, role: str) -> Folder | None:
        """The folder of this role."""
        return next((folder for folder in self.folders if folder.role == role), None)


@dataclass(frozen=True)
class LeftFile:
    """A file an earlier run left."""

    path: Text
    kind: Literal["shm", "lock"]
    size_bytes: int
    age_s: float
    owner_alive: bool | None  # None: its name does not tell a process


@dataclass(frozen=True)
class LeftProcess:
    """A process of this user that looks like a rank of an earlier run, or a service that shares the GPUs."""

    pid: Pid
    name: Text
    kind: Literal["rank", "zombie", "mps", "profiler", "fabric_manager", "dcgm", "persistence"]
    mine: bool
    age_s: float | None = None
    rank: int | None = None
    port: int | None = None  # MASTER_PORT of its environment
    orphan: bool | None = None  # its parent is gone


@dataclass(frozen=True)
class Leftovers:
    """What earlier runs left, and services that matter."""

    files: tuple[LeftFile, ...]
    processes: tuple[LeftProcess, ...]
    sees_all_processes: bool | None = None  # False: a pid namespace or hidepid hides some
    locks_searched: bool = True  # False: the folder of torch's extensions did not answer, or may not be read
