"""Does the interface that is prescribed exist, work, and lead to the other machines?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Interface, Nccl, Network, Plan
from mgpu.text import listed

from .._interfaces import (
    GLOO_NAME,
    ONE_MACHINE,
    best,
    by_gloo,
    by_nccl,
    dead_end,
    export,
    has_link,
    matches,
    prescribed,
)

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"
_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"


@check(Severity.ERROR, source=_NCCL)
def socket_interface_missing(network: Network, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable names a network interface that this machine does not have.

    Why: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are often copied from another cluster. gloo stops with "Unable to
    find address for …", NCCL with "no socket interface found".

    Fix: unset it, or name one that is here.
    """
    named = prescribed(env, nccl)
    if not named or not network.listed:
        return Skip("the interfaces cannot be listed" if named else "no interface is prescribed")
    here = [interface.name for interface in network.interfaces]
    bad = {}
    for variable, (value, where) in named.items():
        if variable == GLOO_NAME:
            found = all(name in here for name in by_gloo(value))
        else:
            found = any(matches(value, name) for name in here)
        if not found:
            bad[variable] = (value, where)
    if not bad:
        return Ok("; ".join(f"{variable}={value} is here" for variable, (value, _) in named.items()))
    blanks = " A blank counts as part of a name." if any(" " in value for value, _ in bad.values()) else ""
    return Problem(
        ", ".join(f"{variable}={value}" for variable, (value, _) in bad.items()) + ": no such interface",
        f"This machine has {', '.join(here)}.{blanks}",
        Fix(commands=export(*bad, name=best(network))),
        {**{variable: value for variable, (value, _) in bad.items()}, "interfaces": " ".join(here)},
        tuple(bad),
    )


def _unusable(network: Network, variable: str, value: str, family: str | None) -> list[Interface]:
    """The interfaces that a variable names, where none of them can carry a connection."""
    if variable == GLOO_NAME:
        return [i for i in network.interfaces if i.name in by_gloo(value) and not i.addresses]
    if by_nccl(network, value, family):
        return []
    meant = [i for i in network.interfaces if matches(value, i.name)]
    return [i for i in meant if not i.loopback or len(meant) == 1]


@check(Severity.ERROR, source=_NCCL, because_of=("socket_interface_missing", "nccl_socket_family_absent"))
def socket_interface_unusable(network: Network, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable names a network interface that is down, or has no address.

    Why: what is named cannot carry a connection.
    More: NCCL takes only interfaces that are up, have a link and an address of the wanted family, gloo only those with
    an address. With none left NCCL stops with "no socket interface found", gloo with "Unable to find address for …".

    Fix: name an interface that can.
    More: Or bring this one up.
    """
    named = prescribed(env, nccl)
    if not named or not network.listed:
        return Skip("the interfaces cannot be listed" if named else "no interface is prescribed")
    family = env.get("NCCL_SOCKET_FAMILY")
    meant = {variable: _unusable(network, variable, value, family) for variable, (value, _) in named.items()}
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
            Fix(commands=export(*bad, name=best(network))),
            Fix(
                "Or bring it up, and give it an address.",
                (shell("sudo ip link set {:interface} up", first.name),),
                who="admin",
            ),
        ),
        evidence={variable: named[variable][0] for variable in bad},
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source=_NCCL_TROUBLE)
def socket_interface_dead_end(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """In a run over several machines, a variable names an interface behind which no other machine is.

    Why: lo, docker0 and the like end in this machine. The ranks tell the other machines an address that means something
    else there, and connecting to it is refused or hangs.

    Fix: name the interface of the cluster network.
    """
    named = prescribed(env, nccl)
    if plan.nodes < 2 or not named:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no interface is prescribed")
    bad = {}
    for variable, (value, _) in named.items():
        if variable == GLOO_NAME:
            used = [i for i in network.interfaces if i.name in by_gloo(value)]
        else:
            used = by_nccl(network, value, env.get("NCCL_SOCKET_FAMILY"))[:1]
        if ends := [i for i in used if dead_end(i)]:
            bad[variable] = ends[0]
    if not bad:
        return Ok("; ".join(f"{variable}={value}" for variable, (value, _) in named.items()))
    return Problem(
        ", ".join(f"{variable}={named[variable][0]} means {end.name}" for variable, end in bad.items()),
        f"No other machine is behind {listed(dict.fromkeys(end.name for end in bad.values()))}.",
        Fix(commands=export(*bad, name=best(network))),
        {variable: named[variable][0] for variable in bad},
        tuple(bad),
    )


@check(Severity.INFO, source=_NCCL_TROUBLE)
def socket_interface_off_route(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """The ranks are told to talk over another interface than the one that leads to the machine where they meet.

    Why: right when every machine has an address in both networks; else the ranks meet and then hang.

    Fix: where only one network reaches all machines, name that.
    More: Make sure that every machine has an address there.
    """
    named = prescribed(env, nccl)
    if plan.nodes < 2 or not named:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no interface is prescribed")
    if network.master is None or network.master.local or network.master.interface is None:
        return Skip("no other machine is known to ask the way to")
    route, bad = network.master.interface, {}
    for variable, (value, _) in named.items():
        used = by_gloo(value) if variable == GLOO_NAME else [i.name for i in by_nccl(network, value)]
        if used and route not in used and any(network.interface(name) for name in used):
            bad[variable] = used[0]
    if not bad:
        return Ok(f"the way to {network.master.name} goes through {route} as well")
    return Problem(
        f"the way to {network.master.name} goes through {route}, "
        + ", ".join(f"{variable} means {name}" for variable, name in bad.items()),
        fix=Fix(commands=export(*bad, name=route)),
        evidence={**{variable: named[variable][0] for variable in bad}, "route": route},
        subjects=tuple(bad),
    )
