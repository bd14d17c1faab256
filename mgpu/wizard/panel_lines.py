"""Which lines do the panels of several questions share? Made from a proposal; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mgpu.wizard.proposal_types import Proposal, Setting

NARROW: Final = 60  # below this there are no columns


def setting_line(setting: Setting) -> str:
    """A row of the review as one line, with its reason."""
    return f"{setting.label}: {setting.text}" + (f" ({setting.reason})" if setting.reason else "")


def problems(name: str, proposal: Proposal) -> list[str]:
    """What makes the answers impossible; an address is asked for in its turn, that it is missing is no news."""
    return [f"Not possible: {text}" for text in proposal.problems if name == "nodes" or "--address" not in text]
