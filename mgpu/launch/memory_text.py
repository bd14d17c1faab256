"""The peak memory of the ranks in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu import quantities
from mgpu.report.json_types import EndedRankEntry
from mgpu.text import counted

_EQUAL = 0.1  # of the largest: a smaller difference is not worth naming the ranks
_SHOWN = 4


def memory_text(ranks: Sequence[EndedRankEntry]) -> str:
    """Return the peaks; empty if none is known."""
    kinds = (("host", "peak_host"), ("GPU allocated", "peak_allocated"), ("GPU reserved", "peak_reserved"))
    found = []
    for name, field in kinds:
        known = {one["rank"]: one.get(field) for one in ranks}
        sizes = {rank: size for rank, size in known.items() if isinstance(size, int)}
        if sizes:
            found.append(f"{name} {_sizes(sizes)}")
    unknown = [one["rank"] for one in ranks if one.get("peak_host") is None]
    if found and unknown:
        found.append(f"not known for {f'rank {unknown[0]}' if len(unknown) == 1 else counted(len(unknown), 'rank')}")
    return f"peak: {'; '.join(found)}" if found else ""


def _sizes(sizes: Mapping[int, int]) -> str:
    largest = max(sizes.values())
    if len(sizes) == 1 or largest - min(sizes.values()) <= _EQUAL * largest:
        return quantities.gib(largest, tenths=True) + (" on each rank" if len(sizes) > 1 else "")
    ordered = sorted(sizes.items(), key=lambda one: (-one[1], one[0]))
    texts = [f"{quantities.gib(size, tenths=True)} (rank {rank})" for rank, size in ordered[:_SHOWN]]
    return ", ".join(texts) + (f" and {len(sizes) - _SHOWN} more" if len(sizes) > _SHOWN else "")
