"""What is known about this machine, this environment and this run?

Every fact a check can read is a field of `Snapshot`. `None` means not known, and `gaps` says why. What is known to be
absent (torch not installed, no NVIDIA driver) is a fact of its own, not a gap. Frozen, JSON both ways, redacted when it
is taken: no argv of other processes, only allow-listed environment variables. Units are in the names; GPU indices are
NVML's (PCI order), never CUDA's.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from mgpu.errors import clipped
from mgpu.structured_text import Malformed, json_of

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from mgpu.snapshot.fast_dataclass import dataclass

SCHEMA = 1

GapKind = Literal["not_supported", "no_permission", "not_asked", "no_driver", "timed_out", "crashed"]
# A fact that timed out or crashed makes the verdict "could not tell"; the other kinds are only counted.
UNSETTLING: frozenset[str] = frozenset({"timed_out", "crashed"})


@dataclass(frozen=True)
class Gap:
    """Why a fact is not known. `reason` is a clause: "NVML did not answer in 8 s"."""

    kind: GapKind
    reason: str


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
class Python:
    """The interpreter the training would run under, and what PATH would start instead."""

    executable: str
    version: str
    on_path: str | None  # what `python` means in this shell
    accelerate_on_path: str | None  # the interpreter of the `accelerate` script on PATH
    accelerate_default_config: str | None = None  # a default_config.yaml in the Hugging Face cache
    accelerate_command: str | None = None  # the `accelerate` on PATH
    torchrun_on_path: str | None = None  # the interpreter of the `torchrun` script on PATH
    environment: Literal["venv", "conda", "system"] | None = None
    prefix: str | None = None
    suffixes: tuple[str, ...] = ()  # of compiled modules it can load: .cpython-311-x86_64-linux-gnu.so, .abi3.so
    user_site: str | None = None  # the user's own site-packages, when it looks there
    user_packages: Mapping[str, str] = field(default_factory=dict)  # those of `packages` that stand there
    accelerate_default_settings: Mapping[str, str] = field(default_factory=dict)  # of that config: what it asks for


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver as NVML, /proc and the PCI bus tell it."""

    nvml_error: str | None  # NVML's own name of the code nvmlInit returned, None when it answered
    nvml_detail: str | None
    version: str | None
    cuda_version: tuple[int, int] | None  # highest CUDA the driver serves (cuDriverGetVersion through NVML)
    nvml_version: str | None
    module_version: str | None  # /sys/module/nvidia/version: the module that is loaded
    pci_gpus: int | None  # NVIDIA display/3D controllers on the PCI bus
    device_nodes: tuple[str, ...] = ()  # /dev/nvidia*, /dev/dxg
    uvm_loaded: bool | None = None
    nodes_denied: tuple[str, ...] | None = None  # those CUDA opens and this user may not; None: not looked
    nodes_group: str | None = None  # the group that owns the first of them, when being in it would help
    modprobe: bool | None = None  # the setuid helper that loads nvidia-uvm at the first use is installed
    imex_channels: int | None = None  # how many /dev/nvidia-caps-imex-channels/channel* there are
    imex_usable: bool | None = None  # this user may open one of them; None: there are none
    init_s: float | None = None  # how long nvmlInit took

    @property
    def any_gpu(self) -> bool:
        """Whether anything at all says that this machine has an NVIDIA GPU."""
        if self.nvml_error == "DRIVER_NOT_LOADED" and not self.device_nodes:  # a login node may have just the package
            return self.pci_gpus != 0 or self.module_version is not None
        if self.nvml_error != "LIBRARY_NOT_FOUND":
            return True
        numbered = any(node.removeprefix("/dev/nvidia").isdecimal() for node in self.device_nodes)
        return numbered or bool(self.pci_gpus) or self.module_version is not None


@dataclass(frozen=True)
class GpuProcess:
    """A process NVML lists on a GPU. `user` is None for one this pid namespace does not show."""

    pid: int
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None
    name: str | None
    user: str | None
    mine: bool | None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of one GPU."""

    link: int
    active: bool
    remote: Literal["gpu", "switch", "other", "unknown"]
    remote_pci: str | None
    speed_mb_per_s: int | None = None
    errors: int | None = None  # replays, recoveries and CRC errors since the driver was loaded


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML shows it. A field is None when the call is not supported or failed; `gaps` has the errors."""

    index: int
    uuid: str | None
    name: str | None
    pci: str | None
    compute_capability: tuple[int, int] | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    numa_node: int | None = None
    cpus_near: str | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    utilization_percent: int | None = None
    clock_event_reasons: int | None = None  # bit mask, nvml.h nvmlClocksEventReason*
    persistence_mode: bool | None = None
    compute_mode: int | None = None  # 0 default, 2 prohibited, 3 exclusive process
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    mig_uuids: tuple[str, ...] = ()
    ecc_enabled: bool | None = None
    ecc_pending: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    rows_remapped_uncorrectable: int | None = None
    rows_remap_pending: bool | None = None
    rows_remap_failed: bool | None = None
    retired_pages_pending: bool | None = None
    serial: str | None = None
    minor: int | None = None  # its node is /dev/nvidia<minor>
    virtualization: int | None = None  # nvmlGpuVirtualizationMode_t: 0 none, 1 passed through, 2 vGPU …
    memory_reserved_bytes: int | None = None  # by driver and firmware; part of what is used
    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None
    ecc_corrected_volatile: int | None = None
    ecc_sram_threshold_exceeded: bool | None = None
    rows_banks_without_spare: int | None = None  # memory banks that have no spare row left
    retired_pages: int | None = None
    repair_pending: bool | None = None  # a repair of a memory channel or TPC waits for a reset
    memory_unrepairable: bool | None = None
    inforom_valid: bool | None = None
    memory_temperature_c: int | None = None
    memory_temperature_max_c: int | None = None
    temperature_max_c: int | None = None  # highest it should operate at, below the slowdown
    temperature_margin_c: int | None = None  # distance to the nearest slowdown
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    application_clock_mhz: int | None = None  # as somebody set it
    application_clock_default_mhz: int | None = None
    performance_state: int | None = None  # 0 fastest … 15; an idle GPU is at 8 or above
    display_active: bool | None = None
    vbios: str | None = None
    gsp_firmware: str | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None  # now; lower when idle
    pcie_replays: int | None = None  # since the driver was loaded
    pcie_generation_max: int | None = None  # what GPU and slot can do together
    pcie_generation_max_gpu: int | None = None  # what the GPU alone can do
    recovery_action: int | None = None  # 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset
    fabric_state: int | None = None  # 0 not supported, 1 not started, 2 in progress, 3 completed
    fabric_status: int | None = None  # an NVML return code, meaningful when completed
    fabric_health_mask: int | None = None  # nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*
    fabric_clique: int | None = None
    fabric_cluster: str | None = None  # UUID of the NVLink domain over several nodes; None where there is none
    c2c_enabled: bool | None = None  # NVLink-C2C to a Grace CPU
    nvlinks: tuple[NvLink, ...] | None = ()
    processes: tuple[GpuProcess, ...] | None = None
    lost: str | None = None  # NVML's code when the GPU itself does not answer (GPU_IS_LOST …)
    permitted: bool = True  # False: NVML counts it, but this process may not open it (cgroup, Slurm)
    trouble: tuple[str, ...] = ()  # calls it answered with an error: "ecc_enabled: NVML: UNKNOWN"

    @property
    def nvlinks_active(self) -> int | None:
        """How many of its NVLinks are up; None when they could not be read."""
        return None if self.nvlinks is None else sum(link.active for link in self.nvlinks)


@dataclass(frozen=True)
class Link:
    """The path between two GPUs (a < b)."""

    a: int
    b: int
    topology: Literal["LOC", "PIX", "PXB", "PHB", "NODE", "SYS"] | None
    nvlinks: int | None
    through_switch: bool
    p2p_read: int | None  # nvmlGpuP2PStatus_t: 0 OK, 1 chipset, 2 GPU, 3 IOH, 4 regkey, 5 not supported, 6 unknown
    p2p_write: int | None
    p2p_atomics: int | None = None
    p2p_nvlink: int | None = None

    @property
    def name(self) -> str:
        """As `nvidia-smi topo -m` prints it."""
        if self.nvlinks is None:
            return "?"
        return f"NV{self.nvlinks}" if self.nvlinks else self.topology or "?"


