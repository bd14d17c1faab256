"""Did a traceback come from an evaluation that keeps what only a backward pass needs?"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from mgpu.readers.sources.bindings import Function
from mgpu.readers.sources.expressions import last_name
from mgpu.readers.sources.frame_scopes import Scope
from mgpu.snapshot import Definition, TracedCall

_EVALUATES = re.compile(r"(?i)(?:^|_)(?:eval|evaluate|valid|validate|validation|val)(?:_|$)")
_TRAINS = re.compile(r"(?i)train|(?:^|_)fit(?:_|$)")
# Of whatever may turn gradients off, in any file of the traceback.
_SWITCHES = re.compile(
    r"no_grad|inference_mode|set_grad_enabled|requires_grad|enable_grad|nullcontext|contextmanager|\.freeze\("
)
_OF_TORCH = "torch"


def kept(frames: Sequence[Scope | None], calls: Sequence[TracedCall]) -> Definition | None:
    """Return the function that evaluates with gradients, if nothing in the files of a traceback turns them off.

    None if a frame is in a package other than torch, which may do that, or if the source of one is not known.
    """
    if any(call.package not in ("", _OF_TORCH) for call in calls):
        return None
    known = [scope for scope, call in zip(frames, calls, strict=True) if scope is not None or call.file]
    if not known or not any(call.function == "forward" for call in calls):
        return None
    if any(scope is None or _trains(scope) or _switches(scope) for scope in known):
        return None
    return next((found for scope in reversed(known) if scope and (found := _evaluation(scope))), None)


def _trains(scope: Scope) -> bool:
    """Whether the function of a frame is one that trains: its evaluation, if it has one, may not be what ran."""
    function = scope.function
    return function is not None and (bool(_TRAINS.search(function.name)) or "backward" in _called(function))


def _called(function: Function) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {last_name(one) or getattr(one, "attr", "") for one in calls}


def _switches(scope: Scope) -> bool:
    """Whether the file of a frame mentions what turns gradients off, or the frame is in a `with` that may do it."""
    return bool(_SWITCHES.search("\n".join(scope.module.lines))) or any(
        isinstance(node, (ast.With, ast.AsyncWith)) for node in scope.around
    )


def _evaluation(scope: Scope) -> Definition | None:
    function = scope.function
    if function is None or not _EVALUATES.search(function.name):
        return None
    line = scope.module.text_of(function)
    return Definition(function.name, "keeps_gradients", f"{scope.module.name}:{function.lineno}", line)
