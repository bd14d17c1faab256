"""Answers that say no more than the lines of a log prove: the same message of other programs.

The logs are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

CALL = ("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)")
SIZES = "RuntimeError: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}\n"
BERT = ("transformers/models/bert/modeling_bert.py", "forward", "scores = scores + mask")
ENGINE = ("deepspeed/runtime/engine.py", "forward", "loss = self.module(*inputs, **kwargs)")


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # An empty tensor is a parameter only in a run that partitions parameters.
        (frames((SCRIPT, "match", "iou = inter / (area_a[:, None] + area_b)")) + SIZES.format(0, 4, 1),
         "one of two tensors is empty: their sizes are 0 and 4 (fit.py:7 in match)", "without boxes", "GatheredParam"),
        (frames((SCRIPT, "step", "loss = engine(x)"), ENGINE) + SIZES.format(0, 4096, 1),
         "a parameter or gradient of size 0", "GatheredParameters", "without boxes"),
        # 256 channels are no maximum length.
        (frames((SCRIPT, "forward", "x = x + self.skip(y)")) + SIZES.format(256, 300, 1),
         "two tensors have different sizes: 256 and 300 in dimension 1", "residual", "tokenizer"),
        (SIZES.format(512, 640, 3), "two tensors have different sizes: 512 and 640", "shapes", "truncation=True"),
        (frames((SCRIPT, "step", "out = model(**batch)"), CALL, BERT) + SIZES.format(600, 512, 3),
         "longer than the model allows: 600 instead of 512", "max_length=512", "residual"),
    ],
)  # fmt: skip
def test_sizes(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in text, (shown, text)
