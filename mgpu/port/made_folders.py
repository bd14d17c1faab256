"""Folders that the script creates: a second rank that creates the same one fails."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import argument, calls, dotted, keywords, nodes, receiver

_TESTED = "Another rank may have created the folder since the test."
_ONCE = "Only the main process creates the folder: it exists already for any other rank. The others wait for it."
_EACH = "every rank creates this folder, and fails if another one was faster: let only the main process do it."
_CATCHES = re.compile(r"\b(?:FileExistsError|OSError|IOError|Exception|BaseException)\b")
_OF_OS = ("os.makedirs", "os.mkdir")
_DEEPEST = 4  # calls of the function around


def is_call(porting: Porting, call: cst.Call) -> bool:
    """Whether a call creates a folder: of os, or of a pathlib.Path."""
    name = porting.tree.name(call.func)
    if name in _OF_OS or name == "pathlib.Path.mkdir":
        return True
    of_path = bool(keywords(call) & {"parents", "exist_ok"}) or not call.args
    return name.endswith(".mkdir") and of_path and receiver(call) is not None and not porting.roles.value(call.func)


def plan(porting: Porting, call: cst.Call, *, free: bool) -> None:
    """Collect the change of one call. `free`: one rank alone can evaluate its arguments."""
    exist = argument(call, 2 if porting.tree.name(call.func) == "os.makedirs" else 99, "exist_ok")
    if (exist is not None and dotted(exist) != "False") or keywords(call) & {"*", "**"} or _is_caught(porting, call):
        return
    if _is_tested(porting, call):
        _allow(porting, call, exist)
        return
    statement, expression = porting.tree.statement(call), porting.tree.parent(call)
    alone = isinstance(expression, cst.Expr) and isinstance(porting.tree.parent(expression), cst.SimpleStatementLine)
    if alone and free and not porting.changes.touches(statement) and _runs_once(porting, call, 0):
        porting.changes.guard(call, f"{porting.ranks}.is_main_process", _ONCE)
        porting.changes.after(call, [f"{porting.ranks}.wait_for_everyone()"], _ONCE)
    else:
        porting.changes.decide(call, _EACH)


def _allow(porting: Porting, call: cst.Call, exist: cst.BaseExpression | None) -> None:
    """Accept a folder that exists by now."""
    if exist is not None:
        porting.changes.replace(exist, "True", _TESTED)
        return
    plain = porting.tree.name(call.func) == "os.mkdir"
    if plain and (keywords(call) or len(call.args) != 1 or not isinstance(call.func, cst.Attribute)):
        porting.changes.decide(call, _EACH)
        return
    made = cst.parse_expression("f(exist_ok=True)")
    assert isinstance(made, cst.Call)
    option = made.args[0]

    def edit(updated: cst.Call) -> cst.Call:
        args = list(updated.args)
        if args and isinstance(args[-1].comma, cst.MaybeSentinel):
            args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        func = updated.func.with_changes(attr=cst.Name("makedirs")) if plain else updated.func
        return updated.with_changes(func=func, args=[*args, option])

    porting.changes.edit(call, edit, _TESTED)


def _is_tested(porting: Porting, call: cst.Call) -> bool:
    """Whether a folder is created only if it does not exist."""
    return any(
        isinstance(above, cst.If)
        and re.search(r"exists|isdir|is_dir", porting.tree.code(above.test))
        and any(one is call for one in nodes(above))
        for above in porting.tree.parents(call)
    )


def _is_caught(porting: Porting, call: cst.Call) -> bool:
    """Whether the script handles the error itself."""
    return any(
        isinstance(above, cst.Try)
        and any(one is call for one in nodes(above.body))
        and any(one.type is None or _CATCHES.search(porting.tree.code(one.type)) for one in above.handlers)
        for above in porting.tree.parents(call)
    )


def _runs_once(porting: Porting, node: cst.CSTNode, depth: int) -> bool:
    """Whether all ranks run a statement equally often: no loop is around it, and no condition that calls something."""
    for above in porting.tree.parents(node):
        if isinstance(above, (cst.For, cst.While, cst.ClassDef, cst.Lambda)) or depth > _DEEPEST:
            return False
        if isinstance(above, cst.If) and any(calls(above.test)):
            return False
        if isinstance(above, cst.FunctionDef):
            if porting.loops.in_training(node):
                return False
            found = [one for one in calls(porting.tree.module) if above in porting.roles.local_function(one)]
            return bool(found) and all(_runs_once(porting, one, depth + 1) for one in found)
    return True
