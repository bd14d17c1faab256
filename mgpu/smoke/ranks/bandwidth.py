"""Rung "bandwidth": how fast do the ranks talk, and what do more of them bring?"""

from __future__ import annotations

from .here import Here


def climb(here: Here) -> str:
    """Time collectives and steps."""
    return "not yet"
