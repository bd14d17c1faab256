"""Can the GPUs reach each other's memory?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Container, Driver, Gpu, Link, Visible
from mgpu.text import counted

from .._gpus import names_of
from ._pairs import granted, refusal, sharing

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
# nvmlGpuP2PStatus_t
_BY_OPTION = 4
_P2P_WHY = {
    1: "the chipset does not support it",
    2: "these GPUs do not support it",
    3: "they hang on different sockets",
    4: "it is switched off in the driver",
    5: "it is not supported here",
}
# From this driver on, RTX 40 cards tell the truth of peer access (accelerate, check_cuda_p2p_ib_support).
_RTX40_DRIVER = (550, 40, 7)


@check(
    Severity.INFO,
    source="https://github.com/NVIDIA/nccl/issues/1637",
    because_of=("nvlink_without_peer_access", "peer_access_uneven"),
)
def peer_access_missing(links: tuple[Link, ...], visible: Visible) -> Answer:
    """GPUs cannot reach each other's memory directly.

    Why: consumer cards have no peer access over PCIe. NCCL notices it and sends everything through host memory: it
    works, gradients just take longer. Setting NCCL_P2P_DISABLE=1 changes nothing.

    Fix: look for the driver option that switches it off.
    More: Larger micro-batches or gradient accumulation make it matter less.
    """
    pairs = sharing(links, visible)
    bad = [link for link in pairs if refusal(link)]
    if bad:
        why = _P2P_WHY.get(refusal(bad[0]) or 0, "the driver says no")
        return Problem(
            f"{len(bad)} of {counted(len(pairs), 'GPU pair')} without peer access",
            f"Direct transfer between these GPUs is off: {why}. NCCL goes through host memory (/dev/shm).",
            Fix(commands=("nvidia-smi topo -p2p r",), who="admin")
            if refusal(bad[0]) == _BY_OPTION
            else Fix("Nothing to repair. Accumulation and larger micro-batches make the transfers matter less."),
            {f"gpu_{link.a}_{link.b}": refusal(link) for link in bad[:8]},
        )
    good = sum(map(granted, pairs))
    if not good:
        return Skip("no pair of GPUs tells" if pairs else "no pair of GPUs")
    return Ok(f"peer access on {good} of {counted(len(pairs), 'GPU pair')}")


@check(Severity.WARNING, source=_NVML, because_of=("nvlink_without_peer_access", "nvlink_inactive"))
def peer_access_uneven(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """Some GPUs reach each other's memory directly, and others of the same model at the same distance do not.

    Why: nothing in the hardware explains it, so a setting or a fault does. NCCL takes the slow way wherever one pair of
    a ring has only that.

    Fix: compare them with the others.
    More: Driver option, MIG, passthrough.
    """
    name = {gpu.index: gpu.name for gpu in gpus if not gpu.lost and not gpu.mig_mode}
    alike: dict[tuple[object, ...], list[Link]] = {}
    for link in sharing(links, visible):
        if link.a in name and link.b in name and link.topology and (granted(link) or refusal(link)):
            models = tuple(sorted((name[link.a] or "", name[link.b] or "")))
            alike.setdefault((models, link.topology, bool(link.nvlinks)), []).append(link)
    compared = [group for group in alike.values() if len(group) > 1]
    if not compared:
        return Skip("no two pairs of GPUs that could be compared")
    for group in compared:
        bad = [link for link in group if refusal(link)]
        if 0 < len(bad) < len(group):
            why = _P2P_WHY.get(refusal(bad[0]) or 0, "the driver says no")
            return Problem(
                f"{len(bad)} of {len(group)} equal GPU pairs without peer access (GPU {bad[0].a} and {bad[0].b})",
                f"The driver says: {why}. The other pairs of this model, at the same distance, have it.",
                Fix(commands=("nvidia-smi topo -p2p r", "nvidia-smi topo -m"), who="admin"),
                {f"gpu_{link.a}_{link.b}": refusal(link) for link in bad[:8]},
            )
    return Ok(f"{counted(sum(map(len, compared)), 'GPU pair')} alike")


@check(
    Severity.WARNING, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/environment.py"
)
def rtx40_peer_access_misreported(
    gpus: tuple[Gpu, ...], driver: Driver, visible: Visible, env: Mapping[str, str]
) -> Answer:
    """Several RTX 40 cards run under a driver that promises peer access they do not have.

    Why: this driver says that the cards reach each other directly. They do not: NCCL hangs, or accelerate refuses.
    More: `accelerate launch` switches the way off by itself; under torchrun or python, accelerate stops with "Using RTX
    4000 series doesn't support faster communication broadband via P2P or IB".

    Fix: update the driver to 550.40.07 or newer.
    More: Or set the two variables.
    """
    cards = [gpu for gpu in gpus if gpu.index in visible.gpus and "RTX 40" in (gpu.name or "")]
    if len(cards) < 2:
        return Skip("not several RTX 40 cards")
    if not (version := numbers(driver.version)):
        return Skip("the driver's version is not known")
    if version >= _RTX40_DRIVER:
        return Ok(f"driver {driver.version} tells the truth about peer access")
    off = {name: env.get(name, "") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    if all(value == "1" for value in off.values()):
        return Ok("NCCL_P2P_DISABLE and NCCL_IB_DISABLE are set")
    return Problem(
        f"{counted(len(cards), 'RTX 40 card')} and driver {driver.version}, older than 550.40.07",
        fix=(
            Fix(who="admin"),
            Fix(
                "Tell NCCL not to try.",
                tuple(shell("export {:name}=1", name) for name, value in off.items() if value != "1"),
                kind="stopgap",
                caveat="has to be set in every shell; newer drivers need it no more",
            ),
        ),
        evidence={"driver": driver.version, **off},
        subjects=names_of(cards),
    )


@check(Severity.INFO, source="https://github.com/NVIDIA/nccl/issues/442")
def wsl_several_gpus(container: Container, visible: Visible) -> Answer:
    """Several GPUs are to train together under WSL2.

    Why: NCCL finds no PCI bus here and sends everything through host memory, of which WSL has half by default.
    More: WSL2 shows no PCI bus and gives no direct transfer, so NCCL goes through host memory; old versions of it stop
    with "Could not find real path of /sys/class/pci_bus", and half the machine's memory is all WSL gets.

    Fix: a recent NCCL; where it hangs, switch the direct ways off and give WSL more memory.
    """
    if not container.wsl:
        return Skip("not WSL")
    if len(visible.gpus) < 2:
        return Ok("one GPU under WSL2")
    return Problem(
        f"{len(visible.gpus)} GPUs under WSL2",
        fix=(
            Fix("Train on Linux itself. Under WSL: give it more memory in %UserProfile%\\.wslconfig, [wsl2] memory=."),
            Fix(
                "If the run hangs in its first collective:",
                ("export NCCL_P2P_DISABLE=1", "export NCCL_IB_DISABLE=1"),
                kind="stopgap",
                caveat="everything then goes through host memory, as it does here anyway",
            ),
        ),
        evidence={"gpus": len(visible.gpus)},
    )
