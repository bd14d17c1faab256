"""Are the gradients NaN or infinite in every step, while the loss looks fine?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.signature import Row, signatures
from mgpu.snapshot import Log

_AMP = "https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling"


def _row(name: str, number: str, samples: tuple[str, ...]) -> Row:
    pattern = rf"grad[_ ]norm[\"']?\s?[:=] ?'?{number}"
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), _AMP)


# fmt: off
ROWS = (
    _row("gradients_not_finite", r"(?:-?[nN]a[nN]|-?[iI]nf)\b",
         ("{'loss': 1.4121, 'grad_norm': nan, 'learning_rate': 0.0}", "step 3 loss: 2.1 grad_norm: inf")),
    _row("gradients_finite", r"\d",
         ("{'loss': 1.4121, 'grad_norm': 0.84, 'learning_rate': 0.0}", "step 3 loss: 2.1 grad_norm: 1.91")),
)
# fmt: on


@check(Severity.ERROR, source=_AMP, role="secondary", kind="script", because_of=("log_loss_is_nan",))
def log_gradients_not_finite(log: Log) -> Answer:
    """The norm of the gradients is NaN or infinite in every logged step since a step, so the model does not learn.

    Why: In fp16, numbers above 65,504 overflow in the backward pass, although the loss is finite. The optimizer skips
    such steps. The first steps of an fp16 run may be like that, until its loss scale is found.

    Fix: Train in bf16. If it already is bf16, look for the layer with NaN.
    """
    bad = next((one for one in log.shows if one.name == "gradients_not_finite"), None)
    good = [one for one in log.shows if one.name == "gradients_finite" and bad and one.file == bad.file]
    if bad is None or bad.line == bad.last or any(one.last > bad.line for one in good):
        return Ok(f"no series of NaN gradients in {log.lines:,} lines")
    return Problem(
        "the gradients are NaN or infinite in every step, although the loss is finite: the model does not learn",
        "In fp16 the backward pass overflows (numbers above 65,504), often in expert models and in models that were "
        "pretrained in bf16. Such steps are skipped, so the loss hardly changes. Learning rate and data are not the "
        "usual reason.",
        (
            Fix(
                "Train in bf16, and load the model in bf16.",
                ("TrainingArguments(bf16=True, fp16=False)", "from_pretrained(..., torch_dtype=torch.bfloat16)"),
            ),
            Fix(
                "If it is bf16 already, find the first operation with NaN, and try another attention.",
                ("torch.autograd.set_detect_anomaly(True)", "from_pretrained(..., attn_implementation='eager')"),
            ),
        ),
        {"line": bad.text},
        (),
        Place(bad.file, bad.line),
    )


CHECKS = signatures(__name__, ROWS)