@dataclass(frozen=True)
class Visible:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs, by the CUDA driver's own rules (CUDA Programming Guide)."""

    value: str | None  # None: not set
    gpus: tuple[int, ...]  # NVML indices, in the order CUDA numbers them; cuda:0 is the first
    mig: str | None = None  # the first MIG instance that is named
    stopped_by: str | None = None  # the first entry CUDA does not accept; it and all after it are ignored
    why: str | None = None  # what is wrong with that entry
    ignored: tuple[str, ...] = ()
    by_number: bool = False  # entries are integers, so CUDA_DEVICE_ORDER decides what they mean
    more_mig: tuple[str, ...] = ()  # further instances: drivers from 570 on show a process all of them


@dataclass(frozen=True)
class Pytorch:
    """PyTorch as its files tell it, without importing it."""

    installed: bool
    version: str | None = None  # torch/version.py, with the local part (+cu130, +cpu)
    cuda: str | None = None  # CUDA it was built with; None for a CPU build
    hip: str | None = None
    location: str | None = None
    arch_list: tuple[str, ...] | None = None  # sm_80 … compute_90
    nccl_required: str | None = None  # the pin in torch's own metadata: nvidia-nccl-cu13==2.29.7
    built_for: tuple[str, ...] = ()  # suffixes of torch/_C*: .cpython-311-x86_64-linux-gnu.so


@dataclass(frozen=True)
class TorchDevice:
    """`cuda:index` in torch's order."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    memory_total_bytes: int
    uuid: str | None


@dataclass(frozen=True)
class TorchRuntime:
    """What `import torch` and torch.cuda say, asked in a child process."""

    import_error: str | None
    cuda_available: bool | None = None
    cuda_error: str | None = None
    device_count: int | None = None
    devices: tuple[TorchDevice, ...] = ()
    nccl_available: bool | None = None
    nccl_version: str | None = None  # compile-time version
    gloo_available: bool | None = None
    import_s: float | None = None
    mapped: Mapping[str, str] | None = None  # nccl, cudart, cublas … -> the file that `import torch` brought in
    nccl_loaded_version: str | None = None  # what ncclGetVersion of the mapped one answers
    cudnn_version: str | None = None
    cudnn_error: str | None = None  # torch's words when it refuses the cuDNN it found
    extensions: Mapping[str, str] = field(default_factory=dict)  # flash_attn … -> why it does not load; "" when it does


@dataclass(frozen=True)
class NcclLibrary:
    """One libnccl that a process could load."""

    path: str
    version: str | None  # what ncclGetVersion of that file answers
    origin: Literal["wheel", "preload", "library_path", "system", "conda"]


@dataclass(frozen=True)
class Nccl:
    """The NCCL libraries in reach. The first is the one a torch process would load."""

    libraries: tuple[NcclLibrary, ...]
    wheels: Mapping[str, str]  # nvidia-nccl-cu13 -> 2.29.7
    config_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # file -> NAME=value lines


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


@dataclass(frozen=True)
class Container:
    """Whether this is a container, and what the NVIDIA container toolkit was told."""

    kind: (
        Literal["docker", "podman", "kubernetes", "containerd", "apptainer", "enroot", "lxc", "nspawn", "other"] | None
    )
    wsl: bool
    cgroup_version: Literal[1, 2] | None
    capabilities: tuple[str, ...] | None = None  # of those that matter: ipc_lock, sys_nice … (also outside a container)
    syscalls_filtered: bool | None = None  # by seccomp
    mempolicy: bool | None = None  # NUMA memory policies may be asked for; NCCL's host buffers need them
    own_pids: bool | None = None  # a PID namespace: processes outside are not shown, NVML's numbers mean others


InterfaceKind: TypeAlias = Literal[
    "physical", "infiniband", "wireless", "bond", "vlan", "macvlan", "bridge", "veth", "tunnel", "loopback", "other"
]


@dataclass(frozen=True)
class Interface:
    """One network interface, as the kernel describes it to this network namespace."""

    name: str
    up: bool  # somebody switched it on
    loopback: bool
    addresses: tuple[str, ...]
    virtual: bool  # docker0, virbr0 and the like: it ends in this machine, no other one is behind it
    mtu: int | None = None
    speed_mbit_per_s: int | None = None
    kind: InterfaceKind | None = None
    running: bool | None = None  # … and it has a link: NCCL looks at no other
    full_duplex: bool | None = None
    ipv4: bool | None = None  # it has an IPv4 address
    ipv6: bool | None = None  # it has an IPv6 address, and not just ::1
    routable: bool | None = None  # an address that is neither loopback nor link-local


@dataclass(frozen=True)
class Master:
    """The machine where the ranks meet, as the environment names it."""

    name: str
    origin: Literal["MASTER_ADDR", "SLURM_JOB_NODELIST", "config"]
    addresses: tuple[str, ...]  # empty: it does not resolve
    error: str | None  # the resolver's words
    local: bool | None = None  # one of them is an address of this machine
    interface: str | None = None  # the one the kernel would use to reach it
    route_error: str | None = None  # why there is no way to it


@dataclass(frozen=True)
class Network:
    """Names, interfaces and the rendezvous port. Interfaces are in the order in which NCCL looks at them."""

    hostname: str
    hostname_addresses: tuple[str, ...]  # empty: it does not resolve
    hostname_error: str | None
    localhost_ok: bool
    interfaces: tuple[Interface, ...]
    port: int
    port_busy: bool
    port_owner: str | None  # "pid 412 (python)" where this user may know
    port_owner_pid: int | None = None
    port_owner_mine: bool | None = None
    default_routes: tuple[str, ...] | None = None  # interfaces with one, best first; None: not known
    master: Master | None = None  # None: the environment names none
    pdsh: bool | None = None  # the program is on PATH

    @property
    def listed(self) -> bool:
        """Whether the interfaces could be listed at all: even an empty namespace has a loopback one."""
        return bool(self.interfaces)

    def interface(self, name: str | None) -> Interface | None:
        """The interface of this name."""
        return next((interface for interface in self.interfaces if interface.name == name), None)


@dataclass(frozen=True)
class Slurm:
    """The Slurm allocation this process runs in, and whether Slurm is here at all."""

    job_id: str | None
    nodes: int | None
    node_rank: int | None
    tasks_per_node: str | None
    gpus_on_node: int | None
    commands_found: bool
    on_allocated_node: bool | None = None  # False: a shell of salloc that still runs where it was typed
    step_id: str | None = None  # None: not under srun
    job_gpus: str | None = None  # the grant on this node, as numbers of the whole machine: "0,1"
    gpus_per_task: str | None = None
    gpu_bind: str | None = None
    cpus_per_task: int | None = None
    cpus_on_node: int | None = None
    memory_bytes: int | None = None  # granted on this node; None: not said, or all of it
    local_id: int | None = None  # which task of the node this is
    seconds_left: float | None = None  # until the job's time limit


@dataclass(frozen=True)
class Gres:
    """Generic resources of one kind on a node, as Slurm counts them: gpu:a100:4."""

    name: str  # gpu, tpu, shard
    type: str  # a100; "" where the site gives its GPUs no type
    count: int


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are built alike."""

    nodes: int
    usable: int  # of them, neither down nor drained: a job can run there, now or later
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of one such node."""
        return sum(gres.count for gres in self.gres if gres.name == "gpu")


@dataclass(frozen=True)
class Partition:
    """A queue of Slurm: its nodes and its limits. None: no limit, or not said."""

    name: str
    default: bool
    up: bool  # takes jobs and starts them
    kinds: tuple[NodeKind, ...] = ()  # most GPUs first
    max_time_s: int | None = None
    default_time_s: int | None = None  # None: max_time_s holds
    max_nodes: int | None = None
    min_nodes: int | None = None
    accounts: tuple[str, ...] | None = None  # that may use it; None: all
    qos: tuple[str, ...] | None = None

    @property
    def nodes(self) -> int:
        """All of them."""
        return sum(kind.nodes for kind in self.kinds)

    @property
    def usable(self) -> int:
        """Those a job can run on."""
        return sum(kind.usable for kind in self.kinds)

    @property
    def gpus_per_node(self) -> int:
        """On the nodes that have most of them."""
        return max((kind.gpus for kind in self.kinds), default=0)


@dataclass(frozen=True)
class Association:
    """What accounting lets a user do: an account, and the QOS that go with it."""

    account: str
    partition: str = ""  # "": all
    qos: tuple[str, ...] = ()
    default_qos: str = ""


@dataclass(frozen=True)
class Cluster:
    """A Slurm cluster as its users see it from a login node."""

    name: str | None = None
    version: str | None = None  # 22.05.8
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()  # of this user; none where the site keeps no accounts
    default_account: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)  # what could not be read -> why


@dataclass(frozen=True)
class PciDevice:
    """A GPU or a network card on the PCI bus, from sysfs."""

    address: str  # 0000:1a:00.0
    kind: Literal["gpu", "nic"]
    vendor: str  # 10de
    device: str
    driver: str | None  # the kernel driver that holds it: nvidia, nouveau, vfio-pci, mlx5_core; None = none
    answers: bool | None  # False: its configuration space reads as ones, it fell off the bus
    numa_node: int | None
    cpus_near: str | None
    width: int | None  # this and the next three of network cards only: NVML tells of GPUs
    width_max: int | None
    speed_gt_per_s: float | None
    speed_max_gt_per_s: float | None
    path: tuple[str, ...] = ()  # the host bridge, the root port and the switches' ports down to it
    acs_redirect: bool | None = None  # a switch above sends peer traffic up to the root (ACS); None: only root can read
    aer_fatal: int | None = None  # since boot
    names: tuple[str, ...] = ()  # interfaces and HCAs it carries: eth0, mlx5_0
    cpus_near_usable: int | None = None  # how many of the CPUs near it this process may use
    uplink_width: int | None = None  # lanes of the narrowest link above the switches on its way
    uplink_width_max: int | None = None
    pci_class: str | None = None  # 030200 a 3D controller, 020000 Ethernet, 020700 InfiniBand


@dataclass(frozen=True)
class Pci:
    """What stands on the PCI bus, whether the driver knows it or not."""

    devices: tuple[PciDevice, ...]
    readable: bool  # False: /sys shows no PCI tree (some containers), so NCCL sees none either
    nvswitches: int | None = None
    cpu_vendor: Literal["amd", "intel", "other"] | None = None  # by the first host bridge
    fabric_manager: str | None = None  # version of the nv-fabricmanager installed beside NVSwitches
    topology_file: str | None = None  # the file NCCL would read: NCCL_TOPO_FILE, or the one a cloud's machine brings
    topology_error: str | None = None  # why it could not be read
    topology_gpus: tuple[str, ...] | None = None  # addresses of the GPUs it describes

    def of(self, kind: Literal["gpu", "nic"]) -> tuple[PciDevice, ...]:
        """The devices of one kind."""
        return tuple(device for device in self.devices if device.kind == kind)

    def at(self, address: str | None) -> PciDevice | None:
        """The device at this address, as sysfs or as NVML writes it."""
        return self._places.get(bus_address(address)) if address else None

    @cached_property
    def _places(self) -> Mapping[str, PciDevice]:
        return {device.address: device for device in self.devices}


Distance: TypeAlias = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
_DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")


def bus_address(text: str) -> str:
    """A PCI address as sysfs writes it: NVML's "00000000:1A:00.0" is "0000:1a:00.0"."""
    *domain, bus, slot = ("", "", *text.strip().lower().split(":"))
    return ":".join((domain[-1].lstrip("0").zfill(4), bus, slot))


