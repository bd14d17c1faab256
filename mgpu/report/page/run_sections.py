"""The run on the page: what was started, the course of each rank, its stack, and the lines of the log that matter."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mgpu.quantities import duration_text, gib
from mgpu.report.page import timeline_drawing
from mgpu.report.page.machine_drawing import WIDTHS
from mgpu.report.page.markup import Html, Part, element, joined, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from mgpu.report.case.case_json import CaseDocument, RankCourseEntry, RunOfCaseEntry


def run(case: CaseDocument) -> Html:
    """Return the section of the run; empty if there is none."""
    found = case["run"]
    if found is None:
        return Html()
    facts: list[tuple[str, str]] = [
        ("Run", found["id"] or ""),
        ("Started", f"{found['started'].replace('T', ' ')[:19]} UTC" if found["started"] else ""),
        ("Took", duration_text(found["seconds"]) if found["seconds"] is not None else ""),
        ("Exit code", "" if found["exit_code"] is None else str(found["exit_code"])),
        ("No progress for", duration_text(found["quiet_s"]) if found["quiet_s"] else ""),
    ]
    known = [joined(element("dt", name), element("dd", value)) for name, value in facts if value]
    parts: list[Part] = [element("dl", *known, class_="facts")]
    if found["command"]:
        parts.append(element("pre", shlex.join(found["command"])))
    return joined(element("div", *parts, class_="card"), *_pictures(found), _ranks(found), *_stacks(found))


def _pictures(found: RunOfCaseEntry) -> list[Html]:
    quiet = ["quiet"] if found["quiet_s"] else []
    steps = [step for course in found["courses"] for step in course["steps"]]
    used = [
        name
        for name, here in (
            ("rest", True),
            ("loader", any(step["loader_s"] for step in steps)),
            ("wait", any(step["wait_s"] for step in steps)),
            ("optimizer", any(step["optimizer_s"] for step in steps)),
            ("saving", any(step["saving_s"] for step in steps)),
        )
        if here
    ]
    compared = any(step["wait_s"] is not None for step in steps)
    note = "" if compared or len(found["courses"]) < 2 else " Waiting for other ranks was not measured in these steps."
    kept = ["idle", *(["recorded"] if steps else []), *quiet]
    figures = (
        ("Ranks from start to end", timeline_drawing.lifetimes, kept, "A cross marks the rank that failed first."),
        ("The last steps", timeline_drawing.last_steps, used, f"Each block is one optimizer step.{note}"),
        ("A step, by rank", timeline_drawing.shares, ["rest", "loader", "wait", "optimizer"], "Medians."),
    )
    return [one for title, draw, names, text in figures if (one := _figure(title, draw, found, names, text))]


def _figure(
    title: str, draw: Callable[[RunOfCaseEntry, int], Html], found: RunOfCaseEntry, names: list[str], text: str
) -> Html | None:
    drawings = [element("div", drawn, class_=kind) for kind, width in WIDTHS if (drawn := draw(found, width))]
    if not drawings:
        return None
    return element(
        "figure",
        element("figcaption", element("b", title), f". {text}"),
        timeline_drawing.legend(names),
        *drawings,
        class_="card",
    )


def _ranks(found: RunOfCaseEntry) -> Html | None:
    courses = found["courses"]
    if not courses:
        return None
    hung = any(course["state"] for course in courses)
    heads = ("Rank", "Ended", "Steps", "Peak memory", *(("State", "Started collective") if hung else ()), "At")
    rows = [_rank(course, hung=hung) for course in courses]
    return element("div", table(heads, rows), class_="card")


def _rank(course: RankCourseEntry, *, hung: bool) -> tuple[Part, ...]:
    host, gpu = course["peak_host"], course["peak_gpu"]
    memory = ", ".join([*([f"{gib(host, tenths=True)} host"] if host else []), *([f"{gib(gpu)} GPU"] if gpu else [])])
    number: Part = f"{course['rank']}" + (f" ({course['host']})" if course["host"] else "")
    if course["failed"]:
        number = joined(number, " ", element("span", "first to fail", class_="tag fail"))
    more = (course["state"], course["waits_in"]) if hung else ()
    at = course["stack"][0] if course["stack"] else None
    own = next((line for line in course["stack"] if "  " in line), at)
    return (number, course["ended"], course["steps_done"], memory or None, *more, element("code", own) if own else None)


def _stacks(found: RunOfCaseEntry) -> list[Html]:
    return [
        element("details", element("summary", f"Stack of {ranks}, innermost first"), element("pre", text), open=True)
        for ranks, text in timeline_drawing.stacks(found["courses"])
        if text.count("\n") > 1
    ]


def log(case: CaseDocument) -> Html:
    """Return the lines of the log that matter, and its last lines; empty if there is no log."""
    parts: list[Part] = []
    if (ending := case.get("ending")) and ending["line"]:
        parts.append(element("p", f"The log shows that the run {ending['state']}: ", element("code", ending["line"])))
    if lines := case["log_lines"]:
        rows: list[tuple[Part, ...]] = []
        for one in lines:
            ranks = ", ".join(map(str, one["ranks"][:8])) + (" ..." if len(one["ranks"]) > 8 else "")
            times = f" ({one['times']} times)" if one["times"] > 1 else ""
            rows.append((one["place"] or None, ranks or None, element("code", one["text"]), f"{one['what']}{times}"))
        parts.append(table(("Place", "Ranks", "Line", "What"), rows))
    tail = case["run"]["tail"] if case["run"] else []
    if tail:
        summary = element("summary", f"The last {len(tail)} lines of its output")
        parts.append(element("details", summary, element("pre", "\n".join(tail)), open=not parts))
    return element("div", *parts, class_="card") if parts else Html()
