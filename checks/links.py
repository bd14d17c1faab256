"""Can the GPUs talk to each other at the speed they were bought for?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Gpu, Link, Visible

from ._knowledge import counted, gpu_list

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
# nvmlGpuFabricState_t
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3
# nvmlGpuP2PStatus_t
_P2P_OK, _P2P_UNKNOWN = 0, 6
_P2P_WHY = {
    1: "the chipset does not support it",
    2: "these GPUs do not support it",
    3: "they hang on different sockets",
    4: "it is switched off in the driver",
    5: "it is not supported here",
}


def _refusal(link: Link) -> int | None:
    """Why the driver refuses peer access; None when it grants it, or does not tell."""
    refused = (status for status in (link.p2p_read, link.p2p_write) if status not in (None, _P2P_OK, _P2P_UNKNOWN))
    return next(refused, None)


def _granted(link: Link) -> bool:
    return (link.p2p_read, link.p2p_write) == (_P2P_OK, _P2P_OK)


def _sharing(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """The links between GPUs the run would use."""
    return [link for link in links if link.a in visible.gpus and link.b in visible.gpus]


@check(Severity.ERROR, source=_FABRIC, because_of=("gpu_lost",))
def nvlink_fabric_not_ready(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVSwitch fabric of this machine is not up.

    Why: on NVSwitch machines the fabric manager must join the GPUs first. Until then CUDA fails to start with error 802
    "system not yet initialized".

    Fix: start nvidia-fabricmanager, in the version of the driver.
    """
    known = [gpu for gpu in gpus if gpu.fabric_state]  # 0 = no fabric here, which is no fault
    bad = [
        gpu
        for gpu in known
        if gpu.fabric_state in (_NOT_STARTED, _IN_PROGRESS) or (gpu.fabric_state == _COMPLETED and gpu.fabric_status)
    ]
    if bad:
        state = {_NOT_STARTED: "not started", _IN_PROGRESS: "still starting"}.get(
            bad[0].fabric_state or 0, f"ended with NVML code {bad[0].fabric_status}"
        )
        return Problem(
            f"NVSwitch fabric {state} on {counted(len(bad), 'GPU')}",
            "Without it CUDA stops with error 802, system not yet initialized.",
            Fix(
                "Start the fabric manager; its version must equal the driver's.",
                ("sudo systemctl restart nvidia-fabricmanager", "systemctl status nvidia-fabricmanager"),
                who="admin",
            ),
            {f"gpu_{gpu.index}_state": gpu.fabric_state for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"fabric is up on {len(known)} of {len(gpus)} GPUs") if known else Skip("no NVSwitch fabric here")


@check(Severity.ERROR, source=_NVML, because_of=("gpu_lost", "nvlink_fabric_not_ready"))
def nvlink_inactive(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has fewer active NVLinks than its siblings of the same model.

    Why: NCCL builds its rings over the links that all have: one GPU with dead links slows every collective, or sends it
    over PCIe. Where there is no NVSwitch, a GPU without any link may just have no bridge, and is not judged.

    Fix: reset the GPUs; links that stay down are a cable, a bridge or a board.
    """
    switched = {gpu.name for gpu in gpus if any(link.remote == "switch" for link in gpu.nvlinks or ())}
    active = {
        gpu: number
        for gpu in gpus
        if not gpu.lost and (number := gpu.nvlinks_active) is not None and (number or gpu.name in switched)
    }
    best: dict[str | None, int] = {}
    for gpu, number in active.items():
        best[gpu.name] = max(best.get(gpu.name, 0), number)
    linked = [gpu for gpu in active if best[gpu.name]]
    bad = [gpu for gpu in linked if active[gpu] < best[gpu.name]]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: {gpu.nvlinks_active} of {best[gpu.name]} NVLinks active",
            f"Its siblings have {best[gpu.name]}. Every collective runs at the speed of the weakest GPU.",
            Fix(
                "Reset the GPUs; if the links stay down: bridge, cable or board.",
                ("nvidia-smi nvlink --status", "sudo nvidia-smi --gpu-reset"),
                who="hardware",
            ),
            {f"gpu_{g.index}_active": g.nvlinks_active for g in bad} | {"siblings": best[gpu.name]},
            tuple(f"GPU {g.index}" for g in bad),
        )
    if not linked:
        return Skip("no NVLinks here")
    return Ok(f"{linked[0].nvlinks_active} NVLinks active on each of {len(linked)} GPUs")


@check(Severity.INFO, source="https://github.com/NVIDIA/nccl/issues/1637")
def peer_access_missing(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs cannot reach each other's memory directly.

    Why: consumer cards have no peer access over PCIe. NCCL notices it and sends everything through host memory: it
    works, gradients just take longer. Setting NCCL_P2P_DISABLE=1 changes nothing.

    Fix: nothing to repair; larger micro-batches or gradient accumulation make it matter less.
    """
    pairs = _sharing(links, visible)
    bad = [link for link in pairs if _refusal(link)]
    if bad:
        why = _P2P_WHY.get(_refusal(bad[0]) or 0, "the driver says no")
        return Problem(
            f"{len(bad)} of {counted(len(pairs), 'GPU pair')} without peer access",
            f"Direct transfer between these GPUs is off: {why}. NCCL goes through host memory (/dev/shm).",
            Fix("Nothing to repair. Accumulation and larger micro-batches make the transfers matter less."),
            {f"gpu_{link.a}_{link.b}": _refusal(link) for link in bad[:8]},
        )
    good = sum(map(_granted, pairs))
    if not good:
        return Skip("no pair of GPUs tells" if pairs else "no pair of GPUs")
    return Ok(f"peer access on {good} of {counted(len(pairs), 'GPU pair')}")


@check(Severity.ERROR, source="https://github.com/NVIDIA/nccl (src/graph/paths.cc, ncclTopoCheckP2p)")
def nvlink_without_peer_access(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs are joined by NVLink, and the driver refuses peer access between them.

    Why: NCCL stops with an error when an NVLink pair has no peer access, because the machine is set up wrongly
    (driver option, virtualisation, confidential computing).

    Fix: have peer access switched on again in the driver or the hypervisor.
    """
    joined = [link for link in _sharing(links, visible) if link.nvlinks]
    bad = [link for link in joined if _refusal(link)]
    if bad:
        return Problem(
            f"{counted(len(bad), 'NVLink pair')} without peer access (GPU {bad[0].a} and {bad[0].b})",
            "NCCL treats this as a broken machine and refuses to start.",
            Fix(
                "Look for the driver option or hypervisor setting that disables it.",
                ("nvidia-smi topo -p2p r",),
                "admin",
            ),
            {f"gpu_{link.a}_{link.b}": _refusal(link) for link in bad[:8]},
        )
    good = sum(map(_granted, joined))
    if not good:
        return Skip("no NVLink pair tells" if joined else "no NVLink between visible GPUs")
    return Ok(f"peer access on {'all' if good == len(joined) else f'{good} of'} {len(joined)} NVLink pairs")


@check(Severity.WARNING, source=_NVML)
def pcie_width_reduced(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU's PCIe link is narrower than the GPU can.

    Why: width does not drop when idle: the card sits in a narrow slot, on a riser, or has a bad contact. Loading data
    and, without NVLink, every gradient goes through it.

    Fix: another slot, reseat the card, or the BIOS's lane settings.
    """
    known = [gpu for gpu in gpus if gpu.pcie_width and gpu.pcie_width_max]
    bad = [gpu for gpu in known if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: PCIe x{gpu.pcie_width} of x{gpu.pcie_width_max}",
            "Half the lanes are half the bandwidth to the host and, without NVLink, to the other GPUs.",
            Fix("Check slot, riser and BIOS lane settings.", (f"nvidia-smi -q -d PCI -i {gpu.index}",), "hardware"),
            {f"gpu_{g.index}_width": g.pcie_width for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"full width on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells its width")


@check(Severity.INFO, source=_NVML)
def pcie_generation_limited(gpus: tuple[Gpu, ...]) -> Answer:
    """The slot is of an older PCIe generation than the GPU.

    Why: each generation halves the bandwidth. Judged by what slot and GPU can do together, never by the current speed,
    which falls when the GPU is idle.

    Fix: a slot of the GPU's own generation, or the BIOS's setting.
    """
    known = [gpu for gpu in gpus if gpu.pcie_generation_max and gpu.pcie_generation_max_gpu]
    bad = [gpu for gpu in known if (gpu.pcie_generation_max or 0) < (gpu.pcie_generation_max_gpu or 0)]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: PCIe gen {gpu.pcie_generation_max}, "
            f"the GPU can gen {gpu.pcie_generation_max_gpu}",
            "The slot or the BIOS holds the link to an older generation.",
            Fix("Another slot, or the BIOS setting of this one.", who="hardware"),
            {f"gpu_{g.index}_generation": g.pcie_generation_max for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"full generation on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.INFO, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level")
def gpus_span_numa_nodes(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """The visible GPUs hang on different NUMA nodes and have no NVLink between them.

    Why: traffic between them crosses the CPU interconnect. That works; two GPUs of one NUMA node are just faster
    together.

    Fix: for a run on fewer GPUs choose those of one node; pin the ranks to their node.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.numa_node is not None:
            nodes.setdefault(gpu.numa_node, []).append(gpu.index)
    if not nodes:
        return Skip("the GPUs' NUMA nodes are not known")
    if len(nodes) == 1:
        return Ok(f"all on NUMA node {next(iter(nodes))}")
    shared = _sharing(links, visible)
    if shared and all(link.nvlinks for link in shared):
        return Ok(f"{len(nodes)} NUMA nodes, joined by NVLink")
    where = "; ".join(f"{gpu_list(members)} near node {node}" for node, members in sorted(nodes.items()))
    return Problem(
        where,
        "Between the nodes all traffic crosses the CPU interconnect.",
        Fix("Let the launcher pin each rank to its node.", ("mgpu configure",)),
        {f"node_{node}": len(members) for node, members in sorted(nodes.items())},
    )
