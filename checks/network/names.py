"""Do this machine's name and localhost resolve to this machine?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Network, Plan

from .._interfaces import (
    GLOO_NAME,
    NCCL_NAME,
    best_interface_name,
    export_commands,
    is_loopback,
    outgoing_interfaces,
    several_nodes,
)

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"


@check(Severity.WARNING, source=_TORCHRUN)
def hostname_unresolvable(network: Network, plan: Plan) -> Answer:
    """This machine cannot resolve its own name.

    Why: ranks look up their own name at startup; the launch then waits for the resolver, or fails.
    More: gloo and torchrun look up their own host name to give the other ranks an address. Without one, they retry
    for a minute or more ("The IPv6 network addresses of (node7, 29500) cannot be retrieved"), or stop.

    Fix: add it to /etc/hosts.
    """
    if network.hostname_addresses:
        return Ok(f"{network.hostname} is {network.hostname_addresses[0]}")
    out = outgoing_interfaces(network)
    address = next((i.addresses[0] for i in out), "ADDRESS") if plan.nodes > 1 else "127.0.1.1"
    return Problem(
        f"{network.hostname!r} does not resolve: {network.hostname_error}",
        fix=Fix(
            commands=(shell("echo '{:host} {:host}' | sudo tee -a /etc/hosts", address, network.hostname),), who="admin"
        ),
        evidence={"hostname": network.hostname, "error": network.hostname_error},
    )


@check(Severity.ERROR, source="measured two network namespaces 2026-11", because_of=("hostname_unresolvable",))
def hostname_is_loopback(network: Network, plan: Plan, env: Mapping[str, str]) -> Answer:
    """In a multi-node run, this machine's name resolves to the loopback address.

    Why: the other nodes would connect to themselves.
    More: gloo and the rendezvous give the other nodes the address that this machine's name resolves to. With
    127.0.1.1 (Debian's /etc/hosts) they connect to themselves: connection refused, or a hang.

    Fix: set the interface.
    More: Or make the name resolve to the address in the cluster network.
    """
    if plan.nodes < 2:
        return Skip("a single-node run may use the loopback address")
    addresses = network.hostname_addresses
    if not addresses:
        return Skip("the name does not resolve at all")
    if not is_loopback(addresses[0]):
        return Ok(f"{network.hostname} is {addresses[0]}")
    if len(env.get(GLOO_NAME, "")) > 1:
        return Ok(f"{network.hostname} is {addresses[0]}, but {GLOO_NAME}={env[GLOO_NAME]} selects the interface")
    return Problem(
        f"{network.hostname} resolves to {addresses[0]}",
        fix=(
            Fix(commands=export_commands(GLOO_NAME, NCCL_NAME, name=best_interface_name(network))),
            Fix("Or set the name's real address in /etc/hosts.", who="admin"),
        ),
        evidence={"hostname": network.hostname, "address": addresses[0]},
    )


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/29482", given=several_nodes)
def hostname_is_elsewhere(network: Network, plan: Plan, env: Mapping[str, str]) -> Answer:
    """In a multi-node run, this machine's name resolves to an address that it does not have.

    Why: gloo listens on the address of its own host name. If no interface has it (an old DNS entry, NAT), gloo
    falls back to 127.0.0.1 and gives that to the other nodes: "Connect full mesh failed", or a hang.

    Fix: set the interface.
    """
    here = {address for interface in network.interfaces for address in interface.addresses}
    if not network.hostname_addresses or not here:
        return Skip("the interfaces cannot be listed" if not here else "the name does not resolve at all")
    if any(address in here or is_loopback(address) for address in network.hostname_addresses):
        return Ok(f"{network.hostname} is an address of this machine")
    if len(env.get(GLOO_NAME, "")) > 1:
        return Ok(f"{GLOO_NAME}={env[GLOO_NAME]} selects the interface")
    return Problem(
        f"{network.hostname} resolves to {network.hostname_addresses[0]}, which no interface here has",
        "gloo cannot listen on it, and gives the other nodes 127.0.0.1 instead.",
        (
            Fix(commands=export_commands(GLOO_NAME, name=best_interface_name(network))),
            Fix("Or correct the name's entry in DNS or /etc/hosts.", who="admin"),
        ),
        {"hostname": network.hostname, "addresses": " ".join(network.hostname_addresses)},
    )


@check(Severity.ERROR, source=_TORCHRUN)
def loopback_is_down(network: Network) -> Answer:
    """The loopback interface is missing or down.

    Why: the ranks of a single-node run use 127.0.0.1 for the rendezvous, which does not work.

    Fix: bring it up.
    """
    loopback = [interface for interface in network.interfaces if interface.loopback]
    if not network.interfaces:
        return Skip("the interfaces cannot be listed")
    if any(interface.up for interface in loopback):
        return Ok(f"{loopback[0].name} is up")
    return Problem("no loopback interface is up", fix=Fix(commands=("sudo ip link set lo up",), who="admin"))


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("loopback_is_down",))
def localhost_unresolvable(network: Network) -> Answer:
    """The name `localhost` does not resolve to this machine.

    Why: launchers connect to localhost for ranks on one machine.

    Fix: restore the line.
    """
    if network.localhost_ok:
        return Ok("localhost is this machine")
    return Problem(
        "localhost does not resolve to 127.0.0.1 or ::1",
        fix=Fix(commands=("echo '127.0.0.1 localhost' | sudo tee -a /etc/hosts",), who="admin"),
    )
