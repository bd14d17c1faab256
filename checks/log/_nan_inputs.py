"""Did the inputs of the first step with NaN have it already, so that the model and the learning rate are not the cause?

Only of a launch: its recorder looks at the inputs when a loss is NaN.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.check import Fix, Problem
from mgpu.snapshot import Log
from mgpu.text import listed

_NAN = re.compile(r"(?i)\bnans?\b|isnan|isfinite|(?:not|non)[- _]?finite")
_DATA = Fix(
    "Repair or leave out these samples where the data is read or computed, and look for them before the training.",
    ("assert torch.isfinite(x).all()",),
)


def with_nan_inputs(problem: Problem, log: Log) -> Problem:
    """Return a problem about NaN with the inputs that had it; any other one as it is."""
    first, place = log.first_nan, problem.place
    if first is None or not first.inputs or place is None:
        return problem
    raised = [one for one in log.raised if (one.file, one.line) == (place.file, place.line)]
    texts = [problem.title, *(text for one in raised for text in (one.message, one.own_code or ""))]
    conditions = [line.condition or "" for one in raised for line in one.recorded]
    if not any(_NAN.search(text) for text in (*texts, *conditions)):
        return problem
    return replace(
        problem,
        cause=f"The {first.what} of rank {first.rank} was the first that is {first.value}, in step {first.step}, and "
        f"the inputs of that step have NaN already: {listed(first.inputs)}. {problem.cause}",
        fix=(_DATA, *problem.fixes),
    )
