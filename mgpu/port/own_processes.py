"""Does the script start processes of its own, which import its files again?"""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import calls, nodes, text_of

_MODULE = r"(?:torch\.)?multiprocessing\."
_PROCESS = re.compile(rf"{_MODULE}(?:\w+\.)?Process")
_SPAWN = re.compile(rf"{_MODULE}(?:\w+\.)?(?:spawn|start_processes)")
_POOL = re.compile(rf"{_MODULE}(?:\w+\.)?Pool|concurrent\.futures\.(?:process\.)?ProcessPoolExecutor")
_METHOD = re.compile(rf"{_MODULE}(?:set_start_method|get_context)")
_FORKED = (
    "each rank starts these processes. Start them with the method fork: with another one they import the script again, "
    "and connect to the ranks."
)
_WHY = (
    "the script starts processes of its own here. Each rank would start all of them, and they would import the file "
    "that connects the ranks. Decide first which of its processes are the ranks"
)


def refused(porting: Porting) -> str:
    """Return why a script with processes of its own is not ported; empty if it has none that import its files."""
    tree = porting.tree
    again = any(_imports_again(porting, call) for call in calls(tree.module))
    for call in calls(tree.module):
        name = tree.name(call.func)
        if _SPAWN.fullmatch(name) or (again and (_starts(porting, call) or _POOL.fullmatch(name))):
            return f"{tree.where(call)}: {_WHY}"
    return ""


def plan(porting: Porting) -> None:
    """Mark the processes that do not import the files again on this version of Python."""
    for call in calls(porting.tree.module):
        if _starts(porting, call):
            porting.changes.decide(call, _FORKED)


def _starts(porting: Porting, call: cst.Call) -> bool:
    """Whether a call makes a process: of multiprocessing, or of a class of the script derived from it."""
    found = porting.tree.class_of(call.func)
    by_class = found is not None and porting.roles.is_class(found, _PROCESS.pattern)
    return by_class or bool(_PROCESS.fullmatch(porting.tree.name(call.func)))


def _imports_again(porting: Porting, call: cst.Call) -> bool:
    """Whether a call chooses a start method with which processes import the script again."""
    return bool(_METHOD.fullmatch(porting.tree.name(call.func))) and any(
        text_of(one) in ("spawn", "forkserver") for one in nodes(call) if isinstance(one, cst.SimpleString)
    )
