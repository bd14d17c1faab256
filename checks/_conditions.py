"""What does a failed `assert` say that has no message? Only its line of code is in the log.

The condition is read as Python, and put into words: "hidden_size must be a multiple of num_attention_heads".
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

# Objects that hold the settings of a run: their attributes are options, not the package's own state.
_HOLDERS = re.compile(
    r"^(?:\w*args|\w*config|\w*cfg|conf|hparams|hp|opts?|options|FLAGS|params|hyperparameters|\w+_arguments)$"
)
_COMPARED = {
    ast.Eq: "must equal",
    ast.NotEq: "must not equal",
    ast.Lt: "must be less than",
    ast.LtE: "must be at most",
    ast.Gt: "must be greater than",
    ast.GtE: "must be at least",
    ast.In: "must be one of",
    ast.NotIn: "must not be one of",
}
# What libraries are asked, and what it means that they say no.
_ASKED = (
    (r"torch\.cuda\.is_available\(\)", "torch sees no GPU"),
    (
        r"(?:torch\.distributed|dist)\.is_initialized\(\)",
        "torch.distributed is not initialized: the ranks are not connected",
    ),
    (r"(?:os\.path|osp|path)\.(?:exists|isfile|isdir)\((?P<of>[^()]+)\)|(?P<path>[\w.]+)\.(?:exists|is_file|is_dir)\(\)",
     "{of} does not exist on this node"),
    (r"torch\.isfinite\((?P<of>[^()]+)\)\.all\(\)|(?:math|np|torch)\.isfinite\((?P<path>[^()]+)\)",
     "{of} is NaN or infinite"),
)  # fmt: skip
_NOT_A_NUMBER = re.compile(r"(?:torch|math|np|numpy)\.isnan\((?P<of>[^()]+)\)")


class Condition(NamedTuple):
    """A failed condition in words."""

    text: str  # "args.save_interval is not set"
    settings: tuple[str, ...]  # names of the settings in it, without the object that holds them: "save_interval"


def explain(code: str) -> Condition | None:
    """Return what it means that this line's assertion failed; None if the line is incomplete, or says nothing."""
    tree = _parsed(code)
    text = _failed(tree) if tree is not None else None
    return Condition(text, _settings(tree)) if tree is not None and text else None


def of_settings(code: str) -> bool:
    """Whether an assertion is about settings of the run, such as `args.save_interval`."""
    tree = _parsed(code)
    return tree is not None and bool(_settings(tree))


def _parsed(code: str) -> ast.expr | None:
    """Return the condition of an `assert`; None if the line is not all of it."""
    for text in (code, code.rstrip(" ,\\"), f"{code.rstrip(' ,(')}"):
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if len(body) == 1 and isinstance(body[0], ast.Assert):
            return body[0].test
    return None


def _settings(tree: ast.expr) -> tuple[str, ...]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (_holds(node.value) or _holds_parts(node.value)):
            names.append(node.attr)
        elif isinstance(node, ast.Subscript) and _holds(node.value) and isinstance(node.slice, ast.Constant):
            names.append(str(node.slice.value))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    return tuple(dict.fromkeys(name for name in names if name not in called and not _HOLDERS.match(name)))


def _holds(node: ast.expr) -> bool:
    """Whether an object holds settings: `args`, `self.config`."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(_HOLDERS.match(name))


def _holds_parts(node: ast.expr) -> bool:
    """Whether it is a part of such an object: `config.actor`."""
    return isinstance(node, ast.Attribute) and (_holds(node.value) or _holds_parts(node.value))


def _failed(test: ast.expr) -> str | None:
    """Return what is the case if the condition is false; None if it cannot be said in a few words."""
    source = ast.unparse(test)
    if isinstance(test, ast.BoolOp):
        parts = "; ".join(map(ast.unparse, test.values))
        return f"{'not all' if isinstance(test.op, ast.And) else 'none'} of this is true: {parts}"
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _holds_true(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    for pattern, text in _ASKED:
        if found := re.fullmatch(pattern, source):
            groups = found.groupdict()
            return text.format(of=groups.get("of") or groups.get("path"))
    if isinstance(test, ast.Call) and source.startswith("isinstance(") and len(test.args) == 2:
        return f"{ast.unparse(test.args[0])} is not of the type {ast.unparse(test.args[1])}"
    if isinstance(test, ast.Name | ast.Attribute | ast.Subscript):
        return f"{source} is not set, off or empty"
    return None


def _holds_true(operand: ast.expr) -> str | None:
    """Return what is the case if this is true, though the assertion requires that it is not."""
    source = ast.unparse(operand)
    if found := _NOT_A_NUMBER.match(source):
        return f"{found['of']} is NaN"
    if isinstance(operand, ast.Name | ast.Attribute | ast.Subscript):
        return f"{source} is set, which is not allowed here"
    return f"{source} is true, which is not allowed here" if isinstance(operand, ast.Compare | ast.Call) else None


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> str | None:
    a, b = ast.unparse(left), ast.unparse(right)
    if isinstance(op, ast.IsNot) and b == "None":
        return f"{a} is not set (None)"
    if isinstance(op, ast.Is) and b == "None":
        return f"{a} is set, which is not allowed here"
    if isinstance(op, ast.Eq) and b == "0" and isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        return f"{ast.unparse(left.left)} must be a multiple of {ast.unparse(left.right)}, and is not"
    words = _COMPARED.get(type(op))
    return f"{a} {words} {b}" if words else None
