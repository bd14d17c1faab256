"""What do the values that the recorder noted on the failed line say about the exception, beyond its message?

Only of a launch: a log from another machine has no such values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from mgpu.check import Problem
from mgpu.snapshot import LineValues, UncaughtException
from mgpu.text import listed

from ._messages import exception_of, short_name
from ._nan_inputs import with_nan_inputs
from ._rows_written import rows_written

_ROWS = re.compile(r"Embedding\((\d+), \d+")
_FUNCTIONAL = "torch/nn/functional.py"
_TABLE = re.compile(r"b?float\d* \[(\d+), \d+\] ")  # the weight of torch.nn.functional.embedding
_RANGE = re.compile(r"u?int\d* \[[\d, ]*\] on cpu, (?:all (?P<all>-?\d+)|from (?P<least>-?\d+) to (?P<most>-?\d+))")
_LOGITS = re.compile(r"b?float\d* \[\d+, (?P<classes>\d+)\] ")  # with more dimensions, the second one need not be it
_KEYS = re.compile(r"\w+ with (?P<keys>.+?)(?: and \d+ more)?$")
_CUT = re.compile(r" and \d+ more$")
_ALIKE = 0.75  # of difflib; "label" and "labels" are 0.91
_NOT_NONE = re.compile(r"must be Tensor, not NoneType|expected Tensor as element \d+ .* got NoneType")
_SAMPLE = "datasets/formatting/formatting.py"
_TOKENIZES = re.compile(r"(?:.*/)?trl/trainer/sft_trainer\.py in tokenize\w*")
_OTHER_COLUMNS = frozenset({"prompt", "completion", "messages", "images", "input_ids"})
_NOT_PADDED = re.compile(r"Unable to create tensor, you should probably .*features \(`(?P<column>\w+)`")
_TENSORS = "transformers/tokenization_utils_base.py"
_LIST_LENGTHS = re.compile(r"list of (\d+)")
_BATCH_SIZES = "Expected input batch_size"
_TOKENS = re.compile(r"int64 \[\d+, (\d+)\] on ")
_NO_ROW = "index out of range in self"
_NO_CLASS = re.compile(r"Target -?\d+ is out of bounds")


def with_values(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with what the recorded values of its exception's line show."""
    one = exception_of(problem, facts)
    problem = with_nan_inputs(problem, facts)
    said = next(_says(one, one.recorded), "") if one is not None else ""
    return replace(problem, cause=f"{said} {problem.cause}".strip()) if said else problem


def _says(one: UncaughtException, lines: tuple[LineValues, ...]) -> Iterator[str]:
    yield from rows_written(one)
    for line in lines:
        if short_name(one.type) == "KeyError":
            yield from _near_key(one.message.strip("'\""), line.values)
            yield from _columns(one, line)
        elif found := _NOT_PADDED.search(one.message):
            yield from _lengths(found["column"], line.values if line.file.endswith(_TENSORS) else {})
        elif _BATCH_SIZES in one.message:
            yield from _tokens_and_labels(line.values)
        elif _NO_ROW in one.message:
            of_torch = line.file.endswith(_FUNCTIONAL) and line.function == "embedding"
            yield from _beyond(line.values, _TABLE if of_torch else _ROWS, "rows")
        elif _NO_CLASS.search(one.message):
            yield from _beyond(line.values, _LOGITS, "classes")
        elif _NOT_NONE.search(one.message):
            yield from _none(one, line.values)


def _near_key(key: str, values: Mapping[str, str]) -> Iterator[str]:
    """Say which key there is that is nearly the missing one: "labels" and "label", "f1" and "eval_f1"."""
    for name, text in values.items():
        found = _KEYS.match(text)
        keys = found["keys"].split(", ") if found else []
        ends = [one for one in keys if one.endswith(f"_{key}")]
        near = ends if len(ends) == 1 else get_close_matches(key, keys, 1, _ALIKE)
        if near and key not in keys:
            yield f"{name} has '{near[0]}', and no '{key}'."


def _columns(one: UncaughtException, line: LineValues) -> Iterator[str]:
    """Say which columns the samples of a dataset have, if it raised the exception itself."""
    text = line.values.get("self.data", "") if line.file.endswith(_SAMPLE) else ""
    found = _KEYS.fullmatch(text) if not _CUT.search(text) else None
    key, columns = one.message.strip("'\""), found["keys"].split(", ") if found else []
    if columns and key not in columns:
        of_text = any(_TOKENIZES.fullmatch(frame) for frame in one.frames) and key not in _OTHER_COLUMNS
        reads = f" SFTTrainer reads the text from the column that dataset_text_field names: '{key}'." if of_text else ""
        yield f"The samples have {listed(columns, 'and')}, and no '{key}'.{reads}"


def _lengths(column: str, values: Mapping[str, str]) -> Iterator[str]:
    """Say which lengths the lists of a column have in the first samples of the batch."""
    for text in values.values():
        lengths = [int(one) for one in _LIST_LENGTHS.findall(text.partition(": ")[2])]
        if text.startswith("list of ") and len({*lengths}) > 1:
            yield f"{column} has {listed([f'{one:,}' for one in lengths])} values in the first samples of this batch."
            return


def _tokens_and_labels(values: Mapping[str, str]) -> Iterator[str]:
    """Say how long the labels of a model are, and its input."""
    found = [_TOKENS.match(values.get(name, "")) for name in ("input_ids", "labels")]
    tokens, labels = (int(one[1]) if one else 0 for one in found)
    if tokens and labels and tokens != labels:
        yield f"input_ids has {tokens:,} tokens per sample, and labels {labels:,}: a model needs one label per token."


def _none(one: UncaughtException, values: Mapping[str, str]) -> Iterator[str]:
    """Say which name is None, and what gave it."""
    names = [name for name, text in values.items() if text == "None"]
    if len(names) != 1:
        return
    name = names[0]
    if name.endswith(".grad"):
        yield f"{name} is None: no gradient reached it. forward() did not use this parameter, or it is frozen."
        return
    made = next((part for part in one.defined if part.name == name and part.kind == "set"), None)
    called = re.search(r"=\s*(?:self\.)?(?:\w*model\w*|net\w*)\([^()]*\)$", made.code) if made else None
    why = " A forward() without a return gives None." if called else ""
    yield f"{name} is None{f' ({made.place}: {made.code})' if made else ''}.{why}"


def _beyond(values: Mapping[str, str], tables: re.Pattern[str], what: str) -> Iterator[str]:
    """Say which integer is beyond the end of the line's only table: of an embedding's rows, of the classes."""
    sizes = [(name, int(found[1])) for name, text in values.items() if (found := tables.match(text))]
    if len(sizes) != 1:
        return
    table, size = sizes[0]
    for name, text in values.items():
        found = _RANGE.match(text)
        if found is None:
            continue
        least, most = (int(found[part] or found["all"]) for part in ("least", "most"))
        # A label below 0 may be the loss's ignore_index.
        if most >= size or (least < 0 and what == "rows"):
            worst = most if most >= size else least
            yield f"{name} contains {worst:,}, and {table} has {size:,} {what}: 0 to {size - 1:,}."
