"""What does a NameError mean if the name is a variable called like a module, or if a notebook's cell uses it?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.notebook_cells import is_first_run
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning

# What tables of pandas and data sets have, and no module.
# fmt: off
_OF_TABLES = frozenset({
    "drop_duplicates", "groupby", "iloc", "loc", "columns", "head", "tail", "iterrows", "itertuples", "fillna",
    "dropna", "sort_values", "reset_index", "set_index", "to_csv", "value_counts", "column_names", "rename_column",
    "train_test_split",
})
# fmt: on


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def used_as_data(code: str | None, name: str) -> bool:
    """Whether a line uses a name as a table or a dict: it reads an item of it, and nothing that a module has."""
    text = _QUOTED.sub("''", code or "")
    uses = re.findall(rf"(?<![\w.]){re.escape(name)} ?(\[|\(|\.\w+)", text)
    return bool(uses) and all(use == "[" or use[1:] in _OF_TABLES for use in uses)


_SELDOM_VALUES = frozenset({"os", "sys", "np", "pd", "plt", "nn", "torch"})


def used_as_value(code: str | None, name: str) -> bool:
    """Whether a line has a name that is also a module's only as a plain value: no attribute is read, nothing called."""
    text = _QUOTED.sub("''", code or "")
    after = re.findall(rf"(?<![\w.]){re.escape(name)}\b ?(\(|\.|)", text)
    return bool(after) and not any(after) and name not in _SELDOM_VALUES


def not_in_kernel(one: UncaughtException, name: str, like: str | None, imported: Fix | None) -> Meaning:
    """Explain a name that a notebook's kernel does not have; `imported`: how to import it."""
    new = (
        "It is the first cell that this kernel ran (In [1]): the kernel is new or was restarted, and has nothing of "
        "other cells yet."
        if is_first_run(one.place)
        else "A kernel has only what its cells defined since it started: a restart, or a cell that failed or was "
        "skipped, leaves names out."
    )
    if imported:
        return Meaning(
            f"{one.place} uses {name}, which no cell has imported in this kernel",
            f"{new} Or no cell of the notebook imports it.",
            (imported,),
        )
    run = Fix("Run the cells above this one first, in their order (Run All Above).", ("%who",))
    if like:
        return Meaning(
            f"{one.place} uses {name}, which does not exist in this kernel; Python suggests {like}",
            f"Either the name is misspelled, or the cell that defines it was not run. {new}",
            (Fix(f"Write {like}, if it is meant."), run),
        )
    return Meaning(
        f"{one.place} uses {name}, which does not exist in this kernel: probably a cell that defines it was not run",
        f"{new} A misspelled name, and one that is defined only inside a function, cause the same error.",
        (run, Fix(f"If they ran: correct the name, or define {name} before this line.")),
    )
