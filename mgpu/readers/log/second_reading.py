"""What does the end of a log show that its lines one by one do not?

Which row does a message match that a person wrapped, cut or typed when they pasted it? Which other line has the message
of an exception, and more?

Only logs in which nothing else explains the end are read again. A wrapped message must match a row across its line
breaks. A typed or cut one must have the words of a row's sample, in their order, with at most two typing mistakes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache

from mgpu.readers.log import caught_messages, last_step, pauses, printed_paths, printed_values, pythons, said_before
from mgpu.readers.log.line import named_groups, parse_line, shown_text
from mgpu.readers.log.own_error import own_error
from mgpu.readers.log.reported_error import with_report
from mgpu.readers.log.row_matching import Signatures, signature_rows
from mgpu.readers.log.usage import similar_option
from mgpu.readers.log.wrapped_names import wrapped_name
from mgpu.snapshot import CutTraceback, LastStep, Log, OwnError, Pause, SignatureMatch, UncaughtException

_EXCERPT_LINES = 60  # a longer log was not typed or wrapped by hand
_WRAPPED_AT = 50  # characters of the shortest line that a terminal or a person breaks
_TOGETHER = 6  # most lines of one wrapped message
_WORD = re.compile(r"[a-z]{2,}")
_END = re.compile(r"(?<![A-Za-z])[A-Za-z]+$")
_TYPE = re.compile(r"^\W*(?:[\w.]*(?:Error|Exception)) ?: ")
_FEWEST_WORDS, _FEWEST_LETTERS = 4, 24
_CUT_WORDS = 6  # of a message that is cut before its end
_CUT_IN_WORD, _CUT_LETTERS = 3, 18  # words and letters of one that the log ends with, in the middle of a word
_MISTAKES = 2
_FEWEST, _MOST = 2, 10  # words of a message that another line can contain
_MORE = 5  # characters that it must have besides
_CODE = re.compile(r"^(?:raise |assert |return |logg?(?:er|ing)?\.|print\(|warnings\.)|\bFile \"")
_NOT_ACCEPTED = "error: unrecognized arguments: "
_NO_KEY = "Missing key in checkpoint state_dict: "
_USUAL_TYPES = ("ValueError", "RuntimeError")  # of a message that was logged without its type
_LONG_WORD, _ALIKE = 5, 0.8  # shorter words must be equal; similarity of longer ones


def read_end(log: Log, tail: str, lines: int, signatures: Signatures) -> Log:
    """Return the log with what the end of its only file shows: a pasted message, the program's last one.

    `tail`: the end of that file. `lines`: how many it has.
    """
    log = replace(
        _with_reports(_with_details(log, tail), tail, lines, signatures),
        cut=tuple(with_report(one, tail, lines) for one in log.cut),
    )
    log = _with_saved_names(_with_options(log, tail, lines), tail)
    log = replace(_read_again(log, tail, signatures), reached=_reached(log, tail, lines))
    caught = caught_messages.find(tail, log.files[-1], lines)
    log = _of_caught(log, caught, signatures) if caught else log
    last = own_error(tail, log, lines) or caught
    harmless = last and any(name in signatures.noise | signatures.hints for name, _ in signatures.rows_of(last.text))
    return replace(
        log,
        own_error=None if harmless else last,
        pause=_pause(log, tail, lines, signatures),
        silence=_silence(log, tail, lines, signatures),
    )


def _with_options(log: Log, tail: str, lines: int) -> Log:
    """Return the log in which an argument that was not accepted has the option that is meant, by the usage above it."""
    text = tail.removesuffix("\n").split("\n")

    def with_option(one: SignatureMatch) -> SignatureMatch:
        place = one.line - lines + len(text) - 1
        if _NOT_ACCEPTED not in one.text or one.file != log.files[-1] or not 0 <= place < len(text):
            return one
        similar = similar_option(text, place, one.groups.get("argument", ""))
        return replace(one, groups={**one.groups, "wrong": similar[0], "meant": similar[1]}) if similar else one

    return replace(log, seen=tuple(map(with_option, log.seen)))


def _with_saved_names(log: Log, tail: str) -> Log:
    """Return the log in which a key that a checkpoint lacks has the name with a wrapper's part that the log shows."""
    missing = next((one for one in log.seen if _NO_KEY in one.text and one.groups.get("key")), None)
    if missing is None:
        return log
    saved = wrapped_name(tail.split("\n"), missing.groups["key"])
    with_name = replace(missing, groups={**missing.groups, "saved": saved}) if saved else missing
    return replace(log, seen=tuple(with_name if one is missing else one for one in log.seen))


def _pause(log: Log, tail: str, lines: int, signatures: Signatures) -> Pause | None:
    """Return the pause before the first lost connection that ended the run."""
    lost = next((one.line for one in log.seen if one.signature in signatures.echoes and not one.survived), None)
    return None if lost is None else pauses.before_line(tail, lines, lost)


