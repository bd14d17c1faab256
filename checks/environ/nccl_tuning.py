"""Does a setting of NCCL cost bandwidth, or worse, on this machine?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Gpu, InfiniBand, Link, Nccl, Pci, Plan, Slurm
from mgpu.text import counted

from .._grammars import PROTO, Version, c_integer, dotted, is_on, level
from .._nccl_settings import NCCL_GUIDE, loaded, nodes_of, setting_problem, settings, value_of
from .._variables import NCCL
from ._transports import cards_near, closer, has_switch_reduction, switched_off, talks_directly, way

_DEFAULT_LEVEL = "PXB"  # src/graph/paths.cc ncclTopoCheckP2p, ncclTopoCheckGdr
_NVLS_SINCE: Version = (2, 17)
_GID_IS_CHOSEN: Version = (2, 21)
# cuMem host buffers are the default from 2.24 on, and tested before use from 2.26.3 on (src/misc/cudawrap.cc).
_HOST_BUFFERS: tuple[Version, Version] = ((2, 24), (2, 26, 3))
_HOST_BUFFERS_DRIVER = (12, 6)
# Settings "for debugging" of which checks of their own speak.
# fmt: off
_JUDGED = frozenset({
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
})
# fmt: on


def _lost_without(
    off: list[str], gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci, version: Version
) -> tuple[dict[str, str], bool]:
    """What each variable takes from this machine, and whether it is not known for one of them."""
    direct = [talks_directly(link, gpus, pci) for link in links]
    peers_off = "NCCL_P2P_DISABLE" in off
    lost: dict[str, str] = {}
    unknown = False
    if peers_off:
        unknown |= None in direct and True not in direct
        if (number := direct.count(True)) > 0:
            nvlink = " NVLink included:" if any(link.nvlinks for link in links) else ""
            lost["NCCL_P2P_DISABLE"] = f"no direct transfer,{nvlink} {counted(number, 'pair')} of {len(links)} could"
    if "NCCL_SHM_DISABLE" in off:
        unknown |= None in direct and False not in direct and not peers_off
        if peers_off or False in direct:
            lost["NCCL_SHM_DISABLE"] = "ranks of this machine that have no direct way talk over the network"
    if "NCCL_NVLS_ENABLE" in off and (not version or version >= _NVLS_SINCE) and has_switch_reduction(gpus, links):
        lost["NCCL_NVLS_ENABLE"] = "the NVSwitches no longer add: all-reduce loses a fifth of its bandwidth"
    return lost, unknown


# Where the way between the GPUs is broken, switching it off is the stopgap, not the fault.
@check(
    Severity.WARNING,
    source=NCCL_GUIDE,
    because_of=("iommu_translates_peer_traffic", "pcie_acs_redirects", "vm_topology_flat"),
)
def nccl_transport_disabled(
    env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci
) -> Answer:
    """A fast way between the GPUs of this machine is switched off by a variable.

    Why: NCCL_P2P_DISABLE (NVLink included), NCCL_SHM_DISABLE and NCCL_NVLS_ENABLE=0 are for finding faults. Left set
    they cost most of the bandwidth, and nothing in the logs says so. They are also found in ~/.nccl.conf and
    /etc/nccl.conf.

    Fix: remove it, unless this machine needs it.
    More: If the run then hangs, `mgpu smoke-test` finds out which path is broken.
    """
    found = settings(env, nccl)
    off = switched_off(found)
    if not off:
        return Ok("no transport is switched off")
    if len(gpus) < 2:
        return Ok(f"{', '.join(off)}: nothing to lose with one GPU")
    lost, unknown = _lost_without(off, gpus, links, pci, loaded(nccl))
    if not lost:
        if unknown:
            return Skip("whether the GPUs reach each other directly is not known")
        return Ok(f"{', '.join(str(found[name]) for name in off)} changes nothing on this machine")
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
    """In a run over several machines, a variable keeps NCCL from the fast network.

    Why: the machines talk over TCP instead.
    More: NCCL_IB_DISABLE=1 and NCCL_NET=Socket send everything over TCP, 5 to 20 times slower than InfiniBand or RoCE.
    accelerate sets the first one itself for RTX 40 cards under an old driver.

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
        return Ok("nothing keeps NCCL from InfiniBand or RoCE")
    if nodes_of(plan, slurm) < 2:
        return Skip("the run stays on one machine")
    active = [port.name for port in infiniband.ports if port.active and port.link_layer in ("InfiniBand", "Ethernet")]
    if not active:
        return Ok(f"{off[0]}, and no port of InfiniBand or RoCE is active: nothing is lost")
    return setting_problem(
        off,
        f"{', '.join(map(str, off))}, and {counted(len(active), 'port')} of InfiniBand or RoCE "
        f"{'is' if len(active) == 1 else 'are'} active",
        more={"ports": " ".join(active)},
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_tuned_by_hand(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL is tuned by variables that its guide calls debugging.

    Why: new versions of NCCL choose algorithm, channels and buffers better than a value found on another machine, and
    the guide warns of "sub-optimal behavior, crashes, or hangs" where such settings are kept. Some clouds prescribe a
    few of them.

    Fix: remove what your cloud or cluster does not prescribe.
    """
    found, version = settings(env, nccl), loaded(nccl)
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
        return Ok("no setting for debugging is in effect")
    renamed = [f"{s.name} is now {NCCL[s.name].instead}" for s in tuned if NCCL[s.name].instead]
    return setting_problem(
        tuned,
        f"{counted(len(tuned), 'NCCL setting')} for debugging: {', '.join(map(str, tuned))}",
        "They keep NCCL from choosing by itself." + (f" {'; '.join(renamed)}." if renamed else ""),
    )


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_bandwidth_limited(env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...]) -> Answer:
    """A setting of NCCL leaves a part of the bandwidth unused.

    Why: large messages, which training consists of, go at half the speed or less.
    More: One channel is one block of the GPU and one ring, where NCCL takes up to 32; the protocol LL sends a flag with
    every word, half of what goes over the wire. Both are tried while finding faults, and stay.

    Fix: let NCCL choose.
    """
    found, version = settings(env, nccl), loaded(nccl)
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
        return Skip("one GPU sends nothing")
    bad = [found[name] for name in limits]
    return setting_problem(
        bad,
        "; ".join(f"{found[name]}: {why}" for name, why in limits.items()),
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-proto")
def nccl_ll128_forced(env: Mapping[str, str], nccl: Nccl, links: tuple[Link, ...]) -> Answer:
    """NCCL_PROTO forces LL128 on GPUs that NVLink does not join.

    Why: without NVLink its stores may arrive in pieces: wrong sums, and no error.
    More: LL128 needs stores of 128 bytes that arrive whole, which NVLink gives. NCCL leaves it out elsewhere, unless it
    is named; then data may be corrupted, and the loss goes wrong without any error.

    Fix: let NCCL choose.
    More: To leave a protocol out, write it with `^`.
    """
    value = value_of("NCCL_PROTO", env, nccl)
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
        return Skip("there is no pair of GPUs here")
    without = [link for link in links if link.nvlinks == 0]
    if not without:
        if any(link.nvlinks is None for link in links):
            return Skip("the links are not known")
        return Ok("NVLink joins every pair")
    setting = settings(env, nccl)["NCCL_PROTO"]
    return setting_problem(
        [setting],
        f"{setting} forces LL128, and NVLink is missing from {counted(len(without), 'pair')} of {len(links)}",
        more={"pair": f"{without[0].a}-{without[0].b} {without[0].name}"},
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-p2p-level", because_of=("nccl_transport_disabled",))
def nccl_p2p_level_too_low(
    env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...], links: tuple[Link, ...], pci: Pci
) -> Answer:
    """NCCL_P2P_LEVEL keeps GPUs from talking directly that could.

    Why: the level is the farthest path on which NCCL lets two GPUs read each other's memory. Below the default (through
    PCIe switches), pairs that could do it go through the memory of the CPU.

    Fix: let NCCL choose.
    """
    value = value_of("NCCL_P2P_LEVEL", env, nccl)
    if value is None:
        return Ok("NCCL_P2P_LEVEL is not set: NCCL chooses")
    cut = level(value, loaded(nccl))
    if cut is None:
        return Skip("its value is not understood: see nccl_value_misread")
    if is_on(value_of("NCCL_P2P_DISABLE", env, nccl)):
        return Skip("NCCL_P2P_DISABLE is on")
    direct = [link for link in links if talks_directly(link, gpus, pci)]
    lost = [link for link in direct if closer(cut, "NVL" if link.nvlinks else way(link))]
    if not lost:
        if any(talks_directly(link, gpus, pci) is None for link in links):
            return Skip("whether the GPUs reach each other directly is not known")
        return Ok(f"NCCL_P2P_LEVEL={value} keeps no pair apart")
    setting = settings(env, nccl)["NCCL_P2P_LEVEL"]
    return setting_problem(
        [setting],
        f"{setting} keeps {counted(len(lost), 'pair')} of {len(links)} from direct transfer",
        f"Farther apart than {cut}: GPU {lost[0].a} and {lost[0].b} ({lost[0].name}). They go through host memory.",
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
    """In a run over several machines, NCCL_NET_GDR_LEVEL keeps the network card from the GPU's memory.

    Why: the level is the farthest path on which NCCL lets a card read GPU memory itself. Below the default (through
    PCIe switches), every message is copied through the memory of the CPU first.

    Fix: let NCCL choose.
    """
    value = value_of("NCCL_NET_GDR_LEVEL", env, nccl)
    if value is None:
        return Ok("NCCL_NET_GDR_LEVEL is not set: NCCL chooses")
    if nodes_of(plan, slurm) < 2:
        return Skip("the run stays on one machine")
    cut = level(value, loaded(nccl))
    if cut is None:
        return Skip("its value is not understood: see nccl_value_misread")
    if not closer(cut, _DEFAULT_LEVEL):
        return Ok(f"NCCL_NET_GDR_LEVEL={value} is the default or more")
    near = cards_near(gpus, pci, infiniband)
    if not near:
        return Skip("no card of InfiniBand or RoCE is known to stand near a GPU")
    lost = [found for found in near if closer(cut, found[2])]
    if not lost:
        return Ok(f"NCCL_NET_GDR_LEVEL={value} reaches every card near a GPU")
    setting = settings(env, nccl)["NCCL_NET_GDR_LEVEL"]
    index, card, way = lost[0]
    return setting_problem(
        [setting],
        f"{setting} keeps {counted(len({found[0] for found in lost}), 'GPU')} from GPUDirect RDMA",
        f"GPU {index} and {' '.join(card.names) or card.address} are {way} apart, farther than {cut}: data goes "
        "through the CPU's memory.",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_gid_index_prescribed(
    env: Mapping[str, str], nccl: Nccl, infiniband: InfiniBand, plan: Plan, slurm: Slurm
) -> Answer:
    """In a run over several machines, NCCL_IB_GID_INDEX is set although NCCL chooses it.

    Why: it must be right for every port of every machine; NCCL looks for the address of RoCE v2 by itself.
    More: The index counts the addresses of a RoCE port, and changes with every address that comes or goes. Since 2.21
    NCCL finds the right one itself, and the guide says not to set it; a wrong one ends in "ibv_modify_qp failed".

    Fix: unset it.
    """
    value = value_of("NCCL_IB_GID_INDEX", env, nccl)
    version = loaded(nccl)
    if value is None or c_integer(value)[0] < 0:
        return Ok("NCCL_IB_GID_INDEX is not set: NCCL chooses")
    if nodes_of(plan, slurm) < 2:
        return Skip("the run stays on one machine")
    if not version:
        return Skip("the version of NCCL is not known")
    roce = [port.name for port in infiniband.ports if port.link_layer == "Ethernet" and port.active]
    if version < _GID_IS_CHOSEN or not roce:
        return Ok(f"NCCL {dotted(version)} needs it" if roce else "no port of RoCE is active")
    setting = settings(env, nccl)["NCCL_IB_GID_INDEX"]
    return setting_problem(
        [setting],
        f"{setting}, and NCCL {dotted(version)} would choose itself",
        more={"ports": " ".join(roce)},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_host_buffers_fail(
    env: Mapping[str, str], nccl: Nccl, container: Container, driver: Driver, gpus: tuple[Gpu, ...]
) -> Answer:
    """This NCCL takes host memory in a way that the container forbids.

    Why: its host buffers need them. NCCL 2.26.3 and newer test that, and fall back to /dev/shm.
    More: NCCL 2.24 to 2.26.2 with a driver for CUDA 12.6 or newer asks for buffers on a NUMA node, and does not test
    whether that works. Docker blocks the calls it needs: ranks without a direct way to each other fail or hang.

    Fix: start the container with the right to them.
    More: Start the container with SYS_NICE, or switch these buffers off.
    """
    version, (first, mended) = loaded(nccl), _HOST_BUFFERS
    if not version:
        return Skip("no NCCL library is in reach")
    if not first <= version < mended:
        return Ok(f"NCCL {dotted(version)} does not need it, or tests it first")
    if container.kind is None:
        return Skip("not a container")
    if driver.cuda_version is None or container.mempolicy is None:
        return Skip("whether the container allows NUMA calls is not known")
    if driver.cuda_version < _HOST_BUFFERS_DRIVER or container.mempolicy or len(gpus) < 2:
        return Ok("the container allows NUMA calls" if container.mempolicy else "these buffers are not used here")
    values = [value_of(name, env, nccl) for name in ("NCCL_CUMEM_HOST_ENABLE", "NCCL_CUMEM_ENABLE")]
    if any(value is not None and c_integer(value)[0] == 0 for value in values):
        return Ok("these buffers are switched off")
    return Problem(
        f"NCCL {dotted(version)} in a {container.kind} container that forbids NUMA calls",
        fix=(
            Fix(commands=("docker run --cap-add SYS_NICE ...",)),
            Fix("Or switch the buffers off.", ("export NCCL_CUMEM_HOST_ENABLE=0",)),
        ),
        evidence={
            "nccl": dotted(version),
            "container": container.kind,
            "driver_cuda": ".".join(map(str, driver.cuda_version)),
        },
    )
