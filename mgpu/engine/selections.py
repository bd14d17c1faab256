"""What is known, before any rank is started, to stop a run or to speak against it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from mgpu import engine
from mgpu.check import Check, Severity
from mgpu.snapshot import OF_A_RUN, Snapshot

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


# What a config that runs on the CPU can do without.
_OF_GPUS = frozenset({
    "driver", "gpu", "ecc", "memory", "mig", "clocks", "xid", "cuda", "visibility", "links", "pcie", "nccl",
    "infiniband",
})  # fmt: skip


def about_the_machine(checks: Sequence[Check], snapshot: Snapshot) -> tuple[Check, ...]:
    """The doctor asks about the machine: checks on a config, a smoke test, a stamp or a deep look only where that fact
    is given, or was asked for and could not be had; checks on GPUs not for a config that runs on the CPU."""
    of_files = {f for f in ("script", "job_script", "log", "fleet") if getattr(snapshot, f) is not None}
    if of_files and snapshot.host is None:  # files are judged, and no machine
        checks = tuple(c for c in checks if of_files & set(c.facts) and all(getattr(snapshot, f) for f in c.facts))
        unread = snapshot.script is not None and snapshot.script.error is not None  # its other checks can tell nothing
        return tuple(c for c in checks if not unread or c.area != "script" or c.function.__module__.endswith("reading"))
    absent = {f for f in OF_A_RUN if getattr(snapshot, f) is None and snapshot.gap(f).kind == "not_asked"}
    unneeded = _OF_GPUS if snapshot.plan and snapshot.plan.cpu_ranks else frozenset()
    return tuple(c for c in checks if not absent & set(c.facts) and c.area not in unneeded)
