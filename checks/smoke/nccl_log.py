"""Does NCCL use the machine's hardware, according to its log of the run?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Gpu, InfiniBand, Link, Nccl, NcclLog, Ranks
from mgpu.text import counted, listed

from .._nvlink_models import CONSUMER
from ._diagnoses import DIAGNOSES

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_NEAR = ("LOC", "PIX", "PXB")  # paths with direct transfers by default: src/graph/paths.cc ncclTopoCheckP2p
_HOPPER = (9, 0)
_NVLS_GPUS = 3  # with two GPUs, NCCL does not reduce in the switch: src/transport/nvls.cc ncclNvlsInit
# Warnings that do not matter: without adapters, there is no libibverbs to open.
_HARMLESS = ("Failed to open libibverbs",)
# Warnings that only show that another rank disappeared.
_CONSEQUENCES = ("Connection closed by remote peer", "Socket recv failed", "Accept failed", "socketProgress")


def _is_set(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "0").strip() not in ("", "0")


@check(Severity.WARNING, source=_TROUBLE, because_of=("nccl_transport_disabled", "p2p_between_gpus_fails"))
def nccl_way_between_gpus_weak(
    nccl_log: NcclLog, ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], env: Mapping[str, str]
) -> Answer:
    """NCCL uses host memory or the network between GPUs that can access each other directly.

    Why: The driver reports that they can access each other's memory.
    More: A path through the CPU has a tenth of NVLink's bandwidth. NCCL uses it silently if it cannot see the GPUs'
    positions on the bus (a virtual machine, a container without /sys), or if it is configured to.

    Fix: Check the reason in NCCL's log, and whether the machine's PCI tree is visible.
    """
    off = [name for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if name in env]
    if off:
        return Ok(f"set by {listed(off)}")
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid and not CONSUMER.search(gpu.name or "")}
    gpu_of = {rank.rank: index[rank.gpu_uuid] for rank in ranks.ranks if rank.gpu_uuid in index}
    ways: dict[tuple[int, int], set[str]] = {}
    for line in nccl_log.connections:
        if line.sender in gpu_of and line.receiver in gpu_of:
            a, b = sorted((gpu_of[line.sender], gpu_of[line.receiver]))
            ways.setdefault((a, b), set()).add(line.transport)
    if not ways:
        return Skip("the log has no connection between two GPUs of this machine")
    direct = {(link.a, link.b): link for link in links if _direct(link)}
    weak = {
        pair: found
        for pair, found in sorted(ways.items())
        if pair in direct and not any(way.startswith(("P2P/", "NVLS")) for way in found)
    }
    if not weak:
        return Ok(f"{counted(len(ways), 'GPU pair')} connected as directly as the links allow")
    (a, b), found = next(iter(weak.items()))
    return Problem(
        f"NCCL connects GPUs {a} and {b} over {listed(sorted(found))}, although their link is {direct[a, b].name}"
        + (f"; {counted(len(weak) - 1, 'more pair')}" if len(weak) > 1 else ""),
        fix=commands(shell("grep -hE 'P2P|Could not' {:path}/nccl.*.txt", ranks.folder), "mgpu doctor --only links"),
        evidence={f"{one}-{other}": ", ".join(sorted(way)) for (one, other), way in weak.items()},
        subjects=tuple(f"GPU {gpu}" for gpu in sorted({gpu for pair in weak for gpu in pair})),
    )


def _direct(link: Link) -> bool:
    """Whether NCCL uses direct transfers between these two GPUs by default."""
    if (link.p2p_read or 0, link.p2p_write or 0) != (0, 0):
        return False
    return bool(link.nvlinks) or (link.p2p_read == 0 == link.p2p_write and link.topology in _NEAR)


@check(Severity.WARNING, source=_ENV, because_of=("nccl_network_disabled", "infiniband_transport_fails"))
def nccl_network_is_slow(nccl_log: NcclLog, ranks: Ranks, infiniband: InfiniBand, env: Mapping[str, str]) -> Answer:
    """NCCL uses TCP between nodes that have InfiniBand or RoCE.

    Why: It found no adapter that it could use.
    More: TCP is 5 to 20 times slower. NCCL silently falls back to it if libibverbs or /dev/infiniband is missing in
    a container, or if no adapter matches NCCL_IB_HCA.

    Fix: Check the reason in the log, and whether the device nodes exist.
    More: Pass the device nodes into the container, and install the library there.
    """
    if ranks.nodes < 2:
        return Skip("single-node run")
    network = nccl_log.network
    if network is None:
        return Skip("the log does not show the network")
    active = [port.name for port in infiniband.ports if port.active]
    if network.lower() != "socket" or not active:
        return Ok(f"{network}, {counted(len(active), 'active InfiniBand or RoCE port')}")
    if _is_set(env, "NCCL_IB_DISABLE") or env.get("NCCL_NET", "").lower() == "socket":
        return Ok("TCP, set by a variable")
    return Problem(
        f"NCCL uses TCP between the nodes, although {listed(active)} {'is' if len(active) == 1 else 'are'} active",
        fix=commands(shell("grep -h 'NET/IB' {:path}/nccl.*.txt", ranks.folder), "ls -l /dev/infiniband"),
        evidence={"network": network, "interfaces": ", ".join(nccl_log.interfaces), "active": ", ".join(active)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/cuda/gpudirect-rdma/", because_of=("nccl_network_is_slow",))
def nccl_without_gpudirect(nccl_log: NcclLog, ranks: Ranks, gpus: tuple[Gpu, ...]) -> Answer:
    """NCCL uses InfiniBand or RoCE without GPUDirect RDMA.

    Why: NCCL's log shows no GDRDMA after the adapter, so data does not go directly from the GPU to it.
    More: Every byte is copied through host memory, at half the bandwidth. GPUDirect RDMA needs the module
    nvidia-peermem or DMA-BUF, and an adapter near the GPU.

    Fix: Load the module; in a virtual machine this depends on the host.
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
    """The NVSwitches of this machine can do reductions (NVLink SHARP), but NCCL does not use them.

    Why: Multicast is not available to NCCL, or the algorithm that NCCL chose does not use it.
    More: All-reduce in the switches is faster for large sizes. It needs a fabric manager that has set up multicast,
    and permission to use it in a virtual machine or container.

    Fix: Check NCCL's log for the reason, and whether the fabric manager is running.
    """
    if nccl_log.nvls:
        return Ok("NVLink SHARP is in use")
    young = all((gpu.compute_capability or (0, 0)) >= _HOPPER for gpu in gpus)
    switched = bool(links) and all(link.through_switch and link.nvlinks for link in links)
    here = ranks.expected // max(1, ranks.nodes)
    if not young or not switched or here < _NVLS_GPUS:
        return Ok(f"not applicable with {counted(here, 'rank')} and these GPUs")
    if nccl_log.nvls is None:
        return Skip("the log does not show whether NVLink SHARP is in use")
    if env.get("NCCL_NVLS_ENABLE", "").strip() == "0":
        return Ok("disabled by NCCL_NVLS_ENABLE=0")
    return Problem(
        f"{counted(here, 'GPU')} connected by NVSwitches, but NVLink SHARP is not in use",
        fix=commands(
            shell("grep -h NVLS {:path}/nccl.*.txt", ranks.folder), "systemctl status nvidia-fabricmanager", who="admin"
        ),
        evidence={"version": nccl_log.version, "channels": nccl_log.channels},
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1212")
def nccl_loaded_another(nccl_log: NcclLog, nccl: Nccl) -> Answer:
    """The ranks loaded a different NCCL than the one in this environment.

    Why: a library path or preload set by the launcher, a module file or the job's prolog selects another NCCL.
    Findings about the installed one do not apply to it.

    Fix: Check which setting selects the other library.
    """
    here = nccl.libraries[0] if nccl.libraries else None
    if here is None or here.version is None or nccl_log.version is None:
        return Skip("one of the two versions is unknown")
    if version_numbers(nccl_log.version) == version_numbers(here.version):
        return Ok(f"{nccl_log.version}, as installed")
    return Problem(
        f"the ranks loaded NCCL {nccl_log.version}, but this environment has {here.version}",
        f"{here.path} was not loaded.",
        commands("echo $LD_LIBRARY_PATH $LD_PRELOAD", "mgpu doctor --only nccl"),
        {"loaded": nccl_log.version, "installed": here.version, "path": here.path},
    )


@check(Severity.INFO, source=_ENV)
def nccl_without_trees(nccl_log: NcclLog, ranks: Ranks) -> Answer:
    """NCCL uses only rings in a multi-node run.

    Why: Small all-reduces take longer with every additional node.
    More: The latency of a ring grows with the number of ranks, that of a tree with its logarithm. NCCL drops trees
    only if NCCL_ALGO excludes them.

    Fix: Let NCCL choose.
    More: Unset NCCL_ALGO.
    """
    if ranks.nodes < 2:
        return Ok("single-node run: rings are enough")
    if nccl_log.trees is None:
        return Skip("the log does not show it")
    if nccl_log.trees:
        return Ok("rings and trees")
    return Problem(
        f"rings only, on {ranks.nodes} nodes",
        fix=commands("unset NCCL_ALGO"),
        evidence={"channels": nccl_log.channels},
    )


@check(Severity.WARNING, source=_TROUBLE, because_of=DIAGNOSES)
def nccl_warned(nccl_log: NcclLog, ranks: Ranks) -> Answer:
    """NCCL logged a warning.

    Why: NCCL logs a warning if a driver, kernel or network call failed; torch then shows only "unhandled system
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
