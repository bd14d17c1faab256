"""Numbers in a log that no program counts to: int() refuses 4,301 digits, and a float holds 308."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.engine.outcome import Outcome
from mgpu.readers.log import read
from mgpu.readers.log.line import named_groups
from mgpu.snapshot import Snapshot

DIGITS = "9" * 5000
STEPS = "log_schedule_without_steps"
SCHEDULE = "ValueError: Expected positive integer total_steps, but got "


def outcomes(text: str, folder: Path) -> tuple[Outcome, ...]:
    (folder / "x.log").write_text(text + "\n")
    log = read.read_logs([folder / "x.log"])
    return engine.judge(Snapshot(log=log), selections.ENDED)


@pytest.mark.parametrize(
    ("count", "says"),
    [
        ("0", "the learning rate schedule got total_steps = 0"),
        ("-3", "the learning rate schedule got total_steps = -3"),
        ("1562.5", "total_steps = 1562.5, and takes a whole number"),
        ("1.5e+16", "total_steps = 1.5e+16, and takes a whole number"),
        ("1.2.3", "total_steps = 1.2, and takes a whole number"),
    ],
)
def test_a_number_of_steps(count: str, says: str, tmp_path: Path) -> None:
    found = [one.problem for one in outcomes(SCHEDULE + count, tmp_path) if one.check.id == STEPS]
    assert [says in one.title for one in found if one] == [True]


@pytest.mark.parametrize(
    "line",
    [
        f"{SCHEDULE}{DIGITS}",
        f"RuntimeError: The size of tensor a ({DIGITS}) must match the size of tensor b (3) "
        "at non-singleton dimension 1",
        f"RuntimeError: shape '[{DIGITS}, 2]' is invalid for input of size 7",
        f"RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x{DIGITS} and 4x5)",
        f"IndexError: index {DIGITS} is out of bounds for dimension 0 with size 4",
        f"ValueError: not enough values to unpack (expected {DIGITS}, got 2)",
        f"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: {DIGITS}, Hardware limit: 1",
        f"RuntimeError: CUDA error: driver version is insufficient for CUDA runtime version (found version {DIGITS})",
    ],
)
def test_no_check_crashes(line: str, tmp_path: Path) -> None:
    assert not [one for one in outcomes(line, tmp_path) if one.status == "crash"]


def test_a_group_has_as_many_digits_as_a_number_can_have() -> None:
    match = re.fullmatch(r"(?P<size>\d+) of (?P<id>\S+)", f"{DIGITS} of 0b3c1f2e-20260319093246050123")
    assert match is not None
    assert named_groups(match) == {"size": DIGITS[:40], "id": "0b3c1f2e-20260319093246050123"}


def test_a_line_number_that_no_file_has(tmp_path: Path) -> None:
    frame = (
        f'Traceback (most recent call last):\n  File "train.py", line {DIGITS}, in <module>\n    f()\nValueError: x\n'
    )
    (tmp_path / "x.log").write_text(frame * 2)
    assert {one.type for one in read.read_logs([tmp_path / "x.log"], last_run=True).raised} == {"ValueError"}


def test_a_whole_number_of_another_type(tmp_path: Path) -> None:
    whole, part = (
        next(one.problem for one in outcomes(SCHEDULE + count, tmp_path) if one.check.id == STEPS)
        for count in ("7", "7.0")
    )
    assert whole is not None and "numpy" in str(whole.cause) and whole.fixes[0].commands == ("int(total_steps)",)
    assert part is not None and "numpy" not in str(part.cause)
