"""How did the run continue after an error, and how does its log end?

An error that is printed did not always stop the run: it was retried, caught, or its worker was started again. The log
shows this: the step counter goes on, a launcher reports a restart, the program reports its end. Only facts of the log
are collected here; `survival.py` compares them with the errors.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu.readers.log import last_results, prefilter, printed_after
from mgpu.readers.log.counters import (
    ANNOUNCING,
    ANNOUNCING_WORDS,
    SEARCHED,
    SHAPES,
    Announced,
    last_step,
    prepares,
    progress,
)
from mgpu.readers.log.good_ends import GOOD_ENDS
from mgpu.readers.log.line import Line, parse_line, shown_text

_ENOUGH_STEPS = 60  # after the latest error; more prove nothing else
_ENOUGH_LINES = 200_000  # searched for steps after the latest error
_MOST_STEPS = 20_000
_SEARCHED_FOR_ENDS = 1000  # characters of a line: MLPerf's last one has a long path before its status
_LAST_LINES, _LAST_LINES_BARE = 300, 1
_BY_PROGRAM = re.compile("|".join(f"(?:{end.pattern})" for end in GOOD_ENDS if end.by == "program"))
_BY_WRAPPER = re.compile("|".join(f"(?:{end.pattern})" for end in GOOD_ENDS if end.by == "wrapper"))
_BY_SETUP = re.compile("|".join(f"(?:{end.pattern})" for end in GOOD_ENDS if end.by == "setup"))
# What a program or a batch script can write, the latter also after a failure.
_RUN = (
    r"(?:training|train|fine-?tuning|pre-?training|run|job|experiment|evaluation|eval|benchmark|inference|generation|"
    r"script|workflow|pipeline|test|sweep|export|conversion|smoke test|all (?:epochs|steps|done|tests|ranks))"
)
_ENDED = r"(?:completed?|finished|done|succeeded|successful(?:ly)?|ended normally|passed)"
_END = re.compile(
    rf"\b{_RUN}\b[^.:!?]{{0,40}}?\b(?:is |was |has |are )?(?:now )?{_ENDED}\b(?! (?:in|with) (?:error|failure))|"
    rf"\b(?:finished|completed|done with|done)[: ](?:the |all )?{_RUN}\b|"
    r"^\W*final test (?:accuracy|acc|score|results?)\W{1,4}\d|"
    r"(?:^\W*|\bINFO\b\W{1,4})end of (?:the )?training(?:[.! ]*$|[.:,!] (?:time|total|took)\b)|"  # BasicSR
    r"\b(?:stage|phase|status|state|event)['\"]?\s?[=:]\s?['\"]?(?:train|training|run|job)_"
    r"(?:done|finished|completed?)\b|"
    r"\btotal (?:training|train|run|elapsed|wall) ?time\b|\bSUCCESS\b[.!]*$|\bis a success\b|"
    r"\b(?:completed|finished|exited) successfully\b|\bsuccessfully (?:completed|finished)\b|"
    r"\bcompleted without errors?\b|"
    r"\bconclu\w{2,4} com sucesso\b|\bcompletad[oa] con .{1,2}xito\b|\berfolgreich (?:abgeschlossen|beendet)\b|"
    r"\btermin\w+ avec succ|"
    r"\b(?:saved|wrote|uploaded|pushed) (?:the )?(?:final|trained|merged) (?:model|checkpoint|weights|adapter)|"
    r"\b(?:saved|wrote) (?:the )?final (?:metrics|results)\b(?!.*\b(?:fold|epoch|step|trial|task)\b)|"
    r"\bfinished all \d+ (?:runs|epochs|trials|folds|experiments|seeds)\b",
    re.I,
)
# With the date and level of Python's logging: of the program itself, never of a batch script.
_LOGGED_SUCCESS = re.compile(
    r"(?:\d\d:\d\d:\d\d[,.]\d{3}\b.{0,80}?\bINFO\b|^INFO:[\w.]+:|\| (?:INFO|SUCCESS) +\|).*"
    r"\b(?:completed|finished|ended) successfully\b"
)
# Programs also write it when they have read their data.
_BARE_END = re.compile(r"^\W*(?:all )?(?:done|finished|success|succeeded|completed)\b[ .!]*$", re.I)
_NOT_ENDED = re.compile(
    r"\b(?:not|n't|never|fail|failed|failure|(?<!without )errors?|before|until|when|once|"
    r"after (?!\d)|if|unless|unable|unsuccessful|without success|incomplete|"
    r"will be|to be|stop when|aborted|killed|cancelled|"
    r"(?:epoch|step|iteration|batch|fold|shard|round|phase|stage) ?#?\d+)\b|Traceback|loading|"
    r"download|sanity check|tokeniz|initializ|set-?up|compil|warm-?up",
    re.I,
)
# Launchers, Slurm, containers and shells report how a process ended.
_EXIT = re.compile(
    r"\bexitcode\s*: ?-?[1-9]|\b(?:exited|exit|terminated|returned|failed|finished)\b[\w -]{0,20}"
    r"\b(?:code|status)\b(?: of)?\s?[:=]?\s?-?[1-9]\d{0,2}\b|"
    r"\bexits with return code = -?[1-9]|\breturn ?code\b\s?[:=]\s?-?[1-9]|"
    r"\bexit_?code['\"]?\s?[:=]\s?-?[1-9]|\bExitCode[:=] ?(?!0:0)\d|"
    r"\bState\s*[:=]\s*(?:FAILED|OUT_OF_MEMORY|TIMEOUT|CANCELLED|NODE_FAIL|PREEMPTED)\b|"
    r"\bJobState=(?:FAILED|OUT_OF_ME|TIMEOUT)|"
    r"^(?:Terminated|Killed|Aborted)(?: \(core dumped\))?$|\bJob '?\S+'? (?:has )?failed\b|"
    r"^make: \*\*\* .* Error \d|^=+ (?:.* )?\d+ failed\b|^FAILED \(\w+=\d|^Killing subprocess \d"  # DeepSpeed
)
_RESTART = re.compile(
    r"will restart worker group|[Rr]e-?start(?:ing|ed)\b|[Rr]elaunch|[Rr]e-?spawn|[Rr]e-?queue|restart_count=[1-9]|"
    r"closing signal SIG(?:TERM|KILL)|[Rr]esum(?:ed|ing)\b.*(?:from|at|step|checkpoint)|Continuing training from|"
    r"[Ll]oad(?:ed|ing) checkpoint .*(?:step|iter)|failed \(exitcode: |(?:Attempt|attempt) [2-9]\d*\b|"
    r"\brestarts? (?:left|so far)|"
    r"[Rr]ecovered (?:from|worker|actor|rank|node)"
)
# Shapes of these patterns' lines; a line without any of them is not an end and not a restart.
# fmt: off
_TEXTS = (
    "train_runtime", "stopped:`max", "complete", "finished", "succe", "done", "passed", "exitcode", "exit_code",
    "exitstatus", "returncode", "returnstatus", "validationmetrics", "exitingprogram", "totaltrainingtime",
    "totaltraintime", "totalruntime", "totalelapsedtime", "totalwalltime", "endednormally", "finalmodel", "finaltest",
    "trainedmodel", "mergedmodel", "finalcheckpoint", "trainedcheckpoint", "mergedcheckpoint", "finalweights",
    "trainedweights", "mergedweights", "finaladapter", "trainedadapter", "mergedadapter", "raysubmit", "jobfailed",
    "jobhasfailed", "state:", "terminated",
    "killed", "aborted", "exitedwith", "make:***", "restart", "relaunch",
    "respawn", "requeue", "closingsignalsig", "resum",
    "continuingtraining", "loadingcheckpoint", "loadedcheckpoint", "attempt", "recovered", "jobstate",
    "shutdowncomplete", "endoftraining", "endofthetraining", "exitsuccess",
    "killingsubprocess", "comsucesso", "completad", "erfolgreich", "avecsucc",
)
_WORDS = (
    "train_runtime", "stopped:", "complete", "finished", "succe", "done", "passed", "exit", "return", "metrics",
    "time", "model", "checkpoint", "weights", "adapter", "restart", "relaunch", "spawn", "queue", "signal", "resum",
    "continuing", "attempt", "recovered", "state", "shutdown", "terminated", "killed", "aborted", "failed", "make:",
    "ended", "subprocess", "final", "sucesso", "completad",
    "erfolgreich", "succ",
)
# fmt: on
_OF_ENDS = [end.pattern for end in GOOD_ENDS]
TEXTS = (*_TEXTS, *ANNOUNCING, *(text for pattern in _OF_ENDS for text in prefilter.required_texts(pattern)))
WORDS = (*_WORDS, *ANNOUNCING_WORDS, *(word for pattern in _OF_ENDS for word in prefilter.required_words(pattern)))
# Lines that report an error and what the program does about it.
_HANDLED = re.compile(
    r"\b(?:[Rr]etry(?:ing)?\b(?! count)|[Rr]e-?spawn|[Rr]e-?start(?:ing|ed)|[Rr]e-?queue|[Rr]ecover(?:ed|ing)|"
    r"[Ff]all(?:ing|s)? ?back|[Ii]gnor(?:ing|ed)|[Ss]kipp(?:ing|ed)|[Rr]educing (?:the )?batch|"
    r"(?:Attempt|attempt):? \d+ ?(?:/|of) ?\d+|[Nn]on-?fatal|[Tt]rying again|[Tt]ry again with|decreasing batch|"
    r"halving|[Ww]ill (?:retry|continue|try)|[Cc]ontinuing (?:with|without|anyway|training))"
)


@dataclass(frozen=True)
class Event:
    """A line about the course of the run."""

    line: int
    text: str = ""
    rank: int | None = None
    last: int | None = None  # of an end: how many lines from the log's last one it can be
    sure: bool = False  # of an end: not what a batch script writes after a failure, too
    by_wrapper: bool = False  # of an end: what ran the command wrote it, which can be a script that ignored a failure
    weak: bool = False  # of an end: what a program writes at its end, which says nothing about errors before it
    of_setup: bool = False  # of an end: of what prepares a run, so only the end of a log with nothing after it


def _line_of(event: Event) -> int:
    return event.line


class Course:
    """The steps, restarts and ends in one file, in the order of its lines."""

    def __init__(self) -> None:
        self.steps: list[Event] = []  # lines in which a counter went on after an error
        self.restarts: list[Event] = []
        self.ends: list[Event] = []
        self.exits: list[Event] = []  # reports that a rank, task, container or job failed
        self.announced = Announced()
        self.lines = 0  # number of the last one, once the file is finished
        self.then_text: int | None = None  # the last line that can belong to an error, if ordinary text follows it
        self._counters: dict[tuple[object, str, object], float] = {}
        self._from = 0  # line of the latest error or end; 0: none
        self._steps_since = self._lines_since = 0

    def error(self, number: int) -> None:
        """Count the steps from this line on: it has an error, or can be the end."""
        self._from = number
        self._steps_since = self._lines_since = 0

    @property
    def watching(self) -> bool:
        """Whether steps after the latest error are still of interest."""
        return (
            self._from > 0
            and self._steps_since < _ENOUGH_STEPS
            and self._lines_since < _ENOUGH_LINES
            and len(self.steps) < _MOST_STEPS
        )

    def steps_between(self, first: int, last: int) -> int:
        """Return how many steps lie between two lines."""
        return bisect.bisect_left(self.steps, last, key=_line_of) - bisect.bisect_right(self.steps, first, key=_line_of)

    def take(self, line: Line, shape: bytes, number: int) -> None:
        """Process a line that can be an end, a restart or a step; `shape` is that of the whole line."""
        text = line.text[:SEARCHED]
        self.announced.take(line.text)
        can_exit, can_end = _possible(shape)
        if can_exit and _EXIT.search(text) and not is_handled(text):
            self.exits.append(Event(number, shown_text(line.text), line.rank))
        if can_end:
            self._end_or_restart(line, text, number)
        if self.watching:
            self._step(line, number)

    def _end_or_restart(self, line: Line, text: str, number: int) -> None:
        if end := _end(line, number):
            self.ends.append(end)
            if not self.watching:
                self.error(number)  # steps after it show that it was the end of something else: of pip, of a container
        elif _RESTART.search(text):
            self.restarts.append(Event(number, rank=line.rank))

    def finish(self, lines: int, tail: str) -> None:
        """Use the log's last lines, and drop the ends that are too far from them: `lines` is the last one's number."""
        self.lines = lines
        self.then_text = printed_after.line_before(tail, lines)
        known = any(end.sure and not end.of_setup and lines - end.line < _LAST_LINES for end in self.ends)
        done, step = (None, "") if known else last_step(tail, self.announced)
        if done:
            self.ends.append(Event(lines, shown_text(step), sure=True))
        elif not known and done is None and (result := last_results.at_end(tail)):
            self.ends.append(Event(lines, shown_text(result), weak=True))
        self.ends = [end for end in self.ends if end.last is None or lines - end.line < end.last]

    def scan(self, shapes: Sequence[bytes], lines: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Look for steps in lines that are not searched otherwise."""
        for shape, raw, number in zip(shapes, lines, numbers, strict=True):
            if not self.watching:
                return
            self._lines_since += 1
            if any(text in shape for text in SHAPES):
                self._step(parse_line(raw[: 2 * SEARCHED].decode("utf-8", "replace")), number)

    def _step(self, line: Line, number: int) -> None:
        found = progress(line.text[:SEARCHED])
        if found is None:
            return
        name, at, of = found
        if prepares(name):
            return
        key = (line.rank if line.rank is not None else line.source, name, of)
        before = self._counters.get(key)
        self._counters[key] = at
        if before is not None and at > before:
            self.steps.append(Event(number, rank=line.rank))
            self._steps_since += 1


