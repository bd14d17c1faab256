"""Values and tensors of another kind, shape or type than the script's line needs: what torch, numpy and Python say.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

RNN = ("torch/nn/modules/rnn.py", "check_hidden_size", "raise RuntimeError(msg.format(expected, list(hx.size())))")
STACK = ("numpy/_core/shape_base.py", "stack", "raise ValueError('need at least one array to stack')")
PANDAS = ("pandas/core/indexes/accessors.py", "__new__", 'raise AttributeError("Can only use .dt accessor")')
TRL = ("trl/trainer/utils.py", "compute_accuracy", "return (predictions == labels).mean()")
HOOK = ("torch/_tensor.py", "register_hook", "raise RuntimeError(")
LINALG = ("torch/_linalg_utils.py", "solve", "raise RuntimeError(")
SOLVE = "x = torch.linalg.solve(gram, rhs)"


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        (
            SOLVE,
            (),
            "RuntimeError: linalg.solve: A must be batches of square matrices, but they are 3 by 6 matrices",
            "linalg.solve needs square matrices, and gets 3 by 6 (fit.py:7 in main)",
            "A[..., :n, :n]",
        ),
        (
            "d = torch.linalg.inv(a)",
            (),
            "RuntimeError: linalg.inv: A must be batches of square matrices, but they are 4 by 5 matrices",
            "linalg.inv needs square matrices, and gets 4 by 5",
            "order",
        ),
        (
            SOLVE,
            (),
            "RuntimeError: linalg.solve: Expected a floating point or complex tensor as input. Got Long",
            "linalg.solve computes with floating point numbers, and gets a tensor of type Long",
            "x.float()",
        ),
        (
            "m = lengths.mean()",
            (),
            "RuntimeError: mean(): could not infer output dtype. Input dtype must be either a "
            "floating point or complex dtype. Got: Long",
            "mean computes with floating point numbers",
            "x.float()",
        ),
        (
            SOLVE,
            (),
            "RuntimeError: linalg.solve: Expected A and B to have the same dtype, but found A of type Float and "
            "B of type Long instead",
            "linalg.solve gets tensors of two types, Float and Long",
            "b.to(a.dtype)",
        ),
        (
            SOLVE,
            (),
            "torch._C._LinAlgError: torch.linalg.solve: (Batch element 12): The solver failed because the input "
            "matrix is singular.",
            "a matrix (item 12 of the batch) is singular",
            "torch.eye",
        ),
        (
            "u, s, v = np.linalg.svd(c)",
            (),
            "numpy.linalg.LinAlgError: SVD did not converge",
            "the decomposition of a matrix did not converge (fit.py:7 in main)",
            "np.isfinite(A)",
        ),
        ("i = np.linalg.inv(c)", (), "numpy.linalg.LinAlgError: Singular matrix", "a matrix is singular", "diagonal"),
        (
            "c = torch.linalg.cholesky(k)",
            (),
            "torch._C._LinAlgError: linalg.cholesky: The factorization could not be "
            "completed because the input is not positive-definite (the leading minor of order 3 is not "
            "positive-definite).",
            "a matrix is not positive definite",
            "diagonal",
        ),
        (
            "y = h[:, :, 0]",
            (),
            "IndexError: too many indices for tensor of dimension 2",
            "h has 2 dimensions, and fit.py:7 in main gives it more indices than that",
            "print(h.shape)",
        ),
        (
            "y = x[0, 1]",
            (),
            "IndexError: too many indices for array: array is 1-dimensional, but 2 were indexed",
            "x has 1 dimension, and fit.py:7 in main gives it 2 indices",
            "unsqueeze",
        ),
        (
            "y = a[:, None] @ f",
            (),
            "RuntimeError: Expected size for first two dimensions of batch2 tensor to be: [256, 1] but got: [256, 2].",
            "rows of the first factor have 1 items, and the second factor has 2 rows",
            "a.mT @ b",
        ),
        (
            "y = torch.bmm(q, k)",
            (),
            "RuntimeError: Expected size for first two dimensions of batch2 tensor to be: [8, 64] but got: [4, 64].",
            "a batch of 8 matrices, and the second of 4",
            "a.mT @ b",
        ),
        (
            "total += w * loss",
            (),
            "RuntimeError: output with shape [1] doesn't match the broadcast shape [0]",
            "a tensor of shape [1] cannot take a result of shape [0]",
            "is empty",
        ),
        (
            "x.sub_(mean).div_(std)",
            (),
            "RuntimeError: output with shape [1, 28, 28] doesn't match the broadcast shape [3, 28, 28]",
            "a tensor of shape [1, 28, 28] cannot take",
            "convert('RGB')",
        ),
        (
            "out, h = self.rnn(x, h0)",
            (MODULE, RNN),
            "RuntimeError: Expected hidden[0] size (2, 256, 32), got [1, 256, 32]",
            "gets [1, 256, 32]: another layers x directions",
            "num_layers * directions",
        ),
        (
            "out, h = self.rnn(x, h0)",
            (MODULE, RNN),
            "RuntimeError: Expected hidden size (1, 64, 32), got [1, 17, 32]",
            "gets [1, 17, 32]: another batch",
            "drop_last=True",
        ),
        (
            "out, h = self.rnn(x)",
            (MODULE, RNN),
            "RuntimeError: input.size(-1) must be equal to input_size. Expected 6, got 4",
            "the RNN takes 6 features per step, and its input has 4",
            "x.shape[-1]",
        ),
        (
            "y = np.stack(parts, axis=0)",
            (STACK,),
            "ValueError: need at least one array to stack",
            "parts is empty (fit.py:7 in main)",
            "len(loader)",
        ),
        (
            "y = np.concatenate(all_y)",
            (),
            "ValueError: need at least one array to concatenate",
            "all_y is empty",
            "kept nothing",
        ),
        (
            "m = np.max(lens)",
            (),
            "ValueError: zero-size array to reduction operation maximum which has no identity",
            "lens is empty",
            "filter",
        ),
        (
            "trainer.train()",
            (TRL,),
            "ValueError: operands could not be broadcast together with shapes (900,2) (900,)",
            "the reward model probably does not return one score for each text: two arrays of shapes (900,2) and",
            "num_labels=1",
        ),
        (
            "d = left - right",
            (),
            "ValueError: operands could not be broadcast together with shapes (83,) (84,)",
            "two arrays of shapes (83,) and (84,) cannot be combined",
            "print(a.shape, b.shape)",
        ),
        (
            "y = net(x).view(n, -1)",
            (),
            "AttributeError: 'tuple' object has no attribute 'view'",
            "what a call returns is a tuple, and fit.py:7 in main reads its view",
            "model(x)[0]",
        ),
        (
            "y = out.logits",
            (),
            "AttributeError: 'tuple' object has no attribute 'logits'",
            "out is a tuple, and fit.py:7",
            "return_dict=False",
        ),
        (
            "y = h['user'][ids]",
            (),
            "TypeError: tuple indices must be integers or slices, not str",
            "h is a tuple, and fit.py:7 in main reads an item of it by name",
            "print(type(h), len(h))",
        ),
        (
            "y = batch['ids'].cuda()",
            (),
            "TypeError: list indices must be integers or slices, not str",
            "batch is a list, and fit.py:7 in main reads an item of it by name",
            "not collated",
        ),
        (
            "h = torch.zeros(n, m + 1)",
            (),
            'TypeError: can only concatenate str (not "int") to str',
            "m is a text, and fit.py:7 in main adds a number to it",
            "type=int",
        ),
        (
            "print('epoch ' + epoch)",
            (),
            'TypeError: can only concatenate str (not "int") to str',
            "a text and a value of type int are joined with +",
            "f-string",
        ),
        (
            "path = root + name",
            (),
            'TypeError: can only concatenate str (not "NoneType") to str',
            "a text and a value of type NoneType are joined with +",
            "that is not set",
        ),
        (
            "x = torch.zeros(n, width, d)",
            (),
            "TypeError: zeros(): argument 'size' failed to unpack the object at pos 2 "
            'with error "type must be tuple of ints,but got str"',
            "width is a text, and fit.py:7",
            "by name",
        ),
        (
            "i = self.header.index(col)",
            (),
            "ValueError: 'speed' is not in list",
            "self.header has no item 'speed'",
            "print(self.header)",
        ),
        ("i = CLASSES.index(label)", (), "ValueError: 7 is not in list", "CLASSES has no item 7", "spelling"),
        (
            "s = scalers[tid]",
            (),
            "KeyError: tensor(1)",
            "scalers is asked with a tensor, tensor(1)",
            "scalers[tid.item()]",
        ),
        (
            "x = pickle.load(open('a.pkl', 'wb'))",
            (),
            "io.UnsupportedOperation: read",
            "a file was opened to write only with mode 'wb', and is read",
            "has emptied it",
        ),
        (
            "f.write(text)",
            (),
            "io.UnsupportedOperation: not writable",
            "a file was opened to read only",
            "open(path, 'w')",
        ),
        (
            "x = pickle.load(open('a.pkl', 'r'))",
            (),
            "TypeError: a bytes-like object is required, not 'str'",
            "pickle needs a file in binary mode",
            "open(path, 'rb')",
        ),
        (
            "pickle.dump(x, open('a.pkl', 'w'))",
            (),
            "TypeError: write() argument must be str, not bytes",
            "pickle needs a file in binary mode",
            "open(path, 'wb')",
        ),
        (
            "ppl = math.exp(total_loss / n)",
            (),
            "OverflowError: math range error",
            "a loss is too large for a floating point number",
            "clip_grad_norm_",
        ),
        (
            "wait = base ** attempt",
            (),
            "OverflowError: (34, 'Numerical result out of range')",
            "a value is too large for a floating point number",
            "1.8e308",
        ),
        (
            "n = int(row.age)",
            (),
            "ValueError: cannot convert float NaN to integer",
            "a value is NaN, and fit.py:7",
            "empty cell",
        ),
        (
            "x = pickle.load(open('a.pkl', 'rb'))",
            (),
            "UnicodeDecodeError: 'ascii' codec can't decode byte 0xe4 in position 0: ordinal not in range(128)",
            "a file that is read as text (ascii) is not",
            "latin1",
        ),
        (
            "n = int(loss)",
            (),
            "ValueError: cannot convert float NaN to integer",
            "a loss is NaN, and fit.py:7",
            "diverged",
        ),
        (
            "h = df.time.dt.hour",
            (PANDAS,),
            "AttributeError: Can only use .dt accessor with datetimelike values. Did you mean: 'at'?",
            "does not hold datetimelike values, which .dt needs",
            "pd.to_datetime",
        ),
        (
            "s = df.name.str.lower()",
            (PANDAS,),
            "AttributeError: Can only use .str accessor with string values!",
            "does not hold string values",
            "dtype={'name': str}",
        ),
        (
            "x = torch.solve(b, a)",
            (LINALG,),
            "RuntimeError: This function was deprecated since version 1.9 and is now "
            "removed. `torch.solve` is deprecated in favor of `torch.linalg.solve`.",
            "torch.solve no longer exists: this torch has torch.linalg.solve instead",
            "help(torch.linalg.solve)",
        ),
    ],
)
def test_what_is_wrong_is_named(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert "Did you mean" not in text.partition(" | ")[2]


@pytest.mark.parametrize(
    ("code", "below", "error"),
    [
        ("names.push(1)", (), "AttributeError: 'tuple' object has no attribute 'push'"),
        ("call()", (MODULE,), "AttributeError: 'tuple' object has no attribute 'view'"),
        ("i = a.find(b)", (), "ValueError: 'x' is not in list"),
        ("n = big()", (), "OverflowError: math range error"),
        ("f.read()", (), "io.UnsupportedOperation: fileno"),
        ("x = load(f)", (), "TypeError: a bytes-like object is required, not 'str'"),
        ("d = table[key]", (), "KeyError: 'tensor(1)'"),
        ("y = a + b", (), "RuntimeError: this is a message about hidden sizes and shapes"),
    ],
)
def test_other_messages_mean_something_else(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    for words in ("hidden = lstm", "has no item", "too large", "was opened", "binary mode", "with a tensor", "RNN"):
        assert words not in f"{found} {text}", (found, text)


def test_pythons_guess_is_advice_only_for_a_name(tmp_path: Path) -> None:
    of_package = "AttributeError: The thing cannot be used here. Did you mean: 'at'?"
    of_name = "AttributeError: module 'numpy' has no attribute 'arrray'. Did you mean: 'array'?"
    for error, follows in ((of_package, False), (of_name, True)):
        text = explained(tmp_path, f"{frames((SCRIPT, 'main', 'run()'), PANDAS)}{error}\n")[2]
        assert ('"Did you mean' in text) is (follows and "Follow the error message" in text), text
