"""Where does each rank hang? Collected from the ranks while they hang.

A file in the run folder makes a thread of the rank write its Python stacks, and dump torch's flight recorder. A rank
whose main thread sleeps gets SIGUSR1, on which the handler writes them. Of one that runs, frames could change meanwhile
and Python crash (hangs/stack_requests.py): that gets the signal only if its thread does not answer. A stopped one gets
the signal, is resumed with SIGCONT, and writes its stacks before it does anything else.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mgpu import file_reading
from mgpu.errors import clip
from mgpu.process import processes
from mgpu.smoke.ranks.journal import ASK
from mgpu.snapshot import Rank
from mgpu.structured_text import json_of

# How long to wait for the ranks. They look for the file every 0.2 s; stacks take milliseconds.
_ANSWER_S = 0.6
_MOST_STACK = 256 << 10  # bytes; faulthandler prints at most 100 frames of each thread
_MOST_RECORDED = 16 << 20  # torch keeps 2,000 collectives of about 1 KiB


@dataclass(frozen=True)
class Answers:
    """How the ranks answered; the answers themselves are files in the run folder."""

    awake: Collection[int] = ()  # the ranks that wrote their stack without being resumed
    waits: Mapping[int, str | None] = field(default_factory=dict)  # rank -> where its process waited in the kernel


def collect(folder: Path, listeners: Mapping[int, int], ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """Return the ranks with their stacks and pending collectives. `listeners`: rank -> pid of those that can answer."""
    return add_answers(folder, ranks, ask(folder, listeners, ranks))


def ask(folder: Path, listeners: Mapping[int, int], ranks: Sequence[Rank]) -> Answers:
    """Make the ranks write where they hang. Takes at most two seconds; reading it can wait until they are stopped."""
    open_ranks = {rank.rank for rank in ranks if not rank.finished}
    asked = {number: pid for number, pid in listeners.items() if number in open_ranks}
    asleep = {rank.rank for rank in ranks if rank.process_state in ("stopped", "traced")} & set(asked)
    waits = {number: processes.kernel_wait_of(pid) for number, pid in asked.items()}
    (folder / ASK).touch()
    running = {number for number, pid in asked.items() if processes.state_of(pid) == "running"}
    _signal(asked, set(asked) - running)  # the main thread of a stopped process handles it before anything else
    _wait(folder, running, of_stack=True)
    _signal(asked, {number for number in running if not _stack(folder, number)})
    _wait(folder, set(asked) - asleep)
    awake = {number for number in asked if _stack(folder, number)}
    if asleep:
        processes.signal_all((asked[number] for number in asleep), signal.SIGCONT)
        _wait(folder, asleep)
    return Answers(awake, waits)


def add_answers(folder: Path, ranks: Sequence[Rank], answers: Answers) -> tuple[Rank, ...]:
    """Return the ranks with the stacks and pending collectives that they wrote."""
    return tuple(_add_stack(folder, rank, answers.awake, answers.waits.get(rank.rank)) for rank in ranks)


def _signal(pids: Mapping[int, int], numbers: Collection[int]) -> None:
    for number in numbers:
        processes.signal_thread(pids[number], pids[number], signal.SIGUSR1)


def _wait(folder: Path, numbers: Collection[int], *, of_stack: bool = False) -> None:
    """Wait until all of these ranks have answered, or the time is up; `of_stack`: only for the stacks."""
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline and not all(
        _stack(folder, number) and (of_stack or _recorder(folder, number)) for number in numbers
    ):
        time.sleep(0.05)


def _add_stack(folder: Path, rank: Rank, awake: Collection[int], kernel_wait: str | None) -> Rank:
    stack = _stack(folder, rank.rank)
    origin: Literal["asked", "woken"] | None = None if stack is None else "asked" if rank.rank in awake else "woken"
    rank = replace(rank, stack=stack, stack_from=origin, kernel_wait=kernel_wait)
    recorder = _recorder(folder, rank.rank)
    if recorder is None:
        return rank
    last = _last_global_entry(recorder)
    return replace(
        rank,
        collective=pending_collective(recorder),
        collective_seq=last_global_sequence(recorder),
        collective_open=last is not None and _is_open(last),
    )


def _stack(folder: Path, number: int) -> str | None:
    try:
        stack = file_reading.read_part(folder / f"rank{number}.stack", most=_MOST_STACK, start=0)
        return stack.decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def _recorder(folder: Path, number: int) -> Mapping[str, Any] | None:
    try:
        content = json_of(file_reading.read_whole(folder / f"rank{number}.recorder", most=_MOST_RECORDED))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def pending_collective(recorder: Mapping[str, Any]) -> str | None:
    """Return the last collective that started and has not finished: "gloo all_reduce of 1000 x Float"."""
    found = [entry for entry in _entries(recorder) if _is_open(entry)]
    if not found:
        return None
    entry = found[-1]
    sizes, dtypes = _list_or_empty(entry.get("input_sizes")), _list_or_empty(entry.get("input_dtypes"))
    shape = " x ".join(str(size) for size in sizes[0]) if sizes and isinstance(sizes[0], list) else ""
    of = f" of {shape} x {dtypes[0]}" if shape and dtypes else ""
    return clip(f"{str(entry.get('profiling_name', 'a collective')).replace(':', ' ')}{of}")


def _list_or_empty(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _is_open(entry: Mapping[str, Any]) -> bool:
    return not entry.get("retired") and entry.get("state") != "completed"


def last_global_sequence(recorder: Mapping[str, Any]) -> int | None:
    """Return how many collectives were started in torch's default process group."""
    last = _last_global_entry(recorder)
    return int(last["collective_seq_id"]) if last is not None else None


def _last_global_entry(recorder: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the last collective that was started in torch's default process group."""
    found = [
        entry
        for entry in _entries(recorder)
        if not entry.get("is_p2p")
        and isinstance(group := entry.get("process_group"), list)
        and group[:1] in (["0"], ["default_pg"])
        and isinstance(entry.get("collective_seq_id"), int)
    ]
    return max(found, key=lambda entry: int(entry["collective_seq_id"]), default=None)


def _entries(recorder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = recorder.get("entries")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
