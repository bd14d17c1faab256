"""What GPUs does the machine have, in what state are they, and what did they do when they were used?

Units are in the names of the fields. GPU indices are NVML's (PCI order), never CUDA's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass


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
