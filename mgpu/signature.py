"""Log signatures: texts that a failure leaves in a log, with their meaning.

A table of `Row`s becomes a tuple of checks on the fact `log` (`checks/log/`). Reading a log only finds which rows match
which lines. The meaning is in the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from mgpu.check import Answer, Check, EffectOf, Evidence, Fix, Kind, Ok, Place, Problem, Role, Severity, Tag
from mgpu.command_line import shell
from mgpu.message_names import fill_file, fill_names, path_in_code
from mgpu.notebook_cells import without_cells
from mgpu.one_node import only_node
from mgpu.snapshot import Log, SignatureMatch, UncaughtException
from mgpu.text import counted

_TRACEBACK = "the traceback"
_OF_NODES: tuple[Kind, ...] = ("library", "nccl", "network")  # what a node has or lacks decides these
_WARNING = re.compile(r"(?:^|[\s/\\])(?P<place>[\w.-]+\.py:\d+): \w*Warning: (?P<said>.+)")
_ALIKE = 60  # characters of a message, after which another rank's text can follow in the same line


class Meaning(NamedTuple):
    """What a matched line means, where a table has more about it than its row. Nothing in it is a template."""

    title: str
    why: str
    fixes: tuple[Fix, ...]
    complete: bool = False  # the row's remark on the line's values would add something that is not so


# Whether a case applies, by the log and the exception that the line belongs to, if its traceback is in the log.
Applies: TypeAlias = Callable[["Log", "UncaughtException | None"], bool]
# The line's groups, and the exception that it belongs to, if its traceback is in the log.
Explain: TypeAlias = Callable[[Mapping[str, str], "UncaughtException | None"], "Meaning | None"]
# The same, with all that the log shows of the run.
ExplainWithLog: TypeAlias = Callable[["Log", Mapping[str, str], "UncaughtException | None"], "Meaning | None"]


@dataclass(frozen=True)
class Case:
    """What the failure of a row means in certain circumstances. Its texts are templates, as those of its row."""

    when: Applies  # made by checks/log/_circumstances.py
    title: str
    why: str
    fix: Fix | tuple[Fix, ...]
    sample: str  # a log in which it applies; a test reads it
    source: str  # URL, or "measured torch 2.13 CPU 2026-11"


@dataclass(frozen=True)
class Row:
    """One signature. `pattern` is searched in a line without torch's prefix, colors and carriage returns.

    `title`, `why` and the fix's text may contain the pattern's groups: "port {port} is taken". The fix's commands are
    templates for `mgpu.command_line.shell`, which also name a kind: "ss -ltn 'sport = :{port:number}'". Texts that
    point to the exception's traceback have `{the_traceback}`, which says so if the log does not have it. Texts of cases
    that require the script's own line have it as `{the_line}`, its place as `{the_place}`; those that require a
    circumstance have its line as `{shown_NAME}`.
    """

    id: str
    role: Role
    kind: Kind
    pattern: str  # of `re`; named groups become facts
    samples: tuple[str, ...]  # real lines, from old and new versions; tests match the pattern with each
    title: str  # what is wrong, in one line
    why: str
    fix: Fix | tuple[Fix, ...]
    source: str  # URL, or "measured torch 2.13 CPU 2026-11"
    because_of: tuple[str, ...] = ()
    summary: str = ""  # the check's first sentence; "": made from the title
    exit_code: int | None = None  # as in `Check`
    effect_of: EffectOf | None = None
    tags: tuple[Tag, ...] = ()
    explain: Explain | None = None  # a more specific meaning, or None for the row's own
    explain_in: ExplainWithLog | None = None  # in place of `explain`, if other lines of the log matter, too
    cases: tuple[Case, ...] = ()  # the first that applies replaces the row's own meaning
    remark: Callable[[str, Log], str] | None = None  # a sentence about the line's own values, after the reason; or ""

    @property
    def makes_check(self) -> bool:
        """Whether a matching line is a finding."""
        return self.role not in ("noise", "context")


@dataclass(frozen=True)
class Signature(Check):
    """A check made from a row."""

    row: Row | None = None


def signatures(module: str, rows: Sequence[Row]) -> tuple[Signature, ...]:
    """Return the checks of a table; `module` is the table's own `__name__`, which determines their area."""
    return tuple(_check(module, row) for row in rows if row.makes_check)


