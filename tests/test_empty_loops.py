"""Which loop did not run, and how many samples and batches had it? Read without calling the script's `__len__`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.check import Problem
from mgpu.engine import root_cause
from mgpu.hangs.hang_evidence import INJECTED
from mgpu.readers import recorded_values
from mgpu.readers.log import read
from mgpu.snapshot import EmptyLoop, EndedRank, LineValues, Run
from tests.conftest import Run as Command
from tests.conftest import environment
from tests.test_log_contexts import RAISED

FAILS = """\
import json, sys
import torch
from torch.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset,
    RandomSampler, Subset, TensorDataset)
import _mgpu_raised, _mgpu_values

class Blocks(Dataset):
    def __init__(self, ids, block):
        self.ids, self.block = ids, block
        self.rows = [ids[at:at + block] for at in range(0, len(ids) - block + 1, block)]
    def __len__(self):
        return len(self.rows)
class Windows(Blocks):
    def __len__(self):
        "How many starts?"
        return max(len(self.ids) - self.block, 0)
class Says(Blocks):
    def __len__(self):
        print("called")
        return 4
class Stream(IterableDataset):
    def __iter__(self): return iter([])
class Endless(DataLoader):
    def __iter__(self):
        while True: yield 1
class Adds(BatchSampler):
    pass

data, short = TensorDataset(torch.zeros(3, 2)), dict(batch_size=8, drop_last=True)
says = Says([1] * 9, 2)
LOADERS = [
    DataLoader(data, **short), DataLoader(data, batch_size=2, shuffle=True), DataLoader(Blocks([1] * 9, 20)),
    DataLoader(Windows([1] * 9, 4), batch_size=5), DataLoader(says, **short), DataLoader(Stream(), batch_size=2),
    Endless(data, **short), DataLoader(Subset(data, [0, 1]), batch_sampler=Adds(RandomSampler(data), 8, True)),
    DataLoader(data, sampler=DistributedSampler(data, 2, 0), **short), iter(DataLoader(data, **short)),
    DataLoader(ConcatDataset([data, data]), sampler=RandomSampler(data, num_samples=2, replacement=True)),
]
SETS = [data, Blocks([1] * 9, 20), Windows([1] * 9, 4), says, Subset(data, range(2))]

def unbound(loader=LOADERS[0]):
    for epoch in range(2):
        for batch in loader:
            loss = batch
        print(epoch, loss)
def empty(loader=LOADERS[2]):
    losses = []
    for step, batch in enumerate(loader):
        losses.append(batch)
    return torch.stack(losses)
def counted(loader=LOADERS[0]):
    n = total = 0
    for batch in loader:
        n += 1
    return total / n
def resumed(start=5, epochs=5):
    for epoch in range(start, epochs):
        result = epoch
    return result
def ran():
    for batch in [1, 2]:
        if batch > 2:
            loss = batch
    return loss
def also_elsewhere(loader=LOADERS[0], first=False):
    if first:
        loss = 1
    for batch in loader:
        loss = batch
    return loss
def passed(losses=[], loader=LOADERS[0]):
    for batch in loader:
        losses.append(batch)
    return torch.stack(losses)
def unknown(loader=LOADERS[4]):
    for batch in loader:
        loss = batch
    return loss
def other_reason(loader=LOADERS[0]):
    losses = []
    for batch in loader:
        losses.append(batch)
    raise ValueError("bad" if losses else "worse")

found = {}
for name in sys.argv[1:]:
    try:
        found[name] = None
        globals()[name]()
    except Exception as error:
        for line in _mgpu_raised._failed_lines(error, error.__traceback__.tb_next):
            if len(line) == 6:
                found[name] = [line[3], line[5]]
