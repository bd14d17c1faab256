"""A message that comes again after the run went on: which line is the evidence?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.readers.log.gathered import Gathered
from mgpu.readers.log.repeated import with_last_failures
from mgpu.readers.log.survival import key_of
from mgpu.snapshot import Log, UncaughtException
from tests.checks import facts

SIGTERM = "*** SIGTERM received at time={time} on cpu 2 ***\n"
RAISED = 'Traceback (most recent call last):\n  File "train.py", line {line}, in main\n    x = batch["labels"]\n{error}'


def steps(first: int, last: int) -> str:
    return "".join(f"step {number}/9000 loss 0.{number}\n" for number in range(first, last))


def evidence(text: str, folder: Path) -> tuple[int, object, Log]:
    (folder / "x.log").write_text(text)
    log = read.read_logs([folder / "x.log"])
    cause = root_cause.find_cause(log, None).first
    assert cause is not None and cause.outcome.problem is not None and cause.outcome.problem.place is not None
    return cause.outcome.problem.place.line or 0, cause.outcome.problem.evidence.get("times"), log


@pytest.mark.parametrize(
    ("between", "line"),
    [
        (steps(300, 320), 42),  # the run went on, or another one began
        (steps(1, 30), 51),
        (steps(21, 25), 21),  # other ranks, until they wait for the one that failed
        ("another rank prints something\n" * 30, 21),
    ],
)
def test_a_signal(between: str, line: int, tmp_path: Path) -> None:
    text = steps(1, 21) + SIGTERM.format(time=1755406058) + between + SIGTERM.format(time=1755416551)
    at, times, _ = evidence(text, tmp_path)
    assert (at, times) == (line, 2)


@pytest.mark.parametrize(("number", "line"), [(40, 68), (4, 24)])
def test_an_exception(number: int, line: int, tmp_path: Path) -> None:
    raised = RAISED.format(line=7, error="KeyError: 'labels'\n")
    text = steps(1, 21) + raised + steps(21, 21 + number) + raised
    at, _, log = evidence(text, tmp_path)
    assert at == line
    assert [one.line for one in log.raised if not one.caught] == [at]


def test_the_values_of_the_last_one_are_shown(tmp_path: Path) -> None:
    full = "RuntimeError: [enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory: {} bytes.\n"
    raised = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    x = torch.zeros(n)\n'
    text = steps(1, 21) + raised + full.format(111 << 30) + steps(1, 31) + raised + full.format(222 << 30)
    (tmp_path / "x.log").write_text(text)
    log = read.read_logs([tmp_path / "x.log"])
    shown = root_cause.find_cause(log, None).first
    assert shown is not None and shown.outcome.problem is not None
    assert str(222 << 30) in str(shown.outcome.problem.evidence["line"])


def test_the_later_exception_keeps_the_rows_of_its_line() -> None:
    """Rows that match the line of code are added to the first occurrence after the whole log was read."""
    first = UncaughtException("ValueError", "x", "x.log", 9, place="train.py:4 in main", signatures=("row",))
    found = Gathered(raised_again={key_of(first): replace(first, line=99, signatures=())})
    (kept,) = with_last_failures(facts.log(raised=(first,)), found).raised
    assert (kept.line, kept.signatures) == (99, ("row",))
