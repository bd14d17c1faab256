"""Where does a value of the line that failed come from? It is followed outward, through the calls of the traceback.

A traceback shows the line of each call. If a line passes `tokenizer=self.tokenizer` to the function in which
`tokenizer` was None, then `self.tokenizer` was None, and so on up to the script.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from mgpu.snapshot import TracedCall, UncaughtException

_PASSES_ON = re.compile(r"\(\*args,\s*\*\*\w+\)|\(self, \*args, \*\*kwargs\)|\(\*input, \*\*kwargs\)|forward_call\(")
_CALLED_BY_TORCH = frozenset({"forward", "__call__"})
_BLOCK = re.compile(r"^(?:if|while|for|with|elif|else|try|except|async for|async with|match|case|def|class)\b.*:$")
_OTHER_VALUE = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.BinOp, ast.Compare, ast.Starred, ast.GeneratorExp, ast.ListComp)
_TWO = 2  # parts that Python underlines of table[key], and of f(x) since 3.13
_LONGEST = 80  # characters of an expression in a sentence
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class Origin(NamedTuple):
    """The expression furthest out that is known to have the value, and where it stands."""

    expression: str
    call: TracedCall
    passed: int  # number of calls that passed the value on; 0: it was not followed

    @property
    def own(self) -> bool:
        """Whether that line is in one of the user's own files."""
        return not self.call.package


def parsed(code: str) -> ast.AST | None:
    """Parse a line of a traceback. It can be the first line of a block, or a part of a statement that is cut."""
    text = code.strip().rstrip("\\").strip()
    if text.startswith("elif "):
        text = text[2:]
    if _BLOCK.match(text):
        text += " pass"
    text = re.sub(r"^return\b", "_ =", text) if text != "return" else text
    text = re.sub(r"^(?:yield|await|raise|del)\b", "_ =", text)
    for candidate in (text, _closed(text), f"_({_closed(text)})"):
        try:
            return ast.parse(candidate)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _closed(text: str) -> str:
    """Close the brackets that a cut statement leaves open, after its last complete argument."""
    opened: list[str] = []
    quote = ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in _PAIRS:
            opened.append(_PAIRS[char])
        elif opened and char == opened[-1]:
            opened.pop()
    return text.rstrip(", ") + "".join(reversed(opened))


def origin(one: UncaughtException, expression: str) -> Origin | None:
    """Return where the value of an expression in the deepest line comes from; None without such a line."""
    calls = one.calls
    if not calls or not calls[-1].code:
        return None
    at, passed = len(calls) - 1, 0
    while at > 0 and (step := _one_out(calls, at, expression)):
        expression, at = step
        passed += 1
    return Origin(expression, calls[at], passed)


def _one_out(calls: tuple[TracedCall, ...], at: int, expression: str) -> tuple[str, int] | None:
    """Return what the caller passes as the expression's first name, with its frame; None if the log lacks it."""
    root, dot, rest = expression.partition(".")
    if not root.isidentifier() or root in ("self", "cls"):
        return None
    function, caller = calls[at].function, at - 1
    while caller > 0 and _PASSES_ON.search(calls[caller].code or ""):
        caller -= 1
    value = passed_as(calls[caller].code or "", function, root)
    if value is None:
        return None
    return f"{value}{dot}{rest}", caller


def passed_as(code: str, function: str, name: str) -> str | None:
    """Return the expression that a line passes as an argument, by its name or under its own; None if unknown."""
    call = call_of(code, function)
    if call is None:
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return _plain(keyword.value)
    same = [arg for arg in call.args if _last_name(arg) == name]
    return _plain(same[0]) if len(same) == 1 else None


def call_of(code: str, function: str) -> ast.Call | None:
    """Return the only call of a function in a line; of a constructor or a module's forward(), what can be it."""
    tree = parsed(code)
    if tree is None or not function:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last_name(node.func) != "_"]
    named = [node for node in calls if _last_name(node.func) == function]
    if not named and function == "__init__":
        named = [node for node in calls if (name := _last_name(node.func)) and (name[:1].isupper() or name == "cls")]
    elif not named and function in _CALLED_BY_TORCH:
        named = [node for node in calls if node.args or node.keywords]
    return named[0] if len(named) == 1 else None


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _plain(node: ast.expr) -> str | None:
    """Return an expression as text, if its value is what was passed: no choice, sum or comparison of several."""
    if isinstance(node, ast.Constant) and node.value is not None:
        return None
    for part in ast.walk(node):
        if isinstance(part, _OTHER_VALUE):
            return None
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else None


def underlined(one: UncaughtException) -> tuple[str, ...]:
    """Return the parts of the deepest line that Python underlines; empty if its line is not the one that failed."""
    if not one.calls or not one.code or not (one.calls[-1].code or "").startswith(one.code):
        return ()
    marked = one.calls[-1].marked
    return () if any(part.lstrip().startswith(("'", '"')) for part in marked) else marked  # a literal has no name


def subscript(one: UncaughtException) -> tuple[str, str] | None:
    """Return what the failed line reads an item of, and the item's index or key, if Python underlines them."""
    parts = tuple(map(str.strip, underlined(one)))
    if len(parts) != _TWO or not parts[1].startswith("[") or not parts[1].endswith("]"):
        return None
    return (parts[0], parts[1][1:-1].strip()) if len(parts[0]) <= _LONGEST else None


def reads_attribute(one: UncaughtException, name: str) -> str | None:
    """Return what the failed line reads an attribute of, if Python underlines it."""
    parts = underlined(one)
    of = parts[0].removesuffix(f".{name}") if len(parts) == 1 and parts[0].endswith(f".{name}") else ""
    return of if of and len(of) <= _LONGEST else None


def operands(one: UncaughtException) -> tuple[str, str] | None:
    """Return the two sides of the operator that failed, if Python underlines them."""
    parts = tuple(map(str.strip, underlined(one)))
    return (parts[0], parts[2]) if len(parts) == _TWO + 1 else None


def called(one: UncaughtException) -> str | None:
    """Return what the failed line calls, if Python underlines the call."""
    parts = tuple(map(str.strip, underlined(one)))
    if len(parts) == _TWO and parts[1].startswith("("):
        return parts[0]
    tree = parsed(parts[0]) if len(parts) == 1 else None
    first = tree.body[0] if isinstance(tree, ast.Module) and tree.body else None
    call = first.value if isinstance(first, ast.Expr) else None
    return ast.unparse(call.func) if isinstance(call, ast.Call) else None
