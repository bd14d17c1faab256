"""Did the inputs of the first step with NaN have it already, so that the model and the learning rate are not the cause?

Only of a launch: its recorder looks at the inputs when a loss is NaN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.snapshot import Log
from mgpu.text import listed

from ._messages import exception_of

_NAN = re.compile(r"(?i)\bnans?\b|isnan|isfinite|(?:not|non)[- _]?finite")
_DATA = Fix(
    "Repair or leave out these samples where the data is read or computed, and look for them before the training.",
    ("assert torch.isfinite(x).all()",),
)


def with_nan_inputs(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return a problem about NaN with the inputs that had it; any other one as it is."""
    log: Log | None = facts.get("log")
    first = log.first_nan if log is not None and problem.place is not None else None
    if first is None or not first.inputs:
        return problem
    texts = [problem.title]
    if (one := exception_of(problem, facts)) is not None:
        texts += [one.message, one.own_code or "", *(line.condition or "" for line in one.recorded)]
    if not any(map(_NAN.search, texts)):
        return problem
    return replace(
        problem,
        cause=f"The {first.what} of rank {first.rank} was the first that is {first.value}, in step {first.step}, and "
        f"the inputs of that step have NaN already: {listed(first.inputs)}. {problem.cause}",
        fix=(_DATA, *problem.fixes),
    )
