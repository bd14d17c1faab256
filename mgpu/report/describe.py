"""Which facts does each row of the doctor's screen show?"""

from __future__ import annotations

from collections import Counter

from mgpu.quantities import gib
from mgpu.snapshot import Snapshot, Visible
from mgpu.text import counted, with_article


def rows(snapshot: Snapshot) -> dict[str, str]:
    """Return a sentence for each row whose facts are known, by the row's label."""
    texts = {
        "Driver": _driver(snapshot),
        "GPUs": _gpus(snapshot),
        "Visible": _visible(snapshot),
        "Links": _links(snapshot),
        "PyTorch": _pytorch(snapshot),
        "NCCL": _nccl(snapshot),
        "Accelerate": _accelerate(snapshot),
        "Host": _host(snapshot),
        "Network": _network(snapshot),
        "Slurm": _slurm(snapshot),
    }
    return {label: text for label, text in texts.items() if text}


def where(snapshot: Snapshot) -> str:
    """The machine in a headline: `node7 (Ubuntu 22.04, inside a docker container)`."""
    host, container = snapshot.host, snapshot.container
    if host is None and snapshot.fleet:
        return f"{len(snapshot.fleet.nodes):,} nodes"
    if host is None:
        return "this machine"
    inside = None
    if container is not None:
        kind = container.kind if container.kind != "other" else "unidentified"
        inside = "WSL2" if container.wsl else f"inside {with_article(kind)} container" if kind else None
    return f"{host.name} ({', '.join(part for part in (host.os, inside or host.virtual) if part)})"


def machine(snapshot: Snapshot) -> str:
    """The machine in one line, for configure: `4 x A100, NVLink, 64 CPUs, 503 GiB`."""
    parts = [_models(snapshot) if snapshot.gpus else "no NVIDIA GPU"]
    if snapshot.links and all(link.nvlinks for link in snapshot.links):
        parts.append("NVLink")
    if snapshot.system:
        parts += [counted(snapshot.system.cpus_usable, "CPU"), gib(snapshot.system.memory_total_bytes)]
    return ", ".join(parts)


def _driver(snapshot: Snapshot) -> str | None:
    driver = snapshot.driver
    if driver is None or driver.nvml_error is not None:
        return None
    cuda = f", supports CUDA up to {driver.cuda_version[0]}.{driver.cuda_version[1]}" if driver.cuda_version else ""
    return f"{driver.version}{cuda}"


def _models(snapshot: Snapshot) -> str:
    models = Counter(gpu.name or "unnamed GPU" for gpu in snapshot.gpus or ())
    return " and ".join(f"{number} x {name}" for name, number in models.items())


def _gpus(snapshot: Snapshot) -> str | None:
    if not snapshot.gpus:
        return "none" if snapshot.driver is not None and not snapshot.driver.any_gpu else None
    busy = any(p.kind == "compute" for gpu in snapshot.gpus for p in gpu.processes or ())
    idle = all(gpu.processes is not None for gpu in snapshot.gpus) and not busy
    clean = [word for word, seen in (("ECC", _no_ecc_errors(snapshot)), ("Xid", _no_xids(snapshot))) if seen]
    errors = f", no {' or '.join(clean)} errors" if clean else ""
    return f"{_models(snapshot)}{', idle' if idle else ''}{errors}"


def _no_ecc_errors(snapshot: Snapshot) -> bool:
    """Whether every GPU counts uncorrected ECC errors and has counted none."""
    return all(gpu.ecc_uncorrected_volatile == 0 for gpu in snapshot.gpus or ())


def _no_xids(snapshot: Snapshot) -> bool:
    """Whether the kernel log could be read and has no Xid errors."""
    log = snapshot.kernel_log
    return log is not None and not any(event.kind in ("xid", "sxid") for event in log.events)


def _visible(snapshot: Snapshot) -> str | None:
    visible = snapshot.visible
    if visible is None or not snapshot.gpus:
        return None
    if visible.value is None:
        number = len(snapshot.gpus)
        return f"CUDA_VISIBLE_DEVICES not set: {'all ' + str(number) if number > 1 else 'the GPU'} will be used"
    return f"CUDA_VISIBLE_DEVICES={visible.value}: {_used(visible, len(snapshot.gpus))} will be used"


def _used(visible: Visible, there: int) -> str:
    instances = counted(1 + len(visible.more_mig), "MIG instance") if visible.mig else ""
    whole = f"{len(visible.gpus)} of {there}"
    return f"{whole} and {instances}" if instances and visible.gpus else instances or whole


def _links(snapshot: Snapshot) -> str | None:
    links = [link for link in snapshot.links or () if link.nvlinks is not None]
    if not links:
        return None
    joined = sum(bool(link.nvlinks) for link in links)
    how = f"NVLink on {joined} of {counted(len(links), 'pair')}" if joined else "PCIe"
    how = "NVLink between every pair" if joined == len(links) else how
    unknown = len(snapshot.links or ()) - len(links)
    if unknown:
        how += f" ({counted(unknown, 'pair')} unknown)"
    if any(link.through_switch for link in links):
        how += " through NVSwitch"
    peers = [link.p2p_read == 0 and link.p2p_write == 0 for link in links if link.p2p_read is not None]
    return f"{how}, peer access on" if peers and all(peers) else how


