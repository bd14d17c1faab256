"""Are the ranks one training run, and do they call the same collectives?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Call, Rehearsal, RehearsedRank
from mgpu.text import counted

from ._gradients import first_difference
from ._rehearsed import at, exchanges_otherwise, failed_in_exchange, place, several_ranks, short, stepping_ranks

_LAUNCH = "https://pytorch.org/docs/stable/elastic/run.html"
# What a stalled script's ranks do: all of them wait for each other, or one has come to its end.
_IN_COLLECTIVES = ("hang_collectives_differ", "hang_rank_behind", "hang_collective_stuck", "hang_rank_left")
_COLLECTIVES = "https://pytorch.org/docs/stable/distributed.html"


@check(
    Severity.ERROR,
    source=_LAUNCH,
    same_as=(
        "script_trains_alone",
        "script_group_without_wrapper",
        "script_nothing_prepared",
        "script_list_prepared",
        "script_group_of_one_rank",
        "script_model_not_prepared",
    ),
    given=stepping_ranks,
)
def separate_trainings(rehearsal: Rehearsal) -> Answer:
    """Each rank trains a model of its own.

    Why: The ranks exchange no gradients, so N GPUs do the work of one, N times, and the result is that of one rank.

    Fix: Let accelerator.prepare or DistributedDataParallel wrap the model. mgpu can make this change.
    """
    ranks = [rank for rank in rehearsal.ranks if rank.optimizers]
    line = next((one.line for rank in ranks for one in rank.optimizers if one.line), None)
    number = counted(len(ranks), "rank")
    if other := next((rank.other_library for rank in ranks if rank.other_library), None):
        return Skip(f"{other} exchanges data in its own way")
    if all((rank.world or 1) < 2 for rank in ranks):
        group = "a process group of one rank each" if any(rank.world for rank in ranks) else "no process group"
        return Problem(
            f"{number} train separately: they start {group}",
            fix=_port(rehearsal),
            evidence={"rank": None, "world": ranks[0].world, "launched": ranks[0].launched_world},
            place=place(line),
        )
    alone = [rank for rank in ranks if (rank.world or 1) < 2]
    if alone:
        return Problem(
            f"rank {alone[0].rank} trains separately: it has no process group with the others",
            fix=Fix("Start the process group on every rank: init_process_group, or Accelerator(), under no condition."),
            evidence={"rank": alone[0].rank, "world": alone[0].world},
            subjects=(f"rank {alone[0].rank}",),
            place=place(line),
        )
    if not any(rank.wrappers for rank in ranks) and (answer := _without_wrapper(rehearsal, ranks)) is not None:
        return answer
    kinds = list(dict.fromkeys(one.kind for rank in ranks for one in rank.wrappers))
    return Ok(f"{number} in one group ({ranks[0].backend}{', ' + ', '.join(kinds) if kinds else ''})")


def _without_wrapper(rehearsal: Rehearsal, ranks: list[RehearsedRank]) -> Answer | None:
    """Return whether ranks train separately that have a group, and no wrapped model; None if their gradients agree."""
    number = counted(len(ranks), "rank")
    if other_way := exchanges_otherwise(ranks):
        return Skip(other_way)
    if any(one.sharded for rank in ranks for one in rank.optimizers):
        return Ok(f"{number} in one group ({ranks[0].backend}), each with a part of the parameters")
    found = first_difference(rehearsal)
    if found is None:
        return None
    return Problem(
        f"{number} train separately: nothing wraps the model, and their gradients differ{at(found.line)}",
        fix=_port(rehearsal),
        evidence={"rank": None, "world": ranks[0].world},
        place=place(found.line),
    )


def _port(rehearsal: Rehearsal) -> tuple[Fix, ...]:
    by_hand = Fix("Let accelerator.prepare or DistributedDataParallel wrap the model.")
    if not rehearsal.script.endswith(".py"):
        return (by_hand,)
    command = shell("mgpu doctor --script {:path} --fix", rehearsal.script)
    return Fix("Let mgpu change the script. It shows the diff before it writes.", (command,)), by_hand


def _of_world(rank: RehearsedRank) -> list[Call]:
    return [call for call in rank.calls if call.ranks is None or call.ranks == rank.world]


def _counts_are_final(rehearsal: Rehearsal) -> bool:
    """Whether a rank with fewer collectives would not have called more.

    One that failed by itself, or that is stopped, or waits for something else than the other ranks, might have.
    """
    if rehearsal.ended == "stalled" and rehearsal.cause is not None:
        return rehearsal.cause.id in _IN_COLLECTIVES
    if rehearsal.ended != "failed":
        return rehearsal.ended not in ("timed_out", "interrupted")
    return all(failed_in_exchange(rank) if rank.raised else rank.ended or rank.inside_call for rank in rehearsal.ranks)


def _matched(call: Call) -> tuple[str, ...]:
    return call.name, call.shape, call.dtype, call.detail


def _describe(call: Call) -> str:
    data = f" of {call.shape} {call.dtype}" if call.shape else ""
    detail = f" with {call.detail}" if call.detail else ""
    return f"{call.name}{data}{detail}{at(call.line)}"


@check(
    Severity.ERROR,
    source=_COLLECTIVES,
    because_of=("batches_differ",),
    same_as=(
        "script_collective_on_one_rank",
        "script_collective_by_rank",
        "script_sends_from_every_rank",
        "script_wrapped_model_on_one_rank",
    ),
    given=several_ranks,
)
def collectives_differ(rehearsal: Rehearsal) -> Answer:
    """The ranks call different collectives, or with different shapes or types.

    Why: Collectives match by their order. A rank that calls another one, or none, leaves the others waiting, or makes
    them read its data as something else.

    Fix: Call the same collectives on every rank, in the same order, with tensors of one shape and type.
    """
    ranks = [rank for rank in rehearsal.ranks if (rank.world or 1) > 1]
    if len(ranks) < 2:
        return Skip("fewer than two ranks have a process group")
    first, calls = ranks[0], _of_world(ranks[0])
    for other in ranks[1:]:
        others = _of_world(other)
        for mine, its in zip(calls, others, strict=False):
            if _matched(mine) != _matched(its):
                return _problem(first, mine, other, f"rank {other.rank} calls {_describe(its)}")
        if len(calls) == len(others) or not _counts_are_final(rehearsal):
            continue
        more, fewer = (first, other) if len(calls) > len(others) else (other, first)
        extra = _of_world(more)[min(len(calls), len(others))]
        last = next((step.line for one in fewer.optimizers for step in reversed(one.steps)), None)
        return _problem(more, extra, fewer, f"rank {fewer.rank} does not{f', and is at {short(last)}' if last else ''}")
    if not calls and not rehearsal.steps:
        return Skip("the ranks made no optimizer step and called no collective")
    return Ok(f"{counted(len(calls), 'collective')} of the script in one order" if calls else "no explicit collectives")


def _problem(rank: RehearsedRank, call: Call, other: RehearsedRank, otherwise: str) -> Problem:
    return Problem(
        f"rank {rank.rank} calls {_describe(call)}, {otherwise}",
        evidence={"rank": rank.rank, "other": other.rank, "collective": call.name},
        subjects=(f"rank {rank.rank}", f"rank {other.rank}"),
        place=place(call.line),
    )
