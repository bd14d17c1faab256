"""checks/links/consumer_cards.py"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.facts import GIB, Case, gpu, gpus, kernel, link, lost, seen, skips, table, warns, well

OFF = {"NCCL_P2P_DISABLE": "1"}


def cards(name: str = "NVIDIA GeForce RTX 5090", *others: Any, p2p: int = 0, **changes: Any) -> dict[str, Any]:
    """Two cards without NVLink, whose driver grants (0) or refuses (4) peer access."""
    usual = {"memory_total_bytes": 32 * GIB, "bar1_total_bytes": 32 * GIB, "nvlinks": (), "virtualization": 0}
    pair = link(0, 1, nvlinks=0, through_switch=False, topology="PHB", p2p_read=p2p, p2p_write=p2p)
    return {"gpus": gpus(2, *others, name=name, **usual | changes), "links": (pair,), "visible": seen(0, 1)}


def display(**changes: Any) -> dict[str, Any]:
    """The first of two cards drives a display."""
    plain = cards()["gpus"]
    shown = gpu(
        0, name="NVIDIA GeForce RTX 5090", display_active=True, memory_total_bytes=32 * GIB, bar1_total_bytes=32 * GIB
    )
    return cards() | {"gpus": (shown, plain[1])} | changes


CASES = (
    # peer_access_is_a_mirror
    warns("peer_access_is_a_mirror",
        "GPUs 0 and 1: peer access over PCIe between passed-through GeForce cards", "x-nv-gpudirect-clique",
        **cards("NVIDIA GeForce RTX 3090", virtualization=1)),
    warns("peer_access_is_a_mirror", "GPUs 0 and 1", "export NCCL_P2P_DISABLE=1",
        **cards("NVIDIA GeForce RTX 3090", virtualization=1)),
    well("peer_access_is_a_mirror", "NCCL_P2P_DISABLE is set",
        **cards("NVIDIA GeForce RTX 3090", virtualization=1), env=OFF),
    well("peer_access_is_a_mirror", "no peer access over PCIe between 2 passed-through cards",
        **cards("NVIDIA GeForce RTX 3090", virtualization=1, p2p=4)),
    skips("peer_access_is_a_mirror", "no GeForce card that is passed through", **cards()),
    skips("peer_access_is_a_mirror", "no GeForce card that is passed through",  # a data center GPU may be
        **cards("NVIDIA A100 80GB PCIe", virtualization=1)),
    # peer_access_exceeds_bar1
    warns("peer_access_exceeds_bar1", "GPUs 0 and 1: PCIe window 256 MiB, memory 32768 MiB",
        "Turn on Above 4G Decoding and Resizable BAR", **cards(bar1_total_bytes=GIB // 4)),
    warns("peer_access_exceeds_bar1", "GPU 1: PCIe window 16384 MiB", "export NCCL_P2P_DISABLE=1",
        **cards("NVIDIA GeForce RTX 4090", gpu(1, name="NVIDIA GeForce RTX 4090", memory_total_bytes=24 * GIB,
                                               bar1_total_bytes=16 * GIB))),
    well("peer_access_exceeds_bar1", "the PCIe window covers the memory of 2 cards", **cards()),
    well("peer_access_exceeds_bar1", "NCCL_P2P_DISABLE is set", **cards(bar1_total_bytes=GIB // 4), env=OFF),
    skips("peer_access_exceeds_bar1", "no GPU here reports its PCIe window", **cards(bar1_total_bytes=None)),
    skips("peer_access_exceeds_bar1", "no peer access over PCIe", **cards(p2p=4)),  # NVIDIA's own driver
    skips("peer_access_exceeds_bar1", "no peer access over PCIe", **cards("NVIDIA RTX PRO 6000 Blackwell")),
    skips("peer_access_exceeds_bar1", "no peer access over PCIe", **cards() | {"gpus": gpus(2, lost(0), lost(1))}),
    # peer_access_with_display
    warns("peer_access_with_display", "GPU 0 has peer access and a display, and the driver lacks RMForceStaticBar1=1",
        "'options nvidia NVreg_RegistryDwords=RMForceStaticBar1=1'", **display()),
    warns("peer_access_with_display", "GPU 0", "NVreg_RegistryDwords=ForceP2P=17;RMForceStaticBar1=1",
        **display(kernel=kernel(peer_options=("ForceP2P=17",)))),
    well("peer_access_with_display", "the driver has RMForceStaticBar1=1",
        **display(kernel=kernel(peer_options=("RMForceStaticBar1=1",)))),
    well("peer_access_with_display", "no card with peer access drives a display", **cards()),
    well("peer_access_with_display", "NCCL_P2P_DISABLE is set", env={"NCCL_P2P_DISABLE": "1"}, **display()),
    skips("peer_access_with_display", "cannot be read", **display(kernel=kernel(peer_options=None))),
    skips("peer_access_with_display", "no peer access over PCIe", **cards(p2p=4)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
