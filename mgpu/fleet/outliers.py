"""Find measured values that are far from the values of otherwise equal nodes.

Uses median and MAD, which a single extreme value does not move. A value is reported if it is more than six robust
standard deviations off in the bad direction, and by enough to matter. With fewer than eight nodes nothing is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from mgpu.fleet import field_kinds
from mgpu.fleet.flatten import Values
from mgpu.snapshot import Outlier
from mgpu.snapshot.field_types import Measure

LEAST = 8  # nodes
_FAR = 6.0  # robust standard deviations: noise on 1000 nodes does not reach it
_MAD = 1.4826  # makes the MAD of a normal distribution its standard deviation
_UNITS = (
    ("_gb_per_s", " GB/s"),
    ("_mbit_per_s", " Mbit/s"),
    ("_tflops", " TFLOPS"),
    ("_per_s", "/s"),
    ("_s", " s"),
    ("_c", " C"),
)
MEASURED = "measured."


def outliers(nodes: Mapping[str, Values], population: Sequence[str]) -> Iterator[Outlier]:
    """Yield the outliers among nodes that are equal except for single differences."""
    if len(population) < LEAST:
        return
    keys: dict[str, None] = {}
    for node in population:
        keys |= dict.fromkeys(nodes[node])
    for key in keys:
        measure = measure_of(key)
        if measure is None:
            continue
        values = {n: v for n in population if isinstance(v := nodes[n].get(key), (int, float)) and v is not True}
        if len(values) >= LEAST:
            yield from _find_outliers(key, measure, {node: float(value) for node, value in values.items()})


def measure_of(key: str) -> Measure | None:
    """Return how a key is measured; None if it is not a measurement."""
    if key.startswith(MEASURED):
        name = key.removeprefix(MEASURED)
        ending, unit = next(((ending, unit) for ending, unit in _UNITS if name.endswith(ending)), ("", ""))
        slow = ending in ("_s", "_c")
        what = name.removesuffix(ending).replace("_", " ")
        return Measure("high" if slow else "low", unit=unit, what=what)
    return field_kinds.measure_of(field_kinds.key_label(key).where)


def _find_outliers(key: str, measure: Measure, values: Mapping[str, float]) -> Iterator[Outlier]:
    median = statistics.median(values.values())
    spread = _MAD * statistics.median(abs(value - median) for value in values.values())
    margin = max(measure.share * abs(median), measure.least)
    spread = max(spread, margin / _FAR)  # if most values are identical, only the practical margin counts
    for node, value in values.items():
        off = value - median if measure.bad == "high" else median - value
        if off > margin and off > _FAR * spread:
            what = measure.what or field_kinds.key_label(key).what
            yield Outlier(node, key, what, value, median, round((value - median) / spread, 1), measure.unit)
