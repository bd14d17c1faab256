"""Did the ranks send each other anything?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Exchange, Run

_CONNECTIONS = "mgpu: the kernel's TCP connections between the ranks (sock_diag), torch 2.13 with gloo, 2026-11"
# Between two ranks, in both directions, gloo sends 17 bytes to connect them and 288 for a barrier. DDP with a layer of
# 11 parameters has sent 2,200 when its first step ends, one of 18 parameters 9,089 after six steps (measured).
_CONNECTING_BYTES = 64  # of each connection
_SMALLEST_DDP_BYTES = 1024  # for each rank besides the first
_LITTLE_BYTES = 8 << 10
_LITTLE_S = 10.0
# DDP sends all parameters once when it wraps them, and their gradients in each step; a hook may compress these.
_SHARE_OF_PARAMETERS = 4
_LEAST_S = 1.0  # a shorter observation may have missed everything


@check(Severity.WARNING, source=_CONNECTIONS, tags=("remark", "passed_run"))
def run_ranks_exchanged_nothing(run: Run) -> Answer:
    """The ranks of a run sent each other no data, or too little for gradients.

    Why: Their gradients were not averaged. If they trained, each rank trained a model of its own, and the saved one has
    been trained on the data of one rank only.
    More: The reason is a model that is not passed to accelerator.prepare or DistributedDataParallel, a Trainer that
    runs on one device, or a script that is not distributed at all. mgpu reads the TCP connections between the ranks of
    one machine from the kernel. gloo sends all data through them, and NCCL opens them for every communicator. Runs on
    several nodes or over MPI are not judged.

    Fix: Pass model, optimizer and loader to accelerator.prepare, or wrap the model with DistributedDataParallel.
    Ranks that are meant to work alone (inference, preprocessing) need neither.
    """
    seen = run.exchange
    if seen is None:
        return Skip("fewer than two ranks on this machine")
    if run.exit_code or seen.gap or seen.watched_s < _LEAST_S:
        return Skip(
            seen.gap or ("the run failed" if run.exit_code else f"the ranks were observed for {seen.watched_s} s only")
        )
    if seen.carried_bytes is None:
        return Ok(f"the ranks opened {seen.connections} connections to each other; the kernel does not count bytes")
    title = _title(run, seen, seen.carried_bytes)
    if title is None:
        return Ok(f"the ranks exchanged data: {seen.carried_bytes:,} bytes or more")
    return Problem(
        title,
        "If they already train, each rank trains a model of its own."
        if run.going
        else "If they trained, each rank trained a model of its own, and the saved one is that of a single rank.",
        evidence={
            "exchanged_bytes": seen.carried_bytes,
            "connections": seen.connections,
            "watched_s": seen.watched_s,
        },
    )


def _title(run: Run, seen: Exchange, carried: int) -> str | None:
    """Return what the ranks exchanged; None if it can be gradients."""
    so_far = f" after {run.seconds:,.0f} s" if run.going else ""
    verb = "have exchanged" if run.going else "exchanged"
    who = f"the {run.expected} ranks" if run.expected else "the ranks"
    if carried <= _CONNECTING_BYTES * seen.connections:
        return f"{who} {verb} no data{so_far}: their gradients were not averaged"
    if not seen.on_gpus and carried < seen.trained_bytes // _SHARE_OF_PARAMETERS:
        return (
            f"{who} {verb} only {carried:,} bytes{so_far}, and each trains parameters of {seen.trained_bytes:,} bytes: "
            "their gradients were not averaged"
        )
    too_little = _LITTLE_BYTES if seen.watched_s >= _LITTLE_S else _SMALLEST_DDP_BYTES * ((run.expected or 2) - 1)
    if seen.on_gpus or carried >= too_little:
        return None
    return f"{who} {verb} only {carried:,} bytes{so_far}: less than the gradients of a small model"
