"""Logs that look like those of an answer and are not: the reviewers of these answers wrote most of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import several_runs
from tests.test_log_callers import frames
from tests.test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"
TRACEBACK = frames((SCRIPT, "main", "run()"), (SCRIPT, "run", "x = 1 / n")) + "ZeroDivisionError: division by zero\n"
TORCHSCRIPT = f'The original call is:\n  File "{SCRIPT}", line 12\n    def forward(self, x):\n        return x\n'
FAULTHANDLER = f'Current thread 0x1 (most recent call first):\n  File "{SCRIPT}", line 80 in <module>\n'


@pytest.mark.parametrize("after", [TORCHSCRIPT, FAULTHANDLER])
def test_a_place_without_a_function_is_no_other_run(after: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"epoch 1\n{TRACEBACK}{after}", "utf-8")
    assert several_runs.of_last_run(path, iter([path.read_bytes()]))[0] is None


LACKS = "AttributeError: '{}' object has no attribute '{}'\n"
TOO_LARGE = "IndexError: index 7 is out of bounds for dimension 0 with size 5\n"


@pytest.mark.parametrize(
    ("code", "error", "title", "not_in"),
    [
        (
            "d = load_dataset('a').append(x)",
            LACKS.format("DatasetDict", "append"),
            "a DatasetDict has no append",
            "add_item",
        ),
        ("d = load_dataset('a').head()", LACKS.format("IterableDataset", "head"), "", "select("),
        ("n = features[0]['input_ids'].shape[0]", LACKS.format("list", "shape"), "", "features.set_format"),
        ("v = x[0][idx]", TOO_LARGE, "an index is too large: 7, but the dimension has 5", "x[0]"),
        ("v = model(batch[0])[i]", TOO_LARGE, "an index is too large: 7, but the dimension has 5", "batch[0]"),
        ("y = use(self.trainer.optimizer.scaler.scale(loss))", LACKS.format("NoneType", "scale"), "", "before train()"),
    ],
)
def test_what_the_line_does_not_show_is_not_named(
    code: str, error: str, title: str, not_in: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, frames((SCRIPT, "main", code)) + error)
    assert found.startswith(title) and not_in not in f"{found} {words.replace(code, '')}", (found, words)


def test_a_script_named_by_a_date_is_no_cell(tmp_path: Path) -> None:
    text = frames(("/w/20240115.py", "main", "use(rows)")) + "NameError: name 'rows' is not defined\n"
    assert "kernel" not in " ".join(explained(tmp_path, text))
