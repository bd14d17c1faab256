"""Which collectives did a rank start, according to torch's flight recorder?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgpu.readers.stack_dump import frame_at
from mgpu.secrets_masking import masked
from mgpu.snapshot import Collective, StackFrame
from mgpu.snapshot.hang_facts import own_frame
from mgpu.text import clean

_MOST = 64  # collectives of a rank that are compared


def collectives(content: Mapping[str, Any], *, with_code: bool = True) -> tuple[Collective, ...]:
    """Return the last collectives, oldest first. `content`: what the recorder in a rank wrote."""
    entries = content.get("entries")
    found = [_collective(entry, with_code) for entry in (entries if isinstance(entries, list) else [])[-_MOST:]]
    return tuple(one for one in found if one is not None)


def timeout_s(content: Mapping[str, Any]) -> float | None:
    """Return after how many seconds torch gives up on the last collective."""
    entries = content.get("entries")
    last = entries[-1] if isinstance(entries, list) and entries else None
    found = last.get("timeout_ms") if isinstance(last, dict) else None
    return found / 1000 if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def backend(content: Mapping[str, Any]) -> str | None:
    """Return the backend of the last collective: gloo, nccl."""
    entries = content.get("entries")
    last = entries[-1] if isinstance(entries, list) and entries else None
    name = plain(last.get("profiling_name")) if isinstance(last, dict) else ""
    return masked(clean(name.partition(":")[0]))[:20] if ":" in name else None


def plain(value: Any) -> str:
    """Return a text or number as text, "" for anything else: lists of a pickle that share parts may have no end."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _collective(entry: Any, with_code: bool) -> Collective | None:
    if not isinstance(entry, dict):
        return None
    p2p = bool(entry.get("is_p2p"))
    sequence = entry.get("p2p_seq_id" if p2p else "collective_seq_id")
    group = entry.get("process_group")
    if not isinstance(sequence, int) or not isinstance(group, Sequence):
        return None
    called = plain(entry.get("profiling_name", "collective"))
    name = called.partition(":")[2] or called
    is_open = not entry.get("retired") and entry.get("state") != "completed"
    frames = [frame for one in _list(entry.get("frames")) if (frame := _frame(one, with_code)) is not None]
    return Collective(
        masked(clean(name))[:60],
        masked(clean(plain(group[0] if group else "")))[:60],
        sequence,
        _shape(entry),
        is_open,
        p2p,
        own_frame(frames),
    )


def _frame(found: Any, with_code: bool) -> StackFrame | None:
    if not isinstance(found, list) or len(found) != 3 or not isinstance(found[1], int):
        return None
    return frame_at(plain(found[0]), found[1], plain(found[2]), with_code=with_code)


def _shape(entry: Mapping[str, Any]) -> str:
    sizes, dtypes = _list(entry.get("input_sizes")), _list(entry.get("input_dtypes"))
    if not sizes or not isinstance(sizes[0], list) or not dtypes:
        return ""
    shape = " x ".join(map(plain, sizes[0])) or "scalar"
    more = f" and {len(sizes) - 1} more" if len(sizes) > 1 else ""
    return masked(clean(f"{shape} {plain(dtypes[0])}{more}")).lower()[:80]


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