def path_between(a: PciDevice, b: PciDevice) -> Distance | None:
    """How far apart two devices are, as `nvidia-smi topo -m` names it; None where the bus does not show it."""
    if not a.path or not b.path:
        return None
    shared = 0
    while shared < min(len(a.path), len(b.path)) and a.path[shared] == b.path[shared]:
        shared += 1
    if shared > 1:  # the first is the host bridge; below it they share a switch, whose ports below count as part of it
        return "PIX" if max(len(a.path), len(b.path)) - shared <= 1 else "PXB"
    if shared:
        return "PHB"
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def nearest_nics(pci: Pci, gpu_pci_address: str | None) -> tuple[PciDevice, ...]:
    """The network cards closest to a GPU: all of those at the shortest distance; none where that is not known."""
    gpu = pci.at(gpu_pci_address)
    far = [(nic, path_between(gpu, nic)) for nic in pci.of("nic")] if gpu else []
    return next((near for d in _DISTANCES if (near := tuple(nic for nic, distance in far if distance == d))), ())


@dataclass(frozen=True)
class HcaPort:
    """One port of an InfiniBand, RoCE or EFA adapter, from /sys/class/infiniband."""

    device: str  # mlx5_0
    port: int
    link_layer: Literal["InfiniBand", "Ethernet", "EFA", "unknown"]
    state: str | None  # ACTIVE, DOWN, INIT …
    phys_state: str | None  # LinkUp, Disabled, Polling …
    rate_gbit_per_s: float | None
    lanes: int | None = None  # 4 of "400 Gb/sec (4X NDR)"
    lid: int | None = None  # read where InfiniBand is not ACTIVE, with sm_lid: 0 says that no subnet manager came by
    sm_lid: int | None = None
    gid_types: tuple[str, ...] | None = None  # of the first GIDs of an active Ethernet port: IB/RoCE v1, RoCE v2
    gid_ipv4: bool | None = None  # one of them is an IPv4 address
    firmware: str | None = None
    board: str | None = None
    pci: str | None = None
    numa_node: int | None = None
    interfaces: tuple[str, ...] = ()
    virtual_function: bool = False  # SR-IOV
    link_downed: int | None = None  # how often the link was lost since the driver was loaded

    @property
    def name(self) -> str:
        """As NCCL_IB_HCA names it."""
        return f"{self.device}:{self.port}"

    @property
    def active(self) -> bool:
        """Whether traffic can flow."""
        return self.state == "ACTIVE"

    @property
    def card(self) -> str:
        """The card it sits on: its PCI address without the function, or its own name."""
        return (self.pci or self.device).rpartition(".")[0] or self.device


@dataclass(frozen=True)
class InfiniBand:
    """The adapters for fast networks, and whether this process may use them."""

    ports: tuple[HcaPort, ...]
    verbs_nodes: tuple[str, ...] = ()  # /dev/infiniband/uverbs*
    verbs_unusable: tuple[str, ...] = ()  # adapters whose node is missing here, or may not be opened
    verbs_library: bool | None = None  # libibverbs.so.1 is where the loader looks; None: no adapter, not looked
    uptime_s: float | None = None  # of the machine: what the counters at most cover


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


@dataclass(frozen=True)
class Folder:
    """A folder the run will use."""

    role: Literal[
        "current", "temporary", "home", "named", "output",
        "hf_cache", "torch_cache", "triton_cache", "inductor_cache", "extensions",
    ]  # fmt: skip
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


@dataclass(frozen=True)
class Library:
    """A shared library the training might load."""

    name: str  # cudart, cudnn, cublas, nvJitLink, nccl, cuda, nvidia-ml, nccl-net …; a preloaded one: its file's name
    path: str
    origin: Literal["wheel", "library_path", "system", "compat", "stub", "preload", "conda"]
    version: str | None = None  # of libcuda the driver's, of bitsandbytes' libraries the CUDA they were built with
    loads: bool | None = None  # asked in the child; None: not asked
    error: str | None = None  # the loader's words when it does not


@dataclass(frozen=True)
class Libraries:
    """The CUDA libraries, wheels and tools of the interpreter of the training."""

    found: tuple[Library, ...]
    wheels: Mapping[str, str]  # every nvidia-* distribution: nvidia-cublas-cu12 -> 12.8.4.1
    twice: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # package -> its copies, the one used first
    shadowed: Mapping[str, str] = field(default_factory=dict)  # module -> the user's file that hides it
    cuda_home: str | None = None
    nvcc: str | None = None  # version
    compiler: str | None = None  # of C++: its version, or "unknown"; None: there is none
    ninja: str | None = None  # on PATH: its version, or "unknown"
    nvcc_path: str | None = None
    c_compiler: str | None = None
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # torch -> triton==3.5.1, python>=3.10 …
    built_with: Mapping[str, str] = field(default_factory=dict)  # flash-attn -> cu12torch2.4cxx11abiFALSE


