"""Did the inputs of the first step with NaN have it already? Seen in the rank, and said by the first cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.hangs.hang_evidence import INJECTED, RECORDED
from mgpu.launch import rank_facts
from mgpu.readers.log import read
from mgpu.recorder.inject._mgpu_recorder import FOLDER
from mgpu.snapshot import EndedRank, NotFinite, Run
from tests.conftest import PYTHONPATH, environment
from tests.test_log_contexts import RAISED

# Each case trains some steps; the value of step 3 is NaN.
TRAIN = """\
import sys, torch
NAN = float("nan")
model, weight = torch.nn.Linear(4, 1), torch.nn.Parameter(torch.ones(1))
unused = torch.full((9,), NAN)  # a result that is not there yet

def batches():
    for step in range(1, 5):
        x, y = torch.ones(2, 4), torch.ones(2, 1)
        if step == 3:
            x[1, 2] = NAN
        yield {"x": x, "y": y}

def loop():
    for batch in batches():
        torch.nn.functional.mse_loss(model(batch["x"]), batch["y"]).backward()

def function(batch):
    x = batch["x"] - 1
    loss = model(x).sum()
    loss.backward()

def functions():
    for batch in batches():
        function(batch)

def keywords():
    for batch in batches():
        (model(input=batch["x"]) * batch["y"]).sum().backward()

def raised():
    for batch in batches():
        loss = model(batch["x"]).sum()
        assert torch.isfinite(loss)

def parameters():
    for batch in batches():
        x = batch["y"] * weight
        if torch.isnan(batch["x"]).any():
            x = x / 0 * 0
        print(unused[0], end="")
        model(x.expand(2, 4)).sum().backward()

def masks():
    for batch in batches():
        scores = torch.full((2, 4), float("-inf")).softmax(1)
        mask = torch.full((2, 4), float("-inf"))
        model(torch.relu(mask)).sum().mul(scores.sum()).backward()

globals()[sys.argv[1]]()
"""
CASES = {
    "loop": ["batch['x'] (train.py:15), 1 of 8 values"],
    "function": ["x (train.py:19), 1 of 8 values"],
    "keywords": ["batch['x'] (train.py:28), 1 of 8 values"],
    "raised": ["batch['x'] (train.py:32), 1 of 8 values"],
    "parameters": [],  # the NaN comes from a parameter
    "masks": [],  # and from a softmax
}


@pytest.mark.parametrize("case", CASES)
def test_the_inputs_that_had_it(case: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / RECORDED).mkdir()
    paths = f"{INJECTED}{os.pathsep}{PYTHONPATH}"
    more = {"PYTHONPATH": paths, FOLDER: str(tmp_path / RECORDED), "RANK": "1", "MGPU_DEBUG": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", "functions" if case == "function" else case], env=environment(tmp_path, more),
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == (case == "raised") and "_mgpu" not in done.stderr, done.stderr
    (found,) = rank_facts.not_finite(tmp_path) or ()
    assert [*found.inputs] == CASES[case]
    assert (found.what, found.value) == (("checked value", "not finite") if case == "raised" else ("loss", "nan"))


@pytest.mark.parametrize(
    "inputs",
    [None, 3, "x", [3], [["x"]], [["x", 1, 8, "t.py", "9"]], [["x", -1, 8, "t.py", 9]], [["x", True, 8, "t.py", 9]]],
)
def test_a_damaged_file_names_no_inputs(inputs: object, tmp_path: Path) -> None:
    (tmp_path / RECORDED).mkdir()
    content = {"what": "loss", "value": "nan", "step": 3, "at": 1.0, "frames": [], "inputs": inputs}
    (tmp_path / RECORDED / "1.7.nan").write_text(json.dumps(content))
    assert [one.inputs for one in rank_facts.not_finite(tmp_path) or ()] == [()]


SAID = "the inputs of that step have NaN already: x (train.py:14), 1 of 32 values."


@pytest.mark.parametrize(
    ("code", "error", "inputs", "says"),
    [
        ('assert torch.isfinite(loss), "bad"', "AssertionError: bad", True, True),
        ("raise ValueError(text)", "ValueError: the loss is NaN in step 5", True, True),
        ("assert torch.isfinite(loss)", "AssertionError", False, False),
        ("open(path)", "FileNotFoundError: [Errno 2] No such file or directory: 'nano.json'", True, False),
    ],
)
def test_the_first_cause_says_it(code: str, error: str, inputs: bool, says: bool, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(RAISED.format(code=code, error=error))
    first = NotFinite(1, "loss", "nan", 5, 1.0, inputs=("x (train.py:14), 1 of 32 values",) if inputs else ())
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True),), expected=2, not_finite=(first, replace(first, rank=0)))
    found = root_cause.find_cause(read.read_logs([tmp_path / "run.log"]), run).first
    assert found is not None and found.outcome.problem is not None
    problem = found.outcome.problem
    assert (SAID in problem.cause) == says
    assert problem.fixes[0].text.startswith("Repair or leave out these samples") == says


LOCALS = """\
import sys, torch
sys.path.insert(0, sys.argv[1])
import _mgpu_inputs

def step(x, *, asks):
    mine = locals() if asks else {}
    out = torch.nn.functional.relu(x)
    assert _mgpu_inputs.with_nan(sys._getframe())
    kept = sys.getrefcount(x)
    return mine, kept

x = torch.full((2,), float("nan"))
mine, _ = step(x, asks=True)
assert mine["x"] is x and mine["asks"] is True, mine
_, kept = step(x, asks=False)
assert kept <= 4, kept  # this one, the caller's, the argument's: no copy of the variables
"""


def test_what_the_script_got_of_locals_stays(tmp_path: Path) -> None:
    """Before Python 3.13, a frame has one copy of its variables, which `locals()` returns too."""
    (tmp_path / "train.py").write_text(LOCALS)
    subprocess.run([sys.executable, tmp_path / "train.py", str(INJECTED)], env=environment(tmp_path), check=True)
