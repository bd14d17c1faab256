"""Rung "pairs": does every two ranks' way to each other work?"""

from __future__ import annotations

from .here import Here


def climb(here: Here) -> str:
    """Every pair of ranks alone."""
    return "no pairs with one rank" if here.world == 1 else "not yet"
