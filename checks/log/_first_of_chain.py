"""Which exception was handled when another one was raised, and what does it mean?"""

from __future__ import annotations

from dataclasses import fields, replace

from mgpu.check import Fix
from mgpu.snapshot import HandledException, Log, UncaughtException

from . import _own_values as own_values
from ._messages import short_name
from ._own_objects import Meaning

_MOST = 300  # characters of a message
# Exceptions that programs expect and handle as a part of their normal course.
# fmt: off
_EXPECTED = frozenset({
    "KeyError", "IndexError", "AttributeError", "StopIteration", "ImportError", "ModuleNotFoundError",
    "FileNotFoundError", "Empty", "TimeoutError", "KeyboardInterrupt", "CancelledError",
})
# fmt: on


def in_handler(one: UncaughtException) -> str | None:
    """Return the exception during whose handling this one was raised, unless programs expect one of that type."""
    if one.cause and one.message and one.message in one.cause:
        return None  # raised again, in the same words
    if not one.cause or one.direct or short_name(one.cause.partition(":")[0]) in _EXPECTED:
        return None
    return one.cause


def _first(one: UncaughtException) -> UncaughtException | None:
    if one.began is None or not (one.cause or "").startswith(f"{one.began.type}: {one.began.message}"[:60]):
        return None
    known = {name.name: getattr(one.began, name.name) for name in fields(HandledException)}
    return replace(one, **known, cause=None, began=None, says_more=None)


def handled_exception(one: UncaughtException, log: Log, handled: str) -> tuple[str, Meaning | None]:
    """Return the text of the first exception, with the lines that complete its message, and what it means."""
    first = _first(one)
    if first is None:
        return handled, None
    whole = f"{first.type}: {first.message}".rstrip(": ")
    return whole if len(handled) < len(whole) < _MOST else handled, own_values.explain_in(log, first)


def what_to_do(one: UncaughtException) -> tuple[Fix, ...]:
    """Return how to get from the second exception to the first."""
    start = Fix("Start with the first exception, and its traceback above the second.")
    if one.packages[-1:] not in ((), ("",)):
        return (start,)  # the handler is in a package
    return start, Fix("Let the script raise it: without that try block, the log ends with the real error.")
