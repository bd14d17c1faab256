"""How are outcomes told to other programs: JUnit, GitHub, Markdown, Nagios, a Slurm prolog?

Pure functions from outcomes to text. `screen.py` tells them to a person, `document.py` as JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mgpu.check import Crash, Fix, Problem, Skip
from mgpu.engine import Outcome, consequences
from mgpu.engine.verdict import Verdict, condemning, nagios_code
from mgpu.messages import clean
from mgpu.report import describe, screen
from mgpu.report.document import counts, said
from mgpu.snapshot import Snapshot
from mgpu.version import __version__

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

FORMATS = ("human", "json", "junit", "github", "markdown")


@dataclass(frozen=True)
class Stage:
    """A rung of a smoke test, as a row or a testcase."""

    name: str
    title: str
    status: Literal["ok", "fail", "skip"]
    seconds: float | None
    detail: str


@dataclass(frozen=True)
class Report:
    """Who reports, what the verdict says, and the stages that led to it (the doctor has none: its areas are rows)."""

    command: str
    word: str
    text: str
    stages: tuple[Stage, ...] = ()


def doctors(outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: Verdict, seconds: float | None) -> Report:
    """What `mgpu doctor` says."""
    return Report("mgpu doctor", *screen.verdict_text(outcomes, verdict, snapshot, seconds))


def _told(problem: Problem) -> list[str]:
    """A problem in plain lines: what, why, what was read, how to mend it."""
    lines = [problem.title, f"Why: {problem.cause}"]
    if problem.evidence:
        lines.append("Read: " + ", ".join(f"{key} = {value}" for key, value in problem.evidence.items()))
    for fix in problem.fixes:
        lines += [f"{_label(fix)} ({fix.who}): {fix.text}", *(f"  {command}" for command in fix.commands)]
    return lines


def _label(fix: Fix) -> str:
    return "Stopgap" if fix.kind == "stopgap" else "Fix"


# ---- JUnit

# XML 1.0 has no way to write these at all; `clean` leaves none of the control characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: object) -> str:
    return _NOT_XML.sub("?", clean(text))


def junit(
    outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: str, seconds: float, told: Report | None = None
) -> str:  # fmt: skip
    """A suite per area, a testcase per check. A warning passed, with its words in system-out; what timed out or crashed
    is an error, so that nothing unknown is green. Stages are a suite of their own, before them."""
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites", name=told.command if told else "mgpu doctor")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if told and told.stages:
        _junit_stages(root, told, totals)
    for area in dict.fromkeys(o.check.area for o in outcomes):
        mine = [o for o in outcomes if o.check.area == area]
        suite = ElementTree.SubElement(root, "testsuite", name=area)
        number = dict.fromkeys(totals, 0)
        for id in dict.fromkeys(o.check.id for o in mine):
            answers = [o for o in mine if o.check.id == id]
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"mgpu.{area}", name=id, time=f"{sum(o.seconds for o in answers):.6f}"
            )
            number["tests"] += 1
            for kind, message, text in _verdicts(answers):
                part = ElementTree.SubElement(case, kind)
                if kind != "system-out":
                    number[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
                    part.set("message", _xml(message))
                if kind in ("failure", "error"):
                    part.set("type", id)
                part.text = _xml(text) or None
        for name, value in number.items():
            suite.set(name, str(value))
            totals[name] += value
        suite.set("time", f"{sum(o.seconds for o in mine):.6f}")
    for name, value in totals.items():
        root.set(name, str(value))
    root.set("time", f"{seconds:.3f}")
    properties = ElementTree.Element("properties")
    for name, what in (("mgpu", __version__), ("verdict", verdict), ("machine", describe.where(snapshot)),
                       ("taken", snapshot.taken)):  # fmt: skip
        ElementTree.SubElement(properties, "property", name=name, value=_xml(what or ""))
    if len(root):  # the schema puts them into a suite
        root[0].insert(0, properties)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _junit_stages(root: Element, told: Report, totals: dict[str, int]) -> None:
    """The suite `rungs`. The stage that failed bears the verdict."""
    from xml.etree import ElementTree

    number = dict.fromkeys(totals, 0)
    suite = ElementTree.SubElement(root, "testsuite", name="rungs")
    for stage in told.stages:
        case = ElementTree.SubElement(
            suite, "testcase", classname="mgpu.rungs", name=stage.name, time=f"{stage.seconds or 0.0:.6f}"
        )
        number["tests"] += 1
        if stage.status == "ok":
            ElementTree.SubElement(case, "system-out").text = _xml(stage.detail)
        elif stage.status == "skip":
            number["skipped"] += 1
            ElementTree.SubElement(case, "skipped").set("message", _xml(stage.detail))
        else:
            number["failures"] += 1
            part = ElementTree.SubElement(case, "failure", type=stage.name, message=_xml(told.text))
            part.text = _xml(stage.detail) or None
    for name, value in number.items():
        suite.set(name, str(value))
        totals[name] += value
    suite.set("time", f"{sum(stage.seconds or 0.0 for stage in told.stages):.6f}")


def _verdicts(answers: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    """What stands in a testcase: element, message, text. Several problems of one check are one failure."""
    first = answers[0]
    if isinstance(first.answer, Crash):
        return [("error", f"a bug in mgpu: {first.answer.error}", first.answer.trace)]
    if isinstance(first.answer, Skip):
        return [("error" if first.unsettling else "skipped", first.answer.reason, "")]
    found = [o.problem for o in answers if o.problem]
    if not found:
        return []
    text = "\n\n".join("\n".join(_told(problem)) for problem in found)
    if first.because_of:
        text += f"\nExplained by: {', '.join(first.because_of)}"
    if first.status != "fail":
        return [("system-out", "", f"{first.status}: {text}")]
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    return [("failure", found[0].title + more, text)]


# ---- GitHub


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: object) -> str:
    return _data(str(text)).replace(":", "%3A").replace(",", "%2C")


_COMMAND = {"fail": "error", "crash": "error", "warn": "warning", "info": "notice"}


def github(outcomes: Sequence[Outcome], told: Report) -> str:
    """Workflow commands that annotate the run, the gravest first; the verdict as the last line.

    A run shows ten annotations of a kind at most, so consequences stand with their cause.
    """
    lines = workflow_commands(outcomes)
    return "\n".join([*lines, clean(f"{told.word}  {told.text}")]) + "\n"


def workflow_commands(outcomes: Sequence[Outcome], base: str = "") -> list[str]:
    """A workflow command for each problem, each thing that should be known and is not, and each remark; files are named
    from the folder `base`, where they lie in it."""
    roots = screen.in_order(outcomes)
    lines = [_annotation(o, consequences(o, outcomes), base) for o in roots]
    unsettled = dict.fromkeys(
        (o.answer.reason, o.check.severity.value == "error")
        for o in outcomes
        if o.unsettling and isinstance(o.answer, Skip)
    )
    for reason in dict.fromkeys(reason for reason, _ in unsettled):
        grave = (reason, True) in unsettled
        lines.append(f"::{'error' if grave else 'warning'} title=not known::{_data(reason)}")
    lines += [_annotation(o, (), base) for o in outcomes if o.status == "info"]
    return lines


def _named_from(base: str, file: str) -> str:
    """A file as GitHub finds it: by its path in the repository."""
    whole, top = os.path.realpath(file), os.path.realpath(base)
    return os.path.relpath(whole, top) if base and whole.startswith(f"{top}{os.sep}") else file


def _annotation(outcome: Outcome, consequences: Iterable[Outcome], base: str = "") -> str:
    where = {"title": outcome.check.id}
    text = [said(outcome)]
    if problem := outcome.problem:
        text = _told(problem)
        if problem.place:
            at = problem.place
            place = {"file": _named_from(base, at.file), "line": at.line, "col": at.column}
            where = {key: str(value) for key, value in place.items() if value is not None} | where
    text += [f"Also {other.check.id}: {said(other)}" for other in consequences if other.problem]
    properties = ",".join(f"{key}={_property(value)}" for key, value in where.items())
    return f"::{_COMMAND[outcome.status]} {properties}::{_data(chr(10).join(text))}"


# ---- Markdown


def _cell(text: object) -> str:
    """Foreign text in a table: it stays in its cell, is no HTML, and calls nobody."""
    line = " ".join(clean(text).split())
    line = re.sub(r"([\\`*_\[\]|~])", r"\\\1", line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", line)


def _fenced(text: str, language: str = "") -> str:
    """A code block that its own content cannot end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def markdown_table(outcomes: Sequence[Outcome], snapshot: Snapshot, told: Report) -> str:
    """The verdict and a row per stage, or per group of areas: what stands in a job's summary."""
    lines = [f"### {told.command}: {told.word}", "", f"{_cell(told.text)} On {_cell(describe.where(snapshot))}.", ""]
    lines += ["| | | |", "|:--|:--|:--|"]
    rows: list[tuple[str, str, str]] = [(stage.status, stage.title, stage.detail) for stage in told.stages] or [
        (status, label, said_) for status, label, said_, _ in screen.row_texts(outcomes, describe.rows(snapshot))
    ]
    for status, label, said_ in rows:
        shown = {"fail": "**FAIL**", "crash": "**crash**", "warn": "**warn**"}.get(status, status)
        lines.append(f"| {shown} | {label} | {_cell(said_)} |")
    return "\n".join(lines) + "\n"


