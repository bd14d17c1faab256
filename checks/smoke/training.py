"""Do the ranks train one model?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Ranks

from .._knowledge import listed
from ._ranks import odd_ones


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/notes/ddp.html", because_of=("rank_failed",))
def parameters_differ_between_ranks(ranks: Ranks) -> Answer:
    """After the same training steps the ranks hold different parameters.

    Why: DDP keeps the copies equal by averaging gradients; when they differ, the ranks drift apart and train different
    models. Something between the GPUs loses or alters data.

    Fix: a fault of the transport or of a GPU: run the test on pairs of GPUs.
    """
    held = {rank.rank: rank.parameters for rank in ranks.ranks if rank.parameters}
    if len(held) < 2:
        return Skip("fewer than two ranks trained")
    if len(set(held.values())) == 1:
        return Ok(f"equal bit for bit on {len(held)} ranks")
    odd = odd_ones(held)
    return Problem(
        f"{'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'holds' if len(odd) == 1 else 'hold'} "
        "other parameters than the rest"
        if odd
        else f"ranks {listed(held)} hold different parameters",
        "The copies of the model have drifted apart.",
        Fix("Test pairs of GPUs to find the one that is at fault.", ("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test",)),
        {f"rank_{number}": digest for number, digest in held.items()},
        tuple(f"rank {number}" for number in odd or held),
    )
