"""Does a problem have its cause and fix from the docstring of its check, and does `given` keep a check from asking?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from mgpu import engine
from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Plan, Snapshot
from tests.conftest import CHECKS, ROOT


def several_nodes(plan: Plan) -> Skip | None:
    return Skip("one node") if plan.nodes < 2 else None


@check(Severity.ERROR, source="https://example.org", given=several_nodes)
def nodes_are_purple(plan: Plan, env: Mapping[str, str]) -> Answer:
    """The nodes are purple.

    Why: nobody
    paints them.
    More: This is for the catalogue.

    Fix: paint them.
    More: Or sell them.
    """
    if "OWN" in env:
        return Problem("purple", "Own cause.", (Fix("Own fix."), Fix(commands=("paint",))))
    return Problem("purple", evidence={"nodes": plan.nodes}) if "BAD" in env else Ok("green")


def answer(nodes: int, *names: str) -> object:
    (outcome,) = engine.run_check(nodes_are_purple, Snapshot(plan=Plan(nodes=nodes), env=dict.fromkeys(names, "1")))
    return outcome.answer


def test_why_and_fix_are_the_defaults_up_to_more() -> None:
    assert answer(2, "BAD") == Problem("purple", "Nobody paints them.", Fix("Paint them."), {"nodes": 2})


def test_what_a_check_says_itself_stays() -> None:
    fixes = (Fix("Own fix."), Fix("Paint them.", ("paint",)))
    assert answer(2, "OWN") == Problem("purple", "Own cause.", fixes)


def test_given_answers_before_the_check_does() -> None:
    assert answer(1, "BAD") == Skip("one node")
    assert answer(2) == Ok("green")


def test_the_documentation_has_what_is_more_without_the_word() -> None:
    assert nodes_are_purple.doc.split("\n\n")[1:] == [
        "Why: Nobody\npaints them.\nThis is for the catalogue.",
        "Fix: Paint them.\nOr sell them.",
    ]


def test_an_interpreter_that_drops_docstrings_has_the_same_texts() -> None:
    code = "from mgpu import engine; print(*[c.doc for c in engine.load(only=('gpu',))], sep='\\n')"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.check_output([sys.executable, "-OO", "-c", code], cwd=ROOT, env=env, text=True)
    assert told == "".join(f"{check.doc}\n" for check in CHECKS.values() if check.area == "gpu")
