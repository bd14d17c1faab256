"""How is the measured speed of the user's script shown, on the screen and as JSON?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mgpu.planning import measured
from mgpu.planning.measured import rate_text, seconds_text
from mgpu.quantities import gib
from mgpu.rehearse import fewer_ranks
from mgpu.snapshot import Measurement, Rehearsal
from mgpu.text import counted, visible

if TYPE_CHECKING:
    from mgpu.smoke.smoke_json import MeasurementEntry, ScriptScalingEntry

_SHOWN_SHARE = 0.02  # of the time that scaling costs; smaller parts are not listed


def lines(rehearsal: Rehearsal) -> list[str]:
    """Return the speed, the memory, the checkpoint and the scaling of the script, each in a sentence."""
    found = rehearsal.measurement
    if found is None:
        if rehearsal.ended not in ("stopped", "finished") or not rehearsal.steps:
            return []
        return [f"Speed not measured: {fewer_ranks.why(rehearsal)}."]
    return [_step(found), *_rate(found), *_memory(found), *_checkpoint(rehearsal), *_scaling(rehearsal)]


def _step(found: Measurement) -> str:
    exchange = [] if found.exchange_s is None or found.ranks == 1 else [f"exchange {seconds_text(found.exchange_s)}"]
    if found.waiting_s is not None and found.ranks > 1:
        exchange.append(f"waiting for slower ranks {seconds_text(found.waiting_s)}")
    elif found.ranks > 1:
        exchange = ["the exchange is part of it"]
    parts = [
        f"loader {seconds_text(found.loader_s)}",
        f"forward and backward {seconds_text(found.compute_s)}",
        *exchange,
        f"optimizer {seconds_text(found.optimizer_s)}",
    ]
    spread = f"median of {counted(found.steps, 'more step')} without hooks, +-{seconds_text(found.step_mad_s)}"
    return f"{seconds_text(found.step_s)} per step ({spread}): {', '.join(parts)}"


def _rate(found: Measurement) -> list[str]:
    text = rate_text(found)
    if not text:
        return ["Samples per second: not known, as no DataLoader delivered a share of its own to each rank."]
    batch = f", batches of {found.batch} on each" if found.batch else ""
    ahead = f"; up to {counted(found.queued, 'batch', 'batches')} were ready before" if found.queued else ""
    return [f"{text}{batch}{ahead}"]


def _memory(found: Measurement) -> list[str]:
    host = f"{gib(found.host_bytes)} of RAM per rank" if found.host_bytes else ""
    within = found.activation_bytes
    if found.peak_bytes is None or found.static_bytes is None or within is None:
        return [f"Peak memory: {host}; on the CPU, activations cannot be separated"] if host else []
    held = f" ({gib(found.reserved_bytes, tenths=True)} reserved)" if found.reserved_bytes else ""
    return [
        f"Peak memory: {gib(found.peak_bytes, tenths=True)} per GPU{held}: {gib(found.static_bytes, tenths=True)} "
        f"between steps, {gib(within, tenths=True)} for activations and gradients; {host}"
    ]


def _checkpoint(rehearsal: Rehearsal) -> list[str]:
    found = rehearsal.measurement
    own = [one for rank in rehearsal.ranks for one in rank.checkpoints if one.how]
    refused = next((rank.checkpoint_refused for rank in rehearsal.ranks if rank.checkpoint_refused), None)
    if refused:
        return [f"No checkpoint was written: {visible(refused)}"]
    if own:
        size, read = max(one.size_bytes or 0 for one in own), max(one.read_s or 0.0 for one in own)
        wrote = max(one.write_s or 0.0 for one in own)
        kept = "removed" if all(one.ok for one in own) else f"kept in {_relative(own[0].path, rehearsal.folder)}"
        times = f"written in {seconds_text(wrote)}, read in {seconds_text(read)}"
        return [f"Checkpoint ({own[0].how}): {gib(size)}, {times}, {kept}"]
    if found is not None and found.checkpoint_s is not None:
        return [f"A checkpoint takes {seconds_text(found.checkpoint_s)}"]
    return []


def _relative(path: str, folder: str | None) -> str:
    return visible(path.removeprefix(f"{folder}/") if folder else path)


def _scaling(rehearsal: Rehearsal) -> list[str]:
    """Return the speed on fewer ranks, and what more ranks cost. Weak scaling: each rank has the same batch."""
    found = rehearsal.measurement
    if not rehearsal.scaling or found is None:
        return []
    runs = [*((one.ranks, one.measurement, one.why) for one in rehearsal.scaling), (found.ranks, found, "")]
    alone = next((one for _, one, _ in runs if one is not None), found)
    texts = []
    for ranks, one, why in runs:
        if one is None or one.samples_per_s is None:
            texts.append(f"{ranks}: {visible(why) or 'samples not known'}")
            continue
        share = measured.efficiency(one, alone)
        gained = f" ({share:.0%})" if share is not None and one is not alone else ""
        texts.append(f"{ranks}: {one.samples_per_s:,.0f}{gained}")
    same = all(one is None or one.batch == found.batch for _, one, _ in runs)
    how = "same batch per rank" if same else "the batch per rank differs, so these are not comparable"
    head = f"Samples/s by ranks (weak scaling, {how}): {', '.join(texts)}"
    return [head, *_scaling_costs(found, alone)]


def _scaling_costs(found: Measurement, alone: Measurement) -> list[str]:
    parts = measured.costs(found, alone)
    longer = found.step_s - alone.step_s
    shown = [f"{name} +{seconds_text(part)}" for name, part in parts.items() if part > _SHOWN_SHARE * alone.step_s]
    texts = []
    if found is not alone and longer > 0 and shown:
        more = f"{seconds_text(longer)} longer than on {alone.ranks}"
        texts.append(f"A step on {found.ranks} ranks takes {more}: {', '.join(shown)}")
    if found.cpu:
        texts.append("CPU ranks share cores: this says nothing about scaling on GPUs.")
    return texts


def entry(found: Measurement | None) -> MeasurementEntry | None:
    """Return the measurement as in the JSON document."""
    if found is None:
        return None
    content: Any = {**asdict(found), "activation_bytes": found.activation_bytes}
    return content  # type: ignore[no-any-return]


def scaling_entries(rehearsal: Rehearsal) -> list[ScriptScalingEntry]:
    """Return the runs on fewer ranks, and that on all of them."""
    found = rehearsal.measurement
    if not rehearsal.scaling or found is None:
        return []
    runs = [*((one.ranks, one.measurement, one.why) for one in rehearsal.scaling), (found.ranks, found, "")]
    alone = next((one for _, one, _ in runs if one is not None), found)
    return [
        {
            "ranks": ranks,
            "samples_per_s": one.samples_per_s if one else None,
            "step_seconds": one.step_s if one else None,
            "efficiency": measured.efficiency(one, alone) if one else None,
            "costs": {name: round(more, 6) for name, more in measured.costs(one, alone).items()} if one else {},
            "why": why or None,
        }
        for ranks, one, why in runs
    ]
