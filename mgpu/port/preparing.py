"""Models and optimizers are prepared together, and what a wrapped model does not have is read from the model inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mgpu.port.change import Edit
from mgpu.port.past_wrapper import average, trains_by_method
from mgpu.port.porting import Porting, Site, free_name
from mgpu.port.source_tree import (
    argument,
    assigned,
    calls,
    dotted,
    flat,
    is_main_guard,
    method,
    nodes,
    receiver,
    targets,
)

_PREPARE = "prepare wraps the model, so that gradients are averaged over all ranks, and moves it to the rank's device."
_UNWRAP = "On several ranks the model is wrapped: its own attributes and keys are those of the model inside."
_PARALLEL = "nn.DataParallel is replaced: each rank trains on its own GPU."
_DP = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel")
# What a wrapped model offers itself, with the same meaning.
_OF_WRAPPER = {
    "train",
    "eval",
    "parameters",
    "zero_grad",
    "to",
    "cuda",
    "cpu",
    "requires_grad_",
    "training",
    "float",
    "double",
    "half",
    "share_memory",
}
_COPIES = {"copy.deepcopy", "torch.onnx.export", "torch.jit.script", "torch.jit.trace"}
_MODULE = r"torch\.nn\.(?:modules\.(?:\w+\.)?)?Module"


def find_sites(porting: Porting) -> None:
    """Find where models and optimizers are prepared together."""
    porting.sites = _sites(porting)
    for site in porting.sites:
        at = _last_binding(porting, site, set(site.models + site.optimizers))
        if at is not None and all(porting.tree.last_line(one) <= porting.tree.last_line(at) for one in site.bound):
            site.at = at


def plan(porting: Porting) -> None:
    """Collect the changes of models and optimizers."""
    _data_parallel(porting)
    for site in porting.sites:
        names = list(dict.fromkeys([*site.models, *site.optimizers, *site.loaders]))
        if site.at is not None and names:
            porting.wrapped = porting.wrapped or bool(site.models)
            porting.changes.after(site.at, _statements(porting, names), _PREPARE)
    _unwrap(porting, porting.sites)


def _statements(porting: Porting, names: Sequence[str]) -> list[str]:
    """The statements that prepare objects: together, and those of a dict or list one by one."""
    ranks, kinds = porting.ranks, {name: porting.roles.container(name) for name in names}
    losses = [name for name in names if not kinds[name] and _may_have_no_parameters(porting, name)]
    plain = ", ".join(name for name in names if not kinds[name] and name not in losses)
    found = [f"{plain} = {ranks}.prepare({plain})"] if plain else []
    # On CPU ranks, accelerate wraps a module without looking for parameters.
    found += [f"if list({name}.parameters()):\n    {name} = {ranks}.prepare({name})" for name in losses]
    for name, kind in kinds.items():
        if kind == "dict":
            found.append(f"{name} = {{key: {ranks}.prepare(one) for key, one in {name}.items()}}")
        elif kind == "list":
            found.append(f"{name} = [{ranks}.prepare(one) for one in {name}]")
    return found


def _may_have_no_parameters(porting: Porting, name: str) -> bool:
    """Whether a trained variable holds a loss of the script: DistributedDataParallel refuses one without parameters."""
    return not porting.ddp and any(
        porting.roles.of(one, "criterion")
        for node in nodes(porting.tree.module)
        for target in targets(node)
        for one in flat(target)
        if dotted(one) == name
    )


def _data_parallel(porting: Porting) -> None:
    for call in calls(porting.tree.module):
        if porting.tree.name(call.func) not in _DP or not call.args:
            continue
        inner = argument(call, 0, "module")
        if inner is None:
            porting.changes.decide(call, f"use the model itself: {_PARALLEL}")
            continue
        place = next(n for n, one in enumerate(call.args) if one.value is inner)
        above = porting.tree.parent(call)
        if above is not None and assigned(above) is not None and dotted(targets(above)[0]) == dotted(inner) != "":
            porting.changes.remove(call, _PARALLEL)
        else:
            porting.changes.edit(call, _argument(place), _PARALLEL)


def _argument(place: int) -> Edit:
    return lambda call: call.args[place].value


def _block(porting: Porting, node: cst.CSTNode) -> cst.CSTNode:
    """The block in which a statement's result is used: conditions and `with` around it do not count."""
    above: cst.CSTNode = porting.tree.statement(node)
    while (parent := porting.tree.parent(above)) is not None:
        if isinstance(parent, cst.Module):
            return parent
        if isinstance(parent, cst.IndentedBlock):
            around = porting.tree.parent(parent)
            if isinstance(around, (cst.FunctionDef, cst.For, cst.While, cst.ClassDef)) or is_main_guard(around):
                return parent
            if around is not None and porting.loops.trains(around):  # `try:` around the whole training
                return parent
        above = parent
    return above


