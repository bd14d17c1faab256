"""What the values of a failed line, which a launch records, add to the explanation of its exception."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import Definition, EndedRank, LineValues, Run
from tests.test_log_contexts import RAISED

BATCH = {"batch": "dict with input_ids, label"}
TABLE = {"self.wpe": "Embedding(64, 32), float32 on cpu", "ids": "int64 [1, 96] on cpu, from 0 to 95"}


def cause(error: str, values: dict[str, str], folder: Path, line: int = 41) -> str:
    """The cause of an exception at train.py:41, where the names had these values."""
    (folder / "run.log").write_text(RAISED.format(code="out = step(batch['labels'])", error=error))
    log = read.read_logs([folder / "run.log"])
    recorded = (LineValues("/home/u/train.py", line, "main", values),)
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
    first = root_cause.find_cause(log, run).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem.cause


@pytest.mark.parametrize(
    ("error", "values", "said"),
    [
        ("KeyError: 'labels'", BATCH, "batch has 'label', and no 'labels'."),
        ("KeyError: 'f1'", {"m": "dict with eval_loss, eval_f1 and 3 more"}, "m has 'eval_f1', and no 'f1'."),
        ("IndexError: index out of range in self", TABLE, "ids contains 95, and self.wpe has 64 rows: 0 to 63."),
        (
            "IndexError: index out of range in self",
            {"e": "Embedding(10, 4)", "ids": "int64 [8] on cpu, from -100 to 3"},
            "ids contains -100, and e has 10 rows: 0 to 9.",
        ),
        (
            "IndexError: Target 2 is out of bounds.",
            {"logits": "float32 [8, 2] on cpu", "y": "int64 [8] on cpu, from 1 to 2"},
            "y contains 2, and logits has 2 classes: 0 to 1.",
        ),
        (
            "TypeError: view_as(): argument 'other' (position 1) must be Tensor, not NoneType",
            {"p": "float32 [2] on cpu", "p.grad": "None"},
            "p.grad is None: no gradient reached it.",
        ),
        (
            "TypeError: cross_entropy_loss(): argument 'input' (position 1) must be Tensor, not NoneType",
            {"out": "None", "y": "int64 [2] on cpu"},
            "out is None.",
        ),
        (
            "RuntimeError: shape '[16, 256]' is invalid for input of size 3072",
            {"x": "float32 [12, 4, 8, 8] on cuda:1", "self.batch_size": "16"},
            "x has 12 rows, and this line writes 16 (self.batch_size) for the first dimension: ",
        ),
        (
            "RuntimeError: shape '[32, -1]' is invalid for input of size 1210",
            {"x": "float32 [10, 121] on cpu", "n": "16"},
            "x has 10 rows, and this line writes 32 for the first dimension: ",
        ),
        (
            "RuntimeError: shape '[16, 256]' is invalid for input of size 3072",
            {"model": "Net, float32 on cpu", "xb": "int64 [12, 5] on cpu, from 0 to 9"},
            "xb has 12 rows, and this line writes 16 for the first dimension: ",
        ),
    ],
)
def test_values_name_what_the_message_does_not(error: str, values: dict[str, str], said: str, tmp_path: Path) -> None:
    assert cause(error, values, tmp_path).startswith(said)
    assert said not in cause(error, values, tmp_path, line=40)  # of another line


@pytest.mark.parametrize(
    ("error", "values"),
    [
        ("KeyError: 'labels'", {"batch": "dict with input_ids, mask"}),
        ("KeyError: 'labels'", {"batch": "dict of 3"}),
        ("IndexError: index out of range in self", {**TABLE, "ids": "int64 [1, 9] on cpu, from 0 to 63"}),
        ("IndexError: index out of range in self", {**TABLE, "other": "Embedding(9, 3)"}),
        ("IndexError: Target 2 is out of bounds.", {"a": "float32 [8, 2] on cpu", "y": "int64 [8] on cuda:0"}),
        ("ValueError: no", TABLE),
        ("RuntimeError: index 95 is out of bounds for dimension 0 with size 64", TABLE),
        # Of what has more dimensions, the classes are not always the second.
        ("IndexError: Target 2 is out of bounds.", {"a": "float32 [8, 2, 9] on cpu", "y": "int64 [8] on cpu, all 2"}),
        # A predicted number: the index is one of the embedding.
        (
            "IndexError: index out of range in self",
            {"a": "float32 [8, 2] on cpu", "e": "Net, float32 on cpu", "y": "int64 [8] on cpu, all 2"},
        ),
        # A class that is no row: the embedding is not what has the classes.
        ("IndexError: Target 95 is out of bounds.", TABLE),
        ("IndexError: Target -5 is out of bounds.", {"a": "float32 [8, 2] on cpu", "y": "int64 [8] on cpu, all -5"}),
        ("TypeError: f(): argument 'a' (position 1) must be Tensor, not NoneType", {"a": "None", "b": "None"}),
        ("RuntimeError: shape '[16, 256]' is invalid for input of size 3072", {"x": "float32 [16, 192] on cpu"}),
        ("RuntimeError: shape '[16, 0]' is invalid for input of size 3072", {"x": "float32 [12, 256] on cpu"}),
        ("RuntimeError: shape '[16, 256]' is invalid for input of size 3000", {"x": "float32 [12, 250] on cpu"}),
        ("RuntimeError: shape '[-1, 256]' is invalid for input of size 3000", {"x": "float32 [12, 250] on cpu"}),
        ("RuntimeError: shape '[16, 256]' is invalid for input of size 3072", {"y": "float32 [9, 4] on cpu"}),
        (
            "RuntimeError: shape '[16, 256]' is invalid for input of size 3072",
            {"a": "float32 [12, 256] on cpu", "b": "float32 [24, 128] on cpu"},
        ),
        (
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x192 and 256x10)",
            {"xb": "float32 [12, 9] on cpu"},
        ),
    ],
)
def test_values_that_show_nothing_add_nothing(error: str, values: dict[str, str], tmp_path: Path) -> None:
    assert cause(error, values, tmp_path) == cause(error, values, tmp_path, line=40)


def test_the_table_in_torchs_own_function(tmp_path: Path) -> None:
    values = {"ids": "int64 [1] on cpu, all 9", "weight": "float32 [5, 2] on cpu"}
    (tmp_path / "run.log").write_text(
        RAISED.format(code="embed(ids, w)", error="IndexError: index out of range in self")
    )
    log = read.read_logs([tmp_path / "run.log"])
    own = LineValues("/home/u/train.py", 41, "main", {"ids": values["ids"]})
    said = "ids contains 9, and weight has 5 rows: 0 to 4."
    for file, expected in (("/v/torch/nn/functional.py", True), ("/home/u/functional.py", False)):
        recorded = (LineValues(file, 2615, "embedding", values), own)
        run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
        first = root_cause.find_cause(log, run).first
        assert first is not None and first.outcome.problem is not None
        assert first.outcome.problem.cause.startswith(said) == expected


NOT_PADDED = (
    "ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True' "
    "'truncation=True' to have batched tensors with the same length. Perhaps your features (`labels` in this case) "
    "have excessive nesting (inputs type `list` where type `int` is expected)."
)
NO_TEXT, SITE = "KeyError: 'text'", "/v/lib/python3.11/site-packages"
TOKENIZING = (
    f'trainer.train()\n  File "{SITE}/trl/trainer/sft_trainer.py", line 1383, in tokenize_fn\n    example[field]\n'
    f'  File "{SITE}/datasets/formatting/formatting.py", line 299, in __getitem__\n    value = self.data[key]'
)
FORMATTING, TENSORS = "datasets/formatting/formatting.py", "transformers/tokenization_utils_base.py"
COLUMNS = {"self.data": "dict with content, source"}
TEXT = "SFTTrainer reads the text from the column that dataset_text_field names: 'text'."


@pytest.mark.parametrize(
    ("code", "error", "file", "values", "said"),
    [
        ("x", NO_TEXT, FORMATTING, COLUMNS, "The samples have content and source, and no 'text'. "),
        (TOKENIZING, NO_TEXT, FORMATTING, COLUMNS, f"The samples have content and source, and no 'text'. {TEXT}"),
        ("x", NO_TEXT, FORMATTING, {"self.data": "dict with a, b and 3 more"}, ""),
        ("x", NO_TEXT, FORMATTING, {"self.data": "dict with a, text"}, ""),
        ("x", NO_TEXT, "own/formatting.py", COLUMNS, ""),
        (
            "x",
            NOT_PADDED,
            TENSORS,
            {"value": "list of 2: list of 2, list of 3"},
            "labels has 2 and 3 values in the first",
        ),
        ("x", NOT_PADDED, TENSORS, {"value": "list of 2: list of 2, list of 2"}, ""),
        ("x", NOT_PADDED, "own/code.py", {"value": "list of 2: list of 2, list of 3"}, ""),
        (
            "x",
            "ValueError: Expected input batch_size (6) to match target batch_size (4).",
            "torch/nn/functional.py",
            {"input_ids": "int64 [2, 3] on cpu, from 3 to 5", "labels": "int64 [2, 2] on cuda:0"},
            "input_ids has 3 tokens per sample, and labels 2: a model needs one label per token.",
        ),
    ],
)
def test_values_in_a_package(
    code: str, error: str, file: str, values: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "run.log").write_text(RAISED.format(code=code, error=error))
    recorded = (LineValues("/home/u/train.py", 41, "main", {}), LineValues(f"{SITE}/{file}", 299, "f", values))
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
    log = read.read_logs([tmp_path / "run.log"])
    first, without = root_cause.find_cause(log, run).first, root_cause.find_cause(log, None).first
    assert first is not None and first.outcome.problem is not None
    assert without is not None and without.outcome.problem is not None
    assert first.outcome.problem.cause.startswith(said or without.outcome.problem.cause)


@pytest.mark.parametrize(("code", "certain"), [("x.view(self.batch_size, -1)", True), ("self.pool(x)", False)])
def test_rows_that_a_reshape_before_the_layer_writes(code: str, certain: bool, tmp_path: Path) -> None:
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x192 and 256x10)"
    (tmp_path / "run.log").write_text(RAISED.format(code="return self.fc(x)", error=error))
    (raised,) = (log := read.read_logs([tmp_path / "run.log"])).raised
    made = Definition("x", "set", "train.py:40 in forward", f"x = {code}")
    values = (
        LineValues("/home/u/train.py", 41, "forward", {"x": "float32 [16, 192] on cpu"}),
        LineValues("/home/u/train.py", 60, "main", {"xb": "float32 [12, 1, 8, 8] on cpu"}),
    )
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=values),), expected=1)
    first = root_cause.find_cause(replace(log, raised=(replace(raised, defined=(made,)),)), run).first
    assert first is not None and first.outcome.problem is not None
    said = "xb has 12 rows, and train.py:40 makes 16 rows of them: x = x.view(self.batch_size, -1)."
    assert first.outcome.problem.cause.startswith(said) == certain


TWO_RANKS = """\
[rank0]: step 1
[rank1]: step 1
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 41, in main
[rank1]:     raise ValueError('bad sample in the data')
[rank1]: ValueError: bad sample in the data
"""


@pytest.mark.parametrize(
    ("condition", "of_rank"),
    [
        ("i == 7 and accelerator.process_index == 1", True),
        ("dist.get_rank() > 0", True),
        ("not accelerator.is_main_process", True),
        ("x.isnan().any()", False),
        ("low_rank > 4", False),
        ("", False),
    ],
)
def test_an_exception_that_one_rank_raises_itself(condition: str, of_rank: bool, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(TWO_RANKS)
    recorded = (LineValues("/home/u/train.py", 41, "main", {"i": "7"}, condition or None),)
    run = Run(1, 1, 9.0, ranks=(EndedRank(1, 1, first=True, values=recorded), EndedRank(0, -15)), expected=2)
    first = root_cause.find_cause(read.read_logs([tmp_path / "run.log"]), run).first
    assert first is not None and first.outcome.problem is not None
    cause, fixes = first.outcome.problem.cause, " ".join(fix.text for fix in first.outcome.problem.fixes)
    assert "not about one rank's data" not in cause, "what the script itself does not accept can be one rank's data"
    assert ("the line depends on the rank" in cause) == ("depends on the rank" in fixes) == of_rank
    assert ("inspect this rank's batch" in fixes) != of_rank
    assert ("It is about the settings or the data" in cause) != of_rank
