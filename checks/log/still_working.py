"""Does a progress bar show what one rank did until the others' timeout, or that the timeout ended a Ray worker?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.quantities import duration_text
from mgpu.snapshot import Log, SignatureMatch

_TIMES = re.compile(r"\[(?P<gone>(?:\d+:)?\d+:\d\d)<(?P<left>(?:\d+:)?\d+:\d\d|\?)")
_RATE = re.compile(r"\b(?P<rate>\d+(?:\.\d+)?)(?P<unit>s/|it/s|\w+/s)")
_STEADY = 0.7  # share of a bar's time that its steps took, at its last rate: a bar that hangs has far less
_ALIKE = 0.1  # share by which a bar's time can differ from the timeout
_NCCL = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_TIMED_OUT = "log_collective_timed_out"


def _seconds(text: str) -> float:
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)


def _bar_as_old_as_timeout(log: Log) -> tuple[float, float | None] | None:
    """Return for how long the last bar ran, and what it had left, if it began when the ranks began to wait."""
    timeout = next((one.timeout_s for one in log.stalled if one.timeout_s), None)
    times = _TIMES.search(log.last_step.text) if log.last_step else None
    if timeout is None or times is None:
        return None
    gone = _seconds(times["gone"])
    if not (1 - _ALIKE) * timeout <= gone <= (1 + _ALIKE) * timeout + 60:
        return None
    return gone, None if times["left"] == "?" else _seconds(times["left"])


def _advanced(text: str, steps: float, seconds: float) -> bool:
    """Whether the steps of a bar took the time that it ran: it did not hang."""
    found = _RATE.search(text.rpartition("<")[2])
    rate = float(found["rate"]) if found else 0.0
    if found is None or rate == 0:
        return False
    return steps * (rate if found["unit"] == "s/" else 1 / rate) >= _STEADY * seconds


def _wait(log: Log) -> SignatureMatch | None:
    return next((one for one in log.seen if one.signature == _TIMED_OUT and not one.survived), None)


@check(
    Severity.ERROR,
    source="https://github.com/kohya-ss/sd-scripts/issues/971",
    role="secondary",
    kind="timeout",
    tags=("precise",),
    because_of=("log_rank_worked_alone", "log_timed_out_after_end"),
    same_as=(_TIMED_OUT, "log_desynchronised", "log_ranks_diverged"),
)
def log_rank_still_working(log: Log) -> Answer:
    """A progress bar advanced until the timeout of the ranks that waited: one rank worked alone, longer than that.

    Why: The bar began when the others began to wait, and did not stop. The rank that shows it (usually rank 0) prepares
    or computes something by itself. Nothing hangs, and the network is not the cause.

    Fix: Do this work once before the run, share it between the ranks, or raise the timeout.
    """
    wait, bar, step = _wait(log), _bar_as_old_as_timeout(log), log.last_step
    if wait is None or bar is None or step is None or step.at < 2 or bar[1] is None or step.at >= (step.of or 0):
        return Ok("no bar that advanced until a timeout")
    gone, left = bar
    if not _advanced(step.text, step.at, gone):
        return Ok("the last bar before the timeout did not advance until then")
    operation = next((one.operation for one in log.stalled if one.operation), None)
    return Problem(
        f"one rank still worked alone: its progress bar was at {step.at:,.0f} of {step.of:,.0f} when the others' "
        f"timeout in {operation or 'a collective'} ended the run",
        f"The bar began when the others began to wait ({duration_text(gone)} before), and advanced until the timeout. "
        f"It needed about {duration_text(left or 0)} more. Probably nothing hangs, and the network is not the cause.",
        (
            Fix(
                "Give the others more time, if the framework has an option for it.",
                ("InitProcessGroupKwargs(timeout=timedelta(hours=3))", "TrainingArguments(ddp_timeout=10800)"),
                kind="stopgap",
                caveat="A real hang then takes that long to be detected.",
            ),
            Fix("Or do this work once before the run, so that the ranks read its result from a cache."),
        ),
        {"line": step.text, "left_s": left, "operation": operation},
        place=Place(wait.file, wait.line),
    )


@check(
    Severity.ERROR,
    source=_NCCL,
    role="secondary",
    kind="kernel",
    tags=("precise",),
    same_as=("log_ray_worker_died", "log_ray_worker_vanished", _TIMED_OUT, "log_desynchronised"),
)
def log_worker_ended_by_timeout(log: Log) -> Answer:
    """Ray reports a dead worker, and a collective had timed out at that time: NCCL's watchdog ended the process.

    Why: When a collective times out, the watchdog aborts its process, and Ray only sees that the worker died. Ray
    prints the output of its processes out of order.

    Fix: Find out why the collective did not complete: the death of the worker is its consequence.
    """
    wait, bar = _wait(log), _bar_as_old_as_timeout(log)
    died = next((one for one in log.seen if one.signature == "log_ray_worker_died" and not one.survived), None)
    if wait is None or died is None or bar is None:
        return Ok("no Ray worker that died at a timeout")
    stall = next(one for one in log.stalled if one.timeout_s)
    first = (
        "It was the first collective of its process group: this group never worked. Another rank did not create the "
        "group or did not get there, or NCCL cannot exchange data between these GPUs or nodes."
        if stall.sequence == 1
        else "Another rank did not join it: it failed, took another path in the code, or still worked."
    )
    return Problem(
        f"a collective ({stall.operation}, number {stall.sequence or '?'}) never completed, and after its timeout of "
        f"{duration_text(stall.timeout_s or 0)} NCCL's watchdog ended the Ray worker",
        f"The progress bar had run for as long as the timeout when the worker died. {first} That the worker died is a "
        "consequence.",
        (
            Fix(
                "Find the rank whose log differs, and what the others of its group did.",
                (
                    "grep -l 'Watchdog caught' /tmp/ray/session_latest/logs/*",
                    "mgpu doctor --log rank0.log rank1.log ...",
                ),
            ),
            Fix("Test the exchange alone.", ("mgpu smoke-test", "mgpu doctor --only network,links")),
            Fix("See which transport NCCL selects for this group.", ("export NCCL_DEBUG=INFO",)),
        ),
        {"line": wait.text, "operation": stall.operation, "sequence": stall.sequence},
        () if wait.rank is None else (f"rank {wait.rank}",),
        Place(wait.file, wait.line),
    )
