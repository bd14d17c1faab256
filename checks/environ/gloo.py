"""Does gloo use the network that it should?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Nccl, Network, Plan, Slurm
from mgpu.text import listed

from .._interfaces import interface_settings, interfaces_for_nccl, names_for_gloo
from .._nccl_settings import node_count


@check(
    Severity.INFO,
    source="https://pytorch.org/docs/stable/distributed.html#common-environment-variables",
    because_of=("hostname_is_loopback", "hostname_unresolvable", "hostname_is_elsewhere", "socket_interface_missing"),
)
def gloo_leaves_nccl_interface(
    env: Mapping[str, str], nccl: Nccl, network: Network, plan: Plan, slurm: Slurm
) -> Answer:
    """In a multi-node run, gloo uses a different interface than the one set for NCCL.

    Why: CPU barriers and object collectives use gloo, which uses the host name's interface unless
    GLOO_SOCKET_IFNAME names one. It ignores NCCL_SOCKET_IFNAME: NCCL starts, but gloo ends in "Connect full mesh
    failed" if its network does not connect the nodes.

    Fix: use the same interface for gloo, unless the difference is intended.
    More: Use the same interface for both, unless both networks connect the nodes.
    """
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    named = interface_settings(env, nccl)
    if "NCCL_SOCKET_IFNAME" not in named:
        return Ok("no interface is set for NCCL")
    chosen = [interface.name for interface in interfaces_for_nccl(network, named["NCCL_SOCKET_IFNAME"][0])]
    if not chosen:
        return Skip("NCCL_SOCKET_IFNAME matches no interface: see socket_interface_missing")
    if "GLOO_SOCKET_IFNAME" in named:
        value = named["GLOO_SOCKET_IFNAME"][0]
        used, why = names_for_gloo(value), f"GLOO_SOCKET_IFNAME={value}"
    else:
        mine = [i for i in network.interfaces if set(i.addresses) & set(network.hostname_addresses[:1])]
        used, why = [i.name for i in mine], f"{network.hostname} resolves to its address"
    if not used:
        return Skip("gloo's interface is unknown")
    if set(used) & set(chosen):
        return Ok(f"NCCL and gloo both use {used[0]}")
    return Problem(
        f"NCCL is set to use {listed(chosen)}, but gloo uses {listed(used)}",
        f"{why}. Both networks must connect the nodes.",
        Fix(commands=(shell("export GLOO_SOCKET_IFNAME={:interface}", chosen[0]),)),
        {name: value for name, (value, _) in named.items()} | {"gloo": " ".join(used), "nccl": " ".join(chosen)},
        ("GLOO_SOCKET_IFNAME",),
    )


@check(Severity.WARNING, source="measured PyTorch 2.13.0 2026-11-21")
def gloo_transport_unknown(env: Mapping[str, str]) -> Answer:
    """GLOO_DEVICE_TRANSPORT names a transport that gloo does not have.

    Why: gloo supports TCP and, depending on the build, TCP_TLS, UV and IBVERBS. Any other value, including
    lowercase or empty, makes init_process_group fail with "makeDeviceForHostname(): unsupported gloo device".

    Fix: unset it.
    """
    value = env.get("GLOO_DEVICE_TRANSPORT")
    if value is None or value in ("TCP", "TCP_TLS", "UV", "IBVERBS"):
        return Ok(f"GLOO_DEVICE_TRANSPORT is {value or 'not set'}")
    return Problem(
        f"GLOO_DEVICE_TRANSPORT={value!r}",
        "gloo has no such transport and fails.",
        Fix(commands=("unset GLOO_DEVICE_TRANSPORT",)),
        {"GLOO_DEVICE_TRANSPORT": value},
        ("GLOO_DEVICE_TRANSPORT",),
    )
