"""What the names on a failed line stood for: never a text's content, and without the script's code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.hangs.hang_evidence import INJECTED
from mgpu.readers import recorded_values
from mgpu.recorder.inject import _mgpu_values
from mgpu.recorder.inject._mgpu_recorder import FOLDER
from mgpu.report import failed_values, failure
from mgpu.report.screen import Screen
from mgpu.snapshot import EndedRank, LineValues
from tests.conftest import Run as Command
from tests.conftest import environment
from tests.scripts import write_config

# Each function fails in its last line. What runs code of the script is seen in CALLED.
FAILS = '''\
import argparse, collections, sys
import torch
from torch import nn

CALLED, FAILED = [], 1

class Says(dict):
    """A class whose every method would be seen."""
    def __getattr__(self, name): print("called", name); raise AttributeError(name)
    def __repr__(self): CALLED.append("repr"); return "SECRET"
    def __len__(self): CALLED.append("len"); return 3
    def __iter__(self): CALLED.append("iter"); return iter(())
    def __getitem__(self, key): CALLED.append("item"); return 1
    @property
    def size(self): CALLED.append("size"); return 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.body = nn.Linear(8, 4), nn.Sequential(nn.Linear(4, 4).half())
    def forward(self, x):
        return self.fc(
            x)

def layer():
    model, batch = Net(), {"pixels": torch.zeros(2, 9), "labels": None}
    model(batch["pixels"])

def key():
    batch = {"pixels": torch.zeros(2), "input_ids": 1}
    return batch["labels"].to("cpu")

def none():
    optimizer, args = None, argparse.Namespace(api_key=271828, lr=0.5, data="/home/me/of all SECRET", steps=10)
    optimizer.step(args.lr)

def numbers():
    args = argparse.Namespace(api_key=271828, lr=0.5, data="/home/me/data", steps=10)
    return [1][args.steps + args.api_key + len(args.data)]

def containers():
    a, b, c = [torch.ones(2), "SECRET", 3, 4], {"SECRET words": 1}, collections.UserDict(ids=torch.ones(1).int())
    return a[0] + torch.zeros(3) + len(b) + c["ids"]

def quiet():
    said, other = Says(a=1), torch.zeros(3).size
    return said.size + said["a"] + other + None

def modules():
    net = Net()
    return torch.cat([net.body, net.fc.weight], "SECRET")

def wrapped():
    x = torch.zeros(4, 5)
    return nn.functional.linear(x, torch.zeros(3, 3))

def checked():
    limit, rows = 3, [torch.zeros(5, 2)]
    for row in rows:
        if row.shape[0] > limit and not isinstance(rows, tuple):
            raise ValueError("too long: " + "SECRET")

def nested():
    net = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Embedding(5, 2)), nn.ReLU())
    ids = torch.tensor([[1, 7]])
    net(ids)

def inline():
    net, labels = nn.Linear(3, 2), torch.tensor([0, 4])
    nn.functional.cross_entropy(net(torch.zeros(2, 3)), labels)

def table():
    ids = torch.tensor([9])
    nn.functional.embedding(ids, torch.zeros(5, 2))

def misnamed():
    loader, optimizer = torch.optim.SGD([torch.zeros(1)]), torch.utils.data.DataLoader([1])
    return [1][loader + optimizer]

def samples():
    source = "def forward(input_ids, labels):\\n  loss(zeros, labels.flatten())"
    package = {"zeros": torch.zeros(3, 2), "loss": nn.functional.cross_entropy}
    exec(compile(source, "/v/site-packages/transformers/m.py", "exec"), package)
    ids, y = torch.zeros(1, 3).long(), torch.ones(1, 2).long()
    package["forward"](ids, y)

def sampler():
    data, kind = [1, 2], torch.utils.data.SequentialSampler
    torch.utils.data.DataLoader(data, shuffle=True, sampler=kind(data))

def words():
    mode, where, text, sign, password, key = "bf61", "/data/set-1.json", "words SECRET", "\u20ac", "SECRET", "a1" * 15
    number, empty = "12345678", ""
    return mode + where + text + sign + password + key + number + empty + 1

def labels():
    labels, zeros = torch.tensor([1, 4, 2]), torch.zeros(2).byte()
    return labels @ zeros

def killed():
    file = "/v/torch/utils/data/_utils/signal_handling.py"
    exec(compile("def handler(x):\\n    raise RuntimeError('worker')", file, "exec"))
    locals()["handler"](FAILED)

def gradient():
    w = nn.Parameter(torch.zeros(2))
    return w.view_as(w.grad)

def attribute():
    net = Net()
    net.missing

class Accelerator:  # as accelerate's: its state is stored, and a property gives parts of it
    __module__ = "accelerate.accelerator"
    def __init__(self):
        self.state = argparse.Namespace(process_index=0)
    @property
    def process_index(self):
        CALLED.append("process_index")
        return self.state.process_index

def of_one_rank():
    accelerator, i = Accelerator(), 7
    if i == 7 and accelerator.process_index == 0:
        raise ValueError("bad sample in the data")

import json
import _mgpu_values
found = {}
for name in sys.argv[1:]:
    try:
        globals()[name]()
    except Exception as error:
        CALLED.clear()
        found[name] = _mgpu_values.on_failed_lines(error.__traceback__.tb_next, type(error).__name__)
        assert not CALLED, CALLED
print(json.dumps(found))
'''
LAYER = "Linear(in_features=8, out_features=4, bias=True), float32 on cpu"
EXPECTED: dict[str, list[dict[str, str]]] = {
    "layer": [{"self.fc": LAYER, "x": "float32 [2, 9] on cpu"},
              {"model": "Net, float32 on cpu", "batch['pixels']": "float32 [2, 9] on cpu"}],
    "key": [{"batch": "dict with pixels, input_ids"}],
    "none": [{"optimizer": "None"}],
    "numbers": [{"args.steps": "10", "args.api_key": "int", "args.data": "'/home/me/data'"}],
    "containers": [{"a[0]": "float32 [2] on cpu"}],
    "quiet": [{"said": "Says with a", "said['a']": "1"}],
    "modules": [{"net.body": "Sequential, float16 on cpu", "net.fc.weight": "float32 [4, 8] on cpu"}],
    "wrapped": [{"x": "float32 [4, 5] on cpu"}],
    "checked": [{"row": "float32 [5, 2] on cpu", "limit": "3", "rows": "list of 1: float32 [5, 2] on cpu"}],
    "nested": [{"net[0][1]": "Embedding(5, 2), float32 on cpu", "ids": "int64 [1, 2] on cpu, from 1 to 7"},
               {"net": "Sequential, float32 on cpu", "ids": "int64 [1, 2] on cpu, from 1 to 7"}],
    "inline": [{"input": "float32 [2, 2] on cpu", "labels": "int64 [2] on cpu, from 0 to 4"},
               {"net": "Linear(in_features=3, out_features=2, bias=True), float32 on cpu",
                "labels": "int64 [2] on cpu, from 0 to 4"}],
    "table": [{"ids": "int64 [1] on cpu, all 9", "weight": "float32 [5, 2] on cpu"},
              {"ids": "int64 [1] on cpu, all 9"}],
    "misnamed": [{"loader": "SGD", "optimizer": "DataLoader of 1 sample, batch_size 1: 1 batch"}],
    "samples": [{"input": "float32 [3, 2] on cpu", "target": "int64 [2] on cpu, all 1",
                 "input_ids": "int64 [1, 3] on cpu, all 0", "labels": "int64 [1, 2] on cpu, all 1"},
                {"package": "dict with zeros, loss, __builtins__, forward",
                 "ids": "int64 [1, 3] on cpu, all 0", "y": "int64 [1, 2] on cpu, all 1"}],
    "sampler": [{"sampler": "SequentialSampler", "shuffle": "True"}, {"data": "list of 2: 1, 2"}],
    "words": [{"mode": "'bf61'", "where": "'/data/set-1.json'", "text": "str, length 12", "sign": "'\u20ac'",
               "password": "str, length 6", "key": "str, length 30", "number": "str, length 8",
               "empty": "an empty str"}],
    "labels": [{"labels": "int64 [3] on cpu, from 1 to 4", "zeros": "uint8 [2] on cpu, all 0"}],
    "killed": [],
    "gradient": [{"w": "float32 [2] on cpu", "w.grad": "None"}],
    "attribute": [{"net": "Net, float32 on cpu"}],
    "of_one_rank": [{"i": "7", "accelerator.process_index": "0"}],
}  # fmt: skip
HELD = {
    "checked": "row.shape[0] > limit and not isinstance(rows, tuple)",
    "sampler": "sampler is not None and shuffle",  # torch's own line
    "of_one_rank": "i == 7 and accelerator.process_index == 0",
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11, a traceback does not know its expression")
def test_the_values_of_failed_lines(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "fails.py").write_text(FAILS)
    done = subprocess.run(
        [sys.executable, tmp_path / "fails.py", *EXPECTED],
        capture_output=True,
        text=True,
        env=environment(tmp_path, {"PYTHONPATH": str(INJECTED)}),
        timeout=60,
        check=True,
    )
    assert "SECRET" not in done.stdout and "271828" not in done.stdout
    found = json.loads(done.stdout)
    assert {name: [names for *_, names, _ in lines] for name, lines in found.items()} == EXPECTED
    assert {name: lines[0][-1] for name, lines in found.items() if any(line[-1] for line in lines)} == HELD


HANDLED = """\
def convert(value):
    return [[0], [1]][len(value)][len(value[0])]
