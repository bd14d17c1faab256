"""Exceptions of notebooks' cells, of Keras and tf.data, of literals in a line, of a column that Trainer removed.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

PACKAGES = "/opt/env/lib/python3.10/site-packages"


def cell(head: str, code: str, error: str, number: int = 2) -> str:
    """An exception as IPython prints it: the head of the frame, and the marked line among its neighbors."""
    kind = error.partition(":")[0]
    return (
        f"{'-' * 75}\n{kind:<42}Traceback (most recent call last)\n{head}\n      1 # first\n----> {number} {code}\n"
        f"      9 \n\n{error}\n"
    )


def words(folder: Path, text: str) -> str:
    return " | ".join(explained(folder, text))


FIRST, LATER, NUMBERED = "<ipython-input-1-ab12cd> in <cell line: 1>()", "Cell In[7], line 2", "Cell In[1], line 2"


@pytest.mark.parametrize(
    ("head", "code", "error", "title", "reason"),
    [
        (FIRST, "print(rows[0])", "NameError: name 'rows' is not defined",
         "<ipython-input-1-ab12cd>:2 uses rows, which does not exist in this kernel: probably a cell", "In [1]"),
        (NUMBERED, "print(rows[0])", "NameError: name 'rows' is not defined", "Cell In[1]:2 uses rows", "In [1]"),
        (LATER, "print(rows[0])", "NameError: name 'rows' is not defined", "Cell In[7]:2 uses rows", "Run All Above"),
        ("/tmp/ipykernel_31/2861540.py in <module>", "print(rows[0])", "NameError: name 'rows' is not defined",
         "2861540.py:2 uses rows, which does not exist in this kernel", "%who"),
        # A variable of the name of a module.
        (LATER, 'n = len(random["text"].unique())', "NameError: name 'random' is not defined",
         "Cell In[7]:2 uses random, which does not exist in this kernel", "Run All Above"),
        (LATER, "copy.head().iloc[0]", "NameError: name 'copy' is not defined", "does not exist in this kernel",
         "Run All Above"),
        # The module itself.
        (LATER, "random.shuffle(rows)", "NameError: name 'random' is not defined",
         "uses random, which no cell has imported in this kernel", "import random"),
        (LATER, "x = np.zeros(3)", "NameError: name 'np' is not defined", "uses np, which no cell has imported",
         "import numpy as np"),
        (LATER, "print(rowz)", "NameError: name 'rowz' is not defined. Did you mean: 'rows'?",
         "Python suggests rows", "Write rows"),
    ],
)  # fmt: skip
def test_a_name_that_a_kernel_does_not_have(
    head: str, code: str, error: str, title: str, reason: str, tmp_path: Path
) -> None:
    text = words(tmp_path, cell(head, code, error))
    assert title in text and reason in text
    assert "grep" not in text and "pyflakes" not in text and "mistake in the script" not in text
    assert ("first cell" in text) == ("In[1]" in head or "input-1-" in head)


@pytest.mark.parametrize(
    ("code", "error", "title", "fix"),
    [
        ("n = random['text']", "NameError: name 'random' is not defined",
         "uses random, which does not exist there", "python -m pyflakes fit.py"),
        ("n = random.random()", "NameError: name 'random' is not defined", "without importing it", "import random"),
        ("x: List[int] = []", "NameError: name 'List' is not defined", "without importing it", "import List"),
        ("print(rows)", "NameError: name 'rows' is not defined", "a mistake in the script's own code", "grep -rnw"),
    ],
)  # fmt: skip
def test_a_script_has_its_files(code: str, error: str, title: str, fix: str, tmp_path: Path) -> None:
    text = words(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")
    assert title in text and fix in text and "kernel" not in text


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = model.parameters[0]", "TypeError: 'method' object is not subscriptable"),
        ("y = y + 1", "UnboundLocalError: local variable 'y' referenced before assignment"),
        ("assert False", "AssertionError: assert False"),
        ("Net(width=3)", "TypeError: Net.__init__() got an unexpected keyword argument 'width'"),
    ],
)
def test_no_command_reads_a_cell_as_a_file(code: str, error: str, tmp_path: Path) -> None:
    for head in (FIRST, LATER, "/tmp/ipykernel_31/2861540.py in <module>"):
        text = words(tmp_path, cell(head, code, error))
        assert "pyflakes" not in text and "grep -n" not in text, text
    assert any(name in words(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n") for name in ("pyflakes", "grep"))


def test_a_cell_is_not_compiled_as_a_file(tmp_path: Path) -> None:
    shown = '  File "{}", line 2\n    foo bar\n        ^\nSyntaxError: invalid syntax\n'
    text = words(tmp_path, shown.format("/tmp/ipykernel_12/2861540.py"))
    assert "a syntax error in a notebook's cell (2861540.py:2)" in text and "py_compile" not in text
    assert "py_compile fit.py" in words(tmp_path, shown.format(SCRIPT))


def test_the_marked_line_numbers_a_frame_whose_head_does_not(tmp_path: Path) -> None:
    text = (
        "-----\nValueError                                Traceback (most recent call last)\n"
        "/tmp/ipykernel_31/2861540.py in <module>\n     61\n     62 # fit\n---> 63 train(1)\n     64\n\n"
        "ValueError: bad batch\n"
    )
    path = tmp_path / "run.log"
    path.write_text(text)
    (one,) = read.read_logs([path]).raised
    assert (one.place, one.code, one.calls[-1].place) == ("2861540.py:63", "train(1)", "2861540.py:63")


@pytest.mark.parametrize(
    ("code", "error", "title", "fix"),
    [
        ("a, b = [], [], []", "too many values to unpack (expected 2)", "assigns 3 values to 2 names (a, b)",
         "Remove the value"),
        ("(a, b, self.c) = 1, {}", "not enough values to unpack (expected 3, got 2)",
         "assigns 2 values to 3 names (a, b, self.c)", "Add the value"),
        # What the line does not show.
        ("a, b = model(x)", "too many values to unpack (expected 2)", "model(x) gives more values", "return_dict"),
        ("a, b = [*x, 1, 2]", "too many values to unpack (expected 2)", "gives more values", "print(type(out)"),
    ],
)  # fmt: skip
def test_values_that_are_written_in_the_line(code: str, error: str, title: str, fix: str, tmp_path: Path) -> None:
    text = words(tmp_path, f"{frames((SCRIPT, 'main', code))}ValueError: {error}\n")
    assert title in text and fix in text
    assert "return_dict" not in text or "assigns" not in text


TRAINER = (("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)"),)


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ('out = model(tokens=inputs["input_ids"], labels=inputs["labels"])',
         "Trainer probably removed 'input_ids' from the batch: fit.py:7 in compute_loss reads it, and passes it on as "
         "tokens"),
        ("ids = inputs.pop('input_ids')", "fit.py:7 in compute_loss reads the column 'input_ids', which the batch"),
        ('out = model(input_ids=inputs["input_ids"])', "fit.py:7 in compute_loss reads the column 'input_ids'"),
    ],
)  # fmt: skip
def test_a_column_that_trainer_removed(code: str, title: str, tmp_path: Path) -> None:
    error = "KeyError: 'input_ids'\n"
    inner = ("transformers/tokenization_utils_base.py", "__getitem__", "return self.data[item]")
    mine = (SCRIPT, "compute_loss", code)
    through_trainer: tuple[tuple[tuple[str, str, str], ...], ...] = ((mine,), (mine, inner))
    for calls in through_trainer:
        text = words(tmp_path, f"{frames((SCRIPT, 'main', 'trainer.train()'), *TRAINER, *calls)}{error}")
        assert title in text and "remove_unused_columns=False" in text and "pip show trl" not in text
    # Another function reads the column, or another trainer runs.
    of_others: tuple[tuple[tuple[str, str, str], ...], ...] = (
        (*TRAINER, (SCRIPT, "collate", code)),
        (("trl/trainer/dpo_trainer.py", "f", "g()"), *TRAINER, mine),
    )
    for calls in of_others:
        text = words(tmp_path, f"{frames((SCRIPT, 'main', 'trainer.train()'), *calls)}{error}")
        assert "reads the column 'input_ids', which the samples of the dataset do not have" in text


def in_user_code(*blocks: str, script: str = "fit.py") -> str:
    return (
        frames((f"/home/ada/{script}", "main", "model.fit(x, y)"),
               ("keras/utils/traceback_utils.py", "error_handler", "raise e.with_traceback(filtered_tb) from None"),
               ("/tmp/__autograph_generated_file1.py", "tf__train_function", "retval_ = ag__.converted_call(None)"))
        + "".join(blocks)
    )  # fmt: skip


BLOCK = (
    'in user code:\n\n    File "/opt/env/lib/python3.10/site-packages/keras/engine/training.py", line 9, in '
    "train_function  *\n        return step_function(self, iterator)\n"
) + "".join(f'    File "/home/ada/net.py", line {line}, in f{line}\n        return g(x)\n' for line in range(20))
SYMBOLIC = (
    "TypeError: You are passing KerasTensor(type_spec=TensorSpec(shape=())), an intermediate Keras symbolic input"
)


def test_the_end_of_tensorflows_traceback_is_the_message(tmp_path: Path) -> None:
    text = words(
        tmp_path, in_user_code(f"ValueError: {BLOCK}\n    ValueError: Shapes (None, 9) and (None, 3) are off\n")
    )
    assert "fit.py:7 in main raised ValueError: Shapes (None, 9) and (None, 3) are off" in text
    assert "user code" not in text and "ag__" not in text and "is None" not in text


def test_a_layer_has_a_traceback_of_its_own(tmp_path: Path) -> None:
    layer = (
        "    ValueError: Exception encountered when calling layer 'net' (type Net).\n    \n    in user code:\n    \n"
        '        File "/home/ada/net.py", line 3, in call  *\n            return a + b\n    \n'
        "        ValueError: the sizes 3 and 4 differ\n    \n    \n    Call arguments received by layer 'net':\n"
    )
    assert "raised ValueError: the sizes 3 and 4 differ" in words(
        tmp_path, in_user_code(f"ValueError: {BLOCK}\n{layer}")
    )


def test_other_output_does_not_become_the_message(tmp_path: Path) -> None:
    text = words(tmp_path, in_user_code(f"ValueError: {BLOCK}\nEpoch 2\n    OSError: not of this exception\n"))
    assert "OSError" not in text


def test_a_loss_of_symbolic_tensors(tmp_path: Path) -> None:
    fit = frames((SCRIPT, "main", "vae.fit(x)"), ("keras/engine/training.py", "fit", "self.train_function(iterator)"))
    text = words(tmp_path, f"{fit}TypeError: {BLOCK}\n    {SYMBOLIC}\n")
    assert "the loss or a metric of fit() is computed from the model's symbolic tensors" in text
    assert "(fit.py:7 in main)" in text and "add_loss" in text
    build = frames((SCRIPT, "main", "y = tf.map_fn(f, x)"), ("keras/engine/keras_tensor.py", "__array__", "raise E"))
    text = words(tmp_path, f"{build}{SYMBOLIC}\n")
    assert "a function that needs values got a symbolic tensor" in text and "add_loss" not in text


NEXT = ("tensorflow/python/framework/ops.py", "raise_from_not_ok_status", "six.raise_from(status(e), None)")
SIX = ("six.py", "raise_from", "raise value")


@pytest.mark.parametrize(
    ("first", "other", "title", "fix", "absent"),
    [
        ("64,99,1", "5,99,1", "probably they are batches already (fit.py:7 in main)", "unbatch()", "no absent text"),
        ("100,99", "20,99", "probably they are batches already", "call batch() once", "no absent text"),
        ("97,40", "64,40", "samples of different shapes", "padded_batch", "call batch() once"),
        ("64,99,3", "64,80,3", "samples of different shapes", "tf.image.resize", "unbatch"),
        ("64", "5", "samples of different shapes", "padded_batch", "unbatch"),
        ("64,9,9", "64,9", "samples of different shapes", "padded_batch", "unbatch"),
    ],
)
def test_elements_that_do_not_fit_into_a_batch(
    first: str, other: str, title: str, fix: str, absent: str, tmp_path: Path
) -> None:
    error = (
        "InvalidArgumentError: Cannot batch tensors with different shapes in component 0. First element had shape "
        f"[{first}] and element 23 had shape [{other}]. [Op:IteratorGetNext]\n"
    )
    text = words(tmp_path, f"{frames((SCRIPT, 'main', 'for x in ds:'), NEXT, SIX)}{error}")
    assert title in text and fix in text and absent not in text


def test_six_only_raises_what_it_is_handed(tmp_path: Path) -> None:
    error = "InvalidArgumentError: The thing that was given to this op is not a thing that it can use\n"
    text = words(tmp_path, f"{frames((SCRIPT, 'main', 'x = next(ds)'), NEXT, SIX)}{error}")
    assert "pip show six" not in text and "in six.py" not in text and "framework/ops.py" in text
    other = ("six.py", "ensure_text", "raise TypeError(message)")
    path = tmp_path / "run.log"
    path.write_text(f"{frames((SCRIPT, 'main', 'x = f()'), other)}TypeError: not expecting this\n")
    assert read.read_logs([path]).raised[0].packages[-1] == "six"
