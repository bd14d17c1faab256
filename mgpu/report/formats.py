"""How are outcomes formatted for other programs: JUnit, GitHub, Markdown, Nagios, a Slurm prolog?

Pure functions from outcomes to text. `findings.py` shows them to a person, `document.py` writes them as JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mgpu.check import Crash, Fix, Problem, Skip
from mgpu.engine import Outcome, explained
from mgpu.engine.verdict import Verdict, condemning, nagios_code
from mgpu.errors import clip
from mgpu.messages import clean
from mgpu.report import describe, findings
from mgpu.report.document import counts, outcome_text
from mgpu.snapshot import Snapshot
from mgpu.text import counted
from mgpu.version import __version__

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from mgpu.report.json_types import StageStatus

FORMATS = ("human", "json", "junit", "github", "markdown")


@dataclass(frozen=True)
class Stage:
    """A stage of a smoke test, as a row or a testcase."""

    name: str
    title: str
    status: StageStatus
    seconds: float | None
    detail: str


@dataclass(frozen=True)
class Report:
    """The command, its verdict, and its stages (the doctor has none: its areas are the rows)."""

    command: str
    word: str
    text: str
    stages: tuple[Stage, ...] = ()


def doctor_report(outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: Verdict, seconds: float | None) -> Report:
    """Return the report of `mgpu doctor`."""
    return Report("mgpu doctor", *findings.verdict_text(outcomes, verdict, snapshot, seconds))


def problem_lines(problem: Problem) -> list[str]:
    """Return a problem in plain lines: what, why, what was read, how to fix it."""
    lines = [problem.title, f"Why: {problem.cause}"]
    if problem.evidence:
        lines.append("Read: " + ", ".join(f"{key} = {value}" for key, value in problem.evidence.items()))
    for fix in problem.fixes:
        lines += [
            f"{_label(fix)} ({findings.FIX_BY[fix.who]}): {fix.text}",
            *(f"  {command}" for command in fix.commands),
        ]
    return lines


def _waived(outcome: Outcome) -> list[str]:
    return [f"Waived: {outcome.waived.reason}"] if outcome.waived else []


def _label(fix: Fix) -> str:
    return "Stopgap" if fix.kind == "stopgap" else "Fix"


# ---- JUnit

# XML 1.0 cannot represent these. `clean` has already removed the control characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: object) -> str:
    return _NOT_XML.sub("?", clean(text))


class Judged(Protocol):
    """The parts of a command's result that every format needs."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcomes of the checks."""

    @property
    def snapshot(self) -> Snapshot:
        """The machine."""

    @property
    def verdict(self) -> str:
        """The verdict's key in JSON."""

    @property
    def seconds(self) -> float:
        """The duration in seconds."""


def text(
    format: str,
    judged: Judged,
    report: Report,
    details: Callable[[], str],
    changes: Sequence[str] = (),
    cause: str = "",
) -> str:
    """The report as JUnit, GitHub commands or Markdown. `details` renders the whole screen, for Markdown only.

    `cause`: the check that found the root cause of a failed run.
    """
    if format == "junit":
        return junit(judged.outcomes, judged.snapshot, judged.verdict, judged.seconds, report)
    if format == "github":
        return github(judged.outcomes, report, cause)
    return markdown(judged.outcomes, judged.snapshot, report, details(), changes)


@dataclass(frozen=True)
class _Case:
    """A testcase with its child elements: tag, attributes, text."""

    name: str
    seconds: float
    parts: Sequence[tuple[str, dict[str, str], str]]


_TOTALS = {"tests": "", "failures": "failure", "errors": "error", "skipped": "skipped"}


def junit(
    outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: str, seconds: float, report: Report | None = None
) -> str:
    """Return JUnit XML: a suite per area, a testcase per check. Stages are a suite of their own, before the others.

    A warning is a pass, with its text in system-out. A timeout or a crash is an error, so nothing unknown is green.
    """
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites", name=report.command if report else "mgpu doctor")
    stages = report.stages if report else ()
    suites = {"rungs": [_case_of_stage(one, report) for one in stages]} if report and stages else {}  # codespell:ignore
    for area in dict.fromkeys(o.check.area for o in outcomes):
        mine = [o for o in outcomes if o.check.area == area]
        ids = dict.fromkeys(o.check.id for o in mine)
        suites[area] = [_case_of_check(id, [o for o in mine if o.check.id == id]) for id in ids]
    for name, cases in suites.items():
        _add_suite(root, name, cases)
    for name in _TOTALS:
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in root)))
    root.set("time", f"{seconds:.3f}")
    properties = ElementTree.Element("properties")
    facts = {"mgpu": __version__, "verdict": verdict, "machine": describe.where(snapshot), "taken": snapshot.taken}
    for name, what in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=_xml(what or ""))
    if len(root):  # in the schema, properties belong to a suite
        root[0].insert(0, properties)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _add_suite(root: Element, name: str, cases: Sequence[_Case]) -> None:
    from xml.etree import ElementTree

    suite = ElementTree.SubElement(root, "testsuite", name=name)
    for one in cases:
        attributes = {"classname": f"mgpu.{name}", "name": one.name, "time": f"{one.seconds:.6f}"}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        for kind, attributes, text in one.parts:
            shown = {key: _xml(value) for key, value in attributes.items()}
            ElementTree.SubElement(case, kind, shown).text = _xml(text) or None
    for total, kind in _TOTALS.items():
        suite.set(total, str(len(suite.findall(f"testcase/{kind}") if kind else cases)))
    suite.set("time", f"{sum(one.seconds for one in cases):.6f}")


