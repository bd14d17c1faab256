"""Port one script: recognize what it is, collect the changes, and verify that the result is valid Python."""

from __future__ import annotations

import ast
import warnings

import libcst as cst

from mgpu.port import (
    backward_pass,
    by_hand,
    data_loading,
    device_placement,
    entry_point,
    gathered_metrics,
    mixed_precision,
    one_change,
    preparing,
    random_seeds,
    rank_output,
    training_loops,
    training_metrics,
)
from mgpu.port.change import Changes
from mgpu.port.ported import Ported, hunks
from mgpu.port.porting import Porting, free_name
from mgpu.port.roles import Roles
from mgpu.port.source_tree import SourceTree
from mgpu.port.training_loops import Loops


def port(text: str, name: str, framework: str | None, *, ddp: bool = False) -> Ported:
    """Return the port of a script. `framework` is what readers found that it trains with."""
    try:
        tree = SourceTree(text)
    except cst.ParserSyntaxError as error:
        return Ported(text, refused=f"line {error.raw_line}: it is not valid Python")
    except RecursionError:
        return Ported(text, refused="its statements are nested too deeply")
    if framework not in (None, "nothing") or one_change.trains_with_library(tree):
        return one_change.port(tree, name, framework)
    roles = Roles(tree)
    porting = Porting(tree, roles, Loops(tree, roles), Changes(tree), "", ddp=ddp)
    if refused := _refused(porting):
        return Ported(text, refused=refused)
    wanted = ("ranks", "all_ranks") if ddp else ("accelerator", "hf_accelerator")
    porting.ranks = free_name(tree, *wanted)
    _collect(porting)
    if not porting.wrapped:
        return Ported(text, refused="no place was found where the model and its optimizer can be prepared")
    new = porting.changes.apply()
    if line := _invalid(new):
        return Ported(text, refused=f"its port would not be valid Python at line {line}, which is a bug in mgpu")
    decisions = tuple((one.line, one.reason) for one in porting.changes.all if one.decide)
    found = hunks(text, new, name, porting.changes.all)
    return Ported(new, found, porting.notes, decisions)


def _invalid(code: str) -> int:
    """The line at which a text is not valid Python; 0 if it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return error.lineno or 1
    return 0


def _collect(porting: Porting) -> None:
    seed = random_seeds.plan(porting)
    mixed_precision.plan(porting)
    preparing.find_sites(porting)
    gathered_metrics.plan(porting)
    training_metrics.plan(porting)
    data_loading.plan(porting)
    device_placement.plan(porting)
    preparing.plan(porting)
    backward_pass.plan(porting)
    rank_output.plan(porting)
    by_hand.plan(porting)
    entry_point.plan(porting, seed, random_seeds.reason())


def _refused(porting: Porting) -> str:
    """Why a script is not ported."""
    if not porting.loops.backwards:
        return "it has no backward pass. If the training loop is in a module that it imports, port that file"
    if (shared := training_loops.shared_line(porting.loops)) is not None:
        return f"line {porting.tree.line(shared)}: write each statement of this line on a line of its own first"
    if not porting.roles.origins("optimizer"):
        line = porting.tree.line(porting.loops.backwards[0])
        return f"line {line}: no optimizer of torch.optim was found for this backward pass"
    if not porting.roles.optimized:
        line = porting.tree.line(porting.roles.origins("optimizer")[0].node)
        return f"line {line}: the model whose parameters this optimizer gets was not found"
    return ""
