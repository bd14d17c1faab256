"""Does NCCL use both PCIe functions of a network port that has two?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Gpu, InfiniBand, Nccl, Plan
from mgpu.text import listed

from .._nccl_settings import effective_value
from ._hca import selects

_GB10 = re.compile(r"\bGB10\b")
# Each port of the ConnectX-7 of a GB10 machine is two PCIe functions in two domains, x4 each (about 100 Gbit/s).
_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:(?P<rest>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")


@check(
    Severity.WARNING,
    source="https://www.servethehome.com/the-nvidia-gb10-connectx-7-200gbe-networking-is-really-different",
)
def gb10_port_half_used(
    gpus: tuple[Gpu, ...], infiniband: InfiniBand, env: Mapping[str, str], nccl: Nccl, plan: Plan
) -> Answer:
    """NCCL uses only one of the two PCIe functions of a GB10 machine's network port.

    Why: each 200 Gbit/s port is two functions of about 100 Gbit/s, so half of the port stays unused.
    More: The functions have the same address in two PCI domains (0000:01:00.0 and 0002:01:00.0) and are two adapters:
    rocep1s0f0 and roceP2p1s0f0. NCCL_IB_HCA often names only the first.

    Fix: name both adapters in NCCL_IB_HCA.
    """
    if not any(_GB10.search(gpu.name or "") for gpu in gpus):
        return Skip("not a GB10 machine")
    if plan.nodes < 2:
        return Skip("single-node run")
    value = effective_value("NCCL_IB_HCA", env, nccl)
    if value is None:
        return Ok("NCCL_IB_HCA is not set: NCCL uses all adapters")
    ports: dict[str, list[str]] = {}  # the address without its domain -> adapters
    for port in infiniband.ports:
        if port.active and (found := _ADDRESS.fullmatch(port.pci or "")):
            ports.setdefault(found["rest"], []).append(port.device)
    halves = {rest: devices for rest, devices in ports.items() if len(devices) > 1}
    if not halves:
        return Skip("no network port with two PCIe functions found")
    by_device = {port.device: port for port in infiniband.ports}
    for devices in halves.values():
        chosen = [device for device in devices if selects(value, by_device[device])]
        if chosen and len(chosen) < len(devices):
            missing = [device for device in devices if device not in chosen]
            return Problem(
                f"NCCL_IB_HCA={value} uses {listed(chosen)}, but not {listed(missing)} of the same port",
                fix=Fix(f"Set NCCL_IB_HCA to {','.join(devices)} on every node."),
                evidence={"NCCL_IB_HCA": value, "functions": " ".join(devices)},
                subjects=("NCCL_IB_HCA",),
            )
    return Ok(f"NCCL_IB_HCA={value} uses both functions of each port")
