"""Shared by the checks on the search for a cause: which change made the failed stage work, and where the run failed."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Answer, Evidence, Fix, Ok, Skip
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks, Trial
from mgpu.text import counted

from ._rank_states import killed_ranks, own_failures, stage_of

AS_CONFIGURED = "as configured"  # mgpu/smoke/trials.py, like the other names of trials


def working_change(ranks: Ranks) -> Trial | None:
    """Return the change that makes the stage work: the last that worked, which is the narrowest."""
    working = [trial for trial in ranks.trials if trial.ok and not trial.gpus and trial.change != AS_CONFIGURED]
    return working[-1] if working else None


def other_cause(ranks: Ranks) -> Answer:
    """Return the answer of a check if the search found another cause, or none."""
    if not ranks.trials:
        return Ok("the run finished, no search needed") if ranks.ended == "finished" else Skip("no search was run")
    found = working_change(ranks)
    tried = counted(len(ranks.trials), "trial")
    return Ok(f"works {describe_change(found)}" if found is not None else f"not the cause in {tried}")


def describe_change(trial: Trial) -> str:
    """Return a change in the form that follows "works"."""
    return trial.change if trial.change.startswith("without ") else f"with {trial.change}"


def repeated_result(ranks: Ranks) -> str:
    """Return how the launch ended when it was repeated unchanged; "" if unknown."""
    again = ranks.trials[0]
    return f"Repeated as configured: {again.detail}." if again.change == AS_CONFIGURED and again.detail else ""


def failing_rank_and_stage(ranks: Ranks) -> tuple[Rank | None, str]:
    """Return the rank that failed first or is farthest behind, if any, and the stage that failed."""
    open_ranks = [rank for rank in ranks.ranks if not rank.finished]
    behind = sorted(open_ranks, key=lambda rank: rank.last_word_order)
    first = next(iter([*own_failures(ranks), *killed_ranks(ranks), *behind]), None)
    reached = [stage_of(rank, ranks) for rank in ([first] if first is not None else ranks.ranks)]
    return first, min(reached, key=ranks.rungs.index, default=ranks.rungs[0])


def failed_at(ranks: Ranks) -> str:
    """Return where the run failed, for a title: "stage train, rank 1"."""
    rank, failed = failing_rank_and_stage(ranks)
    return f"stage {failed}, rank {rank.rank}" if rank is not None else f"stage {failed}"


def evidence(ranks: Ranks, trial: Trial | None) -> Evidence:
    """Return the evidence for a finding of the search: the result of every trial."""
    rank, failed = failing_rank_and_stage(ranks)
    tried = {
        trial.change: {True: "works", False: trial.detail or "fails", None: "open"}[trial.ok] for trial in ranks.trials
    }
    price = {"busbw_gb_per_s": trial.busbw_gb_per_s} if trial is not None and trial.busbw_gb_per_s else {}
    return {"rank": rank.rank if rank is not None else None, "rung": failed} | tried | price


def stopgap(trial: Trial, caveat: str, text: str = "Until then") -> Fix:
    """Return the change itself as commands, with its measured cost if known."""
    speed = trial.busbw_gb_per_s
    price = f"; all-reduce reaches {speed:.3g} GB/s with it" if speed else ""
    commands = tuple(shell("export {:name}={}", name, value) for name, value in trial.environment.items() if value)
    return Fix(f"{text}:", commands, kind="stopgap", caveat=caveat + price)


def subjects(ranks: Ranks) -> tuple[str, ...]:
    """Return the rank that failed first or is farthest behind."""
    rank, _ = failing_rank_and_stage(ranks)
    return (f"rank {rank.rank}",) if rank is not None else ()


def working_groups(ranks: Ranks) -> list[list[int]]:
    """Return groups of GPUs within which every tested pair works; none if the pairs do not form groups."""
    pairs = {trial.gpus: trial.ok for trial in ranks.trials if len(trial.gpus) == 2}
    groups = [{gpu} for gpu in sorted({gpu for pair in pairs for gpu in pair})]
    for (a, b), works in pairs.items():
        if works:
            both = [group for group in groups if {a, b} & group]
            groups = [group for group in groups if group not in both] + [set().union(*both)]
    inside = any(works is False and any({a, b} <= group for group in groups) for (a, b), works in pairs.items())
    return [] if inside or False not in pairs.values() else sorted(sorted(group) for group in groups)


def format_groups(groups: Sequence[Sequence[int]]) -> str:
    """[[0, 1], [2, 3]] -> "{0,1} and {2,3}"."""
    return " and ".join("{" + ",".join(map(str, group)) + "}" for group in groups)
