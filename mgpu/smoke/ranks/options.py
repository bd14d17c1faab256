"""Do the options of DDP produce the same gradients as its defaults?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import reference_model
from .context import Here
from .ddp import Replicated, wrap_ddp
from .journal import Failure
from .numeric_diff import Judge

_STEPS = 3  # DDP rebuilds its buckets after the first
# Several buckets for 36,000 parameters, like in a large model.
_VARIANTS: dict[str, dict[str, Any]] = {
    "static_graph": {"static_graph": True},
    "small buckets, gradients inside them": {"bucket_cap_mb": 0.05, "gradient_as_bucket_view": True},
    "find_unused_parameters": {"find_unused_parameters": True},
}


def run(here: Here) -> None:
    """Compare each option with the reference for a few steps; then test what DDP must reject, and batch norm."""
    if here.world == 1:
        return
    for name, options in _VARIANTS.items():
        _run_option(name, lambda name=name, options=options: _variant(here, name, options))  # type: ignore[misc]
    _run_option("no_sync", lambda: _accumulation(here))
    _run_option("unused parameters", lambda: _check_unused(here))
    _run_option("batch norm", lambda: _batch_norm(here))
    if here.on_gpu:
        _run_option("SyncBatchNorm", lambda: _sync_batch_norm(here))
    else:
        here.skips("SyncBatchNorm: GPUs only")


def _run_option(name: str, option: Callable[[], None]) -> None:
    """Add the name of the option to a Failure."""
    try:
        option()
    except Failure as failure:
        raise Failure(f"DDP with {name}: {failure}", failure.kind, **{**failure.evidence, "option": name}) from None


def _variant(here: Here, name: str, options: dict[str, Any]) -> None:
    here.about_to(f"DDP with {name}")
    strategy = Replicated(here, "no", **options)
    taught = reference_model.batches(here, 1, _STEPS)
    reference = reference_model.Reference(here, taught, strategy.forward, 1.0, _STEPS)
    judge = Judge(here, strategy, reference, precision="no")
    judge.start()
    for step in range(_STEPS):
        here.about_to(f"DDP with {name}: step {step + 1}")
        strategy.begin()
        strategy.micro_step(*taught.of(here.rank, step), 1, last=True)
        reference.learn(step)
        judge.gradients(strategy.gradients(), step)
        strategy.update()
        reference.update()


def _accumulation(here: Here) -> None:
    """Compare the gradients of two micro-steps: the rank's own before the exchange, the whole batch's after it."""
    strategy = Replicated(here, "no")
    taught = reference_model.batches(here, 2, 1)
    reference = reference_model.Reference(here, taught, strategy.forward, 1.0, 1)
    judge = Judge(here, strategy, reference, precision="no")
    whole = reference.learn(0)
    here.about_to("no_sync: first micro-step")
    strategy.begin()
    strategy.micro_step(*taught.of(here.rank, 0, 0), 2, last=False)
    before = [parameter.grad.clone() for parameter in strategy.parameters()]
    mine = reference.own(here.rank, 0, 0, 2)
    if not reference_model.difference(before, mine) <= judge.tolerance:
        exchanged = reference_model.difference(before, whole) < judge.tolerance
        raise Failure(
            f"gradients were {'exchanged' if exchanged else 'altered'} before the last micro-step",
            "accumulation_wrong",
            difference=reference_model.difference(before, mine),
            suspects=[here.rank],
        )
    here.about_to("no_sync: last micro-step")
    strategy.micro_step(*taught.of(here.rank, 0, 1), 2, last=True)
    apart = reference_model.difference(strategy.gradients(), whole)
    if not apart <= judge.tolerance:
        raise Failure(
            f"accumulated gradients differ from the whole batch's gradients by {apart:.1e}",
            "accumulation_wrong",
            difference=apart,
        )


class _Spare(nn.Module):  # type: ignore[misc]
    """A model with a layer that the forward pass does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = (
            nn.Linear(reference_model.WIDTH, reference_model.CLASSES),
            nn.Linear(reference_model.WIDTH, reference_model.CLASSES),
        )

    def forward(self, x: Any) -> Any:
        """Return the output without the spare layer."""
        return self.used(x)


def _check_unused(here: Here) -> None:
    """Check that DDP reports a parameter without a gradient in the second step, instead of hanging."""
    taught = reference_model.batches(here, 1, 1)
    inputs, targets = taught.of(here.rank, 0)
    model = wrap_ddp(here, _Spare().to(here.device))
    here.about_to("an unused parameter: step 1")
    reference_model.loss_of(model(inputs), targets).backward()
    here.about_to("an unused parameter: step 2")
    try:
        model(inputs)
    except RuntimeError as error:
        if "finished reduction" in str(error):
            return
        raise
    raise Failure("DDP does not report a parameter that gets no gradient", "unused_not_reported")


def _batch_norm_model(here: Here) -> Any:
    torch.manual_seed(reference_model.SEED)
    return nn.Sequential(
        nn.Linear(reference_model.WIDTH, reference_model.INNER), nn.BatchNorm1d(reference_model.INNER)
    ).to(here.device)


def _batch_norm(here: Here) -> None:
    """Report the running statistics: DDP broadcasts those of rank 0 before each forward pass."""
    model = wrap_ddp(here, _batch_norm_model(here))
    taught = reference_model.batches(here, 1, 2)
    for step in range(2):
        here.about_to(f"batch norm: step {step + 1}")
        model(taught.of(here.rank, step)[0]).square().mean().backward()
    model.eval()
    here.about_to("batch norm: buffers from rank 0")
    with torch.no_grad():
        model(taught.of(here.rank, 0)[0])
    digests = here.journal.report.get("digests", {})
    here.reports(digests={**digests, "buffers": reference_model.digest(model.buffers())})


def _sync_batch_norm(here: Here) -> None:
    """Check that SyncBatchNorm uses the statistics of the whole batch on every rank."""
    taught = reference_model.batches(here, 1, 1)
    synced = wrap_ddp(here, nn.SyncBatchNorm.convert_sync_batchnorm(_batch_norm_model(here)))
    here.about_to("SyncBatchNorm: forward and backward")
    found = synced(taught.of(here.rank, 0)[0])
    found.square().mean().backward()
    alone = _batch_norm_model(here)
    whole = alone(taught.inputs[0, 0].reshape(-1, reference_model.WIDTH)).reshape(
        here.world, reference_model.MICRO_BATCH, -1
    )
    apart = reference_model.difference([found], [whole[here.rank]])
    apart = max(apart, reference_model.difference(list(synced.buffers())[:2], list(alone.buffers())[:2]))
    if not apart <= _SYNCED_TOLERANCE:
        raise Failure(
            f"SyncBatchNorm differs from batch norm on the whole batch by {apart:.1e}",
            "batch_norm_not_synchronised",
            difference=apart,
        )


# Mean and variance are combined from the ranks' parts, so the sums differ. An estimate, not measured on GPUs.
_SYNCED_TOLERANCE = 1e-3
