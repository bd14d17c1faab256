"""What is known, before any rank is started, to stop a run or to speak against it; and where does the run write?"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path

from mgpu import busy, engine, report
from mgpu.check import Check, Severity
from mgpu.errors import MgpuError, reason
from mgpu.snapshot import Config, Gpu, Snapshot

# A warning about a file, which may be meant for another machine; here it cannot start.
_CERTAIN_HERE = ("config_fsdp1_needs_gpu",)
_CERTAIN = ("driver", "visibility", "pytorch", "packages", "config", "environ")
# What an earlier run has written in the same folder: the ranks of a smoke test, also those of its trials
# (mgpu/smoke/diagnosis.py), or a launch.
_OF_A_TEST = ("rank*.*", "nccl.*.txt", "try-*/rank*.*", "try-*/nccl.*.txt")
_OF_A_LAUNCH = ("run.log", "run.log.[0-9]*", "result.json", "gpus.json", "mgpu.log")
_LARGEST_RESULT = 16 << 20  # bytes; a result of 1000 ranks has less than 1 MiB
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
    found = ((gpu.index, busy.why(gpu)) for gpu in gpus_of(snapshot, config.ranks_here))
    return [f"GPU {index}: {why}" for index, why in found if why]


def run_folder(wanted: str, prefix: str) -> Path:
    """A fresh folder for this run's files: --log-dir, runs/PREFIXtime here, or a private temporary one, said once."""
    return made_folder(planned_folder(wanted, prefix), prefix, named=bool(wanted))


def planned_folder(wanted: str, prefix: str) -> Path:
    """Which folder that will be; nothing is made yet. Raises MgpuError where --log-dir cannot be used."""
    if not wanted:
        base = Path(os.environ.get("MGPU_LOG_DIR") or "runs")
        name = f"{prefix}{datetime.now():%Y%m%d-%H%M%S}"
        with contextlib.suppress(OSError, StopIteration):
            return next(path for path in map(base.joinpath, _names(name)) if not path.exists())
        return base / name
    path = Path(wanted)
    try:
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    except OSError as error:
        raise MgpuError(f"cannot use the folder {path}: {reason(error)}") from None
    if not there.is_dir():
        raise MgpuError(f"cannot use the folder {path}: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise MgpuError(f"cannot use the folder {path}: {there} may not be written")
    if not prefix and (path / "result.json").exists() and not _is_ours(path / "result.json"):
        raise MgpuError(f"cannot use the folder {path}: its result.json is not of mgpu launch, and would be replaced")
    return path


def made_folder(planned: Path, prefix: str, *, named: bool) -> Path:
    """The planned folder: --log-dir (`named`) without what an earlier run left there, or a new one of about its name.

    Raises MgpuError.
    """
    try:
        if named:
            planned.mkdir(mode=0o700, parents=True, exist_ok=True)
            _clear(planned, _OF_A_TEST if prefix else _OF_A_LAUNCH)
            return planned
        planned.parent.mkdir(parents=True, exist_ok=True)
        for name in _names(planned.name):  # another run may have taken it meanwhile
            path = planned.with_name(name)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    except OSError as error:
        if named:
            raise MgpuError(f"cannot use the folder {planned}: {reason(error)}") from None
        fallback = Path(tempfile.mkdtemp(prefix="mgpu-run-"))
        report.notice(f"{planned.parent} cannot be written ({reason(error)}); logs go to {fallback}")
        return fallback
    raise MgpuError(f"no free name for a run folder in {planned.parent}")


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in range(2, 100))


def _clear(folder: Path, names: Sequence[str]) -> None:
    """Remove what an earlier run has written there, which would count as ours. A --log-dir may hold other files."""
    for old in (file for name in names for file in folder.glob(name)):
        if old.name != "result.json" or _is_ours(old):
            old.unlink()


def _is_ours(result: Path) -> bool:
    """Whether a result.json is the document of a launch (mgpu.run/1.0)."""
    try:
        if result.stat().st_size > _LARGEST_RESULT:
            return False
        document = json.loads(result.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("schema")).startswith("mgpu.run/")


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
