"""Which network interfaces would NCCL and gloo use, according to their own rules?

NCCL: src/misc/socket.cc ncclFindInterfaces, src/os/linux.cc, src/misc/utils.cc (2.30). gloo: torch splits the variable
at commas and takes each part as an exact name (torch/csrc/distributed/c10d/init.cpp, gloo transport/tcp/device.cc).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mgpu.check import Skip
from mgpu.command_line import shell
from mgpu.snapshot import Interface, Nccl, Network, Plan

from ._nccl_settings import environment_settings, settings

ONE_MACHINE = Skip("single-node run")
NCCL_NAME, GLOO_NAME = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
# Without the variable, the first of these that matches any interface (`virbr` is separate since NCCL 2.28).
_AUTOMATIC = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")


def several_nodes(plan: Plan) -> Skip | None:
    """Skip a check of the network between nodes if the run has only one."""
    return ONE_MACHINE if plan.nodes < 2 else None


def interface_settings(env: Mapping[str, str], nccl: Nccl) -> dict[str, tuple[str, str]]:
    """Return the effective interface variables with value and origin. One-letter values are ignored."""
    every = {**settings(env, nccl), **environment_settings({name: env[name] for name in (GLOO_NAME,) if name in env})}
    found = (every[name] for name in (NCCL_NAME, GLOO_NAME) if name in every)
    return {setting.name: (setting.value, setting.origin) for setting in found if len(setting.value) > 1}


def matches(value: str, name: str) -> bool:
    """Return whether NCCL's setting matches this name: comma-separated prefixes, `=` for exact, `^` to exclude."""
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    parts = [part.partition(":")[0] for part in value.removeprefix("=").split(",") if part.partition(":")[0]]
    hit = not parts or any(name == part if exact else name.startswith(part) for part in parts)
    return hit != excludes


def has_link(interface: Interface) -> bool:
    """Return whether the interface is up and not known to lack a link."""
    return interface.up and interface.running is not False


def interfaces_for_nccl(network: Network, value: str | None, family: str | None = None) -> list[Interface]:
    """Return the interfaces NCCL would use, the one for its bootstrap first. `value` is NCCL_SOCKET_IFNAME."""
    usable = [i for i in network.interfaces if has_link(i) and i.addresses]
    if family == "AF_INET":
        usable = [i for i in usable if i.ipv4 is not False]
    elif family == "AF_INET6":
        usable = [i for i in usable if i.ipv6 is not False and not i.loopback]
    else:
        usable.sort(key=lambda i: i.ipv4 is False)  # getifaddrs lists all IPv4 addresses first
    for rule in (value,) if value else _AUTOMATIC:
        if found := [i for i in usable if matches(rule, i.name)]:
            return found
    return []


def names_for_nccl(interfaces: Iterable[Interface], value: str | None) -> list[str]:
    """Return the names NCCL would use if nothing but a node's interfaces is known."""
    network = Network("", (), None, True, tuple(interfaces), 0, False, None)
    return [interface.name for interface in interfaces_for_nccl(network, value)]


def names_for_gloo(value: str) -> list[str]:
    """Return the names gloo reads from GLOO_SOCKET_IFNAME. Spaces are part of a name."""
    parts = value.split(",")
    return parts[:-1] if parts[-1] == "" else parts


def is_dead_end(interface: Interface) -> bool:
    """Return whether the interface cannot reach another machine: loopback, container bridge or only link-local."""
    return interface.loopback or interface.virtual or interface.routable is False


def outgoing_interfaces(network: Network) -> list[Interface]:
    """Return the interfaces that may reach other machines, the one to the master or the default route first."""
    found = [i for i in network.interfaces if has_link(i) and i.addresses and not is_dead_end(i)]
    route = network.master.interface if network.master else None
    order = [*filter(None, [route]), *(network.default_routes or ())]
    return sorted(found, key=lambda i: (i.kind == "tunnel", order.index(i.name) if i.name in order else len(order)))


def best_interface_name(network: Network) -> str:
    """Return the interface name to suggest in a command."""
    return next((interface.name for interface in outgoing_interfaces(network)), "eth0")


def joined_names(interfaces: Iterable[Interface]) -> str:
    """Return the interface names, comma-separated."""
    return ", ".join(interface.name for interface in interfaces)


def export_commands(*variables: str, name: str) -> tuple[str, ...]:
    """Return the commands that set these variables to an interface name."""
    return tuple(shell("export {:name}={:interface}", variable, name) for variable in variables)


def is_loopback(address: str) -> bool:
    """Return whether this is a loopback address: 127.0.0.1, 127.0.1.1, ::1."""
    return address.startswith("127.") or address == "::1"