def pad(value, name):
    try:
        convert(value)
    except IndexError as error:
        raise ValueError("cannot convert " + name) from error
labels = "labels"
pad([[1, 2, 3]], labels)
"""


def test_the_line_of_an_exception_that_a_handler_replaced(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANDLED)
    more = {"PYTHONPATH": str(INJECTED), FOLDER: str(tmp_path), "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment(tmp_path, more), capture_output=True, check=False
    )
    (written,) = tmp_path.glob("*.values")
    found = recorded_values.read(tmp_path, 0, int(written.name.split(".")[1]))
    assert done.returncode == 1 and [one.line for one in found] == [7, 2, 9]
    assert found[1].values["value"] == "list of 1: list of 3"


@pytest.mark.parametrize(
    "name", ["hf_token", "self.api_key", "apiKey", "user.passphrase", "pwd", "cfg.auth", "a.private"]
)
def test_the_text_of_a_secrets_name_is_not_shown(name: str) -> None:
    assert _mgpu_values.describe("tulip", name) == "str, length 5" and _mgpu_values.describe(7, name) == "int"


@pytest.mark.parametrize("name", ["key", "num_tokens", "args.pad_token_id", "num_key_value_heads", "path", "spawn"])
def test_the_text_of_another_name_is_shown(name: str) -> None:
    assert _mgpu_values.describe("tulip", name) == "'tulip'" and _mgpu_values.describe(7, name) == "7"


def values_in(content: str, folder: Path) -> tuple[LineValues, ...]:
    (folder / "1.7.values").write_text(content)
    return recorded_values.read(folder, 1, 7)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '[["a.py", 1]]',
        '[["a.py", "1", "f", {}, ""]]',
        '[["a.py", 1, "f", [], ""]]',
        '[["a.py", 1, "f", {}]]',
        "[" * 5000,
        '"\\ud800"',
    ],
)
def test_a_file_that_is_damaged_has_no_values(content: str, tmp_path: Path) -> None:
    assert values_in(content, tmp_path) == ()
    assert recorded_values.read(tmp_path / "none", 1, 7) == ()


def test_what_a_script_may_have_written_is_masked_and_bounded(tmp_path: Path) -> None:
    names = {f"x{number}": "y" * 500 for number in range(20)} | {"a": "b"}
    token = "hf_" + "Ab1" * 12
    line = ["/home/me/t.py", 3, "main\x1b[31m", {"x\x1b[2J": token, **names}, f"token == '{token}'"]
    (found, *others) = values_in(json.dumps([line] * 5), tmp_path)
    assert len(others) < 4 and len(found.values) < 20 and max(map(len, found.values.values())) <= 200
    assert "\x1b" not in repr(found) and "hf_Ab1Ab1" not in repr(found) and found.condition == "token == '***'"


def ended(rank: int, *lines: LineValues) -> EndedRank:
    return EndedRank(rank, 1, values=lines)


def line(number: int, condition: str | None = None, **values: str) -> LineValues:
    return LineValues("/home/me/train.py", number, "forward", values, condition)


def test_what_differs_on_other_ranks() -> None:
    ranks = (
        ended(0, line(7, x="float32 [2, 9] on cuda:0", y="None"), line(9, z="1")),
        ended(1, line(7, x="float32 [2, 9] on cuda:1", y="None"), line(9, z="2")),
        ended(2, line(7, x="float32 [3, 9] on cuda:2", y="None")),
        ended(3, line(8, x="float32 [3, 9] on cuda:3")),
        ended(4, line(7, x="float32 [2, 9] on cpu", w="1")),
        ended(5),
    )
    found = failed_values.entries(0, ranks)
    assert [one["rank"] for one in found[0]["other_ranks"]] == [2, 4]
    assert failed_values.texts(found, 2) == [
        "train.py:7: x is float32 [2, 9] on cuda:0; y is None",
        "on rank 2: x is float32 [3, 9] on cuda:2",
        "on rank 4: x is float32 [2, 9] on cpu",
        "train.py:9: z is 1",
    ]
    assert failed_values.entries(5, ranks) == [] and failed_values.texts(found, 0) == []


def test_why_a_line_raised_its_exception() -> None:
    found = failed_values.entries(0, [ended(0, line(7, "x > y", x="3", y="2"), line(9, z="1"))])
    assert failed_values.texts(found, 2)[0] == "train.py:7, raised because x > y: x is 3; y is 2"
    assert failed_values.texts(failed_values.entries(0, [ended(0, line(7, "f()"))]), 2) == [
        "train.py:7, raised because f()"
    ]


@pytest.mark.parametrize("width", [80, 40])
def test_a_long_row_wraps(width: int) -> None:
    names = {
        f"batch['input_{number}']": f"int64 [{number}, 4096] on cuda:{number} with its gradient" for number in range(7)
    }
    first: Any = {"values": failed_values.entries(0, (ended(0, line(7, **names), line(9, x="1")),))}
    screen = Screen(width, False, False, io.StringIO())
    lines = ["".join(text for text, _ in parts) for parts in failure._values(first, screen)]
    assert len(lines) > 5 and max(map(len, lines)) <= width
    shown = " ".join(" ".join(lines).split())
    listed = "; ".join(f"{name} is {text}" for name, text in [*names.items()][:4])
    assert shown == f"Values train.py:7: {listed}; and 3 more train.py:9: x is 1"


TRAIN = """\
import torch
import torch.distributed as dist
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 4)
    def forward(self, x):
        return self.fc(x)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())
