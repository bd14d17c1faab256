"""Which lines do the panels of several questions share? Built from a proposal; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mgpu.wizard.proposal_types import Proposal, Setting

OFFLOAD_NOTE: Final = "Offloading slows every step down."  # the beginning of a note that also goes to panels
NARROW: Final = 60  # below this there are no columns


def setting_line(setting: Setting) -> str:
    """Return a row of the review as one line, with its reason."""
    return f"{setting.label}: {setting.text}" + (f" ({setting.reason})" if setting.reason else "")


def problems(name: str, proposal: Proposal) -> list[str]:
    """Return what makes the answers impossible, except a missing address, which a later question asks for."""
    return [f"Problem: {text}" for text in proposal.problems if name == "nodes" or "--address" not in text]
