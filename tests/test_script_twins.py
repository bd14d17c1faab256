"""Is the fault of each small bad script found, at its line and nothing else, and nothing in its repaired twin?"""

from __future__ import annotations

import ast
import time

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.snapshot import Script, Snapshot
from tests.bad_scripts import Pair, pairs, read
from tests.conftest import CHECKS

ASKED = [check for check in CHECKS.values() if check.facts == ("script",)]


def found(script: Script) -> set[tuple[str, int | None]]:
    answers = [
        (check.id, outcome.answer) for check in ASKED for outcome in engine.run_check(check, Snapshot(script=script))
    ]
    assert all(type(answer).__name__ != "Crash" for _, answer in answers), answers
    return {(name, a.place.line if a.place else None) for name, a in answers if isinstance(a, Problem)}


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.name)
def test_the_fault_and_nothing_else(pair: Pair) -> None:
    assert pair.expected, "no line of the bad script bears a mark"
    assert found(read(pair.bad)) == pair.expected
    assert found(read(pair.good)) == set()


def test_there_are_enough_and_all_of_them_are_scripts() -> None:
    assert len(pairs()) >= 30 and len({pair.name for pair in pairs()}) == len(pairs())
    for pair in pairs():
        for text in (pair.bad, pair.good):
            assert len(ast.parse(text).body) > 3


def test_a_large_script_is_judged_soon() -> None:
    """A check that looks through all calls for each of them takes minutes here."""
    body = "".join(f"    model_{n}.save_pretrained('out')\n    data_{n}.map(open('x_{n}', 'w'))\n" for n in range(20))
    functions = "".join(f"def step_{n}(loader):\n{body}" for n in range(60))
    used = "".join(f"    step_{n}(loader)\n" for n in range(60))
    script = read(f"from accelerate import Accelerator\naccelerator = Accelerator()\n{functions}while True:\n{used}")
    assert len(script.calls) > 3000
    began = time.monotonic()
    found(script)
    assert time.monotonic() - began < 20
