"""Is the loss or the gradient norm of a rank NaN or infinite?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import NotFinite, Run
from mgpu.text import listed

_SOURCE = "mgpu: the recorder in the ranks reads the loss at backward() and the result of clip_grad_norm_"
_SHOWN = 4


@check(Severity.WARNING, source=_SOURCE, tags=("remark", "not_finite"))
def run_not_finite(run: Run) -> Answer:
    """The loss or the gradient norm of a rank is NaN or infinite.

    Why: The optimizer then writes NaN into the weights, and every later step is lost.
    More: The rank with the earliest step is named: with DDP or FSDP the others get its NaN with the gradients, one step
    later. Values on a GPU are read only with --nan-check N, because that waits for the GPU. With a GradScaler,
    infinite gradients are usual, and only the loss counts.

    Fix: Look at the batch of this rank at this step, and at operations without a finite gradient (log, sqrt, division,
    softmax over masked rows). torch.autograd.set_detect_anomaly(True) names the operation.
    """
    found = run.not_finite
    if found is None:
        return Skip("the ranks have no recorder")
    if not found:
        return Ok("no rank reported a loss or gradient norm that is not finite")
    first = found[0]
    had = f": its inputs have NaN already, {listed(first.inputs)}" if first.inputs else ""
    return Problem(
        f"the {first.what} of rank {first.rank}{_host(first, run)} is {first.value} in step {first.step}{_line(first)}"
        f"{had}",
        _others(found, run),
        fix=Fix(
            "Repair or leave out these samples where the data is read or computed. Look for them before the training.",
            ("assert torch.isfinite(x).all()",),
        )
        if had
        else Fix(
            f"Look at the batch of rank {first.rank} in step {first.step}. Run that step under "
            "torch.autograd.set_detect_anomaly(True), which names the operation."
        ),
        evidence={"rank": first.rank, "step": first.step, "what": first.what, "value": first.value},
        subjects=(f"rank {first.rank}",),
    )


def _host(one: NotFinite, run: Run) -> str:
    """Return " (host n2)" if the run spans several."""
    hosts = {rank.rank: rank.host for rank in run.ranks if rank.host}
    return f" (host {hosts[one.rank]})" if one.rank in hosts and len(set(hosts.values())) > 1 else ""


def _line(one: NotFinite) -> str:
    return f" ({one.line.file.rpartition('/')[2]}:{one.line.line})" if one.line else ""


def _others(found: tuple[NotFinite, ...], run: Run) -> str:
    """Return when the other ranks had such a value."""
    later = [one for one in found[1:] if one.step > found[0].step]
    same = [one for one in found[1:] if one.step == found[0].step]
    if len(found) == 1 and (run.expected or 1) > 1:
        return "The other ranks have not reported one."
    texts = [f"rank {one.rank} in the same step" for one in same] + [
        f"rank {one.rank} in step {one.step}" for one in later
    ]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"Then {', '.join(texts[:_SHOWN])}{more}." if texts else "The weights have probably been NaN since then."
