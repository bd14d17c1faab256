"""Has none of an optimizer's parameters a gradient, where the script collects their gradients?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning

_NOTHING = re.compile(
    r"expects a non-empty (?:list|TensorList)|expected a non-empty list of Tensors|received an empty list of sequences|"
    r"need at least one array to |\barg is an empty sequence|iterable argument is empty"
)
_COLLECTS = re.compile(r" in \w*(?:grad(?:ient)?s?_?norm|norm_(?:of_)?grad|clip_grad)\w*$")
_STEPS = re.compile(r"(?:^|/)\w*(?:sam|optim\w*)\.py in \w*step$")
_TAKES = re.compile(r"\bgrads?\b|\.grad\b|_grads?\b")


def no_gradients(one: UncaughtException) -> Meaning | None:
    """Return what an empty list means in a function of the script that takes all gradients; None if it is another."""
    if not one.raised_in_own_code or not one.frames or not _NOTHING.search(one.message):
        return None
    inner = one.frames[-1]
    if not _COLLECTS.search(inner) and not (_STEPS.search(inner) and _TAKES.search(one.code or "")):
        return None
    at = at_place(one)
    return Meaning(
        f"no parameter of the optimizer has a gradient: the list of gradients is empty{at}",
        "The function collects the parameters whose .grad is not None, and found none. backward() did not run before "
        "this call, zero_grad() ran between them, or the optimizer has other parameters than the model that is "
        "trained: all of them are frozen, the model was copied or built again later, or parameters() was used up.",
        (
            Fix(
                "Compute the gradients before this call, and clear them only after it.",
                ("loss.backward()", "optimizer.first_step(zero_grad=True)  # SAM: after backward()"),
            ),
            Fix(
                "See what the optimizer has.",
                ("print([p.requires_grad for group in optimizer.param_groups for p in group['params']][:8])",),
            ),
            Fix(
                "Make it from the parameters that are trained, when the model is complete and on its device.",
                ("[p for p in model.parameters() if p.requires_grad]",),
            ),
        ),
    )
