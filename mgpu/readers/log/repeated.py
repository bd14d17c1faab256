"""Which occurrence of a message does a report quote, and what do all of them show together?

The first one: the ranks repeat what the first of them reports. If the run went on in between, the later one is another
failure, perhaps of a run that was appended to the same file. Then it is the first one since these steps.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.readers.log.course import Course
from mgpu.readers.log.gathered import Gathered
from mgpu.readers.log.same_exception import joined
from mgpu.readers.log.survival import key_of
from mgpu.snapshot import Log, SignatureMatch, UncaughtException

_STEPS = 10  # the other ranks of a failed rank advance a few, until they wait for it
_CODE = re.compile(r"(?:raise|assert) \w|f[\"']")  # as tracebacks show it, with {names} instead of values


def add_match(found: Gathered, course: Course, new: SignatureMatch, before: int, last: int) -> None:
    """Add a matching line of a file; `before`: lines of earlier parts, `last`: the line of the match before it."""
    name = new.signature
    old = found.seen.get(name)
    if old is None:
        found.seen[name] = new
        return
    if old.file == new.file and course.steps_between(last, before + new.line) >= _STEPS:
        found.again[name] = new
    quotes_code = bool(_CODE.match(old.text)) and not _CODE.match(new.text)
    first = new if quotes_code or (new.at and old.at and new.at < old.at) else old
    together = tuple(sorted({*old.ranks, *new.ranks}))
    found.seen[name] = replace(first, times=old.times + 1, ranks=together)


def add_exception(found: Gathered, course: Course, new: UncaughtException, before: int, last: int) -> None:
    """Add an exception of a file; the arguments are as in `add_match`."""
    key = key_of(new)
    old = found.raised.get(key)
    if old is None:
        found.raised[key] = new
        return
    if old.file == new.file and course.steps_between(last, before + new.line) >= _STEPS:
        found.raised_again[key] = new
    found.raised[key] = joined(old, new)


def with_last_failures(log: Log, found: Gathered) -> Log:
    """Return the log with the occurrences that are after the run last went on, instead of the first ones."""
    return replace(
        log,
        seen=tuple(_with_place(one, found.again.get(one.signature)) for one in log.seen),
        raised=tuple(_with_traceback(one, found.raised_again.get(key_of(one))) for one in log.raised),
    )


def _with_place(one: SignatureMatch, again: SignatureMatch | None) -> SignatureMatch:
    if again is None or one.survived:
        return one
    return replace(again, times=one.times, ranks=one.ranks)


def _with_traceback(one: UncaughtException, again: UncaughtException | None) -> UncaughtException:
    if again is None or one.caught:
        return one
    return replace(again, times=one.times, ranks=one.ranks, after=one.after, signatures=one.signatures)
