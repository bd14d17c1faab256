"""Are all NVLinks up, fast, and used?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Link, Pci, Visible, bus_address
from mgpu.text import counted

from .._gpus import gpu_problem, gpu_subjects, use_only
from .._nvlink_models import GRACE, model_of
from .._wording import gpu_list
from ._pairs import P2P_OK, P2P_UNKNOWN, has_peer_access, links_in_use, refusal_code

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_VALIDATION = "https://docs.nvidia.com/health-validation/reference/checks/nvlink"
_LEVELS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level"
# NVML reports the nominal speed in whole megabytes. Models differ by far more than this tolerance.
_SPEED_TOLERANCE = 0.99


@check(Severity.ERROR, source=_NVML, because_of=("gpu_lost", "nvlink_fabric_not_ready", "fabric_manager_missing"))
def nvlink_inactive(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has fewer active NVLinks than other GPUs of the same model.

    Why: NCCL builds its rings over the links that all GPUs have. One GPU with inactive links slows every collective, or
    forces it over PCIe. Without an NVSwitch, GPUs are compared only with the GPUs they are linked to, because another
    pair can have fewer bridges, or none.

    Fix: Reset the GPUs. If the links stay down, replace the bridge, cable or board.
    """
    switched = {gpu.name for gpu in gpus if any(link.remote == "switch" for link in gpu.nvlinks or ())}
    active = [
        (gpu, number)
        for gpu in gpus
        if not gpu.lost
        and not gpu.mig_mode  # MIG turns the links off
        and (number := gpu.nvlinks_active) is not None
        and (number or gpu.name in switched)
    ]
    joined = _link_groups(gpus)
    group = {gpu.index: (gpu.name, None if gpu.name in switched else joined.get(gpu.index)) for gpu, _ in active}
    best: dict[tuple[str | None, int | None], int] = {}
    for gpu, number in active:
        best[group[gpu.index]] = max(best.get(group[gpu.index], 0), number)
    linked = [(gpu, number) for gpu, number in active if best[group[gpu.index]]]
    bad = [gpu for gpu, number in linked if number < best[group[gpu.index]]]
    if bad:
        gpu, most = bad[0], best[group[bad[0].index]]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: {gpu.nvlinks_active} of {most} NVLinks active",
            f"Other GPUs of this model have {most}. Every collective runs at the speed of the slowest GPU.",
            Fix(commands=("nvidia-smi nvlink --status", "sudo nvidia-smi --gpu-reset"), who="hardware"),
            {f"gpu_{g.index}_active": g.nvlinks_active for g in bad} | {"siblings": most},
            gpu_subjects(bad),
        )
    if not linked:
        return Skip("no NVLink here")
    return Ok(f"{linked[0][1]} NVLinks active on each of {len(linked)} GPUs")


def _link_groups(gpus: tuple[Gpu, ...]) -> dict[int, int]:
    """Return a group number per GPU index: linked GPUs share it. GPUs with unknown peers are left out."""
    places = {bus_address(gpu.pci): gpu.index for gpu in gpus if gpu.pci}
    peers = {
        gpu.index: {places.get(bus_address(link.remote_pci or "")) for link in gpu.nvlinks or () if link.active}
        for gpu in gpus
    }
    known = {index for index, others in peers.items() if others and None not in others}
    group = {index: index for index in known}
    for _ in known:  # propagate the smallest number along the links
        for index in known:
            group[index] = min(group[index], *(group.get(other, index) for other in peers[index] if other is not None))
    return group


