"""Which GPUs does the machine have, what is their state, and how did they perform in tests?

Field names end in units. GPU indices are NVML's (PCI order), never CUDA's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import (
    Assigned,
    History,
    Identity,
    Label,
    Measure,
    Moment,
    Name,
    Near,
    Pid,
    Same,
    Serial,
    Text,
    Version,
    Wording,
)


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver as reported by NVML, /proc and the PCI bus."""

    # NVML's name for the error code of nvmlInit; None: success
    nvml_error: Annotated[Same[Label | None], Wording("NVML", none="responding")]
    nvml_detail: History[Text | None]
    version: Annotated[Same[Version | None], Wording("driver")]
    # highest CUDA version the driver supports (nvmlSystemGetCudaDriverVersion)
    cuda_version: Annotated[tuple[int, int] | None, Wording("driver CUDA")]
    nvml_version: Annotated[Same[Version | None], Wording("NVML version")]
    # /sys/module/nvidia/version: the loaded module
    module_version: Annotated[Same[Version | None], Wording("driver module")]
    # NVIDIA display/3D controllers on the PCI bus
    pci_gpus: Annotated[Same[int | None], Wording("GPUs on the PCI bus")]
    device_nodes: Annotated[Same[tuple[Label, ...]], Wording("device nodes")] = ()  # /dev/nvidia*, /dev/dxg
    uvm_loaded: bool | None = None
    nodes_denied: Same[tuple[Label, ...] | None] = None  # nodes that CUDA opens and this user cannot; None: not checked
    nodes_group: History[Text | None] = None  # group of the first denied node, if membership would grant access
    modprobe: bool | None = None  # nvidia-modprobe, the setuid helper that loads nvidia-uvm on first use, is installed
    imex_channels: Same[int | None] = None  # number of /dev/nvidia-caps-imex-channels/channel*
    imex_usable: bool | None = None  # this user can open one of them; None: there are none
    # Duration of nvmlInit.
    # The first call after a boot takes several times as long.
    init_s: Annotated[Moment[float | None], Measure("high", share=2.0, least=1, what="NVML start time")] = None

    @property
    def any_gpu(self) -> bool:
        """Whether there is any sign that this machine has an NVIDIA GPU."""
        if self.nvml_error == "DRIVER_NOT_LOADED" and not self.device_nodes:  # a login node may have only the package
            return self.pci_gpus != 0 or self.module_version is not None
        if self.nvml_error != "LIBRARY_NOT_FOUND":
            return True
        numbered = any(node.removeprefix("/dev/nvidia").isdecimal() for node in self.device_nodes)
        return numbered or bool(self.pci_gpus) or self.module_version is not None


@dataclass(frozen=True)
class NvmlWait:
    """The NVML call that mgpu stopped waiting for, and what the kernel reports about the process that made it."""

    call: Label | None  # "nvmlInit", "GPU 2"; None: every call returned, or NVML could not be called
    called: bool = True  # False: the library is missing or refused to start
    waited_s: float | None = None
    state: Label | None = None  # of that process in /proc/PID/stat; "D": uninterruptible sleep, SIGKILL has no effect
    kernel_function: Label | None = None  # /proc/PID/wchan: where it sleeps


