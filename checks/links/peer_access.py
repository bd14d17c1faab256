"""Can the GPUs access each other's memory?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Container, Driver, Gpu, Link, Visible
from mgpu.text import counted

from .._gpus import gpu_subjects
from ._pairs import has_peer_access, links_in_use, refusal_code

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
# nvmlGpuP2PStatus_t
_BY_OPTION = 4
_P2P_WHY = {
    1: "the chipset does not support it",
    2: "these GPUs do not support it",
    3: "they are on different sockets",
    4: "it is turned off in the driver",
    5: "it is not supported here",
}
# Since this driver, RTX 40 cards report peer access correctly (accelerate, check_cuda_p2p_ib_support).
_RTX40_DRIVER = (550, 40, 7)


@check(
    Severity.INFO,
    source="https://github.com/NVIDIA/nccl/issues/1637",
    because_of=("nvlink_without_peer_access", "peer_access_uneven"),
)
def peer_access_missing(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs cannot access each other's memory directly.

    Why: Consumer cards have no peer access over PCIe. NCCL detects this and copies through host memory. It works, but
    gradients take longer. Setting NCCL_P2P_DISABLE=1 changes nothing.

    Fix: Find the driver option that turns it off.
    More: Larger micro-batches or gradient accumulation reduce the effect.
    """
    pairs = links_in_use(links, visible)
    bad = [link for link in pairs if refusal_code(link)]
    if bad:
        why = _P2P_WHY.get(refusal_code(bad[0]) or 0, "the driver refuses it")
        return Problem(
            f"{len(bad)} of {counted(len(pairs), 'GPU pair')} without peer access",
            f"Direct transfer between these GPUs is off: {why}. NCCL copies through host memory (/dev/shm).",
            Fix(commands=("nvidia-smi topo -p2p r",), who="admin")
            if refusal_code(bad[0]) == _BY_OPTION
            else Fix("Nothing to repair. Gradient accumulation and larger micro-batches reduce the effect."),
            {f"gpu_{link.a}_{link.b}": refusal_code(link) for link in bad[:8]},
        )
    good = sum(map(has_peer_access, pairs))
    if not good:
        return Skip("peer access of the GPU pairs is unknown" if pairs else "no pair of GPUs")
    return Ok(f"peer access on {good} of {counted(len(pairs), 'GPU pair')}")


@check(Severity.WARNING, source=_NVML, because_of=("nvlink_without_peer_access", "nvlink_inactive"))
def peer_access_uneven(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """Some GPU pairs have peer access, but other pairs of the same model at the same distance do not.

    Why: The hardware does not explain the difference, so a setting or a fault is the cause. NCCL uses the slow path for
    a whole ring if one of its pairs needs it.

    Fix: Compare these pairs with the others.
    More: Check driver options, MIG, and passthrough.
    """
    name = {gpu.index: gpu.name for gpu in gpus if not gpu.lost and not gpu.mig_mode}
    groups: dict[tuple[object, ...], list[Link]] = {}
    for link in links_in_use(links, visible):
        if link.a in name and link.b in name and link.topology and (has_peer_access(link) or refusal_code(link)):
            models = tuple(sorted((name[link.a] or "", name[link.b] or "")))
            groups.setdefault((models, link.topology, bool(link.nvlinks)), []).append(link)
    compared = [group for group in groups.values() if len(group) > 1]
    if not compared:
        return Skip("no two comparable pairs of GPUs")
    for group in compared:
        bad = [link for link in group if refusal_code(link)]
        if 0 < len(bad) < len(group):
            why = _P2P_WHY.get(refusal_code(bad[0]) or 0, "the driver refuses it")
            return Problem(
                f"{len(bad)} of {len(group)} equal GPU pairs without peer access (GPUs {bad[0].a} and {bad[0].b})",
                f"The driver reports: {why}. Other pairs of this model, at the same distance, have peer access.",
                Fix(commands=("nvidia-smi topo -p2p r", "nvidia-smi topo -m"), who="admin"),
                {f"gpu_{link.a}_{link.b}": refusal_code(link) for link in bad[:8]},
            )
    return Ok(f"{counted(sum(map(len, compared)), 'GPU pair')} compared, no difference")


@check(
    Severity.WARNING, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/environment.py"
)
def rtx40_peer_access_misreported(
    gpus: tuple[Gpu, ...], driver: Driver, visible: Visible, env: Mapping[str, str]
) -> Answer:
    """Several RTX 40 cards run with a driver that reports peer access they do not have.

    Why: This driver reports peer access between the cards, but they have none. NCCL hangs, or accelerate stops.
    More: `accelerate launch` turns it off by itself. Under torchrun or python, accelerate stops with "Using RTX 4000
    series doesn't support faster communication broadband via P2P or IB".

    Fix: Update the driver to 550.40.07 or newer.
    More: Or set the two variables.
    """
    cards = [gpu for gpu in gpus if gpu.index in visible.gpus and "RTX 40" in (gpu.name or "")]
    if len(cards) < 2:
        return Skip("fewer than two RTX 40 cards")
    if not (version := version_numbers(driver.version)):
        return Skip("the driver's version is unknown")
    if version >= _RTX40_DRIVER:
        return Ok(f"driver {driver.version} reports peer access correctly")
    off = {name: env.get(name, "") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    if all(value == "1" for value in off.values()):
        return Ok("NCCL_P2P_DISABLE and NCCL_IB_DISABLE are set")
    return Problem(
        f"{counted(len(cards), 'RTX 40 card')} and driver {driver.version}, older than 550.40.07",
        fix=(
            Fix(who="admin"),
            Fix(
                "Turn off peer access and InfiniBand in NCCL.",
                tuple(shell("export {:name}=1", name) for name, value in off.items() if value != "1"),
                kind="stopgap",
                caveat="must be set in every shell; newer drivers do not need it",
            ),
        ),
        evidence={"driver": driver.version, **off},
        subjects=gpu_subjects(cards),
    )


@check(Severity.INFO, source="https://github.com/NVIDIA/nccl/issues/442")
def wsl_several_gpus(container: Container, visible: Visible) -> Answer:
    """Several GPUs will train together under WSL2.

    Why: NCCL finds no PCI bus here and copies everything through host memory. WSL gets half of the memory.
    More: WSL2 has no PCI bus and no direct transfer, so NCCL uses host memory. Old versions of NCCL stop with "Could
    not find real path of /sys/class/pci_bus". By default WSL gets only half of the machine's memory.

    Fix: Use a recent NCCL. If it hangs, turn off P2P and InfiniBand, and give WSL more memory.
    """
    if not container.wsl:
        return Skip("not WSL")
    if len(visible.gpus) < 2:
        return Ok("one GPU under WSL2")
    return Problem(
        f"{len(visible.gpus)} GPUs under WSL2",
        fix=(
            Fix("Use native Linux. Under WSL, give it more memory in %UserProfile%\\.wslconfig, [wsl2] memory=."),
            Fix(
                "If the run hangs in its first collective:",
                ("export NCCL_P2P_DISABLE=1", "export NCCL_IB_DISABLE=1"),
                kind="stopgap",
                caveat="all traffic then uses host memory, as it already does under WSL",
            ),
        ),
        evidence={"gpus": len(visible.gpus)},
    )