def _silence(log: Log, tail: str, lines: int, signatures: Signatures) -> Pause | None:
    """Return how long the program had printed nothing when the job reached its time limit."""
    limit = next((one for one in log.seen if one.signature in signatures.limits and not one.survived), None)
    return None if limit is None or log.raised else pauses.before_limit(tail, lines, limit)


def _reached(log: Log, tail: str, lines: int) -> LastStep | None:
    """Return the last step before the first exception that ended the run, or before the end; None if only one."""
    first = min((one.line for one in log.raised if not one.caught), default=lines + 1)
    text = tail.removesuffix("\n").split("\n")
    numbered = [(number, part) for number, line in enumerate(text, lines - len(text) + 1) for part in line.split("\r")]
    before = [(number, part.encode()) for number, part in numbered if number < first]
    step = last_step.find(before, log.files[-1], advancing=True)
    return step if step and step.at > 1 and not step.inner else None


def _with_details(log: Log, tail: str) -> Log:
    """Return the log in which exceptions have the line that a program printed about the same, with more in it."""
    wanted = [one for one in log.raised if not one.caught and _FEWEST <= len(one.message.split()) <= _MOST]
    if not wanted:
        return log
    lines = [text for line in tail.split("\n") if (text := parse_line(line).text.strip()) and not _CODE.search(text)]

    def more(one: UncaughtException) -> UncaughtException:
        said = one.message.rstrip(" .!:").lower()
        found = (line for line in lines if said in line.lower() and len(line) > len(one.message) + _MORE)
        line = next((line for line in found if not line.startswith(one.type.rpartition(".")[2])), None)
        return replace(one, says_more=shown_text(line)) if line and one.type not in line else one

    return replace(log, raised=tuple(more(one) if one in wanted else one for one in log.raised))


def _with_reports(log: Log, tail: str, lines: int, signatures: Signatures) -> Log:
    """Return the log in which exceptions have the problem that their rank reported just before, and printed values."""
    text = tail.removesuffix("\n").split("\n")
    first = lines - len(text) + 1

    chained = {one.cause for one in log.raised if not one.caught}

    def is_noise(said: str) -> bool:
        return any(name in signatures.noise | signatures.hints for name, _ in signatures.rows_of(said))

    def reported(one: UncaughtException) -> UncaughtException:
        place = one.line - first
        handled = one.caught and f"{one.type}: {one.message}" not in chained
        if handled or one.of_launcher or one.file != log.files[-1] or not 0 <= place < len(text):
            return one
        return replace(
            one,
            said_before=said_before.find(text, place, one.rank, is_noise, one.cause),
            said_after=said_before.find_after(text, place, one.rank, is_noise),
            printed_paths=printed_paths.find(text, place, one.rank),
            printed=printed_values.find(text, place, one.rank),
            pythons=pythons.find(text, place, one.type),
        )

    return replace(log, raised=tuple(map(reported, log.raised)))


def _read_again(log: Log, tail: str, signatures: Signatures) -> Log:
    """Return the log with the rows that match once the changes of the person who pasted it are undone."""
    known = any(not one.survived and signatures.roles[one.signature] == "root" for one in log.seen)
    if log.finished is not None or known or any(one.signatures and not one.caught for one in log.raised):
        return log
    raised = [one for one in log.raised if not one.caught and not one.of_launcher]
    if not raised and log.cut and (match := _logged(log.cut[0], signatures)):
        return replace(log, seen=(*log.seen, match))
    if raised:
        return _of_exceptions(log, raised, signatures, tail)
    # An exception that Python ignored is a line like any other here.
    is_excerpt = log.lines <= _EXCERPT_LINES and not log.raised and "Exception ignored " not in tail
    return _of_lines(log, tail, signatures) if is_excerpt else log


def _of_caught(log: Log, caught: OwnError, signatures: Signatures) -> Log:
    """Return the log with the row of the exception whose message the program printed as its last one."""
    known = any(not one.survived and one.signature not in signatures.noise for one in log.seen)
    if known or log.finished is not None or any(not one.caught and not one.of_launcher for one in log.raised):
        return log
    for text in caught_messages.exceptions(caught.message or ""):
        for name, match in signatures.rows_of(text):
            if _explains(name, signatures):
                groups = named_groups(match)
                line = SignatureMatch(name, caught.text, caught.file, caught.line, caught.rank, groups=groups)
                return replace(log, seen=(*log.seen, line))
    return log


def _logged(one: CutTraceback, signatures: Signatures) -> SignatureMatch | None:
    """Return the row of a failure that matches the message which was logged above a traceback without its end."""
    said = one.reported or ""
    for text in dict.fromkeys((said, said.partition(": ")[2])) if said else ():
        for kind in _USUAL_TYPES:
            for name, match in signatures.rows_of(f"{kind}: {text}"):
                if signatures.roles.get(name) == "root":
                    groups = named_groups(match)
                    return SignatureMatch(name, said, one.file, one.line, one.rank, groups=groups)
    return None


