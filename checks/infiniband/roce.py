"""Do RoCE ports have the addresses that NCCL needs?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import HcaPort, InfiniBand, Nccl, Plan
from mgpu.text import counted, listed

from .._nccl_settings import settings
from ._adapters import active_ports, port_names, several_nodes
from ._hca import selects

_NETWORKING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
_HCA = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca"


def _roce_ports(infiniband: InfiniBand) -> list[HcaPort]:
    return [port for port in active_ports(infiniband) if port.link_layer == "Ethernet" and port.gid_types is not None]


@check(
    Severity.WARNING, source=f"{_NETWORKING.partition('#')[0]}#rdma-over-converged-ethernet-roce", given=several_nodes
)
def roce_gid_missing(infiniband: InfiniBand, plan: Plan) -> Answer:
    """An active RoCE port has no RoCE v2 address.

    Why: NCCL needs one; without it, its queue pairs fail with Invalid argument or cannot connect.
    More: Without such a GID, NCCL uses the first one in the table and stops with "Call to ibv_modify_qp failed with
    error Invalid argument", or cannot reach the other node.

    Fix: give its interface an address; a container needs the host's network.
    More: Switch the port to RoCE v2, and give its interface an address.
    """
    ports = _roce_ports(infiniband)
    bad = [port for port in ports if "RoCE v2" not in (port.gid_types or ())]
    if not ports:
        return Skip("no active RoCE port reports its addresses")
    if not bad:
        return Ok(f"RoCE v2 on {counted(len(ports), 'port')}")
    has = listed(bad[0].gid_types or ()) or "no address at all"
    return Problem(
        f"{port_names(bad)}: no RoCE v2 address ({has})",
        fix=Fix(
            commands=(
                "show_gids",
                shell("sudo cma_roce_mode -d {:id} -p {:number} -m 2", bad[0].device, bad[0].port),
                "docker run --network=host ...",
            ),
            who="admin",
        ),
        evidence={port.name: listed(port.gid_types or ()) or "none" for port in bad},
        subjects=tuple(port.name for port in bad),
    )


@check(
    Severity.WARNING,
    source=f"{_HCA.partition('#')[0]}#nccl-ib-addr-family",
    because_of=("roce_gid_missing",),
    given=several_nodes,
)
def roce_address_missing(infiniband: InfiniBand, plan: Plan, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """An active RoCE port has no IPv4 address.

    Why: NCCL uses every active port, but the other nodes may not be reachable over this one.
    More: NCCL looks for an IPv4 GID on each ACTIVE port. A port without one is used with its link-local
    address, which other nodes often cannot reach: the run hangs or fails with completion error 12.

    Fix: give its interface an address, or exclude the port.
    """
    family = settings(env, nccl).get("NCCL_IB_ADDR_FAMILY")
    if family and family.value == "AF_INET6":
        return Skip("NCCL_IB_ADDR_FAMILY=AF_INET6: no IPv4 address is needed")
    ports = [port for port in _roce_ports(infiniband) if port.gid_ipv4 is not None]
    hca = settings(env, nccl).get("NCCL_IB_HCA")
    used = [port for port in ports if hca is None or selects(hca.value, port)]
    bad = [port for port in used if not port.gid_ipv4]
    if not used:
        return Skip("no active RoCE port that NCCL would use" if ports else "no active RoCE port reports its addresses")
    if not bad:
        return Ok(f"an IPv4 address on {counted(len(used), 'RoCE port')}")
    return Problem(
        f"{port_names(bad)}: active, but without an IPv4 address",
        fix=Fix(
            commands=(
                shell("sudo ip address add ADDRESS/24 dev {:interface}", next(iter(bad[0].interfaces), "INTERFACE")),
                shell("export NCCL_IB_HCA={:adapters}", "^=" + ",".join(port.name for port in bad)),
            ),
            who="admin",
        ),
        evidence={port.name: ", ".join(port.interfaces) for port in bad},
        subjects=tuple(port.name for port in bad),
    )
