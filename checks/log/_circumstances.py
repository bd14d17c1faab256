"""When does a case of a row apply? Conditions on the traceback, and on what else the log shows of the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mgpu.one_node import only_node
from mgpu.signature import Applies
from mgpu.snapshot import Log, SignatureMatch, UncaughtException

# Rows of a rank that waited for another one until a timeout, after the ranks had found each other.
_WAITED = ("log_collective_timed_out", "log_gloo_timed_out", "log_rank_missed_barrier", "log_timeout_line_cut")
_CLOSE = 60  # lines


class _Pattern:
    """A pattern that is compiled when it is first searched: a log needs few of the hundreds that the cases have."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._compiled: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        if self._compiled is None:
            self._compiled = re.compile(self._text)
        return self._compiled.search(text)


def within(frames: str) -> Applies:
    """The exception passed through a frame that matches: "trl/trainer/sft_trainer.py in compute_loss"."""
    searched = _Pattern(frames)
    return lambda log, raised: raised is not None and any(map(searched.search, raised.frames))


def ends_within(frames: str, last: int) -> Applies:
    """One of the exception's last frames matches, torch's calls of modules not counted."""
    searched = _Pattern(frames)

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        passed = [one for one in (raised.frames if raised else ()) if not one.startswith("torch/nn/modules/module.py")]
        return any(map(searched.search, passed[-last:]))

    return applies


def passed(frames: str) -> Applies:
    """Some exception of the log passed through a frame that matches: this one, or one that reports it."""
    searched = _Pattern(frames)
    return lambda log, raised: any(searched.search(frame) for one in log.raised for frame in one.frames)


def raised_in(frame: str) -> Applies:
    """The deepest frame outside of Python itself matches."""
    searched = _Pattern(frame)
    return lambda log, raised: raised is not None and bool(searched.search(raised.raised_in or ""))


def source_line(pattern: str) -> Applies:
    """The line of code that raised the exception matches."""
    searched = _Pattern(pattern)
    return lambda log, raised: raised is not None and bool(searched.search(raised.code or ""))


def own_line(pattern: str) -> Applies:
    """The line of the script's own code that called what raised the exception matches."""
    searched = _Pattern(pattern)
    return lambda log, raised: raised is not None and bool(searched.search(raised.own_code or ""))


def said(pattern: str) -> Applies:
    """The exception's message matches, or a line that says why it failed. Without an exception: any such line."""
    searched = _Pattern(pattern)

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        lines = [one.text for one in log.seen if raised is None or one.signature in raised.signatures]
        of_message = [] if raised is None else [raised.message, raised.more or ""]
        return any(map(searched.search, (*of_message, *lines)))

    return applies


def message(pattern: str) -> Applies:
    """The message of the exception matches."""
    searched = _Pattern(pattern)
    return lambda log, raised: raised is not None and bool(searched.search(raised.message))


def counts(pattern: str, test: Callable[[Sequence[str]], bool]) -> Applies:
    """The whole message of the exception, or of a known line, has this pattern, and its groups pass the test."""
    searched = _Pattern(pattern)

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        texts = [one.text for one in log.seen]
        if raised is not None:
            texts.append(" ".join(filter(None, (raised.message, raised.more))))
        return any(test([group or "" for group in found.groups()]) for found in map(searched.search, texts) if found)

    return applies


def printed(pattern: str) -> Applies:
    """The program printed a line of values near the exception that matches (`UncaughtException.printed`)."""
    searched = _Pattern(pattern)
    return lambda log, raised: raised is not None and any(map(searched.search, raised.printed))


def called(pattern: str) -> Applies:
    """One of the lines of code that the exception passed through matches."""
    searched = _Pattern(pattern)
    return lambda log, raised: raised is not None and any(searched.search(one.code or "") for one in raised.calls)


def in_own_line(log: Log, raised: UncaughtException | None) -> bool:
    """Whether an operation of torch failed in the script's own line: no layer, and no function of another package."""
    calls = raised.calls if raised is not None else ()
    if len(calls) > 1 and calls[-1].place.startswith("torch/functional.py:"):
        calls = calls[:-1]  # einsum and others that torch has in Python
    return bool(calls) and not calls[-1].package