@dataclass(frozen=True)
class PeerCopy:
    """A copy from one GPU to another that was really made (`--deep`)."""

    to: int  # NVML index
    access: bool | None = None  # CUDA says that the two reach each other's memory
    intact: bool | None = None  # what arrived is what was sent; None: no copy came to its end
    error: str | None = None


@dataclass(frozen=True)
class GpuRun:
    """What one GPU did when it was really used (`--deep`), in a process of its own."""

    index: int  # NVML's
    uuid: str | None  # as CUDA_VISIBLE_DEVICES named it to the process
    ended: Literal["done", "failed", "hung", "died", "skipped"]
    stage: Literal["library", "init", "context", "memory", "torch", "kernel", "peers"]  # how far it came
    model: str | None = None  # GPUs are compared with others of the same
    multiprocessors: int | None = None
    code: int | None = None  # CUDA's own error number
    name: str | None = None  # … as libcuda names it: CUDA_ERROR_SYSTEM_NOT_READY
    detail: str | None = None  # the call that failed, torch's words, why it was skipped, the signal
    seconds: float | None = None
    cuda_version: tuple[int, int] | None = None  # of the libcuda that answered
    libcuda: str | None = None  # the file this process really mapped
    memory_free_bytes: int | None = None
    memory_intact: bool | None = None  # a pattern came back from its memory as it was written
    no_kernel: str | None = None  # why no kernel was tried: torch is not installed …
    results: Mapping[str, str] = field(default_factory=dict)  # fp32, bf16, fp16 -> digest of the same computation
    unsteady: tuple[str, ...] = ()  # precisions in which it gave another result the second time
    not_finite: tuple[str, ...] = ()  # precisions in which it gave NaN or infinity
    nccl_path: str | None = None  # the libnccl this process really mapped
    nccl_version: str | None = None  # what that file answers
    peers: tuple[PeerCopy, ...] = ()
    no_peers: str | None = None  # why no copy to another GPU was tried


@dataclass(frozen=True)
class Plan:
    """What the user wants of this machine, as far as it was said."""

    nodes: int = 1
    expect_gpus: int | None = None
    expect_free_bytes: int | None = None
    cpu_ranks: int | None = None  # a rehearsal on the CPU was asked for


@dataclass(frozen=True)
class Mark:
    """A line and column (from 1) in a config file."""

    line: int
    column: int


@dataclass(frozen=True)
class ConfigFault:
    """Something the reader could not make sense of: broken YAML, a duplicate key."""

    message: str
    mark: Mark | None
    key: str | None = None
    fatal: bool = False  # nothing of the file could be used
    kind: str = ""  # twice, bom; of a fatal one what spoils the file: tab, conflict, utf16, empty, suffix …
    stale_line: int | None = None  # of twice: the line of the earlier one, where it has the line to itself


@dataclass(frozen=True)
class Scalar:
    """A single value as it stands in the file: its text before YAML made a number or a truth of it, and where."""

    text: str
    quoted: bool
    line: int
    column: int


@dataclass(frozen=True)
class DeepSpeedFile:
    """The JSON file that deepspeed_config.deepspeed_config_file names."""

    path: str  # as the config names it; accelerate looks from the folder of the launch
    exists: bool
    values: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None  # why nothing could be made of it


@dataclass(frozen=True)
class Model:
    """What is trained with a config, as the comment says that mgpu writes."""

    params: int
    train: str  # full, lora, qlora
    optimizer: str  # adamw, adam8bit, sgd, adafactor
    trainable: int | None = None  # parameters that are trained, where not all are


@dataclass(frozen=True)
class LoaderVerdict:
    """What the real accelerate said of the file, asked in a child process."""

    accepted: bool
    error: str | None
    accelerate: str | None


@dataclass(frozen=True)
class Config:
    """An accelerate config file: what mgpu understood of it, and what the real loader says."""

    path: str
    sha256: str | None  # of the parsed values, so that comments and order do not count
    values: Mapping[str, Any]  # as YAML read them, nested sections included
    marks: Mapping[str, Mark]  # dotted key -> where the key stands
    faults: tuple[ConfigFault, ...] = ()
    loader: LoaderVerdict | None = None
    written_by_mgpu: bool = False
    batch_per_gpu: int | None = None  # these three from the comments mgpu writes
    accumulate: int | None = None  # gradient accumulation steps
    dataset_size: int | None = None  # samples
    scalars: Mapping[str, Scalar] = field(default_factory=dict)  # dotted key -> its value as written; no lists
    deepspeed_file: DeepSpeedFile | None = None  # None: the config names none
    model: Model | None = None  # from a comment, too
    launch_flags: tuple[str, ...] = ()  # what mgpu launch adds for the launcher, or a job sets; from mgpu's comment
    engine: str = ""  # slurm, kubeflow ...: what gives each machine address, port and rank, from mgpu's comment
    away: bool = False  # it is for the nodes of an engine, and was read on a machine that is none of them
    cpu_job: bool = False  # the job of the engine runs its ranks on the CPU, from mgpu's comment

    @property
    def for_slurm(self) -> bool:
        """Whether a job script gives each machine the address of the first, the port and its rank."""
        return self.engine == "slurm"

    @property
    def distributed_type(self) -> str | None:
        """The type as accelerate takes it: YAML's unquoted NO is False, and means NO."""
        value = self.values.get("distributed_type")
        return "NO" if value is False else value if isinstance(value, str) else None

    @property
    def on_cpu(self) -> bool:
        """Whether the file asks for ranks on the CPU, GPUs or not."""
        return self.values.get("use_cpu") is True or self.distributed_type == "MULTI_CPU"

    @property
    def precision(self) -> str:
        """mixed_precision as accelerate takes it: in any case, and from the fp16 of old files."""
        old = "fp16" if "mixed_precision" not in self.values and self.values.get("fp16") else "no"
        return str(self.values.get("mixed_precision") or old).lower()

    @property
    def port(self) -> int | None:
        """The rendezvous port the file names; None: it leaves it open (0 means that, too)."""
        value = self.values.get("main_process_port")
        return value if type(value) is int and value > 0 else None

    @property
    def num_machines(self) -> int:
        """Machines the launch spans; 1 unless the file has a sensible larger number."""
        value = self.values.get("num_machines", 1)
        return value if type(value) is int and value > 1 else 1

    @property
    def num_processes(self) -> int | None:
        """World size over all machines; None when the file has no usable number."""
        value = self.values.get("num_processes")
        if value is None and self.distributed_type == "NO":
            return 1
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
            value = int(value)
        return value if type(value) is int and value > 0 else None

    @property
    def ranks_here(self) -> int | None:
        """Processes the launcher starts on this machine: integer division, as accelerate does it."""
        return None if self.num_processes is None else self.num_processes // self.num_machines


@dataclass(frozen=True)
class Step:
    """What one rank did on one rung of the smoke test."""

    rung: str
    ok: bool | None  # None: begun and never ended
    detail: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Peer:
    """Another rank, as one rank met it when the process group was formed."""

    rank: int
    host: str | None = None
    address: str | None = None  # where it says that it can be reached
    came: bool = True  # it had reached the meeting point within the limit
    reachable: bool | None = None  # a connection to it was tried: did it come about?
    error: str | None = None


@dataclass(frozen=True)
class Meeting:
    """The machine and port where the launchers of several machines meet, as this one found it."""

    address: str
    port: int
    error: str | None = None  # None: it answers; on that machine itself: the address is its own


@dataclass(frozen=True)
class PairRun:
    """Data sent between this rank and another, both ways."""

    other: int
    ok: bool | None  # None: begun and never ended
    detail: str | None = None
    gb_per_s: float | None = None  # one way, decimal GB
    latency_s: float | None = None


@dataclass(frozen=True)
class Timed:
    """One collective at one size, as one rank timed it."""

    collective: str  # all_reduce, all_gather, reduce_scatter, broadcast, all_to_all
    backend: str
    ranks: int
    size_bytes: int  # S of nccl-tests: mgpu/planning/bandwidth.py
    seconds_p50: float
    seconds_p99: float


@dataclass(frozen=True)
class Bandwidth:
    """One collective at one size, timed over all ranks (the slowest rank's times)."""

    collective: str  # all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv
    backend: str
    ranks: int
    size_bytes: int  # S of nccl-tests: mgpu/planning/bandwidth.py
    seconds_p50: float
    seconds_p99: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float


