"""Which of the adapters does NCCL use?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import InfiniBand, Libraries, Nccl, Plan
from mgpu.text import counted, listed

from .._nccl_settings import HERE, settings
from ._adapters import TCP_FALLBACK, active_ports, port_names, several_nodes
from ._hca import matches_entry, parse_hca, selects

_HCA = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca"
_EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"


@check(Severity.WARNING, source=_HCA, given=several_nodes)
def ib_hca_unmatched(infiniband: InfiniBand, plan: Plan, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL_IB_HCA names an adapter or port that this machine does not have, or excludes all active ones.

    Why: the variable is often copied from another cluster. NCCL then silently uses TCP ("No device"), or fewer
    adapters than there are.

    Fix: select adapters of this machine, or let NCCL choose.
    """
    found = settings(env, nccl).get("NCCL_IB_HCA")
    if found is None or not found.value.strip():
        return Skip("NCCL_IB_HCA is not set")
    if not infiniband.ports:
        return Skip("no adapter on this machine")
    value, origin = found.value, found.origin
    excluding, exact, entries = parse_hca(value)
    active = [port for port in infiniband.ports if port.active]
    left = [port for port in active if selects(value, port)]
    stray = [entry for entry in entries if not any(matches_entry(entry, exact, port) for port in infiniband.ports)]
    undo = (shell("# remove the line from {:path}", origin),) if origin != HERE else ("unset NCCL_IB_HCA",)
    here = port_names(active or infiniband.ports)
    if active and not left:
        return Problem(
            f"NCCL_IB_HCA={value} selects none of {counted(len(active), 'active port')}",
            f"This machine has {here}. {TCP_FALLBACK}",
            Fix(commands=undo),
            {"NCCL_IB_HCA": value, "set_in": origin},
            ("NCCL_IB_HCA",),
        )
    if stray and not excluding:
        names = listed(name if number is None else f"{name}:{number}" for name, number in stray)
        return Problem(
            f"NCCL_IB_HCA={value}: no {names} on this machine",
            f"This machine has {here}. NCCL uses {port_names(left) or 'none of them'} and does not report the rest.",
            Fix(commands=undo),
            {"NCCL_IB_HCA": value, "set_in": origin},
            ("NCCL_IB_HCA",),
        )
    return Ok(f"NCCL_IB_HCA={value}: {port_names(left) or 'no active port here'}")


@check(Severity.INFO, source=_HCA, given=several_nodes)
def ib_link_layers_mixed(infiniband: InfiniBand, plan: Plan, env: Mapping[str, str], nccl: Nccl) -> Answer:
    """InfiniBand and Ethernet adapters are both active, and NCCL_IB_HCA does not select any.

    Why: without NCCL_IB_HCA, NCCL uses all of them, including those for storage or the office network.
    More: An Ethernet card for storage or the office network may become part of a ring, where it is slow or cannot
    reach the other nodes.

    Fix: select those for training.
    """
    active = active_ports(infiniband)
    if not active:
        return Skip("no active port")
    if hca := settings(env, nccl).get("NCCL_IB_HCA"):
        return Ok(f"selected by NCCL_IB_HCA={hca.value}")
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
    """This machine has EFA adapters, but NCCL's plugin for them is not installed.

    Why: NCCL does not support EFA itself; aws-ofi-nccl (libnccl-net.so) adds it through libfabric. Without the
    plugin NCCL logs "NET/Plugin : No plugin found" at INFO level and uses TCP: many times slower on p4d and p5.

    Fix: use an AWS deep-learning image, or install the EFA software with the plugin.
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
        f"{counted(len(active), 'EFA adapter')}, but "
        + ("NCCL_NET_PLUGIN=none" if off else "no NCCL plugin for EFA (libnccl-net.so)"),
        f"NCCL does not support EFA without a plugin. {TCP_FALLBACK}",
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
