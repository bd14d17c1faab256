"""Does an interface lead out of this machine, and how fast is it?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import InfiniBand, Interface, Nccl, Network, Plan
from mgpu.text import counted

from .._interfaces import (
    GLOO_NAME,
    NCCL_NAME,
    export_commands,
    has_link,
    interface_settings,
    interfaces_for_nccl,
    is_dead_end,
    joined_names,
    outgoing_interfaces,
    several_nodes,
)

_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
# Below this, each step of a model with a billion parameters (2 GB of gradients) waits seconds for the network alone.
_SLOW_MBIT_PER_S = 10_000


@check(Severity.ERROR, source=_NCCL_TROUBLE, given=several_nodes)
def network_leads_nowhere(network: Network, plan: Plan) -> Answer:
    """The run needs several nodes, but no interface of this machine leads to another one.

    Why: only loopback and container bridges exist, because a container has its own network or a cable is unplugged.
    The other nodes cannot connect to an address that exists only here.

    Fix: in a container, use the host's network.
    More: Otherwise bring the interface up.
    """
    if not network.listed:
        return Skip("the interfaces cannot be listed")
    if out := outgoing_interfaces(network):
        return Ok(f"{joined_names(out)} {'leads' if len(out) == 1 else 'lead'} out of this machine")
    down = [i.name for i in network.interfaces if not is_dead_end(i) or not has_link(i)]
    return Problem(
        f"{plan.nodes} nodes, but no interface here leads to another one",
        f"This machine has {joined_names(list(network.interfaces))}.",
        (
            Fix(commands=("docker run --network=host ...",)),
            Fix(
                "Otherwise, bring the interface up.",
                tuple(shell("sudo ip link set {:interface} up", name) for name in down[:1]),
                who="admin",
            ),
        ),
        {"interfaces": " ".join(i.name for i in network.interfaces)},
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-family",
    given=several_nodes,
)
def network_ipv6_only(network: Network, plan: Plan) -> Answer:
    """This machine can reach others over IPv6 only.

    Why: all nodes of the run then need IPv6.
    More: NCCL, gloo and torchrun support this if all nodes do. Scripts with an IPv4 address,
    NCCL_SOCKET_FAMILY=AF_INET or an address without brackets before the port do not work.

    Fix: write addresses in brackets.
    More: Use the form [2001:db8::1]:29500, with the same address family on every node.
    """
    out = outgoing_interfaces(network)
    if not out or any(i.ipv4 is None for i in out):
        return Skip("no interface leads out" if not out else "the address families are unknown")
    if any(i.ipv4 for i in out):
        return Ok(f"{next(i.name for i in out if i.ipv4)} has an IPv4 address")
    return Problem(
        f"{joined_names(out)} {'has' if len(out) == 1 else 'have'} no IPv4 address",
        fix=Fix(commands=("torchrun --rdzv-endpoint '[ADDRESS]:29500' ...",)),
        evidence={"interfaces": " ".join(i.name for i in out)},
    )


@check(
    Severity.WARNING, source="https://www.kernel.org/doc/html/latest/networking/operstates.html", given=several_nodes
)
def interface_without_link(network: Network, plan: Plan) -> Answer:
    """An interface with an address has no link.

    Why: a cable, transceiver or switch port has failed; connections over it time out.
    More: The interface is configured, so the run may use it. A cable is unplugged, a switch port is off, or one of
    several rails failed.

    Fix: check its status.
    More: Check the cable and the switch.
    """
    wired = [
        i
        for i in network.interfaces
        if i.kind in ("physical", "infiniband", "bond", "vlan") and i.routable and i.addresses
    ]
    if not wired or all(i.running is None for i in wired):
        return Skip("no interface reports its link")
    bad = [i for i in wired if i.up and i.running is False]
    if not bad:
        return Ok(f"{joined_names(wired)} {'has' if len(wired) == 1 else 'have'} a link")
    name = shlex.quote(bad[0].name)
    return Problem(
        f"{joined_names(bad)} {'has' if len(bad) == 1 else 'have'} an address but no link",
        fix=Fix(
            commands=(shell("ip link show {:interface}", name), shell("ethtool {:interface}", name)), who="hardware"
        ),
        evidence={i.name: i.addresses[0] for i in bad},
        subjects=tuple(i.name for i in bad),
    )


@check(Severity.WARNING, source="mgpu: two gigabytes of gradients take seconds below 10 Gb/s", given=several_nodes)
def interface_slow(network: Network, env: Mapping[str, str], nccl: Nccl, plan: Plan, infiniband: InfiniBand) -> Answer:
    """The nodes would exchange their gradients over a slow interface.

    Why: in every step each node sends the gradients once (two nodes) to twice (many nodes). At 1 Gb/s that takes 8
    to 16 seconds per gigabyte, while the GPUs wait.

    Fix: use the faster one.
    More: Use the fast network, if there is one; otherwise synchronize less often (gradient accumulation).
    """
    if env.get("NCCL_IB_DISABLE") != "1" and (active := [port for port in infiniband.ports if port.active]):
        return Ok(f"{counted(len(active), 'RDMA port')} {'is' if len(active) == 1 else 'are'} active")
    value = interface_settings(env, nccl).get(NCCL_NAME, (None, ""))[0]
    used = interfaces_for_nccl(network, value, env.get("NCCL_SOCKET_FAMILY"))[:1]
    if not used or is_dead_end(used[0]):
        return Skip("NCCL finds no interface to other nodes")
    first = used[0]
    if not first.speed_mbit_per_s:
        return Skip(f"{first.name} does not report its speed")
    half = first.full_duplex is False
    if first.speed_mbit_per_s >= _SLOW_MBIT_PER_S and not half:
        return Ok(f"{first.name} has {first.speed_mbit_per_s / 1000:g} Gb/s")
    seconds = 2 * (plan.nodes - 1) / plan.nodes * 8_000 / first.speed_mbit_per_s  # a ring's traffic, for 8,000 Mbit
    faster = [i for i in outgoing_interfaces(network) if (i.speed_mbit_per_s or 0) > first.speed_mbit_per_s]
    return Problem(
        f"{plan.nodes} nodes would communicate over {first.name}: {first.speed_mbit_per_s / 1000:g} Gb/s"
        + (", half duplex" if half else ""),
        f"A gigabyte of gradients takes about {seconds:.1f} s in every step.",
        Fix(commands=export_commands(NCCL_NAME, GLOO_NAME, name=faster[0].name))
        if faster
        else Fix("Use a faster network if there is one; otherwise accumulate gradients over more steps."),
        {"interface": first.name, "speed_mbit_per_s": first.speed_mbit_per_s, "full_duplex": first.full_duplex},
        (first.name,),
    )


@check(Severity.WARNING, source="measured two network namespaces 2026-11", given=several_nodes)
def interface_mtu_differs(network: Network, plan: Plan) -> Answer:
    """One of several equal interfaces has a different MTU than the rest.

    Why: if packets are larger than the other side accepts, large messages hang.
    More: Rails of one network must have the same MTU: if one side sends packets that the other side or the switch
    does not accept, small messages pass and the first large all-reduce hangs silently.

    Fix: set the same MTU as on the others.
    """
    alike: dict[tuple[str, int], list[Interface]] = {}
    for i in network.interfaces:
        if i.kind in ("physical", "infiniband") and has_link(i) and i.addresses and i.mtu and i.speed_mbit_per_s:
            alike.setdefault((i.kind, i.speed_mbit_per_s), []).append(i)
    groups = [group for group in alike.values() if len(group) > 2]  # with two, neither is the odd one
    for group in groups:
        (usual, number), *others = Counter(i.mtu for i in group).most_common()
        odd = [i for i in group if i.mtu != usual]
        if others and number > len(odd):
            return Problem(
                f"{joined_names(odd)}: MTU {odd[0].mtu}, the other {number} of the same speed have {usual}",
                fix=Fix(
                    commands=tuple(shell("sudo ip link set {:interface} mtu {:number}", i.name, usual) for i in odd),
                    who="admin",
                ),
                evidence={i.name: i.mtu for i in group},
                subjects=tuple(i.name for i in odd),
            )
    if not groups:
        return Skip("fewer than three equal interfaces")
    return Ok(f"{counted(sum(map(len, groups)), 'equal interface')}, same MTU")
