"""Do the ranks train with the settings of the config: its strategy, precision and gradient accumulation?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted

from ._causes import LOST
from ._rank_states import (
    find_outliers,
    first_failure_of_kind,
    ok_beyond_quick,
    own_failures,
    rank_name,
    rank_names,
    ranks_that_passed,
    report_of,
)

_DDP_CLASS = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_AUTOCAST = "https://pytorch.org/docs/stable/amp.html"
_LOWER = {"bf16": "bfloat16", "fp16": "float16", "no": "float32"}  # mixed_precision -> the type of a layer's output
_NO_STEP = "no rank computed"


@check(Severity.ERROR, source=_AUTOCAST, because_of=LOST)
def precision_not_applied(ranks: Ranks) -> Answer:
    """A rank does not compute in the precision of the config.

    Why: mixed_precision has no effect there, or another one.
    More: A rank in fp32 instead of bf16 needs twice the memory for activations and trains several times slower; the
    losses look normal. Ranks of different precision average gradients of different accuracy. Read from the outputs
    of the layers in the training steps, and from accelerator.mixed_precision.

    Fix: Check the environment and the libraries of the rank for what changes the precision.
    """
    found = {rank.rank: wrong for rank in ranks.ranks if (wrong := _other_precision(rank, ranks))}
    observed = [rank for rank in ranks.ranks if rank.dtypes]
    reported = [rank for rank in ranks.ranks if rank.dtypes or rank.accelerate_precision]
    wanted = "fp32" if ranks.precision == "no" else ranks.precision
    if not found and not observed:
        return Skip("only the setting was read: the type of no layer's output was observed" if reported else _NO_STEP)
    if not found:
        return Ok(f"{wanted} on {counted(len(observed), 'rank')}")
    several = len(found) > 1
    names = rank_names(found)
    first = next(rank for rank in ranks.ranks if rank.rank in found)
    return Problem(
        f"train: {names} {'compute' if several else 'computes'} in {found[first.rank]}, but the config requires "
        f"{wanted}",
        fix=commands("env | grep -i -e mixed_precision -e autocast", report_of(first, ranks)),
        evidence={
            "rank": first.rank if len(found) < len(reported) or ranks.expected == 1 else None,
            "rung": "train",
            "wanted": ranks.precision,
            **{f"rank_{number}": text for number, text in found.items()},
        },
        subjects=tuple(f"rank {number}" for number in found),
    )


def _other_precision(rank: Rank, ranks: Ranks) -> str | None:
    """Return the precision a rank trains in if it is not that of the config."""
    # DeepSpeed's own file may set the precision, which the config then does not.
    from_file = ranks.strategy == "deepspeed" and ranks.precision == "no"
    setting = rank.accelerate_precision
    if setting is not None and setting != ranks.precision and not from_file:
        return f"{'fp32' if setting == 'no' else setting} (accelerator.mixed_precision)"
    wanted = "bfloat16" if ranks.precision == "fp8" else _LOWER.get(ranks.precision)
    types = {
        name: dtype
        for name, dtype in rank.dtypes.items()
        if dtype != wanted and not (name == "accelerate" and (from_file or ranks.precision == "fp8"))
    }
    return next((f"{dtype} ({name})" for name, dtype in types.items()), None)


@check(Severity.ERROR, source=_DDP_CLASS, because_of=LOST)
def gradient_accumulation_wrong(ranks: Ranks) -> Answer:
    """Gradients accumulated over micro-batches differ from those of the whole batch.

    Why: The optimizer would use different gradients than those of the batch in the config.
    More: With no_sync, each rank keeps its own gradients until the last micro-batch, when the sums are exchanged.
    Earlier exchanges cost time and count some samples twice; without any exchange the ranks diverge.

    Fix: Check which torch version the ranks import.
    More: Train without accumulation until the cause is found.
    """
    if (other := _other_accumulation(ranks)) is not None:
        return other
    rank = first_failure_of_kind(ranks, "accumulation_wrong")
    if rank is None:
        return ok_beyond_quick(ranks, "no_sync accumulates and exchanges gradients correctly")
    return Problem(
        f"train: gradient accumulation is wrong on {rank_name(rank)}: {rank.error}",
        fix=commands("mgpu doctor --only packages", report_of(rank, ranks)),
        evidence={"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference")},
        subjects=(f"rank {rank.rank}",),
    )


def _other_accumulation(ranks: Ranks) -> Problem | None:
    """Return the problem of ranks on which accelerate accumulates over another number of micro-batches, or None."""
    held = {rank.rank: str(count) for rank in ranks.ranks if (count := rank.accelerate_accumulation) is not None}
    odd, wanted = find_outliers(held), ranks.micro_steps
    if not odd and wanted is not None and ranks.accumulate > 1 and ranks.strategy != "deepspeed":
        odd = [number for number, count in held.items() if count != str(wanted)]
    if not odd:
        return None
    usual = next((count for number, count in held.items() if number not in odd), wanted)
    return Problem(
        f"train: {rank_names(odd)} {'accumulate' if len(odd) > 1 else 'accumulates'} gradients "
        f"over {counted(int(held[odd[0]]), 'micro-batch', 'micro-batches')} instead of {usual}",
        "A variable or a library changes accelerate's setting there.",
        Fix("Check the environment of the ranks.", ("env | grep ACCUMULATION",)),
        {"rank": odd[0] if len(odd) < len(held) else None, "rung": "train", **_by_rank(held)},
        tuple(f"rank {number}" for number in odd),
    )


def _by_rank(held: Mapping[int, str]) -> dict[str, str]:
    return {f"rank_{number}": value for number, value in held.items()}


def _unused_strategy(ranks: Ranks) -> Problem | None:
    """Return the problem of GPU ranks that passed the steps without using the config's strategy, or None."""
    proof = {"fsdp": "shard_bytes", "deepspeed": "prepared_difference"}.get(ranks.strategy)
    without = [rank for rank in ranks_that_passed(ranks, "train") if proof is not None and proof not in rank.measured]
    if ranks.cpu or not without or (ranks.strategy == "fsdp" and ranks.expected == 1):
        return None
    rank = without[0]
    why = next((text for text in rank.skipped if ranks.strategy.upper() in text.upper()), "no reason reported")
    return Problem(
        f"train: {rank_name(rank)} ran no step with {ranks.strategy}, which the config requires",
        f"The steps passed with another strategy ({why}).",
        Fix(
            "Check which torch, accelerate and DeepSpeed versions the ranks import.",
            ("mgpu doctor --only packages", report_of(rank, ranks)),
        ),
        {"rank": rank.rank, "rung": "train", "wanted": ranks.strategy, "found": None},
        tuple(f"rank {r.rank}" for r in without),
    )


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/usage_guides/fsdp", because_of=LOST)
def strategy_not_applied(ranks: Ranks) -> Answer:
    """The strategy that accelerate trains with differs from the config's.

    Why: The config's strategy settings have no effect.
    More: accelerate selects the strategy from the environment that the launcher sets, and silently falls back. Each
    rank then has the whole model, and runs out of memory with a batch that was planned for a shard.

    Fix: Check the config against the installed accelerate version.
    """
    rank = first_failure_of_kind(ranks, "strategy_not_applied")
    if rank is None:
        return _unused_strategy(ranks) or ok_beyond_quick(ranks, f"{ranks.strategy} as configured")
    wanted, found = rank.evidence.get("wanted"), rank.evidence.get("found")
    return Problem(
        f"train: the config requires {wanted}, but accelerate trains {rank_name(rank)} with {found}",
        fix=commands("mgpu configure --validate accelerate.yaml"),
        evidence={"rank": rank.rank, "rung": "train", "wanted": wanted, "found": found},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )
