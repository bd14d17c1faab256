"""Which signatures, exceptions and launcher tables are in a log? It is read as a stream, whatever its size.

Lines that differ only in digits, spaces and progress bars have the same shape (prefilter.py). Each shape is checked
once: either no signature can match its lines, or they are searched. A gigabyte takes seconds and the memory of one
piece.
"""

from __future__ import annotations

import bisect
import codecs
import contextlib
import gzip
import io
import os
import re
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.readers.log import handled_exceptions, prefilter
from mgpu.readers.log.line import LONGEST_TEXT, Line, LineNumbers, looks_labelled, parse_line
from mgpu.readers.log.torchrun_table import FAILURE_REPORT, Tables
from mgpu.readers.log.tracebacks import Tracebacks
from mgpu.secrets_masking import masked
from mgpu.signature import Row
from mgpu.snapshot import FailedRank, Log, SignatureMatch, StalledCollective, UncaughtException

_PIECE = 1 << 20
# Logs compress by a factor of 10 to 20; a line repeated endlessly, by 1000.
_MOST_UNPACKED = 128 << 20  # bytes that are always read
_MOST_RATIO = 50
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_LINE = 1 << 16
_SEARCHED = 1 << 13  # characters of a line that are searched for signatures
_SHAPES_BYTES = 24 << 20  # of remembered shapes; then all are dropped and checked again
_SHAPES_OF_TEXTS = 1000  # a log can contain one exception a hundred thousand times
_MANY = 200  # new shapes in a piece; above that, their words are checked first
_DULL_WORDS = 300_000  # words remembered as irrelevant
_ENOUGH = 2000  # searched lines per shape; later ones are not counted
_LOOK_FOR_RANKS = 16  # search for ranks in the first pieces, where all ranks print, then in every 16th
_PREFIX = re.compile(rb"\[rank(\d{1,5})\]")
# fmt: off
_STRUCTURE = (
    "traceback(mostrecentcalllast", '",line', "rootcause(firstobservedfailure", "failures:", "exitcode:",
    "returnednonzeroexitstatus", "diedwithsignals", "diedwith<signals", "watchdogcaughtcollective",
    "exceptionignoredin", "errorinatexit", "exceptioninthread",
)
_STRUCTURE_WORDS = (
    "traceback", '",', "(first", "failures:", "exitcode", "non-zero", "died", "watchdog",
    "ignored", "atexit", "thread",
)
# fmt: on
# rank3.log, log_3.txt, worker-3.err, slurm-123_3.out; torchrun's folder …/attempt_0/3/stderr.log
_RANK_IN_NAME = re.compile(
    r"(?:rank|log|worker|task|proc|stderr|stdout)[_.-]?(\d{1,5})(?=\D|$)|^slurm-\d+[_.](\d{1,5})(?=\D)"
)
_RANK_IN_PATH = re.compile(r"attempt_\d+/(\d+)/(?:stdout|stderr)\.log$")
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d{1,15}), )?OpType=(?P<op>\w+)"
    r"(?:.*?Timeout\(ms\)=(?P<ms>\d{1,15})\b)?"
)
_WORDS = re.compile(r"^(?!.*Setting OMP_NUM_THREADS).*\w")
_COMPLETED = re.compile(r"last completed (?:NCCL )?work: (-?\d{1,15})\b")


@dataclass
class _Found:
    """The results so far, of all files."""

    seen: dict[str, SignatureMatch] = field(default_factory=dict)
    raised: dict[tuple[str, str, str | None], UncaughtException] = field(default_factory=dict)
    stalled: dict[int | None, StalledCollective] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)


