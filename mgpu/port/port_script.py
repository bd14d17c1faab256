"""Port one script: recognize what it is, collect the changes, and verify that the result is valid Python."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from mgpu.port import (
    backward_pass,
    by_hand,
    data_loading,
    device_placement,
    entry_point,
    gathered_metrics,
    held_models,
    mixed_precision,
    one_change,
    own_processes,
    preparing,
    random_seeds,
    rank_output,
    training_loops,
    training_metrics,
    unused_parameters,
)
from mgpu.port.change import Changes
from mgpu.port.ported import Ported, PortedFile, hunks
from mgpu.port.porting import Porting, free_name
from mgpu.port.roles import Roles
from mgpu.port.script_files import SourceFile
from mgpu.port.source_tree import SourceTree
from mgpu.port.training_loops import Loops


def port(
    text: str, framework: str | None, *, ddp: bool = False, others: Sequence[SourceFile] = (), module: str = ""
) -> Ported:
    """Return the port of a script, and of the modules of its own that it imports.

    `framework` is what readers found that it trains with, `module` its own name if it is run as a part of a package.
    """
    try:
        tree = SourceTree(text, others, module)
    except cst.ParserSyntaxError as error:
        return Ported(text, refused=f"line {error.raw_line}: it is not valid Python")
    except RecursionError:
        return Ported(text, refused="its statements are nested too deeply")
    if framework not in (None, "nothing") or one_change.trains_with_library(tree):
        return one_change.port(tree, framework)
    roles = Roles(tree)
    porting = Porting(tree, roles, Loops(tree, roles), Changes(tree), "", ddp=ddp)
    if refused := _refused(porting):
        return Ported(text, refused=refused)
    wanted = ("ranks", "all_ranks") if ddp else ("accelerator", "hf_accelerator")
    porting.ranks = free_name(tree, *wanted)
    _collect(porting)
    if refused := held_models.past_wrapper(porting):
        return Ported(text, refused=refused)
    if not porting.wrapped:
        return Ported(text, refused="no place was found where the model and its optimizer can be prepared")
    return _result(porting)


def _result(porting: Porting) -> Ported:
    """Apply the changes, and verify that each file is valid Python."""
    tree = porting.tree
    new = porting.changes.apply()
    for file, code in zip(tree.files, new, strict=True):
        if code != file.text and (line := _invalid(code)):
            where = f"its port would not be valid Python at {file.name} line {line}".replace("  ", " ")
            return Ported(tree.text, refused=f"{where}, which is a bug in mgpu")
    of_file = [[one for one in porting.changes.all if one.file == number] for number in range(len(new))]
    found = [hunks(file.text, code, own) for file, code, own in zip(tree.files, new, of_file, strict=True)]
    every = zip(tree.files[1:], new[1:], found[1:], strict=True)
    others = [PortedFile(file.name, file.text, code, own) for file, code, own in every if own]
    if porting.shared:
        reason = f"{entry_point.NEW_FILE} {porting.unused}".rstrip()
        new_file = [replace(one, reasons=(reason,)) for one in hunks("", porting.shared, ())]
        others.append(PortedFile(f"{entry_point.SHARED}.py", None, porting.shared, tuple(new_file)))
    decisions = tuple((tree.place(one.node), one.reason) for one in porting.changes.all if one.decide)
    return Ported(new[0], found[0], porting.notes, decisions, others=tuple(others))


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
    unused_parameters.plan(porting)
    preparing.plan(porting)
    backward_pass.plan(porting)
    rank_output.plan(porting)
    by_hand.plan(porting)
    own_processes.plan(porting)
    entry_point.plan(porting, seed, random_seeds.reason())


def _refused(porting: Porting) -> str:
    """Why a script is not ported."""
    if not porting.loops.backwards:
        return "it has no backward pass. If the training loop is in a module that it imports, port that file"
    if (shared := training_loops.shared_line(porting.loops)) is not None:
        return f"{porting.tree.where(shared)}: write each statement of this line on a line of its own first"
    if not porting.roles.origins("optimizer"):
        place = porting.tree.where(porting.loops.backwards[0])
        return f"{place}: no optimizer of torch.optim was found for this backward pass"
    if not porting.roles.optimized:
        place = porting.tree.where(porting.roles.origins("optimizer")[0].node)
        return f"{place}: the model whose parameters this optimizer gets was not found"
    return own_processes.refused(porting)
