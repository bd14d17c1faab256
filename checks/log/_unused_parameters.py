"""Which parameters got no gradient, by the indices or the names that DDP lists in its message?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import counted

# c10/d's reducer.cpp: positions, or with TORCH_DISTRIBUTED_DEBUG=DETAIL names. It cuts the list of positions.
_INDICES = re.compile(r"which did not receive grad for rank (?P<rank>\d+):(?P<list>(?: \d+)+)(?P<more> ?\.\.\.)?")
_NAMES = re.compile(
    r"which did not receive grad for rank (?P<rank>\d+): (?P<list>[A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*)"
)
_RANGES = 3
_MODULES = 4
TITLE = "the model has parameters that get no gradient in a step, and DDP waits for them"
WHY = "A layer is not used for this input, or the loss ignores an output."
# fmt: off
FIX = Fix("Freeze or remove the unused parameters, or let DDP search for them.",
          ("DistributedDataParallel(model, find_unused_parameters=True)",
           "DistributedDataParallelKwargs(find_unused_parameters=True)  # with accelerate",
           "TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch train.py"))
# fmt: on


def explain_unused(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the parameters that the message lists; None if it lists none."""
    if raised is None:
        return None
    text = " ".join(f"{raised.message} {raised.more or ''}".split())
    if found := _NAMES.search(text):
        names = found["list"].split(", ")
        modules = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
        shown = ", ".join(modules[:_MODULES]) + (" and others" if len(modules) > _MODULES else "")
        return Meaning(f"{TITLE}: those of {shown}", f"{WHY} {_step(found['rank'])}", (FIX,))
    if found := _INDICES.search(text):
        return _of_positions([int(one) for one in found["list"].split()], found["rank"], cut=bool(found["more"]))
    return None


def _step(rank: str) -> str:
    return f"Rank {rank} reports it at the start of the next step: the one before it left them without a gradient."


def _of_positions(positions: list[int], rank: str, *, cut: bool) -> Meaning:
    """Explain a list of positions: DDP counts the parameters that require a gradient, in the model's order."""
    ranges: list[tuple[int, int]] = []
    for one in positions:
        if ranges and one == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], one
        else:
            ranges.append((one, one))
    shown = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges[:_RANGES])
    many = f"{'at least ' if cut else ''}{counted(len(positions), 'parameter')}"
    names = python(
        "print([n for n, p in model.named_parameters() if p.requires_grad][{:number}:{:number}])",
        ranges[0][0],
        ranges[0][1] + 1,
    )
    return Meaning(
        f"{TITLE}: {many} (positions {shown}{', ...' if len(ranges) > _RANGES else ''})",
        f"{WHY} {_step(rank)} The positions count the parameters that require a gradient, from 0, in the order of "
        "model.named_parameters().",
        (
            Fix("Print their names: of modules that are not used, or were meant to be frozen.", (names,)),
            FIX,
        ),
    )
