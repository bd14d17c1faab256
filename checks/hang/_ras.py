"""What NCCL's RAS adds to a verdict, as a sentence."""

from __future__ import annotations

from mgpu.snapshot import Hang, RasCommunicator, RasCount
from mgpu.text import listed

_MOST_RANKS = 8
_MOST_COMMUNICATORS = 2


def sentence(hang: Hang) -> str:
    """Return which ranks do not answer to NCCL's RAS, and which are behind; "" if it reports no problem."""
    said = [part for one in hang.ras[:_MOST_COMMUNICATORS] for part in _parts(one)]
    return f"NCCL's RAS: {'; '.join(said)}." if said else ""


def _parts(one: RasCommunicator) -> list[str]:
    parts = [f"{_ranks(one.missing)} of communicator {one.name} did not answer"] if one.missing else []
    operations = list(dict.fromkeys(count.operation for count in one.counts))
    for operation in operations[:2]:
        counts = sorted((c for c in one.counts if c.operation == operation), key=lambda c: c.launched)
        parts.append(f"{operation}: {', '.join(map(_count, counts))}")
    return [*parts, *one.errors[:2]]


def _count(count: RasCount) -> str:
    return f"{_ranks(count.ranks) if count.ranks else f'{count.number} ranks'} launched {count.launched:,}"


def _ranks(numbers: tuple[int, ...]) -> str:
    more = [f"{len(numbers) - _MOST_RANKS} more"] if len(numbers) > _MOST_RANKS else []
    shown = [*map(str, numbers[:_MOST_RANKS]), *more]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {listed(shown)}"
