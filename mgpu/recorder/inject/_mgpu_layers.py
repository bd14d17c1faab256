"""Which of torch's own layers or functions failed below a line of the user's, and with which input?

No line of the user's code names a layer in nn.Sequential, or the output in `cross_entropy(model(x), y)`. Torch's frames
have them. Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, TracebackType

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_counts import stored
else:
    from _mgpu_counts import stored

_FUNCTIONAL = os.path.join("torch", "nn", "functional.py")
_OF_TORCH = "torch.nn.modules."
_SAMPLES = frozenset({"input_ids", "labels"})
_MOST_DEPTH, _MOST_MODULES = 12, 5000


def below(trace: TracebackType, named: Iterable[tuple[str, Any]]) -> tuple[TracebackType, list[tuple[str, Any]]] | None:
    """Return the entry of torch's layer or function that failed, and names and values that the line itself lacks.

    `trace`: the entry of the user's line. `named`: the names on that line, and their values.
    """
    known = list(named)
    entries = list(_following(trace))
    layers = [one for one in entries if _is_layer(one.tb_frame.f_locals.get("self"))]
    if layers:
        layer = layers[-1].tb_frame.f_locals["self"]
        name = None if any(value is layer for _, value in known) else _named_from(known, layer)
        return (layers[-1], [(name, layer), *_as_known(_tensors(layers[-1].tb_frame), known)]) if name else None
    function = next((one for one in entries if one.tb_frame.f_code.co_filename.endswith(_FUNCTIONAL)), None)
    given = list(_tensors(function.tb_frame)) if function is not None else []
    is_new = any(all(value is not other for _, other in known) for _, value in given)
    return (function, [*_as_known(given, known), *_of_samples(entries)]) if function is not None and is_new else None


def _of_samples(entries: list[TracebackType]) -> list[tuple[str, Any]]:
    """Return tokens and labels as a model of transformers got them: its loss has both in another form."""
    for one in entries:
        given = dict(_tensors(one.tb_frame))
        if _SAMPLES.issubset(given):
            return [(name, given[name]) for name in sorted(_SAMPLES)]
    return []


def _as_known(given: Iterable[tuple[str, Any]], known: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield values with the names that the user's line has for them."""
    for name, value in given:
        yield next((own for own, other in known if other is value), name), value


def _following(trace: TracebackType) -> Iterator[TracebackType]:
    following = trace.tb_next
    while following is not None:
        yield following
        following = following.tb_next


def _is_layer(value: Any) -> bool:
    return type(value).__module__.startswith(_OF_TORCH) and _modules(value) is not None


def _modules(value: Any) -> dict[str, Any] | None:
    """Return the modules within one of torch's modules; None: it is not one."""
    own = stored(value)
    inner = own.get("_modules")
    return inner if isinstance(inner, dict) and isinstance(own.get("_parameters"), dict) else None


def _named_from(known: list[tuple[str, Any]], layer: Any) -> str | None:
    """Return how the user's code would write the layer: "model.module[0]"; None: no module on the line holds it."""
    for name, value in known:
        for path, inner in itertools.islice(_within(value, "", 0), _MOST_MODULES):
            if inner is layer:
                return f"{name}{path}"
    return None


def _within(module: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, inner in (_modules(module) or {}).items():
        further = f"{path}[{name}]" if str(name).isdigit() else f"{path}.{name}"
        yield further, inner
        if depth < _MOST_DEPTH:
            yield from _within(inner, further, depth + 1)


def _tensors(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a function that are tensors."""
    torch = sys.modules.get("torch")
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        value = frame.f_locals.get(name)
        if torch is not None and isinstance(value, torch.Tensor):
            yield name, value
