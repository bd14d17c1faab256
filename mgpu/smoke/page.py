"""How is a smoke test written as one HTML page (`--format html`)? The page is that of `mgpu launch --report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mgpu.engine import Outcome, Status
from mgpu.report.case import case_document
from mgpu.report.page import html_page
from mgpu.smoke import own_command, script_section
from mgpu.smoke import report as smoke_report
from mgpu.smoke.screen import TITLES

if TYPE_CHECKING:
    from mgpu.engine.verdict import SmokeVerdict
    from mgpu.report.case.case_json import HeadlineEntry, Light, RowEntry
    from mgpu.report.screen import Style
    from mgpu.smoke.report import Result
    from mgpu.snapshot import Rehearsal, Snapshot

_LIGHTS: dict[Style, Light] = {"ok": "ok", "fail": "fail"}


def text(result: Result) -> str:
    """Return the page of a finished test, whose facts are redacted."""
    word, style, why = smoke_report.head(result)
    headline: HeadlineEntry = {"word": word, "light": _LIGHTS.get(style, "unknown"), "text": why}
    return _page(result.snapshot, result.outcomes, result.verdict, result.code, headline, list(_rows(result)))


def text_unstarted(snapshot: Snapshot, outcomes: Sequence[Outcome], verdict: SmokeVerdict, code: int, why: str) -> str:
    """Return the page of a test that was not started."""
    headline: HeadlineEntry = {"word": "NOT STARTED", "light": "fail", "text": why}
    rows = [_row("skip", title, "not started") for title in TITLES.values()]
    return _page(snapshot, outcomes, verdict, code, headline, rows)


def _page(
    snapshot: Snapshot,
    outcomes: Sequence[Outcome],
    verdict: SmokeVerdict,
    code: int,
    headline: HeadlineEntry,
    rows: Sequence[RowEntry],
) -> str:
    case = case_document.of_smoke_test(snapshot, outcomes, verdict, code, headline, rows)
    for entry in (*case["checks"], *case["findings"]):
        entry["verify"] = own_command.COMMAND
    return html_page.text(case)


def _rows(result: Result) -> Iterator[RowEntry]:
    """Yield a row for each stage, then those of the user's script."""
    for stage in smoke_report.stages(result.ranks):
        took = f" ({stage.seconds:.1f}s)" if stage.seconds is not None and stage.status == "ok" else ""
        yield _row(stage.status, TITLES[stage.name], f"{stage.detail or ''}{took}")
    for reason in smoke_report.skips(result.ranks):
        yield _row("skip", "not tested", reason)
    if result.snapshot.rehearsal is not None:
        yield from _of_script(result.snapshot.rehearsal, result.outcomes)


def _of_script(rehearsal: Rehearsal, outcomes: Sequence[Outcome]) -> Iterator[RowEntry]:
    name = script_section.name(rehearsal)
    for _, label, status, found in script_section.groups(outcomes):
        yield _row(status, f"{name}: {label}", found)
    for note in script_section.notes(rehearsal):
        yield _row("info", name, note)


def _row(status: Status, label: str, found: str) -> RowEntry:
    return {"status": status, "label": label, "text": found}
