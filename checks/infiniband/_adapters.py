"""Which ports count, and what is said of them?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Skip
from mgpu.snapshot import HcaPort, InfiniBand, Plan
from mgpu.text import listed

NEAR = ("PIX", "PXB")  # what NCCL's GPUDirect RDMA takes by default (src/graph/paths.cc, ncclTopoCheckGdr)
FALLS_BACK = "NCCL then goes over TCP without a word: a tenth of the speed, or less."


def several_nodes(plan: Plan) -> Skip | None:
    """What a check of the adapters is asked for only."""
    return Skip("a run on one machine does not use the network") if plan.nodes < 2 else None


def judged(infiniband: InfiniBand) -> list[HcaPort]:
    """The ports that matter. Virtual functions belong to guests, except where there is nothing else."""
    whole = [port for port in infiniband.ports if not port.virtual_function]
    return whole or list(infiniband.ports)


def active_ports(infiniband: InfiniBand) -> list[HcaPort]:
    """Those NCCL would use if nothing chose among them."""
    return [port for port in judged(infiniband) if port.active]


def port_names(ports: Iterable[HcaPort]) -> str:
    """Their names, the first eight of them."""
    names = [port.name for port in ports]
    return listed(names) if len(names) <= 8 else f"{', '.join(names[:8])} and {len(names) - 8} more"
