"""Did a user stop a run that computed NaN? Then the NaN is what to look at, and not who stopped it."""

from __future__ import annotations

import re

from mgpu.check import Answer, Evidence, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Circumstance, Log, SignatureMatch

_LEAST = 3  # reports or losses; a step or two can be skipped, and are
_NEAR = 100  # lines before the stop, in which a program that checks every step still reports it
_SOFTMAX = re.compile(r"(?i)softmax|attention|attn")
_COMPUTED = re.compile(
    r"(?i)softmax|attention|attn|logit|grad|layer|block|hidden|embed|weight|param|norm|activation|conv|mlp|\bloss|"
    r"output|prediction|encoder|decoder|forward|backward"
)
_OF_MASKS = (
    "Softmax gives NaN for a row that is -inf as a whole (a mask that leaves no entry, such as one without the "
    "diagonal, or padding only) and for infinite scores. "
)
_REASONS = (
    "Usual reasons: NaN in the data or in loaded weights, a division by 0, log or sqrt of 0, fp16 that overflows, a "
    "learning rate that is too high. "
)
_MASK = Fix(
    "Leave at least one entry in each row of the mask, or use a large finite number for -inf.",
    ("assert mask.any(dim=-1).all()", "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"),
)
_FIRST = Fix(
    "Stop at the first operation with NaN, and look at its inputs. The anomaly mode finds those of the backward pass.",
    ("assert torch.isfinite(x).all()", "torch.autograd.set_detect_anomaly(True)"),
)
_BACK = Fix("If it came after good steps, go on from the checkpoint before it, with a lower learning rate.")


def _last(log: Log, name: str) -> Circumstance | None:
    return next((one for one in reversed(log.shows) if one.name == name), None)


def _lasting(log: Log, stop: SignatureMatch) -> Circumstance | None:
    """Return what shows NaN until the stop: the program's own reports, else its losses."""
    finite = _last(log, "training_loss_finite")
    for name in ("nan_reported", "training_loss_nan"):
        lost = _last(log, name)
        if lost is None or lost.times < _LEAST or lost.file != stop.file or lost.line > stop.line:
            continue
        recovered = finite is not None and (finite.file != lost.file or finite.last > lost.line)
        late = name != "nan_reported" or lost.last > stop.line - _NEAR
        if late and not recovered:
            return lost
    return None


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
    role="root",
    kind="script",
    tags=("precise",),
)
def log_nan_until_stopped(log: Log) -> Answer:
    """The run computed NaN until a user interrupted it.

    Why: The interruption is how the run ended, and a run that computes NaN learns nothing. The first line with NaN
    is the nearest to where it begins: later ones are consequences, because NaN spreads through all that is computed
    from it.

    Fix: Start at the first NaN that the log shows, and look at what goes into that operation.
    """
    stop = next((one for one in log.seen if one.signature == "log_interrupted" and not one.survived), None)
    lost = _lasting(log, stop) if stop else None
    if stop is None or lost is None:
        return Ok("no NaN until a user interrupted the run")
    evidence: Evidence = {"line": lost.text, "times": lost.times, "stopped": stop.text}
    place = Place(lost.file, lost.line)
    if lost.name == "training_loss_nan":
        since = "from the start" if _last(log, "training_loss_finite") is None else f"from line {lost.line:,} on"
        return Problem(
            f"the training loss is NaN {since}, until a user interrupted the run (Ctrl-C)",
            f"The interruption is only how it ended. {_REASONS}Every loss after the first NaN is NaN, too.",
            (_FIRST, _BACK),
            evidence,
            place=place,
        )
    of_mask = _SOFTMAX.search(lost.text)
    subject = "the model computes NaN" if _COMPUTED.search(lost.text) else "the program reports NaN"
    return Problem(
        f'{subject}, first "{lost.text}": the program reports it in {lost.times} lines, until a user '
        "interrupted the run (Ctrl-C)",
        f"The interruption is only how it ended. {_OF_MASKS if of_mask else _REASONS}"
        "The reports after the first one are consequences.",
        (_MASK, _FIRST, _BACK) if of_mask else (_FIRST, _BACK),
        evidence,
        place=place,
    )
