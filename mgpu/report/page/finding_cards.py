"""Each finding as a card: what, why, how to fix it with the commands to copy, and what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mgpu.report import findings
from mgpu.report.page.markup import Html, Part, element, joined

if TYPE_CHECKING:
    from mgpu.report.case.case_json import CaseDocument, FindingEntry
    from mgpu.report.json_types import CauseEntry, FixEntry, FixOfCause, Scalar

_WORDS = {"fail": "fail", "warn": "warning", "crash": "bug in mgpu", "info": "note"}
_MOST = 60
_SECONDARY = 8


def first(case: CaseDocument) -> Html | None:
    """Return the first thing to do: the fix of the cause, or of the first finding; None without one."""
    cause = case.get("probable_cause")
    if cause is not None:
        return element("div", element("p", cause["cause"]), *_fixes(cause["fix"][:1]), class_="first")
    if not case["findings"]:
        return None
    one = case["findings"][0]
    title = element("p", element("b", one["title"]), " ", element("code", one["id"], class_="meta"))
    return element("div", title, *_fixes(one["fix"][:1]), class_="first")


def cards(case: CaseDocument) -> Html:
    """Return the cause of the run's end, what else was found on it, and the findings on everything else."""
    parts: list[Part] = []
    if cause := case.get("probable_cause"):
        parts.append(_cause(cause, "Probable cause", "fail"))
    effects = [one for one in case.get("secondary") or () if one["role"] != "noise"]
    if effects:
        shown = [_cause(one, "Also found", "") for one in effects[:_SECONDARY]]
        count = f"{len(effects)} more on the end of the run: effects of the cause, and later findings"
        parts.append(element("details", element("summary", count), *shown))
    found = case["findings"][:_MOST]
    parts += [_finding(one, f"{number} of {len(found)}") for number, one in enumerate(found, 1)]
    if not parts:
        parts = [element("p", "No problem was found.", class_="card")] if not case["gaps"] else []
    return joined(*parts, _rows(case), _gaps(case))


def _cause(cause: CauseEntry, label: str, status: str) -> Html:
    place = f"{cause['file'].rpartition('/')[2]}:{cause['line']}" if cause["file"] and cause["line"] else None
    return element(
        "article",
        element("h3", element("span", label, class_=f"tag {status}"), cause["title"]),
        _meta(cause["id"], cause["subjects"], place),
        element("p", cause["cause"]),
        *_fixes(cause["fix"]),
        _evidence(cause["evidence"]),
        class_=f"card {status}",
    )


def _finding(one: FindingEntry, position: str) -> Html:
    status = one["status"]
    place = one.get("file")
    if place and one.get("line"):
        place = f"{place}:{one['line']}"
    also = [element("li", text) for text in one.get("also", ())]
    return element(
        "article",
        element("h3", element("span", _WORDS.get(status, status), class_=f"tag {status}"), one["title"]),
        _meta(one["id"], one.get("subjects", ()), place, position),
        element("p", one["cause"]) if one["cause"] else None,
        *_fixes(one["fix"]),
        element("ul", *also, class_="also") if also else None,
        _evidence(one["evidence"]),
        element("pre", one["trace"]) if one.get("trace") else None,
        class_=f"card {status}",
    )


def _meta(id: str, subjects: Sequence[str], place: str | None, position: str = "") -> Html:
    parts: list[Part] = [element("code", id)]
    parts += [f" · {text}" for text in (", ".join(subjects[:16]), place or "", position) if text]
    return element("p", *parts, class_="meta")


def _fixes(fixes: Sequence[FixEntry] | Sequence[FixOfCause]) -> list[Html]:
    shown = []
    for fix in fixes:
        label = "Stopgap" if fix["kind"] == "stopgap" else "Fix"
        by = "" if fix["who"] == "you" else f" (by {findings.FIX_BY[fix['who']]})"
        caveat = f" ({fix['caveat']})" if fix["caveat"] else ""
        shown.append(
            element(
                "div",
                element("p", element("b", f"{label}{by}"), f"{fix['text']}{caveat}"),
                element("pre", "\n".join(fix["commands"]), class_="command") if fix["commands"] else None,
                class_="fix",
            )
        )
    return shown


def _evidence(evidence: Mapping[str, Scalar]) -> Html | None:
    known = [(key, value) for key, value in evidence.items() if value is not None]
    if not known:
        return None
    parts = [joined(element("dt", key.replace("_", " ")), element("dd", str(value))) for key, value in known]
    return element("dl", *parts, class_="facts")


def _rows(case: CaseDocument) -> Html | None:
    """Return one line for each area that was examined."""
    words = {"fail": "fail", "warn": "warn", "crash": "crash", "skip": "skip", "info": "info", "ok": "ok"}
    parts: list[Part] = []
    for row in case["rows"]:
        parts += [
            element("span", words[row["status"]], class_=f"tag {row['status']}"),
            element("b", row["label"]),
            element("span", row["text"], class_="what"),
        ]
    return element("div", element("div", *parts, class_="rows"), class_="card") if parts else None


def _gaps(case: CaseDocument) -> Html | None:
    """Return what could not be read, and why."""
    reasons: dict[str, list[str]] = {}
    for fact, gap in case["gaps"].items():
        if gap["kind"] != "not_asked":
            reasons.setdefault(gap["reason"], []).append(fact.replace("_", " "))
    if not reasons:
        return None
    items = [element("li", element("b", ", ".join(facts)), f": {reason}") for reason, facts in reasons.items()]
    return element("div", element("h3", "Could not be read"), element("ul", *items), class_="card")