class Signatures:
    """Signature rows, and which of them can match the lines of a shape."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {row.id: (row, re.compile(row.pattern)) for row in rows}
        self.noise = {row.id for row in rows if row.role == "noise"}
        self._of_text: dict[bytes, tuple[str, ...]] = {}
        self._of_shape: dict[bytes, tuple[str, ...]] = {}
        self._always: tuple[str, ...] = ()
        for row in rows:
            texts = prefilter.required_texts(row.pattern)
            if not texts:
                self._always += (row.id,)
            for text in texts:
                self._of_text[text.encode()] = (*self._of_text.get(text.encode(), ()), row.id)
        for text in _STRUCTURE:
            self._of_text.setdefault(prefilter.shape(text.encode()), ())
        words = {word for row in rows for word in prefilter.required_words(row.pattern)} | set(_STRUCTURE_WORDS)
        self._words = [word.encode() for word in words]
        self._dull: set[bytes] = set()
        self._bright: set[bytes] = set()

    def with_known_words(self, lines: Mapping[bytes, bytes]) -> set[bytes]:
        """Return the shapes whose lines contain a word of any row; `lines` has one line per shape.

        Faster than comparing shapes if all lines differ, as in generated text, because their words repeat.
        """
        if self._always:
            return set(lines)
        split = {shape: line.lower().split() for shape, line in lines.items()}
        fresh = {word for words in split.values() for word in words} - self._dull - self._bright
        together = b"\n".join(fresh)
        found = [word for word in self._words if word in together]
        bright = {one for one in fresh if any(word in one for word in found)} if found else set()
        if len(self._dull) > _DULL_WORDS:
            self._dull.clear()
            self._bright.clear()
        self._dull |= fresh - bright
        self._bright |= bright
        return {shape for shape, words in split.items() if not self._bright.isdisjoint(words)}

    def match_shapes(self, shapes: Iterable[bytes]) -> dict[bytes, tuple[str, ...]]:
        """Return the shapes whose lines must be searched, with the rows that can match them."""
        shapes = tuple(shapes)
        together = b"\n".join(shapes)
        texts = [text for text in self._of_text if text in together]
        if not texts and not self._always:
            return {}
        found = {}
        for shape in shapes:
            there = [text for text in texts if text in shape]
            if there or self._always:
                rows = dict.fromkeys(row for text in there for row in self._of_text[text])
                found[shape] = (*rows, *self._always)
        return found

    def match_line(self, line: Line, rows: Iterable[str]) -> list[tuple[str, re.Match[str]]]:
        """Return the rows that match a line. If noise rows match, only these."""
        hits = []
        for name in rows:
            pattern = self.rows[name][1]
            found = pattern.search(line.text, 0, _SEARCHED)
            if not found and line.whole != line.text:
                found = pattern.search(line.whole, 0, _SEARCHED)
            if found:
                hits.append((name, found))
        noise = [hit for hit in hits if hit[0] in self.noise]
        return noise or hits

    def match_text(self, text: str) -> tuple[str, ...]:
        """Return the ids of the rows that match a text."""
        line = Line(text[:_LONGEST_LINE], text[:_LONGEST_LINE])
        shape = prefilter.shape(line.text.encode("utf-8", "replace"))
        if (rows := self._of_shape.get(shape)) is None:
            if len(self._of_shape) > _SHAPES_OF_TEXTS:
                self._of_shape.clear()
            rows = self._of_shape[shape] = self.match_shapes([shape]).get(shape, ())
        return tuple(name for name, _ in self.match_line(line, rows))


def signature_rows() -> Sequence[Row]:
    """Return all rows of the tables in checks/log."""
    import importlib

    from mgpu import engine

    engine.load()
    family = importlib.import_module("mgpu.checks.log")
    modules = [importlib.import_module(f"mgpu.checks.log.{name}") for name in family.ORDER]
    return [row for module in modules for row in getattr(module, "ROWS", ())]


def read_logs(paths: Sequence[Path], signatures: Sequence[Row] | None = None, *, one_stream: bool = False) -> Log:
    """Return the fact `log` of one run, from one file or one per rank; "-" is stdin.

    `one_stream`: the files are parts of one output, not one per rank. Raises MgpuError for a file that cannot be read,
    or is not text.
    """
    wanted = Signatures(signature_rows() if signatures is None else signatures)
    found, size, lines = _Found(), 0, 0
    fallen: dict[int, FailedRank] = {}
    for path in paths:
        with _open_log(path) as (stream, year):
            rank_in_name = _rank_in_name(path) if len(paths) > 1 and not one_stream else None
            one = _File(str(path), wanted, found, year, rank_in_name)
            for piece in _pieces(stream, str(path), one.skip):
                one.take(piece)
            one.end()
        size, lines = size + one.size, lines + one.lines
        for rank in one.tables.ranks():
            before = fallen.get(rank.rank)
            if before is None or (rank.first and not before.first):
                fallen[rank.rank] = rank
    ranks = tuple(sorted(found.ranks))
    return Log(
        tuple(map(str, paths)),
        size,
        lines,
        tuple(found.seen.values()),
        handled_exceptions.mark_caught(tuple(found.raised.values()), tuple(fallen.values()), ranks),
        tuple(fallen.values()),
        tuple(found.stalled.values()),
        ranks,
        _last_words(paths[-1]) if fallen and (one_stream or len(paths) == 1) else None,
    )


def _last_words(path: Path) -> str | None:
    """Return the program's last line before its launcher reported a failed rank."""
    try:
        if path.suffix == ".gz" or file_reading.read_start(path, most=2) in _UTF_16:
            return None
        with open(file_reading.open_checked(path), "rb") as file:
            file.seek(max(0, path.stat().st_size - _LONGEST_LINE))
            text = file.read(_LONGEST_LINE).decode("utf-8", "replace").replace("\r", "\n")
    except OSError:  # stdin or a pipe, which cannot be read twice
        return None
    of_launcher = FAILURE_REPORT.search(text)
    lines = [line for line in text[: of_launcher.start() if of_launcher else 0].split("\n") if _WORDS.search(line)]
    return masked(parse_line(lines[-1]).text.strip()[:LONGEST_TEXT]) or None if lines else None


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[tuple[io.RawIOBase | BinaryIO, int]]:
    """Yield a file's bytes, decompressed if its name ends in .gz, and the year of its prefixes' dates."""
    if str(path) == "-":
        if sys.stdin is None:
            raise MgpuError("--log -: stdin is closed", errors.USAGE)
        yield sys.stdin.buffer, time.gmtime().tm_year
        return
    try:
        if path.is_dir():
            raise MgpuError(f"{path} is a folder. Specify its files", errors.USAGE)
        handle = file_reading.open_checked(path)
        os.set_blocking(handle, True)  # an inherited pipe, whose writer can be slow
    except OSError as error:
        why = error.strerror or reason(error)
        raise MgpuError(f"cannot read the log {path}: {why}", errors.USAGE) from None
    with open(handle, "rb") as raw:
        about = os.fstat(handle)
        stream: io.RawIOBase | BinaryIO = raw
        if path.suffix == ".gz":
            stream = _Unpacked(str(path), gzip.GzipFile(fileobj=raw), about.st_size)
        yield stream, time.gmtime(about.st_mtime).tm_year