@dataclass(frozen=True)
class GpuProcess:
    """A process that NVML lists on a GPU. `user` is None if the process is not visible in this PID namespace."""

    pid: Pid
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None
    name: Text | None
    user: Name | None
    mine: bool | None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of one GPU."""

    link: Identity[int]
    active: bool
    remote: Literal["gpu", "switch", "other", "unknown"]
    remote_pci: Identity[Label | None]
    speed_mb_per_s: Same[int | None] = None
    errors: Moment[int | None] = None  # replays, recoveries and CRC errors since the driver was loaded


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML reports it. A field is None if the call is not supported or failed; `gaps` has the errors."""

    index: Assigned[int]
    uuid: Identity[Label | None]
    name: Annotated[Same[Label | None], Wording(of_nodes="GPU model")]
    pci: Annotated[Identity[Label | None], Wording("PCI address")]
    compute_capability: tuple[int, int] | None
    memory_total_bytes: Annotated[Near[int | None], Wording(of_nodes="GPU memory")]
    memory_used_bytes: Moment[int | None]
    memory_free_bytes: Moment[int | None]
    numa_node: Identity[int | None] = None
    cpus_near: Identity[Label | None] = None
    # Idle and loaded GPUs differ by 20 to 50 C, neighbors in one rack by up to 10 C (hot aisle).
    temperature_c: Annotated[Moment[int | None], Measure("high", least=15, what="hottest GPU")] = None
    temperature_slowdown_c: Same[int | None] = None
    power_w: Moment[float | None] = None
    power_limit_w: Same[float | None] = None
    power_limit_default_w: Same[float | None] = None
    utilization_percent: Moment[int | None] = None
    clock_event_reasons: Moment[int | None] = None  # bit mask, nvml.h nvmlClocksEventReason*
    persistence_mode: bool | None = None
    compute_mode: Same[int | None] = None  # 0 default, 2 prohibited, 3 exclusive process
    mig_mode: Annotated[bool | None, Wording("MIG")] = None
    mig_mode_pending: bool | None = None
    mig_uuids: Identity[tuple[Label, ...]] = ()
    ecc_enabled: Annotated[bool | None, Wording(of_nodes="ECC")] = None
    ecc_pending: bool | None = None
    ecc_uncorrected_volatile: Annotated[History[int | None], Wording("uncorrected ECC errors")] = None
    ecc_uncorrected_aggregate: Annotated[History[int | None], Wording("uncorrected ECC errors (lifetime)")] = None
    rows_remapped_uncorrectable: History[int | None] = None
    rows_remap_pending: bool | None = None
    rows_remap_failed: bool | None = None
    retired_pages_pending: bool | None = None
    serial: Assigned[Serial | None] = None
    minor: Assigned[int | None] = None  # its device node is /dev/nvidia<minor>
    virtualization: Same[int | None] = None  # nvmlGpuVirtualizationMode_t: 0 none, 1 passed through, 2 vGPU …
    memory_reserved_bytes: Moment[int | None] = None  # by driver and firmware; included in memory_used_bytes
    bar1_total_bytes: Near[int | None] = None
    bar1_used_bytes: Moment[int | None] = None
    ecc_corrected_volatile: Moment[int | None] = None
    ecc_sram_threshold_exceeded: bool | None = None
    rows_banks_without_spare: History[int | None] = None  # memory banks without a spare row left
    retired_pages: History[int | None] = None
    repair_pending: bool | None = None  # a repair of a memory channel or TPC takes effect at the next reset
    memory_unrepairable: bool | None = None
    inforom_valid: bool | None = None
    memory_temperature_c: Annotated[Moment[int | None], Measure("high", least=15, what="hottest GPU memory")] = None
    memory_temperature_max_c: Same[int | None] = None
    temperature_max_c: Same[int | None] = None  # highest operating temperature, below the slowdown threshold
    temperature_margin_c: Moment[int | None] = None  # degrees below the nearest slowdown threshold
    sm_clock_mhz: Moment[int | None] = None
    sm_clock_max_mhz: Same[int | None] = None
    application_clock_mhz: Same[int | None] = None  # as set by a user or an administrator
    application_clock_default_mhz: Same[int | None] = None
    performance_state: Moment[int | None] = None  # 0 fastest … 15; an idle GPU is at 8 or above
    display_active: Moment[bool | None] = None
    vbios: Annotated[Same[Version | None], Wording(of_nodes="VBIOS")] = None
    gsp_firmware: Annotated[Same[Version | None], Wording(of_nodes="GSP firmware")] = None
    pcie_width: Same[int | None] = None
    pcie_width_max: Same[int | None] = None
    pcie_generation: Moment[int | None] = None  # current; lower when idle
    pcie_replays: Moment[int | None] = None  # since the driver was loaded
    pcie_generation_max: Same[int | None] = None  # maximum of GPU and slot together
    pcie_generation_max_gpu: Same[int | None] = None  # maximum of the GPU alone
    recovery_action: Same[int | None] = None  # 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset
    fabric_state: Same[int | None] = None  # 0 not supported, 1 not started, 2 in progress, 3 completed
    fabric_status: Same[int | None] = None  # an NVML return code, meaningful if the state is completed
    fabric_health_mask: Same[int | None] = None  # nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*
    fabric_clique: Identity[int | None] = None
    # UUID of the multi-node NVLink domain; None: no domain
    fabric_cluster: Identity[Label | None] = None
    c2c_enabled: bool | None = None  # NVLink-C2C to a Grace CPU
    nvlinks: Annotated[Same[tuple[NvLink, ...] | None], Wording(of_nodes="active NVLinks per GPU")] = ()
    processes: Moment[tuple[GpuProcess, ...] | None] = None
    # NVML's error code if the GPU does not respond (GPU_IS_LOST …)
    lost: Annotated[Same[Label | None], Wording("state", none="responding")] = None
    permitted: bool = True  # False: NVML lists it, but this process cannot open it (cgroup, Slurm)
    trouble: Moment[tuple[Text, ...]] = ()  # NVML calls that failed: "ecc_enabled: NVML: UNKNOWN"

    @property
    def nvlinks_active(self) -> int | None:
        """Number of active NVLinks; None if they could not be read."""
        return None if self.nvlinks is None else sum(link.active for link in self.nvlinks)