@check(Severity.WARNING, source=_VALIDATION, because_of=("nvlink_fabric_not_ready", "fabric_manager_missing"))
def nvlinks_fewer_than_model(gpus: tuple[Gpu, ...], pci: Pci) -> Answer:
    """All GPUs of a model on an NVSwitch board have fewer active NVLinks than the model has.

    Why: All GPUs lack the same links. A switch has failed, or the fabric manager runs the board in degraded mode.
    More: The GPUs do not differ from each other and jobs run, but every collective is slower than it should be.

    Fix: Find the failed switch.
    More: Check the fabric manager's log. The vendor must replace a failed switch.
    """
    judged: list[tuple[Gpu, int, int]] = []
    for gpu in gpus:
        model, links = model_of(gpu), gpu.nvlinks
        if gpu.lost or gpu.mig_mode or not links or model is None or model.nvlinks is None:
            continue
        if pci.nvswitches or any(link.remote == "switch" for link in links):  # in a VM, GPU links may lead outside it
            judged.append((gpu, gpu.nvlinks_active or 0, model.nvlinks))
    if not judged:
        return Skip("no GPU on an NVSwitch board, or its model is unknown")
    best: dict[str | None, int] = {}
    for gpu, active, _ in judged:
        best[gpu.name] = max(best.get(gpu.name, 0), active)
    bad = [(gpu, total) for gpu, _, total in judged if best[gpu.name] < total]
    if not bad:
        return Ok(f"{judged[0][2]} NVLinks, as expected for the model, on {counted(len(judged), 'GPU')}")
    first, total = bad[0]
    return Problem(
        f"{best[first.name]} of {total} NVLinks active on every {first.name}",
        fix=Fix(
            commands=(
                "nvidia-smi nvlink --status",
                "sudo journalctl -u nvidia-fabricmanager",
                "nvidia-smi -q | grep -A 12 Fabric",
            ),
            who="admin",
        ),
        evidence={f"gpu_{gpu.index}_active": gpu.nvlinks_active for gpu, _ in bad} | {"model": total},
        subjects=gpu_subjects(gpu for gpu, _ in bad),
    )


@check(Severity.WARNING, source=_VALIDATION)
def nvlink_slow(gpus: tuple[Gpu, ...]) -> Answer:
    """An active NVLink is slower than the model's links should be.

    Why: Every collective runs at the speed of the slowest link.

    Fix: Reset the GPU. If the link stays slow, replace the cable, bridge or board.
    """
    known: list[tuple[Gpu, dict[int, int]]] = []
    for gpu in gpus:
        speeds = {link.link: link.speed_mb_per_s for link in gpu.nvlinks or () if link.active and link.speed_mb_per_s}
        if speeds and not gpu.lost:
            known.append((gpu, speeds))
    if not known:
        return Skip("no active NVLink here reports its speed")
    wanted: dict[str | None, int] = {}
    for gpu, speeds in known:
        model = model_of(gpu)
        nominal = model.nvlink_mb_per_s if model and model.nvlink_mb_per_s else max(speeds.values())
        wanted[gpu.name] = max(wanted.get(gpu.name, 0), nominal)
    slow = [
        (gpu, slow_links)
        for gpu, speeds in known
        if (slow_links := {n: mb for n, mb in speeds.items() if mb < wanted[gpu.name] * _SPEED_TOLERANCE})
    ]
    if not slow:
        return Ok(f"{wanted[known[0][0].name] / 1000:.3f} GB/s on every active NVLink of {counted(len(known), 'GPU')}")
    gpu, slow_links = slow[0]
    return Problem(
        f"GPU {gpu.index}: NVLink {', '.join(map(str, slow_links))} at {min(slow_links.values())} MB/s, "
        f"expected {wanted[gpu.name]}" + (f" ({counted(len(slow), 'GPU')} affected)" if len(slow) > 1 else ""),
        fix=Fix(
            commands=(
                shell("nvidia-smi nvlink --status -i {:number}", gpu.index),
                shell("sudo nvidia-smi --gpu-reset -i {:number}", gpu.index),
            ),
            who="hardware",
        ),
        evidence={f"gpu_{g.index}_link_{n}_mb_per_s": mb for g, links in slow for n, mb in links.items()},
        subjects=gpu_subjects(g for g, _ in slow),
    )


