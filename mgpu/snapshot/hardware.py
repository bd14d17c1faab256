"""What GPUs does the machine have, in what state are they, and what did they do when they were used?

Units are in the names of the fields. GPU indices are NVML's (PCI order), never CUDA's.
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
    """The NVIDIA driver as NVML, /proc and the PCI bus tell it."""

    # NVML's own name of the code nvmlInit returned, None when it answered
    nvml_error: Annotated[Same[Label | None], Wording("NVML", none="it answers")]
    nvml_detail: History[Text | None]
    version: Annotated[Same[Version | None], Wording("driver")]
    # highest CUDA the driver serves (cuDriverGetVersion through NVML)
    cuda_version: Annotated[tuple[int, int] | None, Wording("CUDA of the driver")]
    nvml_version: Annotated[Same[Version | None], Wording("NVML version")]
    # /sys/module/nvidia/version: the module that is loaded
    module_version: Annotated[Same[Version | None], Wording("driver module")]
    # NVIDIA display/3D controllers on the PCI bus
    pci_gpus: Annotated[Same[int | None], Wording("GPUs on the PCI bus")]
    device_nodes: Annotated[Same[tuple[Label, ...]], Wording("device nodes")] = ()  # /dev/nvidia*, /dev/dxg
    uvm_loaded: bool | None = None
    nodes_denied: Same[tuple[Label, ...] | None] = None  # those CUDA opens and this user may not; None: not looked
    nodes_group: History[Text | None] = None  # the group that owns the first of them, when being in it would help
    modprobe: bool | None = None  # the setuid helper that loads nvidia-uvm at the first use is installed
    imex_channels: Same[int | None] = None  # how many /dev/nvidia-caps-imex-channels/channel* there are
    imex_usable: bool | None = None  # this user may open one of them; None: there are none
    # how long nvmlInit took
    # The first look after a boot takes several times as long.
    init_s: Annotated[Moment[float | None], Measure("high", share=2.0, least=1, what="start of NVML")] = None

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
class NvmlWait:
    """The NVML call that mgpu stopped waiting for, and what the kernel reports about the process that made it."""

    call: Label | None  # "nvmlInit", "GPU 2"; None: every call returned, or NVML could not be called
    called: bool = True  # False: the library is missing or refused to start
    waited_s: float | None = None
    state: Label | None = None  # of that process in /proc/PID/stat; "D": uninterruptible sleep, SIGKILL has no effect
    kernel_function: Label | None = None  # /proc/PID/wchan: where it sleeps


@dataclass(frozen=True)
class GpuProcess:
    """A process NVML lists on a GPU. `user` is None for one this pid namespace does not show."""

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
    """One GPU as NVML shows it. A field is None when the call is not supported or failed; `gaps` has the errors."""

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
    # Idle and loaded GPUs are 20 to 50 C apart, neighbours in one rack up to 10 C (hot aisle).
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
    ecc_uncorrected_aggregate: Annotated[History[int | None], Wording("uncorrected ECC errors ever")] = None
    rows_remapped_uncorrectable: History[int | None] = None
    rows_remap_pending: bool | None = None
    rows_remap_failed: bool | None = None
    retired_pages_pending: bool | None = None
    serial: Assigned[Serial | None] = None
    minor: Assigned[int | None] = None  # its node is /dev/nvidia<minor>
    virtualization: Same[int | None] = None  # nvmlGpuVirtualizationMode_t: 0 none, 1 passed through, 2 vGPU …
    memory_reserved_bytes: Moment[int | None] = None  # by driver and firmware; part of what is used
    bar1_total_bytes: Near[int | None] = None
    bar1_used_bytes: Moment[int | None] = None
    ecc_corrected_volatile: Moment[int | None] = None
    ecc_sram_threshold_exceeded: bool | None = None
    rows_banks_without_spare: History[int | None] = None  # memory banks that have no spare row left
    retired_pages: History[int | None] = None
    repair_pending: bool | None = None  # a repair of a memory channel or TPC waits for a reset
    memory_unrepairable: bool | None = None
    inforom_valid: bool | None = None
    memory_temperature_c: Annotated[Moment[int | None], Measure("high", least=15, what="hottest GPU memory")] = None
    memory_temperature_max_c: Same[int | None] = None
    temperature_max_c: Same[int | None] = None  # highest it should operate at, below the slowdown
    temperature_margin_c: Moment[int | None] = None  # distance to the nearest slowdown
    sm_clock_mhz: Moment[int | None] = None
    sm_clock_max_mhz: Same[int | None] = None
    application_clock_mhz: Same[int | None] = None  # as somebody set it
    application_clock_default_mhz: Same[int | None] = None
    performance_state: Moment[int | None] = None  # 0 fastest … 15; an idle GPU is at 8 or above
    display_active: Moment[bool | None] = None
    vbios: Annotated[Same[Version | None], Wording(of_nodes="VBIOS")] = None
    gsp_firmware: Annotated[Same[Version | None], Wording(of_nodes="GSP firmware")] = None
    pcie_width: Same[int | None] = None
    pcie_width_max: Same[int | None] = None
    pcie_generation: Moment[int | None] = None  # now; lower when idle
    pcie_replays: Moment[int | None] = None  # since the driver was loaded
    pcie_generation_max: Same[int | None] = None  # what GPU and slot can do together
    pcie_generation_max_gpu: Same[int | None] = None  # what the GPU alone can do
    recovery_action: Same[int | None] = None  # 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset
    fabric_state: Same[int | None] = None  # 0 not supported, 1 not started, 2 in progress, 3 completed
    fabric_status: Same[int | None] = None  # an NVML return code, meaningful when completed
    fabric_health_mask: Same[int | None] = None  # nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*
    fabric_clique: Identity[int | None] = None
    # UUID of the NVLink domain over several nodes; None where there is none
    fabric_cluster: Identity[Label | None] = None
    c2c_enabled: bool | None = None  # NVLink-C2C to a Grace CPU
    nvlinks: Annotated[Same[tuple[NvLink, ...] | None], Wording(of_nodes="active NVLinks per GPU")] = ()
    processes: Moment[tuple[GpuProcess, ...] | None] = None
    # NVML's code when the GPU itself does not answer (GPU_IS_LOST …)
    lost: Annotated[Same[Label | None], Wording("state", none="it answers")] = None
    permitted: bool = True  # False: NVML counts it, but this process may not open it (cgroup, Slurm)
    trouble: Moment[tuple[Text, ...]] = ()  # calls it answered with an error: "ecc_enabled: NVML: UNKNOWN"

    @property
    def nvlinks_active(self) -> int | None:
        """How many of its NVLinks are up; None when they could not be read."""
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
        """As `nvidia-smi topo -m` prints it."""
        if self.nvlinks is None:
            return "?"
        return f"NV{self.nvlinks}" if self.nvlinks else self.topology or "?"


@dataclass(frozen=True)
class Visible:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs, by the CUDA driver's own rules (CUDA Programming Guide)."""

    value: Label | None  # None: not set
    gpus: tuple[int, ...]  # NVML indices, in the order CUDA numbers them; cuda:0 is the first
    mig: Label | None = None  # the first MIG instance that is named
    stopped_by: Label | None = None  # the first entry CUDA does not accept; it and all after it are ignored
    why: Label | None = None  # what is wrong with that entry
    ignored: tuple[Label, ...] = ()
    by_number: bool = False  # entries are integers, so CUDA_DEVICE_ORDER decides what they mean
    more_mig: tuple[Label, ...] = ()  # further instances: drivers from 570 on show a process all of them


