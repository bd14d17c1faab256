"""Are the ports active, steady, and as fast as their like?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import HcaPort, InfiniBand, Pci, PciDevice, Plan, path_between
from mgpu.text import counted, listed

from ._adapters import FALLS_BACK, NEAR, active_ports, judged, port_names, several_nodes

_NETWORKING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues"
# Azure's node health check calls a link bad that is lost this often in 24 h (customTests/azure_ib_link_flapping.nhc).
_LOSSES_A_DAY = 5
_DAY_S = 86_400.0
_SOONEST_S = 3_600.0  # what came of a cable at start-up is not counted as a habit


@check(
    Severity.WARNING,
    source=_NETWORKING,
    because_of=("infiniband_without_subnet_manager", "rdma_driver_missing"),
    given=several_nodes,
)
def infiniband_none_active(infiniband: InfiniBand, plan: Plan) -> Answer:
    """This machine has adapters for a fast network, and not one of their ports is active.

    Why: NCCL passes over ports that are not ACTIVE. With none left it goes over TCP without a word: a tenth of the
    speed, or less. Ethernet ports that lead nowhere are not counted; InfiniBand and EFA are bought for this.

    Fix: check cables, switch ports and the subnet manager.
    """
    ports = [port for port in judged(infiniband) if port.link_layer in ("InfiniBand", "EFA") and port.state]
    if not ports:
        return Skip("no InfiniBand or EFA adapter whose state can be read")
    if active := [port for port in judged(infiniband) if port.active]:
        return Ok(f"{counted(len(active), 'port')} active ({port_names(active)})")
    first = ports[0]
    return Problem(
        f"none of {counted(len(ports), f'{first.link_layer} port')} is active ({first.name}: {first.state})",
        f"The machines would not meet on the fast network. {FALLS_BACK}",
        Fix(commands=("ibstat", "rdma link show"), who="admin"),
        {port.name: f"{port.state}, {port.phys_state}" for port in ports[:16]},
        tuple(port.name for port in ports),
    )


@check(Severity.WARNING, source=_NETWORKING, because_of=("infiniband_without_subnet_manager",), given=several_nodes)
def infiniband_port_down(infiniband: InfiniBand, pci: Pci, plan: Plan) -> Answer:
    """An adapter has no active port, while most of its kind in this machine have.

    Why: the GPU beside it has to share another's adapter, and every collective over the machines waits for it.
    More: Ports that were switched off, second ports of a card that is up, and cards far from the GPUs while the active
    ones are near (storage) are not counted.

    Fix: check its cable, transceiver and switch port.
    """
    near = {name for nic in pci.of("nic") if _beside(pci, nic) for name in nic.names}
    cards: dict[tuple[str | None, str, bool], dict[str, list[HcaPort]]] = {}
    for port in judged(infiniband):
        kind = (port.board, port.link_layer, port.device in near)
        cards.setdefault(kind, {}).setdefault(port.card, []).append(port)
    kinds = [
        list(kind.values()) for kind in cards.values() if any(port.active for card in kind.values() for port in card)
    ]
    if not kinds:
        return Skip("no adapter with an active port to compare with")
    bad: list[HcaPort] = []
    compared = 0
    for alike in kinds:
        down = [card for card in alike if not any(port.active for port in card)]
        compared += len(alike)
        if 0 < len(down) < len(alike) - len(down):
            bad += [card[0] for card in down if card[0].phys_state not in (None, "Disabled")]
    if not bad:
        return Ok(f"{counted(compared, 'adapter')} active, as far as they are of a kind")
    return Problem(
        f"{port_names(bad)}: {bad[0].state} ({bad[0].phys_state}), while other adapters of its kind are active",
        fix=Fix(commands=(shell("ibstat {:id}", bad[0].device), "rdma link show"), who="admin"),
        evidence={port.name: f"{port.state}, {port.phys_state}" for port in bad},
        subjects=tuple(port.name for port in bad),
    )


def _beside(pci: Pci, nic: PciDevice) -> bool:
    """Whether a card hangs below one PCIe switch with a GPU."""
    return any(path_between(gpu, nic) in NEAR for gpu in pci.of("gpu"))


@check(Severity.WARNING, source=_NETWORKING, given=several_nodes)
def infiniband_without_subnet_manager(infiniband: InfiniBand, plan: Plan) -> Answer:
    """An InfiniBand port has its cable and waits for a subnet manager.

    Why: a port becomes ACTIVE only when a subnet manager has given it an address. Until then it stays in INIT, and NCCL
    passes over it: the traffic goes over TCP.

    Fix: start one: on the switch, or opensm on one machine.
    """
    linked = [port for port in judged(infiniband) if port.link_layer == "InfiniBand"]
    bad = [port for port in linked if port.state in ("INIT", "ARMED") and port.phys_state in (None, "LinkUp")]
    if not any(port.state for port in linked):
        return Skip("no InfiniBand port whose state can be read")
    if not bad:
        return Ok(f"no port of {len(linked)} waits for a subnet manager")
    return Problem(
        f"{port_names(bad)}: {bad[0].state}, the cable is in and no subnet manager has come by",
        f"The port gets no address, and NCCL passes over it. {FALLS_BACK}",
        Fix(commands=("sudo sminfo", "sudo systemctl start opensm"), who="admin"),
        {port.name: f"{port.state}, subnet manager {port.sm_lid or 'none'}" for port in bad},
        tuple(port.name for port in bad),
    )


@check(Severity.WARNING, source=_NETWORKING, given=several_nodes)
def infiniband_rate_low(infiniband: InfiniBand, pci: Pci, plan: Plan) -> Answer:
    """An active port runs slower than others of the same board, or has lost lanes.

    Why: the slowest port sets the pace of every collective over the machines.
    More: A worn cable or transceiver lets the link come up with fewer lanes or an older speed. Cards far from the GPUs
    while others are near (storage) are not counted.

    Fix: clean or change cable and transceiver, check the switch port.
    """
    near = {name for nic in pci.of("nic") if _beside(pci, nic) for name in nic.names}
    told = [port for port in active_ports(infiniband) if port.rate_gbit_per_s]
    told = [port for port in told if port.device in near] or told
    if not told:
        return Skip("no active port tells its rate")
    best: dict[tuple[str | None, str], float] = {}
    for port in told:
        kind = (port.board, port.link_layer)
        best[kind] = max(best.get(kind, 0.0), port.rate_gbit_per_s or 0.0)
    slower = [port for port in told if (port.rate_gbit_per_s or 0) < best[port.board, port.link_layer]]
    single = [port for port in told if port.link_layer == "InfiniBand" and port.lanes == 1 and port not in slower]
    if not slower and not single:
        return Ok(
            f"{told[0].rate_gbit_per_s:g} Gb/s on {port_names(told[:1])}, and every port as its like ({len(told)})"
        )
    first = (slower or single)[0]
    than = f"{best[first.board, first.link_layer]:g} Gb/s on its like" if slower else "on one lane only"
    return Problem(
        f"{port_names(slower or single)}: {first.rate_gbit_per_s:g} Gb/s, {than}",
        fix=Fix(commands=(shell("ibstat {:id}", first.device),), who="hardware"),
        evidence={port.name: port.rate_gbit_per_s for port in (*slower, *single)},
        subjects=tuple(port.name for port in (*slower, *single)),
    )


@check(Severity.WARNING, source="https://github.com/Azure/azurehpc-health-checks", given=several_nodes)
def infiniband_link_unstable(infiniband: InfiniBand, plan: Plan) -> Answer:
    """A port has lost its link often since the driver was loaded.

    Why: a link that comes and goes ends runs with completion errors, on this machine and on its peers.
    More: While a link trains anew nothing passes. A short loss makes NCCL retry, a longer one ends the run with
    completion error 12, "transport retry counter exceeded", on both machines. A lost link now and then is a switch that
    restarted.

    Fix: clean or change its cable and transceiver.
    """
    told = [port for port in active_ports(infiniband) if port.link_downed is not None]
    if not told or infiniband.uptime_s is None or infiniband.uptime_s < _SOONEST_S:
        return Skip("no active port counts its losses" if not told else "the machine has only just started")
    days = max(1.0, infiniband.uptime_s / _DAY_S)
    bad = [port for port in told if (port.link_downed or 0) / days >= _LOSSES_A_DAY]
    if not bad:
        return Ok(
            f"links of {counted(len(told), 'port')} lost {sum(port.link_downed or 0 for port in told)} times in all"
        )
    first = max(bad, key=lambda port: port.link_downed or 0)
    return Problem(
        f"{first.name} lost its link {first.link_downed} times in {days:.0f} {'day' if days < 1.5 else 'days'}",
        fix=Fix(commands=(shell("sudo mlxlink -d {:id}", first.device),), who="hardware"),
        evidence={port.name: port.link_downed for port in bad},
        subjects=tuple(port.name for port in bad),
    )


@check(Severity.INFO, source="https://github.com/imbue-ai/cluster-health", given=several_nodes)
def infiniband_firmware_mixed(infiniband: InfiniBand, plan: Plan) -> Answer:
    """Adapters of the same board run different firmware.

    Why: one adapter was left out of an update, or was replaced.
    More: Features that NCCL uses (adaptive routing, GPUDirect) change with the firmware.

    Fix: bring them to one version.
    """
    versions: dict[str, dict[str, list[str]]] = {}
    for port in active_ports(infiniband):
        if port.board and port.firmware:
            versions.setdefault(port.board, {}).setdefault(port.firmware, []).append(port.device)
    if not versions:
        return Skip("no active adapter tells its board and firmware")
    mixed = {board: found for board, found in versions.items() if len(found) > 1}
    if not mixed:
        return Ok(f"one firmware for each of {counted(len(versions), 'board')}")
    board, found = next(iter(mixed.items()))
    return Problem(
        f"{board}: firmware {listed(sorted(found))} side by side",
        fix=Fix(commands=("sudo mlxfwmanager --query",), who="admin"),
        evidence={version: ", ".join(devices) for version, devices in sorted(found.items())},
    )
