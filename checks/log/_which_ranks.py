"""Did an exception need a certain rank: does its line run only under a condition on the rank?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

# How code asks for its own rank: accelerate, torch, transformers, Lightning, the launcher's variables.
_RANK = re.compile(
    r"(?i)(?<![a-z_])(?:(?:local_|global_|node_|world_)?rank(?:_id)?|(?:local_)?process_index|"
    r"is_(?:local_|last_)?(?:main_|first_)?process(?:_zero)?|is_(?:world|local)_process_zero|is_global_zero|"
    r"get_(?:local_|global_)?rank|is_rank_zero|(?:is_)?(?:main|master)_(?:rank|process))(?![a-z])"
)


def rank_condition(one: UncaughtException) -> str:
    """Return the condition under which the line raises the exception, if it asks for the rank; "" if not, or unknown.

    A launch has recorded it, of another log the user's own source may have it.
    """
    held = [line.condition for line in one.recorded if line.condition]
    held += [part.code for part in one.defined if part.kind == "condition" and part.place == one.place]
    return next((text for text in held if _RANK.search(text)), "")


def only_on_ranks(one: UncaughtException) -> str:
    """Return what it means that only some ranks run the line; "" if that is not known."""
    if not rank_condition(one):
        return ""
    return (
        "Only this rank raised it, and the line depends on the rank: the other ranks do not reach it, or not at the "
        "same time. So this rank's data need not be the cause."
    )


def fix_on_one_rank(first: str, one: UncaughtException) -> Fix:
    """Return what to look at if one rank of several raised it; `first`: how the sentence begins."""
    if rank_condition(one):
        return Fix(f"{first}, and check why it depends on the rank.")
    return Fix(f"{first}, and inspect this rank's batch: print its index before the step.")


def skipped(ranks: tuple[int, ...]) -> list[int]:
    """Return the ranks that must exist, too, because ranks count from 0. A log of one node can begin with a higher one.

    Ranks that print nothing before they are stopped are not in the log.
    """
    lowest = 0 if ranks[0] == 1 else ranks[0]
    return sorted({*range(lowest, ranks[-1])} - {*ranks})
