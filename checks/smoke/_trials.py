"""What the checks on the search for a cause say in common: what made the failed rung work, and where it had failed."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Answer, Evidence, Fix, Ok, Skip
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks, Trial

from ._rank_states import killed_ranks, own_failures, rung

AS_CONFIGURED = "as configured"  # mgpu/smoke/trials.py, as the other words by which a trial is known


def cure(ranks: Ranks) -> Trial | None:
    """The change that makes the rung work: the last that worked, for it is the narrowest."""
    working = [trial for trial in ranks.trials if trial.ok and not trial.gpus and trial.change != AS_CONFIGURED]
    return working[-1] if working else None


def nothing_found(ranks: Ranks) -> Answer:
    """What a check answers where the search found another cause, or none."""
    if not ranks.trials:
        return Ok("nothing had to be searched for") if ranks.ended == "finished" else Skip("no cause was searched for")
    found = cure(ranks)
    return Ok(f"works {changed(found)}" if found is not None else f"not the cause in {len(ranks.trials)} tries")


def changed(trial: Trial) -> str:
    """A change as it stands after "works"."""
    return trial.change if trial.change.startswith("without ") else f"with {trial.change}"


def as_configured(ranks: Ranks) -> str:
    """How the same launch ended the second time."""
    again = ranks.trials[0]
    return f"As configured: {again.detail}." if again.change == AS_CONFIGURED and again.detail else ""


def where(ranks: Ranks) -> tuple[Rank | None, str]:
    """The rank that stands out, and the rung that failed."""
    open_ranks = [rank for rank in ranks.ranks if not rank.finished]
    behind = sorted(open_ranks, key=lambda rank: rank.last_word_order)
    first = next(iter([*own_failures(ranks), *killed_ranks(ranks), *behind]), None)
    reached = [rung(rank, ranks) for rank in ([first] if first is not None else ranks.ranks)]
    return first, min(reached, key=ranks.rungs.index, default=ranks.rungs[0])


def stood(ranks: Ranks) -> str:
    """Where the run failed, for a title."""
    rank, failed = where(ranks)
    return f"{failed}, rank {rank.rank}" if rank is not None else failed


def evidence(ranks: Ranks, trial: Trial | None) -> Evidence:
    """What a finding of the search rests on."""
    rank, failed = where(ranks)
    tried = {
        trial.change: {True: "works", False: trial.detail or "fails", None: "open"}[trial.ok] for trial in ranks.trials
    }
    price = {"busbw_gb_per_s": trial.busbw_gb_per_s} if trial is not None and trial.busbw_gb_per_s else {}
    return {"rank": rank.rank if rank is not None else None, "rung": failed} | tried | price


def stopgap(trial: Trial, caveat: str, text: str = "Until then") -> Fix:
    """The change itself, as commands that paste; what it costs where that was measured."""
    speed = trial.busbw_gb_per_s
    price = f"; all-reduce moves {speed:.3g} GB/s with it" if speed else ""
    commands = tuple(shell("export {:name}={}", name, value) for name, value in trial.environment.items() if value)
    return Fix(f"{text}:", commands, kind="stopgap", caveat=caveat + price)


def subjects(ranks: Ranks) -> tuple[str, ...]:
    """The rank that stands out."""
    rank, _ = where(ranks)
    return (f"rank {rank.rank}",) if rank is not None else ()


def islands(ranks: Ranks) -> list[list[int]]:
    """The GPUs, in groups within which every tried pair works; one group, where that tells nothing."""
    pairs = {trial.gpus: trial.ok for trial in ranks.trials if len(trial.gpus) == 2}
    groups = [{gpu} for gpu in sorted({gpu for pair in pairs for gpu in pair})]
    for (a, b), works in pairs.items():
        if works:
            both = [group for group in groups if {a, b} & group]
            groups = [group for group in groups if group not in both] + [set().union(*both)]
    inside = any(works is False and any({a, b} <= group for group in groups) for (a, b), works in pairs.items())
    return [] if inside or False not in pairs.values() else sorted(sorted(group) for group in groups)


def braces(groups: Sequence[Sequence[int]]) -> str:
    """[[0, 1], [2, 3]] -> "{0,1} and {2,3}"."""
    return " and ".join("{" + ",".join(map(str, group)) + "}" for group in groups)
