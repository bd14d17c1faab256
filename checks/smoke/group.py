"""Do the ranks form the one world that the config asks for, each with a GPU of its own?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Ranks

from .._knowledge import counted
from ._ranks import TORCH, who

_ACCELERATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"


@check(Severity.ERROR, source=_ACCELERATE)
def ranks_not_of_one_world(ranks: Ranks) -> Answer:
    """The ranks do not form the world the config asks for.

    Why: accelerate starts every rank, finds no device to train on, and lets each train alone: world size 1 on every
    rank, each of them "main", exit code 0. Its own `accelerate test` calls that a success.

    Fix: see which GPUs torch sees in the ranks (`mgpu doctor`).
    """
    heard = [rank for rank in ranks.ranks if rank.world_size is not None]
    wrong = [
        r for r in heard if r.world_size != ranks.expected or r.accelerate_world_size not in (None, ranks.expected)
    ]
    if wrong:
        rank = wrong[0]
        told = {r.rank: r.accelerate_world_size if r.world_size == ranks.expected else r.world_size for r in wrong}
        return Problem(
            f"{counted(ranks.expected, 'rank')} wanted; {who(rank)} sees a world of {told[rank.rank]}",
            "Each rank would train for itself on the whole data, and write the same checkpoint.",
            Fix("See what torch sees.", ("mgpu doctor",)),
            {f"rank_{number}": world for number, world in told.items()},
            tuple(f"rank {r.rank}" for r in wrong),
        )
    if not heard:
        return Skip("no rank came as far as the process group")
    return Ok(f"{len(heard)} of {ranks.expected} ranks see a world of {ranks.expected}")


@check(Severity.ERROR, source=TORCH)
def ranks_share_a_gpu(ranks: Ranks) -> Answer:
    """Two ranks use the same GPU.

    Why: NCCL refuses two ranks on one GPU, or the two run at half speed and out of memory.

    Fix: one GPU for each rank: num_processes and CUDA_VISIBLE_DEVICES must fit.
    """
    users: dict[str, list[int]] = {}
    for rank in ranks.ranks:
        if rank.gpu_uuid:
            users.setdefault(rank.gpu_uuid, []).append(rank.rank)
    shared = {uuid: who for uuid, who in users.items() if len(who) > 1}
    if shared:
        uuid, who = next(iter(shared.items()))
        return Problem(
            f"ranks {', '.join(map(str, who))} all use {uuid}",
            "Each rank needs a GPU of its own.",
            Fix("Make num_processes the number of visible GPUs.", ("mgpu doctor -v",)),
            {gpu: len(members) for gpu, members in shared.items()},
            tuple(f"rank {number}" for number in who),
        )
    return Ok(f"{len(users)} GPUs, one rank each") if users else Skip("no rank is on a GPU with a known UUID")
