"""Which signatures, exceptions and launcher tables are in a log? It is read as a stream, whatever its size.

Lines that differ only in digits, spaces and progress bars have the same shape (prefilter.py). Each shape is checked
once: either no signature can match its lines, or they are searched. A gigabyte takes seconds and the memory of one
piece.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mgpu.readers.log import (
    code_rows,
    course,
    handled_exceptions,
    last_step,
    lone_work,
    padded_rows,
    plain,
    prefilter,
    printed_after,
    quoted_text,
    several_runs,
    stalls,
    stopped_work,
    survival,
)
from mgpu.readers.log.course import Course
from mgpu.readers.log.doubled import undoubled
from mgpu.readers.log.gathered import Gathered, Shown
from mgpu.readers.log.last_words import last_words, last_work
from mgpu.readers.log.learned_prefixes import LearnedPrefixes
from mgpu.readers.log.line import Line, LineNumbers, clip_around_match, looks_labelled, named_groups, parse_line
from mgpu.readers.log.nccl_errors import NcclErrors
from mgpu.readers.log.opening import open_log, pieces, rank_in_name
from mgpu.readers.log.powershell import PowerShell
from mgpu.readers.log.repeated import add_exception, add_match, with_last_failures
from mgpu.readers.log.row_matching import LONGEST_LINE, Signatures, known_signatures
from mgpu.readers.log.second_reading import read_end
from mgpu.readers.log.stack_dumps import StackDumps
from mgpu.readers.log.survival import Latest, key_of, settle
from mgpu.readers.log.torchrun_table import Tables, add_failed
from mgpu.readers.log.tracebacks import Tracebacks
from mgpu.secrets_masking import masked
from mgpu.signature import Row
from mgpu.snapshot import (
    Circumstance,
    LastRun,
    Log,
    SignatureMatch,
    UncaughtException,
)

_SHAPES_BYTES = 24 << 20  # of remembered shapes; then all are dropped and checked again
_MANY = 200  # new shapes in a piece; above that, their words are checked first
_START = 200  # characters of a line, in which its logger names the level
_ENOUGH = 2000  # searched lines per shape; later ones are not counted
_TAIL_BYTES = 1 << 14  # of the end, where the last steps and a rank's last work are
_LAST_LINES = 60  # in which a traceback was cut by the end of its file
_LAST_LINES_OF_THREAD = 2
_LOOK_FOR_RANKS = 16  # search for ranks in the first pieces, where all ranks print, then in every 16th
_PREFIX = re.compile(rb"\[rank(\d{1,5})\]")


def read_logs(
    paths: Sequence[Path],
    signatures: Sequence[Row] | None = None,
    *,
    one_stream: bool = False,
    failed: bool = False,
    last_run: bool = False,
) -> Log:
    """Return the fact `log` of one run, from one file or one per rank; "-" is stdin.

    `one_stream`: the files are parts of one output, not one per rank. `failed`: the run is known to have failed.
    `last_run`: several runs may have been appended to a single file, of which the last one is read. Raises MgpuError
    for a file that cannot be read, or is not text.
    """
    wanted = known_signatures() if signatures is None else Signatures(signatures)
    found, size, lines, courses, start = Gathered(), 0, 0, list[Course](), None
    alone = one_stream or len(paths) == 1  # else one file per rank
    for path in paths:
        courses += [] if one_stream and courses else [Course()]
        with open_log(path) as (stream, year):
            rank, before = None if alone else rank_in_name(path), lines if one_stream else 0
            one = _File(str(path), wanted, found, year, rank, courses, before)
            start = one.take_all(pieces(stream, str(path), one.skip), path, last_run=last_run and len(paths) == 1)
        size, lines = size + one.size, lines + one.lines
        add_failed(found.fallen, one.tables.ranks() or one.tables.failed_tasks())
    code_rows.add_matches(found.raised, found.seen, found.latest, wanted)
    log = replace(
        found.as_log(),
        files=tuple(map(str, paths)),
        size_bytes=size,
        lines=lines,
        last=last_words(one.tail(), found.fallen.values()) if found.fallen and alone else None,
        last_work=last_work(one.tail()) if alone else None,
        last_run=start,
    )
    certain = survival.without_uncertain(log, found.latest, wanted)
    raised = handled_exceptions.mark_caught(certain, log.fallen, log.ranks)
    log = replace(log, raised=raised, cut=tuple(found.cut))
    log = with_last_failures(settle(log, found.latest, courses, wanted, failed=failed), found)
    return read_end(log, one.tail(), one.lines, wanted) if alone else log


class _File:
    """Reads one file of a log, piece by piece."""

    def __init__(
        self,
        name: str,
        signatures: Signatures,
        found: Gathered,
        year: int,
        rank: int | None,
        courses: Sequence[Course],
        before: int,
    ) -> None:
        self.name, self.signatures, self.found = name, signatures, found
        self.year, self.rank = year, rank
        self.course, self.index = courses[-1], len(courses) - 1
        self.before = before  # lines of earlier parts of the same output
        self.nccl = NcclErrors()
        self._tail, self._timed_out = b"", False
        self.size = self.lines = self.pieces = 0
        if rank is not None:
            found.ranks.add(rank)
        self.tables = Tables()
        self.tracebacks = Tracebacks(name, signatures.match_text, signatures.of_others)
        self.stacks = StackDumps(name)
        self.prefixes, self.powershell = LearnedPrefixes(), PowerShell()
        self.labelled: bool | None = None
        self._boring: set[bytes] = set()
        self._boring_bytes = 0
        self._worth: dict[bytes, tuple[str, ...]] = {}
        self._times: dict[bytes, int] = {}

    def skip(self, number: int) -> None:
        """Count bytes of a very long line that are not read."""
        self.size += number

    def take_all(self, pieces: Iterator[bytes], path: Path, *, last_run: bool) -> LastRun | None:
        """Process the file. `last_run`: the lines before its last run are only counted; returns where that begins."""
        start, pieces = several_runs.of_last_run(path, pieces) if last_run else (None, pieces)
        for piece in pieces:
            at = 0
            while start and self.lines < start.line - 1 and (end := piece.find(b"\n", at) + 1):
                at, self.lines = end, self.lines + 1
            self.skip(at)
            if at < len(piece):
                self.take(piece[at:])
        self.end()
        return start

    def take(self, piece: bytes) -> None:
        """Process the next complete lines."""
        self.size += len(piece)
        if self.pieces % _LOOK_FOR_RANKS == 0 or self.pieces < _LOOK_FOR_RANKS:
            self.found.ranks.update(map(int, _PREFIX.findall(piece)))
        self.pieces += 1
        piece = padded_rows.unpadded(self.powershell.joined(plain.text(piece)), self.signatures.match_text)
        self.course.announced.take_bars(piece)
        shapes = prefilter.shape(piece).split(b"\n")
        if self.labelled is None:
            self.labelled = looks_labelled(piece[:4096].decode("utf-8", "replace").splitlines()[:-1])
        lines = self._sort_shapes(shapes, piece)
        numbers = LineNumbers(piece)
        worth = self._worth
        place = 0
        hot = [place for place, one in enumerate(shapes) if one in worth]
        while True:
            if not (self.tracebacks.waiting or self.tables.waiting or self.nccl.waiting or self.stacks.waiting):
                spot = bisect.bisect_left(hot, place)
                until = hot[spot] if spot < len(hot) else len(shapes)
                if self.course.watching and until > place:
                    lines = lines or plain.lines(piece)
                    self._skim(lines, shapes, range(place, until), numbers)
                if spot == len(hot):
                    break
                place = until
            if place >= len(shapes) - 1 and not shapes[-1]:
                break
            if place >= len(shapes):
                break
            lines = lines or plain.lines(piece)
            number = self.lines + numbers.line_number(place)
            self._look_before(lines, place, numbers)
            self.tracebacks.above = lines[place - 1] if place else b""
            self._line(lines[place], shapes[place], number)
            place += 1
        self.lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
        self._tail = (piece if len(piece) > LONGEST_LINE else self._tail + piece)[-LONGEST_LINE:]

    def tail(self) -> str:
        """Return the end of what was read."""
        return self._tail.decode("utf-8", "replace")

    def _skim(self, lines: Sequence[bytes], shapes: Sequence[bytes], places: range, numbers: LineNumbers) -> None:
        """Look for steps in lines that need not be searched for errors."""
        first = self.before + self.lines
        self.course.scan(
            shapes[places.start : places.stop],
            lines[places.start : places.stop],
            [first + numbers.line_number(place) for place in places],
        )

    def _sort_shapes(self, shapes: Sequence[bytes], piece: bytes) -> list[bytes]:
        """Decide for each new shape whether its lines must be searched.

        Returns the lines of the piece if that needed them, else an empty list.
        """
        lines: list[bytes] = []
        fresh = set(shapes)
        fresh -= self._boring
        fresh -= self._worth.keys()
        if len(fresh) > _MANY:
            lines = plain.lines(piece)
            examples = {shape: line for shape, line in zip(shapes, lines, strict=True) if shape in fresh}
            candidates = self.signatures.with_known_words(examples)
            self._remember(fresh - candidates)
            fresh = candidates
        if fresh:
            self._look_at(fresh)
        return lines

    def _look_at(self, fresh: set[bytes]) -> None:
        """Add the shapes that must be searched, and remember the others as irrelevant."""
        worth = self.signatures.match_shapes(fresh)
        self._worth.update(worth)
        self._remember(fresh - worth.keys())
        if len(self._worth) > 100_000:
            self._worth = dict(worth)
            self._times.clear()

    def _remember(self, boring: set[bytes]) -> None:
        self._boring_bytes += sum(map(len, boring))
        if self._boring_bytes > _SHAPES_BYTES:
            self._boring, self._boring_bytes = set(), 0
        self._boring |= boring

    def _look_before(self, lines: Sequence[bytes], place: int, numbers: LineNumbers) -> None:
        """Look at what precedes the first line about a timeout, and the first about a user's stop."""
        if not self._timed_out and lone_work.TIMED_OUT.search(lines[place]):
            self._time_out(lines, place, numbers)
        if not self.found.stopped and stopped_work.STOPPED.search(lines[place]):
            self.found.stopped = True
            before = self._lines_before(lines, place + 1, numbers, stopped_work.LINES)
            self.found.stopped_at = stopped_work.find([*self._tail_lines(), *before], self.name)

    def _time_out(self, lines: Sequence[bytes], place: int, numbers: LineNumbers) -> None:
        """Process the first line in which a rank reports that it waited without success."""
        self._timed_out = True
        self.found.waited_s = self.found.waited_s or lone_work.limit_of(lines[place])
        same = lone_work.before_message(lines[place])  # a bar that the message follows without a line break
        before = self._lines_before(lines, place, numbers, lone_work.LINES)
        self._look_for_work([*before, *([(self.lines + numbers.line_number(place), same)] if same else [])])

    def _lines_before(
        self, lines: Sequence[bytes], place: int, numbers: LineNumbers, most: int
    ) -> list[tuple[int, bytes]]:
        """Return the numbered lines of this piece before one."""
        before = range(max(0, place - most), place)
        return [(self.lines + numbers.line_number(one), lines[one]) for one in before]

    def _look_for_work(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Look for a rank's work and for the last step, in these numbered lines and in those of the piece before."""
        if len(lines) < lone_work.LINES:
            lines = [*self._tail_lines(), *lines]
        if self._timed_out and self.found.last_step is None:
            self.found.last_step = last_step.find(lines[-lone_work.LINES :], self.name)
        work = lone_work.find(lines, self.name, self.rank, before_timeout=self._timed_out)
        self.found.work += [work] if work else []

    def _tail_lines(self) -> list[tuple[int, bytes]]:
        """Return the last lines of the pieces before, with their numbers, which do not count carriage returns."""
        tail = self._tail[-_TAIL_BYTES:].removesuffix(b"\n").split(b"\n")
        first = self.lines - len(tail) + 1
        return [(number, part) for number, line in enumerate(tail, first) for part in line.split(b"\r")]

    def _line(self, raw: bytes, shape: bytes, number: int) -> None:
        """Process a line that must be searched, or that follows one."""
        text = raw[:LONGEST_LINE].decode("utf-8", "replace")
        line = parse_line(text, labelled=bool(self.labelled), year=self.year)
        line = self.prefixes.strip(line)
        if (single := undoubled(line.text)) != line.text:
            line = replace(line, text=single)
        if line.rank is None and self.rank is not None:
            line = replace(line, rank=self.rank)
        if line.rank is not None:
            self.found.ranks.add(line.rank)
        self.tables.take(line)
        self.stacks.take(line, number)
        known = self.tracebacks.ended
        self.tracebacks.take(line, number)
        self.course.take(line, shape, self.before + number)
        if self.tracebacks.ended > known:
            self.course.error(self.before + number)
        self._record_nccl(line, number)
        rows = self._worth.get(shape)
        if rows is None:
            return
        self._times[shape] = times = self._times.get(shape, 0) + 1
        if times > _ENOUGH and not self.tracebacks.waiting:
            self._worth.pop(shape)
            self._boring.add(shape)
            return
        for name, match in self.signatures.match_line(line, rows):
            if name in self.signatures.context:
                self._record_circumstance(name, match, line, number)
            elif not (self.tracebacks.quotes_code or self.tracebacks.ignored or line.text.startswith("mgpu: ")):
                self._record_match(name, match, line, number)
        if stall := stalls.read_stall(line):
            stalls.add_stall(self.found.stalled, stall)
        if silence := stalls.read_silence(line):
            self.found.silences.append(silence)

    def _record_nccl(self, line: Line, number: int) -> None:
        """Search what NCCL reports after "Last error:" as if it were one of its WARN lines, which say the same."""
        text = self.nccl.take(line)
        if text is None:
            return
        warning = replace(line, text=f"NCCL WARN {text}")
        rows = self.signatures.rows_of(warning.text)
        if any(name in self.signatures.noise for name, _ in rows):
            return
        after_last = "NCCL WARN" not in line.text
        self.found.nccl.setdefault(after_last, masked(text))
        if after_last:
            for name, match in rows:
                self._record_match(name, match, line, number)

    def _record_circumstance(self, name: str, match: re.Match[str], line: Line, number: int) -> None:
        old = self.found.shows.get(name)
        if old is None:
            text = clip_around_match(line.text, match)
            self.found.shows[name] = Shown(Circumstance(name, text, self.name, number, number, at=line.at), number)
        elif old.first.file == self.name:
            old.last, old.times = number, old.times + 1
            old.latest = clip_around_match(line.text, match) if name in self.signatures.keep_latest else None

    def _record_match(self, name: str, match: re.Match[str], line: Line, number: int) -> None:
        ranks = () if line.rank is None else (line.rank,)
        text, groups = clip_around_match(line.text, match), named_groups(match)
        new = SignatureMatch(name, text, self.name, number, line.rank, line.at, 1, ranks, groups)
        handled, quoted = course.is_handled(line.text), quoted_text.is_quoted(line.text)
        if (quoted or quoted_text.is_skipped(line.text)) and name not in self.signatures.noise:
            return
        if name not in self.signatures.noise:
            self.course.error(self.before + number)
        before = self.found.latest.get(name)
        warned = survival.warns(line.whole[:_START])
        self.found.latest[name] = Latest(
            self.index,
            self.before + number,
            handled and (before is None or before.handled),
            warned and (before is None or before.warned),
            printed_after.is_report(line.text) and (before is None or before.reported),
        )
        add_match(self.found, self.course, new, self.before, before.line if before else 0)

    def _of_last_thread(self) -> list[UncaughtException]:
        """Return the exception of a thread with which the output ends: its process may wait for that thread forever."""
        one = self.tracebacks.of_thread
        return [one] if one and self.lines - one.line <= _LAST_LINES_OF_THREAD and not self.course.ends else []

    def end(self) -> None:
        """Finish the file, after its last line."""
        self.tracebacks.end()
        self.stacks.end()
        self.found.script = self.found.script or self.tables.script
        self.found.stacks += self.stacks.found
        self.found.cut += [one for one in self.tracebacks.cut if self.lines - one.line < _LAST_LINES]
        if self.rank is not None and not self._timed_out:
            self._look_for_work(())
        self.course.finish(self.before + self.lines, self._tail[-_TAIL_BYTES:].decode("utf-8", "replace"))
        for one in self.tracebacks.found or self.tracebacks.bare or self._of_last_thread():
            key = key_of(one)
            handled = one.bare and course.is_handled(one.message)
            before = self.found.latest.get(key)
            self.found.latest[key] = Latest(self.index, self.before + one.line, handled)
            new = replace(one, after=max(0, self.lines - one.line))
            add_exception(self.found, self.course, new, self.before, before.line if before else 0)
