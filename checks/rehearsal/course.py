"""Did the script run, and do all ranks make the same steps?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Rehearsal, RehearsedRank
from mgpu.text import counted

from ._rehearsed import at, failed_in_exchange, pairs_of_optimizers, place, several_ranks, short, stepping_ranks

_STEPS = "https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html"
_SAME_RATE = 1e-6  # relative; a rate is computed in the same way everywhere
_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"


@check(
    Severity.ERROR,
    source="https://pytorch.org/docs/stable/elastic/errors.html",
    because_of=("file_not_kept", "collectives_differ", "rank_steps_differ"),
    same_as=("script_reads_before_written",),
)
def script_failed(rehearsal: Rehearsal) -> Answer:
    """The script stops with an error.

    Why: A launch would fail in the same way.

    Fix: Fix the error, then rehearse the script again.
    """
    if rehearsal.ended != "failed":
        return Ok("no error")
    rank = _first_failed(rehearsal)
    cause = rehearsal.cause
    message = cause.title if cause else rank.raised if rank else f"exit code {rehearsal.exit_code}"
    where = f" on rank {rank.rank}{at(rank.raised_line)}" if rank else ""
    log = (shell("mgpu doctor --log {:path}", rehearsal.log),) if rehearsal.log else ()
    raised = f"{rank.raised}. " if cause and rank and rank.raised and rank.raised not in cause.title else ""
    return Problem(
        f"the script fails{where}: {message}",
        f"{raised}{cause.why if cause else ''}{_values(rank)}".strip(),
        Fix(cause.fix if cause else "", log),
        {"rank": rank.rank if rank else None, "cause": cause.id if cause else None, "exit_code": rehearsal.exit_code},
        (f"rank {rank.rank}",) if rank else (),
        place(rank.raised_line) if rank else None,
    )


def _values(rank: RehearsedRank | None) -> str:
    """Say what the names on the failed line stood for."""
    if rank is None or not rank.values:
        return ""
    line = rank.values[0]
    named = "; ".join(f"{name} is {text}" for name, text in line.values.items())
    why = f" {line.place} raises it because {line.condition}." if line.condition else ""
    return f"{why} In {line.place}, {named}." if named else why


def _first_failed(rehearsal: Rehearsal) -> RehearsedRank | None:
    """Return a rank that failed by itself, else one that failed in an exchange with others."""
    failed = [rank for rank in rehearsal.ranks if rank.raised and not rank.raised_after_stop]
    return min(failed, key=failed_in_exchange, default=None)


def _last_line(rank: RehearsedRank) -> str | None:
    """Return the line at which a rank was stopped, else that of its last collective or step."""
    if rank.stopped_line:
        return rank.stopped_line
    if rank.calls:
        return rank.calls[-1].line
    return next((step.line for one in reversed(rank.optimizers) for step in reversed(one.steps)), None)


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=("file_not_kept", "script_failed", "collectives_differ", "rank_steps_differ", "batches_differ"),
)
def script_stalls(rehearsal: Rehearsal) -> Answer:
    """The script makes no progress anymore.

    Why: A rank that waits for another one in a collective waits forever if that one never calls it.

    Fix: Look at the last lines of each rank; every rank must reach the same collectives.
    """
    if rehearsal.ended != "stalled":
        return Ok("no stall")
    steps = rehearsal.steps
    when = f"after {counted(steps, 'optimizer step')}" if steps else "before its first optimizer step"
    texts = [f"rank {rank.rank}: {rank.steps} steps, at {short(_last_line(rank))}" for rank in rehearsal.ranks]
    listed = "; ".join(texts[:4])
    if (cause := rehearsal.cause) is not None:
        return Problem(
            f"the script makes no progress {when}: {cause.title}",
            f"{_sentence(cause.why)} {listed}.".strip(),
            Fix(cause.fix),
            {"rank": cause.rank, "steps": steps, "cause": cause.id},
            () if cause.rank is None else (f"rank {cause.rank}",),
            place(cause.line),
        )
    where = place(_last_line(rehearsal.ranks[0])) if rehearsal.ranks else None
    return Problem(
        f"the script makes no progress {when}: {listed}",
        evidence={"rank": None, "steps": steps},
        place=where,
    )


def _sentence(text: str) -> str:
    """End a text with a period: it may end with a line of the script."""
    return f"{text}." if text and text[-1] not in ".:!?" else text


@check(Severity.WARNING, source=_STEPS, because_of=("script_failed", "script_stalls"), tags=("not_examined",))
def script_never_stepped(rehearsal: Rehearsal) -> Answer:
    """No optimizer of torch made a step in the rehearsal.

    Why: Nothing is known about the training of this script. It may train only with other arguments, only after a long
    preparation, or with an optimizer that is not one of torch.

    Fix: Use arguments with which the script trains, or a longer --timeout.
    """
    silent = [rank for rank in rehearsal.ranks if not rank.steps]
    if rehearsal.ended in ("failed", "stalled", "interrupted"):
        return Skip("the script did not run to its last step")
    if rehearsal.ranks and len(silent) < len(rehearsal.ranks):
        return Ok(f"{rehearsal.steps} of {counted(rehearsal.wanted, 'step')}")
    why = f"within {rehearsal.limit_s:g} s" if rehearsal.ended == "timed_out" else "before the script ended"
    where = next((rank.stopped_line for rank in rehearsal.ranks if rank.stopped_line), None)
    evidence = {"rank": None, "ended": rehearsal.ended}
    return Problem(f"no rank made an optimizer step {why}{at(where)}", evidence=evidence, place=place(where))


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=("batches_differ", "collectives_differ"),
    same_as=("script_rank_skips_backward", "script_steps_on_one_rank"),
    given=several_ranks,
)
def rank_steps_differ(rehearsal: Rehearsal) -> Answer:
    """The optimizer steps more often on some ranks than on others.

    Why: The ranks then have different parameters, and a rank that makes more steps waits forever for the gradients of
    the others.

    Fix: Let all ranks make the same decision whether to step: exchange the condition first, for example with
    all_reduce.
    """
    if any(rank.joins_uneven for rank in rehearsal.ranks):
        return Skip("the script joins ranks with different numbers of batches (Join)")
    made = {rank.rank: min(rank.steps, rehearsal.wanted) for rank in rehearsal.ranks}
    most, least = max(made.values()), min(made.values())
    if rehearsal.ended not in ("stopped", "finished"):
        return _left_early(rehearsal)
    if most == least:
        return Ok("the same number on every rank") if most else Skip("no rank made a step")
    few = next(rank for rank in rehearsal.ranks if made[rank.rank] == least)
    line = next((step.line for one in few.optimizers for step in one.steps), None)
    if line is None:
        line = next(s.line for r in rehearsal.ranks for one in r.optimizers for s in one.steps)
    others = next(rank for rank in rehearsal.ranks if made[rank.rank] == most)
    return Problem(
        f"rank {few.rank} made {counted(least, 'optimizer step')}, rank {others.rank} made {most}{at(line)}",
        evidence={"rank": few.rank, **{f"rank_{number}": steps for number, steps in made.items()}},
        subjects=(f"rank {few.rank}",),
        place=place(line),
    )


def _left_early(rehearsal: Rehearsal) -> Answer:
    """Whether the script of a rank came to its end, and others then failed or waited in an exchange."""
    by_itself = [rank for rank in rehearsal.ranks if rank.raised and not failed_in_exchange(rank)]
    left = [rank for rank in rehearsal.ranks if rank.ended and not rank.reached and not rank.raised]
    others = [rank for rank in rehearsal.ranks if rank not in left]
    if rehearsal.ended not in ("failed", "stalled") or by_itself or not left or not others:
        return Skip("the script did not run to its last step")
    first, line = left[0], next((s.line for one in left[0].optimizers for s in reversed(one.steps)), None)
    return Problem(
        f"the script of rank {first.rank} ends after {counted(first.steps, 'optimizer step')}, and rank "
        f"{others[0].rank} goes on{at(line)}",
        evidence={"rank": first.rank, **{f"rank_{rank.rank}": rank.steps for rank in rehearsal.ranks}},
        subjects=(f"rank {first.rank}",),
        place=place(line),
    )


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/optim.html",
    because_of=("script_failed", "separate_trainings", "rank_steps_differ"),
    same_as=("script_steps_on_one_rank", "script_schedule_by_own_loss"),
    given=stepping_ranks,
)
def learning_rates_differ(rehearsal: Rehearsal) -> Answer:
    """The ranks make a step with different learning rates.

    Why: Equal gradients then change the parameters by different amounts, so the ranks train different models. A
    schedule that only some ranks step, or ReduceLROnPlateau with each rank's own loss, does this.

    Fix: Step the schedule on every rank, with a loss that is averaged over the ranks.
    """
    compared = 0
    for ranks, optimizers in pairs_of_optimizers(rehearsal):
        first = {step.number: step for step in optimizers[0].steps}
        for rank, optimizer in zip(ranks[1:], optimizers[1:], strict=True):
            for step in optimizer.steps:
                mine = first[step.number].rate if step.number in first else None
                if mine is None or step.rate is None:
                    continue
                compared += 1
                if abs(mine - step.rate) > _SAME_RATE * max(abs(mine), abs(step.rate)):
                    return Problem(
                        f"step {step.number} has the learning rate {mine:.6g} on rank {ranks[0].rank} and "
                        f"{step.rate:.6g} on rank {rank.rank}{at(step.line)}",
                        evidence={"rank": rank.rank, "step": step.number, "rate": step.rate, "other_rate": mine},
                        subjects=(f"rank {rank.rank}",),
                        place=place(step.line),
                    )
    return Ok("equal learning rates") if compared else Skip("no learning rate was seen on two ranks")