def _case_of_stage(stage: Stage, report: Report) -> _Case:
    """The failed stage has the verdict as its message."""
    part: tuple[str, dict[str, str], str] = ("system-out", {}, stage.detail)
    if stage.status == "skip":
        part = ("skipped", {"message": stage.detail}, "")
    elif stage.status == "fail":
        part = ("failure", {"type": stage.name, "message": report.text}, stage.detail)
    return _Case(stage.name, stage.seconds or 0.0, [part])


def _case_of_check(id: str, answers: Sequence[Outcome]) -> _Case:
    """Several problems of one check are one failure."""
    first = answers[0]
    seconds = sum(o.seconds for o in answers)
    if isinstance(first.answer, Crash):
        attributes = {"message": f"a bug in mgpu: {first.answer.error}", "type": id}
        return _Case(id, seconds, [("error", attributes, first.answer.trace)])
    if isinstance(first.answer, Skip):
        attributes = {"message": first.answer.reason}
        part = ("error", attributes | {"type": id}, "") if first.unsettling else ("skipped", attributes, "")
        return _Case(id, seconds, [part])
    found = [o.problem for o in answers if o.problem]
    if not found:
        return _Case(id, seconds, [])
    text = "\n\n".join("\n".join([*_waived(first), *problem_lines(problem)]) for problem in found)
    if first.because_of:
        text += f"\nExplained by: {', '.join(first.because_of)}"
    if first.status != "fail":
        return _Case(id, seconds, [("system-out", {}, f"{first.status}: {text}")])
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    return _Case(id, seconds, [("failure", {"message": found[0].title + more, "type": id}, text)])


# ---- GitHub


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: object) -> str:
    return _data(str(text)).replace(":", "%3A").replace(",", "%2C")


_COMMAND = {"fail": "error", "crash": "error", "warn": "warning", "info": "notice", "waived": "notice"}


def github(outcomes: Sequence[Outcome], report: Report, cause: str = "") -> str:
    """Return workflow commands that annotate the run, most severe first, and the verdict as the last line.

    What the check `cause` found is the first.

    GitHub shows at most ten annotations of each kind, so consequences are part of their cause's annotation.
    """
    lines = workflow_commands(outcomes, cause=cause)
    return "\n".join([*lines, clean(f"{report.word}  {report.text}")]) + "\n"


def workflow_commands(outcomes: Sequence[Outcome], base: str = "", cause: str = "") -> list[str]:
    """Return a workflow command for each problem, each unknown fact and each remark.

    Paths inside the folder `base` are relative to it.
    """
    roots = sorted(findings.in_order(outcomes), key=lambda outcome: outcome.check.id != cause)
    effects = explained(outcomes)
    lines = [_annotation(o, effects.get(id(o), []), base) for o in roots]
    unsettled = dict.fromkeys(
        (o.answer.reason, o.check.severity.value == "error")
        for o in outcomes
        if o.unsettling and isinstance(o.answer, Skip)
    )
    for reason in dict.fromkeys(reason for reason, _ in unsettled):
        grave = (reason, True) in unsettled
        lines.append(f"::{'error' if grave else 'warning'} title=unknown::{_data(reason)}")
    lines += [_annotation(o, (), base) for o in outcomes if o.status in ("info", "waived")]
    return lines


def path_in(base: str, file: str) -> str:
    """Return the path by which GitHub finds a file: relative to the repository."""
    whole, top = os.path.realpath(file), os.path.realpath(base)
    return os.path.relpath(whole, top) if base and whole.startswith(f"{top}{os.sep}") else file


def _annotation(outcome: Outcome, consequences: Iterable[Outcome], base: str = "") -> str:
    where = {"title": outcome.check.id}
    text = [outcome_text(outcome)]
    if problem := outcome.problem:
        text = [*_waived(outcome), *problem_lines(problem)]
        if problem.place:
            at = problem.place
            place = {"file": path_in(base, at.file), "line": at.line, "col": at.column}
            where = {key: str(value) for key, value in place.items() if value is not None} | where
    text += [f"Also {other.check.id}: {outcome_text(other)}" for other in consequences if other.problem]
    properties = ",".join(f"{key}={_property(value)}" for key, value in where.items())
    return f"::{_COMMAND[outcome.status]} {properties}::{_data(chr(10).join(text))}"


# ---- Markdown


