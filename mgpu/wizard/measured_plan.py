"""What does a measured script add to the plan and the proposal: its speed, and the batch that fits? Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import quantities
from mgpu.planning import measured, memory, plan
from mgpu.planning.measured import Room, rate_text, seconds_text
from mgpu.snapshot import Measurement
from mgpu.text import counted, listed, visible
from mgpu.wizard.answers import Answers
from mgpu.wizard.proposal_types import Part, Setting

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known

LABEL = "batch that fits"
_NAMES = {"ranks": "number of ranks"}
_ASSUMPTION = (
    f"in proportion to the batch; {memory.gib(memory.RESERVE_BYTES)} for CUDA and NCCL and "
    f"{1 - measured.FILL:.0%} of the rest stay free"
)


def with_speed_ups(rows: tuple[plan.Row, ...], known: Known | None) -> tuple[plan.Row, ...]:
    """Return the rows with the speed-ups of the script, if it was measured on one GPU too (`--scaling`)."""
    if known is None or known.changed or known.measurement.cpu:
        return rows
    runs = {one.ranks: one.samples_per_s for one in (*known.fewer, known.measurement) if one.samples_per_s}
    if 1 not in runs:
        return rows
    source = f"measured by the rehearsal of {_name(known.measurement)} ({visible(known.by)})"
    times = {ranks: round(rate / runs[1], 2) for ranks, rate in runs.items() if ranks > 1}
    found = {ranks: plan.SpeedUp(one, one, source, True) for ranks, one in times.items()}
    return tuple(replace(row, speed_up=found.get(row.ranks, row.speed_up)) for row in rows)


def notes(known: Known | None, answers: Answers, room_bytes: int | None) -> tuple[str, ...]:
    """Return what was measured and by what, or why it is not used."""
    if known is None:
        return ()
    found, by = known.measurement, visible(known.by)
    if known.changed:
        return (f"Estimated: {_name(found)} was measured ({by}), {_changed(known)}.",)
    text = f"Measured for {_name(found)} ({by}): {seconds_text(found.step_s)} per step"
    rate = rate_text(found)
    texts = [f"{text}, {rate}{_batch(found)}." if rate else f"{text}{_batch(found)}."]
    if found.cpu:
        return (*texts, "Measured on CPU ranks: nothing is concluded from it for GPUs.")
    if answers.dataset_size and found.samples_per_s:
        epoch = quantities.duration_text(answers.dataset_size / found.samples_per_s)
        texts.append(f"An epoch of {answers.dataset_size:,} samples takes {epoch} on {counted(found.ranks, 'GPU')}.")
    room = measured.batch_that_fits(found, room_bytes) if room_bytes is not None else None
    return (*texts, *([f"{_room_text(room, found)}, {_ASSUMPTION}."] if room else []))


def _name(found: Measurement) -> str:
    return visible(Path(found.script).name)


def _changed(known: Known) -> str:
    return f"but since then {listed(known.changed)} changed"


def _batch(found: Measurement) -> str:
    return f" with batch {found.batch}" if found.batch else ""


def _room_text(room: Room, found: Measurement) -> str:
    """Return "Batch per GPU: 8 needs 34 GiB of 80 GiB, 20 fit (70 GiB)"."""
    now = f"{found.batch} needs {memory.gib(found.peak_bytes or 0)} of {memory.gib(room.room_bytes)}"
    fits = f"{room.batch} fit ({memory.gib(room.need_bytes)})" if room.batch else "not even 1 fits"
    return f"Batch per GPU: {now}, {fits}"


def part(known: Known | None, answers: Answers, shape: Mapping[str, object], room_bytes: int | None) -> Part:
    """Return the row with the largest batch that fits. `shape`: ranks, strategy and precision of the proposal."""
    if known is None or known.measurement.cpu or room_bytes is None:
        return Part()
    found = known.measurement
    room = measured.batch_that_fits(found, room_bytes)
    if room is None:
        return Part()
    by = visible(known.by)
    if known.changed:
        return Part(notes=(f"The measured memory is not used ({by}), {_changed(known)}.",))
    if other := [_NAMES.get(name, name) for name, value in shape.items() if getattr(found, name) != value]:
        return Part(
            notes=(f"The measured memory is not used ({by}): it has another {listed(other)} than this config.",)
        )
    given = answers.batch_per_gpu
    need = measured.need_bytes(found, given) if given else None
    wanted = f"; {given} needs {memory.gib(need)}" if given and need else ""
    text = f"up to {room.batch} per GPU" if room.batch else "not even 1 per GPU"
    left = memory.gib(max(0, room.room_bytes - room.need_bytes))
    why = f"measured ({by}): {memory.gib(room.need_bytes)}, headroom {left}{wanted}"
    row = Setting(LABEL, text, "probe", why, "batch_per_gpu")
    texts = [f"{LABEL.capitalize()}: {_ASSUMPTION}."]
    if given and given > room.batch:
        texts.append(f"Warning: a batch of {given} per GPU does not fit, {room.batch} does (measured).")
    return Part((row,), notes=tuple(texts))