@check(
    Severity.ERROR,
    source="https://github.com/NVIDIA/nccl (src/graph/paths.cc, ncclTopoCheckP2p)",
    because_of=("gpu_lost", "nvlink_fabric_not_ready", "fabric_manager_missing", "fabric_manager_version_differs"),
)
def nvlink_without_peer_access(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs are connected by NVLink, but the driver refuses peer access between them.

    Why: NCCL treats this as a broken system and does not start.
    More: NCCL stops with an error if an NVLink pair has no peer access, because the system is misconfigured (driver
    option, virtualization, confidential computing).

    Fix: Find the driver option or hypervisor setting that disables it.
    """
    joined = [link for link in links_in_use(links, visible) if link.nvlinks]
    bad = [link for link in joined if refusal_code(link)]
    if bad:
        return Problem(
            f"{counted(len(bad), 'NVLink pair')} without peer access (GPUs {bad[0].a} and {bad[0].b})",
            fix=Fix(commands=("nvidia-smi topo -p2p r",), who="admin"),
            evidence={f"gpu_{link.a}_{link.b}": refusal_code(link) for link in bad[:8]},
        )
    good = sum(map(has_peer_access, joined))
    if not good:
        return Skip("peer access of the NVLink pairs is unknown" if joined else "no NVLink between visible GPUs")
    return Ok(f"peer access on {'all' if good == len(joined) else f'{good} of'} {len(joined)} NVLink pairs")


@check(Severity.INFO, source=_VALIDATION, because_of=("nvlink_without_peer_access",))
def nvlink_atomics_missing(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs are connected by NVLink, but cannot run atomic operations in each other's memory.

    Why: NCCL's collectives work. Libraries that write to other GPUs' memory directly may not.
    More: NCCL does not use them, but NVSHMEM and the kernels built on it (DeepEP, symmetric memory) do, and stop with
    an error or use a slower path.

    Fix: Find the driver or hypervisor setting that disables them.
    """
    joined = [
        link for link in links_in_use(links, visible) if link.nvlinks and link.p2p_atomics not in (None, P2P_UNKNOWN)
    ]
    bad = [link for link in joined if link.p2p_atomics != P2P_OK]
    if not joined:
        return Skip("no NVLink between visible GPUs, or its atomics are unknown")
    if not bad:
        return Ok(f"atomic operations on {counted(len(joined), 'NVLink pair')}")
    return Problem(
        f"no atomic operations on {len(bad)} of {counted(len(joined), 'NVLink pair')} (GPUs {bad[0].a} and {bad[0].b})",
        fix=Fix(commands=("nvidia-smi topo -p2p a",), who="admin"),
        evidence={f"gpu_{link.a}_{link.b}": link.p2p_atomics for link in bad[:8]},
    )


@check(Severity.WARNING, source=_NVML)
def c2c_link_down(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVLink-C2C between a GPU and its Grace CPU is off.

    Why: All transfers between host and GPU memory use a much slower path.
    More: On GH200 and GB200, access to host memory, loading and offloading use C2C at many times the speed of PCIe.
    Without it they are very slow, and GPUs and network cards lose their direct path.

    Fix: Power-cycle the tray. If it stays off, contact the vendor.
    """
    known = [gpu for gpu in gpus if gpu.c2c_enabled is not None and GRACE.search(gpu.name or "")]
    bad = [gpu for gpu in known if not gpu.c2c_enabled]
    if not known:
        return Skip("no GPU here is paired with a Grace CPU")
    if not bad:
        return Ok(f"NVLink-C2C is on for {counted(len(known), 'GPU')}")
    return gpu_problem(
        bad,
        "NVLink-C2C to the Grace CPU is off",
        {"c2c": "c2c_enabled"},
        Fix(commands=("nvidia-smi c2c -s",), who="hardware"),
    )


@check(Severity.INFO, source=_LEVELS)
def nvlink_pairs_split(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """The visible GPUs have no NVLink between them, but other GPUs of this node do.

    Why: CUDA_VISIBLE_DEVICES selects GPUs on different bridges, so they communicate over PCIe.
    More: A run on one GPU of each pair sends its gradients over PCIe, often at a tenth of the speed, although enough
    bridged GPUs are available.

    Fix: Select bridged GPUs, if no other process uses them.
    """
    chosen = links_in_use(links, visible)
    if not chosen or any(link.nvlinks is None for link in links):
        return Skip("the links between the visible GPUs are unknown" if chosen else "no pair of visible GPUs")
    if any(link.nvlinks for link in chosen):
        return Ok("some visible GPUs are connected by NVLink")
    usable = {gpu.index for gpu in gpus if gpu.permitted and not gpu.lost}
    joined = [(link.a, link.b) for link in links if link.nvlinks and {link.a, link.b} <= usable]
    if not joined:
        return Ok("no other GPUs of this node are connected by NVLink")
    better: list[int] = []
    for pair in joined:
        if not set(pair) & set(better) and len(better) + 2 <= len(visible.gpus):
            better += pair
    if len(better) < len(visible.gpus):
        return Ok("not enough bridged GPUs for this run")
    return Problem(
        f"no NVLink between {gpu_list(sorted(visible.gpus))}, but between GPUs {joined[0][0]} and {joined[0][1]}",
        fix=Fix(commands=use_only(sorted(better), gpus)),
        evidence={"visible": ",".join(map(str, visible.gpus)), "bridged": ", ".join(f"{a}+{b}" for a, b in joined)},
    )
