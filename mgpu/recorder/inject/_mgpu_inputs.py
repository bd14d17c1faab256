"""Did the inputs of a step contain NaN before the model computed anything from them?

Called once, when a loss that is not finite is seen, or an exception reports one. It looks at the arguments that the
loop around the line passes to a module or a loss: tensors on the CPU that nothing computed from parameters. It waits
for no GPU.

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject import _mgpu_values
    from mgpu.recorder.inject._mgpu_counts import stored
    from mgpu.recorder.inject._mgpu_own_code import is_users
else:
    import _mgpu_values
    from _mgpu_counts import stored
    from _mgpu_own_code import is_users

_MOST_FRAMES, _MOST_ARGUMENTS, _MOST_ITEMS, _MOST_FOUND = 4, 40, 16, 3
_LARGEST_SOURCE, _LARGEST_TENSOR = 1 << 21, 1 << 22  # bytes; elements, which take some 10 ms
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOSS = re.compile(r"(?:torch\.nn\.functional|nn\.functional|F)\.\w+$")
_REFERENCES = 3  # to the copy: of the frame, the variable here, and the argument of getrefcount
_OPTIMIZED = 0x1  # CO_OPTIMIZED: f_locals is a copy, which the frame keeps before Python 3.13


def with_nan(frame: FrameType | None) -> list[list[Any]]:
    """Return [name, elements that are NaN, elements, file, line] of inputs with NaN in the user's innermost frames."""
    found: list[list[Any]] = []
    looked = 0
    while frame is not None and looked < _MOST_FRAMES and not found:
        if is_users(frame.f_code.co_filename):
            looked += 1
            with contextlib.suppress(Exception):  # a file that was removed, or is not Python
                found = _in_frame(frame, frame.f_lineno)
            if frame.f_code.co_flags & _OPTIMIZED and sys.version_info < (3, 13):
                copy = frame.f_locals  # it would keep this step's tensors until the function ends
                if sys.getrefcount(copy) <= _REFERENCES:  # else the script has it, too: locals()
                    copy.clear()
        frame = frame.f_back
    return found[:_MOST_FOUND]


def with_nan_below(trace: TracebackType | None) -> list[list[Any]]:
    """Return the same for the user's innermost frames of an exception."""
    entries = []
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            entries.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    for frame, line in entries[: -_MOST_FRAMES - 1 : -1]:
        with contextlib.suppress(Exception):
            if found := _in_frame(frame, line):
                return found[:_MOST_FOUND]
    return []


def _in_frame(frame: FrameType, line: int) -> list[list[Any]]:
    lines = linecache.getlines(frame.f_code.co_filename)
    source = "".join(lines)
    if len(source) > _LARGEST_SOURCE:
        return []
    around = _around(ast.parse(source), line)
    calls = [node for node in ast.walk(around) if isinstance(node, ast.Call)] if around is not None else []
    found: dict[str, list[Any]] = {}
    for call in calls[:_MOST_ARGUMENTS]:
        if _is_of_model(frame, ast.get_source_segment(source, call.func) or ""):
            for name, value in _arguments(frame, source, call):
                if (nan := _nan(value)) and name not in found:
                    found[name] = [name, nan, value.numel(), frame.f_code.co_filename, call.lineno]
    return list(found.values())


def _around(tree: ast.AST, line: int) -> ast.AST | None:
    """Return the innermost loop around a line in its function, else the function."""
    kinds = (*_LOOPS, *_FUNCTIONS)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    function = max(functions, key=_line, default=None)
    loops = [node for node in nodes if isinstance(node, _LOOPS) and (function is None or node.lineno > function.lineno)]
    return max(loops, key=_line, default=function)


def _line(node: Any) -> int:
    line: int = node.lineno
    return line


def _is_of_model(frame: FrameType, code: str) -> bool:
    """Whether a call's function is a module (a model, a loss), or one of torch.nn.functional."""
    if _LOSS.match(code):
        return True
    named = [value for name, value in _mgpu_values.named(frame, code) if name == code]
    return bool(named) and isinstance(stored(named[0]).get("_modules"), dict)


def _arguments(frame: FrameType, source: str, call: ast.Call) -> Iterator[tuple[str, Any]]:
    for node in (*call.args, *(keyword.value for keyword in call.keywords)):
        inner = node.value if isinstance(node, ast.Starred) else node
        if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            for name, value in _mgpu_values.named(frame, ast.get_source_segment(source, inner) or ""):
                yield name, value
                if type(value) is dict:
                    items = [(key, one) for key, one in value.items() if type(key) is str][:_MOST_ITEMS]
                    yield from ((f"{name}[{key!r}]", one) for key, one in items)


def _nan(value: Any) -> int:
    """Return how many elements of a tensor are NaN; 0 also for one that cannot be an input, or is not on the CPU."""
    torch = sys.modules["torch"]
    if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout != torch.strided:
        return 0
    if value.requires_grad or not value.is_floating_point() or not 0 < value.numel() <= _LARGEST_TENSOR:
        return 0
    return int(torch.isnan(value).sum())
