"""Detect whether this shell already has a Slurm allocation (salloc, or an srun step)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Allocation:
    """The Slurm allocation of this shell."""

    job: str
    nodes: int | None
    gpus_per_node: int | None  # None: unknown
    step: bool  # this process is a task of srun


def allocation(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the allocation of this process; None if there is none."""
    job = environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        return None
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or ""
    return Allocation(
        job, int(nodes) if nodes.isdecimal() else None, _gpus(environ), bool(environ.get("SLURM_STEP_ID"))
    )


def _gpus(environ: Mapping[str, str]) -> int | None:
    if environ.get("SLURM_GPUS_ON_NODE", "").isdecimal():
        return int(environ["SLURM_GPUS_ON_NODE"])
    return gpu_count(environ.get("SLURM_GPUS_PER_NODE", ""))


def gpu_count(text: str) -> int | None:
    """Return the number of GPUs in "4", "a100:4", "gpu:a100:4" or "gpu:4(S:0-1)"."""
    found = re.fullmatch(r"(?:[A-Za-z_][\w.-]*:)*(\d+)(?:\(.*\))?", text)
    return int(found[1]) if found else None