def _may_be_missing(porting: Porting, binding: cst.CSTNode, name: str, block: cst.CSTNode) -> bool:
    """Whether a name exists in its block only if a condition holds: `if args.adam: optimizer = ...`, nothing else."""
    for above in porting.tree.parents(binding):
        if above is block or isinstance(above, (cst.FunctionDef, cst.For, cst.While)):
            return False
        if isinstance(above, cst.If) and not is_main_guard(above):
            others = sum(
                name == dotted(target)
                for node in nodes(porting.tree.module)
                for one in targets(node)
                for target in flat(one)
            )
            return above.orelse is None and others == 1
    return False


def _sites(porting: Porting) -> list[Site]:
    sites: dict[int, Site] = {}
    for node, target, value in _bindings(porting):
        function, name = porting.tree.inside(node, cst.FunctionDef), dotted(target)
        found = porting.roles.of(target, "optimizer") if name else frozenset()
        if not found or _is_returned(porting, function, name):
            continue
        made_here = found & porting.roles.value(value)
        if not made_here and not isinstance(value, (cst.Call, cst.Tuple)):
            continue
        block = _block(porting, node)
        site = sites.setdefault(id(block), Site(block, function))
        if _may_be_missing(porting, node, name, block):
            porting.changes.after(node, [f"{name} = {porting.ranks}.prepare({name})"], _PREPARE)
        else:
            site.optimizers.append(name)
            site.bound.append(node)
        for root in [root for origin in found for root in porting.roles.trained_by(origin.node)]:
            _add_model(porting, sites, site, root, node)
    _inline(porting, sites)
    return list(sites.values())


def _bindings(porting: Porting) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, cst.BaseExpression]]:
    """The statements that give a variable a value, or add one to a dict or list, with the variable and the value."""
    for node in nodes(porting.tree.module):
        value = assigned(node)
        if value is not None and not isinstance(value, (cst.Name, cst.Attribute)):
            for target in [name for one in targets(node) for name in flat(one)]:
                if isinstance(target, cst.Subscript):
                    yield _outside_loop(porting, node), target.value, value
                else:
                    yield node, target, value
        elif isinstance(node, cst.Call) and method(node) == "append" and node.args and receiver(node) is not None:
            yield _outside_loop(porting, node), cst.ensure_type(node.func, cst.Attribute).value, node.args[0].value


def _outside_loop(porting: Porting, node: cst.CSTNode) -> cst.CSTNode:
    """The outermost loop around a statement that fills a dict or list, else the statement."""
    outer = node
    for above in porting.tree.parents(node):
        if isinstance(above, cst.FunctionDef):
            break
        if isinstance(above, (cst.For, cst.While)) and not porting.loops.trains(above):
            outer = above
    return outer


def _inline(porting: Porting, sites: dict[int, Site]) -> None:
    """An optimizer that is made as an argument, and the model of this block: both get prepared before the call."""
    for origin in porting.roles.origins("optimizer"):
        call = origin.node
        if not isinstance(call, cst.Call) or not isinstance(porting.tree.parent(call), cst.Arg):
            continue
        around = porting.tree.inside(call, cst.Call)
        roots = [dotted(one) for one in porting.roles.trained_by(call)]
        if around is None or not all(roots) or not porting.roles.local_function(around):
            continue
        name = free_name(porting.tree, "optimizer", "trained_by")
        names = ", ".join([*dict.fromkeys(roots), name])
        lines = [f"{name} = {porting.tree.code(call)}", f"{names} = {porting.ranks}.prepare({names})"]
        porting.changes.before(call, lines, _PREPARE)
        porting.changes.replace(call, name, _PREPARE)
        porting.wrapped = True


