"""Models that hold the trained model: what calls them goes past the wrapper, which averages the gradients."""

from __future__ import annotations

import libcst as cst

from mgpu.port.makers import Origin
from mgpu.port.porting import Porting, Site
from mgpu.port.source_tree import calls, dotted


def past_wrapper(porting: Porting) -> str:
    """Return why the prepared model would not be trained; empty if its own calls are visible.

    `wrapped = Wrapper(model)` before prepare(model) keeps the model without DistributedDataParallel. If the training
    calls only `wrapped`, no gradient is averaged.
    """
    roles, tree = porting.roles, porting.tree
    training = [call for call in calls(tree.module) if porting.loops.in_training(call)]
    if any(roles.is_model(call.func) for call in training):
        return ""
    for call in training:
        for holder in sorted(roles.of(call.func, "model") - roles.optimized, key=lambda one: tree.line(one.node)):
            if any(_holds(porting, holder, site) for site in porting.sites):
                return (
                    f"{tree.where(call)}: {dotted(call.func)}(...) trains a model that another one holds "
                    f"({tree.where(holder.node)}), so the gradients would not be averaged. Give the optimizer the "
                    f"parameters of {dotted(call.func)}, or call the model itself"
                )
    return ""


def _holds(porting: Porting, holder: Origin, site: Site) -> bool:
    """Whether a model gets the one that a site prepares, before it is prepared."""
    if not isinstance(holder.node, cst.Call):
        return False
    inner = [model for one in holder.node.args for model in porting.roles.of(one.value, "model")]
    inner = [model for model in inner if model in porting.roles.optimized]
    tree = porting.tree
    function = tree.inside(holder.node, cst.FunctionDef)
    if site.at is not None and function is site.function and tree.file(site.at) == tree.file(holder.node):
        return bool(inner) and tree.line(holder.node) <= tree.line(site.at)
    return any(tree.inside(model.node, cst.FunctionDef) is function for model in inner)