@functools.lru_cache(4096)
def _possible(shape: bytes) -> tuple[bool, bool]:
    """Whether lines of a shape can report a process's exit, and whether they can be an end or a restart.

    To search a line for all of them takes longer than everything else that is done with it.
    """
    return any(text in shape for text in _TEXTS_OF_EXITS), any(text in shape for text in _TEXTS_OF_ENDS)


def _shapes(*patterns: re.Pattern[str]) -> set[bytes]:
    return {text.encode() for pattern in patterns for text in prefilter.required_texts(pattern.pattern)}


_TEXTS_OF_EXITS = tuple(_shapes(_EXIT))
_TEXTS_OF_ENDS = tuple(_shapes(_END, _RESTART) | {text.encode() for text in TEXTS})


def is_exit(text: str) -> bool:
    """Whether a launcher, Slurm, a container or a shell reports how a process ended."""
    return bool(_EXIT.search(text))


def is_handled(text: str) -> bool:
    """Whether a line reports an error and what the program does about it."""
    return bool(_HANDLED.search(text))


def _end(line: Line, number: int) -> Event | None:
    """Return the good end that a line shows."""
    text = line.text[:_SEARCHED_FOR_ENDS]
    if _BY_PROGRAM.search(text):
        return Event(number, shown_text(line.text), line.rank, sure=True)
    if _BY_WRAPPER.search(text):
        return Event(number, shown_text(line.text), line.rank, sure=True, by_wrapper=True)
    if _BY_SETUP.search(text):
        return Event(number, shown_text(line.text), line.rank, sure=True, by_wrapper=True, of_setup=True)
    text = text[:SEARCHED]
    if _BARE_END.match(text):
        return Event(number, shown_text(line.text), line.rank, last=_LAST_LINES_BARE)
    if _END.search(text) and not _NOT_ENDED.search(text) and not _RESTART.search(text):
        sure = bool(_LOGGED_SUCCESS.search(line.whole[:SEARCHED]))
        return Event(number, shown_text(line.text), line.rank, sure=sure, last=_LAST_LINES)
    return None
