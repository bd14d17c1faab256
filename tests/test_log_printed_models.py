"""Python prints a model with all its layers before what was wrong with its call: what ends it is the message."""

from __future__ import annotations

from pathlib import Path

from tests.test_log_contexts import RAISED, log_of, title_of

MODEL = """\
TypeError: Net(
  (body): Sequential(
    (0): Linear(in_features=8, out_features=8, bias=True)
    (layer-1): ReLU(
      inplace=True
    )
  )
"""


def error(layers: int, end: str) -> str:
    more = "".join(f"  ({number}): Linear(in_features=8, out_features=8, bias=True)\n" for number in range(layers))
    return f"{MODEL}{more}{end}"


def test_what_ends_a_printed_model_is_the_message(tmp_path: Path) -> None:
    text = RAISED.format(
        code="out = model(**batch)", error=error(60, ") argument after ** must be a mapping, not list")
    )
    (raised,) = log_of(text, tmp_path).raised
    assert raised.message == "Net(...) argument after ** must be a mapping, not list" and raised.more is None
    assert title_of(text, tmp_path).startswith("the line unpacks a list with **, where it needs a dict (train.py:41")


def test_other_output_ends_a_model_that_is_not_finished(tmp_path: Path) -> None:
    text = RAISED.format(code="out = model(**batch)", error=error(2, "step 3 done\n) argument after ** must be mine"))
    (raised,) = log_of(text, tmp_path).raised
    assert raised.message == "Net(" and "mine" not in raised.message
