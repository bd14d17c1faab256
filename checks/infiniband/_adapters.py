"""Which ports are checked, and how are they listed in messages?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Skip
from mgpu.snapshot import HcaPort, InfiniBand, Plan
from mgpu.text import listed

NEAR = ("PIX", "PXB")  # paths on which NCCL uses GPUDirect RDMA by default (src/graph/paths.cc, ncclTopoCheckGdr)
TCP_FALLBACK = "NCCL then silently falls back to TCP: a tenth of the speed, or less."


def several_nodes(plan: Plan) -> Skip | None:
    """Skip a check of the adapters if the run has only one node."""
    return Skip("a single-node run does not use the network") if plan.nodes < 2 else None


def ports_to_check(infiniband: InfiniBand) -> list[HcaPort]:
    """Return the ports to check: physical ones, or virtual functions if there are no others."""
    whole = [port for port in infiniband.ports if not port.virtual_function]
    return whole or list(infiniband.ports)


def active_ports(infiniband: InfiniBand) -> list[HcaPort]:
    """Return the ports NCCL would use without NCCL_IB_HCA."""
    return [port for port in ports_to_check(infiniband) if port.active]


def port_names(ports: Iterable[HcaPort]) -> str:
    """List the names of ports, at most eight."""
    names = [port.name for port in ports]
    return listed(names) if len(names) <= 8 else f"{', '.join(names[:8])} and {len(names) - 8} more"