def _is_returned(porting: Porting, function: cst.FunctionDef | None, name: str) -> bool:
    """Whether a function only makes an object for its caller."""
    if function is None or porting.loops.trains(function.body):
        return False
    returns = [node for node in nodes(function.body, nested=False) if isinstance(node, cst.Return) and node.value]
    values = [node.value for node in returns if node.value is not None]
    return any(name == dotted(one) for value in values for one in flat(value))


def _add_model(
    porting: Porting, sites: dict[int, Site], site: Site, root: cst.BaseExpression, binding: cst.CSTNode
) -> None:
    """Add a trained model to the site of its optimizer, or to a site of its own if it is held elsewhere."""
    models = porting.roles.of(root, "model")
    key = porting.tree.key(root)
    if not models or key is None:
        porting.changes.decide(binding, f"pass the model of {porting.tree.code(root)} to {porting.ranks}.prepare.")
        return
    here = site.function
    if porting.tree.inside(root, cst.FunctionDef) is here and (
        key[0] is here or key[1].startswith("self.") or _binds_in(porting, here, root)
    ):
        site.models.append(key[1])
        return
    for (holder, name), value in porting.roles.values.items():  # a helper made the optimizer: the caller's variable
        same_class = isinstance(holder, cst.ClassDef) and here is not None and holder in porting.tree.parents(here)
        if (holder is here or same_class) and value & models:
            site.models.append(name)
            return
    for node in nodes(porting.tree.module):  # a global model
        if assigned(node) is not None and porting.tree.inside(node, cst.FunctionDef) is None:
            for target in [name for one in targets(node) for name in flat(one)]:
                if dotted(target) and porting.roles.of(target, "model") & models:
                    block = _block(porting, node)
                    own = sites.setdefault(id(block), Site(block, None))
                    own.models.append(dotted(target))
                    return


def _binds_in(porting: Porting, function: cst.FunctionDef | None, name: cst.BaseExpression) -> bool:
    """Whether a function gives a variable its value that it has declared `global`."""
    key = porting.tree.key(name)
    return function is not None and any(
        key == porting.tree.key(target)
        for node in nodes(function.body)
        for one in targets(node)
        for target in flat(one)
        if isinstance(target, (cst.Name, cst.Attribute))
    )


def _last_binding(porting: Porting, site: Site, names: set[str]) -> cst.CSTNode | None:
    """The last statement of the block that makes one of the objects or a scheduler, before the training starts."""
    assert isinstance(site.block, (cst.IndentedBlock, cst.Module))
    last: cst.CSTNode | None = None
    for statement in site.block.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            continue
        found = [_variable(name) for node in nodes(statement) for one in targets(node) for name in flat(one)]
        adds = [dotted(on) for call in calls(statement) if method(call) == "append" and (on := receiver(call))]
        binds = bool(names & {*found, *adds}) or any(
            porting.roles.of(name, "scheduler") or _makes_loader(porting, node)
            for node in nodes(statement)
            for one in targets(node)
            for name in flat(one)
            if dotted(name)
        )
        if last is not None and porting.loops.trains(statement):
            break
        if binds and not porting.loops.trains(statement):
            last = statement
    return last


def _variable(target: cst.BaseExpression) -> str:
    """The variable of a target: `models` of `models["a"]`."""
    return dotted(target.value if isinstance(target, cst.Subscript) else target)


def _makes_loader(porting: Porting, node: cst.CSTNode) -> bool:
    """Whether a statement assigns a new loader."""
    value = assigned(node)
    return any(origin.node is value for origin in porting.roles.of(value, "loader"))


