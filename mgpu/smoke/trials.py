"""Which single changes could make a failed stage work? Pure: computed from the facts alone.

Most likely first: variables set by the user, transports that NCCL can disable, the network interface, another backend,
and last subsets of the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Gpu, Interface, Snapshot
from mgpu.snapshot.gpu_in_use import gpus_of
from mgpu.text import listed

AS_CONFIGURED = "as configured"
COMMUNICATES = ("group", "collectives", "pairs", "train", "bandwidth")  # stages that depend on communication
P2P_OFF = {"NCCL_P2P_DISABLE": "1"}
SHM_OFF = {"NCCL_SHM_DISABLE": "1"}
IB_OFF = {"NCCL_IB_DISABLE": "1"}
NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}
# Variables that may break communication between ranks.
_GLOO = ("GLOO_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "USE_LIBUV")
_NCCL = ("NCCL_", "TORCH_NCCL_", "UCX_", "FI_", "OFI_NCCL_")
_HARMLESS = ("NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG")  # they only add log output
_SINGLY = 2  # up to this number, variables are removed one by one; otherwise all of them together first
_INTERFACES = 3  # at most: each costs up to 15 s of 90
_NVLS_GPUS = 3  # NCCL uses NVLink SHARP with more than two GPUs only (src/transport/nvls.cc ncclNvlsInit)


@dataclass(frozen=True)
class Try:
    """One change and its effect on the launch."""

    change: str
    environment: Mapping[str, str] = field(default_factory=dict)  # variables to set; "" removes
    orders: Mapping[str, Any] = field(default_factory=dict)  # fields of Orders with another value
    gpus: tuple[int, ...] = ()  # NVML indices of the GPUs to use; empty: all
    narrower: tuple[Try, ...] = ()  # parts of this change, tried if it works


def tries(snapshot: Snapshot, orders: Orders, stage: str) -> tuple[Try, ...]:
    """Return the changes to try for a failed stage, in order; the first one is no change."""
    found = [Try(AS_CONFIGURED)]
    if stage == "train":
        if orders.strategy != "ddp":
            found.append(Try(f"DDP instead of {orders.strategy.upper()}", orders={"strategy": "ddp"}))
        if orders.precision != "no":
            found.append(Try(f"fp32 instead of {orders.precision}", orders={"precision": "no"}))
    if stage == "checkpoint" and orders.checkpoint_folder is not None:
        found.append(Try("checkpoint in the run folder", orders={"checkpoint_folder": None}))
    if stage in COMMUNICATES and orders.world > 1:
        found += _without_variables(snapshot.env or {}, orders)
        if not orders.cpu:
            found += _without_transports(snapshot, orders)
        found += _with_interfaces(snapshot, orders)
        if not orders.cpu:
            found.append(Try("gloo instead of NCCL", orders={"backend": "gloo"}))
            found += _with_fewer_gpus(snapshot, orders)
    return tuple(found)


def _without_variables(env: Mapping[str, str], orders: Orders) -> Iterator[Try]:
    """Yield tries without the user's variables: one by one, or all together first if there are many."""
    prefixes = _GLOO if orders.cpu else (*_GLOO, *_NCCL)
    names = [name for name in env if name.startswith(prefixes) and not name.startswith(_HARMLESS)]
    singly = [Try(f"without {name}", {name: ""}) for name in names]
    if len(names) <= _SINGLY:
        yield from singly
    else:
        together = dict.fromkeys(names, "")
        yield Try(f"without {listed(names)}", together, narrower=tuple(singly))


def _without_transports(snapshot: Snapshot, orders: Orders) -> Iterator[Try]:
    """Yield a try without each NCCL transport that this machine can use and that is not off already."""
    gpus, links, env = _taking_part(snapshot, orders), snapshot.links, snapshot.env or {}
    here = {gpu.index for gpu in gpus}
    among = [link for link in links or () if {link.a, link.b} <= here]
    several = len(gpus) != 1
    ib = snapshot.infiniband
    switched = bool(among) and all(link.through_switch and link.nvlinks for link in among)
    young = all((gpu.compute_capability or (0,)) >= (9, 0) for gpu in gpus)
    matters = (
        (P2P_OFF, several and (not among or any(link.nvlinks or link.p2p_read in (0, None) for link in among))),
        (SHM_OFF, several),
        (IB_OFF, orders.nodes > 1 or (ib is not None and any(port.active for port in ib.ports))),
        (NVLS_OFF, switched and young and len(gpus) >= _NVLS_GPUS),
    )
    for change, does in matters:
        ((name, value),) = change.items()
        if does and env.get(name) != value:
            yield Try(f"{name}={value}", change)


def _with_interfaces(snapshot: Snapshot, orders: Orders) -> Iterator[Try]:
    """Yield a try for each network interface; ranks of one machine may also use the loopback interface."""
    env = snapshot.env or {}
    names = ("GLOO_SOCKET_IFNAME",) if orders.cpu else ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    network = snapshot.network
    usable = [i for i in network.interfaces if _carries(i, orders.nodes)] if network is not None else []
    usable.sort(key=lambda interface: interface.loopback)
    for interface in usable[:_INTERFACES]:
        change = dict.fromkeys(names, interface.name)
        if any(env.get(name) != value for name, value in change.items()):
            yield Try(" ".join(f"{name}={interface.name}" for name in names), change)


def _carries(interface: Interface, nodes: int) -> bool:
    """Whether ranks could communicate over the interface."""
    if not interface.up or interface.running is False or not interface.addresses:
        return False
    if interface.loopback:
        return nodes == 1
    return interface.routable is not False and not interface.virtual


def _with_fewer_gpus(snapshot: Snapshot, orders: Orders) -> Iterator[Try]:
    """Yield tries with halves of the GPUs, then with pairs: the most distant pairs first."""
    if orders.nodes > 1:
        return
    gpus = _taking_part(snapshot, orders)
    count = len(gpus)
    if count < 3 or not all(gpu.uuid for gpu in gpus):
        return
    if count > 3:
        yield from (_subset_trial(half) for half in (gpus[: count // 2], gpus[count // 2 :]))
    far = {(link.a, link.b): not link.nvlinks and link.topology in ("NODE", "SYS") for link in snapshot.links or ()}
    pairs = sorted(combinations(gpus, 2), key=lambda pair: not far.get((pair[0].index, pair[1].index), False))
    yield from (_subset_trial(pair) for pair in _spread(pairs))


def _spread(pairs: Sequence[tuple[Gpu, Gpu]]) -> Iterator[tuple[Gpu, Gpu]]:
    """Order pairs so that the first few contain every GPU."""
    left = list(pairs)
    while left:
        met: set[int] = set()
        for pair in list(left):
            ends = {gpu.index for gpu in pair}
            if not ends & met:
                met |= ends
                left.remove(pair)
                yield pair


def _subset_trial(gpus: Sequence[Gpu]) -> Try:
    numbers = tuple(gpu.index for gpu in gpus)
    what = "pair" if len(gpus) == 2 else "GPUs"
    listed = "-".join(map(str, numbers)) if len(gpus) == 2 else ",".join(map(str, numbers))
    only = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid or "" for gpu in gpus)}
    return Try(f"{what} {listed}", only, {"world": len(gpus)}, numbers)


def _taking_part(snapshot: Snapshot, orders: Orders) -> list[Gpu]:
    return gpus_of(snapshot, orders.ranks_here)
