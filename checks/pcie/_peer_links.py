"""Pairs of GPUs that use peer access over PCIe, and when NCCL does."""

from __future__ import annotations

from mgpu.snapshot import Link, Visible

_P2P_OK = 0  # nvmlGpuP2PStatus_t


def pcie_peer_links(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """Return the pairs of the run that can access each other's memory, but not over NVLink."""
    return [
        link
        for link in links
        if {link.a, link.b} <= set(visible.gpus)
        and link.nvlinks == 0
        and (link.p2p_read, link.p2p_write) == (_P2P_OK, _P2P_OK)
    ]
