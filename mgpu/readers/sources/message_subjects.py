"""What does the source say about a function, a class, an option or a name that an exception's message names?"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mgpu.readers.sources import bindings, classes, option_definitions
from mgpu.readers.sources.bindings import FUNCTIONS, Function
from mgpu.readers.sources.source_files import Module, Sources
from mgpu.snapshot import UncaughtException

_CALL = re.compile(
    r"^(?:[\w.<>]*?(?P<owner>\w+)\.)?(?P<function>\w+)\(\) (?:missing \d|got (?:an unexpected|multiple|some)|takes )"
)
_ATTRIBUTE = re.compile(r"^'(?P<owner>[\w.]+)' object has no attribute '(?P<name>\w+)'")
_UNEXPECTED = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")
_UNDEFINED = re.compile(r"^name '(?P<name>\w+)' is not defined")
_SETTINGS = frozenset({"Namespace", "AttrDict", "EasyDict", "Config", "ConfigDict", "SimpleNamespace", "Values"})
_SETS_BY_NAME = frozenset({"register_buffer", "register_parameter", "add_module", "setattr"})


class Subject(NamedTuple):
    """A definition that a message is about."""

    name: str
    kind: str
    module: Module
    node: ast.AST
    inside: Function | None = None  # the method in which an attribute is set
    flag: str = ""
    code: str = ""  # "": that of the node


def find(one: UncaughtException, modules: Sequence[Module], sources: Sources) -> list[Subject]:
    """Return what the user's source has of the function, class or option that a message names."""
    message = one.message
    if called := _CALL.match(message):
        found = _callee(called["owner"], called["function"], modules, sources)
        unexpected = _UNEXPECTED.search(message)
        return _without_parameter(found[0], unexpected["name"], one) if found and unexpected else found
    if lacking := _ATTRIBUTE.match(message):
        owner, name = lacking["owner"].rpartition(".")[2], lacking["name"]
        return _similar_options(name, modules) if owner in _SETTINGS else _attribute(owner, name, modules, sources)
    if undefined := _UNDEFINED.match(message):
        return _similar_name(undefined["name"], one, modules[:1])
    return []


def _similar_name(name: str, one: UncaughtException, modules: Iterable[Module]) -> list[Subject]:
    """Return where a name that is nearly the same gets its value, in the function of the failed line or its file."""
    function = one.calls[-1].function if one.calls else ""
    for module in modules:
        for scope in (*_only(_functions(module.tree, function)), module.tree):
            known = {
                node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            for near in difflib.get_close_matches(name, known - {name}, 1, 0.75):
                if found := bindings.of_name(scope, near):
                    inside = scope if isinstance(scope, FUNCTIONS) else None
                    return [Subject(near, "similar_name", module, found[0].statement, inside)]
    return []


def _callee(owner: str | None, function: str, modules: Iterable[Module], sources: Sources) -> list[Subject]:
    if owner is None and function.startswith("__"):  # before Python 3.10: of any class
        return []
    if owner in (None, "<locals>"):
        found = [(module, node) for module in modules for node in _functions(module.tree, function)]
    else:
        of_name = classes.named(modules, owner or "")
        known = classes.with_bases(sources, *of_name[0]) if len(of_name) == 1 else []
        found = [(there, one) for there, above in known for one in classes.methods(above) if one.name == function][:1]
    name = f"{owner}.{function}" if owner else function
    return [Subject(name, "function", module, node) for module, node in found] if len(found) == 1 else []


def _without_parameter(callee: Subject, name: str, one: UncaughtException) -> list[Subject]:
    """Return a function that lacks a parameter, after the one of nearly that name; nothing if it has it by now."""
    assert isinstance(callee.node, FUNCTIONS)
    arguments = callee.node.args
    known = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if name in known:
        return []
    passed = one.own_code or ""  # what the call passes already is not meant
    near = difflib.get_close_matches(name, [other for other in known if f"{other}=" not in passed], n=1)
    return [*(callee._replace(name=one, kind="similar_parameter") for one in near), callee]


def _only(found: list[Function]) -> list[Function]:
    return found if len(found) == 1 else []


def _functions(tree: ast.Module, name: str) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name == name]


def _similar_options(name: str, modules: Iterable[Module]) -> list[Subject]:
    """Return the option that has nearly the name of one that does not exist, and else where the options are."""
    for module in modules:
        known = option_definitions.names(module)
        if not known or name in known:
            continue
        for near in difflib.get_close_matches(name, known, n=1):
            if found := option_definitions.find([module], near):
                return [Subject(near, "similar_option", module, found.node, flag=found.flag, code=found.code)]
    return []


def _attribute(owner: str, name: str, modules: Iterable[Module], sources: Sources) -> list[Subject]:
    """Return where an attribute that an object lacked is set, or the one of nearly its name; else its class."""
    known = classes.named(modules, owner)
    if len(known) != 1:
        return []
    methods = [
        (module, one) for module, above in classes.with_bases(sources, *known[0]) for one in classes.methods(above)
    ]
    setting = [
        (module, method, one)
        for module, method in methods
        for one in bindings.of_attribute(method, classes.own_object(method), name)
    ]
    if setting:
        module, method, one = setting[0]
        alone = len(setting) == 1 and not one.branches and not method.name.startswith("__")
        return [Subject(f"{owner}.{name}", "set_elsewhere" if alone else "set", module, one.statement, method)]
    by_name = any(_sets_by_name(method) for _, method in methods)
    near = [] if by_name else difflib.get_close_matches(name, _attributes(one for _, one in methods), 1, 0.75)
    for module, method in methods if near else ():
        if method.name == near[0]:
            return [Subject(near[0], "similar_attribute", module, method)]
        if found := bindings.of_attribute(method, classes.own_object(method), near[0]):
            return [Subject(near[0], "similar_attribute", module, found[0].statement, method)]
    return [Subject(owner, "class", *known[0])]


def _attributes(methods: Iterable[Function]) -> set[str]:
    """Return the names of methods, and of what they set of their own object."""
    found: set[str] = set()
    for method in methods:
        of = classes.own_object(method)
        found.add(method.name)
        found |= {
            one.attr
            for one in ast.walk(method)
            if isinstance(one, ast.Attribute)
            and isinstance(one.ctx, ast.Store)
            and isinstance(one.value, ast.Name)
            and one.value.id == of
        }
    return found


def _sets_by_name(method: Function) -> bool:
    """Whether a method sets attributes whose names are not in the source as such."""
    calls = [one.func for one in ast.walk(method) if isinstance(one, ast.Call)]
    return any(getattr(one, "attr", getattr(one, "id", "")) in _SETS_BY_NAME for one in calls)


def objects(one: UncaughtException, expressions: Sequence[ast.expr]) -> list[ast.expr]:
    """Return the parts of a failed line of which an item or attribute was read that they did not have."""
    nodes = [node for expression in expressions for node in ast.walk(expression)]
    if lacking := _ATTRIBUTE.match(one.message):
        return [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == lacking["name"]]
    if one.type.rpartition(".")[2] in ("KeyError", "IndexError") or "subscriptable" in one.message:
        return [node.value for node in nodes if isinstance(node, ast.Subscript)]
    if "not callable" in one.message:
        return [node.func for node in nodes if isinstance(node, ast.Call)]
    return []
