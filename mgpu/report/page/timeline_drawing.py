"""The run as a picture: how long each rank was there, its last steps, and what a step of each rank was spent on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from mgpu.errors import clip
from mgpu.quantities import duration_text
from mgpu.report.page.markup import Html, element, joined

if TYPE_CHECKING:
    from mgpu.report.case.case_json import RankCourseEntry, RunOfCaseEntry, StepEntry

_LABEL, _LABEL_WITH_HOST, _ROW, _BAR, _AXIS = 62, 148, 26, 16, 22
_LONGEST_HOST = 13  # characters
_MOST_ROWS = 32
_MOST_STEPS = 40
# The parts of a step, in the order in which they are drawn.
PARTS = (
    ("rest", "forward and backward"),
    ("loader", "waits for a batch"),
    ("wait", "waits for the last rank"),
    ("optimizer", "optimizer"),
    ("saving", "saves"),
)


def lifetimes(run: RunOfCaseEntry, width: int) -> Html:
    """Return each rank from the start of the run to its end, with its last steps and the time without progress."""
    courses, seconds = run["courses"][:_MOST_ROWS], run["seconds"]
    if not courses or not seconds:
        return Html()
    left = _left(run)
    scale = (width - left - 14) / seconds
    parts: list[Html] = [element("title", "Each rank from the start of the run to its end")]
    for number, course in enumerate(courses):
        y = number * _ROW
        end = min(seconds, course["end_s"] if course["end_s"] is not None else seconds)
        parts += [
            _label(course, left, y),
            element("rect", class_="p-idle", x=left, y=y + 3, width=max(1.0, end * scale), height=_BAR, rx=3),
            *_lifetime(course, run, y, scale, end),
        ]
    height = len(courses) * _ROW
    parts += _time_axis(seconds, scale, height, left)
    return element("svg", *parts, viewBox=f"0 0 {width} {height + _AXIS}", role="img")


def _lifetime(course: RankCourseEntry, run: RunOfCaseEntry, y: int, scale: float, end: float) -> Iterable[Html]:
    """Yield what happened in the bar of one rank."""
    left = _left(run)
    if steps := course["steps"]:
        first = max(0.0, steps[0]["end_s"] - _length(steps[:2]))
        last = min(end, steps[-1]["end_s"])
        long = max(1.0, (last - first) * scale)
        yield element("rect", class_="p-recorded", x=left + first * scale, y=y + 3, width=long, height=_BAR, rx=3)
    if (quiet := run["quiet_s"]) and course["state"]:
        since = max(0.0, end - quiet)
        x, long = left + since * scale, max(1.0, (end - since) * scale)
        yield element("rect", class_="p-quiet", x=x, y=y + 3, width=long, height=_BAR, rx=3)
    if course["failed"]:
        x = left + end * scale
        path = f"M{x - 5:.1f} {y + 6}l10 10M{x + 5:.1f} {y + 6}l-10 10"
        yield element("path", element("title", course["ended"]), class_="mark", d=path)


def _time_axis(seconds: float, scale: float, height: int, left: int) -> list[Html]:
    ticks = [0.0, seconds / 2, seconds]
    parts = [element("line", class_="axis", x1=left, y1=height + 1, x2=left + seconds * scale, y2=height + 1)]
    for number, at in enumerate(ticks):
        kind = ("soft small", "soft small mid", "soft small end")[number]
        text = duration_text(at) if at >= 10 or not at else f"{at:.1f} s"
        parts.append(element("text", text, class_=kind, x=left + at * scale, y=height + 15))
    return parts


def last_steps(run: RunOfCaseEntry, width: int) -> Html:
    """Return the last steps of each rank, each with the parts of its time; nothing if no rank has two of them."""
    shown = [(course, course["steps"][-_MOST_STEPS:]) for course in run["courses"][:_MOST_ROWS]]
    known = [(course, steps) for course, steps in shown if len(steps) > 1]
    if not known:
        return Html()
    begin = min(steps[0]["end_s"] for _, steps in known)
    end = max(steps[-1]["end_s"] for _, steps in known)
    left = _left(run)
    scale = (width - left - 14) / max(end - begin, 1e-9)
    parts: list[Html] = [element("title", "The last steps of each rank")]
    for number, (course, steps) in enumerate(known):
        y = number * _ROW
        parts += [_label(course, left, y), *_steps_of(steps, begin - left / scale, scale, y)]
    height = len(known) * _ROW
    numbers = (known[0][1][0]["number"], known[0][1][-1]["number"])
    parts += [
        element("text", f"step {numbers[0]}", class_="soft small", x=left, y=height + 15),
        element("text", f"step {numbers[1]}", class_="soft small end", x=width - 14, y=height + 15),
    ]
    return element("svg", *parts, viewBox=f"0 0 {width} {height + _AXIS}", role="img")


def _steps_of(steps: Sequence[StepEntry], begin: float, scale: float, y: int) -> list[Html]:
    """Return the bars of one rank, one path per part, so that the page stays small. `begin`: the time at x = 0."""
    paths: dict[str, list[str]] = {name: [] for name, _ in PARTS}
    for before, step in pairwise(steps):
        start, left = before["end_s"], max(0.0, step["end_s"] - before["end_s"])
        seconds = {
            "loader": step["loader_s"],
            "wait": step["wait_s"] or 0.0,
            "optimizer": step["optimizer_s"],
            "saving": step["saving_s"],
        }
        gap = min(0.8 / scale, left / 4)
        left -= gap
        rest = max(0.0, left - sum(seconds.values()))
        for name, long in (("loader", seconds["loader"]), ("rest", rest), *list(seconds.items())[1:]):
            long = min(long, left)
            if long * scale >= 0.05:
                x = (start - begin) * scale
                paths[name].append(f"M{x:.1f} {y + 3}h{long * scale:.1f}v{_BAR}h-{long * scale:.1f}z")
            start, left = start + long, left - long
    return [element("path", class_=f"p-{name}", d="".join(path)) for name, path in paths.items() if path]


def shares(run: RunOfCaseEntry, width: int) -> Html:
    """Return what a step of each rank is spent on, as bars of medians; nothing if the ranks were not compared."""
    known = [(course, pace) for course in run["courses"][:_MOST_ROWS] if (pace := course["pace"])]
    if not known:
        return Html()
    most = max(pace["loader_s"] + pace["wait_s"] + pace["optimizer_s"] + pace["rest_s"] for _, pace in known)
    left = _left(run)
    scale = (width - left - 80) / max(most, 1e-9)
    parts: list[Html] = [element("title", "What a step of each rank is spent on: medians")]
    for number, (course, pace) in enumerate(known):
        y, x = number * _ROW, float(left)
        parts.append(_label(course, left, y))
        for name, long in (
            ("loader", pace["loader_s"]),
            ("rest", pace["rest_s"]),
            ("wait", pace["wait_s"]),
            ("optimizer", pace["optimizer_s"]),
        ):
            if long * scale >= 0.3:
                bar = element("title", f"{name}: {1000 * long:.1f} ms")
                parts.append(
                    element("rect", bar, class_=f"p-{name}", x=x, y=y + 3, width=long * scale, height=_BAR, rx=1)
                )
            x += long * scale
        parts.append(element("text", f"last {pace['last_share']:.0%}", class_="soft small", x=x + 6, y=y + 15))
    return element("svg", *parts, viewBox=f"0 0 {width} {len(known) * _ROW + 4}", role="img")


def name(course: RankCourseEntry) -> str:
    """Return the name of a rank, with its host if there are several."""
    return f"rank {course['rank']}" + (f" ({clip(course['host'], _LONGEST_HOST)})" if course["host"] else "")


def _left(run: RunOfCaseEntry) -> int:
    """Return the width of the ranks' names."""
    return _LABEL_WITH_HOST if any(course["host"] for course in run["courses"]) else _LABEL


