"""Divisions by a batch, by accumulation steps or by a number of ranks that is 0. All logs are written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import INSTALLED, SCRIPT, explained

PACKAGE = f"{INSTALLED}/verl/workers/critic.py"
CLONED = "/home/ada/rl/verl/workers/critic.py"
ROUNDED, OF_RANKS, PER_GPU = "divided and rounded down", "no GPU", "option for one GPU"
MODULO = "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("error", [MODULO, "ZeroDivisionError: integer modulo by zero"])
@pytest.mark.parametrize("file", [SCRIPT, PACKAGE, CLONED])
@pytest.mark.parametrize(
    ("code", "divisor", "words", "absent"),
    [
        ("assert self.config.ppo_mini_batch_size % self.config.ppo_micro_batch_size == 0",
         "self.config.ppo_micro_batch_size", ROUNDED, OF_RANKS),
        ("assert (cfg.batch % cfg.micro_bs == 0), 'no whole batches'", "cfg.micro_bs", ROUNDED, OF_RANKS),
        ("steps = rows // grad_accum_steps", "grad_accum_steps", ROUNDED, OF_RANKS),
        ("self.accumulation = batch // args.per_gpu_batch_size", "args.per_gpu_batch_size", ROUNDED, PER_GPU),
        ("n = args.batch_size // self.dp_size", "self.dp_size", "tensor, pipeline", PER_GPU),
        ("each = rows % num_gpus", "num_gpus", OF_RANKS, ROUNDED),
    ],
)  # fmt: skip
def test_a_setting_that_was_divided_by_the_ranks(
    code: str, divisor: str, words: str, absent: str, file: str, error: str, tmp_path: Path
) -> None:
    calls = frames((SCRIPT, "main", "trainer = Trainer(cfg)"), (file, "__init__", code))
    row, title, text = explained(tmp_path, f"{calls}{error}\n")
    assert row == "log_exception" and title.startswith(f"{divisor} is 0, and "), title
    assert words in text and absent not in text, text
    verl = file != SCRIPT and divisor.endswith("ppo_micro_batch_size")
    assert ("ppo_micro_batch_size_per_gpu=1  # verl" in text) == verl, text


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("mean = total / num_batches", "ZeroDivisionError: division by zero"),  # of the data
        ("epoch = step // steps_per_epoch", MODULO),
        ("mean = loss / self.batch_count", "ZeroDivisionError: float division by zero"),
        ("mean = total / len(batch_size)", "ZeroDivisionError: division by zero"),
        ("n = a // batch_size + b // micro_batch_size", MODULO),  # one of two
        ("n = rows // batch_size", "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'"),
    ],
)
def test_another_division(code: str, error: str, tmp_path: Path) -> None:
    title, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")[1:]
    assert ROUNDED not in text and OF_RANKS not in text, (title, text)


def test_the_side_that_python_underlines(tmp_path: Path) -> None:
    before, failed = "assert x % a_batch_size == 0 and ", "y % b_batch_size"
    code = f"{before}{failed} == 0\n    {' ' * len(before)}~~^~~~~~~~~~~~~~"
    title = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{MODULO}\n")[1]
    assert title.startswith("b_batch_size is 0"), title
