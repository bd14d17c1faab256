"""Does the rehearsal of a script name the fault, its rank and its line, and stay silent about a script that works?

Real ranks over gloo. Most are forked from one process that has imported torch; a few start through the real launcher.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.engine import Outcome, selections
from mgpu.snapshot import Rehearsal, Snapshot
from tests.rehearsal_scripts import FOLDER, Ranks

FAULTS = sorted((FOLDER / "faults").glob("*.py"))
HEALTHY = sorted((FOLDER / "healthy").glob("*.py"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    started = Ranks(tmp_path_factory.mktemp("ranks"))
    yield started
    started.end()


def judged(rehearsal: Rehearsal) -> list[Outcome]:
    """The findings, without the listing of files."""
    outcomes = engine.judge(Snapshot(rehearsal=rehearsal), selections.SMOKE)
    assert not [o for o in outcomes if o.status == "crash"]
    return [o for o in outcomes if o.problem and o.check.area == "rehearsal" and o.check.id != "files_outside"]


@pytest.mark.parametrize("script", FAULTS, ids=lambda path: path.stem)
def test_a_fault_is_named_with_its_line(ranks: Ranks, tmp_path: Path, script: Path) -> None:
    text = script.read_text()
    wanted, line = (ast.get_docstring(ast.parse(text)) or "").partition(":")[0], text.partition("# here")[0].count("\n")
    rehearsal = ranks.rehearse(script, tmp_path, 60.0)
    found = judged(rehearsal)
    roots = [o for o in found if not o.because_of]
    assert wanted in {o.check.id for o in roots}, (rehearsal.ended, [(o.check.id, o.problem) for o in found])
    if "# here" in text:
        problem = next(o.problem for o in roots if o.check.id == wanted)
        assert problem and problem.place, problem
        assert (Path(problem.place.file).name, problem.place.line) == (script.name, line + 1), problem
    others = {o.check.id for o in roots} - {wanted}
    assert not others, [(o.check.id, o.problem) for o in roots]


@pytest.mark.parametrize("script", HEALTHY, ids=lambda path: path.stem)
def test_a_script_that_works_has_no_finding(ranks: Ranks, tmp_path: Path, script: Path) -> None:
    rehearsal = ranks.rehearse(script, tmp_path, 60.0)
    found = [(o.check.id, o.problem) for o in judged(rehearsal)]
    assert not found, (rehearsal.ended, found)
    assert rehearsal.ended == "stopped" and rehearsal.steps == rehearsal.wanted
