"""Does NCCL use what the machine has, as its own log of the run tells?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Gpu, InfiniBand, Link, Nccl, NcclLog, Ranks
from mgpu.text import counted, listed

from .._nvlink_models import CONSUMER
from ._diagnoses import DIAGNOSES

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_NEAR = ("LOC", "PIX", "PXB")  # over these NCCL lets GPUs talk directly by default: src/graph/paths.cc ncclTopoCheckP2p
_HOPPER = (9, 0)
_NVLS_GPUS = 3  # with two there is nothing to add inside a switch: src/transport/nvls.cc ncclNvlsInit
# Warnings of NCCL that say nothing of this run: without adapters there is no libibverbs to be opened.
_HARMLESS = ("Failed to open libibverbs",)
# … and those that say only that another rank is gone.
_CONSEQUENCES = ("Connection closed by remote peer", "Socket recv failed", "Accept failed", "socketProgress")


def _is_set(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "0").strip() not in ("", "0")


@check(Severity.WARNING, source=_TROUBLE, because_of=("nccl_transport_disabled", "p2p_between_gpus_fails"))
def nccl_way_between_gpus_weak(
    nccl_log: NcclLog, ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], env: Mapping[str, str]
) -> Answer:
    """NCCL sends over host memory or the network between GPUs that reach each other directly.

    Why: The driver says that they reach each other's memory.
    More: A way through the CPU has a tenth of NVLink's bandwidth. NCCL takes it without a word where it does not see
    the GPUs' places (a virtual machine, a container without /sys), or was told to.

    Fix: See in NCCL's log which reason it gives, and whether the machine's PCI tree can be seen.
    """
    off = [name for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if name in env]
    if off:
        return Ok(f"chosen by {listed(off)}")
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid and not CONSUMER.search(gpu.name or "")}
    gpu_of = {rank.rank: index[rank.gpu_uuid] for rank in ranks.ranks if rank.gpu_uuid in index}
    ways: dict[tuple[int, int], set[str]] = {}
    for line in nccl_log.connections:
        if line.sender in gpu_of and line.receiver in gpu_of:
            a, b = sorted((gpu_of[line.sender], gpu_of[line.receiver]))
            ways.setdefault((a, b), set()).add(line.transport)
    if not ways:
        return Skip("the log tells of no connection between two GPUs of this machine")
    direct = {(link.a, link.b): link for link in links if _direct(link)}
    weak = {
        pair: found
        for pair, found in sorted(ways.items())
        if pair in direct and not any(way.startswith(("P2P/", "NVLS")) for way in found)
    }
    if not weak:
        return Ok(f"{counted(len(ways), 'pair')} of GPUs as directly as the links allow")
    (a, b), found = next(iter(weak.items()))
    return Problem(
        f"NCCL connects GPU {a} and {b} by {listed(sorted(found))}, though their link is {direct[a, b].name}"
        + (f"; {counted(len(weak) - 1, 'more pair')} so" if len(weak) > 1 else ""),
        fix=commands(shell("grep -hE 'P2P|Could not' {:path}/nccl.*.txt", ranks.folder), "mgpu doctor --only links"),
        evidence={f"{one}-{other}": ", ".join(sorted(way)) for (one, other), way in weak.items()},
        subjects=tuple(f"GPU {gpu}" for gpu in sorted({gpu for pair in weak for gpu in pair})),
    )


def _direct(link: Link) -> bool:
    """Whether NCCL would by default let these two talk directly."""
    if (link.p2p_read or 0, link.p2p_write or 0) != (0, 0):
        return False
    return bool(link.nvlinks) or (link.p2p_read == 0 == link.p2p_write and link.topology in _NEAR)


@check(Severity.WARNING, source=_ENV, because_of=("nccl_network_disabled", "infiniband_transport_fails"))
def nccl_network_is_slow(nccl_log: NcclLog, ranks: Ranks, infiniband: InfiniBand, env: Mapping[str, str]) -> Answer:
    """NCCL talks over TCP between machines that have InfiniBand or RoCE.

    Why: It found no adapter that it could use.
    More: TCP is 5 to 20 times slower. NCCL falls back to it without a word where libibverbs or /dev/infiniband is
    missing in a container, or no adapter fits NCCL_IB_HCA.

    Fix: See why, and whether the devices are there.
    More: Give the container the devices and the library.
    """
    if ranks.nodes < 2:
        return Skip("the run stays on one machine")
    network = nccl_log.network
    if network is None:
        return Skip("the log does not tell the network")
    active = [port.name for port in infiniband.ports if port.active]
    if network.lower() != "socket" or not active:
        return Ok(f"{network}, {counted(len(active), 'active port')} of InfiniBand or RoCE")
    if _is_set(env, "NCCL_IB_DISABLE") or env.get("NCCL_NET", "").lower() == "socket":
        return Ok("TCP, as a variable says")
    return Problem(
        f"NCCL uses TCP between the machines, though {listed(active)} {'is' if len(active) == 1 else 'are'} active",
        fix=commands(shell("grep -h 'NET/IB' {:path}/nccl.*.txt", ranks.folder), "ls -l /dev/infiniband"),
        evidence={"network": network, "interfaces": ", ".join(nccl_log.interfaces), "active": ", ".join(active)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/cuda/gpudirect-rdma/", because_of=("nccl_network_is_slow",))
def nccl_without_gpudirect(nccl_log: NcclLog, ranks: Ranks, gpus: tuple[Gpu, ...]) -> Answer:
    """NCCL uses InfiniBand or RoCE without GPUDirect RDMA.

    Why: NCCL would write GDRDMA behind the adapter where data goes from the GPU straight to it.
    More: Without it every byte is copied through host memory on its way, at half the bandwidth. It needs the module
    nvidia-peermem or DMA-BUF, and an adapter near the GPU.

    Fix: Load the module; in a virtual machine the host decides.
    """
    over = {line.transport for line in nccl_log.connections if line.transport.startswith("NET/IB")}
    if not over:
        return Ok("no connection over InfiniBand or RoCE")
    if any("GDRDMA" in way for way in over) or any(CONSUMER.search(gpu.name or "") for gpu in gpus):
        return Ok(listed(sorted(over)[:4]))
    return Problem(
        f"{listed(sorted(over)[:4])} without GPUDirect RDMA",
        fix=commands(
            "sudo modprobe nvidia-peermem", shell("grep -hi 'GPU Direct' {:path}/nccl.*.txt", ranks.folder), who="admin"
        ),
        evidence={"transports": ", ".join(sorted(over))},
    )


@check(Severity.INFO, source=_ENV, because_of=("nccl_transport_disabled", "nvls_fails"))
def nccl_switches_do_not_add(
    nccl_log: NcclLog, ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], env: Mapping[str, str]
) -> Answer:
    """The NVSwitches of this machine could add, and NCCL does not let them (NVLink SHARP).

    Why: NCCL found that multicast is not to be had, or that its own choice of algorithm has no use for it.
    More: All-reduce in the switches is faster for large sizes. It needs a fabric manager that has set up multicast, and
    a virtual machine or a container that may use it.

    Fix: See what NCCL says of it, and whether the fabric manager is well.
    """
    if nccl_log.nvls:
        return Ok("NVLink SHARP is in use")
    young = all((gpu.compute_capability or (0, 0)) >= _HOPPER for gpu in gpus)
    switched = bool(links) and all(link.through_switch and link.nvlinks for link in links)
    here = ranks.expected // max(1, ranks.nodes)
    if not young or not switched or here < _NVLS_GPUS:
        return Ok(f"nothing to add in, with {counted(here, 'rank')} here")
    if nccl_log.nvls is None:
        return Skip("the log does not tell whether NVLink SHARP is in use")
    if env.get("NCCL_NVLS_ENABLE", "").strip() == "0":
        return Ok("switched off by NCCL_NVLS_ENABLE=0")
    return Problem(
        f"{counted(here, 'GPU')} behind NVSwitches, and NVLink SHARP is not in use",
        fix=commands(
            shell("grep -h NVLS {:path}/nccl.*.txt", ranks.folder), "systemctl status nvidia-fabricmanager", who="admin"
        ),
        evidence={"version": nccl_log.version, "channels": nccl_log.channels},
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1212")
def nccl_loaded_another(nccl_log: NcclLog, nccl: Nccl) -> Answer:
    """The NCCL that the ranks loaded is not the one that this environment has.

    Why: a library path or a preload of the launcher, a module file or the job's prolog puts another one in front; what
    is known of the one that is installed does not hold for it.

    Fix: See what puts another one in front of it.
    """
    here = nccl.libraries[0] if nccl.libraries else None
    if here is None or here.version is None or nccl_log.version is None:
        return Skip("one of the two versions is not known")
    if numbers(nccl_log.version) == numbers(here.version):
        return Ok(f"{nccl_log.version}, as installed")
    return Problem(
        f"the ranks run NCCL {nccl_log.version}; the one found here is {here.version}",
        f"{here.path} was not the one that was loaded.",
        commands("echo $LD_LIBRARY_PATH $LD_PRELOAD", "mgpu doctor --only nccl"),
        {"loaded": nccl_log.version, "installed": here.version, "path": here.path},
    )


@check(Severity.INFO, source=_ENV)
def nccl_without_trees(nccl_log: NcclLog, ranks: Ranks) -> Answer:
    """NCCL has only rings over several machines.

    Why: Small all-reduces take longer with every machine.
    More: The latency of a ring grows with the number of ranks, that of a tree with its logarithm. NCCL gives trees up
    only when it is told to (NCCL_ALGO).

    Fix: Let NCCL choose.
    More: Unset NCCL_ALGO.
    """
    if ranks.nodes < 2:
        return Ok("one machine: rings do")
    if nccl_log.trees is None:
        return Skip("the log does not tell")
    if nccl_log.trees:
        return Ok("rings and trees")
    return Problem(
        f"rings only, over {ranks.nodes} machines",
        fix=commands("unset NCCL_ALGO"),
        evidence={"channels": nccl_log.channels},
    )


@check(Severity.WARNING, source=_TROUBLE, because_of=DIAGNOSES)
def nccl_warned(nccl_log: NcclLog, ranks: Ranks) -> Answer:
    """NCCL wrote a warning into its log.

    Why: it warns where a call of the driver, the kernel or the network failed; torch then shows only "unhandled system
    error", or nothing at all.

    Fix: Read the lines around it.
    """
    found = [line for line in nccl_log.warnings if not any(words in line for words in _HARMLESS)]
    if not found:
        return Ok("no warning")
    own = [line for line in found if not any(words in line for words in _CONSEQUENCES)] or found
    return Problem(
        f"NCCL: {own[0]}",
        f"{counted(len(found), 'warning')} in its log.",
        commands(shell("grep -h -B5 -A2 'NCCL WARN' {:path}/nccl.*.txt", ranks.folder)),
        {f"warning_{number}": line for number, line in enumerate(own[:5], 1)},
    )
