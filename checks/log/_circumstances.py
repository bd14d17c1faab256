"""When does a case of a row apply? Conditions on the traceback, and on what else the log shows of the run."""

from __future__ import annotations

import re

from mgpu.signature import Applies
from mgpu.snapshot import Log, UncaughtException


def within(frames: str) -> Applies:
    """The exception passed through a frame that matches: "trl/trainer/sft_trainer.py in compute_loss"."""
    searched = re.compile(frames)
    return lambda log, raised: raised is not None and any(map(searched.search, raised.frames))


def source_line(pattern: str) -> Applies:
    """The line of code that raised the exception matches."""
    searched = re.compile(pattern)
    return lambda log, raised: raised is not None and bool(searched.search(raised.code or ""))


def message(pattern: str) -> Applies:
    """The message of the exception matches."""
    searched = re.compile(pattern)
    return lambda log, raised: raised is not None and bool(searched.search(raised.message))


def shown(*names: str) -> Applies:
    """The log shows all of these circumstances (rows of circumstances.py), anywhere."""
    return lambda log, raised: {one.name for one in log.shows}.issuperset(names)


def beside(signature: str) -> Applies:
    """The log also has a line of this row of a failure."""
    return lambda log, raised: any(one.signature == signature for one in log.seen)


def alone(kind: str) -> Applies:
    """One rank still did this (`LoneWork.kind`) while the others waited."""
    return lambda log, raised: log.lone_work is not None and log.lone_work.kind == kind


def every(*conditions: Applies) -> Applies:
    return lambda log, raised: all(condition(log, raised) for condition in conditions)


def either(*conditions: Applies) -> Applies:
    return lambda log, raised: any(condition(log, raised) for condition in conditions)


def never(condition: Applies) -> Applies:
    return lambda log, raised: not condition(log, raised)


def of_rank_zero(log: Log, raised: UncaughtException | None) -> bool:
    """Only rank 0 raised the exception."""
    return raised is not None and raised.ranks == (0,)