dist.barrier()
batch = {"pixels": torch.zeros(2 + dist.get_rank(), 12)}
out = model(batch["pixels"])
"""


def test_a_launch_shows_them(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    write_config(tmp_path)
    done = mgpu("launch", "--yes", "--unverified", "allow", "--log-dir", "log", "train.py", timeout=150)
    assert done.returncode == 1, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "log" / "result.json").read_text())
    first = result["first_failure"]
    innermost, caller = first["values"]
    rows = 2 + first["rank"]
    assert innermost["names"]["x"] == caller["names"]["batch['pixels']"] == f"float32 [{rows}, 12] on cpu"
    assert innermost["line"] == 8 and "in_features=16" in innermost["names"]["self.fc"]
    assert "Values         train.py:8: self.fc is Linear(in_features=16" in done.stderr
    others = [one["rank"] for one in innermost["other_ranks"]]
    assert others in ([], [1 - first["rank"]])  # the other rank may have been stopped before it failed
    plain = mgpu("launch", "--yes", "--unverified", "allow", "--no-recorder", "--log-dir", "b", "train.py", timeout=150)
    assert json.loads((tmp_path / "b" / "result.json").read_text())["first_failure"]["values"] == []
    assert plain.returncode == 1 and "Values  " not in plain.stderr


SPAWNS = """\
import pathlib, torch, torch.distributed as dist, torch.multiprocessing as mp
def check(x, limit):
    if x.shape[0] > limit:
        raise ValueError("batch too long")
