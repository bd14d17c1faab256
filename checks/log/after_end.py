"""Did the failure come after the training had finished?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log

_LINES_AFTER = 60  # between the report of the end and the timeout: more can be another training run
_TIMEOUTS = frozenset({"log_collective_timed_out", "log_watchdog_stuck", "log_store_wait_timed_out"})


@check(
    Severity.ERROR,
    source="https://github.com/Lightning-AI/pytorch-lightning/issues/18665",
    role="secondary",
    kind="timeout",
    tags=("precise",),
)
def log_timed_out_after_end(log: Log) -> Answer:
    """The training had finished, and the ranks then waited for one of them until the timeout.

    Why: After the training, one rank works alone (saving, converting, evaluating, uploading), or exits in another
    order, while the others wait in a collective or a barrier.

    Fix: Use the results. Let the work after the training run on all ranks, or after destroy_process_group().
    """
    end = next((one for one in log.shows if one.name == "training_finished"), None)
    timeouts = [one for one in log.seen if one.signature in _TIMEOUTS and not one.survived]
    if end is None or not timeouts:
        return Ok("no timeout after the end of the training")
    first = min(timeouts, key=lambda one: one.line)
    others = [one for one in log.raised if not one.caught and one.line < end.last]
    if first.file != end.file or not 0 < first.line - end.last <= _LINES_AFTER or others:
        return Ok("the timeout does not follow the end of the training")
    return Problem(
        "the training had finished: the timeout is in what runs after it",
        f'Line {end.last:,} reports the end of the training ("{end.text}"). Then one rank still worked alone (saving, '
        "converting, evaluating or uploading, often rank 0), and the others waited for it in a collective until the "
        "timeout. What was saved before is complete. GPUs and network are not the cause.",
        (
            Fix(
                "Check that the last checkpoint is there: the run needs no repetition. Then let the work after the "
                "training run without the others.",
                ("torch.distributed.destroy_process_group()  # before work of one rank",),
            ),
            Fix(
                "Or give it more time.",
                ("init_process_group(..., timeout=timedelta(hours=2))",),
            ),
        ),
        {"line": first.text, "end": end.text},
        place=Place(first.file, first.line),
    )