@dataclass(frozen=True)
class Scaling:
    """Training steps with the first `ranks` ranks at the same micro-batch."""

    ranks: int
    samples_per_s: float  # of all of them together
    seconds_per_step: float
    compute_seconds: float  # of a step, without waiting for others: the slowest rank's
    efficiency: float | None = None  # 1.0: as many samples per second and rank as one rank alone


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint that the ranks saved and loaded again, as one rank met it."""

    folder: str  # where it was tried
    named: bool  # by the user; else the run folder
    shared: bool | None  # this rank could read what rank 0 wrote; None: not tried
    size_bytes: int | None = None
    free_bytes: int | None = None  # before it was written


@dataclass(frozen=True)
class Rank:
    """One rank of the smoke test: its report, and what the runner saw of the process."""

    rank: int
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    device: str | None = None
    gpu_uuid: str | None = None
    world_size: int | None = None  # as torch.distributed sees it
    accelerate_world_size: int | None = None  # as Accelerator() sees it
    steps: tuple[Step, ...] = ()
    last_word: str | None = None  # what it announced last: "step 7 of 20"
    last_word_order: int = 0  # how far it came: larger is later
    process_state: str | None = None  # when the run was ended: running, sleeping, stopped …, gone
    silent_s: float | None = None  # how long its heartbeat had been missing
    stack: str | None = None
    stack_from: Literal["asked", "woken"] | None = None  # it wrote the stack when asked, or once SIGCONT had woken it
    kernel_wait: str | None = None  # where the kernel held its process: /proc/PID/wchan
    collective: str | None = None  # the one it was in, by torch's flight recorder: "gloo all_reduce of 1000 x Float"
    collective_seq: int | None = None  # … and how many of the whole world's collectives it had come to
    error: str | None = None
    traceback: str | None = None
    kind: str | None = None  # of the failure, when the rank knows it: wrong_numbers, gradients_differ …
    evidence: Mapping[str, Any] = field(default_factory=dict)  # what the check of that kind reads
    gpu_name: str | None = None  # model, as torch names it
    kernels: str | None = None  # ranks of which this is the same compute to the same bits: model and size of the GPU
    gpu_pci: str | None = None  # 0000:1b:00.0
    numa_node: int | None = None  # the GPU's
    cpus: str | None = None  # the ones this process may run on: "0-23,48-71"
    computed: Mapping[str, str] = field(default_factory=dict)  # fp32, bf16 … -> digest of the same computation
    parameters: str | None = None  # digest of the parameters after the training steps
    digests: Mapping[str, str] = field(default_factory=dict)  # start, buffers, optimizer … -> digest after the steps
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # loader -> the samples it gave this rank
    finished: bool = False  # its report is complete
    failed_at: float | None = None  # when a rung failed on it (Unix time), to tell cause from consequence
    exit_code: int | None = None  # as the launcher tells it; negative for a signal
    measured: Mapping[str, float] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    gloo_works: bool | None = None  # the collectives over gloo, tried beside NCCL
    pairs: tuple[PairRun, ...] = ()
    bandwidth: tuple[Timed, ...] = ()  # mgpu/planning/bandwidth.py makes one Bandwidth of those of all ranks
    scaling: tuple[Scaling, ...] = ()
    skipped: tuple[str, ...] = ()  # what could not be tried here, and why: "SyncBatchNorm: torch has it on GPUs only"
    checkpoint: Checkpoint | None = None
    wrote: tuple[str, ...] = ()  # folders it may have written to outside the run folder, to be removed after the run


@dataclass(frozen=True)
class Trial:
    """A failed rung, run again in fresh processes with one thing changed."""

    change: str  # "NCCL_P2P_DISABLE=1", "without NCCL_ALGO", "GPUs 0,1", "as configured"
    ok: bool | None  # None: not tried, or no answer within its time
    detail: str | None = None
    seconds: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # what was set; "" = removed
    gpus: tuple[int, ...] = ()  # the ones that took part, when not all
    busbw_gb_per_s: float | None = None  # what the change costs: all-reduce, the largest size


@dataclass(frozen=True)
class Ranks:
    """A whole smoke-test run: what was asked, what each rank reported, how the launcher ended.

    On several nodes `ranks` are those of this one.
    """

    expected: int  # ranks of the whole world
    rungs: tuple[str, ...]  # the ones that were to be climbed
    ranks: tuple[Rank, ...]
    ended: Literal["finished", "stalled", "timed_out", "died", "interrupted"]
    launcher_exit: int | None  # None: it did not end by itself
    stall_limit_s: float
    left_running: tuple[int, ...] = ()  # pids that outlived the clean-up
    launcher_output: str | None = None  # its last lines
    folder: str = "runs"  # where journals, stacks and the launcher's log lie
    nodes: int = 1
    node: int = 0
    cpu: bool = False
    level: str = "standard"
    strategy: str = "ddp"
    precision: str = "no"
    accumulate: int = 1
    outlived: tuple[int, ...] = ()  # pids that were there when the launcher had ended by itself, and were ended
    port: int | None = None  # where the ranks met
    meeting: Meeting | None = None  # None on one machine
    left_port: bool = False  # it was free before the run, and is still taken
    killed_for_memory: int | None = None  # processes of its control group that the kernel killed meanwhile
    left_files: tuple[str, ...] = ()  # shared memory and temporary files that were not there before
    memory_kept: Mapping[str, int] | None = None  # GPU UUID -> bytes not given back; None: not looked at
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class NcclLine:
    """How NCCL connects two ranks, in its own words."""

    sender: int
    receiver: int
    transport: str  # P2P/CUMEM, P2P/IPC, SHM, NET/Socket, NET/IB/0/GDRDMA …


@dataclass(frozen=True)
class NcclLog:
    """What NCCL said of itself at level INFO during the smoke test."""

    version: str | None = None
    interfaces: tuple[str, ...] = ()  # of its bootstrap and sockets: "eth0:10.0.0.1"
    network: str | None = None  # Socket, IB, a plug-in's name
    plugin: str | None = None
    connections: tuple[NcclLine, ...] = ()
    channels: int | None = None  # collective channels of the largest communicator
    trees: bool | None = None
    nvls: bool | None = None  # NVLink SHARP in use
    cumem: bool | None = None
    warnings: tuple[str, ...] = ()  # its WARN lines


@dataclass(frozen=True)
class Baseline:
    """An earlier result that this one is compared with."""

    path: str
    taken: str | None
    same_gpus: bool | None
    bandwidth: tuple[Bandwidth, ...] = ()
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # rank -> figures
    scaling: tuple[Scaling, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """What was verified (None: nothing that fits this config), and the same facts as they are now."""

    verified: Mapping[str, str] | None
    verified_at: str | None
    now: Mapping[str, str]
    rungs: tuple[str, ...] = ()
    scaling: tuple[Scaling, ...] = ()  # of the smoke test's own small model, measured then
    level: str | None = None  # of that test; None: an older mgpu wrote it
    refused: str | None = None  # why what is in the stamp file does not count; None: it does, or there is no file


# Who comes past a condition on the rank. main: rank 0 alone; local_main: one a machine; not_main: all but rank 0; some:
# it depends on the rank in another way, or is named so ("should_save"); single: only a run of one process; distributed:
# only a run of several. A condition that is none of these stands in `conditions`.
Guard = Literal["main", "local_main", "not_main", "some", "single", "distributed"]


@dataclass(frozen=True)
class InScript:
    """Where something stands in a script. Conditions, loops and contexts of a function's callers are included where all
    of its calls that can be seen stand in them; outermost first."""

    line: int = 1  # this and the column are counted from 1
    column: int = 1
    file: str = ""  # "": the script itself; else a module it imports, relative to its folder
    function: str = ""  # "main", "Trainer.fit"; "": the top level
    guards: tuple[Guard, ...] = ()
    conditions: tuple[str, ...] = ()  # other `if`s: as they are written, "not (...)" in an else
    loops: tuple[int, ...] = ()  # places in Script.loops
    within: tuple[str, ...] = ()  # contexts of `with`, as a call's name


@dataclass(frozen=True)
class ScriptCall(InScript):
    """A call. `name` is dotted, resolved through imports and simple assignments: "torch.distributed.barrier"; a method
    of what another call made: "accelerate.Accelerator().prepare"; not known whose it is: as written, "loss.backward".

    Values are texts, cut: constants as Python writes them ("'nccl'", "True"), names resolved as above, else as written.
    """

    name: str = ""
    arguments: tuple[str, ...] = ()
    keywords: Mapping[str, str] = field(default_factory=dict)  # "**": something unpacked
    targets: tuple[str, ...] = ()  # as written, what its value is assigned to: ("model", "optimizer")
    written: tuple[str, ...] = ()  # the arguments as written, so that a target is found again


@dataclass(frozen=True)
class ScriptSet(InScript):
    """An assignment of something that is no call: `os.environ['RANK'] = '0'`, `lr = 0.1`."""

    target: str = ""  # as written, its first name resolved: "os.environ['MASTER_PORT']", "args.lr"
    value: str = ""


@dataclass(frozen=True)
class ScriptLoop(InScript):
    """A loop: epochs, batches, or another."""

    over: str = ""  # what is iterated, or a while's condition: as written
    source: str = ""  # of what it iterates, the name as a call has it: "torch.utils.data.DataLoader()", "range()"
    target: str = ""  # as written


@dataclass(frozen=True)
class ScriptJump(InScript):
    """A way out of a loop, or out of a function from within one."""

    kind: Literal["break", "continue", "return", "raise"] = "break"


@dataclass(frozen=True)
class ScriptOption(InScript):
    """An option that the script's command line takes (argparse, click)."""

    names: tuple[str, ...] = ()  # "--local_rank", "--local-rank"
    default: str | None = None
    action: str | None = None
    type: str | None = None


