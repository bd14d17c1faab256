"""Are the ports active, stable, and as fast as similar ports?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import HcaPort, InfiniBand, Pci, PciDevice, Plan, path_between
from mgpu.text import counted, listed

from ._adapters import NEAR, TCP_FALLBACK, active_ports, port_names, ports_to_check, several_nodes

_NETWORKING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
# Link losses in 24 h from which Azure's node health check reports a link (customTests/azure_ib_link_flapping.nhc).
_LOSSES_A_DAY = 5
_DAY_S = 86_400.0
_SOONEST_S = 3_600.0  # losses right after startup are not counted


@check(
    Severity.WARNING,
    source=_NETWORKING,
    because_of=("infiniband_without_subnet_manager", "rdma_driver_missing"),
    given=several_nodes,
)
def infiniband_none_active(infiniband: InfiniBand, plan: Plan) -> Answer:
    """This machine has InfiniBand or EFA adapters, but none of their ports is active.

    Why: NCCL skips ports that are not ACTIVE. Without any, it silently uses TCP: a tenth of the speed, or less.
    Unconnected Ethernet ports are not counted, as they may be unused on purpose.

    Fix: check cables, switch ports and the subnet manager.
    """
    ports = [port for port in ports_to_check(infiniband) if port.link_layer in ("InfiniBand", "EFA") and port.state]
    if not ports:
        return Skip("no InfiniBand or EFA adapter whose state can be read")
    if active := [port for port in ports_to_check(infiniband) if port.active]:
        return Ok(f"{counted(len(active), 'port')} active ({port_names(active)})")
    first = ports[0]
    return Problem(
        f"none of {counted(len(ports), f'{first.link_layer} port')} is active ({first.name}: {first.state})",
        f"The nodes cannot use the fast network. {TCP_FALLBACK}",
        Fix(commands=("ibstat", "rdma link show"), who="admin"),
        {port.name: f"{port.state}, {port.phys_state}" for port in ports[:16]},
        tuple(port.name for port in ports),
    )


@check(Severity.WARNING, source=_NETWORKING, because_of=("infiniband_without_subnet_manager",), given=several_nodes)
def infiniband_port_down(infiniband: InfiniBand, pci: Pci, plan: Plan) -> Answer:
    """An adapter has no active port, although most adapters of its kind in this machine have one.

    Why: the GPU next to it has to share another adapter, and every collective between nodes waits for it.
    More: Disabled ports, second ports of a card that is up, and cards far from the GPUs if the active ones are near
    (storage) are not counted.

    Fix: check its cable, transceiver and switch port.
    """
    near = {name for nic in pci.of("nic") if _shares_switch_with_gpu(pci, nic) for name in nic.names}
    cards: dict[tuple[str | None, str, bool], dict[str, list[HcaPort]]] = {}
    for port in ports_to_check(infiniband):
        kind = (port.board, port.link_layer, port.device in near)
        cards.setdefault(kind, {}).setdefault(port.card, []).append(port)
    kinds = [
        list(kind.values()) for kind in cards.values() if any(port.active for card in kind.values() for port in card)
    ]
    if not kinds:
        return Skip("no adapter with an active port to compare with")
    bad: list[HcaPort] = []
    compared = 0
    for group in kinds:
        down = [card for card in group if not any(port.active for port in card)]
        compared += len(group)
        if 0 < len(down) < len(group) - len(down):
            bad += [card[0] for card in down if card[0].phys_state not in (None, "Disabled")]
    if not bad:
        return Ok(f"no down port among {counted(compared, 'similar adapter')}")
    return Problem(
        f"{port_names(bad)}: {bad[0].state} ({bad[0].phys_state}), while other adapters of its kind are active",
        fix=Fix(commands=(shell("ibstat {:id}", bad[0].device), "rdma link show"), who="admin"),
        evidence={port.name: f"{port.state}, {port.phys_state}" for port in bad},
        subjects=tuple(port.name for port in bad),
    )


def _shares_switch_with_gpu(pci: Pci, nic: PciDevice) -> bool:
    """Whether a card shares a PCIe switch with a GPU."""
    return any(path_between(gpu, nic) in NEAR for gpu in pci.of("gpu"))


@check(Severity.WARNING, source=_NETWORKING, given=several_nodes)
def infiniband_without_subnet_manager(infiniband: InfiniBand, plan: Plan) -> Answer:
    """An InfiniBand port has a link but no subnet manager.

    Why: a port becomes ACTIVE only after a subnet manager assigns it an address. Until then it stays in INIT, and
    NCCL skips it: traffic uses TCP.

    Fix: start one, on the switch or with opensm on one node.
    """
    linked = [port for port in ports_to_check(infiniband) if port.link_layer == "InfiniBand"]
    bad = [port for port in linked if port.state in ("INIT", "ARMED") and port.phys_state in (None, "LinkUp")]
    if not any(port.state for port in linked):
        return Skip("no InfiniBand port whose state can be read")
    if not bad:
        return Ok(f"none of {counted(len(linked), 'port')} waits for a subnet manager")
    return Problem(
        f"{port_names(bad)}: {bad[0].state}, link up but no subnet manager",
        f"The port has no address, and NCCL skips it. {TCP_FALLBACK}",
        Fix(commands=("sudo sminfo", "sudo systemctl start opensm"), who="admin"),
        {port.name: f"{port.state}, subnet manager {port.sm_lid or 'none'}" for port in bad},
        tuple(port.name for port in bad),
    )


@check(Severity.WARNING, source=_NETWORKING, given=several_nodes)
def infiniband_rate_low(infiniband: InfiniBand, pci: Pci, plan: Plan) -> Answer:
    """An active port runs slower than others of the same board, or has lost lanes.

    Why: the slowest port limits every collective between nodes.
    More: With a worn cable or transceiver, the link comes up with fewer lanes or at a lower speed. Cards far from
    the GPUs are not counted if others are near (storage).

    Fix: clean or replace the cable and transceiver, and check the switch port.
    """
    near = {name for nic in pci.of("nic") if _shares_switch_with_gpu(pci, nic) for name in nic.names}
    reporting = [port for port in active_ports(infiniband) if port.rate_gbit_per_s]
    reporting = [port for port in reporting if port.device in near] or reporting
    if not reporting:
        return Skip("no active port reports its rate")
    best: dict[tuple[str | None, str], float] = {}
    for port in reporting:
        kind = (port.board, port.link_layer)
        best[kind] = max(best.get(kind, 0.0), port.rate_gbit_per_s or 0.0)
    slower = [port for port in reporting if (port.rate_gbit_per_s or 0) < best[port.board, port.link_layer]]
    single = [port for port in reporting if port.link_layer == "InfiniBand" and port.lanes == 1 and port not in slower]
    if not slower and not single:
        rate = f"{reporting[0].rate_gbit_per_s:g} Gb/s on {port_names(reporting[:1])}"
        return Ok(f"{rate}, equal on similar ports ({len(reporting)} in total)")
    first = (slower or single)[0]
    than = f"{best[first.board, first.link_layer]:g} Gb/s on similar ports" if slower else "on one lane only"
    return Problem(
        f"{port_names(slower or single)}: {first.rate_gbit_per_s:g} Gb/s, {than}",
        fix=Fix(commands=(shell("ibstat {:id}", first.device),), who="hardware"),
        evidence={port.name: port.rate_gbit_per_s for port in (*slower, *single)},
        subjects=tuple(port.name for port in (*slower, *single)),
    )


@check(Severity.WARNING, source="https://github.com/Azure/azurehpc-health-checks", given=several_nodes)
def infiniband_link_unstable(infiniband: InfiniBand, plan: Plan) -> Answer:
    """A port has often lost its link since the driver was loaded.

    Why: an unstable link stops runs with completion errors, on this node and on its peers.
    More: No data passes while a link retrains. After a short loss NCCL retries, a longer one stops the run with
    completion error 12, "transport retry counter exceeded", on both nodes. An occasional loss is usually a switch
    restart.

    Fix: clean or replace its cable and transceiver.
    """
    reporting = [port for port in active_ports(infiniband) if port.link_downed is not None]
    if not reporting or infiniband.uptime_s is None or infiniband.uptime_s < _SOONEST_S:
        return Skip("no active port counts link losses" if not reporting else "the machine has just started")
    days = max(1.0, infiniband.uptime_s / _DAY_S)
    bad = [port for port in reporting if (port.link_downed or 0) / days >= _LOSSES_A_DAY]
    if not bad:
        losses = sum(port.link_downed or 0 for port in reporting)
        return Ok(f"{counted(losses, 'link loss', 'link losses')} on {counted(len(reporting), 'port')}")
    first = max(bad, key=lambda port: port.link_downed or 0)
    return Problem(
        f"{first.name} lost its link {first.link_downed} times in {days:.0f} {'day' if days < 1.5 else 'days'}",
        fix=Fix(commands=(shell("sudo mlxlink -d {:id}", first.device),), who="hardware"),
        evidence={port.name: port.link_downed for port in bad},
        subjects=tuple(port.name for port in bad),
    )


@check(Severity.INFO, source="https://github.com/imbue-ai/cluster-health", given=several_nodes)
def infiniband_firmware_mixed(infiniband: InfiniBand, plan: Plan) -> Answer:
    """Adapters of the same board have different firmware versions.

    Why: one adapter missed an update, or was replaced.
    More: Features that NCCL uses (adaptive routing, GPUDirect) depend on the firmware.

    Fix: install the same version on all of them.
    """
    versions: dict[str, dict[str, list[str]]] = {}
    for port in active_ports(infiniband):
        if port.board and port.firmware:
            versions.setdefault(port.board, {}).setdefault(port.firmware, []).append(port.device)
    if not versions:
        return Skip("no active adapter reports its board and firmware")
    mixed = {board: found for board, found in versions.items() if len(found) > 1}
    if not mixed:
        return Ok(f"one firmware for each of {counted(len(versions), 'board')}")
    board, found = next(iter(mixed.items()))
    return Problem(
        f"{board}: firmware {listed(sorted(found))}",
        fix=Fix(commands=("sudo mlxfwmanager --query",), who="admin"),
        evidence={version: ", ".join(devices) for version, devices in sorted(found.items())},
    )
