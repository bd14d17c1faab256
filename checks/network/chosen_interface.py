"""Which interface would NCCL choose, when none is prescribed?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Interface, Nccl, Network, Plan

from .._interfaces import GLOO_NAME, NCCL_NAME, ONE_MACHINE, best, by_nccl, dead_end, export, names_of, prescribed

_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
_NCCL_CHOICE = "https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc (ncclFindInterfaces)"


def _left_to_nccl(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Skip | list[Interface]:
    """What NCCL would choose by itself on several machines, or why that is not the question."""
    if plan.nodes < 2:
        return ONE_MACHINE
    if NCCL_NAME in prescribed(env, nccl):
        return Skip(f"{NCCL_NAME} is set")
    chosen = by_nccl(network, None, env.get("NCCL_SOCKET_FAMILY"))
    return chosen or Skip("no interface has a link and an address")


def _suspicious(interface: Interface) -> bool:
    return dead_end(interface) or interface.kind == "tunnel"


@check(Severity.WARNING, source=_NCCL_CHOICE, because_of=("network_leads_nowhere",))
def nccl_picks_dead_end(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """In a run over several machines, NCCL would choose an interface that leads to no other machine.

    Why: left alone, NCCL takes ib* first, else the first interface that is not docker*, lo or virbr*. A bridge of
    another name, a tunnel of a VPN or the management controller's USB interface comes first as easily: the ranks hang
    while they connect, "No route to host" or "Connection refused" in the log.

    Fix: name the interface of the cluster network.
    """
    chosen = _left_to_nccl(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    if not _suspicious(chosen[0]):
        return Ok(f"NCCL would choose {chosen[0].name}")
    first = chosen[0]
    what = (
        "loopback"
        if first.loopback
        else f"a {first.kind}"
        if first.kind in ("bridge", "veth", "tunnel")
        else "link-local only"
        if first.routable is False
        else "made for this machine only"
    )
    return Problem(
        f"left alone, NCCL would choose {first.name} ({what})",
        f"It takes the first of {names_of(chosen)}.",
        Fix(commands=export(NCCL_NAME, GLOO_NAME, name=best(network))),
        {"choice": first.name, "address": first.addresses[0], "candidates": " ".join(i.name for i in chosen)},
        (first.name,),
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1105", because_of=("nccl_picks_dead_end",))
def nccl_picks_off_route(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """NCCL would choose another interface than the one that leads to the machine where the ranks meet.

    Why: it takes the first interface, whether it reaches the other machines or not.
    More: When that network does not reach the other machines, the ranks meet and then hang; when it is a slow one for
    management, the run is slow without a word.

    Fix: name the interface that leads there.
    """
    chosen = _left_to_nccl(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    if network.master is None or network.master.local or network.master.interface is None:
        return Skip("no other machine is known to ask the way to")
    first, route = chosen[0], network.master.interface
    if first.name == route or first.kind == "infiniband" or first.name.startswith("ib"):
        return Ok(f"NCCL would choose {first.name}")
    return Problem(
        f"left alone, NCCL would choose {first.name}; the way to {network.master.name} goes through {route}",
        fix=Fix(commands=export(NCCL_NAME, GLOO_NAME, name=route)),
        evidence={"choice": first.name, "route": route},
        subjects=(first.name,),
    )


@check(Severity.INFO, source=_NCCL_TROUBLE, because_of=("nccl_picks_dead_end", "nccl_picks_off_route"))
def interfaces_ambiguous(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan) -> Answer:
    """Several interfaces could carry the run, and none is named.

    Why: NCCL connects over the first, and its socket transport uses all of them. One that is up and does not reach the
    other machines is enough for a hang, and which one comes first may differ between machines.

    Fix: name the one that all machines have.
    """
    chosen = _left_to_nccl(network, env, nccl, plan)
    if isinstance(chosen, Skip):
        return chosen
    usable = [i for i in chosen if not dead_end(i)]
    if len(usable) < 2 or all(i.kind == "infiniband" for i in usable):
        return Ok(f"only {names_of(usable) or chosen[0].name} could carry it")
    return Problem(
        f"NCCL may use any of {names_of(usable)}",
        f"Its first connections go over {chosen[0].name}. All have to reach the other machines.",
        Fix(commands=export(NCCL_NAME, GLOO_NAME, name=best(network))),
        {"interfaces": " ".join(i.name for i in usable)},
    )
