"""Which statements of a script certainly raise an error as soon as Python starts the file?

A relative import in a file that is not started as a module, a name that a module of the project does not define, a
call without an argument that the script's own function requires, and a module that is not valid Python. Only what the
top level always runs, and only what nothing at run time can change: a name that is bound anywhere in the module, in any
way, counts as defined. Names that nothing in a file binds raise an error when their line runs.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mgpu.readers.training_script.broken_modules import broken_modules
from mgpu.readers.training_script.call_arguments import unpacks
from mgpu.readers.training_script.local_modules import LocalModules
from mgpu.readers.training_script.python_source import parse, read_bytes
from mgpu.readers.training_script.scopes import Source
from mgpu.readers.training_script.undefined_names import undefined_names
from mgpu.snapshot import ScriptFault

# What can bind a name of a module in another way.
_CHANGES = frozenset({"exec", "eval", "globals", "setattr", "vars", "locals", "__getattr__"})
_PATHS = ("sys.path.insert", "sys.modules")  # another module may be found before the one beside the script
_MOST_MODULES = 40
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def certain_errors(tree: ast.Module, source: Source, modules: LocalModules) -> tuple[ScriptFault, ...]:
    """Return the statements that raise an error: those of the script in the order of lines, then those of modules."""
    roots, stem = modules.roots, Path(modules.script).stem
    names = _mentioned(tree)
    found: list[ScriptFault] = []
    if "__package__" not in names:
        found += _relative(tree, source, f"{source.package or os.path.basename(roots[0])}.{stem}")
    if not any(isinstance(node, ast.Attribute) and ast.unparse(node) in _PATHS for node in ast.walk(tree)):
        found += _undefined(tree, source, roots)
    if not names & {"exec", "globals"}:
        found += _lacking(tree, source)
    found += undefined_names(tree, source)
    found.sort(key=lambda one: one.line)
    for body, file in modules.parsed():
        found += undefined_names(body, file)
    return (*found, *broken_modules(tree, source, modules))


def _relative(tree: ast.Module, source: Source, module: str) -> Iterator[ScriptFault]:
    """Return the first relative import of the top level. `module` is the script's name for `python -m`."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield _fault(node, source, "relative", "." * node.level + (node.module or ""), module)
            return


def _undefined(tree: ast.Module, source: Source, roots: Sequence[str]) -> Iterator[ScriptFault]:
    """Return the names that the script imports from a file beside it which does not define them."""
    wanted = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    for node in wanted[:_MOST_MODULES]:
        parts = (node.module or "").split(".")
        place = os.path.join(roots[0], *parts)
        if not os.path.isfile(f"{place}.py") or os.path.isdir(place):  # a package may define more in its submodules
            continue
        others = [root for root in roots if root != roots[0]]
        tops = [os.path.join(root, parts[0]) for root in others]  # with `python -m`, another folder comes first
        if any(os.path.exists(top) or os.path.exists(f"{top}.py") for top in tops):
            continue
        defined = _defined(Path(f"{place}.py"))
        names = [one.name for one in node.names if one.name != "*" and not one.name.startswith("__")]
        if missing := [name for name in names if defined and name not in defined]:
            yield _fault(node, source, "import", ", ".join(missing), f"{node.module}")


def _defined(path: Path) -> frozenset[str]:
    """Return the names that a module may have; nothing if they are not known."""
    try:
        raw = read_bytes(path)
        tree = None if isinstance(raw, str) else parse(raw, "", "")[0]
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return frozenset()
    names = _mentioned(tree) if tree is not None else {"*"}
    return frozenset() if "*" in names or _CHANGES & names else frozenset(names)


def _mentioned(tree: ast.Module) -> set[str]:
    """Return every name of a variable in a file, bound or used, with "*" for an import of all names."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, _DEFINES):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":  # sys.modules[__name__]
            found.add("globals")
        elif isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def _lacking(tree: ast.Module, source: Source) -> Iterator[ScriptFault]:
    """Return the calls of the top level, or under the main guard, without an argument that the function requires."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    body = [*tree.body, *(one for node in tree.body if _is_main_guard(node) for one in node.body)]  # type: ignore[attr-defined]
    for statement in body:
        if not isinstance(statement, ast.Expr | ast.Assign) or not isinstance(call := statement.value, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in functions or _times_bound(tree, name) != 1 or unpacks(call):
            continue
        if missing := _missing(functions[name].args, call):
            yield _fault(call, source, "argument", ", ".join(missing), name)


def _missing(arguments: ast.arguments, call: ast.Call) -> list[str]:
    """Return the parameters without a default that a call does not give."""
    given = {keyword.arg for keyword in call.keywords}
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[len(call.args) : len(positional) - len(arguments.defaults)]
    required += [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default]
    return [one.arg for one in required if one.arg not in given]


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) and "__name__" in ast.unparse(node.test)


def _times_bound(tree: ast.Module, name: str) -> int:
    """Return how often a name is bound anywhere in the file."""
    binds: Sequence[Callable[[ast.AST], bool]] = (
        lambda node: isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load),
        lambda node: isinstance(node, _DEFINES) and node.name == name,
        lambda node: isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"),
        lambda node: isinstance(node, ast.arg) and node.arg == name,
    )
    return sum(any(test(node) for test in binds) for node in ast.walk(tree))


def _fault(node: ast.stmt | ast.expr, source: Source, kind: str, name: str, of: str) -> ScriptFault:
    return ScriptFault(node.lineno, source.column(node), kind=kind, name=name, of=of)  # type: ignore[arg-type]
