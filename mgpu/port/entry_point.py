"""The object that knows the ranks is created before anything uses it, and the process group ends with the script."""

from __future__ import annotations

import libcst as cst

from mgpu.port.porting import Porting, free_name, imports_module
from mgpu.port.ranks_class import RANKS_CLASS
from mgpu.port.source_tree import calls, is_main_guard, nodes

SHARED = "ranks_of_run"  # the module that several files import the object from
_CREATE = (
    "One process per GPU runs this script. This object knows its rank and device. split_batches: the ranks share each "
    "batch, so that its size, and with it the learning rate, stay as they are."
)
_CREATE_DDP = "One process per GPU runs this script. This class does with torch.distributed what the other changes use."
NEW_FILE = f"A new file. {_CREATE}"
_OPTIONS = "DistributedDataParallelKwargs"
_WRAP = "DistributedDataParallel(one, device_ids=devices"  # in the class for plain torch.distributed
_SHARED = f"{SHARED}.py creates the object that knows the ranks. All files of the script import the same one."
_DOCSTRING = "The processes of this run: one per GPU. The files of the script import the same object."
_END = "Shut the process group down before the script ends."


def plan(porting: Porting, seed: list[str], seed_reason: str) -> None:
    """Insert the import, the object, a seed if one is needed, and its end."""
    module = porting.tree.main
    guard = next((one for one in module.body if is_main_guard(one)), None)
    guard = guard if isinstance(guard, cst.If) else None
    others = sorted({one.file for one in porting.changes.all if not one.decide} - {0})
    classes = {name: free_name(porting.tree, name, f"Mgpu{name}") for name in _classes(porting)}
    lines = [f"{porting.ranks} = {classes['Ranks']}()" if porting.ddp else _accelerator(porting, classes)]
    reason = f"{_CREATE_DDP if porting.ddp else _CREATE} {porting.unused}".rstrip()
    head = _import(porting, classes)
    at_top = _used_by_module(porting, porting.tree.main, guard)
    if others:  # they need the same object
        porting.shared = _shared(porting, [*head, *lines])
        shared = f"from {_package(porting)}{SHARED} import {porting.ranks}"
        for file in others:
            body = porting.tree.modules[file]
            _insert(porting, body, _last_import(porting, body, _used_by_module(porting, body, None)), [shared], _SHARED)
        head, lines, reason = [shared], [], _SHARED
    lines += seed
    imports = _last_import(porting, module, at_top)
    if guard is not None and at_top is None and lines:
        porting.changes.before(guard.body.body[0], lines, reason)
        _insert(porting, module, imports, head, reason)
    else:
        _insert(porting, module, imports, [*head, *lines], reason)
    if seed:
        porting.note(seed_reason)
    end = guard.body.body[-1] if guard is not None else module.body[-1]
    if guard is not None and at_top is not None:
        end = module.body[-1] if guard is not module.body[-1] else end
    porting.changes.after(end, [f"{porting.ranks}.end_training()"], _END)


def _shared(porting: Porting, lines: list[str]) -> str:
    """The text of the module that creates the object for all files."""
    head = lines if porting.ddp or "import torch" in lines or not porting.mixed_precision else ["import torch", *lines]
    imports = [one.strip("\n") for one in head if one.startswith(("import ", "from "))]
    if porting.ddp and "import torch" not in imports:
        imports.insert(0, "import torch")
    rest = [one.strip("\n") for one in head if not one.startswith(("import ", "from "))]
    between = "\n\n\n" if porting.ddp else "\n\n"
    return f'"""{_DOCSTRING}"""\n\n' + "\n".join(imports) + between + between.join(rest) + "\n"


def _package(porting: Porting) -> str:
    """The package of the script, with a dot, if it is run as one of its modules."""
    package = porting.tree.files[0].module.rpartition(".")[0]
    return f"{package}." if package else ""


def _classes(porting: Porting) -> tuple[str, ...]:
    """The classes that the object is made of."""
    if porting.ddp:
        return ("Ranks",)
    return ("Accelerator", "DataLoaderConfiguration", *((_OPTIONS,) if porting.unused else ()))


def _accelerator(porting: Porting, classes: dict[str, str]) -> str:
    more = f", mixed_precision={porting.mixed_precision}" if porting.mixed_precision else ""
    if porting.unused:
        more += f", kwargs_handlers=[{classes[_OPTIONS]}(find_unused_parameters=True)]"
    configuration = f"dataloader_config={classes['DataLoaderConfiguration']}(split_batches=True)"
    return f"{porting.ranks} = {classes['Accelerator']}({configuration}{more})"


def _import(porting: Porting, classes: dict[str, str]) -> list[str]:
    torch = [] if imports_module(porting.tree, "torch") else ["import torch"]
    if porting.ddp:
        text = RANKS_CLASS.replace("class Ranks:", f"class {classes['Ranks']}:")
        return [*torch, text.replace(_WRAP, f"{_WRAP}, find_unused_parameters=True") if porting.unused else text]
    accelerator, *others = (name if name == own else f"{name} as {own}" for name, own in classes.items())
    return [
        *(torch if porting.mixed_precision else []),
        f"from accelerate import {accelerator}",
        f"from accelerate.utils import {', '.join(others)}",
    ]


def _insert(porting: Porting, module: cst.Module, after: cst.CSTNode | None, lines: list[str], reason: str) -> None:
    statements = [one for line in lines for one in _split(line)]
    if after is not None:
        porting.changes.after(after, statements, reason)
    else:
        porting.changes.before(module.body[0], statements, reason)


def _split(code: str) -> list[str]:
    """The statements of a text: libcst parses one at a time."""
    parsed = cst.parse_module(code)
    return [parsed.code_for_node(one) for one in parsed.body]


def _used_by_module(porting: Porting, module: cst.Module, guard: cst.If | None) -> cst.CSTNode | None:
    """The first statement at module level, outside the main guard, that needs the object."""
    changed = [change.node for change in porting.changes.all if not change.decide]
    first: cst.CSTNode | None = None
    for node in changed:
        if porting.tree.inside(node, cst.FunctionDef) is not None:
            continue
        chain = [node, *porting.tree.parents(node)]
        if guard is not None and any(one is guard for one in chain):
            continue
        top = next((one for one in chain if porting.tree.parent(one) is module), None)
        if top is not None and (first is None or porting.tree.line(top) < porting.tree.line(first)):
            first = top
    if guard is None and first is None and module is porting.tree.main:
        return module.body[0]
    return first


def _last_import(porting: Porting, module: cst.Module, first_use: cst.CSTNode | None) -> cst.CSTNode | None:
    """The last import at the top of a file: before the first statement that runs something of the script."""
    last: cst.CSTNode | None = None
    limit = porting.tree.line(first_use) if first_use is not None else None
    for one in module.body:
        if limit is not None and porting.tree.line(one) >= limit and one is not first_use:
            break
        imports = [node for node in nodes(one, nested=False) if isinstance(node, (cst.Import, cst.ImportFrom))]
        if imports and isinstance(one, (cst.SimpleStatementLine, cst.Try)):
            last = one
        elif isinstance(one, (cst.FunctionDef, cst.ClassDef)):
            continue
        elif one is first_use or any(porting.roles.local_function(call) for call in calls(one)):
            break
    if last is None and module.body and module.get_docstring() is not None:
        return module.body[0]
    return last