def markdown(
    outcomes: Sequence[Outcome], snapshot: Snapshot, told: Report, details: str, changes: Sequence[str] = ()
) -> str:  # fmt: skip
    """What to paste into an issue: verdict, rows, every problem with its fix; the whole screen folded away."""
    parts = [markdown_table(outcomes, snapshot, told)]
    for number, outcome in enumerate(screen.in_order(outcomes), 1):
        parts.append(_section(number, outcome))
    if changes:
        parts.append("#### What changed\n\n" + "\n".join(f"- {_cell(line)}" for line in changes) + "\n")
    parts.append(
        f"<details>\n<summary>Every check, evidence, topology (mgpu {__version__})</summary>\n\n"
        f"{_fenced(clean(details).strip(chr(10)), 'text')}\n\n</details>\n"
    )
    return "\n".join(parts)


def _section(number: int, outcome: Outcome) -> str:
    word = {"fail": "FAIL", "warn": "warn", "crash": "crash"}[outcome.status]
    lines = [f"#### {number}. `{outcome.check.id}` {word}", "", _cell(said(outcome)), ""]
    if problem := outcome.problem:
        lines += [f"**Why** {_cell(problem.cause)}", ""]
        for fix in problem.fixes:
            caveat = f" ({fix.caveat})" if fix.caveat else ""
            lines += [f"**{_label(fix)}** ({fix.who}) {_cell(fix.text + caveat)}", ""]
            if fix.commands:
                lines += [_fenced(clean(chr(10).join(fix.commands)), "sh"), ""]
    return "\n".join(lines)