class _Unpacked(io.RawIOBase):
    """A compressed file, decompressed up to a maximum size."""

    def __init__(self, name: str, stream: gzip.GzipFile, size: int) -> None:
        self._name, self._stream = name, stream
        self._left = max(_MOST_UNPACKED, size * _MOST_RATIO)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise MgpuError(
                f"{self._name} decompresses to more than {_MOST_UNPACKED >> 20} MiB and more than {_MOST_RATIO} times "
                "its size. To read only its end:\n"
                f"  zcat {shlex.quote(self._name)} | tail -c 100M | mgpu doctor --log -",
                errors.USAGE,
            )
        return data


def _pieces(stream: io.RawIOBase | BinaryIO, name: str, skip: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file in pieces that end at a line end. UTF-16 (PowerShell's `>`) is converted to UTF-8.

    Only the beginning of a very long line is read; `skip` is called with the number of bytes skipped.
    """
    rest, decoder = b"", None
    first = True
    while True:
        try:
            data = stream.read(_PIECE) or b""
        except (OSError, EOFError, zlib.error) as error:
            raise MgpuError(f"cannot read the log {name}: {reason(error)}", errors.USAGE) from None
        if first and data[:2] in _UTF_16:
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        elif first and _is_binary(data[:4096]):
            raise MgpuError(f"{name} is not a log: it contains binary data", errors.USAGE)
        first = False
        if decoder:
            data = decoder.decode(data, not data).encode("utf-8", "replace")
        if not data:
            break
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            kept = data[: max(0, _LONGEST_LINE - len(rest))]
            rest += kept
            skip(len(data) - len(kept))
    if rest:
        yield rest


def _is_binary(data: bytes) -> bool:
    """Whether this is the beginning of a binary file. Control bytes of terminals count as text."""
    strange = len(data) - len(data.translate(None, _BINARY_BYTES))
    return data.count(0) > len(data) // 10 or strange > len(data) // 20


class _File:
    """Reads one file of a log, piece by piece."""

    def __init__(self, name: str, signatures: Signatures, found: _Found, year: int, rank: int | None) -> None:
        self.name, self.signatures, self.found = name, signatures, found
        self.year, self.rank = year, rank
        self.size = self.lines = self.pieces = 0
        if rank is not None:
            found.ranks.add(rank)
        self.tables = Tables()
        self.tracebacks = Tracebacks(name, signatures.match_text)
        self.labelled: bool | None = None
        self._boring: set[bytes] = set()
        self._boring_bytes = 0
        self._worth: dict[bytes, tuple[str, ...]] = {}
        self._times: dict[bytes, int] = {}

    def skip(self, number: int) -> None:
        """Count bytes of a very long line that are not read."""
        self.size += number

    def take(self, piece: bytes) -> None:
        """Process the next complete lines."""
        self.size += len(piece)
        if self.pieces % _LOOK_FOR_RANKS == 0 or self.pieces < _LOOK_FOR_RANKS:
            self.found.ranks.update(map(int, _PREFIX.findall(piece)))
        self.pieces += 1
        if b"\r\n" in piece:
            piece = piece.replace(b"\r\n", b"\n")
        if b"\x1b" in piece:  # colors within words
            piece = _ESCAPES.sub(b"", piece)
        shapes = prefilter.shape(piece).split(b"\n")
        if self.labelled is None:
            self.labelled = looks_labelled(piece[:4096].decode("utf-8", "replace").splitlines()[:-1])
        lines = self._sort_shapes(shapes, piece)
        numbers = LineNumbers(piece)
        worth = self._worth
        place = 0
        hot = [place for place, one in enumerate(shapes) if one in worth]
        while True:
            if not (self.tracebacks.waiting or self.tables.waiting):
                spot = bisect.bisect_left(hot, place)
                if spot == len(hot):
                    break
                place = hot[spot]
            if place >= len(shapes) - 1 and not shapes[-1]:
                break
            if place >= len(shapes):
                break
            lines = lines or _lines(piece)
            self._line(lines[place], shapes[place], self.lines + numbers.line_number(place))
            place += 1
        self.lines += piece.count(b"\n") + (not piece.endswith(b"\n"))

    def _sort_shapes(self, shapes: Sequence[bytes], piece: bytes) -> list[bytes]:
        """Decide for each new shape whether its lines must be searched.

        Returns the lines of the piece if that needed them, else an empty list.
        """
        lines: list[bytes] = []
        fresh = set(shapes)
        fresh -= self._boring
        fresh -= self._worth.keys()
        if len(fresh) > _MANY:
            lines = _lines(piece)
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

    def _line(self, raw: bytes, shape: bytes, number: int) -> None:
        """Process a line that must be searched, or that follows one."""
        text = raw[:_LONGEST_LINE].decode("utf-8", "replace")
        line = parse_line(text, labelled=bool(self.labelled), year=self.year)
        if line.rank is None and self.rank is not None:
            line = replace(line, rank=self.rank)
        if line.rank is not None:
            self.found.ranks.add(line.rank)
        self.tables.take(line)
        self.tracebacks.take(line, number)
        rows = self._worth.get(shape)
        if rows is None:
            return
        self._times[shape] = times = self._times.get(shape, 0) + 1
        if times > _ENOUGH and not self.tracebacks.waiting:
            self._worth.pop(shape)
            self._boring.add(shape)
            return
        for name, match in self.signatures.match_line(line, rows):
            self._record_match(name, match, line, number)
        if "Watchdog caught" in line.text:
            self._record_stall(line)

    def _record_match(self, name: str, match: re.Match[str], line: Line, number: int) -> None:
        ranks = () if line.rank is None else (line.rank,)
        groups = {key: masked(value) for key, value in match.groupdict().items() if value is not None}
        new = SignatureMatch(
            name, _clip_around_match(line.text, match), self.name, number, line.rank, line.at, 1, ranks, groups
        )
        old = self.found.seen.get(name)
        if old is None:
            self.found.seen[name] = new
            return
        first = new if new.at and old.at and new.at < old.at else old
        together = tuple(sorted({*old.ranks, *ranks}))
        self.found.seen[name] = replace(first, times=old.times + 1, ranks=together)

    def _record_stall(self, line: Line) -> None:
        if found := _WATCHDOG.search(line.text):
            done = _COMPLETED.search(line.text)
            one = StalledCollective(
                line.rank,
                int(found["seq"]) if found["seq"] else None,
                found["op"],
                int(found["ms"]) / 1000 if found["ms"] else None,
                int(done[1]) if done else None,
                line.at,
            )
            self.found.stalled.setdefault(line.rank, one)

    def end(self) -> None:
        """Finish the file, after its last line."""
        self.tracebacks.end()
        for one in self.tracebacks.found:
            key = (one.type, one.message, one.place)
            old = self.found.raised.get(key)
            after = max(0, self.lines - one.line)
            if old is None:
                self.found.raised[key] = replace(one, after=after)
                continue
            first = one if one.at and old.at and one.at < old.at else old
            ranks = tuple(sorted({*old.ranks, *one.ranks}))
            self.found.raised[key] = replace(
                first,
                times=old.times + 1,
                ranks=ranks,
                after=min(old.after, after),
                by_torch=old.by_torch or one.by_torch,
            )


_BINARY_BYTES = bytes({*range(1, 32)} - {*b"\b\t\n\v\f\r\x1b"})
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


def _lines(piece: bytes) -> list[bytes]:
    """Return the lines of a piece, also split at carriage returns, which progress bars use."""
    return piece.replace(b"\r", b"\n").split(b"\n")


def _rank_in_name(path: Path) -> int | None:
    """Return the rank in a file's name, if there is one file per rank."""
    if found := _RANK_IN_PATH.search(str(path)):
        return int(found[1])
    if found := _RANK_IN_NAME.search(path.name):
        return int(found[1] or found[2])
    return None


def _clip_around_match(text: str, match: re.Match[str]) -> str:
    """Return a line as evidence: clipped around the match, with secrets masked."""
    if len(text) > LONGEST_TEXT:
        start = max(0, min(match.start() - 80, len(text) - LONGEST_TEXT))
        text = f"{'...' if start else ''}{text[start : start + LONGEST_TEXT - 6]}..."
    return masked(text.strip())
