"""Which interfaces would NCCL and gloo use, by their own rules?

NCCL: src/misc/socket.cc ncclFindInterfaces, src/os/linux.cc, src/misc/utils.cc (2.30). gloo: torch splits the variable
at commas and takes each part as an exact name (torch/csrc/distributed/c10d/init.cpp, gloo transport/tcp/device.cc).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mgpu.check import Skip
from mgpu.command_line import shell
from mgpu.snapshot import Interface, Nccl, Network, Plan

from ._nccl_settings import of_environment, settings

ONE_MACHINE = Skip("the run stays on one machine")
NCCL_NAME, GLOO_NAME = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
# Without the variable: the first of these that finds any (`virbr` is told apart since NCCL 2.28).
_AUTOMATIC = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")


def several_nodes(plan: Plan) -> Skip | None:
    """What a check of the network between machines is asked for only."""
    return ONE_MACHINE if plan.nodes < 2 else None


def prescribed(env: Mapping[str, str], nccl: Nccl) -> dict[str, tuple[str, str]]:
    """The interface variables that have an effect: value, and where it is set. A value of one letter is ignored."""
    every = {**settings(env, nccl), **of_environment({name: env[name] for name in (GLOO_NAME,) if name in env})}
    found = (every[name] for name in (NCCL_NAME, GLOO_NAME) if name in every)
    return {setting.name: (setting.value, setting.origin) for setting in found if len(setting.value) > 1}


def matches(value: str, name: str) -> bool:
    """Whether NCCL takes an interface of this name: a comma list of prefixes; `=` makes them exact, `^` excludes."""
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    parts = [part.partition(":")[0] for part in value.removeprefix("=").split(",") if part.partition(":")[0]]
    hit = not parts or any(name == part if exact else name.startswith(part) for part in parts)
    return hit != excludes


def has_link(interface: Interface) -> bool:
    """Whether it is up, and has a link as far as that is known."""
    return interface.up and interface.running is not False


def by_nccl(network: Network, value: str | None, family: str | None = None) -> list[Interface]:
    """The interfaces NCCL would use, its bootstrap the first; `value` is that of NCCL_SOCKET_IFNAME."""
    usable = [i for i in network.interfaces if has_link(i) and i.addresses]
    if family == "AF_INET":
        usable = [i for i in usable if i.ipv4 is not False]
    elif family == "AF_INET6":
        usable = [i for i in usable if i.ipv6 is not False and not i.loopback]
    else:
        usable.sort(key=lambda i: i.ipv4 is False)  # getifaddrs tells all IPv4 addresses before the others
    for rule in (value,) if value else _AUTOMATIC:
        if found := [i for i in usable if matches(rule, i.name)]:
            return found
    return []


def nccl_takes(interfaces: Iterable[Interface], value: str | None) -> list[str]:
    """Their names, of the interfaces of a node of which nothing else is known."""
    network = Network("", (), None, True, tuple(interfaces), 0, False, None)
    return [interface.name for interface in by_nccl(network, value)]


def by_gloo(value: str) -> list[str]:
    """The names gloo takes from GLOO_SOCKET_IFNAME; blanks count."""
    parts = value.split(",")
    return parts[:-1] if parts[-1] == "" else parts


def dead_end(interface: Interface) -> bool:
    """Whether no other machine can be behind it: loopback, a bridge for containers, a link-local address only."""
    return interface.loopback or interface.virtual or interface.routable is False


def leading_out(network: Network) -> list[Interface]:
    """The interfaces over which other machines may be reached, the one to the master or the default route first."""
    found = [i for i in network.interfaces if has_link(i) and i.addresses and not dead_end(i)]
    route = network.master.interface if network.master else None
    order = [*filter(None, [route]), *(network.default_routes or ())]
    return sorted(found, key=lambda i: (i.kind == "tunnel", order.index(i.name) if i.name in order else len(order)))


def best(network: Network) -> str:
    """A name for a command."""
    return next((interface.name for interface in leading_out(network)), "eth0")


def names_of(interfaces: Iterable[Interface]) -> str:
    """Their names, for a sentence."""
    return ", ".join(interface.name for interface in interfaces)


def export(*variables: str, name: str) -> tuple[str, ...]:
    """The commands that name an interface."""
    return tuple(shell("export {:name}={:interface}", variable, name) for variable in variables)


def is_loopback(address: str) -> bool:
    """127.0.0.1, 127.0.1.1, ::1."""
    return address.startswith("127.") or address == "::1"
