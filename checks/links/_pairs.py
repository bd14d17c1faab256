"""Which pairs of GPUs share the run, and what does the driver say of their peer access?"""

from __future__ import annotations

from mgpu.snapshot import Link, Visible

# nvmlGpuP2PStatus_t
P2P_OK, P2P_UNKNOWN = 0, 6


def refusal(link: Link) -> int | None:
    """Why the driver refuses peer access; None when it grants it, or does not tell."""
    refused = (status for status in (link.p2p_read, link.p2p_write) if status not in (None, P2P_OK, P2P_UNKNOWN))
    return next(refused, None)


def granted(link: Link) -> bool:
    """Whether the driver says yes to reading and to writing."""
    return (link.p2p_read, link.p2p_write) == (P2P_OK, P2P_OK)


def sharing(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """The links between GPUs the run would use."""
    return [link for link in links if link.a in visible.gpus and link.b in visible.gpus]