@dataclass(frozen=True)
class ScriptText(InScript):
    """A text that names a device or an address, wherever it stands: "cuda:0", "tcp://localhost:23456"."""

    text: str = ""


# What makes a script's ranks train together: "trainer" is that of transformers or trl, "nothing" is certain.
Speaks = Literal["accelerate", "trainer", "lightning", "deepspeed", "ddp", "nothing"]


@dataclass(frozen=True)
class Script:
    """A training script as its syntax tree tells it: nothing of it is imported or run."""

    path: str
    arguments: tuple[str, ...] = ()  # its own, secrets masked
    error: str | None = None  # why it could not be read: "line 7: invalid syntax"; all below is empty then
    error_line: int | None = None
    lines: int = 0
    speaks: Speaks | None = None  # None: not known
    imports: tuple[str, ...] = ()  # dotted, sorted: "torch.distributed", "accelerate.Accelerator"
    unread: tuple[str, ...] = ()  # modules it imports that were not read and are not known to do no training
    files: tuple[str, ...] = ()  # modules in its folder that were read as well, relative to it
    calls: tuple[ScriptCall, ...] = ()  # in each file in the order of the lines; the script first
    sets: tuple[ScriptSet, ...] = ()
    loops: tuple[ScriptLoop, ...] = ()
    jumps: tuple[ScriptJump, ...] = ()
    options: tuple[ScriptOption, ...] = ()
    texts: tuple[ScriptText, ...] = ()
    functions: tuple[str, ...] = ()  # of the script itself: "main", "Trainer.fit"
    main_guard: bool = False  # if __name__ == "__main__"
    shadowed: Mapping[str, str] = field(default_factory=dict)  # module -> the file or package beside it that hides it
    cut: bool = False  # there was more than is told here


@dataclass(frozen=True)
class Directive:
    """An option of an #SBATCH line."""

    line: int  # counted from 1
    option: str  # its long name, for a short one as well: "ntasks-per-node"; one that Slurm does not know: as written
    value: str | None = None  # None: it has none
    written: str = ""  # "-N 2"
    obeyed: bool = True  # False: it stands below the first command, where Slurm does not look


@dataclass(frozen=True)
class JobText:
    """Something in a job script that is not what it seems."""

    line: int
    # spaced: "# SBATCH"; disabled: "##SBATCH"; blank: after the backslash that was to continue the line; remark: a
    # comment after it; ended: a comment line amid a continued command; dash, quote: a typographic one in a command;
    # secret: a password or token in plain text; loose: an #SBATCH line that Slurm reads otherwise than it was meant
    kind: Literal["spaced", "disabled", "blank", "remark", "ended", "dash", "quote", "secret", "loose"]
    text: str  # of a secret: the name it is given


@dataclass(frozen=True)
class JobVariable:
    """A variable (or a command substitution) in a command's words: its value is known only in the job."""

    name: str  # "SLURM_NODEID"; of a substitution its whole text: "$(hostname -i)"
    word: int  # place in the command's words
    on_node: bool  # a shell that srun started expands it, on each node; else the batch shell, once
    line: int = 0
    unset: bool = False  # the script gives it a value, and does not export it: this shell does not know it
    runs: tuple[str, ...] = ()  # of a substitution: the commands it comes to, in functions as well


Launcher = Literal["accelerate", "torchrun", "deepspeed", "mgpu", "python"]


@dataclass(frozen=True)
class JobCommand:
    """A command, as the shell would come to it. Variables that the script gives a value are put in."""

    line: int  # of its first word
    words: tuple[str, ...]  # without quotes; what is not known stands as "$NAME", "$((...))"; secrets masked
    variables: tuple[JobVariable, ...] = ()
    through: tuple[str, ...] = ()  # programs that start it, outermost first: "srun", "bash", "apptainer"
    step: int | None = None  # the srun that starts it: its place in JobScript.commands
    env: Mapping[str, str] = field(default_factory=dict)  # given for it alone: NAME=value COMMAND
    launcher: Launcher | None = None  # python: a training script without any
    script: int | None = None  # of a launcher: the place of its training script (of -m: of the module) in `words`
    background: bool = False  # with & at its end
    unsure: bool = False  # in a branch of an if, a loop: it may not run, or several times
    inner: bool = False  # inside $( )
    lines: tuple[int, ...] = ()  # of each word
    statement: int = 1  # the line at which the script's own statement begins that comes to it: an if, a call

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of a launcher: its own options, without its name and the training script."""
        return self.words[1 : self.script]


@dataclass(frozen=True)
class JobSet:
    """A variable that a job script gives a value."""

    line: int
    name: str
    value: str  # as a word of a command has it
    exported: bool = False
    on_node: bool = False  # by a shell that srun started
    variables: tuple[JobVariable, ...] = ()  # in its value
    raw: str = ""  # as it stands in the script
    statement: int = 1  # as of a command


@dataclass(frozen=True)
class JobTrap:
    """What a job script does on a signal."""

    line: int
    signals: tuple[str, ...]  # without SIG
    action: str


@dataclass(frozen=True)
class JobFolder:
    """A folder to which a job's output is to go."""

    line: int
    path: str
    exists: bool | None  # None: that depends on the job


@dataclass(frozen=True)
class JobScript:
    """A shell script for Slurm, as its text tells it: nothing of it was run but `bash -n`."""

    path: str
    error: str | None = None  # why nothing of it could be read
    lines: int = 0
    shebang: str | None = None  # "#!/bin/bash"
    crlf_line: int | None = None  # the first line that ends as on Windows
    syntax: str | None = None  # what bash -n says of it
    syntax_line: int | None = None
    syntax_unread: str | None = None  # why bash -n did not tell
    directives: tuple[Directive, ...] = ()
    texts: tuple[JobText, ...] = ()
    commands: tuple[JobCommand, ...] = ()  # in the order of the script; those inside another come after it
    sets: tuple[JobSet, ...] = ()
    traps: tuple[JobTrap, ...] = ()
    sourced: tuple[str, ...] = ()  # files it takes commands from, which were not read
    stops_at_errors: bool = False  # set -e
    folders: tuple[JobFolder, ...] = ()
    config: str | None = None  # the accelerate config that its launcher is given, as the words have it
    cut: bool = False  # there was more than is told here

    @property
    def launches(self) -> tuple[JobCommand, ...]:
        """The commands that start ranks."""
        return tuple(command for command in self.commands if command.launcher)

    @property
    def first_launch_line(self) -> int | None:
        """The line, from 1, at which the statement begins that starts the first ranks, all around it included."""
        certain = [one for one in self.launches if one.launcher != "python"] or [
            one for one in self.launches if one.step is not None
        ]
        found = certain or self.launches
        return found[0].statement if found else None

    def directive(self, *options: str) -> Directive | None:
        """The last line that gives one of these options, of those that Slurm obeys."""
        given = [directive for directive in self.directives if directive.obeyed and directive.option in options]
        return given[-1] if given else None