def _of_exceptions(log: Log, raised: list[UncaughtException], signatures: Signatures, tail: str) -> Log:
    for one in raised:
        lines = [f"{one.type}: {one.message}", *((one.more or "").split("\n") if one.more else _below(one, log, tail))]
        match = _wrapped(lines, signatures, 0, raised=True) or _typed(one.message, signatures)
        if match is None and one.line == log.lines and not one.more:
            match = _cut_in_word(one.message, signatures)
        if match is None:
            continue
        name, groups = match
        line = SignatureMatch(
            name, shown_text(" ".join(lines)), one.file, one.line, one.rank, one.at, one.times, one.ranks, groups
        )
        named = tuple(replace(other, signatures=(name,)) if other is one else other for other in log.raised)
        return replace(log, seen=(*log.seen, line), raised=named)
    return log


def _below(one: UncaughtException, log: Log, tail: str) -> list[str]:
    """Return the lines below an exception of a short log up to an empty one: rich wraps a message at its width."""
    if log.lines > _EXCERPT_LINES:
        return []
    below = [parse_line(line).text.strip() for line in tail.split("\n")[one.line : one.line + _TOGETHER]]
    return list(itertools.takewhile(bool, below))


def _of_lines(log: Log, tail: str, signatures: Signatures) -> Log:
    lines = [parse_line(line).text.strip() for line in tail.split("\n")]
    for number, text in enumerate(lines, 1):
        match = (_wrapped(lines, signatures, number - 1) if len(text) >= _WRAPPED_AT else None) or (
            _typed(text, signatures) if text else None
        )
        if match is not None:
            name, groups = match
            line = SignatureMatch(name, shown_text(text), log.files[-1], number, groups=groups)
            return replace(log, seen=(*log.seen, line))
    return log


def _wrapped(
    lines: list[str], signatures: Signatures, first: int, *, raised: bool = False
) -> tuple[str, dict[str, str]] | None:
    """Return the row of a failure that matches across the end of a line, with its groups.

    `raised`: the first line is an exception's own, so no launcher or kernel wrote it.
    """
    for last in range(first + 2, min(len(lines), first + _TOGETHER) + 1):
        if not lines[last - 1]:
            return None
        for between in (" ", ""):
            text = between.join(lines[first:last])
            start = len(text) - len(lines[last - 1]) - len(between)
            for name, match in signatures.rows_of(text):
                possible = signatures.roles.get(name) == "root" if raised else _explains(name, signatures)
                if possible and match.start() < start < match.end() - len(between):
                    return name, named_groups(match)
    return None


def _explains(name: str, signatures: Signatures) -> bool:
    return signatures.roles.get(name) == "root" and name not in signatures.of_others


def _typed(message: str, signatures: Signatures) -> tuple[str, dict[str, str]] | None:
    """Return the only row with a sample of these words, but for typing mistakes, or of which this is the beginning."""
    words = _words(message)
    if len(words) < _FEWEST_WORDS or sum(map(len, words)) < _FEWEST_LETTERS:
        return None
    found = {
        name
        for name, sample, explained in _samples()
        if not explained and _explains(name, signatures) and _says_the_same(words, sample)
    }
    return (found.pop(), {}) if len(found) == 1 else None


def _cut_in_word(message: str, signatures: Signatures) -> tuple[str, dict[str, str]] | None:
    """Return the only row with a sample that begins with an exception's message, which ends within a word."""
    end = _END.search(message)
    if end is None:
        return None
    whole, part = _words(message[: end.start()]), end[0].lower()
    if len(whole) < _CUT_IN_WORD - 1 or sum(map(len, whole)) + len(part) < _CUT_LETTERS:
        return None
    found = {
        name
        for name, sample, _ in _samples()
        if sample[: len(whole)] == whole
        and any(word.startswith(part) and word != part for word in sample[len(whole) : len(whole) + 1])
        and signatures.roles.get(name) == "root"
    }
    return (found.pop(), {}) if len(found) == 1 else None


def _says_the_same(words: tuple[str, ...], sample: tuple[str, ...]) -> bool:
    cut = len(words) < len(sample)
    if len(words) > len(sample) or (cut and len(words) < _CUT_WORDS):
        return False
    pairs = zip(words, sample, strict=False)
    if cut and sample[len(words) - 1].startswith(words[-1]):  # cut within the word
        pairs = zip(words[:-1], sample, strict=False)
    wrong = list(itertools.islice((pair for pair in pairs if pair[0] != pair[1]), _MISTAKES + 1))
    return len(wrong) <= _MISTAKES and all(
        min(map(len, pair)) >= _LONG_WORD and SequenceMatcher(None, *pair).ratio() >= _ALIKE for pair in wrong
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_TYPE.sub("", text).lower()))


@cache
def _samples() -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Return the words of the samples of all rows whose texts have no value from the line.

    With each, whether a function can explain more of the exception.
    """
    return tuple(_iterate())


def _iterate() -> Iterator[tuple[str, tuple[str, ...], bool]]:
    for row in signature_rows():
        if row.makes_check and not re.compile(row.pattern).groupindex:
            explained = row.explain is not None or row.explain_in is not None
            yield from ((row.id, _words(sample), explained) for sample in row.samples)
