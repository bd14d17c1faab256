"""The object that knows the ranks is created before anything uses it, and the process group ends with the script."""

from __future__ import annotations

import libcst as cst

from mgpu.port.porting import Porting, free_name, imports_module
from mgpu.port.ranks_class import RANKS_CLASS
from mgpu.port.source_tree import calls, nodes

_CREATE = (
    "One process per GPU runs this script. This object knows its rank and device. split_batches: the ranks share each "
    "batch, so that its size, and with it the learning rate, stay as they are."
)
_CREATE_DDP = "One process per GPU runs this script. This class does with torch.distributed what the other changes use."
_CLASSES = {False: ("Accelerator", "DataLoaderConfiguration"), True: ("Ranks",)}  # by whether it is DDP
_END = "Shut the process group down before the script ends."


def plan(porting: Porting, seed: list[str], seed_reason: str) -> None:
    """Insert the import, the object, a seed if one is needed, and its end."""
    module = porting.tree.module
    guard = next((one for one in module.body if isinstance(one, cst.If) and "__name__" in _test(porting, one)), None)
    at_top = _used_by_module(porting, guard)
    classes = [free_name(porting.tree, name, f"Mgpu{name}") for name in _CLASSES[porting.ddp]]
    lines = [f"{porting.ranks} = {classes[0]}()" if porting.ddp else _accelerator(porting, *classes)]
    lines += seed
    imports = _last_import(porting, at_top)
    reason = _CREATE_DDP if porting.ddp else _CREATE
    head = _import(porting, classes)
    if guard is not None and at_top is None:
        porting.changes.before(guard.body.body[0], lines, reason)
        _insert(porting, imports, head, reason)
    else:
        _insert(porting, imports, [*head, *lines], reason)
    if seed:
        porting.note(seed_reason)
    end = guard.body.body[-1] if guard is not None else module.body[-1]
    if guard is not None and at_top is not None:
        end = module.body[-1] if guard is not module.body[-1] else end
    porting.changes.after(end, [f"{porting.ranks}.end_training()"], _END)


def _test(porting: Porting, node: cst.If) -> str:
    return porting.tree.code(node.test)


def _accelerator(porting: Porting, accelerator: str, configuration: str) -> str:
    more = f", mixed_precision={porting.mixed_precision}" if porting.mixed_precision else ""
    return f"{porting.ranks} = {accelerator}(dataloader_config={configuration}(split_batches=True){more})"


def _import(porting: Porting, classes: list[str]) -> list[str]:
    torch = [] if imports_module(porting.tree, "torch") else ["import torch"]
    if porting.ddp:
        return [*torch, RANKS_CLASS.replace("class Ranks:", f"class {classes[0]}:")]
    renamed = [name if name == own else f"{name} as {own}" for name, own in zip(_CLASSES[False], classes, strict=True)]
    return [
        *(torch if porting.mixed_precision else []),
        f"from accelerate import {renamed[0]}",
        f"from accelerate.utils import {renamed[1]}",
    ]


def _insert(porting: Porting, after: cst.CSTNode | None, lines: list[str], reason: str) -> None:
    statements = [one for line in lines for one in _split(line)]
    if after is not None:
        porting.changes.after(after, statements, reason)
    else:
        porting.changes.before(porting.tree.module.body[0], statements, reason)


def _split(code: str) -> list[str]:
    """The statements of a text: libcst parses one at a time."""
    parsed = cst.parse_module(code)
    return [parsed.code_for_node(one) for one in parsed.body]


def _used_by_module(porting: Porting, guard: cst.If | None) -> cst.CSTNode | None:
    """The first statement at module level, outside the main guard, that needs the object."""
    changed = [change.node for change in porting.changes.all if not change.decide]
    first: cst.CSTNode | None = None
    for node in changed:
        if porting.tree.inside(node, cst.FunctionDef) is not None:
            continue
        chain = [node, *porting.tree.parents(node)]
        if guard is not None and any(one is guard for one in chain):
            continue
        top = next((one for one in chain if porting.tree.parent(one) is porting.tree.module), None)
        if top is not None and (first is None or porting.tree.line(top) < porting.tree.line(first)):
            first = top
    if guard is None and first is None:
        return porting.tree.module.body[0]
    return first


def _last_import(porting: Porting, first_use: cst.CSTNode | None) -> cst.CSTNode | None:
    """The last import at the top of the script: before the first statement that runs something of the script."""
    last: cst.CSTNode | None = None
    limit = porting.tree.line(first_use) if first_use is not None else len(porting.tree.text)
    for one in porting.tree.module.body:
        if porting.tree.line(one) >= limit and one is not first_use:
            break
        imports = [node for node in nodes(one, nested=False) if isinstance(node, (cst.Import, cst.ImportFrom))]
        if imports and isinstance(one, (cst.SimpleStatementLine, cst.Try)):
            last = one
        elif isinstance(one, (cst.FunctionDef, cst.ClassDef)):
            continue
        elif one is first_use or any(porting.roles.local_function(call) for call in calls(one)):
            break
    return last or _docstring(porting)


def _docstring(porting: Porting) -> cst.CSTNode | None:
    body = porting.tree.module.body
    if body and porting.tree.module.get_docstring() is not None:
        return body[0]
    return None