def _label(course: RankCourseEntry, left: int, y: int) -> Html:
    kind = "soft small end" if course["host"] else "soft end"
    return element("text", name(course), class_=kind, x=left - 8, y=y + 14)


def legend(names: Iterable[str]) -> Html:
    """Return the meaning of the colors."""
    wanted = set(names)
    items = [element("span", swatch(f"p-{name}"), text) for name, text in (*PARTS, *_OTHERS) if name in wanted]
    return element("div", *items, class_="legend")


_OTHERS = (("idle", "running"), ("recorded", "last recorded steps"), ("quiet", "no progress"))


def swatch(kind: str) -> Html:
    """Return a small square of a color."""
    return element("svg", element("rect", class_=kind, width=12, height=12, rx=2), viewBox="0 0 12 12")


def _length(steps: Sequence[StepEntry]) -> float:
    return steps[1]["end_s"] - steps[0]["end_s"] if len(steps) > 1 else 0.0


def stacks(courses: Sequence[RankCourseEntry]) -> list[tuple[str, Html]]:
    """Return the stacks of the ranks, equal ones once: the ranks, and the stack."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for course in courses:
        if course["stack"]:
            groups.setdefault(tuple(course["stack"]), []).append(course["rank"])
    return [
        (f"rank {', '.join(map(str, ranks))}", joined(*(f"{clip(line, 200)}\n" for line in stack)))
        for stack, ranks in groups.items()
    ]
