"""What a smoke test measured, as curves: bandwidth by message size, and samples per second by number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.quantities import gib
from mgpu.report.page.markup import Html, element

if TYPE_CHECKING:
    from mgpu.report.case.case_json import SmokeTestEntry

_W, _H, _LEFT, _TOP, _BOTTOM, _RIGHT = 380, 230, 44, 14, 34, 12
_COLORS = 7


def bandwidth(test: SmokeTestEntry) -> Html:
    """Return the bus bandwidth of each collective over the message size; nothing if it was not measured."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for one in test["bandwidth"]:
        if one["size_bytes"] > 0 and one["busbw_gb_per_s"] > 0:
            label = f"{one['collective']}, {one['ranks']} ranks"
            curves.setdefault(label, []).append((math.log2(one["size_bytes"]), one["busbw_gb_per_s"]))
    if not curves:
        return Html()
    sizes = sorted({x for points in curves.values() for x, _ in points})
    marks = [(x, gib(2**x).replace(" ", "\N{NO-BREAK SPACE}")) for x in _few(sizes)]
    return _plot("Bus bandwidth by message size", "GB/s", curves, marks)


def scaling(test: SmokeTestEntry) -> Html:
    """Return samples per second over the number of ranks, with the ideal line; nothing if it was not measured."""
    points = [(float(one["ranks"]), one["samples_per_s"]) for one in test["scaling"]]
    if len(points) < 2:
        return Html()
    each = points[0][1] / points[0][0] if points[0][0] else 0.0
    curves = {"measured": points, "ideal": [(ranks, ranks * each) for ranks, _ in points]}
    return _plot("Samples per second by ranks", "samples/s", curves, [(ranks, f"{ranks:g}") for ranks, _ in points])


def _few(values: Sequence[float]) -> list[float]:
    """Return at most four of the values, with the first and the last."""
    if len(values) <= 4:
        return list(values)
    return [values[round(part * (len(values) - 1) / 3)] for part in range(4)]


def _plot(
    title: str, unit: str, curves: dict[str, list[tuple[float, float]]], marks: Sequence[tuple[float, str]]
) -> Html:
    xs = [x for points in curves.values() for x, _ in points]
    low, high = min(xs), max(xs)
    top = max(y for points in curves.values() for _, y in points) * 1.08 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_W - _LEFT - _RIGHT), _H - _BOTTOM - y / top * (_H - _TOP - _BOTTOM)

    parts = [element("title", title)]
    for share in (0.0, 0.5, 1.0):
        y = place(low, share * top / 1.08)[1]
        parts.append(element("line", class_="tick" if share else "axis", x1=_LEFT, y1=y, x2=_W - _RIGHT, y2=y))
        parts.append(element("text", _figure(share * top / 1.08), class_="small soft end", x=_LEFT - 5, y=y + 4))
    parts.append(element("text", unit, class_="small soft", x=_LEFT + 4, y=_TOP - 2))
    for x, text in marks:
        kind = "small soft end" if x == high and high > low else "small soft mid" if x > low else "small soft"
        parts.append(element("text", text, class_=kind, x=place(x, 0)[0], y=_H - _BOTTOM + 15))
    for number, points in enumerate(curves.values()):
        where = [place(*point) for point in sorted(points)]
        color = number % _COLORS if len(curves) <= _COLORS else _COLORS - 1
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        parts.append(element("polyline", class_=f"curve s{color}", points=line))
        parts += [element("circle", class_=f"dot f{color}", cx=x, cy=y, r=3) for x, y in where]
    drawn = element("svg", *parts, viewBox=f"0 0 {_W} {_H}", role="img")
    from mgpu.report.page.timeline_drawing import swatch

    items = [element("span", swatch(f"f{number % _COLORS}"), name) for number, name in enumerate(curves)]
    legend = element("div", *items, class_="legend")
    return element("figure", element("figcaption", element("b", title)), drawn, legend, class_="card")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
