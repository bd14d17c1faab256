"""What kind of thing is each fact, when nodes are compared?

* identity: names one node or one piece of hardware (host, UUID, address, pid): never compared.
* moment: moves by itself or with the load (free memory, counters, errors' words): never compared; what is wrong in it
  the node's own examination tells.
* categorical: the same on nodes that are alike (versions, counts, settings): compared for equality.
* near: the same but for a little (memory: the kernel keeps what its firmware leaves): equal within 2 %.
* numeric: measured; compared with the median of the nodes that are alike.

By the types of the Snapshot where they tell, by name where they do not; `kind_of` gives None for a field nobody has
thought of, and a test asks it about every field there is.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from mgpu.snapshot import FACTS, Snapshot, hints_of
from mgpu.snapshot.changes import CALLED, MOVES, called

Kind = Literal["identity", "moment", "categorical", "near", "numeric"]

# Facts of one run or one moment, or that follow from others.
NOT_COMPARED = frozenset({
    "visible", "kernel_log", "leftovers", "plan", "ranks", "nccl_log", "baseline", "stamp", "script",
    "job_script", "log", "run", "fleet",
})  # fmt: skip

IDENTITY = frozenset({
    "Host.name", "Network.hostname", "Network.hostname_addresses", "Gpu.index", "Gpu.uuid", "Gpu.pci", "Gpu.serial",
    "Gpu.numa_node", "Gpu.cpus_near", "Gpu.minor", "Gpu.mig_uuids", "Gpu.fabric_cluster", "Gpu.fabric_clique",
    "Link.a", "Link.b", "NvLink.link", "NvLink.remote_pci", "Interface.name", "Interface.addresses",
    "Master.addresses", "Master.local", "Master.interface", "Slurm.job_id", "Slurm.node_rank", "Slurm.local_id",
    "Slurm.step_id", "Slurm.job_gpus", "PciDevice.address", "PciDevice.path", "PciDevice.names", "PciDevice.kind",
    "Pci.topology_gpus", "HcaPort.device", "HcaPort.port", "HcaPort.pci", "HcaPort.interfaces", "HcaPort.lid",
    "HcaPort.sm_lid", "InfiniBand.verbs_nodes", "NcclLibrary.path", "Folder.role", "Library.name", "Library.origin",
    "GpuRun.index", "GpuRun.uuid", "Config.path", "Config.sha256", "DeepSpeedFile.path",
})  # fmt: skip
MOMENT = (MOVES - IDENTITY) | {
    "Gpu.ecc_uncorrected_volatile", "Gpu.ecc_uncorrected_aggregate", "Gpu.rows_remapped_uncorrectable",
    "Gpu.rows_banks_without_spare", "Gpu.retired_pages", "Driver.nvml_detail", "Driver.nodes_group",
    "Network.port", "Network.hostname_error", "Master.error", "Master.route_error", "Slurm.seconds_left",
    "InfiniBand.uptime_s", "Folder.exists", "GpuRun.detail", "GpuRun.memory_free_bytes", "GpuRun.peers",
    "GpuRun.no_peers", "Libraries.requires", "Config.marks", "Config.scalars", "Config.faults", "Config.loader",
}  # fmt: skip
NEAR = frozenset({
    "System.memory_total_bytes", "System.shm_total_bytes", "System.limit_processes", "System.memory_limit_bytes",
    "System.tasks_max", "Gpu.memory_total_bytes", "Gpu.bar1_total_bytes", "Kernel.files_max",
    "Kernel.commit_limit_bytes", "Slurm.memory_bytes",
})  # fmt: skip
CATEGORICAL = frozenset({
    "Host.os", "Host.kernel", "Host.machine", "Host.virtual",
    "Python.executable", "Python.version", "Python.on_path", "Python.accelerate_on_path",
    "Python.accelerate_default_config", "Python.accelerate_command", "Python.torchrun_on_path", "Python.prefix",
    "Python.suffixes", "Python.user_site",
    "Driver.nvml_error", "Driver.version", "Driver.nvml_version", "Driver.module_version", "Driver.pci_gpus",
    "Driver.device_nodes", "Driver.nodes_denied", "Driver.imex_channels",
    "Gpu.name", "Gpu.temperature_slowdown_c", "Gpu.power_limit_w",
    "Gpu.power_limit_default_w", "Gpu.compute_mode", "Gpu.virtualization", "Gpu.memory_temperature_max_c",
    "Gpu.temperature_max_c", "Gpu.sm_clock_max_mhz", "Gpu.application_clock_mhz", "Gpu.application_clock_default_mhz",
    "Gpu.vbios", "Gpu.gsp_firmware", "Gpu.pcie_width", "Gpu.pcie_width_max", "Gpu.pcie_generation_max",
    "Gpu.pcie_generation_max_gpu", "Gpu.recovery_action", "Gpu.fabric_state", "Gpu.fabric_status",
    "Gpu.fabric_health_mask", "Gpu.nvlinks", "Gpu.lost", "NvLink.speed_mb_per_s",
    "Link.nvlinks", "Link.p2p_read", "Link.p2p_write", "Link.p2p_atomics", "Link.p2p_nvlink",
    "Pytorch.version", "Pytorch.cuda", "Pytorch.hip", "Pytorch.location", "Pytorch.arch_list", "Pytorch.nccl_required",
    "Pytorch.built_for",
    "TorchRuntime.import_error", "TorchRuntime.cuda_error", "TorchRuntime.device_count", "TorchRuntime.nccl_version",
    "TorchRuntime.nccl_loaded_version", "TorchRuntime.cudnn_version", "TorchRuntime.cudnn_error",
    "NcclLibrary.version",
    "System.cpus_logical", "System.cpus_allowed", "System.cpus_quota", "System.numa_nodes", "System.limit_open_files",
    "System.limit_locked_memory_bytes", "System.limit_stack_bytes", "System.hard_open_files",
    "System.hard_locked_memory_bytes",
    "Container.capabilities",
    "Network.default_routes", "Interface.mtu", "Interface.speed_mbit_per_s", "Master.name",
    "Slurm.nodes", "Slurm.tasks_per_node", "Slurm.gpus_on_node", "Slurm.gpus_per_task", "Slurm.gpu_bind",
    "Slurm.cpus_per_task", "Slurm.cpus_on_node",
    "Pci.nvswitches", "Pci.fabric_manager", "Pci.topology_file", "Pci.topology_error", "PciDevice.vendor",
    "PciDevice.device", "PciDevice.driver", "PciDevice.numa_node", "PciDevice.cpus_near", "PciDevice.width",
    "PciDevice.width_max", "PciDevice.speed_max_gt_per_s", "PciDevice.cpus_near_usable", "PciDevice.uplink_width",
    "PciDevice.uplink_width_max", "PciDevice.pci_class",
    "HcaPort.state", "HcaPort.phys_state", "HcaPort.rate_gbit_per_s", "HcaPort.lanes", "HcaPort.gid_types",
    "HcaPort.firmware", "HcaPort.board", "HcaPort.numa_node", "InfiniBand.verbs_unusable",
    "Kernel.modules", "Kernel.command_line", "Kernel.overcommit_memory", "Kernel.cpus_online", "Kernel.cpus_present",
    "Kernel.cpu_governor", "Kernel.cpu_driver", "Kernel.smt", "Kernel.reserved_ports",
    "Folder.path", "Folder.filesystem", "Folder.mount", "Storage.lustre_health",
    "Libraries.cuda_home", "Libraries.nvcc", "Libraries.compiler", "Libraries.ninja", "Libraries.nvcc_path",
    "Libraries.c_compiler", "Library.path", "Library.version", "Library.error",
    "GpuRun.model", "GpuRun.multiprocessors", "GpuRun.code", "GpuRun.name", "GpuRun.libcuda", "GpuRun.no_kernel",
    "GpuRun.unsteady", "GpuRun.not_finite", "GpuRun.nccl_path", "GpuRun.nccl_version",
    "Config.batch_per_gpu", "Config.accumulate", "Config.dataset_size", "Config.launch_flags", "Config.engine",
    "Config.cpu_job",
    "DeepSpeedFile.fault", "Model.params", "Model.train", "Model.optimizer", "Model.trainable",
})  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A measured value: which side is bad, and by how much it must differ to matter at all."""

    bad: Literal["high", "low"]
    share: float = 0.05  # of the median: the practical margin
    least: float = 0.0  # in its own unit
    unit: str = ""
    what: str = ""


