"""Which interface would NCCL choose if none is set?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Interface, Nccl, Network, Plan

from .._interfaces import (
    GLOO_NAME,
    NCCL_NAME,
    ONE_MACHINE,
    best_interface_name,
    export_commands,
    interface_settings,
    interfaces_for_nccl,
    is_dead_end,
    joined_names,
)

_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
_NCCL_CHOICE = "https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc (ncclFindInterfaces)"


def _nccl_choice(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Skip | list[Interface]:
    """Return the interfaces NCCL would choose in a multi-node run, or why it does not have to choose."""
    if plan.nodes < 2:
        return ONE_MACHINE
    if NCCL_NAME in interface_settings(env, nccl):
        return Skip(f"{NCCL_NAME} is set")
    chosen = interfaces_for_nccl(network, None, env.get("NCCL_SOCKET_FAMILY"))
    return chosen or Skip("no interface has both a link and an address")


def _is_suspicious(interface: Interface) -> bool:
    return is_dead_end(interface) or interface.kind == "tunnel"


@check(Severity.WARNING, source=_NCCL_CHOICE, because_of=("network_leads_nowhere",))
def nccl_picks_dead_end(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """In a multi-node run, NCCL would choose an interface that does not reach the other nodes.

    Why: by default, NCCL uses ib*, or else the first interface that is not docker*, lo or virbr*. That may be a
    bridge with another name, a VPN tunnel or the management controller's USB interface: the ranks hang while
    connecting, with "No route to host" or "Connection refused" in the log.

    Fix: select the interface of the cluster network.
    """
    chosen = _nccl_choice(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    if not _is_suspicious(chosen[0]):
        return Ok(f"NCCL would choose {chosen[0].name}")
    first = chosen[0]
    what = (
        "loopback"
        if first.loopback
        else f"a {first.kind}"
        if first.kind in ("bridge", "veth", "tunnel")
        else "link-local only"
        if first.routable is False
        else "internal to this machine"
    )
    return Problem(
        f"by default, NCCL would choose {first.name} ({what})",
        f"It uses the first of {joined_names(chosen)}.",
        Fix(commands=export_commands(NCCL_NAME, GLOO_NAME, name=best_interface_name(network))),
        {"choice": first.name, "address": first.addresses[0], "candidates": " ".join(i.name for i in chosen)},
        (first.name,),
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1105", because_of=("nccl_picks_dead_end",))
def nccl_picks_off_route(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """NCCL would choose a different interface than the one that leads to the rendezvous node.

    Why: NCCL uses the first interface, whether it reaches the other nodes or not.
    More: If that network does not reach the other nodes, the ranks hang after the rendezvous. If it is a slow
    management network, the run is slow without any message.

    Fix: select the interface that leads there.
    """
    chosen = _nccl_choice(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    if network.master is None or network.master.local or network.master.interface is None:
        return Skip("the rendezvous node, or the route to it, is unknown")
    first, route = chosen[0], network.master.interface
    if first.name == route or first.kind == "infiniband" or first.name.startswith("ib"):
        return Ok(f"NCCL would choose {first.name}")
    return Problem(
        f"by default, NCCL would choose {first.name}; the route to {network.master.name} uses {route}",
        fix=Fix(commands=export_commands(NCCL_NAME, GLOO_NAME, name=route)),
        evidence={"choice": first.name, "route": route},
        subjects=(first.name,),
    )


@check(Severity.INFO, source=_NCCL_TROUBLE, because_of=("nccl_picks_dead_end", "nccl_picks_off_route"))
def interfaces_ambiguous(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """NCCL could use several interfaces, and none is selected.

    Why: NCCL connects over the first, and its socket transport uses all of them. A single interface that is up but
    does not reach the other nodes causes a hang, and which one comes first may differ between nodes.

    Fix: select the one that all nodes have.
    """
    chosen = _nccl_choice(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    usable = [i for i in chosen if not is_dead_end(i)]
    if len(usable) < 2 or all(i.kind == "infiniband" for i in usable):
        return Ok(f"NCCL can use only {joined_names(usable) or chosen[0].name}")
    return Problem(
        f"NCCL may use any of {joined_names(usable)}",
        f"Its first connections use {chosen[0].name}. All of them must reach the other nodes.",
        Fix(commands=export_commands(NCCL_NAME, GLOO_NAME, name=best_interface_name(network))),
        {"interfaces": " ".join(i.name for i in usable)},
    )