def _cell(text: object) -> str:
    """Escape untrusted text for a table cell: no line breaks, no HTML, no mentions."""
    line = " ".join(clean(text).split())
    line = re.sub(r"([\\`*_\[\]|~])", r"\\\1", line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", line)


def _fenced(text: str, language: str = "") -> str:
    """A code block that its own content cannot end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def markdown_table(outcomes: Sequence[Outcome], snapshot: Snapshot, report: Report) -> str:
    """Return the verdict and a row per stage, or per group of areas, for the summary of a CI job."""
    lines = [f"### {report.command}: {report.word}", ""]
    lines += [f"{_cell(report.text)} On {_cell(describe.where(snapshot))}.", ""]
    lines += ["| | | |", "|:--|:--|:--|"]
    rows: list[tuple[str, str, str]] = [(stage.status, stage.title, stage.detail) for stage in report.stages] or [
        (status, label, text) for status, label, text, _ in findings.row_texts(outcomes, describe.rows(snapshot))
    ]
    for status, label, text in rows:
        shown = {"fail": "**FAIL**", "crash": "**crash**", "warn": "**warn**"}.get(status, status)
        lines.append(f"| {shown} | {label} | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def markdown(
    outcomes: Sequence[Outcome], snapshot: Snapshot, report: Report, details: str, changes: Sequence[str] = ()
) -> str:
    """Return a report to paste into an issue: verdict, rows, every problem with its fix, and the folded screen."""
    parts = [markdown_table(outcomes, snapshot, report)]
    for number, outcome in enumerate(findings.in_order(outcomes), 1):
        parts.append(_section(number, outcome))
    if accepted := [f"`{o.check.id}` {_cell(outcome_text(o))}: {_cell(o.waived.reason)}" for o in outcomes if o.waived]:
        parts.append("#### Waived\n\n" + "\n".join(f"- {line}" for line in accepted) + "\n")
    if changes:
        parts.append("#### What changed\n\n" + "\n".join(f"- {_cell(line)}" for line in changes) + "\n")
    parts.append(
        f"<details>\n<summary>Every check, evidence, topology (mgpu {__version__})</summary>\n\n"
        f"{_fenced(clean(details).strip(chr(10)), 'text')}\n\n</details>\n"
    )
    return "\n".join(parts)


def _section(number: int, outcome: Outcome) -> str:
    word = {"fail": "FAIL", "warn": "warn", "crash": "crash"}[outcome.status]
    lines = [f"#### {number}. `{outcome.check.id}` {word}", "", _cell(outcome_text(outcome)), ""]
    if problem := outcome.problem:
        lines += [f"**Why** {_cell(problem.cause)}", ""]
        for fix in problem.fixes:
            caveat = f" ({fix.caveat})" if fix.caveat else ""
            lines += [f"**{_label(fix)}** ({findings.FIX_BY[fix.who]}) {_cell(fix.text + caveat)}", ""]
            if fix.commands:
                lines += [_fenced(clean(chr(10).join(fix.commands)), "sh"), ""]
    return "\n".join(lines)


# ---- Nagios and Slurm

_NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")  # the words of its exit codes


def nagios(outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: Verdict, seconds: float, *, strict: bool) -> str:
    """Return `MGPU OK - ... | perfdata`, and a line for each problem below it."""
    word = _NAGIOS[nagios_code(verdict, strict=strict)]
    usable, there = findings.usable_gpus(snapshot)
    roots = findings.in_order(outcomes)
    number, unknown = counts(outcomes), sum(o.unknown for o in outcomes)
    if verdict == "no_gpu":
        text = "no NVIDIA GPU here"
    elif roots:
        more = f" (+{len(roots) - 1} more)" if len(roots) > 1 else ""
        text = f"{outcome_text(roots[0])}{more}"
    elif verdict == "unknown":
        text = next((o.answer.reason for o in outcomes if o.unsettling and isinstance(o.answer, Skip)), "unknown")
    else:
        text = f"{findings.usable_text(snapshot)}, {counted(sum(number.values()) - number['skip'], 'check')}"
    data = {
        "gpus": there,
        "usable": usable,
        "failures": number["fail"],
        "warnings": number["warn"],
        "not_possible": unknown,
        "time": f"{seconds:.1f}s",
    }
    first = f"MGPU {word} - {_line(text)} | {' '.join(f'{key}={value}' for key, value in data.items())}"
    return "\n".join([first, *(f"{o.status} {o.check.id}: {_line(outcome_text(o))}" for o in roots)]) + "\n"


def _line(text: str) -> str:
    return " ".join(clean(text).split()).replace("|", "/")


_LONGEST_REASON = 100  # characters that fit in `sinfo -R` and a log line


def prolog(outcomes: Iterable[Outcome]) -> str:
    """Return the reason to drain this node in one line; "" if the node can be used."""
    found = condemning(outcomes)
    if not found:
        return ""
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    end, text = f" [{found[0].check.id}]{more}", f"mgpu: {_line(outcome_text(found[0]))}"
    room = _LONGEST_REASON - len(end)
    return f"{clip(text, room)}{end}\n"