def _pytorch(snapshot: Snapshot) -> str | None:
    torch, runtime = snapshot.pytorch, snapshot.torch_runtime
    if torch is None or not torch.installed:
        return None
    parts = [torch.version or "unknown version"]
    if torch.cuda is None:
        parts[0] += " (CPU build)" if torch.hip is None else " (ROCm build)"
    if kernels := _kernels(snapshot):
        parts.append(f"has {kernels} kernels")
    if runtime is not None and runtime.import_error is None and torch.cuda:
        number = runtime.device_count or 0
        parts.append(f"sees {counted(number, 'GPU')}" if number else "sees no GPU")
    elif torch.cuda and not (torch.version or "").partition("+")[2]:
        parts.append(f"built for CUDA {torch.cuda}")
    return ", ".join(parts)


def _kernels(snapshot: Snapshot) -> str | None:
    """The architectures of the torch kernels that these GPUs would run; None unless every GPU has one."""
    built = set(snapshot.pytorch.arch_list or ()) if snapshot.pytorch else set()
    wanted = dict.fromkeys(gpu.compute_capability for gpu in snapshot.gpus or ())
    found = []
    for capability in wanted:
        if capability is None:
            return None
        major, minor = capability
        # A binary kernel runs on its own and on later minor versions of the same major version.
        fits = [f"sm_{major}{m}" for m in range(min(minor, 9), -1, -1) if f"sm_{major}{m}" in built]
        if not fits:
            return None
        found.append(fits[0])
    return " and ".join(dict.fromkeys(found)) or None


def _nccl(snapshot: Snapshot) -> str | None:
    nccl, torch = snapshot.nccl, snapshot.pytorch
    if nccl is None:
        return None
    number = sum(name.startswith("NCCL_") for name in snapshot.env or {})
    variables = f"{counted(number, 'NCCL_* variable')} set" if number else "no NCCL_* variables set"
    if nccl.libraries:
        return f"{nccl.libraries[0].version or 'unknown version'}, {variables}"
    runtime = snapshot.torch_runtime
    if runtime is not None and runtime.nccl_version:
        return f"{runtime.nccl_version} inside PyTorch, {variables}"
    if torch is not None and torch.installed and not torch.cuda:
        return f"not needed by a CPU build, {variables}"
    return variables


def _accelerate(snapshot: Snapshot) -> str | None:
    packages, python = snapshot.packages or {}, snapshot.python
    if "accelerate" not in packages:
        return None
    default = python is not None and python.accelerate_default_config
    return f"{packages['accelerate']}, {'a' if default else 'no'} leftover default config"


def _host(snapshot: Snapshot) -> str | None:
    system = snapshot.system
    if system is None:
        return None
    parts = [counted(system.cpus_usable, "CPU")]
    if system.numa_nodes and system.numa_nodes > 1:
        parts.append(f"{system.numa_nodes} NUMA nodes")
    parts.append(f"{gib(system.memory_limit_bytes or system.memory_total_bytes)} RAM")
    if system.shm_total_bytes is not None:
        parts.append(f"/dev/shm {gib(system.shm_total_bytes)}")
    here = snapshot.storage.role("current") if snapshot.storage else None
    if here is not None and here.free_bytes is not None:
        parts.append(f"disk {gib(here.free_bytes)} free")
    return ", ".join(parts)


def _network(snapshot: Snapshot) -> str | None:
    network = snapshot.network
    if network is None:
        return None
    port = f"port {network.port} {'busy' if network.port_busy else 'free'}"
    name = f"host name {'resolves' if network.hostname_addresses else 'does not resolve'}"
    return ", ".join(part for part in (port, name, _fast_network(snapshot)) if part)


_LAYERS = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE", "EFA": "EFA"}


def _fast_network(snapshot: Snapshot) -> str | None:
    """`8 x 400 Gb/s InfiniBand active`, by link layer; None without such a card."""
    ports = snapshot.infiniband.ports if snapshot.infiniband else ()
    parts = []
    for layer in dict.fromkeys(port.link_layer for port in ports):
        mine = [port for port in ports if port.link_layer == layer]
        active = [port for port in mine if port.active]
        name = _LAYERS.get(layer, "unknown")
        rates = {port.rate_gbit_per_s for port in active}
        if len(active) < len(mine):
            parts.append(f"{len(active)} of {counted(len(mine), f'{name} port')} active")
        elif len(rates) == 1 and (rate := next(iter(rates))):
            parts.append(f"{len(active)} x {rate:g} Gb/s {name} active")
        else:
            parts.append(f"{counted(len(active), f'{name} port')} active")
    return ", ".join(parts) or None


def _slurm(snapshot: Snapshot) -> str | None:
    slurm = snapshot.slurm
    if slurm is None or slurm.job_id is None:
        return None
    nodes = slurm.nodes or 1
    here = "" if slurm.gpus_on_node is None else f", {counted(slurm.gpus_on_node, 'GPU')} on this one"
    return f"job {slurm.job_id}, {counted(nodes, 'node')}{here}"
