"""Which signatures match a line? Shapes and words decide quickly that none can."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mgpu.readers.log import course, prefilter, stack_dumps
from mgpu.readers.log.line import Line
from mgpu.signature import Row

LONGEST_LINE = 1 << 16
_SEARCHED = 1 << 13  # characters of a line that are searched for signatures
_SHAPES_OF_TEXTS = 1000  # a log can contain one exception a hundred thousand times
_DULL_WORDS = 300_000  # words remembered as irrelevant
# In a shape: colors, control bytes, and what processes wrote to one line at the same time (doubled.py).
_REMOVED_LATER = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\[;*m|::")
# fmt: off
_STRUCTURE = (
    "traceback(mostrecentcalllast", '",line', "rootcause(firstobservedfailure", "failures:", "exitcode:",
    "returnednonzeroexitstatus", "diedwithsignals", "diedwith<signals", "watchdogcaughtcollective",
    "exceptionignoredin", "errorinatexit", "errorinsys", "exceptioninthread", "error:", "ncclwarn", "exception:",
    "notfound:", "what():", "refused:", "timeout:", "expired:", "objecthasnoattribute", "gotanunexpectedkeyword",
    "gotmultiplevaluesfor", "positionalargument", "objectisnot", "indexoutofrange", "invalidliteralfor",
    "unsupportedoperandtype", "sitepackages/", "distpackages/",
)
_STRUCTURE_WORDS = (
    "traceback", '",', "(first", "failures:", "exitcode", "non-zero", "died", "watchdog",
    "ignored", "atexit", "excepthook", "thread", "error:", "warn", "what():", "exception:", "notfound:", "refused:",
    "timeout:", "expired:", "attribute", "keyword", "positional", "literal", "operand", "packages/", "object", "index",
)
# fmt: on


class Signatures:
    """Signature rows, and which of them can match the lines of a shape."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._patterns = {row.id: row.pattern for row in rows}
        self._compiled: dict[str, re.Pattern[str]] = {}
        self._required: dict[str, tuple[tuple[bytes, ...], ...]] = {}
        self.roles = {row.id: row.role for row in rows}
        self.before_ranks = {row.id for row in rows if "before_ranks" in row.tags}
        self.of_store = {row.id for row in rows if row.effect_of == "store_exit"}
        self.limits = {row.id for row in rows if "job_limit" in row.tags}
        self.hints = {row.id for row in rows if "hint" in row.tags}
        self.can_hang = {row.id for row in rows if "can_hang" in row.tags}
        self.of_program = {row.id for row in rows if row.kind in ("script", "library") and row.role == "root"}
        self.of_gpu = {row.id for row in rows if row.kind == "cuda"}
        self.stops = {row.id for row in rows if row.effect_of == "stop" and row.role == "root"}
        self.until_step_created = {row.id for row in rows if "until_step_created" in row.tags}
        self.last_lines = {row.id for row in rows if "last_lines" in row.tags}
        self.keep_latest = {row.id for row in rows if "keeps_latest" in row.tags}
        self.exit_only = {row.id for row in rows if "exit_only" in row.tags}
        family = _family()
        self.echoes = {row.id for row in rows if row.role != "root" and row.kind in family.KINDS_OF_CONNECTIONS}
        self.noise = {row.id for row in rows if row.role == "noise"}
        self.context = {row.id for row in rows if row.role == "context"}
        self.of_system = {row.id for row in rows if row.kind in ("scheduler", "kernel", "xid")}
        self.of_others = {row.id for row in rows if row.kind in family.KINDS_OF_OTHERS}
        self._of_text: dict[bytes, tuple[str, ...]] = {}
        self._of_shape: dict[bytes, tuple[str, ...]] = {}
        self._always: tuple[str, ...] = ()
        for row in rows:
            texts = prefilter.required_texts(row.pattern)
            if not texts:
                self._always += (row.id,)
            for text in texts:
                self._of_text[text.encode()] = (*self._of_text.get(text.encode(), ()), row.id)
        for text in (*_STRUCTURE, *course.TEXTS, *stack_dumps.TEXTS):
            self._of_text.setdefault(prefilter.shape(text.encode()), ())
        words = {word for row in rows for word in prefilter.required_words(row.pattern)}
        words |= {*_STRUCTURE_WORDS, *course.WORDS, *stack_dumps.WORDS}
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
        bright = self._with_any(b"\n%b\n" % b"\n".join(fresh))
        if len(self._dull) > _DULL_WORDS:
            self._dull.clear()
            self._bright.clear()
        self._dull |= fresh - bright
        self._bright |= bright
        return {shape for shape, words in split.items() if not self._bright.isdisjoint(words)}

    def _with_any(self, together: bytes) -> set[bytes]:
        """Return the lines of a text that contain a word of any row; each line is found once for each of its words."""
        found = set()
        for word in self._words:
            at = together.find(word)
            while at >= 0:
                start, end = together.rfind(b"\n", 0, at) + 1, together.find(b"\n", at)
                found.add(together[start:end])
                at = together.find(word, end)
        return found

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
                found[shape] = (*self._possible(shape, rows), *self._always)
        return found

    def _possible(self, shape: bytes, rows: Iterable[str]) -> Iterable[str]:
        """Return those of the rows whose patterns have nothing else that the lines of a shape lack.

        Each is then searched in all of these lines. A shape with something that is removed before that is not judged.
        """
        if _REMOVED_LATER.search(shape):
            return rows
        return [row for row in rows if all(any(text in shape for text in texts) for texts in self._texts_of(row))]

    def _texts_of(self, name: str) -> tuple[tuple[bytes, ...], ...]:
        if (texts := self._required.get(name)) is None:
            texts = self._required[name] = prefilter.all_required_texts(self._patterns[name])
        return texts

    def match_line(self, line: Line, rows: Iterable[str]) -> list[tuple[str, re.Match[str]]]:
        """Return the rows that match a line. If noise rows match, no row of a failure does."""
        hits = []
        for name in rows:
            pattern = self._compiled_pattern(name)
            found = pattern.search(line.text, 0, _SEARCHED)
            if not found and line.whole != line.text:
                found = pattern.search(line.whole, 0, _SEARCHED)
            if found:
                hits.append((name, found))
        if any(name in self.noise for name, _ in hits):
            return [hit for hit in hits if hit[0] in self.noise or hit[0] in self.context]
        return hits

    def _compiled_pattern(self, name: str) -> re.Pattern[str]:
        """Return a row's pattern, compiled once: a log can contain the texts of a few rows only."""
        if (pattern := self._compiled.get(name)) is None:
            pattern = self._compiled[name] = re.compile(self._patterns[name])
        return pattern

    def match_text(self, text: str) -> tuple[str, ...]:
        """Return the ids of the rows that match a text, which say what is wrong, or that nothing is."""
        return tuple(name for name, _ in self.rows_of(text) if name not in self.context)

    def rows_of(self, text: str) -> list[tuple[str, re.Match[str]]]:
        """Return the rows that match a text which is not a line of the log."""
        line = Line(text[:LONGEST_LINE], text[:LONGEST_LINE])
        shape = prefilter.shape(line.text.encode("utf-8", "replace"))
        if (rows := self._of_shape.get(shape)) is None:
            if len(self._of_shape) > _SHAPES_OF_TEXTS:
                self._of_shape.clear()
            rows = self._of_shape[shape] = self.match_shapes([shape]).get(shape, ())
        return self.match_line(line, rows)


def signature_rows() -> Sequence[Row]:
    """Return all rows of the tables in checks/log."""
    modules = [importlib.import_module(f"mgpu.checks.log.{name}") for name in _family().ORDER]
    return [row for module in modules for row in getattr(module, "ROWS", ())]


def _family() -> Any:
    """Return the package of the tables, which declares their order and what their kinds mean."""
    from mgpu import engine

    engine.load()
    return importlib.import_module("mgpu.checks.log")


@functools.cache
def known_signatures() -> Signatures:
    """Return the signatures of all rows, prepared once."""
    return Signatures(signature_rows())