described = [_mgpu_values.describe(one, "x") for one in (*LOADERS, *SETS)]
print(json.dumps([found, described]))
"""
NO_BATCH = "DataLoader of 3 samples, batch_size 8, drop_last: no batch"
NONE = "DataLoader of 0 samples, batch_size 1: no batch"


def loop(line: int, over: str, fills: str) -> dict[str, Any]:
    return {"loop": line, "over": over, "fills": fills}


SEEN = {
    "unbound": [{"loader": NO_BATCH}, loop(42, "loader", "loss")],
    "empty": [{"losses": "an empty list", "loader": NONE}, loop(47, "enumerate(loader)", "losses")],
    "counted": [{"total": "0", "n": "0", "loader": NO_BATCH}, loop(52, "loader", "n")],
    "resumed": [{"start": "5", "epochs": "5"}, loop(56, "range(start, epochs)", "result")],
    "ran": None,
    "also_elsewhere": None,
    "passed": None,
    "unknown": None,
    "other_reason": None,
}
DESCRIBED = [
    NO_BATCH,
    "DataLoader of 3 samples, batch_size 2: 2 batches",
    NONE,
    "DataLoader of 5 samples, batch_size 5: 1 batch",
    "DataLoader, batch_size 8, drop_last",
    "DataLoader, batch_size 2",
    "DataLoader of 3 samples",
    "DataLoader of 2 samples",
    "DataLoader of 3 samples, batch_size 8, drop_last, 2 for this rank: no batch",
    NO_BATCH,
    "DataLoader of 6 samples, batch_size 1: 2 batches",
    "TensorDataset of 3 samples",
    "Blocks of 0 samples",
    "Windows of 5 samples",
    "",
    "Subset of 2 samples",
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11, a traceback does not know its expression")
def test_loops_and_loaders_without_items(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "fails.py").write_text(FAILS)
    done = subprocess.run(
        [sys.executable, "fails.py", *SEEN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(tmp_path, {"PYTHONPATH": str(INJECTED)}),
        timeout=60,
        check=True,
    )
    found, described = json.loads(done.stdout.splitlines()[-1])
    assert described == DESCRIBED
    assert found == SEEN


@pytest.mark.parametrize(
    "facts",
    [
        {"loop": "3", "over": "x", "fills": "y"},
        {"loop": 0, "over": "x", "fills": "y"},
        {"loop": 3, "over": "", "fills": "y"},
        {"loop": 3, "over": "x", "fills": "y z"},
        {"loop": 3},
    ],
)
def test_what_a_script_may_have_written_is_no_loop(facts: Any, tmp_path: Path) -> None:
    (tmp_path / "0.7.values").write_text(json.dumps([["/home/me/t.py", 3, "main", {}, "", facts]]))
    (line,) = recorded_values.read(tmp_path, 0, 7)
    assert line.empty_loop is None


def found(
    error: str, code: str, values: dict[str, str], over: EmptyLoop | None, folder: Path, line: int = 41
) -> Problem:
    """The first cause of an exception at train.py:41, where the names had these values."""
    (folder / "run.log").write_text(RAISED.format(code=code, error=error))
    log = read.read_logs([folder / "run.log"])
    recorded = (
        LineValues("/home/u/train.py", line, "main", values, None, None, over),
        LineValues("/home/u/train.py", 41, "main", {}),
    )
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
    first = root_cause.find_cause(log, run).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem


UNBOUND = "UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value"
ZERO = "ZeroDivisionError: division by zero"
FEWER = "loader has 3 samples, fewer than its batch_size of 8, and drop_last drops a batch that is not full."
RANDOM = "RuntimeError: random_ expects 'from' to be less than 'to', but got from=0 >= to=-28"


@pytest.mark.parametrize(
    ("error", "code", "values", "over", "title", "why"),
    [
        (
            UNBOUND,
            "print(loss)",
            {"loader": NO_BATCH},
            EmptyLoop(9, "loader", "loss"),
            "the loop over loader did not run once (train.py:9): loss has no value",
            FEWER,
        ),
        (
            ZERO,
            "x = sum(losses) / len(losses)",
            {"losses": "an empty list", "loader": NONE},
            EmptyLoop(9, "enumerate(loader)", "losses"),
            "the loop over enumerate(loader) did not run once (train.py:9): losses is empty",
            "The dataset of loader has no samples.",
        ),
        (
            UNBOUND,
            "print(loss)",
            {"start": "5", "epochs": "5"},
            EmptyLoop(9, "range(start, epochs)", "loss"),
            "the loop over range(start, epochs) did not run once (train.py:9): loss has no value",
            "The range has no number: start is 5; epochs is 5.",
        ),
        (
            UNBOUND,
            "print(loss)",
            {"rows": "an empty list"},
            EmptyLoop(9, "rows", "loss"),
            "the loop over rows did not run once (train.py:9): loss has no value",
            "rows is empty.",
        ),
        (
            ZERO,
            "return total / len(loader)",
            {"loader": "DataLoader of 9 samples, batch_size 8, drop_last, 5 for this rank: no batch"},
            None,
            "loader gives no batch (train.py:41 in main)",
            "loader has 9 samples, and gives this rank 5 samples, fewer than its batch_size of 8",
        ),
        (
            "StopIteration",
            "x = next(iter(loader))",
            {"loader": NO_BATCH},
            None,
            "loader gives no batch (train.py:41 in main)",
            FEWER,
        ),
        (
            "ValueError: Expected positive integer steps_per_epoch, but got 0",
            "s = OneCycleLR(opt, 0.1, epochs=2, steps_per_epoch=len(loader))",
            {"loader": NO_BATCH},
            None,
            "the learning rate schedule got steps_per_epoch = 0",
            FEWER,
        ),
        (
            "ValueError: num_samples should be a positive integer value, but got num_samples=0",
            "loader = DataLoader(rows, shuffle=True)",
            {"rows": "Blocks of 0 samples"},
            None,
            "rows has no samples (train.py:41 in main)",
            "",
        ),
        (
            RANDOM,
            "ix = torch.randint(len(data) - block_size, (4,))",
            {"data": "int64 [100] on cpu, from 0 to 9", "block_size": "128"},
            None,
            "data is not longer than block_size: 100 and 128 (train.py:41 in main)",
            "data has 100 items, and the line takes parts of block_size, 128 from it.",
        ),
    ],
)
def test_the_cause_names_what_has_no_items(
    error: str, code: str, values: dict[str, str], over: EmptyLoop | None, title: str, why: str, tmp_path: Path
) -> None:
    problem = found(error, code, values, over, tmp_path)
    assert problem.title == title and problem.cause.startswith(why)
    assert not found(error, code, {}, None, tmp_path).cause.startswith(why or "-")


@pytest.mark.parametrize(
    ("error", "code", "values", "line"),
    [
        ("RuntimeError: CUDA out of memory", "fit(model, loader)", {"loader": NO_BATCH}, 41),
        (ZERO, "return total / len(loader)", {"loader": NO_BATCH}, 40),  # a line that calls it
        (ZERO, "return total / len(loader)", {"loader": "DataLoader of 9 samples, batch_size 8: 2 batches"}, 41),
        (RANDOM, "x = randint(len(data) - block_size)", {"data": "list of 200", "block_size": "128"}, 41),
        ("ValueError: bad", "x = f(len(data) - block_size)", {"data": "list of 2", "block_size": "128"}, 41),
    ],
)
def test_values_of_something_else_add_nothing(
    error: str, code: str, values: dict[str, str], line: int, tmp_path: Path
) -> None:
    plain = found(error, code, {}, None, tmp_path)
    assert found(error, code, values, None, tmp_path, line).title == plain.title
    assert found(error, code, values, None, tmp_path, line).fixes == plain.fixes


TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
def evaluate(loader):
    for x, in loader:
        loss = x.sum()
    return loss.item()
evaluate(DataLoader(TensorDataset(torch.zeros(3, 8)), batch_size=8, drop_last=True))
"""


def test_a_launch_names_the_loader(mgpu: Command, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150)
    shown = " ".join(done.stderr.split())
    assert done.returncode == 1 and "the loop over loader did not run once (train.py:4): loss has no value" in shown, (
        shown
    )
    assert FEWER in shown and "DataLoader(..., batch_size=3)" in shown