@dataclass(frozen=True)
class Seen:
    """A signature that lines of a log bear: the first such line, and how many there are."""

    signature: str  # id of the check
    text: str  # without torch's prefix, colours and control bytes; cut; secrets masked
    file: str
    line: int  # counted from 1
    rank: int | None = None
    at: str | None = None  # ISO time, where the line tells one
    times: int = 1
    ranks: tuple[int, ...] = ()  # all of which a line is known to come from
    groups: Mapping[str, str] = field(default_factory=dict)  # what the pattern's named groups matched in the first


@dataclass(frozen=True)
class Raised:
    """A Python exception that nothing caught, as a traceback in a log tells it."""

    type: str  # as printed: "torch.OutOfMemoryError", "ValueError"
    message: str
    file: str  # the log
    line: int  # of the exception's own line
    rank: int | None = None
    at: str | None = None
    place: str | None = None  # the deepest frame in the user's own files: "train.py:41 in main"
    times: int = 1
    ranks: tuple[int, ...] = ()
    cause: str | None = None  # of a chain ("During handling of ...") the first: "KeyError: 'x'"
    signatures: tuple[str, ...] = ()  # ids of the rows, noise included, that lines of its message bear
    after: int = 0  # lines that its file holds after it
    caught: bool = False  # its rank went on, and ended by another one
    loader: bool = False  # it came up through torch's DataLoader
    by_torch: bool = False  # torch named the rank before it ("[rank1]: "), as it does with what nobody caught
    of_launcher: bool = False  # a launcher raised it on the end of its child: never what went wrong


@dataclass(frozen=True)
class Stalled:
    """A collective that a rank's watchdog gave up, as ProcessGroupNCCL tells it."""

    rank: int | None
    sequence: int | None  # SeqNum: how many collectives this rank had begun
    operation: str | None = None  # "ALLREDUCE"
    timeout_s: float | None = None
    completed: int | None = None  # the last that was done
    at: str | None = None


@dataclass(frozen=True)
class Fallen:
    """A row of torchrun's table of failed ranks."""

    rank: int
    exit_code: int  # negative for a signal
    first: bool  # the launcher calls it the root cause
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    at: str | None = None
    error: str | None = None  # what the rank left in its error file


@dataclass(frozen=True)
class Log:
    """What the logs of one run tell."""

    files: tuple[str, ...]
    size_bytes: int
    lines: int
    seen: tuple[Seen, ...] = ()  # in the order they came
    raised: tuple[Raised, ...] = ()
    fallen: tuple[Fallen, ...] = ()
    stalled: tuple[Stalled, ...] = ()
    ranks: tuple[int, ...] = ()  # that are known to have written
    last: str | None = None  # the last line before the launcher's own, of one that tells of a failed rank


SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
    16: "SIGSTKFLT", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 29: "SIGIO", 30: "SIGPWR",
    31: "SIGSYS",
}  # fmt: skip


@dataclass(frozen=True)
class EndedRank:
    """How one rank ended."""

    rank: int
    exit_code: int | None = None  # negative for a signal; None: not known
    first: bool = False  # the first that failed
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None  # NVML's index
    at: str | None = None
    error: str | None = None  # torchelastic's error file: "ValueError: ..."
    state: str | None = None  # of its process when mgpu was asked to stop the run: running, sleeping, stopped ...
    idle: bool | None = None  # it used no CPU time in the last moments before that
    gone_s: float | None = None  # seconds after the start when its process was seen to be gone while others went on


@dataclass(frozen=True)
class GpuWork:
    """What one GPU of a run did, sampled by NVML from outside. None: NVML does not tell."""

    index: int  # NVML's
    uuid: str
    rank: int | None = None  # that is to have it, when there is one a GPU
    processes: tuple[int, ...] | None = None  # of the run, the most that were seen on it at once
    samples: int = 0  # from the first to the last in which any GPU of the run was busy; none ever was: all
    busy_percent: float | None = None  # mean of the utilisation over these samples
    busy_share: float | None = None  # of these samples, those in which it was busy: 0.0 to 1.0
    peak_bytes: int | None = None  # memory in use, other programs' included
    total_bytes: int | None = None
    before_bytes: int | None = None  # memory in use before the run
    idle_s: float | None = None  # it was not busy for so long, at last; None: it never was
    now_percent: float | None = None  # mean of the utilisation in the last half minute
    power_percent: float | None = None  # of its limit, mean of the last half minute
    usual_power_percent: float | None = None  # mean of all samples in which it was busy


@dataclass(frozen=True)
class Run:
    """How a launched training ended, as far as mgpu saw it."""

    exit_code: int  # the training's own: 0, the first failing rank's, 128 + N for a signal N
    launcher_code: int  # negative for a signal
    seconds: float
    signalled: str | None = None  # mgpu was asked to stop it: SIGINT, SIGTERM ...
    timed_out: bool = False  # --timeout
    ranks: tuple[EndedRank, ...] = ()
    expected: int | None = None  # ranks on this machine
    oom_kills: int | None = None  # by the kernel in this control group meanwhile; None: no counter
    memory_limit_bytes: int | None = None  # of the control group; None: no limit
    memory_total_bytes: int | None = None  # of the machine
    memory_lowest_bytes: int | None = None  # the least that was available meanwhile
    xids: tuple[str, ...] | None = None  # "79 on 0000:1b:00.0: fallen off the bus"; None: the kernel's log is not ours
    killed: tuple[str, ...] | None = None  # by the kernel for memory: "python (pid 4711)"; None as above
    gpus: tuple[GpuWork, ...] | None = None  # None: no NVML here
    gpus_after_s: float | None = None  # the GPUs were sampled from this long after the start
    gpus_gap: str | None = None  # why GPUs that are there were not watched, or not to the end
    going: bool = False  # a look at a run that has not ended: exit codes tell nothing yet
    quiet_s: float | None = None  # it has printed nothing for so long
    slurm: str | None = None  # what Slurm says of the job: "TIMEOUT", "OUT_OF_MEMORY"
    left_over: int = 0  # processes that mgpu had to end afterwards
    log: str | None = None  # the folder
    watched: bool = True  # False: a job elsewhere, of which only what it printed and what Slurm says is known


@dataclass(frozen=True)
class Difference:
    """A fact in which some nodes are not like most of their role."""

    key: str  # dotted, as in the Snapshot: "pytorch.version", "gpus.count"
    what: str  # what people call it: "torch", "GPUs"
    value: str | None  # theirs; None: they do not have it
    usual: str | None  # that of most


@dataclass(frozen=True)
class NodeClass:
    """Nodes that differ from most of their role in exactly the same facts."""

    role: str  # what is compared with each other: "8 x H100-SXM"
    nodes: tuple[str, ...]
    differences: tuple[Difference, ...]
    of: int  # nodes in the role
    second: bool = False  # so many that it is a population of its own, no outlier
    tied: bool = False  # no value has a majority (two nodes): only the difference is known, not who is wrong


@dataclass(frozen=True)
class Outlier:
    """A measured value of one node far from those of its role."""

    node: str
    key: str
    what: str
    value: float
    median: float
    deviation: float  # in robust standard deviations (1.4826 MAD)
    unit: str = ""


@dataclass(frozen=True)
class NodeFault:
    """What one node's own examination says against a run on it: an error of the doctor, or why it gave no answer."""

    node: str
    id: str  # of the check; "" where there was no answer
    text: str


@dataclass(frozen=True)
class NodeDoor:
    """How a node shows itself to the others: the name it calls itself, and where its ranks will say that they are."""

    node: str
    hostname: str
    full_name: str = ""  # with its domain: torchrun's agents tell it to each other
    own_addresses: tuple[str, ...] = ()  # of its own name, as it resolves it; empty: it does not
    own_error: str | None = None  # the resolver's words
    address: str = ""  # what its ranks will tell the others (gloo, or NCCL where there are GPUs)
    origin: str = "hostname"  # of that: GLOO_SOCKET_IFNAME, hostname, unresolvable, NCCL_SOCKET_IFNAME, interface
    named: Mapping[str, str] = field(default_factory=dict)  # the two variables, as they are set
    on_gpu: bool = False
    interfaces: tuple[Interface, ...] = ()
    meeting_port: int | None = None  # where the ranks are to meet, if this is the head
    meeting_error: str | None = None  # why that port could not be had

    def interface_of(self, address: str) -> Interface | None:
        """The interface that has this address."""
        return next((one for one in self.interfaces if address in one.addresses), None)


