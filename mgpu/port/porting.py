"""What every kind of change is given: the script's tree, its objects and loops, and the changes so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from mgpu.port.change import Changes
from mgpu.port.roles import Origin, Roles
from mgpu.port.source_tree import SourceTree, nodes
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
    notes: list[str] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The expression for the rank's own device."""
        return f"{self.ranks}.device"


def free_name(tree: SourceTree, *wanted: str) -> str:
    """Return the first of these names that the script does not use."""
    used = {node.value for node in nodes(tree.module) if isinstance(node, cst.Name)}
    return next((name for name in wanted if name not in used), wanted[-1] + "_")