def _unwrap(porting: Porting, sites: list[Site]) -> None:
    """Read the attributes of prepared models from the model inside."""
    for node in nodes(porting.tree.module):
        if isinstance(node, cst.Attribute) and porting.roles.is_model(node.value):
            if porting.roles.container(dotted(node.value)):
                continue
            if not _is_before(porting, node, sites) and not _is_assigned(porting, node):
                _attribute(porting, node)
        elif isinstance(node, cst.Subscript) and porting.roles.is_model(node.value) and dotted(node.value):
            _part(porting, node, sites)
        elif isinstance(node, cst.Call) and porting.tree.name(node.func) in _COPIES and node.args:
            first = node.args[0].value
            if porting.roles.is_model(first) and dotted(first) and not _is_before(porting, node, sites):
                porting.changes.replace(first, f"{porting.ranks}.unwrap_model({dotted(first)})", _UNWRAP)


def _part(porting: Porting, node: cst.Subscript, sites: list[Site]) -> None:
    """`nets["a"](x)`, where nets is one model: a ModuleDict, or a Sequential."""
    name = dotted(node.value)
    if porting.roles.container(name) or _is_before(porting, node, sites) or not _is_prepared(name, sites):
        return
    if porting.loops.in_training(node):
        average(porting, node, name, f"a part of {name}")
    porting.changes.replace(node.value, f"{porting.ranks}.unwrap_model({name})", _UNWRAP)


def _is_prepared(name: str, sites: list[Site]) -> bool:
    return any(name in site.models for site in sites)


def _is_assigned(porting: Porting, node: cst.Attribute) -> bool:
    return isinstance(above := porting.tree.parent(node), cst.AssignTarget) or (
        isinstance(above, cst.AnnAssign) and above.target is node
    )


def _is_before(porting: Porting, node: cst.CSTNode, sites: list[Site]) -> bool:
    """Whether a node certainly runs before the model is prepared, or inside a model of the script."""
    tree = porting.tree
    for above in tree.parents(node):
        if isinstance(above, cst.ClassDef) and porting.roles.is_class(above, _MODULE):
            return True
    function = tree.inside(node, cst.FunctionDef)
    ends = [tree.last_line(site.at) for site in sites if site.at is not None and site.function is function]
    return bool(ends) and tree.line(node) <= min(ends)


def _attribute(porting: Porting, node: cst.Attribute) -> None:
    tree, name = porting.tree, node.attr.value
    inner = tree.code(node.value)
    call = tree.parent(node)
    called = call if isinstance(call, cst.Call) and call.func is node else None
    if name == "module":
        _of_inner_model(porting, node, inner)
        porting.changes.replace(node, f"{porting.ranks}.unwrap_model({inner})", _UNWRAP)
    elif name in _OF_WRAPPER:
        return
    elif name == "forward" and called is not None:
        porting.changes.edit(node, lambda updated: updated.value, "The gradients are averaged if the model is called.")
    elif name == "state_dict" and called is not None and _is_saved(porting, node):
        reason = "get_state_dict has the keys of the model without its wrapper, also if the model is sharded."
        porting.changes.edit(called, lambda _: cst.parse_expression(f"{porting.ranks}.get_state_dict({inner})"), reason)
    else:
        if called is not None and trains_by_method(porting, called, name):
            average(porting, called, inner, f"{inner}.{name}(...)")
        porting.changes.edit(
            node.value, lambda updated: cst.parse_expression(f"{porting.ranks}.unwrap_model({inner})"), _UNWRAP
        )


def _of_inner_model(porting: Porting, node: cst.Attribute, model: str) -> None:
    """Average the gradients of `model.module(x)` and `model.module.loss(x)`."""
    above = porting.tree.parent(node)
    method_name = above.attr.value if isinstance(above, cst.Attribute) else "forward"
    call = porting.tree.parent(above) if isinstance(above, cst.Attribute) else above
    func = above if isinstance(above, cst.Attribute) else node
    if isinstance(call, cst.Call) and call.func is func and trains_by_method(porting, call, method_name):
        average(porting, call, model, f"{porting.tree.code(call.func)}(...)")


def _is_saved(porting: Porting, node: cst.CSTNode) -> bool:
    return any(
        isinstance(above, cst.Call) and porting.tree.name(above.func) == "torch.save"
        for above in porting.tree.parents(node)
    )
