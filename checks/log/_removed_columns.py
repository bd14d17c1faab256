"""Did Trainer of transformers remove a column from the batch that compute_loss() of the script reads?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning

_TRAINER = re.compile(r"^transformers/trainer\w*\.py in (?:training_step|prediction_step|compute_loss)$")
# The batch of a tokenizer's collate function, which reads its own dict.
_BATCH = "transformers/tokenization_utils_base.py in __getitem__"


def removed_by_trainer(one: UncaughtException, column: str) -> Meaning | None:
    """Explain a column that compute_loss() does not get; None if another function reads it, or another trainer runs."""
    frames = list(one.frames)
    if frames[-1:] == [_BATCH]:
        frames.pop()
    own = bool(frames) and (one.place or "").endswith(" in compute_loss") and frames[-1].endswith(".py in compute_loss")
    if not own or "/" in frames[-1] or not any(map(_TRAINER.search, frames)) or "trl" in one.packages:
        return None
    argument = _passed_as(one.own_code or "", column)
    fixes = (
        Fix("Keep all columns in the batch.", ("TrainingArguments(remove_unused_columns=False)",)),
        Fix(
            "Or give forward() of the model an argument of that name.",
            (python("def forward(self, {:name}, labels=None): ...", column),),
        ),
        Fix("If it is still missing, look at what the dataset has.", ("print(train_dataset.column_names)",)),
    )
    if argument:
        return Meaning(
            f"Trainer probably removed '{column}' from the batch: {one.place} reads it, and passes it on as {argument}",
            "Trainer keeps only the columns that forward() of the model names as arguments (remove_unused_columns). "
            f"This model calls it {argument}, so {column} does not reach compute_loss(). If forward() has {column}, "
            "too, the dataset has no such column.",
            fixes,
        )
    return Meaning(
        f"{one.place} reads the column '{column}', which the batch does not have",
        "Trainer keeps only the columns that forward() of the model names as arguments (remove_unused_columns), and "
        "compute_loss() gets what is left. Or the dataset has no such column: it was renamed, or never made.",
        fixes,
    )


def _passed_as(code: str, column: str) -> str | None:
    """Return the other name under which a line passes the column to a call; None if it has the same name there."""
    found = re.search(rf"\b(?P<name>\w+)=\w+(?:\[|\.(?:get|pop)\()['\"]{re.escape(column)}['\"]", code)
    return found["name"] if found and found["name"] != column else None
