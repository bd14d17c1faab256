"""Did the program report its own error, without an exception, before it exited?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log

_OF_EXCERPT = (
    "Without an exception and the lines around the message, it is not known whether the run stopped with it, or which "
    "package printed it."
)
_OF_END = (
    "It is the last message before the end of the log. There is no exception and no known error, so the program "
    "detected the problem by itself and exited."
)
# They report that a process ended, not why.
_EXITS = frozenset(
    {
        "log_child_failed",
        "log_slurm_task_failed",
        "log_slurm_stopped_siblings",
        "log_mpi_rank_ended",
        "log_job_gave_up",
        "log_asked_to_end",
        "log_make_failed",
    }
)


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/sys.html#sys.exit",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_program_reported_error(log: Log) -> Answer:
    """The program ended with an error message of its own, and without an exception.

    Why: A script that calls sys.exit("text"), or prints an error and exits with a code other than 0, leaves no
    traceback. Its last message is all that the log has.

    Fix: Follow the message. If it is not enough, search the script for it.
    """
    one = log.own_error
    known = any(not seen.survived and seen.signature not in _EXITS for seen in log.seen)
    raised = any(not error.caught and not error.of_launcher for error in log.raised)
    if one is None or known or raised or log.finished is not None:
        return Ok(f"no last message that reports an error in {log.lines:,} lines, or another error explains it")
    excerpt = log.failed is None and not log.fallen and log.lines <= 1
    return Problem(
        f'{"the log has only this message" if excerpt else "the program reported an error and exited"}: "{one.text}"',
        _OF_EXCERPT if excerpt else _OF_END,
        Fix("Follow the message. If it is not enough, search the script or the package for it."),
        {"line": one.text, "rank": one.rank},
        () if one.rank is None else (f"rank {one.rank}",),
        Place(one.file, one.line),
    )