def worker(rank, world):
    where = pathlib.Path("rendezvous").absolute().as_uri()
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    x = torch.zeros(4 + rank * 3)
    dist.barrier()
    check(x, 5)
    dist.barrier()
if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
"""


def test_a_rank_that_the_script_started_itself(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150)
    assert done.returncode == 1 and "First to fail  rank 1, ValueError: batch too long" in done.stderr, done.stderr
    first = json.loads((tmp_path / "log" / "result.json").read_text())["first_failure"]
    (line,) = (one for one in first["values"] if one["condition"])
    assert line["names"] == {"x": "float32 [7] on cpu", "limit": "5"} and line["condition"] == "x.shape[0] > limit"


WORKERS = """\
import torch
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        image = torch.zeros(3 if index < 6 else 1, 4, 4)
        if image.shape[0] != 3:
            raise ValueError("no color")
        return image
for batch in torch.utils.data.DataLoader(Samples(), batch_size=2, num_workers=1):
    pass
"""


def test_a_sample_that_fails_in_a_worker(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WORKERS)
    env = {"RANK": "0", "WORLD_SIZE": "1"}
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150, env=env)
    assert done.returncode == 1, done.stderr
    (line,) = json.loads((tmp_path / "log" / "result.json").read_text())["first_failure"]["values"]
    assert (line["line"], line["function"], line["condition"]) == (8, "__getitem__", "image.shape[0] != 3")
    assert line["names"] == {"image": "float32 [1, 4, 4] on cpu"}


CAUGHT = """\
import sys
def main():
    limit = 3
    assert limit > 5, "too small"
try:
    main()
except Exception as error:
    print("Training failed:", error)
    sys.exit(1)
"""


def test_an_exception_that_the_script_only_reports(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CAUGHT)
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150)
    first = json.loads((tmp_path / "log" / "result.json").read_text())["first_failure"]
    assert done.returncode == 1 and first["exception"] == "AssertionError: too small", done.stderr
    assert first["place"] == "train.py:4 in main" and first["values"][0]["condition"] == "not limit > 5"
    (tmp_path / "train.py").write_text(CAUGHT.replace("sys.exit(1)", "error = None\nsys.exit(1)"))
    mgpu("launch", "--yes", "--log-dir", "later", "--", sys.executable, "train.py", timeout=150)
    first = json.loads((tmp_path / "later" / "result.json").read_text())["first_failure"]
    assert first["exception"] is None and first["values"] == []  # handled, and then another reason to leave
