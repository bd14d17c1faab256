"""Which method of Hugging Face's Dataset is meant that it does not have, and is a split taken for a sample?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import Log, UncaughtException

from ._own_objects import Meaning

_LACKS = re.compile(r"'(?P<owner>Dataset|DatasetDict|IterableDataset)' object has no attribute '(?P<name>\w+)'")
_LOADED = re.compile(r"^datasets/|\bload_dataset\(|\bload_from_disk\(|\bDataset\.from_")
_READ_BY_NAME = re.compile(  # not the turns of a conversation, which can be a text in each sample
    r"\b(?P<sample>(?!m\b|msg|mess|turn|conv)[A-Za-z_]\w*)"
    r"\[['\"](?P<key>(?!role|content|value|from|type|name|function)\w+)['\"]\]"
)
_SPLIT_NAME = re.compile(r"Generating (\w+) split")
_OF_COLUMNS = "A column is removed and renamed with methods that have it in their name."
_OF_ROWS = (
    "It is no list and no table of pandas: its rows are chosen with select() and filter(), and changed with map()."
)
# What is called, and what is meant. A project's own class, xarray's or h5py's can be named Dataset, too.
_CALL = "Call the method that it has."
_REMOVE = Fix(_CALL, ("dataset = dataset.remove_columns('NAME')",))
_JOIN = Fix(_CALL, ("from datasets import concatenate_datasets; dataset = concatenate_datasets([first, second])",))
_SPLIT = Fix(_CALL, ("dataset = dataset.train_test_split(test_size=0.1)",))
_COLUMNS = {
    "remove": ("remove_columns", _REMOVE),
    "remove_column": ("remove_columns", _REMOVE),
    "drop_columns": ("remove_columns", _REMOVE),
    "drop_column": ("remove_columns", _REMOVE),
    "delete_columns": ("remove_columns", _REMOVE),
    "keep_columns": ("select_columns", Fix(_CALL, ("dataset = dataset.select_columns(['NAME'])",))),
    "rename": ("rename_column", Fix(_CALL, ("dataset = dataset.rename_column('OLD', 'NEW')",))),
}
_ROWS = {
    "apply": ("map", Fix(_CALL, ("dataset = dataset.map(function)",))),
    "concat": ("concatenate_datasets", _JOIN),
    "concatenate": ("concatenate_datasets", _JOIN),
    "extend": ("concatenate_datasets", _JOIN),
    "append": ("add_item", Fix(_CALL, ("dataset = dataset.add_item({'text': 'TEXT'})",))),
    "head": ("select", Fix(_CALL, ("dataset = dataset.select(range(5))",))),
    "iloc": ("select", Fix(_CALL, ("dataset = dataset.select(range(100))",))),
    "random_split": ("train_test_split", _SPLIT),
    "train_val_split": ("train_test_split", _SPLIT),
}


def no_method_of_dataset(one: UncaughtException) -> Meaning | None:
    """Explain a method that datasets.Dataset has under another name."""
    found = _LACKS.match(one.message)
    if found is None or not one.raised_in_own_code or not one.place:
        return None
    owner, name = found["owner"], found["name"]
    meant = _COLUMNS.get(name) or _ROWS.get(name)
    # The name of the class alone can be the project's own one.
    of_datasets = owner != "Dataset" or name in _COLUMNS or any(_LOADED.search(call.code or "") for call in one.calls)
    if not meant or not of_datasets or f".{name}" not in (one.code or ""):
        return None
    if owner == "DatasetDict" and name in _ROWS and name != "apply":
        return _choose_split(name, one)
    if owner.startswith("Iterable") and name in _ROWS and name != "apply":
        return None  # it has neither select() nor train_test_split()
    return Meaning(
        f"{owner} has no method {name}, which {one.place} calls: {meant[0]} is probably meant",
        f"{owner} is probably the class of Hugging Face's datasets. {_OF_COLUMNS if name in _COLUMNS else _OF_ROWS} "
        "These methods return a new data set, and leave the old one as it is.",
        (
            meant[1],
            Fix("Look which methods and columns it has.", ("print(type(dataset), dataset)", "help(type(dataset))")),
        ),
    )


def _choose_split(name: str, one: UncaughtException) -> Meaning:
    """Explain a method of one data set that is called on several."""
    return Meaning(
        f"a DatasetDict has no {name}, which {one.place} uses: it holds several splits, and one has to be chosen first",
        "load_dataset() without split= gives a DatasetDict. Rows and their order belong to its data sets.",
        (
            Fix("Choose the split.", ("dataset = dataset['train']", "load_dataset(NAME, split='train')")),
            Fix("Look which it has.", ("print(dataset)",)),
        ),
    )


def split_as_sample(log: Log, one: UncaughtException) -> Meaning | None:
    """Explain a loop over a DatasetDict, which gives the names of its splits and no samples."""
    shown = next((found[1] for row in log.shows if (found := _SPLIT_NAME.search(row.text))), None)
    read = _READ_BY_NAME.search(one.own_code or "")
    refused = one.message.startswith("string indices must be integers")
    if not shown or not read or not refused or not one.place or "datasets" in one.packages:
        return None
    sample, key = read["sample"], read["key"]
    return Meaning(
        f"{sample} is a text, not a sample, and {one.place} reads its '{key}': probably the loop goes through a whole "
        f"DatasetDict, which gives the names of its splits ('{shown}')",
        "load_dataset() without split= gives a DatasetDict, a dict of splits. Its data sets have the samples.",
        (
            Fix("Choose the split.", ("load_dataset(NAME, split='train')", "dataset = dataset['train']")),
            Fix("If it is one data set already, print the value.", (python("print({:name})", sample),)),
        ),
    )
