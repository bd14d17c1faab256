"""Output: printed, logged and saved by the main process only, while every rank still computes it."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port import made_folders
from mgpu.port.porting import Porting
from mgpu.port.source_tree import (
    SourceTree,
    argument,
    calls,
    dotted,
    keywords,
    method,
    nodes,
    receiver,
    targets,
    text_of,
)

_PRINT = "Only the main process prints. Every rank still computes the values, so that no rank waits for another."
_SAVE = "Only the main process writes the file. Two ranks that write it at the same time damage it."
_BAR = "One progress bar, not one per rank."
_LOG = "Only the main process writes events and log lines."
_MODULES = (
    r"torch\.nn\.(?:modules\.(?:\w+\.)?)?Module|torch\.utils\.data\.(?:\w+\.)?\w*Dataset|torch\.autograd\.Function"
)
_TQDM = re.compile(r"tqdm\.(?:\w+\.)*(?:tqdm|trange|tqdm_notebook|tnrange)")
# Calls that write a file named in their arguments, and return nothing of use.
_WRITES = re.compile(
    r"(?:matplotlib\.pyplot|plt)\.(?:savefig|show)|torchvision\.utils\.save_image|numpy\.(?:save|savez|savetxt)"
    r"|(?:pickle|json|yaml|joblib|scipy\.io)\.(?:dump|savemat)|shutil\.(?:copy\w*|move|rmtree)|os\.(?:remove|rename)"
    r"|wandb\.(?:log|watch|save|finish)|mlflow\.log_\w+|imageio\.(?:mim|im)\w+"
)
_WRITES_METHOD = (
    "to_csv",
    "savefig",
    "to_json",
    "save_pretrained",
    "add_scalar",
    "add_scalars",
    "add_image",
    "add_images",
    "add_histogram",
    "add_text",
    "add_graph",
    "add_figure",
    "add_hparams",
)
_DEEPEST = 3  # calls inside calls
# Calls in arguments that no rank needs another one for.
_HARMLESS = re.compile(
    r"(?:.*\.)?(?:item|mean|sum|format|join|len|float|int|str|round|min|max|cpu|detach|numpy|size|get_last_lr|view|dict"
    r"|time|strftime|path|exists|get_lr|tolist|parameters|asdict|vars|range|list|enumerate|zip|sqrt|exp|log|grid|open"
    r"|make_grid|add_prefix|Path|getattr|sample|randn|to|std|squeeze|permute|reshape|transpose|array|keys|values|items"
    r"|norm|append|isoformat|now|today|copy|clip|clamp|abs)"
)


def _is_counter(porting: Porting, call: cst.Call) -> bool:
    """Whether the script reads the count of a bar: one that is disabled does not count."""
    above = porting.tree.parent(call)
    names = [one.asname.name for one in (above,) if isinstance(one, cst.WithItem) and one.asname is not None]
    bars = {dotted(one) for one in [*(targets(above) if above is not None else ()), *names]} - {""}
    return any(
        isinstance(one, cst.Attribute) and one.attr.value in ("n", "format_dict") and dotted(one.value) in bars
        for one in nodes(porting.tree.module)
    )


def plan(porting: Porting) -> None:
    """Collect the changes of output."""
    for call in calls(porting.tree.module):
        if _is_in_component(porting, call):
            continue
        name = porting.tree.name(call.func)
        if name == "print" and dotted(call.func) == "print":
            porting.changes.rename_call(call, f"{porting.ranks}.print", _PRINT)
        elif name == "torch.save":
            _save(porting, call)
        elif _TQDM.fullmatch(name) and not {"disable", "**"} & keywords(call) and not _is_counter(porting, call):
            _bar(porting, call)
        elif made_folders.is_call(porting, call):
            made_folders.plan(porting, call, free=is_independent(porting, call))
        elif name == "torch.load":
            _load(porting, call)
        elif name == "wandb.init":
            _wandb(porting, call)
        elif name == "logging.basicConfig":
            line = f"if not {porting.ranks}.is_main_process:\n    logging.disable(logging.INFO)"
            if dotted(call.func) == "logging.basicConfig":
                porting.changes.after(call, [line], _LOG)
        elif _WRITES.fullmatch(name) or (method(call) in _WRITES_METHOD and receiver(call) is not None):
            _write(porting, call)
    _files(porting)


def _is_in_component(porting: Porting, node: cst.CSTNode) -> bool:
    """Whether a node is inside a model or a dataset, which may run in another process."""
    return any(
        isinstance(above, cst.ClassDef) and porting.roles.is_class(above, _MODULES)
        for above in porting.tree.parents(node)
    )


def _save(porting: Porting, call: cst.Call) -> None:
    if keywords(call) - {"obj", "f"}:
        _write(porting, call)
        return
    porting.changes.rename_call(call, f"{porting.ranks}.save", _SAVE)
    first = argument(call, 0, "obj")
    for node in nodes(first) if first is not None else ():
        if isinstance(node, (cst.Name, cst.Attribute)):
            above = porting.tree.parent(node)
            bare = not isinstance(above, cst.Attribute) and not (isinstance(above, cst.Call) and above.func is node)
            bare = bare and not (isinstance(above, cst.Arg) and above.keyword is node)
            bare = bare and not any(
                isinstance(one, cst.CompFor) and node in nodes(one.target) for one in porting.tree.parents(node)
            )
            bare = bare and not porting.changes.touches(node) and not porting.roles.container(dotted(node))
            if bare and porting.roles.is_model(node):
                code = f"{porting.ranks}.unwrap_model({porting.tree.code(node)})"
                porting.changes.replace(node, code, "The model is saved without its wrapper.")


def option(code: str) -> cst.Arg:
    """Return a keyword argument."""
    call = cst.parse_expression(f"f({code})")
    assert isinstance(call, cst.Call)
    return call.args[0]


def _bar(porting: Porting, call: cst.Call) -> None:
    disable = option(f"disable=not {porting.ranks}.is_local_main_process")

    def edit(updated: cst.Call) -> cst.Call:
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        args = list(updated.args)
        if args and isinstance(args[-1].comma, cst.MaybeSentinel):
            args[-1] = args[-1].with_changes(comma=comma)
        return updated.with_changes(args=[*args, disable])

    porting.changes.edit(call, edit, _BAR)


def _load(porting: Porting, call: cst.Call) -> None:
    """A checkpoint is read to the CPU, after the main process has written it."""
    place = argument(call, 1, "map_location")
    if isinstance(place, (cst.Name, cst.Attribute)) and _is_state(porting, call):
        porting.changes.replace(
            place, '"cpu"', "Loading to the CPU works on every rank, and the state then moves to the device."
        )
    elif "map_location" not in keywords(call) and len([a for a in call.args if a.keyword is None]) == 1:
        location = option('map_location="cpu"')

        def edit(updated: cst.Call) -> cst.Call:
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            args = [*updated.args[:-1], updated.args[-1].with_changes(comma=comma), location]
            return updated.with_changes(args=args)

        if _is_state(porting, call):
            porting.changes.edit(call, edit, "Otherwise every rank loads to the GPU that it was saved from.")
    saves = [one for one in calls(porting.tree.module) if porting.tree.name(one.func) == "torch.save"]
    if saves and not isinstance(porting.tree.parent(porting.tree.statement(call)), cst.SimpleStatementSuite):
        line = f"{porting.ranks}.wait_for_everyone()"
        porting.changes.before(_test_of_file(porting, call), [line], "The main process may still be writing the file.")


def _test_of_file(porting: Porting, call: cst.Call) -> cst.CSTNode:
    """The outermost statement that opens the file or tests whether it exists, alike on every rank, else the call."""
    found: cst.CSTNode = call
    for above in porting.tree.parents(call):
        if isinstance(above, cst.FunctionDef):
            break
        tests = isinstance(above, cst.If) and re.search(r"exists|isfile|is_file", porting.tree.code(above.test))
        items = above.items if isinstance(above, cst.With) else ()
        if tests or any(dotted(one.func) == "open" for item in items for one in calls(item)):
            found = above
    return found


def _is_state(porting: Porting, call: cst.Call) -> bool:
    """Whether what is loaded goes into a model or an optimizer."""
    return any("load_state_dict" in one.text for one in porting.tree.files) and not _is_in_component(porting, call)


def _wandb(porting: Porting, call: cst.Call) -> None:
    if "mode" in keywords(call):
        porting.changes.decide(call, "every rank starts a wandb run: disable it on all but the main process.")
        return
    mode = option(f'mode=None if {porting.ranks}.is_main_process else "disabled"')

    def edit(updated: cst.Call) -> cst.Call:
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        args = [*updated.args]
        if args and isinstance(args[-1].comma, cst.MaybeSentinel):
            args[-1] = args[-1].with_changes(comma=comma)
        return updated.with_changes(args=[*args, mode])

    porting.changes.edit(call, edit, _LOG)


def _write(porting: Porting, call: cst.Call) -> None:
    """Guard a statement that only writes, if no rank needs another one for its arguments."""
    tree = porting.tree
    if tree.name(call.func).startswith("wandb."):
        return  # disabled on the other ranks
    statement, expression = tree.statement(call), tree.parent(call)
    if porting.changes.touches(statement) or _is_guarded(tree, call):
        return
    if porting.changes.is_for_all(call) or not (isinstance(expression, cst.Expr) and is_independent(porting, call)):
        porting.changes.decide(call, "every rank writes this: let only the main process do it.")
        return
    porting.changes.guard(call, f"{porting.ranks}.is_main_process", _SAVE)


def is_independent(porting: Porting, node: cst.CSTNode) -> bool:
    """Whether one rank alone can evaluate a node: it calls no model, no function of the script and no loader."""
    outer = node if isinstance(node, cst.Call) else None
    for call in calls(node):
        if call is outer:
            continue
        if not is_independent_call(porting, call):
            return False
    return True


def _is_guarded(tree: SourceTree, node: cst.CSTNode) -> bool:
    return any(isinstance(above, cst.With) and _opens(tree, above) for above in tree.parents(node))


def _opens(tree: SourceTree, node: cst.With) -> bool:
    """Whether a `with` opens a file for writing."""
    for item in node.items:
        call = item.item
        if isinstance(call, cst.Call) and dotted(call.func) == "open":
            mode = text_of(argument(call, 1, "mode")) or ""
            return any(letter in mode for letter in "wax")
    return False


def _files(porting: Porting) -> None:
    """`with open(..., "w")` blocks."""
    tree = porting.tree
    for node in nodes(tree.module):
        if not isinstance(node, cst.With) or not _opens(tree, node) or _is_in_component(porting, node):
            continue
        if _only_saves(porting, node):
            porting.changes.edit(node, _without_file, _SAVE)
            continue
        assigns = any(
            isinstance(one, (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return)) for one in nodes(node.body)
        )
        free = all(
            method(call) in ("write", "writelines", "writerow", "writerows", "dump", "writer", "writeheader", "print")
            or is_independent_call(porting, call)
            for call in calls(node.body)
        )
        loops = any(porting.roles.of(one.iter, "loader") for one in nodes(node.body) if isinstance(one, cst.For))
        if assigns or not free or loops:
            porting.changes.decide(node, "every rank writes this file: let only the main process do it.")
        else:
            porting.changes.guard(node, f"{porting.ranks}.is_main_process", _SAVE)


def is_independent_call(porting: Porting, call: cst.Call, depth: int = 0) -> bool:
    """Whether one rank alone can run a call: not a model, a loader, or a function of the script that uses one."""
    if porting.roles.value(call.func):
        return False
    functions = porting.roles.local_function(call)
    if functions and depth < _DEEPEST:
        return all(is_independent_call(porting, one, depth + 1) for f in functions for one in calls(f.body))
    return bool(_HARMLESS.fullmatch(porting.tree.name(call.func) or method(call)))


def _only_saves(porting: Porting, node: cst.With) -> bool:
    """`with open(path, "wb") as f: torch.save(state, f)` and nothing else."""
    body = node.body.body
    if len(body) != 1 or len(node.items) != 1 or not isinstance(body[0], cst.SimpleStatementLine):
        return False
    found = list(calls(body[0]))
    saves = bool(found) and porting.tree.name(found[0].func) == "torch.save" and not keywords(found[0])
    return saves and isinstance(porting.tree.parent(found[0]), cst.Expr) and len(found[0].args) == 2


def _without_file(updated: cst.With) -> cst.SimpleStatementLine:
    """Save to the path: the file is then opened by the main process only."""
    line = updated.body.body[0]
    opened = updated.items[0].item
    assert isinstance(line, cst.SimpleStatementLine) and isinstance(opened, cst.Call)
    expression = line.body[0]
    assert isinstance(expression, cst.Expr) and isinstance(expression.value, cst.Call)
    save = expression.value
    path = save.args[1].with_changes(value=opened.args[0].value)
    saved = expression.with_changes(value=save.with_changes(args=[save.args[0], path]))
    return line.with_changes(body=[saved], leading_lines=updated.leading_lines)
