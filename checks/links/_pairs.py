"""Which pairs of GPUs are in the run, and which peer access does the driver report for them?"""

from __future__ import annotations

from mgpu.snapshot import Link, Visible

# nvmlGpuP2PStatus_t
P2P_OK, P2P_UNKNOWN = 0, 6


def refusal_code(link: Link) -> int | None:
    """Return the status code with which the driver refuses peer access; None if it grants it or reports nothing."""
    refused = (status for status in (link.p2p_read, link.p2p_write) if status not in (None, P2P_OK, P2P_UNKNOWN))
    return next(refused, None)


def has_peer_access(link: Link) -> bool:
    """Whether the driver grants both reading and writing."""
    return (link.p2p_read, link.p2p_write) == (P2P_OK, P2P_OK)


def links_in_use(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """Return the links between the GPUs that the run uses."""
    return [link for link in links if link.a in visible.gpus and link.b in visible.gpus]
