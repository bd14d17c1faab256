"""What gave no result, and what does a message of torch, numpy or Python mean in each of the lines that print it?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

NONE = "AttributeError: 'NoneType' object has no attribute "
SCALAR = "TypeError: only integer scalar arrays can be converted to a scalar index"
CLASS = "TypeError: 'type' object is not subscriptable"
SAMPLES = "ValueError: Found input variables with inconsistent numbers of samples: [100, 98]"
BOOLS = "RuntimeError: Subtraction, the `-` operator, with two bool tensors is not supported."
MASK = "RuntimeError: masked_fill_ only supports boolean masks, but got mask with dtype int"
SKLEARN = ("sklearn/utils/validation.py", "check_consistent_length", "raise ValueError(")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words", "never"),
    [
        (
            "n = p.grad.norm()",
            (),
            f"{NONE}'norm'",
            "p.grad is None: no gradient was computed for p",
            "is_leaf",
            "rank 0",
        ),
        ("n = net.grad_norm.item()", (), f"{NONE}'item'", "net.grad_norm is None", "grep", "is_leaf"),
        (
            "h, w = img.shape[:2]",
            (),
            f"{NONE}'shape'",
            "probably an image or a frame that could not",
            "imread",
            "rank 0",
        ),
        ("h, w = table.shape", (), f"{NONE}'shape'", "table is None", "grep", "imread"),
        ("m = re.match(p, s).group(1)", (), f"{NONE}'group'", "a pattern was not found", "repr(text)", "rank 0"),
        ("make_timer().start()", (), f"{NONE}'start'", "make_timer() returned None", "return", "pattern"),
        (
            "names.append(files[idx])",
            (),
            SCALAR,
            "an array with several values is used",
            "np.asarray",
            "a list of them",
        ),
        ("x = np.concatenate(files[idx])", (), SCALAR, "an array with several values is used", "np.asarray", "axis"),
        ("x = files[idx]", (), SCALAR, "an array with several values is used as one index", "np.asarray", "axis"),
        (
            "x = np.concatenate(a, b)",
            (),
            SCALAR,
            "arrays are passed to concatenate() one by one",
            "np.concatenate([a, b])",
            "np.asarray",
        ),
        ("x = Net[3]", (), CLASS, "takes an item of the class Net itself", "Make an object", "newer Python"),
        ("def run(x: list[int]):", (), CLASS, "probably needs a newer Python", "annotations", "Make an object"),
        ("x: Queue[int] = q", (), CLASS, "probably needs a newer Python", "annotations", "Make an object"),
        ("d = a - b", (), BOOLS, "two bool tensors in a subtraction", "a ^ b", "mask.bool()"),
        ("x = x.masked_fill(m, 0)", (), MASK, "the mask of masked_fill() has the type int", "mask.bool()", "a ^ b"),
        (
            "s = f1_score(y, p)",
            (SKLEARN,),
            SAMPLES,
            "scikit-learn got inputs with different numbers",
            "np.shape",
            "gather",
        ),
        ("s = metric.compute()", (), SAMPLES, "the metric got predictions and references", "gather", "np.shape"),
    ],
)
def test_each_line_gets_its_own_reason(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)