def _check(module: str, row: Row) -> Signature:
    def ask(log: Log) -> Answer:
        first = next((seen for seen in log.seen if seen.signature == row.id), None)
        if first is None:
            return _not_in(log.lines, len(log.files))
        if first.survived:
            return Ok(f"in line {first.line:,}, but the run went on after it")
        raised = _fullest([one for one in log.raised if row.id in one.signatures])
        groups = {**dict.fromkeys(re.compile(row.pattern).groupindex, "?"), **first.groups}
        meaning = _meaning(row, groups, log, raised)
        if row.role == "wrapper" and row.kind == "nccl" and log.nccl_error:
            meaning = meaning._replace(title=f"{meaning.title.partition(';')[0]}: {log.nccl_error}")
        node = only_node(log, first.ranks) if row.role == "root" and row.kind in _OF_NODES else None
        remark = row.remark(first.text, log) if row.remark and not meaning.complete else ""
        fixes = (_with_names(fix, first.text, raised) for fix in without_cells(meaning.fixes))
        return Problem(
            meaning.title,
            f"{meaning.why}{remark}{node.sentence if node else ''}",
            (*fixes, *((node.fix(log),) if node else ())),
            _evidence(first),
            tuple(f"rank {rank}" for rank in first.ranks),
            Place(first.file, first.line),
        )

    ask.__name__, ask.__module__ = row.id, module
    ask.__doc__ = _description(row)
    return Signature(
        ask,
        Severity.ERROR,
        row.source,
        row.because_of,
        row.role,
        row.kind,
        exit_code=row.exit_code,
        effect_of=row.effect_of,
        tags=row.tags,
        row=row,
    )


def _evidence(first: SignatureMatch) -> Evidence:
    details = {"line": first.text, "times": first.times, "rank": first.rank, "at": first.at}
    return {name: value for name, value in details.items() if isinstance(value, str | int)}


@lru_cache(16)
def _not_in(lines: int, files: int) -> Ok:
    """Return the answer of nearly all of a thousand checks, made once."""
    return Ok(f"not in {lines:,} lines of {counted(files, 'log')}")


def _fullest(found: Sequence[UncaughtException]) -> UncaughtException | None:
    """Return the first exception, or the same one of another rank whose traceback has more frames.

    Ranks that write to one file at the same time cut each other's tracebacks.
    """
    same = [one for one in found if one.type == found[0].type and one.message[:_ALIKE] == found[0].message[:_ALIKE]]
    return max(same, key=lambda one: (len({*one.frames}), sum(map(bool, one.own_lines))), default=None)


def _description(row: Row) -> str:
    summary = row.summary or f"{row.title[:1].upper()}{row.title[1:]}."
    fixes = row.fix if isinstance(row.fix, tuple) else (row.fix,)
    text = f"{summary}\n\nWhy: {row.why}\n\nFix: {' '.join(fix.text for fix in fixes)}"
    return text.replace("{the_traceback}", _TRACEBACK)


def the_traceback(raised: UncaughtException | None) -> str:
    """Return how a text calls the traceback of an exception; it says so if the log does not have it."""
    return _TRACEBACK if raised is not None and raised.frames else f"{_TRACEBACK} (not in this log)"


def names_file(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script's own line has the name of the file that it reads, which texts of cases call `{the_file}`."""
    return raised is not None and path_in_code(raised.own_code) is not None


def _own_line(raised: UncaughtException | None) -> dict[str, str]:
    """Return what texts of cases call the script's own line of an exception, its place, and the file it reads."""
    place = (raised.place if raised else None) or "a line that is not in this log"
    return {
        "the_place": place,
        "the_line": (raised.own_code if raised else None) or "not in this log",
        "the_file": path_in_code(raised.own_code if raised else None) or "a file",
    }


def _shown(log: Log) -> dict[str, str]:
    """Return what texts of cases call the lines of circumstances; of a warning its place and message."""
    found = {one.name: _WARNING.search(one.text) for one in log.shows}
    return {
        f"shown_{one.name}": f"{warned['place']}: {warned['said']}" if (warned := found[one.name]) else one.text
        for one in log.shows
    }


def _meaning(row: Row, groups: dict[str, str], log: Log, raised: UncaughtException | None) -> Meaning:
    special = row.explain(groups, raised) if row.explain else None
    if row.explain_in:
        special = row.explain_in(log, groups, raised)
    if special:
        return special
    groups = {**_shown(log), **groups, "the_traceback": the_traceback(raised), **_own_line(raised)}
    means: Row | Case = next((case for case in row.cases if case.when(log, raised)), row)
    return Meaning(
        means.title.format_map(groups),
        means.why.format_map(groups),
        tuple(_fill(fix, groups) for fix in (means.fix if isinstance(means.fix, tuple) else (means.fix,))),
    )


def _fill(fix: Fix, groups: dict[str, str]) -> Fix:
    commands = tuple(shell(command, **groups) for command in fix.commands)
    return replace(fix, text=fix.text.format_map(groups), commands=commands)


def _with_names(fix: Fix, message: str, raised: UncaughtException | None) -> Fix:
    path = path_in_code(raised.own_code if raised else None)
    return replace(fix, commands=tuple(fill_file(fill_names(command, message), path) for command in fix.commands))
