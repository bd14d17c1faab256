"""Where is a rank, according to the stacks it dumped, and which ranks are elsewhere than the others?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mgpu.snapshot import Rank

_FRAME = re.compile(r'File "([^"]*)", line \d+ in (.+)')
# A rank that waits for others is in torch, or in a call of torch's C++ code by the smoke test itself.
_WAITS_IN = ("/torch/", "/accelerate/", "/smoke/ranks/")


def _main_thread(rank: Rank) -> list[str]:
    """Return the lines of the main thread, the innermost frame first. Threads of mgpu's own journal are skipped."""
    blocks = [block.splitlines() for block in (rank.stack or "").split("\n\n")]
    lines = next((b for b in reversed(blocks) if b and not any("journal.py" in line for line in b[:3])), [])
    return [line.strip() for line in lines if line.strip().startswith("File ")]


def _is_waiting_code(file: str) -> bool:
    return any(place in file for place in _WAITS_IN)


def python_location(rank: Rank) -> str | None:
    """Return the innermost Python line of a rank's main thread in its stack dump: "File …, line 7 in step"."""
    return next(iter(_main_thread(rank)), None)


def _functions(rank: Rank) -> tuple[tuple[str, str], ...]:
    """Return file and function of each frame of the main thread."""
    found = [_FRAME.match(line) for line in _main_thread(rank)]
    return tuple((match[1], match[2]) for match in found if match)


def are_at_different_places(ranks: Sequence[Rank]) -> bool:
    """Whether the stacks of the ranks show different functions; False if a rank has no stack."""
    found = {_functions(rank) for rank in ranks}
    return () not in found and len(found) > 1


def ranks_elsewhere(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the ranks that are at another place than those that wait; empty if that cannot be determined.

    Ranks in other code than torch, or called from code that is not in the stacks of the others, did not reach the
    operation that the others wait in. If all are in torch, those that differ from the majority stand out; of two ranks,
    neither does.
    """
    if not are_at_different_places(ranks):
        return []
    files = {rank.rank: {file for file, _ in _functions(rank) if not _is_waiting_code(file)} for rank in ranks}
    usual_files = set.intersection(*files.values())
    for outside in (
        [rank for rank in ranks if not _is_waiting_code(_functions(rank)[0][0])],
        [rank for rank in ranks if files[rank.rank] - usual_files],
    ):
        if 0 < len(outside) < len(ranks):
            return outside
    (usual, count), *_ = Counter(map(_functions, ranks)).most_common(1)
    return [rank for rank in ranks if _functions(rank) != usual] if 2 * count > len(ranks) else []


def is_waiting(rank: Rank) -> bool:
    """Whether the innermost Python frame of a rank is one that waits for other ranks."""
    frames = _functions(rank)
    return bool(frames) and _is_waiting_code(frames[0][0])