@dataclass(frozen=True)
class NodePath:
    """Whether one node reaches another as the ranks will: measured from `node`."""

    node: str
    peer: str
    via: str = "name"  # name, full_name: what is tried is what that means here; head: where all meet; else an interface
    name: str = ""  # what was resolved
    tried: tuple[str, ...] = ()  # the addresses; empty: the name did not resolve
    connected: bool | None = None  # on a port like those the ranks take; None: not tried
    error: str | None = None
    bulk: bool | None = None  # more than fits a packet went through as well
    stalled: str | None = None  # there, back: the direction in which nothing came through
    round_trip_s: float | None = None
    mbit_per_s: float | None = None


OTHER_MGPU = "mgpu there is "  # why a node is missing that answered: its answers may mean something else


@dataclass(frozen=True)
class Fleet:
    """Several nodes, examined in one go and compared."""

    nodes: tuple[str, ...]  # that answered, in order
    missing: Mapping[str, str] = field(default_factory=dict)  # nodes that did not -> why
    classes: tuple[NodeClass, ...] = ()  # of nodes with differences; those that are like most have none
    outliers: tuple[Outlier, ...] = ()
    faults: tuple[NodeFault, ...] | None = ()  # None: the nodes were not judged one by one
    clock_offsets_s: Mapping[str, float] | None = None  # against the median; only where all were asked at once
    unshared: Mapping[str, tuple[str, ...]] | None = None  # folder that the job needs -> nodes that do not see it
    doors: tuple[NodeDoor, ...] = ()
    paths: tuple[NodePath, ...] | None = None  # None: not tried
    compared: int = 0  # how many facts were compared
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> its nodes, the most first
    known: tuple[str, ...] = ()  # facts that two nodes of a role have at least: driver, gpus, files ...
    scattered: tuple[str, ...] = ()  # facts that almost every node has another value of: nothing to compare
    together: bool = False  # they are to run one job
    unread: Mapping[str, str] = field(default_factory=dict)  # facts no node of a role knows, asked in vain -> why
    strangers: tuple[str, ...] = ()  # files among those of the nodes that were never a machine: n1.json


@dataclass(frozen=True)
class Snapshot:
    """All facts. A check names the ones it reads; a fact that is None skips the check with the gap's reason."""

    host: Host | None = None
    python: Python | None = None
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] | None = None
    links: tuple[Link, ...] | None = None
    env: Mapping[str, str] | None = None
    visible: Visible | None = None
    pytorch: Pytorch | None = None
    torch_runtime: TorchRuntime | None = None
    nccl: Nccl | None = None
    packages: Mapping[str, str] | None = None
    system: System | None = None
    container: Container | None = None
    network: Network | None = None
    slurm: Slurm | None = None
    pci: Pci | None = None
    infiniband: InfiniBand | None = None
    kernel: Kernel | None = None
    kernel_log: KernelLog | None = None
    storage: Storage | None = None
    leftovers: Leftovers | None = None
    libraries: Libraries | None = None
    gpu_runs: tuple[GpuRun, ...] | None = None
    plan: Plan | None = None
    config: Config | None = None
    ranks: Ranks | None = None
    nccl_log: NcclLog | None = None
    baseline: Baseline | None = None
    stamp: Stamp | None = None
    script: Script | None = None
    job_script: JobScript | None = None
    log: Log | None = None
    run: Run | None = None
    fleet: Fleet | None = None
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    schema: int = SCHEMA
    taken: str | None = None  # ISO time, UTC
    mgpu: str | None = None
    redacted: bool = False

    def gap(self, fact: str) -> Gap:
        """Why `fact` is not known; a reason is always given."""
        return self.gaps.get(fact) or Gap("not_asked", f"{fact.replace('_', ' ')} was not looked at")

    def left_out(self, fact: str) -> bool:
        """Whether `fact` was deliberately not asked for. One of which nothing is said at all is just not known."""
        return getattr(self, fact) is None and fact in self.gaps and self.gaps[fact].kind == "not_asked"


FACTS: tuple[str, ...] = tuple(
    f.name for f in dataclasses.fields(Snapshot) if f.name not in {"gaps", "schema", "taken", "mgpu", "redacted"}
)


# Facts of a run and its config, not of the machine: there only where they were asked for.
OF_A_RUN = frozenset({
    "config", "ranks", "nccl_log", "baseline", "stamp", "gpu_runs", "script", "job_script", "log", "run", "fleet",
})  # fmt: skip

_TOO_LARGE = 1 << 64  # no counter of a kernel or driver reaches it


class BadSnapshot(ValueError):
    """A saved Snapshot that cannot be read: which key, and what is wrong with it."""

    def __init__(self, message: str) -> None:
        super().__init__(clipped(message, 300))


T = TypeVar("T")


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The Snapshot as plain JSON values."""
    plain: dict[str, Any] = dataclasses.asdict(snapshot)
    return plain


def from_json(data: Any) -> Snapshot:
    """The Snapshot back. Raises BadSnapshot with the path of the first key that does not fit."""
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise BadSnapshot(f"schema {data.get('schema')!r} is not {SCHEMA}: saved by another version of mgpu")
    return decode(Snapshot, data, "")


def loads(text: str) -> Snapshot:
    """A Snapshot from the text of a saved file. Raises BadSnapshot."""
    try:
        data = json_of(text)
    except Malformed as error:
        where = f" (line {error.line}, column {error.column})" if error.line else ""
        raise BadSnapshot(f"{error}{where}") from None
    return from_json(data)


@cache
def hints_of(kind: Callable[..., Any]) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    return typing.get_type_hints(kind)


def decode(kind: Callable[..., T], data: Any, path: str) -> T:
    """Build a dataclass from JSON, strictly: unknown keys, wrong types and missing fields raise BadSnapshot."""
    if not isinstance(data, dict):
        raise BadSnapshot(f"{path or 'the file'}: expected an object, got {type(data).__name__}")
    hints = hints_of(kind)
    if unknown := sorted(set(data) - set(hints)):
        raise BadSnapshot(f"{path}{'.' if path else ''}{unknown[0]}: unknown key")
    try:
        return kind(**{key: _value(hints[key], value, f"{path}.{key}" if path else key) for key, value in data.items()})
    except TypeError as error:
        raise BadSnapshot(f"{path or 'the file'}: {str(error).partition('() ')[2]}") from None


_LONGEST_NAME = 4096  # characters; a path has no more
_NAMES = frozenset({"name", "hostname", "host", "node", "os", "kernel", "machine", "uuid", "serial", "version", "user"})


def _value(hint: Any, data: Any, path: str) -> Any:
    """One value, by its type hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _value(next(a for a in args if a is not type(None)), data, path)
    if origin is Literal:
        if data not in args or isinstance(data, bool):
            raise BadSnapshot(f"{path}: {data!r} is none of {', '.join(map(repr, args))}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise BadSnapshot(f"{path}: expected a list, got {type(data).__name__}")
        if args[-1] is Ellipsis:
            return tuple(_value(args[0], item, f"{path}[{i}]") for i, item in enumerate(data))
        if len(data) != len(args):
            raise BadSnapshot(f"{path}: expected {len(args)} items, got {len(data)}")
        return tuple(_value(a, item, f"{path}[{i}]") for i, (a, item) in enumerate(zip(args, data, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise BadSnapshot(f"{path}: expected an object, got {type(data).__name__}")
        return {key: _value(args[1], item, f"{path}.{key}") for key, item in data.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return decode(hint, data, path)
    if type(data) is str and len(data) > _LONGEST_NAME and path.rpartition(".")[2] in _NAMES:
        raise BadSnapshot(f"{path}: a name of {len(data):,} characters")
    if type(data) is int and abs(data) >= _TOO_LARGE:
        raise BadSnapshot(f"{path}: a number of {len(str(abs(data)))} digits")
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise BadSnapshot(f"{path}: expected {hint.__name__}, got {type(data).__name__}")
    if hint is float and not math.isfinite(data):
        raise BadSnapshot(f"{path}: {data} is no number")
    return data
