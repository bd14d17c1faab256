"""What is the state of this machine? The probes' results as a Snapshot.

Each probe is one file; `runner.py` runs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from mgpu.probes import environ
from mgpu.probes.runner import (
    DEFAULT,
    INFINIBAND,
    KERNEL,
    KERNEL_LOG,
    LEFTOVERS,
    LIBRARIES,
    NETWORK,
    NVML,
    OF_CONFIGS,
    PACKAGES,
    PCI,
    PYTORCH,
    QUICK,
    STORAGE,
    SYSTEM,
    Child,
    Probe,
    collect,
    launch_probes,
    run,
    start,
)
from mgpu.process import training_python
from mgpu.snapshot import BadSnapshot, Gap, Plan, Snapshot, from_json
from mgpu.version import __version__

__all__ = [
    "DEFAULT",
    "INFINIBAND",
    "KERNEL",
    "KERNEL_LOG",
    "LEFTOVERS",
    "LIBRARIES",
    "NETWORK",
    "NVML",
    "OF_CONFIGS",
    "PACKAGES",
    "PCI",
    "PYTORCH",
    "QUICK",
    "STORAGE",
    "SYSTEM",
    "Child",
    "Probe",
    "build",
    "gather",
    "launch_probes",
    "run",
    "with_torch",
]

_QUICK_LEAVES_OUT = {
    "torch_runtime": "torch was not imported (--quick)",
    "kernel_log": "the kernel log was not read (--quick)",
}


def gather(
    probes: Sequence[Probe] = DEFAULT,
    *,
    python: str | None = None,
    port: int | None = None,
    plan: Plan | None = None,
    progress: Callable[[str], None] | None = None,
    started: list[Child] | None = None,
) -> Snapshot:
    """Return a Snapshot of this machine collected by these probes. Facts of other probes are gaps "not checked".

    `started`: the probes' children, if they were already started (`runner.start`).
    """
    if port is not None:
        probes = [replace(p, arguments={**p.arguments, "port": port}) if p.name == "network" else p for p in probes]
    facts: dict[str, Any] = {}
    gaps: dict[str, Gap] = {}
    for child in collect(started or start(probes, python=python), progress):
        facts |= child.found
        gaps |= gaps_of(child)
    if facts.get("python") and python is None:
        facts["python"] |= {"chosen": training_python.chosen()}
    facts["env"] = environ.filter_environment(os.environ)
    snapshot = build(facts, gaps)
    if snapshot.gpus is not None:
        version = snapshot.driver.version if snapshot.driver else None
        shown = environ.resolve_visible(os.environ.get("CUDA_VISIBLE_DEVICES"), snapshot.gpus, version)
        snapshot = replace(snapshot, visible=shown)
    else:
        snapshot = replace(snapshot, gaps={**snapshot.gaps, "visible": snapshot.gap("gpus")})
    asked = {fact for probe in probes for fact in probe.brings}
    left_out = {fact: Gap("not_asked", reason) for fact, reason in _QUICK_LEAVES_OUT.items() if fact not in asked}
    snapshot = replace(snapshot, gaps={**left_out, **snapshot.gaps})
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    return replace(snapshot, taken=now, mgpu=__version__, plan=plan or Plan())


def add_torch_facts(snapshot: Snapshot, progress: Callable[[str], None] | None = None) -> Snapshot:
    """Return the Snapshot with the torch facts added, for one that was gathered without them."""
    child = run([PYTORCH], progress=progress)[0]
    seen = build(child.found, gaps_of(child))
    gaps = {name: gap for name, gap in snapshot.gaps.items() if name != "torch_runtime"} | dict(seen.gaps)
    return replace(snapshot, torch_runtime=seen.torch_runtime, gaps=gaps)


def gaps_of(child: Child) -> dict[str, Gap]:
    """Return the reasons why a child's facts are missing."""
    return {fact: Gap(kind, reason) for fact, (kind, reason) in child.gaps.items()}  # type: ignore[arg-type]


def build(facts: Mapping[str, Any], gaps: Mapping[str, Gap]) -> Snapshot:
    """Return a Snapshot of plain JSON values. A fact that does not fit its type becomes a gap of kind crashed."""
    good: dict[str, Any] = {}
    bad: dict[str, Gap] = dict(gaps)
    for name, value in facts.items():
        try:
            from_json({name: value})
        except BadSnapshot as error:
            bad[name] = Gap("crashed", f"its probe returned invalid data: {error}")
        else:
            good[name] = value
    return replace(from_json(good), gaps=bad)
