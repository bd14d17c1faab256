"""Did the gradients stop being finite, while the run went on?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Circumstance, Log

_LEAST = 5  # steps in a row; the first ones are normal with fp16, until the loss scale fits


def _shown(log: Log, name: str) -> Circumstance | None:
    return next((one for one in log.shows if one.name == name), None)


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    role="secondary",
    kind="script",
)
def log_gradients_not_finite(log: Log) -> Answer:
    """The gradient norm is NaN or infinite in all last steps, and the run goes on without an error.

    Why: The optimizer skips such steps, or writes NaN into the weights: the model no longer learns. In fp16, gradients
    overflow while the loss is still finite.

    Fix: Train in bf16. Otherwise lower the learning rate and look for the first operation with NaN.
    """
    lost, finite = _shown(log, "gradients_not_finite"), _shown(log, "gradients_finite")
    if lost is None or lost.times < _LEAST or (finite is not None and finite.last > lost.line):
        return Ok("the last gradient norms are finite" if finite else "no gradient norms that are NaN in a row")
    if any(one.signature == "log_loss_is_nan" and not one.survived for one in log.seen):
        return Ok("the loss is NaN, too: log_loss_is_nan")
    always = finite is None
    return Problem(
        f"the gradients are NaN or infinite in {'every' if always else 'each later'} logged step ({lost.times}), while "
        "the loss is finite: probably fp16 overflows",
        "Such steps are skipped, or write NaN into the weights: the model learns nothing"
        + ("" if always else f" from line {lost.line:,} on")
        + ". With fp16, gradients above 65504 overflow in the backward pass, long before the loss does. Models trained "
        "in bf16 (Qwen, Gemma, Llama 3, most MoE models) need bf16. (The loss scaler of fp16 skips up to about 10 "
        "steps at the start of a normal run.)",
        (
            Fix("Load and train the model in bf16.", ("accelerate launch --mixed_precision bf16 ...",)),
            Fix(
                "If it is in bf16 already, find the first operation with NaN.",
                ("torch.autograd.set_detect_anomaly(True)",),
            ),
        ),
        {"line": lost.text, "steps": lost.times},
        place=Place(lost.file, lost.line),
    )
