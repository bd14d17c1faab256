"""What is known, before any rank is started, to stop a run or to speak against it?"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from mgpu import engine
from mgpu.check import Check, Severity
from mgpu.snapshot import Config, Gpu, Snapshot, gpu_in_use

# A warning about a file, which may be meant for another machine; here it cannot start.
_CERTAIN_HERE = ("config_fsdp1_needs_gpu",)
_CERTAIN = ("driver", "visibility", "pytorch", "packages", "config", "environ")
# Areas whose checks are about a run that has ended, or about a file: their tables need not be loaded here.
_AFTERWARDS = ("smoke", "log", "run", "work", "script", "job", "fleet")


@cache
def checks() -> tuple[Check, ...]:
    """Those that can be asked before anything runs."""
    return engine.load(without=_AFTERWARDS)


def refusals(snapshot: Snapshot) -> list[engine.Outcome]:
    """The errors for which no rank needs to be started to know that it fails; empty: it is worth trying.

    An error of a GPU's health, a limit or the network may or may not stop a run: that is what the test is for. A
    rehearsal on the CPU does without the driver and the GPUs.
    """
    assert snapshot.plan is not None
    areas = _CERTAIN if snapshot.plan.cpu_ranks is None else ("packages", "config", "environ")
    certain = (replace(c, severity=Severity.ERROR) if c.id in _CERTAIN_HERE else c for c in checks())
    asked = [c for c in certain if c.area in areas and c.severity.value == "error" and c.id != "gpu_lost"]
    outcomes = engine.run(asked, snapshot)
    found = [o for o in outcomes if o.status in ("fail", "crash")]
    blind = [o for o in outcomes if o.unsettling and o.check.area in ("driver", "config")]
    return found or blind[:1]


def doubts(snapshot: Snapshot) -> list[str]:
    """Ids of the other errors the doctor would name, but these: told before the ranks start."""
    asked = [c for c in checks() if c.area not in (*_CERTAIN, "stamp") or c.id == "gpu_lost"]
    outcomes = engine.run((c for c in asked if c.severity.value == "error"), snapshot)
    return [o.check.id for o in outcomes if o.status == "fail" and not o.because_of]


def worked_on(config: Config, snapshot: Snapshot, *, cpu: bool = False) -> list[str]:
    """The GPUs of this run that somebody works on, and who."""
    if cpu:
        return []
    found = ((gpu.index, gpu_in_use.why(gpu)) for gpu in gpus_of(snapshot, config.ranks_here))
    return [f"GPU {index}: {why}" for index, why in found if why]


def gpus_of(snapshot: Snapshot, count: int | None) -> list[Gpu]:
    """The GPUs of this machine's ranks, in CUDA's order: rank 0 has the first.

    accelerate puts the config's gpu_ids in place of CUDA_VISIBLE_DEVICES, so that they count from all GPUs.
    """
    gpus = {gpu.index: gpu for gpu in snapshot.gpus or ()}
    order = snapshot.visible.gpus if snapshot.visible is not None else tuple(gpus)
    ids = str(snapshot.config.values.get("gpu_ids") or "all") if snapshot.config is not None else "all"
    entries = [entry.strip() for entry in ids.split(",") if entry.strip()]
    if ids != "all" and all(entry.isdecimal() for entry in entries):
        permitted = [index for index, gpu in gpus.items() if gpu.permitted]
        order = tuple(permitted[int(entry)] for entry in entries if int(entry) < len(permitted))
    return [gpus[index] for index in order if index in gpus][:count]
