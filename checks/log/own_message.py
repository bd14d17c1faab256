"""Did the program report its own error, without an exception, before it exited?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, OwnError

from . import noise

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
        "log_spawned_rank_asked_to_end",
        "log_make_failed",
    }
)
# A process that was killed has none of its own.
_EXIT_CODE = re.compile(r"(?i)(?:code|status)\W{0,4}\d")
_TRAINS = frozenset({"loss_logged", "training_loss_finite"})
_SURE = re.compile(r"(?i)\b(?:errors?|fatal|critical|failed|failure)\b(?! rate| of)")
_NOISE = frozenset(row.id for row in noise.ROWS)


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
    known = any(not seen.survived and seen.signature not in _EXITS | _NOISE for seen in log.seen)
    raised = any(not error.caught and not error.of_launcher for error in log.raised)
    if one is None or known or raised or log.finished is not None:
        return Ok(f"no last message that reports an error in {log.lines:,} lines, or another error explains it")
    excerpt = log.failed is None and not log.fallen and log.lines <= 1
    if one.message and not excerpt:
        return _of_caught(one)
    return Problem(
        f'{"the log has only this message" if excerpt else _reported(one, log)}: "{one.text}"',
        _OF_EXCERPT if excerpt else _OF_END,
        Fix("Follow the message. If it is not enough, search the script or the package for it."),
        {"line": one.text, "rank": one.rank},
        () if one.rank is None else (f"rank {one.rank}",),
        Place(one.file, one.line),
    )


def _reported(one: OwnError, log: Log) -> str:
    """Return what the last message means: after training steps, it can also be a good end."""
    trained = log.reached is not None or any(shown.name in _TRAINS for shown in log.shows)
    sure = log.failed is not None or log.fallen or not trained or _SURE.search(one.text)
    return f"the program {'' if sure else 'probably '}reported an error and exited"


def _of_caught(one: OwnError) -> Problem:
    return Problem(
        f'the program ended with an error that it printed itself: "{one.text}"',
        "It is the last message in the log. The program probably caught an exception and printed only its message, so "
        "the log has no traceback and no type.",
        (
            Fix("Follow the message."),
            Fix(
                "If it is not enough, show where it was raised: print the traceback where the script catches it, or "
                "raise it again.",
                ("traceback.print_exc()",),
            ),
        ),
        {"line": one.text, "rank": one.rank},
        () if one.rank is None else (f"rank {one.rank}",),
        Place(one.file, one.line),
    )


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/transformers/main/en/big_models",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_ended_while_loading(log: Log) -> Answer:
    """A rank ended without a traceback while it loaded the weights: probably killed for host memory.

    Why: A Python error would leave a traceback. A process that ends silently while it loads weights was usually killed
    by the kernel, because each rank reads the whole model into host memory.

    Fix: Look into the kernel's log. Load with less memory per rank.
    """
    known = any(not seen.survived and seen.signature not in _NOISE for seen in log.seen)
    raised = any(not error.caught and not error.of_launcher for error in log.raised)
    by_itself = _EXIT_CODE.search(log.failed or "") or log.fallen  # a signal has rows of its own
    ended = log.failed is not None and log.finished is None and not by_itself
    if not ended or log.last_work != "load" or known or raised or log.own_error:
        return Ok("no rank that ended silently while weights were loaded")
    return Problem(
        "a rank ended without a traceback while weights were loaded: probably killed for host memory",
        "The launcher stops the others when one has ended. The last work in the log is loading, and there is no error. "
        "Each rank that reads the whole model needs its size in host memory, often twice.",
        (
            Fix(
                "Check whether the kernel killed it, and how much memory the node or the container has.",
                ("sudo dmesg -T | grep -i 'killed process' | tail", "free -g; cat /sys/fs/cgroup/memory.max"),
            ),
            Fix(
                "Load with less memory in each rank.",
                ("from_pretrained(..., low_cpu_mem_usage=True, torch_dtype=torch.bfloat16)", "mgpu configure"),
            ),
            Fix("If the kernel did not, read the rank's own log.", ("mgpu launch --log-dir runs train.py",)),
        ),
        {"line": log.failed},
    )
