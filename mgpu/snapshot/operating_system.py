"""What does the operating system offer a run: CPUs, memory, limits, disks, and what do earlier runs leave on it?"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mgpu.snapshot.fast_dataclass import dataclass


@dataclass(frozen=True)
class Host:
    """The machine and who asks."""

    name: str
    os: str
    kernel: str
    machine: str  # uname -m
    user_is_root: bool
    virtual: str | None = None  # hypervisor, when one is named by DMI


@dataclass(frozen=True)
class System:
    """CPUs, memory, limits."""

    cpus_logical: int
    cpus_allowed: int  # by affinity
    cpus_quota: float | None  # by cgroup; None = no quota
    numa_nodes: int | None
    memory_total_bytes: int
    memory_available_bytes: int
    memory_limit_bytes: int | None  # by cgroup; None = no limit
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    shm_writable: bool | None
    limit_open_files: int | None  # soft; None = unlimited
    limit_locked_memory_bytes: int | None
    limit_processes: int | None
    limit_stack_bytes: int | None
    tmp_free_bytes: int | None = None
    cwd_free_bytes: int | None = None
    cwd_writable: bool | None = None
    hard_open_files: int | None = None  # what this user may raise the soft limit to; None = unlimited
    hard_locked_memory_bytes: int | None = None
    memory_limit_used_bytes: int | None = None  # of the cgroup that limits it, less the file cache it can drop
    tasks_used: int | None = None  # processes and threads, in the cgroup that has the fewest left
    tasks_max: int | None = None  # by cgroup; None = no limit
    oom_kills: int | None = None  # in this cgroup or this Slurm job, since it was made

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

    kind: ContainerKind | None
    wsl: bool
    cgroup_version: Literal[1, 2] | None
    capabilities: tuple[str, ...] | None = None  # of those that matter: ipc_lock, sys_nice … (also outside a container)
    syscalls_filtered: bool | None = None  # by seccomp
    mempolicy: bool | None = None  # NUMA memory policies may be asked for; NCCL's host buffers need them
    own_pids: bool | None = None  # a PID namespace: processes outside are not shown, NVML's numbers mean others


@dataclass(frozen=True)
class Kernel:
    """The kernel that runs: its modules, command line and settings that matter to GPUs and ranks."""

    modules: tuple[str, ...] | None  # of those that matter; None: /proc/modules could not be read
    driver_flavour: Literal["open", "proprietary"] | None  # /proc/driver/nvidia/version
    command_line: str | None  # only the words about IOMMU, PCI and the driver
    iommu: Literal["off", "passthrough", "translating"] | None
    dmesg_restricted: bool | None
    overcommit_memory: int | None  # 0 heuristic, 1 always, 2 strict
    port_range: tuple[int, int] | None  # net.ipv4.ip_local_port_range
    files_used: int | None
    files_max: int | None
    cpus_online: int | None
    cpus_present: int | None
    cpu_governor: str | None
    load_1min: float | None
    swap_used_bytes: int | None
    remove_ipc: bool | None  # logind removes /dev/shm files of a user who logs out
    stuck: tuple[str, ...] | None = ()  # processes asleep in the driver: "nvidia-smi (pid 4711)"; None: not looked
    cpu_driver: str | None = None  # cpufreq's: intel_pstate, acpi-cpufreq …
    smt: str | None = None  # on, off, forceoff, notsupported
    secure_boot: bool | None = None
    reserved_ports: str | None = None  # net.ipv4.ip_local_reserved_ports
    committed_bytes: int | None = None  # Committed_AS, and what it may reach under strict overcommit
    commit_limit_bytes: int | None = None


@dataclass(frozen=True)
class KernelEvent:
    """A line of the kernel's log that matters to GPUs."""

    kind: Literal["xid", "sxid", "oom", "pcie", "aer", "mce", "hung_task", "disk", "nic", "driver"]
    code: int | None  # of an Xid or SXid
    pci: str | None
    process: str | None  # "python (pid 4711)" where the kernel names one
    seconds_ago: float | None
    text: str
    gpu: int | None = None  # the GPU at that address, in PCI order, as NVML counts


@dataclass(frozen=True)
class KernelLog:
    """What the kernel said of GPUs, memory and PCIe since the machine started."""

    origin: Literal["/dev/kmsg", "journal"]
    events: tuple[KernelEvent, ...]
    since_s: float | None  # how far back it reaches


FolderRole: TypeAlias = Literal[
    "current", "temporary", "home", "named", "output",
    "hf_cache", "torch_cache", "triton_cache", "inductor_cache", "extensions",
]  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """A folder the run will use."""

    role: FolderRole
    path: str
    exists: bool | None  # None: its file system did not answer. Where it is absent, the rest is of the one above it
    filesystem: str | None = None  # ext4, nfs4, lustre, overlay, tmpfs …
    mount: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None  # as this user may use them
    free_inodes: int | None = None  # None also where the file system counts none
    writable: bool | None = None
    read_only: bool | None = None
    stat_s: float | None = None  # how long the file system took to answer
    error: str | None = None
    answered: bool = True  # False: asked, and waited in vain


@dataclass(frozen=True)
class Storage:
    """The folders of the run, and what the Hugging Face cache holds."""

    folders: tuple[Folder, ...]
    hf_cache_models: int | None = None  # models and datasets in the hub cache
    lustre_health: str | None = None  # what Lustre says of itself: healthy …

    def role(self, role: str) -> Folder | None:
        """The folder of this role."""
        return next((folder for folder in self.folders if folder.role == role), None)


@dataclass(frozen=True)
class LeftFile:
    """A file an earlier run left."""

    path: str
    kind: Literal["shm", "lock"]
    size_bytes: int
    age_s: float
    owner_alive: bool | None  # None: its name does not tell a process


@dataclass(frozen=True)
class LeftProcess:
    """A process of this user that looks like a rank of an earlier run, or a service that shares the GPUs."""

    pid: int
    name: str
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
