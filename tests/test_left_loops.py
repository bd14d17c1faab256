"""Which rank has left a loop in which another still is? From the lines of their stacks, and the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.readers.sources import left_loops
from mgpu.snapshot import Hang, HangRank, LeftLoop, Snapshot, StackFrame

TRAIN = """\
def evaluate(model):
    for batch in valid:
        reduce(model(batch))

def train(model):
    for epoch in range(3):
        for batch in loader:
            model(batch)
            if loss < 0.1:
                break
        evaluate(model)
    else:
        barrier()
    save()

def main():
    train(Net())

for run in range(2):
    main()
barrier()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path / "train.py"


def stack(rank: int, script: Path, *places: tuple[str, int]) -> HangRank:
    """A rank with the frames of these functions, outermost first."""
    frames = [StackFrame(str(script), line, function) for function, line in places]
    inner = StackFrame("/v/site-packages/torch/distributed/distributed_c10d.py", 9, "barrier", library=True)
    return HangRank(rank, 4000 + rank, "sleeping", False, frames=(inner, *reversed(frames)), moved=False)


MAIN = (("<module>", 20), ("main", 17))


def test_a_rank_that_broke_out_of_the_inner_loop(script: Path) -> None:
    ranks = [
        stack(0, script, *MAIN, ("train", 8)),
        stack(1, script, *MAIN, ("train", 11), ("evaluate", 3)),
        stack(2, script, *MAIN, ("train", 8)),
    ]
    assert left_loops.find(ranks) == LeftLoop(str(script), 7, "for batch in loader:", (0, 2), (1,))


@pytest.mark.parametrize(("line", "loop"), [(13, 6), (14, 6)])
def test_the_outermost_loop_counts(script: Path, line: int, loop: int) -> None:
    found = left_loops.find([stack(0, script, *MAIN, ("train", 8)), stack(1, script, *MAIN, ("train", line))])
    assert found is not None and (found.line, found.inside, found.left) == (loop, (0,), (1,))


def test_a_loop_of_the_script_itself(script: Path) -> None:
    found = left_loops.find([stack(0, script, *MAIN, ("train", 8)), stack(1, script, ("<module>", 21))])
    assert found is not None and (found.line, found.left) == (19, (1,))


@pytest.mark.parametrize(
    "places",
    [
        ((("train", 8),), (("train", 8),)),  # the same line
        ((("train", 8),), (("train", 9),)),  # both in the loop
        ((("train", 8),), (("train", 5),)),  # one before it
        ((("train", 8),), (("evaluate", 3),)),  # in different functions
    ],
)
def test_no_loop_was_left(script: Path, places: tuple[tuple[tuple[str, int], ...], ...]) -> None:
    assert left_loops.find([stack(rank, script, *one) for rank, one in enumerate(places)]) is None


def test_a_source_that_cannot_be_read_has_no_loop(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("for x in\n")
    for file in (tmp_path / "train.py", tmp_path / "none.py"):
        assert left_loops.find([stack(0, file, ("f", 1)), stack(1, file, ("f", 2))]) is None


def test_a_finding_names_the_loop(script: Path) -> None:
    ranks = (stack(0, script, *MAIN, ("train", 8)), stack(1, script, *MAIN, ("train", 14)))
    hang = Hang(30.0, 1.0, ranks, 2, 2, left_loop=left_loops.find(ranks))
    (found,) = (one for one in engine.judge(Snapshot(hang=hang), selections.HANG) if one.problem)
    assert found.check.id == "hang_collectives_differ" and found.problem is not None
    assert "Rank 1 has left the loop at train.py:6 (for epoch in range(3)), and rank 0 is still" in found.problem.cause
