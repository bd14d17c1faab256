"""How does `mgpu doctor --from FILE.mgpu.tar.gz` report the run of a case?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mgpu.engine import Outcome, verdict
from mgpu.report import failure
from mgpu.report.case import case_document
from mgpu.report.screen import Line, Screen, Style

if TYPE_CHECKING:
    from mgpu.doctor.result import Examined
    from mgpu.engine.verdict import Verdict
    from mgpu.report.case.case_json import CaseDocument

_TRIAGE = ("first_failure", "probable_cause", "secondary", "log")  # keys of a case that are those of --log
_STYLES: dict[str, Style] = {"ok": "ok", "warn": "warn", "fail": "fail", "unknown": "crash"}


def case_of(found: Examined) -> CaseDocument:
    """Return the document of a case."""
    return case_document.of_outcomes(found.snapshot, found.outcomes, found.verdict, found.code)


def triage(found: Examined) -> Any:
    """Return why the run ended, with the keys of `--log`."""
    case: Any = case_of(found)
    return {key: case[key] for key in _TRIAGE if key in case}


def lines(found: Examined, screen: Screen) -> list[Line]:
    """Return how the run ended, and why."""
    case = case_of(found)
    headline, timeline = case["headline"], found.snapshot.timeline
    name = f"Run {timeline.id}: " if timeline else ""
    report: list[Line] = [[(name, "bold"), (headline["word"], _STYLES[headline["light"]])]]
    report += screen.paragraph(headline["text"])
    if case.get("probable_cause") or case.get("first_failure"):
        report += failure.lines(case, screen, case["run"]["ranks"] if case["run"] else ())
    return [*report, []]


def of_machine(found: Examined) -> tuple[tuple[Outcome, ...], Verdict]:
    """Return the outcomes on everything but the end of the run, and their verdict."""
    _, others = case_document.split(found.snapshot, found.outcomes)
    return tuple(others), verdict.of_machine(others, replace(found.snapshot, log=None))
