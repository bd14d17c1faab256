"""What every kind of change is given: the script's tree, its objects and loops, and the changes so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count

import libcst as cst

from mgpu.port.change import Changes
from mgpu.port.makers import Origin
from mgpu.port.roles import Roles
from mgpu.port.source_tree import Place, SourceTree, nodes
from mgpu.port.training_loops import Loops


@dataclass
class Site:
    """A block in which objects are prepared together."""

    block: cst.CSTNode
    function: cst.FunctionDef | None
    models: list[str] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    loaders: list[str] = field(default_factory=list)
    bound: list[cst.CSTNode] = field(default_factory=list)  # the assignments of its optimizers
    at: cst.CSTNode | None = None  # the statement after which they are


@dataclass
class Porting:
    """One script on its way to several ranks."""

    tree: SourceTree
    roles: Roles
    loops: Loops
    changes: Changes
    ranks: str  # the name of the object that knows the ranks: accelerator
    ddp: bool = False
    mixed_precision: str = ""  # the keyword of the Accelerator, if AMP by hand is replaced
    split: set[Origin] = field(default_factory=set)  # the loaders whose batches are split between the ranks
    sites: list[Site] = field(default_factory=list)
    wrapped: bool = False  # models and optimizers are prepared
    averaged: set[tuple[int, str]] = field(default_factory=set)  # backward passes (by identity) and models, by hand
    notes: dict[str, list[Place]] = field(default_factory=dict)  # text -> the places that it is about
    unused: str = ""  # why DistributedDataParallel looks for unused parameters; "" if it does not
    shared: str = ""  # the text of a new module that creates the object, if several files need it

    @property
    def device(self) -> str:
        """The expression for the rank's own device."""
        return f"{self.ranks}.device"

    def note(self, text: str, node: cst.CSTNode | None = None) -> None:
        """Add a note for the user, about the line of a node or about the script."""
        places = self.notes.setdefault(text, [])
        if node is not None and (place := self.tree.place(node)) not in places:
            places.append(place)


def free_name(tree: SourceTree, *wanted: str) -> str:
    """Return the first of these names that the script does not use."""
    used = {node.value for node in nodes(tree.module) if isinstance(node, cst.Name)}
    more = (f"{wanted[-1]}_{number}" for number in count(2))
    return next(name for name in chain(wanted, more) if name not in used)


def imports_module(tree: SourceTree, module: str) -> bool:
    """Whether the script imports a module under its own name, for all of the script."""
    return any(
        isinstance(node, cst.Import)
        and tree.inside(node, cst.FunctionDef) is None
        and any(one.evaluated_name.partition(".")[0] == module and one.asname is None for one in node.names)
        for node in nodes(tree.module)
    )