@dataclass(frozen=True)
class PeerCopy:
    """A copy from one GPU to another that was really made (`--deep`)."""

    to: int  # NVML index
    access: bool | None = None  # CUDA says that the two reach each other's memory
    intact: bool | None = None  # what arrived is what was sent; None: no copy came to its end
    error: Text | None = None


@dataclass(frozen=True)
class GpuRun:
    """What one GPU did when it was really used (`--deep`), in a process of its own."""

    index: Identity[int]  # NVML's
    uuid: Identity[Label | None]  # as CUDA_VISIBLE_DEVICES named it to the process
    ended: Literal["done", "failed", "hung", "died", "skipped"]
    stage: Literal["library", "init", "context", "memory", "torch", "kernel", "peers"]  # how far it came
    model: Same[Label | None] = None  # GPUs are compared with others of the same
    multiprocessors: Same[int | None] = None
    code: Same[int | None] = None  # CUDA's own error number
    name: Same[Label | None] = None  # … as libcuda names it: CUDA_ERROR_SYSTEM_NOT_READY
    detail: History[Text | None] = None  # the call that failed, torch's words, why it was skipped, the signal
    seconds: Annotated[float | None, Measure("high", share=0.5, least=1, unit=" s", what="kernel on a GPU")] = None
    cuda_version: tuple[int, int] | None = None  # of the libcuda that answered
    libcuda: Same[Text | None] = None  # the file this process really mapped
    memory_free_bytes: History[int | None] = None
    memory_intact: bool | None = None  # a pattern came back from its memory as it was written
    no_kernel: Same[Text | None] = None  # why no kernel was tried: torch is not installed …
    results: Mapping[str, Label] = field(default_factory=dict)  # fp32, bf16, fp16 -> digest of the same computation
    unsteady: Same[tuple[Label, ...]] = ()  # precisions in which it gave another result the second time
    not_finite: Same[tuple[Label, ...]] = ()  # precisions in which it gave NaN or infinity
    nccl_path: Same[Text | None] = None  # the libnccl this process really mapped
    nccl_version: Same[Version | None] = None  # what that file answers
    peers: History[tuple[PeerCopy, ...]] = ()
    no_peers: History[Text | None] = None  # why no copy to another GPU was tried
