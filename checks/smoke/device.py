"""Does every GPU compute, and all of them the same?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Ranks

from .._knowledge import listed
from ._ranks import odd_ones


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/randomness.html")
def ranks_compute_differently(ranks: Ranks) -> Answer:
    """The same computation gives other bits on one rank.

    Why: equal GPUs with equal libraries agree bit for bit; one that does not computes wrongly, or is another model.

    Fix: compare the GPUs; when they are equal, suspect the odd one.
    """
    found = {rank.rank: rank.computed for rank in ranks.ranks if rank.computed}
    if len(found) < 2:
        return Skip("fewer than two ranks computed")
    if len(set(found.values())) == 1:
        return Ok(f"the same bits on {len(found)} ranks")
    odd = odd_ones(found)
    return Problem(
        f"{'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'computes' if len(odd) == 1 else 'compute'} "
        "other bits than the rest"
        if odd
        else f"ranks {listed(found)} compute different bits",
        "On GPUs of one model the same kernels give the same bits.",
        Fix("Are the GPUs of one model?", ("nvidia-smi -L",)),
        {f"rank_{number}": digest for number, digest in found.items()},
        tuple(f"rank {number}" for number in odd or found),
    )