# ---- Nagios and Slurm

_NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")  # the words of its exit codes


def nagios(outcomes: Sequence[Outcome], snapshot: Snapshot, verdict: Verdict, seconds: float, *, strict: bool) -> str:
    """`MGPU OK - … | perfdata`, and a line for each problem below it."""
    word = _NAGIOS[nagios_code(verdict, strict=strict)]
    roots = screen.in_order(outcomes)
    number, unknown = counts(outcomes), sum(o.unknown for o in outcomes)
    usable, there = screen.usable_gpus(snapshot)
    if verdict == "no_gpu":
        text = "no NVIDIA GPU here"
    elif roots:
        more = f" (+{len(roots) - 1} more)" if len(roots) > 1 else ""
        text = f"{said(roots[0])}{more}"
    elif verdict == "unknown":
        text = next((o.answer.reason for o in outcomes if o.unsettling and isinstance(o.answer, Skip)), "not known")
    else:
        text = f"{usable} of {there} GPUs usable, {sum(number.values()) - number['skip']} checks"
    data = {"gpus": there, "usable": usable, "failures": number["fail"], "warnings": number["warn"],
            "not_possible": unknown, "time": f"{seconds:.1f}s"}  # fmt: skip
    first = f"MGPU {word} - {_line(text)} | {' '.join(f'{key}={value}' for key, value in data.items())}"
    return "\n".join([first, *(f"{o.status} {o.check.id}: {_line(said(o))}" for o in roots)]) + "\n"


def _line(text: str) -> str:
    return " ".join(clean(text).split()).replace("|", "/")


_LONGEST_REASON = 100  # what `sinfo -R` and a log line still show of it


def prolog(outcomes: Iterable[Outcome]) -> str:
    """The reason in one line; empty where the node may be used."""
    found = condemning(outcomes)
    if not found:
        return ""
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    end, text = f" [{found[0].check.id}]{more}", f"mgpu: {_line(said(found[0]))}"
    room = _LONGEST_REASON - len(end)
    return f"{text if len(text) <= room else f'{text[: room - 3]}...'}{end}\n"
