"""Where does the last run begin in a file to which several were appended?

A nohup.out, a log that a script opens with `>>`, or the output of a requeued Slurm job has all attempts; the last one
counts. A run begins where the first lines of the file are printed again after the end of the run before: after what
only a launcher or Slurm prints at the end of the whole run, or, in the output of one process, after an exception or an
error that its logger reports. There it also begins where hundreds of lines follow an exception: nothing prints so much
after its end. And it begins where Python reports a syntax error in a script that ran before, or where a script
runs that such an error had ended: it was edited between. Where a script fails again that an error had ended, or a
launcher (another_attempt.py), it began after that error. First lines that nothing follows are of no run.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mgpu.readers.log.after_syntax_error import RunAfterSyntaxError
from mgpu.readers.log.another_attempt import FailedAttempts, LauncherTables
from mgpu.readers.log.opening import open_log, pieces
from mgpu.snapshot import LastRun

_HEAD_LINES = 40  # in which the lines are looked for that a run prints first
_HEAD = 8  # of these lines
_FIRST = 3  # one of the first so many must be the first that is printed again
_BLOCK = 4  # so many of them in a row are the start of a run, however often they come
_OFTEN = 1000  # a line that comes more often is none that a run prints first
_NEAR = 60  # lines in which a second one must follow
_GOES_ON = 200  # lines after an exception: more than a batch script's last words; a tracker's summary does not count
_KEPT = 64 << 20  # bytes of what cannot be read twice
_NOHUP = re.compile(rb"^nohup: (?:ignoring input|redirecting stderr)", re.M)
# The whole run has ended: the launcher of a node raises this when it has stopped its ranks, and Slurm ends all tasks.
_END_OF_RUN = re.compile(
    rb"slurmstepd\S*: error: \*\*\* (?:JOB|STEP) [\d.]+ ON|^(?:\S+\.)?ChildFailedError\b|exits with return code = -?\d|"
    rb"^subprocess\.CalledProcessError: Command '\[?'?\S*(?:python[\d.]*|torchrun|accelerate|deepspeed)\b|"
    rb"^srun: Terminating|^(?:\S+\.)?SignalException: Process \d+ got signal",
    re.M,
)
_END_OF_PROCESS = re.compile(
    rb"^(?!Conda|CommandNotFound)(?:[A-Za-z_]\w*\.)*(?:\w+(?:Error|Exception|Interrupt)|KeyboardInterrupt)\b(?:: |$)|"
    rb"^\S+: error: (?:argument |unrecognized |the following |ambiguous )|"
    rb"^(?:\S+: line \d+:\s+\d+ )?(?:Killed|Terminated|Aborted|Hangup|Segmentation fault)\b",
    re.M,
)
# What Python's logging writes of a failure, or of a user's stop, or a script that prints only the message of torch's
# exception: the program can go on after it.
_LOGGED_END = re.compile(
    rb"^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\n]{0,120}?\b(?:(?:ERROR|CRITICAL)\b|[Ii]nterrupted by (?:the )?user)|"
    rb"^(?:ERROR|CRITICAL):[\w.]+:|^(?:CUDA|HIP) out of memory\. Tried to allocate ",
    re.M,
)
_SEVERAL_PROCESSES = re.compile(
    rb"torch/distributed/(?:run|launch|elastic)|torch\.distributed\.(?:run|launch|elastic)|\btorchrun\b|\[rank\d|"
    rb"accelerate[./](?:commands[./])?launch|deepspeed/launcher|\[launch\.py|\[runner\.py|\bmpirun\b|"
    rb"\bsrun: (?!error: |Job step aborted|Terminating)|multiprocessing/spawn\.py|ProcessRaisedException|\(\w+ pid=\d"
)
# LSF writes its report below the output of a job. The next job appends its output to it.
_REPORT_OF_JOB = re.compile(
    rb"^The output \(if any\) is above this job summary\.\s+"
    rb"(?:PS:\s+Read file <[^>\n]*> for stderr output of this job\.\s+)?(?!PS:)(?=\S)",
    re.M,
)
# srun reports that a task ended. What follows is of the other tasks, or of what was started afterwards.
_END_OF_TASK = re.compile(rb"^srun: (?:error: \S+: tasks? \d|Job step aborted|Terminating)", re.M)
_SUMMARY = re.compile(rb"^wandb:", re.M)  # a line for each metric, of which a run can log thousands
# A frame of a file that was read and ran has a function. Python's place of a syntax error has none, as the places of
# TorchScript, which no such error follows.
_PLACE = re.compile(
    rb'^  File "(?P<file>[^"<\n][^"\n]*)", line (?P<line>\d+)(?:(?P<ran>, in )|'
    rb"\r?$(?=(?:\n[^\n]*){0,8}?\n *(?:SyntaxError|IndentationError|TabError)))",
    re.M,
)
# A part of the file is searched for a pattern only if it has one of its texts: that is ten times faster.
# fmt: off
_TEXTS: dict[re.Pattern[bytes], tuple[bytes, ...]] = {
    _NOHUP: (b"nohup: ",),
    _END_OF_RUN: (b"slurmstepd", b"ChildFailedError", b"exits with return", b"CalledProcessError", b"srun: Term",
                  b"SignalException"),
    _END_OF_PROCESS: (b"Error", b"Exception", b"Interrupt", b": error: ", b"Killed", b"Terminated", b"Aborted",
                      b"Hangup", b"Segmentation"),
    _LOGGED_END: (b"ERROR", b"CRITICAL", b"nterrupted by", b" out of memory"),
    _SEVERAL_PROCESSES: (b"torch/distributed/", b"torch.distributed.", b"torchrun", b"[rank", b"accelerate",
                         b"deepspeed/launcher", b"[launch.py", b"[runner.py", b"srun: ", b"mpirun",
                         b"multiprocessing/spawn", b"ProcessRaised", b" pid="),
    _END_OF_TASK: (b"srun: ",),
    _REPORT_OF_JOB: (b"above this job summary",),
    _SUMMARY: (b"wandb:",),
}
# fmt: on
_START = re.compile(rb"(?i)\bstart|\blaunch|\bbegin|\d\d:\d\d:\d\d|^usage:")
_ERROR = re.compile(rb"Traceback|\bout of memory\b|\w(?:Error|Exception)\b|\berror:|^usage:|^File \"", re.I)
_PROGRESS = re.compile(rb"%\||it/s|s/it|\bepoch\b|\bstep\b|\biter", re.I)
# In a copy of a terminal: what the terminal printed before its command is not of the run.
_COMMAND = re.compile(rb"[\w.-]+@[\w.-]+(?::[~/][^\s$#]*|(?: [^\]\s]+)?\])[$#] +\S")
# Python shows a warning once for each place of the code, sklearn's of a metric each time.
_WARNED = re.compile(rb"^\S+\.py:\d+: (?!Undefined|Convergence)\w*Warning: ")
_WORD = re.compile(rb"[A-Za-z]{3,}")
_DATE = re.compile(rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b")
_PARTS = re.compile(
    rb"(?P<number>0x[0-9a-fA-F]+|\d+)|(?P<space>[ \t]+)|(?P<frame>[-=+|*_.]{2,})|"
    rb"(?P<date>" + _DATE.pattern + rb")|.",
    re.S,
)
_ANY = {"number": rb"(?:0x[0-9a-fA-F]+|\d+)", "space": rb"[ \t]+", "frame": rb"[-=+|*_.]+", "date": rb"\w{3}"}


@dataclass
class _Edited:
    """Where Python reports a syntax error in a script that ran before, and that did not run after it."""

    begin: int | None = None
    _place: tuple[bytes, bytes] = (b"", b"")
    _ran: set[bytes] = field(default_factory=set)

    def add(self, part: bytes, before: int) -> None:
        """Read a part of the file that follows so many lines."""
        if b'", line ' not in part:
            return
        at, number = 0, before + 1
        for found in _PLACE.finditer(part):
            number += part.count(b"\n", at, found.start())
            at = found.start()
            place = found["file"], found["line"]
            if found["ran"]:
                self._ran.add(place[0])
                self.begin = None if place[0] == self._place[0] else self.begin
            # Code above it is of a traceback: the script ran, and imported the file.
            elif place[0] in self._ran and (self.begin is None or place != self._place):
                above = part[part.rfind(b"\n", 0, max(0, at - 1)) + 1 : at]
                self.begin, self._place = (self.begin, self._place) if above.startswith(b"    ") else (number, place)


@dataclass
class _Marks:
    """What a file shows of its runs, as (line, place in the head) and lines."""

    heads: list[tuple[int, int]]
    ends: list[int]
    ends_of_processes: list[int]
    nohups: list[int]
    logged_ends: list[int] = field(default_factory=list)
    all_ends: list[int] = field(default_factory=list)
    ends_of_tasks: list[int] = field(default_factory=list)
    edited: _Edited = field(default_factory=_Edited)
    repaired: RunAfterSyntaxError = field(default_factory=RunAfterSyntaxError)
    attempts: FailedAttempts = field(default_factory=FailedAttempts)
    tables: LauncherTables = field(default_factory=LauncherTables)
    after_reports: list[int] = field(default_factory=list)  # first lines of the jobs whose output follows a report
    summaries: list[int] = field(default_factory=list)
    head: int = 0  # number of the first lines
    starts: frozenset[int] = frozenset()  # places in the head of lines that speak of a start, or have the time of it
    warned: bool = False  # the file begins with a warning that a process prints once
    several: int = 0  # the last line that shows several processes; 0: none does
    lines: int = 0
    last_text: int = 0  # the last line that is not empty

    @property
    def alone_from(self) -> float:
        """The line from which on the file is the output of one process."""
        if not self.several and not self.ends_of_tasks:
            return 0
        last = max(self.ends_of_tasks, default=0)
        return last if last > self.several else math.inf


def of_last_run(path: Path, parts: Iterator[bytes]) -> tuple[LastRun | None, Iterator[bytes]]:
    """Return where the last run begins, and all parts of the file; None if it has only one run.

    A file is read twice. What can be read only once (stdin, a pipe) is kept in memory; if it is larger than 64 MiB, it
    counts as one run.
    """
    if _is_regular(path):
        with open_log(path) as (stream, _):
            return _last(pieces(stream, str(path), lambda _: None)), parts
    kept, size = list[bytes](), 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > _KEPT:
            return None, itertools.chain(kept, parts)
    return _last(kept), iter(kept)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _last(parts: Iterable[bytes]) -> LastRun | None:
    marks = _marks(parts)
    edited = filter(None, (marks.edited.begin, marks.repaired.begin))
    certain = {*marks.nohups[1:], *(marks.after_reports or _begins(marks)), *edited}
    known = marks.alone_from or marks.after_reports
    begins = _once(sorted({*certain, *([] if known else _after_ends(marks))}), certain, marks)
    for begin, failure, is_certain in (*marks.tables.begins, *(() if marks.alone_from else marks.attempts.begins())):
        if not any(begin <= one <= failure for one in begins):
            begins = sorted((*begins, begin))
            certain |= {begin} if is_certain else set()
    while begins and _is_only_head(begins[-1], marks):
        begins.pop()
    return LastRun(begins[-1], len(begins), begins[-1] in certain) if begins else None


def _is_only_head(begin: int, marks: _Marks) -> bool:
    """Whether nothing follows there but some first lines of the file, none of which speaks of a start.

    Another program of the run can print them again.
    """
    again = [(line, place) for line, place in marks.heads if line >= begin]
    places = {place for _, place in again}
    if begin in (*marks.nohups, *marks.after_reports) or len(places) == marks.head or places & marks.starts:
        return False
    return len({line for line, _ in again}) > marks.last_text - begin


def _once(begins: list[int], certain: set[int], marks: _Marks) -> list[int]:
    """Return one begin of each run: nothing ended between two of the same. The first certain one counts."""
    kept: list[int] = []
    for begin in begins:
        if not kept or begin in marks.nohups or _any_between(marks.all_ends, kept[-1] - 1, begin):
            kept.append(begin)
        elif begin in certain and kept[-1] not in certain:
            kept[-1] = begin
    return kept


def _marks(parts: Iterable[bytes]) -> _Marks:
    marks = _Marks([], [], [], [])
    head: list[tuple[re.Pattern[bytes], bytes]] | None = None
    often = Counter[int]()
    before = 0  # lines
    for part in parts:
        part = part.replace(b"\r\n", b"\n")
        if head is None:
            marks.warned = bool(_WARNED.match(part.lstrip()))
            head = [(re.compile(rb"^[ \t]*" + line + rb"\s*$", re.M), word) for line, word in _head(part)]
            first = (pattern.search(part) for pattern, _ in head)
            marks.starts = frozenset(place for place, found in enumerate(first) if found and _START.search(found[0]))
            marks.head = len(head)
        lines = _Lines(part, before)
        marks.ends += lines.of(_END_OF_RUN)
        marks.ends_of_processes += lines.of(_END_OF_PROCESS)
        marks.logged_ends += lines.of(_LOGGED_END)
        marks.nohups += lines.of(_NOHUP)
        marks.ends_of_tasks += lines.of(_END_OF_TASK)
        marks.summaries += lines.of(_SUMMARY)
        marks.after_reports += lines.after(_REPORT_OF_JOB)
        marks.edited.add(part, before)
        marks.repaired.add(part, before)
        marks.attempts.add(part, before)
        marks.tables.add(part, before)
        marks.several = max(lines.of(_SEVERAL_PROCESSES), default=marks.several)
        for place, (pattern, word) in enumerate(head):
            if word in part and often[place] <= _OFTEN:
                found = [(line, place) for line in lines.of(pattern)]
                often[place] += len(found)
                marks.heads += found
        if text := part.rstrip():
            marks.last_text = before + 1 + text.count(b"\n")
        before += part.count(b"\n")
    marks.heads = sorted(one for one in marks.heads if often[one[1]] <= _OFTEN)
    logged = [] if marks.several else marks.logged_ends
    reports = (line - 1 for line in marks.after_reports)
    marks.all_ends = sorted({*marks.ends, *marks.ends_of_processes, *logged, *reports})
    marks.lines = before
    return marks


class _Lines:
    """The numbers of the lines of a part that match, counted from the beginning of the file."""

    def __init__(self, part: bytes, before: int) -> None:
        self._part, self._before = part, before

    def of(self, pattern: re.Pattern[bytes]) -> Iterator[int]:
        return self._numbers(pattern, re.Match.start)

    def after(self, pattern: re.Pattern[bytes]) -> Iterator[int]:
        return self._numbers(pattern, re.Match.end)

    def _numbers(self, pattern: re.Pattern[bytes], place: Callable[[re.Match[bytes]], int]) -> Iterator[int]:
        if (texts := _TEXTS.get(pattern)) and not any(text in self._part for text in texts):
            return
        at, number = 0, self._before + 1
        for found in pattern.finditer(self._part):
            number += self._part.count(b"\n", at, place(found))
            at = place(found)
            yield number


def _head(part: bytes) -> list[tuple[bytes, bytes]]:
    """Return patterns for the first lines with words, up to the first error or end, and the longest word of each.

    In a copy of a terminal they begin with the last command before that error.
    """
    found: dict[bytes, bytes] = {}
    for line in part.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        line = line.strip()[:400]
        if (_ERROR.search(line) and not (line.startswith(b"usage:") and not found)) or len(found) == _HEAD:
            break
        if _END_OF_PROCESS.search(line):  # of bash: what follows is of a report of the job, or of the next command
            break
        if _COMMAND.search(line):
            found.clear()
        if len(_WORD.findall(line)) < 2 or _PROGRESS.search(line) or _NOHUP.match(line):
            continue
        pattern = b"".join(_ANY.get(one.lastgroup or "") or re.escape(one[0]) for one in _PARTS.finditer(line))
        found.setdefault(pattern, max(_WORD.findall(_DATE.sub(b" ", line)), key=len, default=b""))
        if line.startswith(b"usage:"):
            break
    return list(found.items())


def _begins(marks: _Marks) -> Iterator[int]:
    """Yield the lines in which a run begins that is not the first."""
    alone = len({place for _, place in marks.heads}) == 1
    began, since = 0, Counter[int]()  # how often each first line came since then
    for spot, (line, place) in enumerate(marks.heads):
        if began < marks.alone_from < line:
            began = int(marks.alone_from)
            since.clear()
        # What one process prints again and again is no start, except for all that a run prints at its start.
        once = since[place] <= 1 or _is_block(marks.heads, spot)
        # Only another run prints after the end of a whole one, but a rank can print after another one's exception.
        after_end = _any_between(marks.ends, began, line) or (
            line > marks.alone_from and once and _any_between(marks.all_ends, began, line)
        )
        again = marks.warned and place == 0 and line - 1 in marks.ends_of_processes
        if place < _FIRST and after_end and (alone or again or _another_near(marks.heads, spot)):
            yield line
            began = line
            since.clear()
        since[place] += 1


def _another_near(heads: list[tuple[int, int]], spot: int) -> bool:
    """Whether another first line of the file follows soon."""
    line, place = heads[spot]
    near = itertools.takewhile(lambda one: one[0] - line <= _NEAR, itertools.islice(heads, spot, None))
    return any(other != place for _, other in near)


def _is_block(heads: list[tuple[int, int]], spot: int) -> bool:
    """Whether the first lines of the file follow each other here as they did there."""
    line = heads[spot][0]
    return heads[spot : spot + _BLOCK] == [(line + place, place) for place in range(_BLOCK)]


def _any_between(ends: list[int], first: int, last: int) -> bool:
    """Whether one of these lines, which are in order, is between two others."""
    return bisect.bisect_right(ends, first) < bisect.bisect_left(ends, last)


def _after_ends(marks: _Marks) -> Iterator[int]:
    """Yield the lines after an exception of the only process that much of the file follows."""
    for end, other in itertools.pairwise([*marks.ends_of_processes, marks.lines]):
        of_tracker = bisect.bisect_left(marks.summaries, other) - bisect.bisect_right(marks.summaries, end)
        if other - end - of_tracker > _GOES_ON:
            yield end + 1
