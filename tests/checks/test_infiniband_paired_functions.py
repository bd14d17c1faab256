"""checks/infiniband/paired_functions.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import Case, gpus, hca, infiniband, skips, table, warns, well

SPARK: dict[str, Any] = {
    "gpus": gpus(1, name="NVIDIA GB10", compute_capability=(12, 1)),
    "infiniband": infiniband(
        hca(0, device="rocep1s0f0", pci="0000:01:00.0", link_layer="Ethernet"),
        hca(1, device="roceP2p1s0f0", pci="0002:01:00.0", link_layer="Ethernet"),
        hca(2, device="rocep1s0f1", pci="0000:01:00.1", link_layer="Ethernet", state="DOWN"),
    ),
    "plan": Plan(nodes=2),
}


def chosen(value: str) -> dict[str, str]:
    return {"NCCL_IB_HCA": value}


CASES = (
    warns("gb10_port_half_used",
        "NCCL_IB_HCA=rocep1s0f0 uses rocep1s0f0, but not roceP2p1s0f0 of the same port",
        "Set NCCL_IB_HCA to rocep1s0f0,roceP2p1s0f0 on every node.", **SPARK, env=chosen("rocep1s0f0")),
    warns("gb10_port_half_used", "but not rocep1s0f0", "rocep1s0f0,roceP2p1s0f0", **SPARK, env=chosen("^=rocep1s0f0")),
    well("gb10_port_half_used", "uses both functions of each port", **SPARK, env=chosen("rocep1s0f0,roceP2p1s0f0")),
    well("gb10_port_half_used", "uses both functions", **SPARK, env=chosen("roce")),
    well("gb10_port_half_used", "NCCL_IB_HCA is not set", **SPARK),
    skips("gb10_port_half_used", "single-node run", **SPARK | {"plan": Plan()}, env=chosen("rocep1s0f0")),
    skips("gb10_port_half_used", "not a GB10 machine", env=chosen("mlx5_0"), plan=Plan(nodes=2)),
    skips("gb10_port_half_used", "no network port with two PCIe functions",
        **SPARK | {"infiniband": infiniband()}, env=chosen("mlx5_0")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
