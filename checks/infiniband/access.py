"""Can this process use an adapter: is there a driver, a library and a device node?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, InfiniBand, Pci, PciDevice, Plan
from mgpu.text import counted, listed

from ._adapters import TCP_FALLBACK, active_ports, port_names, several_nodes

_VERBS = "https://github.com/NVIDIA/nccl/issues/367"


@check(Severity.WARNING, source=_VERBS, given=several_nodes)
def verbs_node_unusable(infiniband: InfiniBand, plan: Plan, container: Container) -> Answer:
    """The device node of an active adapter is missing, or this process may not open it.

    Why: programs access an adapter through /dev/infiniband/uverbsN. A container shows the adapters in /sys, but has
    these device nodes only if they are passed in. NCCL logs "No device" and uses TCP.

    Fix: pass /dev/infiniband into the container, or give the user permission to open it.
    """
    active = active_ports(infiniband)
    if not active:
        return Skip("no active port")
    bad = [port for port in active if port.device in infiniband.verbs_unusable]
    if not bad:
        return Ok(f"the device nodes of {counted(len({port.device for port in active}), 'adapter')} can be opened")
    if container.kind:
        commands: tuple[str, ...] = ("docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 ...",)
    elif infiniband.verbs_nodes:
        commands = ("ls -l /dev/infiniband", "sudo chmod 666 /dev/infiniband/uverbs*")
    else:
        commands = ("sudo modprobe ib_uverbs",)
    all_of_them = len(bad) == len(active)
    return Problem(
        f"/dev/infiniband: no device node usable for {len(bad)} of {counted(len(active), 'active port')} "
        f"({port_names(bad)})",
        f"NCCL cannot open these adapters. {TCP_FALLBACK if all_of_them else 'It continues with the others.'}",
        Fix(
            "Pass the device nodes into the container."
            if container.kind
            else "Give this user permission to open the device nodes.",
            commands,
            "you" if container.kind else "admin",
        ),
        {"nodes": len(infiniband.verbs_nodes), "unusable": listed(infiniband.verbs_unusable[:16])},
        tuple(port.name for port in bad),
    )


@check(Severity.WARNING, source=_VERBS, given=several_nodes)
def verbs_library_missing(infiniband: InfiniBand, plan: Plan, container: Container) -> Answer:
    """Adapters are active, but libibverbs is not installed.

    Why: NCCL loads libibverbs.so.1 when it starts. Small container images lack it: NCCL logs "Failed to open
    libibverbs.so" at INFO level and uses TCP.

    Fix: install it; for a container, in the image.
    """
    active = active_ports(infiniband)
    if not active or infiniband.verbs_library is None:
        return Skip("no active port")
    if infiniband.verbs_library:
        return Ok("libibverbs.so.1 is installed")
    return Problem(
        f"{counted(len(active), 'active port')}, but no libibverbs.so.1",
        f"NCCL cannot use the adapters. {TCP_FALLBACK}",
        Fix(
            commands=("apt-get install -y libibverbs1 librdmacm1 ibverbs-providers",),
            who="you" if container.kind else "admin",
        ),
        {"active": port_names(active)},
    )


@check(Severity.WARNING, source="https://docs.kernel.org/infiniband/index.html", given=several_nodes)
def rdma_driver_missing(pci: Pci, infiniband: InfiniBand, plan: Plan) -> Answer:
    """A network card on the PCIe bus has no RDMA driver.

    Why: without mlx5_ib (or efa, on AWS) there is no adapter in /sys/class/infiniband, so NCCL does not detect the
    card.

    Fix: load the module.
    More: Install the driver if it is missing.
    """
    cards = [nic for nic in pci.of("nic") if _is_rdma_card(nic) and nic.driver != "vfio-pci"]
    if not cards:
        return Skip("no InfiniBand or EFA card on the bus")
    made = {port.pci for port in infiniband.ports}
    bad = [nic for nic in cards if nic.address not in made]
    if not bad:
        return Ok(f"{counted(len(cards), 'card')}, all with an RDMA adapter")
    module = "efa" if bad[0].vendor == "1d0f" else "mlx5_ib"
    return Problem(
        f"{counted(len(bad), 'network card')} without an RDMA adapter ({listed(nic.address for nic in bad[:4])})",
        f"Driver: {bad[0].driver or 'none'}. NCCL does not detect the card. {TCP_FALLBACK}",
        Fix(commands=(shell("sudo modprobe {:id}", module), "sudo modprobe ib_uverbs"), who="admin"),
        {nic.address: nic.driver or "no driver" for nic in bad},
        tuple(nic.address for nic in bad),
    )


def _is_rdma_card(nic: PciDevice) -> bool:
    """Whether a card is InfiniBand (class 0207) or EFA; an Ethernet card may be meant for TCP only."""
    return (nic.pci_class or "").startswith("0207") or (nic.vendor == "1d0f" and nic.device.startswith("efa"))
