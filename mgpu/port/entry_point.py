"""The object that knows the ranks is created before anything uses it, and the process group ends with the script."""

from __future__ import annotations

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.ranks_class import RANKS_CLASS
from mgpu.port.source_tree import calls, nodes

_CREATE = "One process per GPU runs this script. This object knows its rank and device. split_batches keeps the batch."
_CREATE_DDP = "One process per GPU runs this script. This class does with torch.distributed what the other changes use."
_END = "Shut the process group down in order."


def plan(porting: Porting, seed: str, seed_reason: str) -> None:
    """Insert the import, the object, a seed if one is needed, and its end."""
    module = porting.tree.module
    guard = next((one for one in module.body if isinstance(one, cst.If) and "__name__" in _test(porting, one)), None)
    at_top = _used_by_module(porting, guard)
    lines = [f"{porting.ranks} = Ranks()" if porting.ddp else _accelerator(porting)]
    if seed:
        lines += [f"import {seed.partition('.')[0]}", seed] if not seed.startswith("torch") else [seed]
    imports = _last_import(porting, at_top)
    reason = _CREATE_DDP if porting.ddp else _CREATE
    head = _import(porting)
    if guard is not None and at_top is None:
        assert isinstance(guard.body, cst.IndentedBlock)
        porting.changes.before(guard.body.body[0], lines, reason)
        _insert(porting, imports, head, reason)
    else:
        _insert(porting, imports, [*head, *lines], reason)
    if seed:
        porting.notes.append(seed_reason)
    end = guard.body.body[-1] if guard is not None and isinstance(guard.body, cst.IndentedBlock) else module.body[-1]
    if guard is not None and at_top is not None:
        end = module.body[-1] if guard is not module.body[-1] else end
    porting.changes.after(end, [f"{porting.ranks}.end_training()"], _END)


def _test(porting: Porting, node: cst.If) -> str:
    return porting.tree.code(node.test)


def _accelerator(porting: Porting) -> str:
    more = f", mixed_precision={porting.mixed_precision}" if porting.mixed_precision else ""
    configuration = "dataloader_config=DataLoaderConfiguration(split_batches=True)"
    return f"{porting.ranks} = Accelerator({configuration}{more})"


def _import(porting: Porting) -> list[str]:
    torch = [] if _imports_torch(porting) else ["import torch"]
    if porting.ddp:
        return [*torch, RANKS_CLASS]
    return [
        *(torch if porting.mixed_precision else []),
        "from accelerate import Accelerator",
        "from accelerate.utils import DataLoaderConfiguration",
    ]


def _imports_torch(porting: Porting) -> bool:
    return any(
        isinstance(node, cst.Import)
        and any(a.evaluated_name.partition(".")[0] == "torch" and a.asname is None for a in node.names)
        for node in nodes(porting.tree.module)
    )


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
