"""Which statements of a script certainly raise an error as soon as Python starts the file?

A relative import in a file that is not started as a module, a name that a module of the project does not define, a
call without an argument that the script's own function requires, and a module that is not valid Python. Only what the
top level always runs, and only what nothing at run time can change: a name that is bound anywhere in the module, in any
way, counts as defined. Names that nothing in a file binds raise an error when their line runs.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from mgpu.readers.training_script.bound_names import Bindings, bindings
from mgpu.readers.training_script.branches import main_guard, until_exit
from mgpu.readers.training_script.broken_modules import broken_modules, imported_at_start
from mgpu.readers.training_script.call_arguments import unpacks
from mgpu.readers.training_script.local_modules import LocalModules
from mgpu.readers.training_script.scopes import Source
from mgpu.readers.training_script.undefined_names import undefined_names
from mgpu.snapshot import ScriptFault

# What can bind a name of a module in another way.
_CHANGES = frozenset({"*", "exec", "eval", "globals", "setattr", "vars", "locals", "__getattr__"})
_MOST_MODULES = 40


def certain_errors(tree: ast.Module, source: Source, modules: LocalModules) -> tuple[ScriptFault, ...]:
    """Return the statements that raise an error: those of the script in the order of lines, then those of modules."""
    names, read = bindings(tree), modules.parsed()
    tree = ast.Module([*until_exit(tree.body)], [])
    found: list[ScriptFault] = []
    if "__package__" not in names.mentioned:
        package = source.package or os.path.basename(modules.folder)
        found += _relative(tree, source, f"{package}.{Path(modules.script).stem}")
    if not names.changes_path:
        found += _undefined(tree, source, modules)
    if not names.of_sys["path"]:
        found += _own_package(tree, source, modules)
    if not names.mentioned & {"exec", "globals"} and not names.of_sys["modules"]:
        found += _lacking(tree, source, names)
    found += undefined_names(tree, source, names)
    found.sort(key=lambda one: one.line)
    at_start = set(imported_at_start(tree, source, modules).values())
    for body, file in read:
        found += undefined_names(body, file, bindings(body), imported=file.file in at_start)
    return (*found, *broken_modules(tree, source, modules))


def _relative(tree: ast.Module, source: Source, module: str) -> Iterator[ScriptFault]:
    """Return the first relative import of the top level. `module` is the script's name for `python -m`."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield _fault(node, source, "relative", "." * node.level + (node.module or ""), module)
            return


def _own_package(tree: ast.Module, source: Source, modules: LocalModules) -> Iterator[ScriptFault]:
    """Return the first import of the top level that needs a folder above the script in sys.path: `from src.data`.

    Only if the script is in that package itself: another one in a folder above may be installed.
    """
    for node in tree.body:
        plain = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        named = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else plain
        for name in named:
            top, folder = name.partition(".")[0], modules.folder
            beside = os.path.join(folder, top)
            if not top or os.path.exists(beside) or os.path.exists(f"{beside}.py") or not modules.locate(name):
                continue
            parts = [Path(modules.script).stem]
            while folder in modules.roots and os.path.dirname(folder) in modules.roots:
                parts.insert(0, os.path.basename(folder))
                if parts[0] == top:
                    if all(map(str.isidentifier, parts)):
                        yield _fault(node, source, "package", name, ".".join(parts))
                    return
                folder = os.path.dirname(folder)


def _undefined(tree: ast.Module, source: Source, modules: LocalModules) -> Iterator[ScriptFault]:
    """Return the names that the script imports from a file beside it which does not define them."""
    wanted = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    for node in wanted[:_MOST_MODULES]:
        module = node.module or ""
        beside = f"{os.path.join(modules.folder, *module.split('.'))}.py"  # a package may define more in its submodules
        if modules.locate(module) != beside or modules.is_ambiguous(module):
            continue
        defined = _defined(module, modules)
        names = [one.name for one in node.names if one.name != "*" and not one.name.startswith("__")]
        if missing := [name for name in names if defined and name not in defined]:
            yield _fault(node, source, "import", ", ".join(missing), module)


def _defined(module: str, modules: LocalModules) -> set[str]:
    """Return the names that a module may have; nothing if they are not known."""
    if (parsed := modules.tree(module)) is None:
        return set()
    names = bindings(parsed[0])
    return set() if names.of_sys["modules"] or _CHANGES & names.mentioned else names.mentioned


def _lacking(tree: ast.Module, source: Source, names: Bindings) -> Iterator[ScriptFault]:
    """Return the calls of the top level, or under the main guard, without an argument that the function requires."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    guarded = [node for node in tree.body if isinstance(node, ast.If) and main_guard(node.test)]
    body = [*tree.body, *(one for node in guarded for one in until_exit(node.body))]
    for statement in body:
        if not isinstance(statement, ast.Expr | ast.Assign) or not isinstance(call := statement.value, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in functions or names.bound[name] != 1 or names.bound["*"] or unpacks(call):
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


def _fault(node: ast.stmt | ast.expr, source: Source, kind: str, name: str, of: str) -> ScriptFault:
    return ScriptFault(node.lineno, source.column(node), kind=kind, name=name, of=of)  # type: ignore[arg-type]
