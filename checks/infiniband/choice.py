"""Which adapters does NCCL use, of those that are there?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import InfiniBand, Libraries, Nccl, Plan
from mgpu.text import counted, listed

from .._nccl_settings import HERE, settings
from ._adapters import FALLS_BACK, active_ports, port_names, several_nodes
from ._hca import chooses, entries_of, means

_HCA = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca"
_EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"


@check(Severity.WARNING, source=_HCA, given=several_nodes)
def ib_hca_unmatched(infiniband: InfiniBand, plan: Plan, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL_IB_HCA names an adapter or port that this machine does not have, or leaves no active one.

    Why: the variable is often copied from another cluster. NCCL then finds "No device" and goes over TCP, or uses fewer
    adapters than there are, without a word.

    Fix: name adapters that are here, or let NCCL choose.
    """
    found = settings(env, nccl).get("NCCL_IB_HCA")
    if found is None or not found.value.strip():
        return Skip("NCCL_IB_HCA is not set")
    if not infiniband.ports:
        return Skip("no adapter on this machine")
    value, origin = found.value, found.origin
    excluding, exact, entries = entries_of(value)
    active = [port for port in infiniband.ports if port.active]
    left = [port for port in active if chooses(value, port)]
    stray = [entry for entry in entries if not any(means(entry, exact, port) for port in infiniband.ports)]
    undo = (shell("# remove the line from {:path}", origin),) if origin != HERE else ("unset NCCL_IB_HCA",)
    here = port_names(active or infiniband.ports)
    if active and not left:
        return Problem(
            f"NCCL_IB_HCA={value} leaves none of {counted(len(active), 'active port')}",
            f"Here are {here}. {FALLS_BACK}",
            Fix(commands=undo),
            {"NCCL_IB_HCA": value, "set_in": origin},
            ("NCCL_IB_HCA",),
        )
    if stray and not excluding:
        names = listed(name if number is None else f"{name}:{number}" for name, number in stray)
        return Problem(
            f"NCCL_IB_HCA={value}: no {names} on this machine",
            f"Here are {here}. NCCL uses {port_names(left) or 'none of them'}, and says nothing of the rest.",
            Fix(commands=undo),
            {"NCCL_IB_HCA": value, "set_in": origin},
            ("NCCL_IB_HCA",),
        )
    return Ok(f"NCCL_IB_HCA={value}: {port_names(left) or 'no active port here'}")


@check(Severity.INFO, source=_HCA, given=several_nodes)
def ib_link_layers_mixed(infiniband: InfiniBand, plan: Plan, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """InfiniBand and Ethernet adapters are active side by side, and nothing tells NCCL which to use.

    Why: without NCCL_IB_HCA NCCL takes all of them, also those that serve storage or the office.
    More: An Ethernet card that serves storage or the office network may become part of a ring, where it is slow or
    reaches nobody.

    Fix: name those for training.
    """
    active = active_ports(infiniband)
    if not active:
        return Skip("no active port")
    if hca := settings(env, nccl).get("NCCL_IB_HCA"):
        return Ok(f"NCCL_IB_HCA={hca.value} chooses")
    fast = [port for port in active if port.link_layer == "InfiniBand"]
    other = [port for port in active if port.link_layer == "Ethernet"]
    if not fast or not other:
        return Ok(f"{counted(len(active), 'active port')} of one kind")
    return Problem(
        f"{counted(len(fast), 'InfiniBand port')} and {counted(len(other), 'Ethernet port')} active "
        f"({port_names(other)})",
        fix=Fix(commands=(shell("export NCCL_IB_HCA={:adapters}", "=" + ",".join(port.name for port in fast)),)),
        evidence={"infiniband": port_names(fast), "ethernet": port_names(other)},
    )


@check(Severity.WARNING, source=_EFA, because_of=("verbs_node_unusable",), given=several_nodes)
def efa_plugin_missing(
    infiniband: InfiniBand, plan: Plan, libraries: Libraries, env: Mapping[str, str], nccl: Nccl
) -> Answer:
    """This machine has EFA adapters, and NCCL's plugin for them is not installed.

    Why: NCCL does not speak EFA itself; aws-ofi-nccl (libnccl-net.so) does it over libfabric. Without the plugin NCCL
    logs "NET/Plugin : No plugin found" at INFO level and goes over TCP: many times slower on p4d and p5.

    Fix: an AWS deep-learning image, or install the EFA software with the plugin.
    """
    active = [port for port in infiniband.ports if port.link_layer == "EFA" and port.active]
    if not active:
        return Skip("no active EFA adapter")
    named = settings(env, nccl).get("NCCL_NET_PLUGIN")
    plugins = [
        library for library in libraries.found if library.name.startswith("nccl-net") and library.loads is not False
    ]
    off = named is not None and named.value == "none"
    if plugins and not off:
        return Ok(f"{plugins[0].path} for {counted(len(active), 'EFA adapter')}")
    return Problem(
        f"{counted(len(active), 'EFA adapter')}, and "
        + ("NCCL_NET_PLUGIN=none" if off else "no plugin of NCCL for them (libnccl-net.so)"),
        f"NCCL cannot speak EFA by itself. {FALLS_BACK}",
        Fix(
            "Let NCCL load its plugin." if off else "Install aws-ofi-nccl where the loader finds it.",
            ("unset NCCL_NET_PLUGIN",)
            if off
            else (
                "ls /opt/amazon/ofi-nccl/lib /opt/aws-ofi-nccl/lib",
                "export LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:$LD_LIBRARY_PATH",
            ),
        ),
        {"adapters": port_names(active), "NCCL_NET_PLUGIN": named.value if named else None},
    )