def stacked(function: str) -> Applies:
    """A printed stack of a thread has a function that matches: "load_library (_ops.py:1487)"."""
    searched = _Pattern(function)
    return lambda log, raised: any(searched.search(one) for stack in log.stacks for one in stack.functions)


def shown(*names: str) -> Applies:
    """The log shows all of these circumstances (rows of circumstances.py), anywhere."""
    return lambda log, raised: {one.name for one in log.shows}.issuperset(names)


def reported(pattern: str) -> Applies:
    """A line of the log that a row of a failure matches also matches this."""
    searched = _Pattern(pattern)
    return lambda log, raised: any(searched.search(one.text) for one in log.seen)


def line_of(signature: str, pattern: str) -> Applies:
    """The line that the log has of this row of a failure matches."""
    searched = _Pattern(pattern)
    return lambda log, raised: any(one.signature == signature and bool(searched.search(one.text)) for one in log.seen)


def from_several_ranks(signature: str) -> Applies:
    """Several ranks printed the lines of this row."""
    return lambda log, raised: any(one.signature == signature and len(one.ranks) > 1 for one in log.seen)


def last_did(*kinds: str) -> Applies:
    """The output showed this work last before a process was killed (`Log.last_work`). Training includes evaluations."""
    wanted = (*kinds, "evaluated") if "train" in kinds else kinds
    return lambda log, raised: log.last_work in wanted


def before_wait(name: str) -> Applies:
    """The log shows this circumstance among the last lines before the first rank had waited without success."""
    return lambda log, raised: any(
        one.name == name and wait.file == one.file and wait.line - _CLOSE < one.last
        for wait in waits(log)[:1]
        for one in log.shows
    )


def since_last_step(name: str) -> Applies:
    """The log shows this circumstance after the last step of the training."""

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        step = log.last_step
        later = (one for one in log.shows if one.name == name)
        done = step is None or (step.of is not None and step.at >= step.of)
        return any(done or (step is not None and one.file == step.file and one.last > step.line) for one in later)

    return applies


def counted(inner: bool) -> Applies:
    """The last counter before the timeout was a bar within the training (an evaluation), or was not."""
    return lambda log, raised: log.last_step is not None and log.last_step.inner == inner


def several_ranks(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the log shows another rank than rank 0, or a launcher of ranks."""
    launched = re.compile(
        r"local_rank|\btorchrun\b|\baccelerate\b|\bdeepspeed\b|\bmpirun\b|\bsrun\b|torch\.distributed"
    )
    return any(rank > 0 for rank in log.ranks) or bool(log.fallen) or any(launched.search(one.text) for one in log.seen)


def in_own_code(log: Log, raised: UncaughtException | None) -> bool:
    """A line of the user's own raised it, not one of a package that it called."""
    return raised is not None and raised.raised_in_own_code


def raised_alone(log: Log, raised: UncaughtException | None) -> bool:
    """Whether one process raised the exception, once: no rank's prefix, and no launcher reports a rank that failed."""
    if raised is None or raised.times > 1 or raised.ranks:
        return False
    return not log.fallen and not any(one.of_launcher for one in log.raised)


def on_one_node(signature: str) -> Applies:
    """All ranks of one node printed the lines of this row, and those of the other nodes were killed without it."""

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        return any(only_node(log, one.ranks) for one in log.seen if one.signature == signature)

    return applies


def waits(log: Log) -> list[SignatureMatch]:
    """Return the lines in which ranks report that they waited without success, if the run did not survive it."""
    return [one for one in log.seen if one.signature in _WAITED and not one.survived]


def every(*conditions: Applies) -> Applies:
    """All of these conditions apply."""
    return lambda log, raised: all(condition(log, raised) for condition in conditions)


def either(*conditions: Applies) -> Applies:
    """One of these conditions applies."""
    return lambda log, raised: any(condition(log, raised) for condition in conditions)


def never(condition: Applies) -> Applies:
    """The condition does not apply."""
    return lambda log, raised: not condition(log, raised)


def innermost(*packages: str) -> Applies:
    """The deepest frame outside of torch, Python and the user's files is in one of these packages."""

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        called = [one for one in (raised.packages if raised else ()) if one not in ("torch", "")]
        return bool(called) and called[-1] in packages

    return applies


def through(*packages: str) -> Applies:
    """One of the exception's frames is in one of these packages."""
    return lambda log, raised: raised is not None and not set(packages).isdisjoint(raised.packages)
