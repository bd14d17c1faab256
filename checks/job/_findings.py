"""How is a finding about a job script built, and what are the sources?"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from mgpu.check import DOCUMENTED, WHY, Answer, Evidence, Fix, Ok, Place, Problem, Skip, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobCommand, JobFolder, JobScript, JobUnread
from mgpu.text import shell_path

from ._amounts import nodes

SBATCH = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
GRES = "https://slurm.schedmd.com/gres.html"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
MEASURED = "measured Slurm 22.05 2026-11"
# Names of sourced files that start something; most only set variables or load software.
_WORKS = re.compile(
    r"^(?!.*(?:env|rc|vars|config)[^/]*$).*"
    r"(?:train|tune|launch|main|job|sweep|eval|infer|serve|(?:^|[/_-])run)[^/]*$",
    re.IGNORECASE,
)
_OWN = re.compile(r"\$\{?(?:0|BASH_SOURCE)\b|^--(?:version|help|usage)$|^-[Vh]$")
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
    file, number = job.place(line)
    more = sorted({one for one in others if one != line})
    if more:
        shown = [_number(job, one, file) for one in more[:5]]
        listed = ", ".join(shown) + (f" and {len(more) - 5} more" if len(more) > 5 else "")
        known = {**known, "also in line": listed}
        why = f"{why} Also in line {listed}."
    return Problem(f"{line_name(job, line)}: {title}", why, fix, known, place=Place(file, number))


def folder_missing(job: JobScript, folders: Sequence[JobFolder], what: str) -> Problem:
    """Build the problem of folders that are not here; `what` comes after the name of the first, which the fix makes."""
    first = folders[0]
    return finding(
        job,
        first.line,
        f"the folder {shell_path(first.path, 60)} {what}",
        commands(shell("mkdir -p {:path}", first.path)),
        [one.line for one in folders],
    )


def line_name(job: JobScript, line: int) -> str:
    """Return "line 5", or "run.sh line 5" for a file that the script starts."""
    file, number = job.place(line)
    return f"line {number}" if file == job.path else f"{shorten(file.rpartition('/')[2], 40)} line {number}"


def _number(job: JobScript, line: int, file: str) -> str:
    """Return the number of a line, with its file if it is in another one."""
    other, number = job.place(line)
    return str(number) if other == file else f"{number} of {shorten(other.rpartition('/')[2], 40)}"


def needs_whole_script(judge: Callable[[JobScript], Answer]) -> Callable[[JobScript], Answer]:
    """Wrap a check so that it answers Ok only if the whole script was read."""

    @functools.wraps(judge)
    def wrapped(job_script: JobScript) -> Answer:
        answer = judge(job_script)
        return ok_unless_cut(job_script, answer.evidence) if isinstance(answer, Ok) else answer

    return wrapped


def ok_unless_cut(job: JobScript, text: str) -> Answer:
    """Return Ok, or Skip if a part of the script, or a file that does its work, was not read."""
    if job.cut:
        return Skip("the script was not read to its end")
    missing = unread_work(job)
    if not missing and submitted_work(job):
        return Skip("the jobs that it submits were not examined")
    return Skip(f"{shell_path(missing[0].path)}, which it starts, was not read") if missing else Ok(text)


def submitted_work(job: JobScript) -> list[JobCommand]:
    """Return the sbatch commands of a script that starts nothing else; without those that submit the script itself."""
    if job.launches:
        return []
    found = [one for one in job.commands if one.words[0].rpartition("/")[2] == "sbatch" and len(one.words) > 1]
    own = job.path.rpartition("/")[2]
    return [one for one in found if not any(_OWN.search(w) or w.rpartition("/")[2] == own for w in one.words[1:])]


def unread_work(job: JobScript) -> list[JobUnread]:
    """Return the files that were not read and may do the job's work.

    A file that srun starts does; any other one may, if nothing that was read trains. Of those that are sourced, only
    some start anything. Python on the first of several nodes prepares the data, if a file follows that may train.
    """
    several = (nodes(job) or 1) > 1
    after = max((one.line for one in job.unread if not one.sourced), default=0)
    trains = any(
        not one.inner
        and not (several and one.launcher == "python" and one.step is None and not one.uses and one.line < after)
        for one in job.launches
    )
    return [
        one
        for one in job.unread
        if (one.on_node and not one.sourced)
        or (not trains and (not one.sourced or _WORKS.search(one.path) is not None))
    ]


def shorten(text: str, longest: int = 60) -> str:
    """Shorten a text so that it fits in a title."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
