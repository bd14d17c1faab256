"""Does a trainer read a column that the dataset does not have, or the script a split?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, UncaughtException

from .. import _version_skew as skew
from ._messages import short_name
from ._own_objects import Meaning
from ._removed_columns import removed_by_trainer

# fmt: off
_TRAINERS = frozenset({
    "trl", "swift", "llamafactory", "verl", "openrlhf", "open_instruct", "axolotl", "skyrl_train", "unsloth",
    "unsloth_zoo", "unsloth_compiled_cache", "datasets", "transformers",
})
_COLUMNS = frozenset({
    "prompt", "chosen", "rejected", "completion", "label", "labels", "text", "messages", "conversations", "input_ids",
    "attention_mask", "prompt_input_ids", "chosen_input_ids", "rejected_input_ids", "chosen_labels", "rejected_labels",
    "prompt_pixel_values", "images", "image", "query", "response", "instruction", "input", "output", "answer",
    "solution", "reward_model", "data_source", "extra_info", "ground_truth", "input_ids_chosen", "input_ids_rejected",
    "raw_prompt", "raw_prompt_ids", "question",
})
# fmt: on
_PREPARE_FOR_VERL = Fix(
    "Prepare the data for verl: each sample needs data_source, prompt and reward_model (with ground_truth).",
    ("python examples/data_preprocess/gsm8k.py --local_dir data/gsm8k",),
)
_SPLITS = re.compile(r"datasets/dataset_dict\.py:\d+ in __getitem__")
_KEY = re.compile(r"['\"](?P<name>\w+)['\"]")


def _column(one: UncaughtException) -> str | None:
    """Return the column that a trainer did not find in a sample; None if the exception is about something else."""
    if short_name(one.type) != "KeyError" or not set(one.packages) & _TRAINERS:
        return None
    key = _KEY.fullmatch(one.message.strip())
    return key["name"] if key and key["name"] in _COLUMNS else None


def _other_columns(one: UncaughtException, column: str) -> Meaning:
    inner = one.packages[-1]
    reader = skew.distribution(inner) if inner else one.place or "the script"
    prepare = (_PREPARE_FOR_VERL,) if "verl" in one.packages else ()
    return Meaning(
        f"{reader} reads the column '{column}', which the samples of the dataset do not have",
        "",  # the check's own
        (
            *prepare,
            Fix(
                "Compare the columns with the format that the installed version expects.",
                ("print(dataset.column_names, dataset[0])", "pip show trl transformers datasets"),
            ),
            Fix(
                "Rename the column, or keep it: trainers remove columns that they do not know.",
                (
                    "dataset = dataset.rename_column('question', 'prompt')",
                    "TrainingArguments(remove_unused_columns=False)",
                ),
            ),
        ),
    )


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/trl/main/en/dataset_formats",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_dataset_column_missing(log: Log) -> Answer:
    """A trainer reads a column that the samples of the dataset do not have.

    Why: Each trainer expects columns with certain names, which change between its versions. The dataset has others, its
    columns were renamed or removed before, or it was prepared for another version.

    Fix: Compare the dataset's columns with the format that the installed version expects.
    """
    for one in log.raised:
        column = _column(one)
        if column is None or one.signatures or one.caught:
            continue
        meant = removed_by_trainer(one, column) or _other_columns(one, column)
        return Problem(
            meant.title,
            meant.why,
            meant.fixes,
            evidence={"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at, "column": column},
            subjects=tuple(f"rank {rank}" for rank in one.ranks),
            place=Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/datasets/access#slice-splits",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_dataset_split_missing(log: Log) -> Answer:
    """The script reads a split that the dataset does not have.

    Why: Without split=, load_dataset() returns a dictionary of the splits that the data has: a local file gives only
    "train". A setting names another one, or an earlier step removed it.

    Fix: Print the names of the splits. Use one of them, or make the split.
    """
    for one in log.raised:
        split = _KEY.fullmatch(one.message.strip())
        if short_name(one.type) != "KeyError" or split is None or one.signatures or one.caught:
            continue
        if not _SPLITS.match(one.library or ""):
            continue
        return Problem(
            f"the dataset has no split '{split['name']}', which {one.place or 'the script'} reads",
            fix=(
                Fix(
                    "Use a split that it has. A setting of the run can name it (dataset_splits, eval_split).",
                    ("print(dataset)",),
                ),
                Fix("Or make the split.", ("dataset['train'].train_test_split(test_size=0.05, seed=0)",)),
            ),
            evidence={
                "exception": one.type,
                "place": one.place,
                "rank": one.rank,
                "at": one.at,
                "split": split["name"],
            },
            subjects=tuple(f"rank {rank}" for rank in one.ranks),
            place=Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
