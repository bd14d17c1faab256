"""checks/script/steps.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good
from tests.checks.facts import Case, informs, skips, table, warns, well

CASES = (
    informs("script_accumulates_with_exchange", "line 16: gradients are synchronized in every micro step",
        "model.no_sync()", script=bad("steps-gradients-exchanged-in-every-micro-step")),
    well("script_accumulates_with_exchange", "are not synchronized",
        script=good("steps-gradients-exchanged-in-every-micro-step")),
    well("script_accumulates_with_exchange", "after every batch", script=good("steps-scaled-gradients-clipped")),
    skips("script_accumulates_with_exchange", "scripts that use", script=good("steps-loss-divided-twice")),
    warns("script_loss_divided_twice", "line 19: the loss is divided by the accumulation steps",
        "Remove the division.", script=bad("steps-loss-divided-twice")),
    well("script_loss_divided_twice", "only accelerate divides the loss", script=good("steps-loss-divided-twice")),
    well("script_loss_divided_twice", "is not used", script=good("steps-backward-without-accelerate")),
    warns("script_clips_scaled_gradients", "scaler.unscale_ is missing", "scaler.unscale_(optimizer)",
        script=bad("steps-scaled-gradients-clipped")),
    well("script_clips_scaled_gradients", "unscaled before", script=good("steps-scaled-gradients-clipped")),
    warns("script_backward_past_accelerate", "line 16: loss.backward() bypasses accelerate",
        "accelerator.backward(loss)", script=bad("steps-backward-without-accelerate")),
    well("script_backward_past_accelerate", "by accelerator.backward",
        script=good("steps-backward-without-accelerate")),
    informs("script_clips_past_accelerate", "torch's clip_grad_norm_", "accelerator.clip_grad_norm_(",
        script=bad("steps-clipping-without-accelerate")),
    well("script_clips_past_accelerate", "no clipping by torch", script=good("steps-clipping-without-accelerate")),
    warns("script_optimizer_not_prepared", "optimizer is not passed to accelerator.prepare",
        "model, optimizer, loader =", script=bad("steps-optimizer-that-prepare-was-not-given")),
    well("script_optimizer_not_prepared", "1 optimizer", script=good("steps-optimizer-that-prepare-was-not-given")),
    warns("script_model_not_prepared", "model is trained but not passed",
        "model, optimizer, loader = accelerator.prepare(", script=bad("steps-model-wrapped-by-nobody")),
    well("script_model_not_prepared", "1 trained model", script=good("steps-model-wrapped-by-nobody")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
