"""What does a log show of the exception during whose handling another one was raised?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from mgpu.readers.log.open_message import OpenMessage
from mgpu.snapshot import HandledException, UncaughtException


def after(first: OpenMessage, found: UncaughtException, facts: Iterable[str], *, direct: bool) -> UncaughtException:
    """Return an exception with what is known of the one that its chain began with."""
    found = _where_it_began(first.found, found, facts, direct=direct)
    whole = first.whole()
    handled = HandledException(**{one.name: getattr(whole, one.name) for one in fields(HandledException)})
    return found if direct else replace(found, began=whole.began or handled)


def _where_it_began(
    first: UncaughtException, found: UncaughtException, facts: Iterable[str], *, direct: bool
) -> UncaughtException:
    """Return an exception with the frames of the first one of its chain, if it only is the same again.

    CUDA reports its errors again, and a pool of processes raises the exception of a worker again: that of the script's
    own code.
    """
    same = (first.type, first.message) == (found.type, found.message)
    if not same or not (found.message.startswith("CUDA error: ") or (direct and "" in first.packages)):
        return found
    return replace(found, **{name: getattr(first, name) for name in (*facts, "place", "loader")})
