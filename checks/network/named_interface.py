"""Does the interface set by a variable exist, work, and reach the other nodes?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Interface, Nccl, Network, Plan
from mgpu.text import listed

from .._interfaces import (
    GLOO_NAME,
    ONE_MACHINE,
    best_interface_name,
    export_commands,
    has_link,
    interface_settings,
    interfaces_for_nccl,
    is_dead_end,
    matches,
    names_for_gloo,
)

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"
_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"


@check(Severity.ERROR, source=_NCCL)
def socket_interface_missing(network: Network, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable names a network interface that this machine does not have.

    Why: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are often copied from another cluster. gloo stops with "Unable to
    find address for …", NCCL with "no socket interface found".

    Fix: unset it, or name an interface of this machine.
    """
    named = interface_settings(env, nccl)
    if not named or not network.listed:
        return Skip("the interfaces cannot be listed" if named else "no interface is set")
    here = [interface.name for interface in network.interfaces]
    bad = {}
    for variable, (value, where) in named.items():
        if variable == GLOO_NAME:
            found = all(name in here for name in names_for_gloo(value))
        else:
            found = any(matches(value, name) for name in here)
        if not found:
            bad[variable] = (value, where)
    if not bad:
        return Ok("; ".join(f"{variable}={value} exists" for variable, (value, _) in named.items()))
    blanks = " A space counts as part of a name." if any(" " in value for value, _ in bad.values()) else ""
    return Problem(
        ", ".join(f"{variable}={value}" for variable, (value, _) in bad.items()) + ": no such interface",
        f"This machine has {', '.join(here)}.{blanks}",
        Fix(commands=export_commands(*bad, name=best_interface_name(network))),
        {**{variable: value for variable, (value, _) in bad.items()}, "interfaces": " ".join(here)},
        tuple(bad),
    )


def _unusable_interfaces(network: Network, variable: str, value: str, family: str | None) -> list[Interface]:
    """Return the interfaces that a variable names if none of them can be used, else none."""
    if variable == GLOO_NAME:
        return [i for i in network.interfaces if i.name in names_for_gloo(value) and not i.addresses]
    if interfaces_for_nccl(network, value, family):
        return []
    meant = [i for i in network.interfaces if matches(value, i.name)]
    return [i for i in meant if not i.loopback or len(meant) == 1]


@check(Severity.ERROR, source=_NCCL, because_of=("socket_interface_missing", "nccl_socket_family_absent"))
def socket_interface_unusable(network: Network, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable names a network interface that is down, or has no address.

    Why: it cannot carry a connection.
    More: NCCL uses only interfaces that are up and have a link and an address of the requested family, gloo only
    those with an address. Without one, NCCL stops with "no socket interface found", gloo with "Unable to find
    address for …".

    Fix: name an interface that works.
    More: Or bring this one up.
    """
    named = interface_settings(env, nccl)
    if not named or not network.listed:
        return Skip("the interfaces cannot be listed" if named else "no interface is set")
    family = env.get("NCCL_SOCKET_FAMILY")
    meant = {variable: _unusable_interfaces(network, variable, value, family) for variable, (value, _) in named.items()}
    bad = {variable: failing for variable, failing in meant.items() if failing}
    if not bad:
        return Ok("; ".join(f"{variable}={value}" for variable, (value, _) in named.items()))
    first = next(iter(bad.values()))[0]
    why = "has no address" if not first.addresses else "is down" if not first.up else "has no link"
    if first.addresses and has_link(first):
        why = f"has no {family} address"
    return Problem(
        ", ".join(f"{variable}={named[variable][0]}" for variable in bad) + f": {first.name} {why}",
        fix=(
            Fix(commands=export_commands(*bad, name=best_interface_name(network))),
            Fix(
                "Or bring it up and give it an address.",
                (shell("sudo ip link set {:interface} up", first.name),),
                who="admin",
            ),
        ),
        evidence={variable: named[variable][0] for variable in bad},
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source=_NCCL_TROUBLE)
def socket_interface_dead_end(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """In a multi-node run, a variable names an interface that does not reach the other nodes.

    Why: lo, docker0 and similar interfaces are internal to this machine. The ranks give the other nodes an address
    that means something else there, and connecting to it is refused or hangs.

    Fix: name the interface of the cluster network.
    """
    named = interface_settings(env, nccl)
    if plan.nodes < 2 or not named:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no interface is set")
    bad = {}
    for variable, (value, _) in named.items():
        if variable == GLOO_NAME:
            used = [i for i in network.interfaces if i.name in names_for_gloo(value)]
        else:
            used = interfaces_for_nccl(network, value, env.get("NCCL_SOCKET_FAMILY"))[:1]
        if ends := [i for i in used if is_dead_end(i)]:
            bad[variable] = ends[0]
    if not bad:
        return Ok("; ".join(f"{variable}={value}" for variable, (value, _) in named.items()))
    return Problem(
        ", ".join(f"{variable}={named[variable][0]} means {end.name}" for variable, end in bad.items()),
        f"No other node is reachable over {listed(dict.fromkeys(end.name for end in bad.values()))}.",
        Fix(commands=export_commands(*bad, name=best_interface_name(network))),
        {variable: named[variable][0] for variable in bad},
        tuple(bad),
    )


@check(Severity.INFO, source=_NCCL_TROUBLE)
def socket_interface_off_route(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """The interface set for the ranks is not the one that leads to the rendezvous node.

    Why: this works only if every node has an address in both networks; otherwise the ranks hang after the rendezvous.

    Fix: if only one network reaches all nodes, name that interface.
    More: Make sure that every node has an address there.
    """
    named = interface_settings(env, nccl)
    if plan.nodes < 2 or not named:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no interface is set")
    if network.master is None or network.master.local or network.master.interface is None:
        return Skip("the rendezvous node, or the route to it, is unknown")
    route, bad = network.master.interface, {}
    for variable, (value, _) in named.items():
        used = names_for_gloo(value) if variable == GLOO_NAME else [i.name for i in interfaces_for_nccl(network, value)]
        if used and route not in used and any(network.interface(name) for name in used):
            bad[variable] = used[0]
    if not bad:
        return Ok(f"the route to {network.master.name} also uses {route}")
    return Problem(
        f"the route to {network.master.name} uses {route}, "
        + ", ".join(f"{variable} means {name}" for variable, name in bad.items()),
        fix=Fix(commands=export_commands(*bad, name=route)),
        evidence={**{variable: named[variable][0] for variable in bad}, "route": route},
        subjects=tuple(bad),
    )
