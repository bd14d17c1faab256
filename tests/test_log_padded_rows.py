"""Rows of a terminal that were copied with the spaces up to the border of its window. All logs are written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import padded_rows, read
from tests.test_log_callers import frames
from tests.test_log_meanings import explained

ERROR = (
    "ValueError: The global train batch size (2 x 3) must be evenly divisible by the number of generations per prompt "
    "(8). Given the current train batch size, the valid values for the number of generations are: [2, 3, 6].\n"
)
TRAINER = "trl/trainer/grpo_trainer.py"
LOG = frames(("/home/ada/project/experiments/first/train_policy.py", "<module>", "trainer = GRPOTrainer("),
             (TRAINER, "__init__", "raise ValueError(")) + ERROR  # fmt: skip
# Columns that a program aligns itself.
RICH = "".join(
    f"[10:12:{at}] INFO     {said:<80}train.py:{at}\n"
    for at, said in ((11, "Loading the model"), (12, "Loading the dataset from the disk"), (13, "ready"))
)
TABLE = "".join(f"| {name:<60} | {value:>20} |\n" for name, value in (("loss", 1.5), ("norm", 2)))


def padded(text: str, width: int, window: int) -> str:
    """The text as a terminal of this width shows it, copied from a window of that width."""
    lines = []
    for line in text.splitlines():
        rows = [line[at : at + width] for at in range(0, max(1, len(line)), width)]
        lines.append("".join((*(row.rstrip().ljust(window) for row in rows[:-1]), rows[-1])))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("window", [130, 165, 201])
@pytest.mark.parametrize("width", range(62, 100))
def test_rows_are_joined(width: int, window: int, tmp_path: Path) -> None:
    text = padded(LOG, width, window)
    row, title, words = explained(tmp_path, text)
    assert row == "log_generations_do_not_divide" and " " * 9 not in title + words, title
    log = read.read_logs([tmp_path / "run.log"])
    assert [one.packages for one in log.raised] == [("", "trl")] and log.lines == LOG.count("\n")
    assert log.raised[0].place == "train_policy.py:7"


def test_one_row_only_is_joined_in_both_ways(tmp_path: Path) -> None:
    for width in (70, 72, 75, 76):  # within a word, and at its end
        row = explained(tmp_path, padded(ERROR[:120], width, 160))[0]
        assert row == "log_generations_do_not_divide", width


@pytest.mark.parametrize("text", [RICH, TABLE, RICH + ERROR, TABLE + LOG, LOG, f"{RICH}{LOG}{TABLE}", ""])
def test_columns_of_a_program_stay_as_they_are(text: str) -> None:
    assert padded_rows.unpadded(text.encode(), lambda line: True) == text.encode()


def test_a_path_has_no_run_of_spaces(tmp_path: Path) -> None:
    """Rows of several widths are not joined, but the package of a path that is cut in two is not the first part."""
    cut = LOG.replace("site-packages/trl", f"site-packages/tr{' ' * 40}l")
    for text in (cut, f"{'x' * 300}\n{cut}"):
        path = tmp_path / "run.log"
        path.write_text(text)
        assert [one.packages for one in read.read_logs([path]).raised] == [("", "trl")]
