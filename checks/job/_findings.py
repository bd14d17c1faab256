"""How is a finding about a job script built, and what are the sources?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from mgpu.check import DOCUMENTED, WHY, Answer, Evidence, Fix, Ok, Place, Problem, Skip
from mgpu.snapshot import JobScript

SBATCH = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
GRES = "https://slurm.schedmd.com/gres.html"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
MEASURED = "measured Slurm 22.05 2026-11"
HEAD = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
PORT = "export MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))"


def finding(
    job: JobScript,
    line: int,
    title: str,
    fix: Fix | tuple[Fix, ...] = DOCUMENTED,
    others: Sequence[int] = (),
    *,
    why: str = WHY,
    **evidence: str | int | None,
) -> Problem:
    """Build a problem at a line; `others` are further lines with the same problem."""
    known: Evidence = {name: value for name, value in evidence.items() if value is not None}
    more = sorted({one for one in others if one != line})
    if more:
        listed = ", ".join(map(str, more[:5])) + (f" and {len(more) - 5} more" if len(more) > 5 else "")
        known = {**known, "also in line": listed}
        why = f"{why} Also in line {listed}."
    return Problem(f"line {line}: {title}", why, fix, known, place=Place(job.path, line))


def needs_whole_script(judge: Callable[[JobScript], Answer]) -> Callable[[JobScript], Answer]:
    """Wrap a check so that it answers Ok only if the whole script was read."""

    @functools.wraps(judge)
    def wrapped(job_script: JobScript) -> Answer:
        answer = judge(job_script)
        return ok_unless_cut(job_script, answer.evidence) if isinstance(answer, Ok) else answer

    return wrapped


def ok_unless_cut(job: JobScript, text: str) -> Answer:
    """Return Ok, or Skip if a part of the script was not read."""
    return Skip("the script was not read to its end") if job.cut else Ok(text)


def shorten(text: str, longest: int = 60) -> str:
    """Shorten a text so that it fits in a title."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
