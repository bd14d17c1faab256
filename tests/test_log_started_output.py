"""A package reads a number from a child process, and something prints at the start of every Python or shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

MAIN = (SCRIPT, "main", "tracker.log({'curve': chart})")
MASK = ("wandb/sdk/artifacts/file_cache.py", "_umask", "return int(subprocess.check_output(command))")
NO_INT = "ValueError: invalid literal for int() with base 10: "
NO_FLOAT = "ValueError: could not convert string to float: "


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (MASK, NO_INT + r"b'Custom startup module ready\n18\n'", "Custom startup module ready"),
        (("tracker/node.py", "_count", "return int(out)"), NO_INT + r"b'welcome to gpu7\n4\n'", "welcome to gpu7"),
        (("tracker/node.py", "_mem", "return float(proc.stdout.strip())"), NO_FLOAT + r"'loading site hooks\n0.5'",
         "loading site hooks"),
        (("tracker/node.py", "_mem", "return float(getoutput(command))"), NO_FLOAT + r"'hello\nada\n0.5'", "hello"),
    ],
)  # fmt: skip
def test_text_that_is_printed_at_each_start(frame: tuple[str, str, str], error: str, text: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, frames(MAIN, frame) + error + "\n")
    assert (
        row == "log_exception"
        and text in title
        and "is probably printed at the start of every Python or shell" in title
    )
    for part in ("usercustomize", "sitecustomize", ".bashrc", "PYTHONNOUSERSITE=1", "python -c pass",
                 "python -c 'import usercustomize; print(usercustomize.__file__)'"):  # fmt: skip
        assert part in words, part
    assert "cut out the number" not in words


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (MASK, NO_INT + r"b'umask: not found\n'"),
        (MASK, NO_INT + "b''"),
        (MASK, NO_INT + r"b'18 bytes\n'"),
        (MASK, NO_INT + r"b'\n18x\n'"),
        # A file of the data, not a program's output.
        (("reader/core.py", "parse", "rows = [int(x) for x in cells]"), NO_INT + r"'width\n18'"),
        ((SCRIPT, "memory", "return int(subprocess.check_output(['nvidia-smi', '--query-gpu=memory.total']))"),
         NO_INT + r"b'memory.total [MiB]\n81559\n'"),
    ],
)  # fmt: skip
def test_other_texts_that_are_no_numbers(frame: tuple[str, str, str], error: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, frames(MAIN, frame) + error + "\n")
    assert "printed at the start" not in title and "PYTHONNOUSERSITE" not in words
