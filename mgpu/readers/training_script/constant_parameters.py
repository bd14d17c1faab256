"""Which parameters of the script's functions have one constant value in every run, and which conditions do they decide?

`train(data, method="sharded")` is the only call of `train`, so its `if method == "plain":` is never taken.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from mgpu.readers.training_script.call_arguments import parameter, passed_to, unpacks
from mgpu.readers.training_script.decided_tests import UNKNOWN, Constants, Place, constant_of, decides
from mgpu.readers.training_script.known_libraries import FRAMEWORKS, is_harmless
from mgpu.readers.training_script.reach import TOP_LEVEL, has_library_base, reached_functions
from mgpu.readers.training_script.scopes import Function
from mgpu.readers.training_script.walk import Walk


def constant_parameters(walk: Walk) -> dict[Place, Constants]:
    """Return the parameters that have the same constant in every call, by function, where they decide a condition."""
    if walk.cut:
        return {}
    unclear, own_classes = _unresolved_calls(walk), _own_classes(walk)
    reached = {TOP_LEVEL, *reached_functions(walk)}
    found: dict[Place, Constants] = {}
    for function in walk.functions:
        name = function.owner.rpartition(".")[2] if function.owner else function.node.name
        if function.decorated or not function.calls or name in unclear:
            continue
        if function.owner and (function.node.name != "__init__" or function.owner not in own_classes):
            continue  # not all calls are visible
        tests = [one.test for one in ast.walk(function.node) if isinstance(one, ast.If)]
        values = {name: _value_in_all_calls(function, name, reached) for name in _tested(function.node, tests)}
        known = {name: value for name, value in values.items() if value is not UNKNOWN}
        if any(decides(test, known) is not None for test in tests):
            found[function.source.file, function.node.lineno] = known
    return found


def _own_classes(walk: Walk) -> set[str]:
    """Return the classes of the project that, with those derived from them, no one else makes objects of."""
    if any(what["name"] == "type()" or what["name"].endswith("__class__") for _, what in walk.calls):
        return set()
    elsewhere = walk.registered | walk.passed | {one.owner for one in walk.functions if _gets_class(one)}
    made = [name for name in walk.bases if name in elsewhere or has_library_base(walk, name)]
    return set(walk.bases).difference(made, *(walk.all_bases(name) for name in made))


def _gets_class(function: Function) -> bool:
    """Whether a method gets its class, of which it may make an object."""
    return [one.arg for one in function.node.args.args[:1]] == ["cls"]


def _unresolved_calls(walk: Walk) -> set[str]:
    """Return the last names of calls that may be calls of a function of the project, although no function was found."""
    above = {"", *walk.imports, *walk.modules, *(name.rpartition(".")[0] for name in walk.imports)}
    names = {what["name"] for _, what in walk.calls} - {*walk.by_name, *walk.bases}
    outside = {name for name in names if is_harmless(name) or name.partition(".")[0] in FRAMEWORKS}
    return {name.rpartition(".")[2] for name in names - outside if name.rpartition(".")[0] in above}


def _tested(node: ast.FunctionDef | ast.AsyncFunctionDef, tests: Sequence[ast.expr]) -> set[str]:
    """Return the parameters in these conditions that nothing in the function changes."""
    names = {one.id for test in tests for one in ast.walk(test) if isinstance(one, ast.Name)}
    names = {name for name in names if parameter(node, name)}
    if not names:
        return names
    inner = [one for one in ast.walk(node) if isinstance(one, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef)]
    shadowed = {argument.arg for one in inner if one is not node for argument in one.args.args}
    changed = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return names - shadowed - changed


def _value_in_all_calls(function: Function, name: str, reached: Collection[int]) -> object:
    sites = zip(function.calls, function.sites, strict=True)
    values = [
        _given(function.node, name, node, flags, is_method=bool(function.owner))
        for (node, flags), spot in sites
        if spot[3] in reached
    ]
    if not values:
        return UNKNOWN
    first = values[0]
    return first if all(type(one) is type(first) and one == first for one in values) else UNKNOWN


def _given(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    name: str,
    node: ast.expr,
    flags: Mapping[str, bool],
    *,
    is_method: bool,
) -> object:
    """Return the constant that a call gives to a parameter."""
    if not isinstance(node, ast.Call):
        return UNKNOWN
    position, default = parameter(function, name) or (None, None)
    if is_method and position is not None:
        position -= 1
    if is_method and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
        return UNKNOWN  # Base.__init__(self, ...), or super().__init__(...)
    value = passed_to(node, name, position)
    if value is None and unpacks(node):
        return UNKNOWN
    value = value or default
    return flags.get(value.id, UNKNOWN) if isinstance(value, ast.Name) else constant_of(value)