NUMERIC = {
    # Idle and loaded GPUs are 20 to 50 C apart, neighbours in one rack up to 10 C (hot aisle).
    "Gpu.temperature_c": Measure("high", least=15, unit=" C", what="hottest GPU"),
    "Gpu.memory_temperature_c": Measure("high", least=15, unit=" C", what="hottest GPU memory"),
    # The first look after a boot, or at a cold file system, takes several times as long.
    "Driver.init_s": Measure("high", share=2.0, least=1, unit=" s", what="start of NVML"),
    "TorchRuntime.import_s": Measure("high", share=1.0, least=5, unit=" s", what="import of torch"),
    "Folder.stat_s": Measure("high", share=5.0, least=0.5, unit=" s", what="slowest folder"),
    "GpuRun.seconds": Measure("high", share=0.5, least=1, unit=" s", what="kernel on a GPU"),
    "Kernel.load_1min": Measure("high", share=1.0, least=8, what="load"),
}
# Values with names that one node has by its nature, or by its place in the job.
_OWN = re.compile(
    r"env\.(?:SLURM_(?:NODEID|PROCID|JOB_ID.*)|(?:PET_)?(?:NODE_|GROUP_|LOCAL_)?RANK|PMI_.*|OMPI_COMM_WORLD_.*RANK"
    r"|TORCHELASTIC_RUN_ID|ACCELERATE_PROCESS_.*|.*_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)|config\.values\.machine_rank"
)


