"""Does an NCCL setting cost bandwidth, or more than that, on this machine?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Gpu, InfiniBand, Link, Nccl, Pci, Plan, Slurm
from mgpu.text import counted, plural

from .._grammars import PROTO, Version, c_integer, format_version, is_on, level
from .._nccl_settings import NCCL_GUIDE, effective_value, loaded_version, node_count, setting_problem, settings
from .._variables import NCCL
from ._transports import adapters_near_gpus, disabled_transports, has_switch_reduction, is_closer, talks_directly, way

_DEFAULT_LEVEL = "PXB"  # src/graph/paths.cc ncclTopoCheckP2p, ncclTopoCheckGdr
_NVLS_SINCE: Version = (2, 17)
_GID_IS_CHOSEN: Version = (2, 21)
# cuMem host buffers are the default from 2.24 on, and tested before use from 2.26.3 on (src/misc/cudawrap.cc).
_HOST_BUFFERS: tuple[Version, Version] = ((2, 24), (2, 26, 3))
_HOST_BUFFERS_DRIVER = (12, 6)
# Settings "for debugging" that have their own checks.
# fmt: off
_JUDGED = frozenset({
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
})
# fmt: on


def _cost_of_disabling(
    off: list[str], gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci, version: Version
) -> tuple[dict[str, str], bool]:
    """Return the cost of each variable on this machine, and whether it is unknown for one of them."""
    direct = [talks_directly(link, gpus, pci) for link in links]
    peers_off = "NCCL_P2P_DISABLE" in off
    lost: dict[str, str] = {}
    unknown = False
    if peers_off:
        unknown |= None in direct and True not in direct
        if (number := direct.count(True)) > 0:
            nvlink = ", not even over NVLink," if any(link.nvlinks for link in links) else ""
            lost["NCCL_P2P_DISABLE"] = f"no direct transfer{nvlink} for {number} of {counted(len(links), 'GPU pair')}"
    if "NCCL_SHM_DISABLE" in off:
        unknown |= None in direct and False not in direct and not peers_off
        if peers_off or False in direct:
            lost["NCCL_SHM_DISABLE"] = "ranks on this machine without a direct path communicate over the network"
    if "NCCL_NVLS_ENABLE" in off and (not version or version >= _NVLS_SINCE) and has_switch_reduction(gpus, links):
        lost["NCCL_NVLS_ENABLE"] = "the NVSwitches no longer reduce: all-reduce loses a fifth of its bandwidth"
    return lost, unknown


# If the path between the GPUs is broken, disabling it is the workaround, not the fault.
@check(
    Severity.WARNING,
    source=NCCL_GUIDE,
    because_of=("iommu_translates_peer_traffic", "pcie_acs_redirects", "vm_topology_flat"),
)
def nccl_transport_disabled(
    env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci
) -> Answer:
    """A variable disables a fast path between the GPUs of this machine.

    Why: NCCL_P2P_DISABLE (which includes NVLink), NCCL_SHM_DISABLE and NCCL_NVLS_ENABLE=0 are for debugging. Left
    set, they cost most of the bandwidth, and the logs do not show it. They may also be set in ~/.nccl.conf or
    /etc/nccl.conf.

    Fix: remove it, unless this machine needs it.
    More: If the run then hangs, `mgpu smoke-test` shows which path is broken.
    """
    found = settings(env, nccl)
    off = disabled_transports(found)
    if not off:
        return Ok("no transport is disabled")
    if len(gpus) < 2:
        return Ok(f"{', '.join(off)}: no effect with one GPU")
    lost, unknown = _cost_of_disabling(off, gpus, links, pci, loaded_version(nccl))
    if not lost:
        if unknown:
            return Skip("whether the GPUs can access each other directly is unknown")
        return Ok(f"{', '.join(str(found[name]) for name in off)} has no effect on this machine")
    bad = [found[name] for name in lost]
    return setting_problem(
        bad,
        ", ".join(f"{setting.name}={setting.value.strip()}" for setting in bad),
        "; ".join(f"{name}: {why}" for name, why in lost.items()) + ".",
    )


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_network_disabled(
    env: Mapping[str, str], nccl: Nccl, infiniband: InfiniBand, plan: Plan, slurm: Slurm
) -> Answer:
    """A variable keeps NCCL from using the fast network in a multi-node run.

    Why: the nodes communicate over TCP instead.
    More: With NCCL_IB_DISABLE=1 or NCCL_NET=Socket, all traffic uses TCP, 5 to 20 times slower than InfiniBand or
    RoCE. accelerate sets the first one itself for RTX 40 cards with an old driver.

    Fix: let NCCL use the adapters.
    More: Unset it.
    """
    found = settings(env, nccl)
    off = []
    if (disable := found.get("NCCL_IB_DISABLE")) and c_integer(disable.value)[0] != 0:
        off.append(disable)
    if (net := found.get("NCCL_NET")) and net.value.lower() == "socket":
        off.append(net)
    if not off:
        return Ok("no variable disables InfiniBand or RoCE")
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    active = [port.name for port in infiniband.ports if port.active and port.link_layer in ("InfiniBand", "Ethernet")]
    if not active:
        return Ok(f"{off[0]} has no effect: no InfiniBand or RoCE port is active")
    return setting_problem(
        off,
        f"{', '.join(map(str, off))}, but {counted(len(active), 'InfiniBand or RoCE port')} "
        f"{'is' if len(active) == 1 else 'are'} active",
        more={"ports": " ".join(active)},
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_tuned_by_hand(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL is tuned with variables that its guide lists for debugging.

    Why: new versions of NCCL choose the algorithm, channels and buffers better than values tuned on another
    machine. The guide warns of "sub-optimal behavior, crashes, or hangs" if such settings are kept. Some clouds
    require a few of them.

    Fix: remove those that your cloud or cluster does not require.
    """
    found, version = settings(env, nccl), loaded_version(nccl)
    tuned = [
        setting
        for name, setting in found.items()
        if (variable := NCCL.get(name))
        and (variable.group == "debugging" or name == "NCCL_GRAPH_FILE")
        and name not in _JUDGED
        and setting.value
        and variable.read_by(version)
    ]
    if not tuned:
        return Ok("no debugging setting is in effect")
    renamed = [f"{s.name} is now {NCCL[s.name].instead}" for s in tuned if NCCL[s.name].instead]
    return setting_problem(
        tuned,
        f"{counted(len(tuned), 'NCCL debugging setting')}: {', '.join(map(str, tuned))}",
        "They override what NCCL would choose." + (f" {'; '.join(renamed)}." if renamed else ""),
    )


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_bandwidth_limited(env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...]) -> Answer:
    """An NCCL setting leaves part of the bandwidth unused.

    Why: large messages, which make up most training traffic, run at half the speed or less.
    More: One channel is one GPU thread block and one ring, while NCCL uses up to 32. The LL protocol sends a flag
    with every word, which is half of the traffic. Both are tried while debugging and then forgotten.

    Fix: let NCCL choose.
    """
    found, version = settings(env, nccl), loaded_version(nccl)
    limits: dict[str, str] = {}
    for name in ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"):
        if name in found and NCCL[name].read_by(version) and is_on(found[name].value):
            limits[name] = "one channel only"
    protocols = found.get("NCCL_PROTO")
    if protocols and protocols.value and not PROTO(protocols.value, version):
        chosen = PROTO.chosen(protocols.value)
        slow = [function.lower() for function, left in chosen.items() if left == {"LL"}]
        if slow:
            limits["NCCL_PROTO"] = f"only LL for {'everything' if len(slow) == len(chosen) else ', '.join(slow)}"
    if not limits:
        return Ok("channels and protocols are not limited")
    if len(gpus) < 2:
        return Skip("one GPU does not communicate")
    bad = [found[name] for name in limits]
    return setting_problem(
        bad,
        "; ".join(f"{found[name]}: {why}" for name, why in limits.items()),
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-proto")
def nccl_ll128_forced(env: Mapping[str, str], nccl: Nccl, links: tuple[Link, ...]) -> Answer:
    """NCCL_PROTO forces LL128 on GPUs that are not connected by NVLink.

    Why: without NVLink, LL128's stores may be split, which gives wrong sums and no error.
    More: LL128 needs atomic 128-byte stores, which NVLink guarantees. NCCL does not use it elsewhere unless it is
    named. Then data may be corrupted, and the loss is wrong without any error.

    Fix: let NCCL choose.
    More: To exclude a protocol, prefix it with `^`.
    """
    value = effective_value("NCCL_PROTO", env, nccl)
    if value is None:
        return Ok("NCCL_PROTO is not set: NCCL chooses")
    named = [
        part
        for part in value.upper().split(";")
        if not (words := part.rpartition(":")[2]).startswith("^") and "LL128" in words.split(",")
    ]
    if not named:
        return Ok(f"NCCL_PROTO={value} does not force LL128")
    if not links:
        return Skip("fewer than two GPUs")
    without = [link for link in links if link.nvlinks == 0]
    if not without:
        if any(link.nvlinks is None for link in links):
            return Skip("the links between the GPUs are unknown")
        return Ok("NVLink connects every pair")
    setting = settings(env, nccl)["NCCL_PROTO"]
    return setting_problem(
        [setting],
        f"{setting} forces LL128, but {len(without)} of {counted(len(links), 'GPU pair')} "
        f"{plural(len(without), 'has', 'have')} no NVLink",
        more={"pair": f"{without[0].a}-{without[0].b} {without[0].name}"},
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-p2p-level", because_of=("nccl_transport_disabled",))
def nccl_p2p_level_too_low(
    env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci
) -> Answer:
    """NCCL_P2P_LEVEL disables direct transfers that the GPUs support.

    Why: the level is the longest path on which NCCL lets two GPUs access each other's memory. With a level below
    the default (through PCIe switches), pairs that could use direct access go through CPU memory.

    Fix: let NCCL choose.
    """
    value = effective_value("NCCL_P2P_LEVEL", env, nccl)
    if value is None:
        return Ok("NCCL_P2P_LEVEL is not set: NCCL chooses")
    cut = level(value, loaded_version(nccl))
    if cut is None:
        return Skip("its value is not valid: see nccl_value_misread")
    if is_on(effective_value("NCCL_P2P_DISABLE", env, nccl)):
        return Skip("NCCL_P2P_DISABLE is on")
    direct = [link for link in links if talks_directly(link, gpus, pci)]
    lost = [link for link in direct if is_closer(cut, "NVL" if link.nvlinks else way(link))]
    if not lost:
        if any(talks_directly(link, gpus, pci) is None for link in links):
            return Skip("whether the GPUs can access each other directly is unknown")
        return Ok(f"NCCL_P2P_LEVEL={value} allows every direct transfer")
    setting = settings(env, nccl)["NCCL_P2P_LEVEL"]
    return setting_problem(
        [setting],
        f"{setting} disables direct transfers for {len(lost)} of {counted(len(links), 'GPU pair')}",
        f"GPUs {lost[0].a} and {lost[0].b} ({lost[0].name}) are farther apart than {cut} and go through host memory.",
        more={"pairs": len(lost)},
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-net-gdr-level")
def nccl_gdr_level_too_low(
    env: Mapping[str, str],
    nccl: Nccl,
    gpus: tuple[Gpu, ...],
    pci: Pci,
    infiniband: InfiniBand,
    plan: Plan,
    slurm: Slurm,
) -> Answer:
    """NCCL_NET_GDR_LEVEL keeps the network adapter from reading GPU memory in a multi-node run.

    Why: the level is the longest path on which NCCL lets an adapter access GPU memory directly. With a level below
    the default (through PCIe switches), every message is first copied through CPU memory.

    Fix: let NCCL choose.
    """
    value = effective_value("NCCL_NET_GDR_LEVEL", env, nccl)
    if value is None:
        return Ok("NCCL_NET_GDR_LEVEL is not set: NCCL chooses")
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    cut = level(value, loaded_version(nccl))
    if cut is None:
        return Skip("its value is not valid: see nccl_value_misread")
    if not is_closer(cut, _DEFAULT_LEVEL):
        return Ok(f"NCCL_NET_GDR_LEVEL={value} is at or above the default")
    near = adapters_near_gpus(gpus, pci, infiniband)
    if not near:
        return Skip("no InfiniBand or RoCE adapter is known to be near a GPU")
    lost = [found for found in near if is_closer(cut, found[2])]
    if not lost:
        return Ok(f"NCCL_NET_GDR_LEVEL={value} includes every adapter near a GPU")
    setting = settings(env, nccl)["NCCL_NET_GDR_LEVEL"]
    index, card, way = lost[0]
    return setting_problem(
        [setting],
        f"{setting} disables GPUDirect RDMA for {counted(len({found[0] for found in lost}), 'GPU')}",
        f"GPUs {index} and {' '.join(card.names) or card.address} are {way} apart, farther than {cut}: data goes "
        "through CPU memory.",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_gid_index_prescribed(
    env: Mapping[str, str], nccl: Nccl, infiniband: InfiniBand, plan: Plan, slurm: Slurm
) -> Answer:
    """NCCL_IB_GID_INDEX is set in a multi-node run although NCCL chooses it.

    Why: the index must be right for every port of every node. NCCL finds the RoCE v2 address itself.
    More: The index counts the addresses of a RoCE port, and changes whenever an address is added or removed. Since
    2.21 NCCL finds the right one itself, and the guide says not to set it. A wrong index ends in "ibv_modify_qp
    failed".

    Fix: unset it.
    """
    value = effective_value("NCCL_IB_GID_INDEX", env, nccl)
    version = loaded_version(nccl)
    if value is None or c_integer(value)[0] < 0:
        return Ok("NCCL_IB_GID_INDEX is not set: NCCL chooses")
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    if not version:
        return Skip("the NCCL version is unknown")
    roce = [port.name for port in infiniband.ports if port.link_layer == "Ethernet" and port.active]
    if version < _GID_IS_CHOSEN or not roce:
        return Ok(f"NCCL {format_version(version)} needs it" if roce else "no RoCE port is active")
    setting = settings(env, nccl)["NCCL_IB_GID_INDEX"]
    return setting_problem(
        [setting],
        f"{setting}, but NCCL {format_version(version)} chooses the index itself",
        more={"ports": " ".join(roce)},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_host_buffers_fail(
    env: Mapping[str, str], nccl: Nccl, container: Container, driver: Driver, gpus: tuple[Gpu, ...]
) -> Answer:
    """The container blocks the NUMA calls that this NCCL needs for its host buffers.

    Why: this NCCL does not check for them. NCCL 2.26.3 and newer do, and fall back to /dev/shm.
    More: NCCL 2.24 to 2.26.2 with a driver for CUDA 12.6 or newer allocates host buffers on a NUMA node without
    checking that this works. Docker blocks the calls: ranks without a direct path to each other fail or hang.

    Fix: start the container with SYS_NICE.
    More: Or disable these buffers.
    """
    version, (first, fixed) = loaded_version(nccl), _HOST_BUFFERS
    if not version:
        return Skip("no NCCL library was found")
    if not first <= version < fixed:
        return Ok(f"NCCL {format_version(version)} does not need them, or checks for them first")
    if container.kind is None:
        return Skip("not a container")
    if driver.cuda_version is None or container.mempolicy is None:
        return Skip("whether the container allows NUMA calls is unknown")
    if driver.cuda_version < _HOST_BUFFERS_DRIVER or container.mempolicy or len(gpus) < 2:
        return Ok("the container allows NUMA calls" if container.mempolicy else "these buffers are not used here")
    values = [effective_value(name, env, nccl) for name in ("NCCL_CUMEM_HOST_ENABLE", "NCCL_CUMEM_ENABLE")]
    if any(value is not None and c_integer(value)[0] == 0 for value in values):
        return Ok("these buffers are disabled")
    return Problem(
        f"NCCL {format_version(version)} in a {container.kind} container that blocks NUMA calls",
        fix=(
            Fix(commands=("docker run --cap-add SYS_NICE ...",)),
            Fix("Or disable the buffers.", ("export NCCL_CUMEM_HOST_ENABLE=0",)),
        ),
        evidence={
            "nccl": format_version(version),
            "container": container.kind,
            "driver_cuda": ".".join(map(str, driver.cuda_version)),
        },
    )
