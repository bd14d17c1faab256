"""Can the ranks find each other?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Network, Plan

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


@check(Severity.WARNING, source=_TORCHRUN)
def hostname_unresolvable(network: Network) -> Answer:
    """This machine cannot resolve its own name.

    Why: gloo and torchrun look their own host name up to tell the others where they are; without an answer they retry
    for a minute or more, or hang.

    Fix: add the name to /etc/hosts.
    """
    if network.hostname_addresses:
        return Ok(f"{network.hostname} is {network.hostname_addresses[0]}")
    return Problem(
        f"{network.hostname!r} does not resolve: {network.hostname_error}",
        "Ranks look up their own name at start; the launch then waits for the resolver, or fails.",
        Fix(
            "Add it to /etc/hosts.",
            (f"echo '127.0.1.1 {network.hostname}' | sudo tee -a /etc/hosts",),
            who="admin",
        ),
        {"hostname": network.hostname, "error": network.hostname_error},
    )


@check(Severity.ERROR, source="measured two network namespaces 2026-11", because_of=("hostname_unresolvable",))
def hostname_is_loopback(network: Network, plan: Plan) -> Answer:
    """In a run over several machines, this machine's name means the loopback address.

    Why: gloo and the rendezvous tell the other machines the address their own name resolves to. 127.0.1.1 (Debian's
    /etc/hosts) sends them to themselves: connection refused, or a hang.

    Fix: let the name resolve to the address of the cluster network, or name the interface.
    """
    if plan.nodes < 2:
        return Skip("a run on one machine may use the loopback address")
    addresses = network.hostname_addresses
    if not addresses:
        return Skip("the name does not resolve at all")
    if not _loopback(addresses[0]):
        return Ok(f"{network.hostname} is {addresses[0]}")
    real = next((i for i in network.interfaces if i.up and not i.loopback and not i.virtual and i.addresses), None)
    name = real.name if real else "eth0"
    return Problem(
        f"{network.hostname} resolves to {addresses[0]}",
        "The other machines would be told to connect to themselves.",
        (
            Fix("Name the interface.", (f"export GLOO_SOCKET_IFNAME={name}", f"export NCCL_SOCKET_IFNAME={name}")),
            Fix("Or give the name its real address in /etc/hosts.", who="admin"),
        ),
        {"hostname": network.hostname, "address": addresses[0]},
    )


@check(Severity.ERROR, source=_TORCHRUN)
def loopback_is_down(network: Network) -> Answer:
    """The loopback interface is missing or down.

    Why: the ranks of one machine meet on 127.0.0.1.

    Fix: bring it up.
    """
    loopback = [interface for interface in network.interfaces if interface.loopback]
    if not network.interfaces:
        return Skip("the interfaces cannot be listed")
    if any(interface.up for interface in loopback):
        return Ok(f"{loopback[0].name} is up")
    return Problem(
        "no loopback interface is up",
        "The ranks of one machine meet on 127.0.0.1, which leads nowhere.",
        Fix("Bring it up.", ("sudo ip link set lo up",), who="admin"),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("loopback_is_down",))
def localhost_unresolvable(network: Network) -> Answer:
    """The name `localhost` does not mean this machine.

    Why: launchers and rendezvous use it for ranks of one machine.

    Fix: restore the line in /etc/hosts.
    """
    if network.localhost_ok:
        return Ok("localhost is this machine")
    return Problem(
        "localhost does not resolve to 127.0.0.1 or ::1",
        "Launchers connect to localhost for ranks on one machine.",
        Fix("Restore the line.", ("echo '127.0.0.1 localhost' | sudo tee -a /etc/hosts",), who="admin"),
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues/1785")
def port_busy(network: Network, plan: Plan) -> Answer:
    """The port for the rendezvous is taken.

    Why: another run, or one that did not end, listens there. On several machines the launch fails with "address already
    in use"; on one machine newer launchers choose another port.

    Fix: end the leftover, or choose another port.
    """
    if not network.port_busy:
        return Ok(f"port {network.port} is free")
    owner = network.port_owner or "a process that this user may not see"
    return Problem(
        f"port {network.port} is in use by {owner}",
        "The ranks meet there. With several machines this fails; with one, older launchers fail too.",
        Fix("See who it is; end it if it is a leftover.", (f"ss -ltnp 'sport = :{network.port}'",)),
        {"port": network.port, "owner": network.port_owner, "nodes": plan.nodes},
    )


@check(Severity.ERROR, source=_NCCL)
def socket_interface_missing(network: Network, env: Mapping[str, str]) -> Answer:
    """A variable names a network interface that this machine does not have.

    Why: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are often copied from another cluster. gloo stops with "Unable to
    find address for …", NCCL with "no socket interface found".

    Fix: unset it, or name one that is here.
    """
    names = [interface.name for interface in network.interfaces if interface.addresses]
    bad = {}
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = env.get(variable)
        if value and not _matches(value, names, exact=variable == "GLOO_SOCKET_IFNAME"):
            bad[variable] = value
    if bad:
        usable = [i.name for i in network.interfaces if i.up and i.addresses and not i.loopback and not i.virtual]
        here = next(iter(usable or names), None)
        return Problem(
            ", ".join(f"{name}={value}" for name, value in bad.items()) + ": no such interface",
            f"This machine has {', '.join(names) or 'no interface with an address'}.",
            Fix(
                "Unset it, or name one that is here.",
                tuple(f"export {name}={here}" if here else f"unset {name}" for name in bad),
            ),
            {**bad, "interfaces": " ".join(names)},
            tuple(bad),
        )
    if not any(name in env for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")):
        return Skip("no interface is prescribed")
    return Ok("the prescribed interface is here")


def _matches(value: str, names: list[str], *, exact: bool) -> bool:
    """NCCL: comma list of prefixes, `^` excludes, `=` makes them exact. gloo: one or several exact names."""
    if exact:
        return all(part.strip() in names for part in value.split(","))
    if value.startswith("^"):
        excluded = value[1:].removeprefix("=").split(",")
        if value.startswith("^="):
            return any(name not in excluded for name in names)
        return any(not any(name.startswith(part) for part in excluded if part) for name in names)
    if value.startswith("="):
        return any(part in names for part in value[1:].split(","))
    return any(name.startswith(part) for part in value.split(",") if part for name in names)
