"""How is a job submitted to Slurm? First checked with `sbatch --test-only`, then submitted.

`sbatch --test-only` checks syntax, partition, GRES and node count. It does not detect a time limit above the
partition's or a missing folder (tested with 22.05): `follow` and `folders` check those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.scheduler import client, sbatch_errors


def test_only(script: Path, options: Sequence[str] = (), folder: Path | None = None) -> list[str]:
    """Return the reasons why Slurm would reject a job script; empty if it would accept it.

    `options`: of sbatch. `folder`: from which the script is submitted. Raises MgpuError (3) if Slurm does not respond.
    """
    answer = client.ask("sbatch", "--test-only", *options, str(script.absolute()), folder=folder)
    _require_response(answer)
    return [] if answer.code == 0 else [sbatch_errors.explain(answer.err)]


def submit(script: Path, arguments: Sequence[str] = (), options: Sequence[str] = (), folder: Path | None = None) -> int:
    """Submit a job script and return the job ID. Raises MgpuError (125) with the reason it was rejected."""
    answer = client.ask("sbatch", "--parsable", *options, str(script.absolute()), *arguments, folder=folder)
    if client.is_unreachable(answer):
        words = sbatch_errors.explain(answer.err) if answer.err.strip() else "Slurm did not respond in time"
        raise MgpuError(f"{words}. It may have accepted the job anyway. Check with  squeue --me", errors.UNKNOWN)
    # NUMBER, or NUMBER;CLUSTER if there are several clusters.
    found = re.search(r"^(\d+)(?:;\S*)?\s*$", answer.out, re.MULTILINE)
    if answer.code or found is None:
        raise MgpuError(f"Slurm rejected the job: {sbatch_errors.explain(answer.err)}", errors.LAUNCH_REFUSED)
    return int(found[1])


def cancel(job: int) -> str:
    """Cancel a job (TERM, then KILL after KillWait, 30 s by default). Return Slurm's error; "" on success."""
    answer = client.ask("scancel", str(job), limit_s=client.LOOK_S)
    if answer.code is None:
        return "Slurm does not respond"
    return "" if answer.code == 0 else sbatch_errors.explain(answer.err)


def _require_response(answer: client.Answer) -> None:
    if client.is_unreachable(answer):
        silent = "the controller does not respond (scontrol ping)"
        words = sbatch_errors.explain(answer.err) if answer.err.strip() else silent
        raise MgpuError(f"cannot query Slurm: {words}", errors.UNKNOWN)
