"""Are the errors of a job in another file than this log? Its batch system names that file."""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Circumstance, Log

from ._early_exits import REASONS, TRY_ALONE, early_exit

_LSF = re.compile(r"^Read file <(?P<path>[^<>]+)> for stderr output")
_SLURM = re.compile(r"(?:--(?:error|output)(?:=|\s+)|-[eo]\s*|Std(?:Err|Out)=)['\"]?(?P<path>[^\s'\"]+)")
_PLACEHOLDER = re.compile(r"%\d*[A-Za-z]")
_OF_SLURM = re.compile(r"(?:srun|slurmstepd): ")  # printed to stderr


class _ErrorFile(NamedTuple):
    path: str
    why: str
    seen: Circumstance


def _named(one: Circumstance | None, pattern: re.Pattern[str]) -> str | None:
    found = pattern.search(one.text) if one else None
    return found["path"] if found else None


def _is_this_log(path: str, log: Log) -> bool:
    """Whether a name, in which a batch system replaces placeholders, can be that of the log that is read."""
    name = ".*".join(map(re.escape, _PLACEHOLDER.split(path.rpartition("/")[2])))
    return any(re.fullmatch(name, file.rpartition("/")[2]) for file in log.files)


def _error_file(log: Log) -> _ErrorFile | None:
    shown = {one.name: one for one in log.shows}
    if (path := _named(shown.get("errors_of_lsf"), _LSF)) is not None:
        why = "LSF wrote what the job printed to stderr, tracebacks included, to that file (bsub -e)."
        return _ErrorFile(path, why, shown["errors_of_lsf"])
    path, output = _named(shown.get("errors_of_slurm"), _SLURM), _named(shown.get("output_of_slurm"), _SLURM)
    if path is None or path == output or any(_OF_SLURM.match(one.text) for one in log.seen):
        return None
    why = "Slurm wrote what the job printed to stderr, tracebacks included, to that file (sbatch --error)."
    return _ErrorFile(path, why, shown["errors_of_slurm"])


def _read_it(path: str) -> Fix:
    if path == "/dev/null":
        return Fix("The job discards its errors: give them a file, and run it again.", ("#SBATCH --error=%x-%j.err",))
    if not _PLACEHOLDER.search(path):
        commands = (shell("tail -n 50 {:path}", path), shell("mgpu doctor --log {:path}", path))
        return Fix("Read that file, on the machine of the job.", commands)
    return Fix(
        "Read that file. Slurm replaces %j by the number of the job.",
        ("scontrol show job JOBID | grep StdErr", "mgpu doctor --log FILE"),
    )


@check(
    Severity.ERROR,
    source="https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=reference-bsub",
    role="wrapper",
    kind="scheduler",
    tags=("precise", "exit_only"),
    same_as=("log_lsf_job_exited", "log_child_failed"),
)
def log_errors_in_another_file(log: Log) -> Answer:
    """The job failed, and its errors are in another file than this log.

    Why: LSF and Slurm write stderr to a file of its own if the job asks for it. Tracebacks are then in that file, and
    this log has only what was printed to stdout.

    Fix: Read the file that the batch system names.
    """
    raised = any(not one.caught and not one.of_launcher for one in log.raised)
    found = _error_file(log) if log.failed is not None and not raised else None
    if found is None or _is_this_log(found.path, log):
        return Ok("no other file with the errors of this job is named, or the log has an exception")
    early = early_exit(log)
    code = f" with code {early.code}" if early and early.code else ""
    at_start = (
        f" {early.seconds:.1f} s after the launcher had started the processes, one exited{code} without output: it "
        f"failed right at its start. {REASONS}"
        if early
        else ""
    )
    return Problem(
        f"the errors of this job are in {found.path}, not in this log"
        f"{'; a rank failed right at its start' if early else ''}",
        f"{found.why} This log has only stdout, so it does not show why the job failed.{at_start}",
        (_read_it(found.path), *((TRY_ALONE,) if early else ())),
        {"line": found.seen.text, "failed": log.failed},
        place=Place(found.seen.file, found.seen.line),
    )
