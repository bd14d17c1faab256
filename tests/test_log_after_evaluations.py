"""A GPU that is full after an evaluation, and steps that are counted without a bar of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log.counters import Announced, counter, progress
from mgpu.readers.log.last_words import last_work
from tests.test_log_meanings import SCRIPT, explained, traceback

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 216.00 MiB. GPU 0 has a total capacity of 31.75 GiB "
    "of which 143.75 MiB is free. Including non-PyTorch memory, this process has 31.61 GiB memory in use."
)
STEPS = "".join(f"it= {n:9}\t\tLoss/train:6.7e+00\tLR:1.0e-03\n" for n in range(900, 1020, 20))
TESTED = "it=      1000\t\tLoss/test:4.0e+00\n"


def in_forward(*files: str) -> str:
    return traceback(FULL, SCRIPT, *files).replace("in run", "in forward")


@pytest.mark.parametrize(
    "result", [TESTED, "Validation loss: 0.52\n", "test_acc = 0.91\n", "Test set accuracy: 91.2\n", "val/loss 0.4\n"]
)
def test_a_step_after_an_evaluation_names_what_that_left(result: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, STEPS + result + in_forward())
    assert "right after an evaluation" in title and "with torch.no_grad()" in words


@pytest.mark.parametrize(
    "text",
    [
        STEPS + in_forward(),  # no evaluation
        STEPS + TESTED + "it=      1020\t\tLoss/train:6.7e+00\n" + in_forward(),  # a step since then
        STEPS + "Epoch 3:  45%|████▌     | 45/100 [00:10<00:12, 4.5it/s, val_loss=0.52]\n" + in_forward(),  # of a bar
        STEPS + TESTED + in_forward("transformers"),  # Trainer evaluates without a graph
    ],
)
def test_other_steps_are_later_ones(text: str, tmp_path: Path) -> None:
    assert "in a later step" in explained(tmp_path, text)[1]


def test_an_evaluation_before_the_first_step_left_nothing_of_a_training(tmp_path: Path) -> None:
    assert last_work(TESTED.replace("1000", "0") + FULL) is None
    assert "in a later step" not in explained(tmp_path, TESTED.replace("1000", "0") + in_forward())[1]


def test_a_bar_without_blocks_counts_steps(tmp_path: Path) -> None:
    line = "loss=5.2 (6.9), lr=0.05: :  45% 45/100 [01:08<01:28,  1.61s/it]"
    assert (counter(line) or ("",))[1:] == (45.0, 100.0)
    assert progress(" 45% 450/1.00k [01:08<01:28,  1.61it/s]") is not None
    assert counter("45% 45/100 of the files [see 12]") is None and counter("12% 3/25 [done]") is None
    assert "in a later step" in explained(tmp_path, f"{line}\nreg: 0.1\n{in_forward()}")[1]
    announced = Announced()
    announced.take_bars(b"  0% 0/100 [00:00<?, ?it/s]\n  0% 0/100 [00:00<?, ?it/s]\n")
    assert announced.bars["", 100] == 2


def test_it_is_a_counter_only_with_its_sign() -> None:
    assert counter("it=       720\t\tLoss: 5.7") == ("it", 720.0, None)
    assert counter("I ran it 3 times") is None and counter("limit=5 split=7") is None
