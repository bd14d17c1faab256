"""checks/script/steps.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, skips, table, warns, well

# The model is handed on to another function, and its optimizer gets a list of parameters.
TRAINS_ELSEWHERE = """\
import torch
from accelerate import Accelerator
def train(accelerator, model, optimizer, loader):
    for x, y in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
def main():
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 3)
    {}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    loader = torch.utils.data.DataLoader(samples)
    {}
    train(accelerator, model, optimizer, loader)
main()
"""
_TWO = "optimizer, loader = accelerator.prepare(optimizer, loader)"
OTHER_ORDER = "model, optimizer, loader = accelerator.prepare(model, loader, optimizer)"
IN_ORDER = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
CASES = (
    warns("script_model_not_prepared", "prepare gets optimizer and loader, and no model", "accelerator.prepare(model)",
        script=read(TRAINS_ELSEWHERE.format("", _TWO)), at=(13, 25)),
    *(well("script_model_not_prepared", "", script=read(TRAINS_ELSEWHERE.format(*lines))) for lines in (
        ("", IN_ORDER),
        ("model = accelerator.prepare(model)", _TWO),
        ("model = accelerator.prepare_model(model)", _TWO),
        ("model = torch.nn.parallel.DistributedDataParallel(model)", _TWO),
        ("import trainer; trainer.wrap(accelerator, model)", _TWO),
        ("", "prepared = accelerator.prepare(*objects)"),
        ("", f"{_TWO}; accelerator.reduce(gradients)"),
    )),
    warns("script_prepared_in_other_order", "loader is the prepared optimizer",
        "Write the names in the order of the arguments: model, loader, optimizer = ...",
        script=read(TRAINS_ELSEWHERE.format("", OTHER_ORDER))),
    *(well("script_prepared_in_other_order", "none whose results", script=read(TRAINS_ELSEWHERE.format("", line)))
        for line in (IN_ORDER, _TWO, "net, data = accelerator.prepare(model, loader)",
                     "loader, model = accelerator.prepare(*(model, loader))")),
    skips("script_prepared_in_other_order", "scripts that use", script=bad("steps-scaled-gradients-clipped")),
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
