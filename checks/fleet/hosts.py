"""Is a host of `--hosts` ready for ranks: its folder, its addresses, and what an earlier run left there?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, Interface, NodeAddresses
from mgpu.text import counted, listed

from .._interfaces import GLOO_NAME, NCCL_NAME, export_commands
from ._mesh import behind_nat, doors_by_node, paths_tried
from ._ssh_access import over_ssh
from ._ways import ON_NODES, look_at, on_host

_MEASURED = "measured with OpenSSH 9.2: hosts of network namespaces, 2026-11"
_WIRED = ("physical", "infiniband", "bond")


@check(Severity.WARNING, source=_MEASURED, given=over_ssh)
def ssh_folder_not_writable(fleet: Fleet) -> Answer:
    """Your user may not write to the project's folder on a host.

    Why: rank 0 writes checkpoints and logs there, and often every first rank of a machine writes its data cache. The
    run fails hours later, at the first checkpoint.

    Fix: give your user the folder, or write to another one.
    """
    found = [one for one in fleet.access or () if one.folder_writable is False]
    if not found:
        return Ok("your user may write to the current folder on every host")
    nodes = [one.node for one in found]
    return Problem(
        f"{fold(nodes)}: your user may not write to the project's folder",
        "Checkpoints, logs and data caches of the ranks there cannot be written.",
        Fix("Look at its owner.", (on_host(found[0], shell("'id; ls -ld \"$PWD\"'")),)),
        {"hosts": fold(nodes)},
        subjects=tuple(nodes),
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/126510", given=over_ssh)
def node_ranks_left(fleet: Fleet) -> Answer:
    """Ranks of an earlier run still run on a host, without their launcher.

    Why: the launcher there was killed before it could stop them. They keep GPU memory, CPUs and the rendezvous port.

    Fix: look at them, then stop them.
    """
    if not fleet.orphans:
        return Ok(f"no ranks of an earlier run ({counted(len(fleet.nodes), 'host')})")
    return tuple(_ranks_left(fleet, node, pids) for node, pids in fleet.orphans.items())


def _ranks_left(fleet: Fleet, node: str, pids: tuple[int, ...]) -> Problem:
    numbers = [str(pid) for pid in pids]
    lines = f"{ON_NODES} ps -o pid,lstart,args -p {{joined:numbers}}", f"{ON_NODES} kill {{pids:pid}}"
    listing = look_at(fleet, (node,), *lines, joined=",".join(numbers), pids=numbers)
    return Problem(
        f"{node}: {counted(len(pids), 'rank')} of an earlier run without a launcher",
        f"They keep GPU memory and the rendezvous port until they exit (pid {listed(pids)}).",
        Fix("Look at them, then stop them.", listing),
        {"host": node, "pids": ", ".join(map(str, pids))},
        subjects=(node,),
    )


@check(Severity.ERROR, source=_MEASURED, given=paths_tried)
def node_behind_nat(fleet: Fleet) -> Answer:
    """You reach a host at an address that is not its own, and the other hosts cannot reach its own.

    Why: a router translates the address or forwards ssh's port (NAT). The ranks of that host give the others the
    address that the host itself has, behind the router, where no packet arrives.

    Fix: put the hosts into one network: the same switch, or a VPN such as WireGuard whose interface the ranks use.
    """
    lost = behind_nat(fleet)
    if fleet.access is None:
        return Skip("the nodes are not hosts of --hosts")
    if not lost:
        return Ok("every host is reached by the others at an address of its own")
    return tuple(
        Problem(
            f"{one.node}: you reach it at {one.reached_at}, but its own address is {one.served_at} (NAT)",
            "Its ranks give the others their own address, which these cannot reach.",
            (
                Fix("Put the hosts into one network, by a cable or a VPN, and name the host by its address there."),
                Fix("See its addresses.", (on_host(one, shell("ip -br addr")),)),
            ),
            {"host": one.destination, "reached_at": one.reached_at, "own": one.served_at},
            subjects=(one.node,),
        )
        for one in lost
    )


@check(Severity.WARNING, source=_MEASURED, given=paths_tried)
def node_on_wifi(fleet: Fleet) -> Answer:
    """The ranks of a host would use Wi-Fi, although it has a cable.

    Why: its name resolves to the address of the Wi-Fi, or the cable's network does not reach the others. Wi-Fi is ten
    to a hundred times slower than a cable, and all ranks wait for it.

    Fix: connect the hosts over the cable, and select its interface.
    """
    if not fleet.doors:
        return Skip("no host described its interfaces")
    found = [(door, used, cable) for door in fleet.doors if (used := _wifi(door)) and (cable := _cable(door))]
    if not found:
        return Ok(f"no host with a cable uses Wi-Fi ({counted(len(fleet.doors), 'host')})")
    return tuple(
        Problem(
            f"{door.node}: the ranks would use Wi-Fi ({used.name}), although {cable.name} has a cable",
            "Over Wi-Fi every step takes far longer. The cable's network has no way to all other hosts, or the name of "
            "the host leads to the Wi-Fi.",
            (
                Fix("Give the cable's interface an address in one network with the others.", ("ip -br addr",)),
                Fix("Then select it.", export_commands(GLOO_NAME, NCCL_NAME, name=cable.name)),
            ),
            {"host": door.node, "wifi": used.name, "address": door.address, "cable": cable.name},
            subjects=(door.node,),
        )
        for door, used, cable in found
    )


def _wifi(door: NodeAddresses) -> Interface | None:
    used = door.interface_of(door.address)
    return used if used and used.kind == "wireless" else None


def _cable(door: NodeAddresses) -> Interface | None:
    """Return an interface with a cable in it."""
    return next((one for one in door.interfaces if one.kind in _WIRED and one.up and one.running), None)


@check(Severity.ERROR, source=_MEASURED, given=paths_tried)
def node_without_ipv4(fleet: Fleet) -> Answer:
    """A host has only IPv6 addresses, and others have IPv4 ones, or all have only IPv6.

    Why: ranks give each other one address. A host without IPv4 cannot connect to an IPv4 address, and accelerate joins
    the address and the port of the rendezvous with a colon, so that an IPv6 address is not understood.

    Fix: give the hosts IPv4 addresses in one private network.
    """
    doors = doors_by_node(fleet)
    known = {node: door for node, door in doors.items() if _external(door)}
    without = [node for node, door in known.items() if not any(_is_ipv4(text) for text in _external(door))]
    if fleet.access is None or not known:
        return Skip("the nodes are not hosts of --hosts" if fleet.access is None else "no address is known")
    if not without:
        return Ok(f"an IPv4 address on {counted(len(known), 'host')}")
    first = doors[without[0]]
    interface = first.interface_of(_external(first)[0])
    name = interface.name if interface else "eth0"
    mixed = f", others have IPv4 ones ({fold([node for node in known if node not in without])})"
    return Problem(
        f"{fold(without)}: only IPv6 addresses{mixed if len(without) < len(known) else ''}",
        "accelerate does not understand an IPv6 address as rendezvous address, and IPv4 and IPv6 do not connect.",
        Fix(
            "Give each host an IPv4 address in one private network, another last number on each.",
            (shell("sudo ip addr add 10.77.0.1/24 dev {:interface}", name),),
            who="admin",
        ),
        {"hosts": fold(without), "address": _external(first)[0]},
        subjects=tuple(without),
    )


def _external(door: NodeAddresses) -> list[str]:
    """Return a host's addresses that others may reach."""
    usable = [one for one in door.interfaces if one.up and not one.loopback and not one.virtual and one.routable]
    return [address for one in usable for address in one.addresses if not address.lower().startswith("fe80:")]


def _is_ipv4(text: str) -> bool:
    return ":" not in text and not text.startswith("address6-")  # the latter in a saved machine
