"""How does a job come to Slurm? Asked first whether it would be taken (`sbatch --test-only`), then given to it.

`sbatch --test-only` sees syntax, partition, GRES and node count; it does not see a time limit over the partition's, and
no folder that is missing (measured on 22.05): those are looked at by `follow` and `folders`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.scheduler import client, sbatch_errors


def test_only(script: Path, options: Sequence[str] = (), folder: Path | None = None) -> list[str]:
    """Why Slurm would refuse a job script, in sentences; empty when it would take it. `options` of sbatch, `folder`
    the one it is submitted from. Raises MgpuError (3) when Slurm cannot be asked."""
    answer = client.ask("sbatch", "--test-only", *options, str(script.absolute()), folder=folder)
    _reached(answer)
    return [] if answer.code == 0 else [sbatch_errors.explained(answer.err)]


def submit(script: Path, arguments: Sequence[str] = (), options: Sequence[str] = (), folder: Path | None = None) -> int:
    """Give a job script to Slurm; the job's number. Raises MgpuError (125) with why it was refused."""
    answer = client.ask("sbatch", "--parsable", *options, str(script.absolute()), *arguments, folder=folder)
    if client.lost(answer):
        words = sbatch_errors.explained(answer.err) if answer.err.strip() else "Slurm did not answer in time"
        raise MgpuError(f"{words}; it may have taken the job all the same:  squeue --me", errors.UNKNOWN)
    # NUMBER, or NUMBER;CLUSTER where there are several.
    found = re.search(r"^(\d+)(?:;\S*)?\s*$", answer.out, re.MULTILINE)
    if answer.code or found is None:
        raise MgpuError(f"Slurm does not take the job: {sbatch_errors.explained(answer.err)}", errors.LAUNCH_REFUSED)
    return int(found[1])


def cancel(job: int) -> str:
    """Ask Slurm to end a job: TERM, then KILL (KillWait, 30 s by default). Gives what it says against that."""
    answer = client.ask("scancel", str(job), limit_s=client.LOOK_S)
    if answer.code is None:
        return "Slurm does not answer"
    return "" if answer.code == 0 else sbatch_errors.explained(answer.err)


def _reached(answer: client.Answer) -> None:
    if client.lost(answer):
        words = sbatch_errors.explained(answer.err) if answer.err.strip() else "it does not answer (scontrol ping)"
        raise MgpuError(f"Slurm cannot be asked: {words}", errors.UNKNOWN)