def kind_of(where: str, hint: Any) -> Kind | None:
    """The kind of a field, `Class.field`; None: nobody has said, and its type does not tell."""
    if where in NUMERIC:
        return "numeric"
    if where in IDENTITY:
        return "identity"
    if where in MOMENT:
        return "moment"
    if where in NEAR:
        return "near"
    if where in CATEGORICAL:
        return "categorical"
    hint = without_none(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    flag = hint is bool or origin is Literal
    whole = dataclasses.is_dataclass(hint) or (origin is tuple and dataclasses.is_dataclass(args[0]))
    mapping = origin is not None and isinstance(origin, type) and issubclass(origin, Mapping)
    version = origin is tuple and args == (int, int)
    return "categorical" if flag or whole or mapping or version else None


def without_none(hint: Any) -> Any:
    """The type of a field that is known."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def own(key: str) -> bool:
    """Whether this variable or config key belongs to one node by its nature."""
    return bool(_OWN.fullmatch(key))


def near(key: str) -> bool:
    """Whether a key's numbers are the same when they are nearly so."""
    return words(key).where in NEAR


@cache
def compared() -> tuple[str, ...]:
    """The facts that are compared."""
    return tuple(fact for fact in FACTS if fact not in NOT_COMPARED)


# What people call a thing; all else has its name from mgpu/snapshot/changes.py.
_CALLED = {
    "gpus.count": "GPUs", "gpus.visible.count": "visible GPUs",
    "gpus.name": "GPU model", "gpus.memory_total_bytes": "GPU memory", "gpus.vbios": "VBIOS",
    "gpus.nvlinks": "active NVLinks per GPU", "nccl.loaded.version": "NCCL", "nccl.loaded.origin": "NCCL from",
    "torch_runtime.nccl_loaded_version": "NCCL as loaded", "gpus.gsp_firmware": "GSP firmware",
    "infiniband.ports.count": "InfiniBand ports", "driver.cuda_version": "CUDA of the driver", "mgpu": "mgpu",
    "python.executable": "interpreter", "links.topology": "paths between GPUs", "gpus.mig_mode": "MIG",
    "links.nvlinks": "NVLinks between GPUs", "gpus.ecc_enabled": "ECC", "packages.accelerate": "accelerate",
    "host.os": "operating system", "host.kernel": "kernel", "config.values.num_processes": "config num_processes",
    "files.script": "training script", "files.config": "config file", "pci.devices.nic.count": "network cards",
    "pci.devices.gpu.count": "GPUs on the bus", "torch_runtime.device_count": "GPUs torch sees",
    "torch_runtime.cuda_available": "CUDA of torch usable", "system.memory_total_bytes": "RAM",
}  # fmt: skip
_SUBJECTS = {
    "Gpu": "GPU ", "Link": "GPU links ", "Pytorch": "torch ", "TorchRuntime": "torch ", "Kernel": "kernel ",
    "Slurm": "Slurm ", "Container": "container ", "Pci": "PCI ", "Nccl": "NCCL ", "InfiniBand": "InfiniBand ",
    "Config": "config ", "GpuRun": "GPU run ", "Model": "model ", "Master": "meeting point ",
}  # fmt: skip


@dataclass(frozen=True)
class Words:
    """How a key is told."""

    what: str
    where: str  # Class.field, by which a value is said; "" for an entry of a mapping


@lru_cache(maxsize=20_000)  # some hundred keys, asked for once a role
def words(key: str) -> Words:
    """What people call a key: "eth0 mtu" for network.interfaces.eth0.mtu."""
    fact, _, rest = key.partition(".")
    hint = without_none(hints_of(Snapshot).get(fact, str))
    if key in COUNTS:
        return Words(_CALLED.get(key, f"number of {rest.removesuffix('.count').replace('_', ' ')}"), "")
    where, subject = _place(hint, rest, fact)
    if key in _CALLED:
        return Words(_CALLED[key], where)
    kind = where.partition(".")[0]
    if not where:
        return Words(f"{subject or fact} ".replace("_", " ").strip() if not rest else subject, "")
    prefix = f"{subject} " if subject else "" if where in CALLED else _SUBJECTS.get(kind, "")
    return Words(f"{prefix}{called(where)}", where)


COUNTS = frozenset({
    "gpus.count", "gpus.visible.count", "infiniband.ports.count", "pci.devices.nic.count", "pci.devices.gpu.count",
})  # fmt: skip


def _place(hint: Any, rest: str, subject: str) -> tuple[str, str]:
    """`Class.field` of what is left of a key, and the name of the thing that has it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and args and dataclasses.is_dataclass(args[0]):
        name, _, field = rest.rpartition(".")
        kind = typing.cast("Any", args[0])
        if field in hints_of(kind):
            folder = kind.__name__ == "Folder" and "/" not in name
            return f"{kind.__name__}.{field}", f"{name.replace('_', ' ')} folder" if folder else name
        field, _, entry = rest.partition(".")  # an entry of a mapping in it: gpu_runs.results.bf16
        return "", f"{field.replace('_', ' ')} {entry}".strip()
    if not dataclasses.is_dataclass(hint):
        return "", rest or subject
    kind = typing.cast("Any", hint)
    field, _, inner = rest.partition(".")
    hints = hints_of(kind)
    if field not in hints:
        return "", rest or subject.replace("_", " ")
    if not inner:
        return f"{kind.__name__}.{field}", ""
    if kind.__name__ == "Config":
        return "", f"config {inner}"
    if kind.__name__ == "Pytorch" or field in ("wheels", "user_packages"):
        return "", inner
    where, name = _place(without_none(hints[field]), inner, field)
    if not where and name == inner:
        name = f"{field.replace('_', ' ')} {inner}"
    return where, name
