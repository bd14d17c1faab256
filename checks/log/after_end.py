"""Did the failure come after the training had finished?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, SignatureMatch

_LINES_AFTER = 60  # between the report of the end and the timeout: more can be another training run
_TIMEOUTS = frozenset({"log_collective_timed_out", "log_watchdog_stuck", "log_store_wait_timed_out"})
_CHECK_SAVED = "Check whether the last checkpoint is there and complete: the log does not show that it was written. "


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
    if _rank_zero_gathers(log):
        return _save_on_one_rank(log, end.last, first)
    saved = any(one.name == "weights_written" for one in log.shows)
    return Problem(
        "the training had finished: the timeout is in what runs after it",
        f'Line {end.last:,} reports the end of the training ("{end.text}"). Then one rank still worked alone (saving, '
        "converting, evaluating or uploading, often rank 0), and the others waited for it in a collective until the "
        "timeout. What was saved before is complete. GPUs and network are not the cause.",
        (
            Fix(
                ("Check that the last checkpoint is there: the run needs no repetition. " if saved else _CHECK_SAVED)
                + "Then let the work after the training run without the others.",
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


def _rank_zero_gathers(log: Log) -> bool:
    """Whether rank 0 is the only one that waits, in a collective that gathers from all ranks."""
    return {one.rank for one in log.stalled} == {0} and all("GATHER" in (one.operation or "") for one in log.stalled)


def _save_on_one_rank(log: Log, end: int, first: SignatureMatch) -> Problem:
    operation = log.stalled[0].operation
    return Problem(
        f"the training had finished: rank 0 alone waited in {operation}, probably to save a model that is sharded over "
        "the ranks",
        f"Line {end:,} reports the end of the training. With FSDP and ZeRO-3, each rank has a part of the model, and "
        "state_dict() or save gathers the parts in a collective of all ranks. Probably only rank 0 called it (inside "
        "`if rank == 0` or `if trainer.args.should_save`). The model of the end of the run is then not saved, and a "
        "longer timeout does not help.",
        (
            Fix(
                "Call the save on all ranks, outside of any condition on the rank: it writes the files on rank 0 only.",
                ("trainer.save_model(OUTPUT)  # on all ranks", "mgpu doctor --script train.py"),
            ),
            Fix(
                "If there is a checkpoint, resume from it, so that only the end runs again.",
                ("trainer.train(resume_from_checkpoint=True)",),
            ),
        ),
        {"line": first.text, "operation": operation},
        ("rank 0",),
        Place(first.file, first.line),
    )
