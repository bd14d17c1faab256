"""What numpy refuses: shapes, axes, types, values and files, each with the values of its message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_refused_by_python import words


@pytest.mark.parametrize(
    ("code", "error", "title", "fix"),
    [
        (
            "x = np.where(c, a, b)",
            "ValueError: operands could not be broadcast together with shapes (3,4) (3,4) (2,4) ",
            "arrays of these shapes cannot be combined: (3,4) (3,4) (2,4)",
            "cond.shape",
        ),
        (
            "x = a - b",
            "ValueError: operands could not be broadcast together with shapes (16,4) (16,3) ",
            "two arrays of shapes (16,4) and (16,3)",
            "a.shape",
        ),
        (
            "x = np.repeat(a, n)",
            "ValueError: operands could not be broadcast together with shape (3,) (2,)",
            "a list of counts",
            "len(repeats)",
        ),
        (
            "x = np.pad(a, w)",
            "ValueError: operands could not be broadcast together with remapped shapes "
            "[original->remapped]: (3,2)  and requested shape (2,2)",
            "widths for 3 dimensions, and the array has 2",
            "x.shape",
        ),
        (
            "x = a.mean(axis=2)",
            "numpy.exceptions.AxisError: axis 2 is out of bounds for array of dimension 2",
            "axis 2 does not exist: the array has 2",
            "axis=-1",
        ),
        (
            "x = np.moveaxis(a, 2, 0)",
            "numpy.AxisError: source: axis 2 is out of bounds for array of dimension 2",
            "axis 2 does not exist",
            "x.shape",
        ),
        ("x = a.transpose(2, 0, 1)", "ValueError: axes don't match array", "another number of axes", "[..., None]"),
        (
            "x = a.reshape(3, 32)",
            "ValueError: cannot reshape array of size 100 into shape (3,32)",
            "100 values cannot take the shape (3,32)",
            "a.shape",
        ),
        (
            "x = a.reshape(-1, 3)",
            "ValueError: cannot reshape array of size 100 into shape (3)",
            "100 values cannot take the shape (3)",
            "a.shape",
        ),
        (
            "x = np.concatenate(xs)",
            "ValueError: all the input arrays must have same number of dimensions, but the "
            "array at "
            "index 0 has 2 dimension(s) and the array at index 1 has 1 dimension(s)",
            "number 0 has 2, number 1 has 1",
            "[None]",
        ),
        (
            "x = np.split(a, 3)",
            "ValueError: array split does not result in an equal division",
            "equal parts",
            "array_split",
        ),
        ("n = len(x)", "TypeError: len() of unsized object", "a single number is used as if", "atleast_1d"),
        ("y = x[0]", "IndexError: invalid index to scalar variable.", "a single number", "atleast_1d"),
        (
            "x += 0.5",
            "numpy._core._exceptions._UFuncOutputCastingError: Cannot cast ufunc 'add' output from "
            "dtype('float64') to dtype('int64') with casting rule 'same_kind'",
            "the result of add is float64",
            "x = x + y",
        ),
        (
            "x -= m",
            "numpy.core._exceptions.UFuncTypeError: Cannot cast ufunc 'subtract' output from dtype('float32') "
            "to "
            "dtype('uint8') with casting rule 'same_kind'",
            "written into an array of uint8",
            "x = x + y",
        ),
        (
            "x = np.log(a)",
            "TypeError: loop of ufunc does not support argument 0 of type int which has no callable log method",
            "np.log is computed of an array of Python objects",
            "x.dtype",
        ),
        (
            "x = np.zeros(3, 4)",
            "TypeError: Cannot interpret '4' as a data type",
            "4 is passed as the type",
            "np.zeros((3, 4))",
        ),
        (
            "x = np.zeros(3, dtype=t)",
            "TypeError: Cannot interpret 'torch.float32' as a data type",
            "a type of torch",
            "np.float32",
        ),
        (
            "x = np.array(x, copy=False)",
            "ValueError: Unable to avoid copy while creating an array as requested.",
            "numpy 2 refuses",
            "asarray",
        ),
        ("x[0] = 3", "ValueError: assignment destination is read-only", "can only be read is changed", "copy()"),
        (
            "i = rng.randint(5)",
            "AttributeError: 'numpy.random._generator.Generator' object has no attribute 'randint'",
            "no randint",
            "rng.integers",
        ),
        (
            "x = a.tostring()",
            "AttributeError: 'numpy.ndarray' object has no attribute 'tostring'",
            "no tostring",
            "tobytes",
        ),
        ("x = np.log(a)", "FloatingPointError: divide by zero encountered in log", "np.log met a value", "errstate"),
        ("np.random.seed(s)", "ValueError: Seed must be between 0 and 2**32 - 1", "the seed is outside", "% 2**32"),
        (
            "x = np.load(p)",
            "ValueError: This file contains pickled (object) data. If you trust the file you can load "
            "it "
            "unsafely using the `allow_pickle=` keyword argument or `pickle.load()`.",
            "not an array of numpy",
            "git lfs pull",
        ),
        (
            "x = np.load(p)",
            "ValueError: Cannot load file containing pickled data when allow_pickle=False",
            "not an array of numpy",
            "head -c 100",
        ),
        (
            "x = np.load(p)",
            "EOFError: No data left in file",
            "the file of numpy is empty",
            "rename when it is complete",
        ),
        (
            "x = np.load(p)",
            "ValueError: Failed to read all data for array. Expected (1000,) = 1000 elements, could "
            "only "
            "read 46 elements. (file seems not fully written?)",
            "46 of 1000 values",
            "ls -la",
        ),
        (
            "y = np.load(p)['labels']",
            "KeyError: 'labels is not a file in the archive'",
            "has no array labels",
            ".files",
        ),
        (
            "x = np.loadtxt(p)",
            "ValueError: could not convert string 'a' to float64 at row 0, column 1.",
            "cannot read 'a' in row 0, column 1",
            "skiprows",
        ),
    ],
)
def test_each_refusal_of_numpy_names_its_values(code: str, error: str, title: str, fix: str, tmp_path: Path) -> None:
    text = words(code, error, tmp_path)
    assert title in text
    assert fix in text


@pytest.mark.parametrize(
    ("code", "error", "absent"),
    [
        (
            "x = t.mean(dim=2)",
            "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
            "axis 2",
        ),
        (
            "x = np.load(p)",
            "ValueError: Object arrays cannot be loaded when allow_pickle=False",
            "not an array of numpy",
        ),
        (
            "x = np.array(rows)",
            "ValueError: setting an array element with a sequence. The requested array has an "
            "inhomogeneous shape after 1 dimensions.",
            "into the place of one",
        ),
        ("x = a.foo()", "AttributeError: 'Batch' object has no attribute 'tostring'", "an array of numpy has no"),
    ],
)
def test_other_messages_do_not_get_it(code: str, error: str, absent: str, tmp_path: Path) -> None:
    assert absent not in words(code, error, tmp_path)
