"""Which names does a file use although nothing in it ever binds them, so that Python stops with NameError?

A name that is bound anywhere in the file, in any scope and in any way, counts as defined.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from mgpu.readers.training_script.bound_names import Bindings
from mgpu.readers.training_script.scopes import Source
from mgpu.snapshot import ScriptFault

# fmt: off
# What else Python, IPython, line_profiler and gettext define; names of Python 2, which a test of the version may guard.
_KNOWN = frozenset(dir(builtins)) | frozenset({
    "__file__", "__path__", "__annotations__", "__class__", "__module__", "__qualname__", "__builtins__", "exit",
    "quit", "copyright", "credits", "license", "help", "get_ipython", "display", "profile", "reveal_type", "_",
    "WindowsError", "unicode", "basestring", "xrange", "raw_input", "long", "unichr", "reduce", "file", "cmp",
    "execfile", "reload",
})
# fmt: on
_BINDS_ANYTHING = frozenset({"exec", "execfile", "globals", "locals", "builtins", "__builtins__", "__import__"})
_CATCHES = frozenset({"NameError", "Exception", "BaseException"})
_GUARDS = ("TYPE_CHECKING", "version", "globals", "locals", "dir(")
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_MOST = 20


def undefined_names(tree: ast.Module, source: Source, names: Bindings) -> list[ScriptFault]:
    """Return the first use of each name that nothing in the file binds."""
    anything = names.bound["*"] or _BINDS_ANYTHING & names.attributes or _BINDS_ANYTHING & names.mentioned
    if anything or names.of_sys["modules"]:  # sys.modules[__name__]
        return []
    missing = names.used - set(names.bound) - _KNOWN
    return list(_uses(tree, source, missing, "", set()))[:_MOST] if missing else []


def _uses(node: ast.AST, source: Source, missing: set[str], inside: str, seen: set[str]) -> Iterator[ScriptFault]:
    """Return the first use of each name in a node, in code that is not skipped or caught. `inside`: its function."""
    if isinstance(node, ast.Name):
        if node.id in missing and node.id not in seen:
            seen.add(node.id)
            yield ScriptFault(node.lineno, source.column(node), source.file, inside, kind="undefined", name=node.id)
        return
    if isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
        for part in (*node.handlers, *node.finalbody):
            yield from _uses(part, source, missing, inside, seen)
        return
    if isinstance(node, ast.If | ast.IfExp | ast.While) and _is_guarded(node, source):
        return
    if isinstance(node, ast.With | ast.AsyncWith) and any("suppress" in ast.unparse(one) for one in node.items):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for part in (*node.decorator_list, *(node.bases if isinstance(node, ast.ClassDef) else _defaults(node))):
            yield from _uses(part, source, missing, inside, seen)
        name = f"{inside}.{node.name}" if inside else node.name
        yield from _uses(ast.Module(node.body, []), source, missing, name, seen)
        return
    for field, value in ast.iter_fields(node):
        if field == "annotation" or (field == "msg" and isinstance(node, ast.Assert)):  # the run stops there anyway
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _uses(part, source, missing, inside, seen)
            if isinstance(part, _LEAVES):
                break  # the rest is not reached


def _is_guarded(node: ast.If | ast.IfExp | ast.While, source: Source) -> bool:
    """Whether a condition may see to it that the name is defined, or nothing runs what is under it."""
    text = ast.unparse(node.test)
    if isinstance(node.test, ast.Constant) and not node.test.value:
        return True
    in_module = bool(source.file) and "__main__" in text and "__name__" in text
    return in_module or any(word in text for word in _GUARDS)


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    return [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a NameError."""
    names = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)} if handler.type else _CATCHES
    return bool(names & _CATCHES)