@dataclass(frozen=True)
class Link:
    """The path between two GPUs (a < b)."""

    a: Identity[int]
    b: Identity[int]
    topology: Annotated[
        Literal["LOC", "PIX", "PXB", "PHB", "NODE", "SYS"] | None, Wording(of_nodes="paths between GPUs")
    ]
    nvlinks: Annotated[Same[int | None], Wording(of_nodes="NVLinks between GPUs")]
    through_switch: bool
    # nvmlGpuP2PStatus_t: 0 OK, 1 chipset, 2 GPU, 3 IOH, 4 regkey, 5 not supported, 6 unknown
    p2p_read: Same[int | None]
    p2p_write: Same[int | None]
    p2p_atomics: Same[int | None] = None
    p2p_nvlink: Same[int | None] = None

    @property
    def name(self) -> str:
        """The link as `nvidia-smi topo -m` prints it."""
        if self.nvlinks is None:
            return "?"
        return f"NV{self.nvlinks}" if self.nvlinks else self.topology or "?"


@dataclass(frozen=True)
class Visible:
    """The GPUs that CUDA_VISIBLE_DEVICES selects, by the CUDA driver's rules (CUDA Programming Guide)."""

    value: Label | None  # None: not set
    gpus: tuple[int, ...]  # NVML indices, in CUDA's order; cuda:0 is the first
    mig: Label | None = None  # the first MIG instance listed
    stopped_by: Label | None = None  # the first entry CUDA rejects; CUDA ignores it and all entries after it
    why: Label | None = None  # why CUDA rejects that entry
    ignored: tuple[Label, ...] = ()
    by_number: bool = False  # entries are integers, whose meaning depends on CUDA_DEVICE_ORDER
    more_mig: tuple[Label, ...] = ()  # further instances: drivers since 570 expose all of them to a process


@dataclass(frozen=True)
class PeerCopy:
    """The result of a real copy from one GPU to another (`--deep`)."""

    to: int  # NVML index
    access: bool | None = None  # CUDA reports peer access between the two
    intact: bool | None = None  # the data arrived unchanged; None: no copy completed
    error: Text | None = None


@dataclass(frozen=True)
class GpuRun:
    """The result of using one GPU (`--deep`), in a process of its own."""

    index: Identity[int]  # NVML's
    uuid: Identity[Label | None]  # as set in the process's CUDA_VISIBLE_DEVICES
    ended: Literal["done", "failed", "hung", "died", "skipped"]
    stage: Literal["library", "init", "context", "memory", "torch", "kernel", "peers"]  # the last stage reached
    model: Same[Label | None] = None  # only GPUs of the same model are compared
    multiprocessors: Same[int | None] = None
    code: Same[int | None] = None  # CUDA error number
    name: Same[Label | None] = None  # name of the CUDA error: CUDA_ERROR_SYSTEM_NOT_READY
    detail: History[Text | None] = None  # the failed call, torch's message, the reason it was skipped, or the signal
    seconds: Annotated[float | None, Measure("high", share=0.5, least=1, unit=" s", what="GPU kernel time")] = None
    cuda_version: tuple[int, int] | None = None  # of the loaded libcuda
    libcuda: Same[Text | None] = None  # the file the process mapped
    memory_free_bytes: History[int | None] = None
    memory_intact: bool | None = None  # a test pattern was read back from its memory unchanged
    no_kernel: Same[Text | None] = None  # why no kernel was run: torch is not installed …
    results: Mapping[str, Label] = field(default_factory=dict)  # fp32, bf16, fp16 -> digest of the result
    unsteady: Same[tuple[Label, ...]] = ()  # precisions in which the second result differed
    not_finite: Same[tuple[Label, ...]] = ()  # precisions in which the result had NaN or infinity
    nccl_path: Same[Text | None] = None  # the libnccl the process mapped
    nccl_version: Same[Version | None] = None  # reported by that file
    peers: History[tuple[PeerCopy, ...]] = ()
    no_peers: History[Text | None] = None  # why no copy to another GPU was attempted
