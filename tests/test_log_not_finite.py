"""A loss that is NaN until the end of a log, in formats of people's own: mgpu names it, and no other NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

ALWAYS = {
    "no colon": "epoch {n} loss={loss} acc=0.1\n",
    "capital": "Epoch [{n}/90], Loss: {loss}, lr 0.001\n",
    "no space": "[epoch {n}] train_loss:{loss} time:1.2s\n",
    "tensor": "step {n}: loss tensor({loss}, device='cuda:0')\n",
    "table": "{n}/90   Avg loss  {loss}   0.0010\n",
    "assigned": "iter {n} Total Loss = {loss}\n",
    "json": '{{"epoch": {n}, "train_loss": {loss}, "seconds": 3.1}}\n',
    "validated": "epoch {n} train loss: {loss} val loss: 0.69\n",
    "cost": "Epoch {n}: cost {loss}\n",
}


def first_cause(tmp_path: Path, text: str) -> tuple[str | None, str]:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    return (first.id, first.outcome.problem.title) if first and first.outcome.problem else (None, "")


def steps(form: str, *values: str) -> str:
    return "".join(form.format(n=n, loss=value) for n, value in enumerate(values, 1))


@pytest.mark.parametrize("form", ALWAYS.values(), ids=ALWAYS)
@pytest.mark.parametrize("end", ["", "Training finished.\n"], ids=["open", "ended"])
def test_a_loss_that_stays_nan(form: str, end: str, tmp_path: Path) -> None:
    found, title = first_cause(tmp_path, steps(form, "0.71", "0.52", "nan", "nan", "nan", "nan") + end)
    assert found in ("log_loss_stays_nan", "log_loss_is_nan"), found
    assert found == "log_loss_is_nan" or "the last 4 times" in title


def test_a_loss_that_was_always_nan(tmp_path: Path) -> None:
    found, title = first_cause(tmp_path, steps(ALWAYS["capital"], *["nan"] * 5))
    assert found == "log_loss_stays_nan"
    assert "from the start" in title


@pytest.mark.parametrize(
    "text",
    [
        steps(ALWAYS["capital"], "0.71", "nan", "nan", "nan", "0.52"),  # it recovered
        steps(ALWAYS["capital"], "0.71", "0.6", "0.5", "nan"),  # one batch
        steps("epoch {n} train loss: 0.41 val loss: {loss}\n", *["nan"] * 6),  # no validation data
        steps("epoch {n} loss: 0.41 aux_loss: {loss}\n", *["nan"] * 6),
        steps("epoch {n} mIoU: {loss} AP small nan\n", *["nan"] * 6),
        "loss nan guard: on\n" * 6,
        steps(ALWAYS["capital"], *["nan"] * 6) + "second run\n" + steps(ALWAYS["capital"], "0.6", "0.5", "0.4"),
    ],
    ids=["recovered", "one", "validation", "part", "metric", "guard", "later run"],
)
def test_other_nans(text: str, tmp_path: Path) -> None:
    assert first_cause(tmp_path, text)[0] is None


def test_an_exception_after_it_is_the_cause(tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\nValueError: bad\n'
    assert first_cause(tmp_path, steps(ALWAYS["capital"], *["nan"] * 6) + raised)[0] != "log_loss_stays_nan"


STOPPED = 'Traceback (most recent call last):\n  File "/w/fit.py", line 31, in <module>\n    fit()\nKeyboardInterrupt\n'
OF_MODEL = "NaN detected after softmax\nNaN detected in block output\nNaN detected in logits\n"
OF_LAYERS = "[layer 0] NaN found in hidden states\n[layer 1] NaN found in hidden states\n[layer 2] NaN found in mlp\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("params: 3M\n" + OF_MODEL + STOPPED, 'first "NaN detected after softmax"'),
        (steps(ALWAYS["capital"], "0.7") + OF_LAYERS + "Training interrupted by user\n", "3 lines"),
        (steps("step {n} loss: {loss}\n", "2.1", *["nan"] * 4) + STOPPED, "from line 2 on"),
        (steps(ALWAYS["cost"], *["nan"] * 4) + "KeyboardInterrupt received, saving\n", "from the start"),
    ],
    ids=["of a model", "of layers", "loss", "always"],
)
def test_a_user_who_stops_a_run_with_nan(text: str, title: str, tmp_path: Path) -> None:
    found, shown = first_cause(tmp_path, text)
    assert found == "log_nan_until_stopped"
    assert title in shown


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("NaN detected in logits (rank: 0)", "the model computes NaN"),
        ("NaN detected in block output on cuda:0", "the model computes NaN"),
        ("nan found in loss at batch 12", "the model computes NaN"),
        ("NaN detected in masked scores", "the program reports NaN"),
        ("NaN detected at iteration 3", "the program reports NaN"),
    ],
)
def test_what_has_nan(line: str, title: str, tmp_path: Path) -> None:
    found, shown = first_cause(tmp_path, f"{line}\n" * 4 + STOPPED)
    assert found == "log_nan_until_stopped" and title in shown, shown


@pytest.mark.parametrize(
    "text",
    [
        steps(ALWAYS["capital"], "0.7", "nan", "nan", "nan", "0.5"),  # it recovered
        steps(ALWAYS["capital"], "0.7", "0.6", "nan"),  # one
        "NaN found in column age, filling with the mean\n" * 4 + "epoch 1\n",
        "NaN detected in loss, skipping batch\n" * 4,
        OF_MODEL + steps(ALWAYS["capital"], "0.7", "0.6"),  # before good steps
        OF_MODEL + "reading\n" * 200,
        "model.fc has nan: False\n" * 4,
        "NaN detected in weights: False\n" * 4,
        "NaNs found in scores = 0\n" * 4,
        "WARNING: NaN detected in rewards, masked out of the mean\n" * 4,
        "nan values detected in logits, applying nan_to_num\n" * 4,
        "NaN found in scans/case_7.npy\n" * 4,
        "NaN detected in labels\n" * 4,
        "volume_3.npy contains NaN\n" * 4,
    ],
    ids=[
        "recovered",
        "one",
        "column",
        "skipped",
        "before",
        "long-before",
        "none",
        "False",
        "0",
        "masked",
        "replaced",
        "file",
        "labels",
        "tile",
    ],
)
def test_a_user_who_stops_another_run(text: str, tmp_path: Path) -> None:
    assert first_cause(tmp_path, text + STOPPED)[0] == "log_interrupted"


ASSERTED = (
    "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: block: [0,0,0], thread: "
    "[0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\n"
)
REFUSED = "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0\n"
GOOD, BAD = "{'loss': 0.21, 'grad_norm': 0.4, 'epoch': 0.1}\n", "{'loss': 0.2, 'grad_norm': nan, 'epoch': 0.2}\n"


@pytest.mark.parametrize(
    ("text", "after_step"),
    [
        (GOOD + BAD + ASSERTED, True),
        (GOOD + ASSERTED + BAD, True),  # printed by another process, a little later
        ("step 9 | train loss nan | lr 1e-05\n" + REFUSED, True),
        (BAD + GOOD + GOOD + ASSERTED, False),  # fp16 found its scale
        (GOOD + BAD.replace("nan", "inf") + ASSERTED, False),  # a gradient scaler skips such a step
        (GOOD + ASSERTED, False),
        (REFUSED, False),
    ],
    ids=["assertion", "later", "loss", "recovered", "infinite", "good", "alone"],
)
def test_sampling_after_a_step_with_nan(text: str, after_step: bool, tmp_path: Path) -> None:
    assert ("after a training step with NaN" in first_cause(tmp_path, text)[1]) == after_step
