"""Which loop did not run once, so that what it fills has no value on the failed line?

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

    Variables = dict[str, Any]

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject import _mgpu_counts, _mgpu_loops, _mgpu_values
    from mgpu.recorder.inject._mgpu_own_code import is_users
else:
    import _mgpu_counts
    import _mgpu_loops
    import _mgpu_values
    from _mgpu_own_code import is_users

_NO_VALUE = re.compile(r"'(?P<name>\w+)'")
_OF_NOTHING = re.compile(
    r"(?i)\bempty\b|at least one|zero-size|list index out of range|(?:no|zero) elements|(?:division|modulo) by zero"
)
_SAME_ITEMS = ("enumerate", "tqdm", "list", "tuple", "iter", "reversed", "sorted", "track")
_FILLS = ("append", "extend", "add", "update", "add_", "insert")
_LONGEST = 80


def of_failure(trace: TracebackType | None, error: BaseException) -> tuple[str, int, dict[str, Any]] | None:
    """Return the user's innermost file and line, and the loop that did not run; None if that is not certain.

    "loop": the line of the loop, "over": what it goes over, in the words of the code, "fills": the name that would have
    its value from it, and "values": what the names in `over` stand for.
    """
    own = None
    while trace is not None:
        own = trace if is_users(trace.tb_frame.f_code.co_filename) else own
        last, trace = trace, trace.tb_next
    if own is None or (isinstance(error, (NameError, ZeroDivisionError)) and own is not last):
        return None
    frame = own.tb_frame
    known = {**(frame.f_globals if frame.f_code.co_name != "<module>" else {}), **frame.f_locals}
    for name in _without_items(own, error, known):
        loop = _fills(frame, own.tb_lineno, name, known)
        if loop is not None:
            found = ((one, _mgpu_values.describe(known[one], one)) for one in loop.names if one in known)
            names = {one: text for one, text in found if text}
            facts = {"loop": loop.line, "over": loop.over[:_LONGEST], "fills": name, "values": names}
            return frame.f_code.co_filename, own.tb_lineno, facts
    return None


def _without_items(own: TracebackType, error: BaseException, known: Variables) -> Iterator[str]:
    """Yield the names of the failed line that have no value, no item, or are 0."""
    if isinstance(error, NameError):
        found = _NO_VALUE.search(str(error))
        if found and found["name"] not in known:
            yield found["name"]
    elif isinstance(error, (ArithmeticError, RuntimeError, ValueError, IndexError)) and _OF_NOTHING.search(str(error)):
        code = _mgpu_values.failed_code(own)
        if isinstance(error, ZeroDivisionError):
            code = re.split(r"//?|%", code)[-1]
        for name, steps in _mgpu_values.chains(code):
            value = known.get(name)
            if not steps and (type(value) in (list, tuple, dict, set) or type(value) in (int, float)) and not value:
                yield name


def _fills(frame: FrameType, line: int, name: str, known: Variables) -> _mgpu_loops.Loop | None:
    """Return the loop that goes over nothing and has all statements before a line that fill a name."""
    code = frame.f_code
    if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return None
    places = [(node, getattr(node, "lineno", line)) for node in _mgpu_loops.statements(code)]
    lines = [at for node, at in places if at < line and _changes(node, name)]
    loops = [loop for loop in _mgpu_loops.of_function(code) if lines and all(_is_in(loop, at) for at in lines)]
    return next((loop for loop in reversed(loops) if _is_empty(loop.node.iter, known)), None)


def _is_in(loop: _mgpu_loops.Loop, line: int) -> bool:
    return loop.node.lineno <= line <= (loop.node.body[-1].end_lineno or 0)


def _changes(node: ast.AST, name: str) -> bool:
    """Whether a node gives a name a value other than an empty one, or puts something into it."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        sets = any(isinstance(one, ast.Name) and one.id == name for part in targets for one in ast.walk(part))
        return sets and not _is_nothing(node.value)
    if isinstance(node, ast.Call):
        method = node.func
        of_name = isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name) and method.value.id == name
        return of_name and isinstance(method, ast.Attribute) and method.attr in _FILLS
    if isinstance(node, (ast.For, ast.AugAssign, ast.NamedExpr)):
        return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node.target))
    return False


def _is_nothing(node: ast.AST | None) -> bool:
    """Whether an expression is `[]`, `{}`, `0`, `0.0` or `list()`."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("list", "dict", "set", "tuple") and not node.args
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and not node.value


def _is_empty(node: ast.AST, known: Variables) -> bool:
    """Whether what a loop goes over certainly has no item."""
    if isinstance(node, ast.Call) and node.args:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "range" and "range" not in known:
            ends = [_mgpu_counts.integer(one, known) for one in node.args]
            whole = [one for one in ends if one is not None]
            return len(whole) == len(ends) and (len(whole) < 3 or whole[2] != 0) and not range(*whole)
        if name == "zip":
            return any(_is_empty(one, known) for one in node.args)
        return name in _SAME_ITEMS and _is_empty(node.args[0], known)
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    value = _mgpu_counts.value_of(node, known)
    return _mgpu_counts.of_loader(value)[1] == 0 or _mgpu_counts.length_of(value) == 0
