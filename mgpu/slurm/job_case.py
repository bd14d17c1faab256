"""`mgpu launch --slurm --report JOB`: a page and an archive about a job that `launch --slurm` followed to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.errors import MgpuError
from mgpu.launch import run_case, run_facts_file
from mgpu.launch.request import Request
from mgpu.launchers import project_folder
from mgpu.slurm.follow import Followed
from mgpu.snapshot import Config, Log, Run, Snapshot, Timeline
from mgpu.structured_text import json_of

_TAIL = 40  # lines
_LARGEST = 16 << 20  # bytes of a result


def store(folder: Path, followed: Followed, run: Run, config: Config | None, log: Log | None) -> None:
    """Store what is known of a job at its end. `run`: with the ranks of all nodes."""
    began = datetime.fromtimestamp(time.time() - run.seconds, timezone.utc)
    started = began.isoformat(timespec="seconds").replace("+00:00", "Z")
    tail = run_facts_file.last_lines([Path(followed.output)] if followed.output else [], _TAIL)
    timeline = Timeline(f"job {followed.job}", started, run.seconds, tail=tail)
    run_facts_file.store(folder, Snapshot(config=config, log=log, taken=started), run, timeline, followed.hang)


def report(request: Request, job: int) -> int:
    """Write the page and the archive of a job; return 0. Raises MgpuError if its facts are not here."""
    found = next((facts for folder in _folders(job) if (facts := run_facts_file.load(folder)) is not None), None)
    if found is None:
        raise MgpuError(
            f"no result of job {job} in this folder: no mgpu launch --slurm has followed it to its end here. From its "
            "output:  mgpu doctor --log OUTPUT --format html -o report.html",
            errors.USAGE,
        )
    run_case.write(request, f"job-{job}", found)
    return errors.READY


def is_listed(folder: Path) -> bool:
    """Whether `report` looks into this folder: not if --log-dir named it."""
    return folder.parent.resolve() in [base.resolve() for base in _bases()]


def _bases() -> tuple[Path, ...]:
    """Return the folders with the folders of runs."""
    named = os.environ.get("MGPU_LOG_DIR")
    return (Path(named),) if named else (Path(project_folder.RUNS), Path(project_folder.RUNS_BEFORE))


def _folders(job: int) -> Iterator[Path]:
    """Yield the folders of runs with the result of a job, newest first."""
    for base in _bases():
        for path in sorted(base.glob("*/result.json"), reverse=True):
            if _job_of(path) == job:
                yield path.parent


def _job_of(path: Path) -> int | None:
    try:
        number = json_of(file_reading.read_whole(path, most=_LARGEST))["slurm"]["job"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if isinstance(number, int) else None
