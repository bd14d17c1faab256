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
