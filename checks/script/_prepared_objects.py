"""Does anything that accelerator.prepare gets hold the model?"""

from __future__ import annotations

import re

from mgpu.snapshot import Script, ScriptCall

from ._calls import ACCELERATOR, DATA_LOADER, OPTIMIZERS, calls, last_part, unpacks
from ._exchanges import is_together
from ._rank_paths import backward_calls, training_loops

_OTHERS = re.compile(
    rf"(?:{OPTIMIZERS}|{DATA_LOADER}|torch\.optim\.lr_scheduler\.\w+|(?:transformers\.(?:optimization\.)?)?"
    r"get_(?:\w+_)?schedule\w*)\(\)"
)
_PREPARES = r".*\.(?:prepare\w*|dispatch_model)"
_BACKWARD = re.compile(rf"(?:{ACCELERATOR}|(?:.*\.)?accelerator)\.backward")
_REDUCES = re.compile(r".*\.reduce")


def prepared_without_model(script: Script) -> ScriptCall | None:
    """Return the first call of prepare if all of them get only optimizers, loaders and schedules in a training script.

    None also if the model may be wrapped elsewhere: by a library that exchanges gradients, or in code that was not
    read and gets the accelerator.
    """
    preparing = calls(script, _PREPARES)
    if script.cut or not preparing or not all(_is_known(call) and _has_no_model(call) for call in preparing):
        return None
    loops = training_loops(script)
    passes = [call for call in backward_calls(script) if call.reached and loops.intersection(call.loops)]
    by_accelerate = [call for call in passes if _BACKWARD.fullmatch(call.name)]
    exchanges = any(is_together(one.name) or _REDUCES.fullmatch(one.name) for one in script.calls)
    if not by_accelerate or exchanges or any(map(is_together, script.imports)) or _is_passed_on(script):
        return None
    return preparing[0]


def _is_known(call: ScriptCall) -> bool:
    return bool(call.arguments) and not call.keywords and not unpacks(call)


def _has_no_model(call: ScriptCall) -> bool:
    return all(_OTHERS.fullmatch(one) for one in call.arguments)


def _is_passed_on(script: Script) -> bool:
    """Whether code that was not read gets the accelerator, and may prepare the model with it."""
    names = {name for call in calls(script, r"accelerate\.(?:\w+\.)*Accelerator") for name in call.targets}
    read = {last_part(call.function) for call in script.calls if call.function}
    given = [call for call in script.calls if names & {*call.written, *call.keywords.values()}]
    return any(last_part(call.name) not in read for call in given)
