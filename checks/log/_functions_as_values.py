"""Did the script use a function where a value belongs?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import Meaning

FUNCTIONS = "builtin_function_or_method|function|method|method-wrapper|method_descriptor"
_IS_FUNCTION = re.compile(
    rf"'(?:{FUNCTIONS})' object (?:is not (?:subscriptable|iterable|an iterator)|does not support item "
    rf"|cannot be interpreted|has no attribute '(?P<name>\w+)')"
    rf"|(?:object|argument) of type '(?:{FUNCTIONS})'"
    rf"|unsupported operand type\(s\) for .*'(?:{FUNCTIONS})'|not supported between instances of .*'(?:{FUNCTIONS})'"
    rf"|(?:not|got) (?:a |an )?'?(?:builtin_function_or_method)\b"
)
# Functions of Python whose names people give to their own values.
_BUILTINS = (
    "input|id|iter|max|min|sum|len|hash|next|vars|dir|format|all|any|abs|round|sorted|compile|eval|open|print|pow"
)
_BARE = re.compile(rf"(?<![\w.'\"])(?P<name>{_BUILTINS})(?![\w('\"=]| ?[=(])")
_SUBSCRIPTED = re.compile(r"\.(?P<name>[a-z_]\w*)\[")
# What a line goes through or counts: "for key in batch.keys", "set(data.keys)", "'x' in data.keys", "len(x.size)".
_COUNTING = "set|list|tuple|sorted|enumerate|len|sum|max|min|any|all|iter|zip|reversed|frozenset"
_GONE_THROUGH = re.compile(
    rf"(?:\bin |\b(?:{_COUNTING})\(\s*)(?P<method>[A-Za-z_]\w*(?:\.\w+|\[\w+\])*?\.(?P<name>[a-z_]\w*))"
    r"(?=\s*(?:[):,\]}]|$|if\b|for\b|and\b|or\b))"
)
_OF_PLAIN_NAME = re.compile(rf"\b(?:{_COUNTING})\(\s*[A-Za-z_]\w*\s*[,)]")  # which can be what has the method
_ITERATED = re.compile(r"'(?:builtin_function_or_)?method'.* (?:is not iterable|has no len\(\))")
_GRAPHS = re.compile(r"(?:^|[ /])torch_geometric\b|\bfrom_data_list\b")


def function_as_value(one: UncaughtException) -> Meaning | None:
    """Explain a function that is read, indexed or passed as if it were a value."""
    found = _IS_FUNCTION.search(one.message)
    if short_name(one.type) not in ("TypeError", "AttributeError") or not found or not one.place:
        return None
    code = one.own_code or one.code or ""
    attribute = _SUBSCRIPTED.findall(code) if "subscriptable" in one.message else []
    if attribute and len({*attribute} & _KNOWN_METHODS) == 1:
        return _method(one, next(iter({*attribute} & _KNOWN_METHODS)))
    if method := _gone_through(one, code):
        return _not_called(one, method)
    names = {bare["name"] for line in (*one.own_lines, code) for bare in _BARE.finditer(line)}
    if len(names) == 1 and "builtin_function_or_method" in one.message:
        return _builtin(one, names.pop())
    return Meaning(
        _title(one, found["name"]),
        "Parentheses are missing (x.size instead of x.size(), model.parameters instead of model.parameters()), or a "
        "name that the script never sets is a function of Python (input, id, max, iter). It can have "
        "been passed in from a caller: the last line of the traceback only uses it.",
        (
            Fix(
                "Look in the traceback for the line that passes it, and call the function or use the name of the value."
            ),
            Fix(
                "Search for names that are not set, and for names of Python's functions.",
                ("pip install pyflakes", shell("python -m pyflakes {:path}", one.place.partition(":")[0])),
            ),
        ),
    )


def _gone_through(one: UncaughtException, code: str) -> re.Match[str] | None:
    """Return the only method that a line of the script goes through, if nothing else in it can be the function."""
    found = {match["method"]: match for match in _GONE_THROUGH.finditer(code)}
    other = _OF_PLAIN_NAME.search(code) or ("builtin" in one.message and _BARE.search(code))
    own = one.raised_in_own_code and code == one.code
    return found.popitem()[1] if own and len(found) == 1 and not other and _ITERATED.search(one.message) else None


def _title(one: UncaughtException, attribute: str | None) -> str:
    owners = {*re.findall(rf"([A-Za-z_][\w.]*)\.{attribute}\b", one.code or "")} if attribute else set()
    if len(owners) != 1:
        return f"a function was used where a value belongs ({one.place}): {one.message}"
    called = f" (called by {one.place})" if one.library and one.library != one.place else ""
    return f"{owners.pop()} is a function, and {one.library or one.place} reads its attribute {attribute}{called}"


_KNOWN_METHODS = frozenset(
    {"size", "keys", "values", "items", "split", "type", "dim", "get", "copy", "item", "numel", "tolist", "numpy"}
)


def _method(one: UncaughtException, name: str) -> Meaning:
    tensor = (
        " A tensor has it as a method and an image of PIL as an attribute: the code probably got a tensor where it was "
        "written for an image."
        if name == "size"
        else ""
    )
    shape = (Fix("For a tensor or an array, read its shape.", ("x.shape[1]", "x.size(1)")),) if name == "size" else ()
    return Meaning(
        f"{name} is a method there, and {one.place} reads an item of it without calling it",
        f"Square brackets follow the method itself instead of what it returns.{tensor}",
        (
            *shape,
            Fix(
                "Print the type of the object before that line. It is not the one that the code was written for."
                if name == "size"
                else f"Call it: {name}()."
            ),
        ),
    )


def _not_called(one: UncaughtException, found: re.Match[str]) -> Meaning:
    """Explain a method that a line goes through as if it were a list."""
    method, place = found["method"], one.place or ""
    of_graphs = found["name"] == "keys" and any(map(_GRAPHS.search, (*one.packages, *one.frames)))
    release = (
        " In PyTorch Geometric 2.4, keys of Data and Batch became a method: code for older releases has no parentheses."
        if of_graphs
        else " If the code is older than the package: an attribute of an earlier release can have become a method."
    )
    older = (Fix("Install the release that the code was written for.", ("pip install 'torch_geometric<2.4'",)),)
    return Meaning(
        f"{method} is a method, and {place} goes through it without calling it",
        f"The parentheses are missing.{release}",
        (
            Fix(f"Call it: {method}().", (shell("grep -nF {} {:path}", method, place.partition(":")[0]),)),
            *(older if of_graphs else ()),
        ),
    )


def _builtin(one: UncaughtException, name: str) -> Meaning:
    return Meaning(
        f"{name} is probably Python's own function there, not a value: {one.place} passes or uses it",
        f"If the script never sets a variable {name} at that place, Python finds its built-in function of that name.",
        (
            Fix(
                f"Use the name of the variable that is meant, or set {name} before.",
                (shell("grep -nw {:name} {:path}", name, one.place.partition(":")[0] if one.place else "."),),
            ),
        ),
    )
