"""What the user's own source says of the line that failed, where it is beside the log.

The tracebacks are real: each test runs the script that its log is of.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.readers.sources.value_origins import with_sources
from mgpu.snapshot import EndedRank, LineValues, Log
from mgpu.snapshot import Run as EndedRun
from tests.conftest import Run, environment

SCRIPT = """\
import argparse, os
from parts import Net, build, rows_of
import settings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--data", default="data/coco", help="where the data is")
    parser.add_argument("--arch", default="large")
    parser.add_argument("--tok")
    parser.add_argument("--fast", action="store_true")
    args = parser.parse_args()
    globals()[args.case](args)


def path(args):
    rows_of(args.data, "train")


def whole_path(args):
    rows_of(settings.FOLDER, "train")


def returned(args):
    net = build(args)
    net.cuda()


def option(args):
    open(args.tok)


def branch(args):
    if args.fast:
        net = Net(3)
    print(net)


def later(args):
    print(late)
    late = 1


def key(args):
    sizes = {"small": 1, "base": 2}
    name = args.arch
    print(sizes[name])


def argument(args):
    Net(widht=3)


def attribute(args):
    Net(3).scale


def never_set(args):
    Net(3).loaded


def layer(args):
    Net(width=4).forward([1, 2, 3])


def misspelled(args):
    results = []
    print(result)


def refused(args):
    build(args, kind="other")


def keyword(args):
    build(args, **{"kind": "tok"})


if __name__ == "__main__":
    main()
"""
PARTS = """\
import os
import settings


class Base:
    def __init__(self, width, scales=None):
        self.width = width
        self.weight = settings.Linear(width, 2)
        self.scales = scales

    def load(self):
        self.loaded = True


class Net(Base):
    def forward(self, x):
        return self.weight(x)


def build(args, kind="net"):
    if kind not in ("net", "tok"):
        raise ValueError(kind)
    if args.arch == "small":
        return Net(1)
    if kind == "tok":
        args.tok.strip()


def rows_of(root, name):
    path = os.path.join(root, name + ".json")
    with open(path) as rows:
        return rows.read()
"""
SETTINGS = """\
FOLDER = "gone/data"


class Linear:
    def __init__(self, inputs, outputs):
        self.inputs = inputs

    def __call__(self, x):
        if len(x) != self.inputs:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied (1x{len(x)} and {self.inputs}x2)")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in (("train.py", SCRIPT), ("parts.py", PARTS), ("settings.py", SETTINGS)):
        (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text("")
    return folder


def failed(project: Path, case: str) -> Path:
    """Return the log of a case of the script."""
    log = project / f"{case}.log"
    command = [sys.executable, "train.py", case]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=environment(project))
    assert done.returncode == 1, done
    log.write_text(done.stderr)
    return log


def cause(mgpu: Run, project: Path, case: str) -> dict[str, object]:
    """Return the probable cause that `mgpu doctor --log` finds in the log of a case."""
    done = mgpu("doctor", "--log", str(failed(project, case)), "--json", cwd=project)
    found = json.loads(done.stdout)["probable_cause"]
    assert isinstance(found, dict)
    return found


def source(found: dict[str, object]) -> list[str]:
    evidence = found["evidence"]
    assert isinstance(evidence, dict)
    return str(evidence.get("source", "")).splitlines()


@pytest.mark.parametrize(
    ("case", "says", "lines"),
    [
        ("path", "--data has the default 'data/coco' (train.py:9); the path begins with it.",
         ["parts.py:31 in rows_of: with open(path) as rows:",
          'parts.py:30 in rows_of: path = os.path.join(root, name + ".json")',
          'train.py:18 in path: rows_of(args.data, "train")',
          "train.py:9: parser.add_argument('--data', default='data/coco')"]),
        ("returned", "build() can end without a return statement (parts.py:20), and then returns None.",
         ["train.py:26 in returned: net = build(args)", 'parts.py:20: def build(args, kind="net"):']),
        ("option", "--tok has no default (train.py:11): args.tok is None unless the command line has this option.",
         ["train.py:11: parser.add_argument('--tok')"]),
        ("branch", "net is set elsewhere in the same function",
         ["train.py:36 in branch: net = Net(3)",
          "parts.py:6: def __init__(self, width, scales=None):"]),
        ("later", "late gets its value after this line (train.py:42 in later).", ["train.py:42 in later: late = 1"]),
        ("key", "sizes has the keys small and base (train.py:46 in key).",
         ['train.py:46 in key: sizes = {"small": 1, "base": 2}', "train.py:47 in key: name = args.arch",
          "train.py:10: parser.add_argument('--arch', default='large')"]),
        ("argument", "The definition (parts.py:6) has a parameter named width.",
         ["train.py:52 in argument: Net(widht=3)", "parts.py:6: def __init__(self, width, scales=None):"]),
        ("attribute", "The class has scales (parts.py:9 in __init__).",
         ["parts.py:9 in __init__: self.scales = scales", "parts.py:6: def __init__(self, width, scales=None):"]),
        ("never_set", "Only one line in its class sets Net.loaded: parts.py:12 in load.",
         ["parts.py:12 in load: self.loaded = True", "parts.py:6: def __init__(self, width, scales=None):"]),
        ("misspelled", "There is a similar name: results (train.py:68 in misspelled).",
         ["train.py:68 in misspelled: results = []"]),
        ("refused", "",
         ['parts.py:22 in build: if kind not in ("net", "tok"): raise ValueError',
          'train.py:73 in refused: build(args, kind="other")']),
        ("keyword", "--tok has no default (train.py:11): args.tok is None unless the command line has this option.",
         ["train.py:11: parser.add_argument('--tok')"]),
    ],
)  # fmt: skip
def test_the_source_tells_where_a_value_comes_from(
    mgpu: Run, project: Path, case: str, says: str, lines: list[str]
) -> None:
    found = cause(mgpu, project, case)
    assert str(found["cause"]).startswith(says), found["cause"]
    assert source(found) == lines


def test_a_condition_that_the_values_of_a_launch_show_is_not_shown_again(project: Path) -> None:
    log = log_of(project, "refused")
    values = (LineValues(f"{project}/parts.py", 22, "build", {"kind": "'other'"}, 'kind not in ("net", "tok")'),)
    for recorded in ((), values):
        run = EndedRun(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
        first = root_cause.find_cause(log, run).first
        assert first is not None and first.outcome.problem is not None
        lines = str(first.outcome.problem.evidence["source"]).splitlines()
        assert ("parts.py:22 in build" in lines[0], "build(args" in lines[-1]) == (not recorded, True)
        grep = [one.text for one in first.outcome.problem.fixes if "condition" in one.text]
        assert bool(grep) == (not recorded)


def test_a_path_is_passed_with_the_option_that_has_it_by_default(mgpu: Run, project: Path) -> None:
    fix = cause(mgpu, project, "path")["fix"]
    assert isinstance(fix, list)
    assert fix[0]["commands"] == ["mgpu launch train.py --data /path/of/it"]


def test_a_path_of_a_constant_blames_no_option(mgpu: Run, project: Path) -> None:
    found = cause(mgpu, project, "whole_path")
    assert "default of" not in str(found["cause"])
    assert any("train.py:22 in whole_path" in line for line in source(found))


def test_the_sizes_of_a_layer_are_followed_to_the_call_that_made_it(project: Path) -> None:
    (defined,) = [one.defined for one in log_of(project, "layer").raised]
    assert [(one.name, one.kind, one.place, one.value) for one in defined][:2] == [
        ("", "condition", "settings.py:10 in __call__", None),
        ("x", "passed", "parts.py:17 in forward", "x"),
    ]


def log_of(project: Path, case: str) -> Log:
    path = failed(project, case)
    return with_sources(read.read_logs([path]), [project])


def test_a_changed_file_says_nothing(project: Path, tmp_path: Path) -> None:
    log = failed(project, "key").read_text()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("train.py", "parts.py", "settings.py"):
        (copy / name).write_text((project / name).read_text())
    moved = log.replace(str(project), str(copy))
    (copy / "run.log").write_text(moved)
    (before,) = with_sources(read.read_logs([copy / "run.log"]), [copy]).raised
    (copy / "train.py").write_text(SCRIPT.replace("print(sizes[name])", "print(sizes.get(name))"))
    (after,) = with_sources(read.read_logs([copy / "run.log"]), [copy]).raised
    assert before.defined
    assert not after.defined


def test_a_file_in_which_the_lines_moved_says_nothing(project: Path, tmp_path: Path) -> None:
    log = failed(project, "path").read_text()
    (tmp_path / "run.log").write_text(log.replace(str(project), "/home/ada/run"))
    for name, text in (("train.py", SCRIPT), ("parts.py", PARTS), ("settings.py", SETTINGS)):
        (tmp_path / name).write_text(text)
    (one,) = with_sources(read.read_logs([tmp_path / "run.log"]), [tmp_path]).raised
    assert one.defined
    (tmp_path / "train.py").write_text(f"# a new first line\n{SCRIPT}")  # the deepest frame is in the other file
    (one,) = with_sources(read.read_logs([tmp_path / "run.log"]), [tmp_path]).raised
    assert not one.defined


def test_the_files_are_found_in_the_current_folder(mgpu: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(failed(project, "key").read_text().replace(str(project), "/cluster/home/run"))
    done = mgpu("doctor", "--log", str(tmp_path / "run.log"), cwd=project)
    assert "Source         train.py:46 in key: sizes =" in done.stdout, done.stdout
    elsewhere = mgpu("doctor", "--log", str(tmp_path / "run.log"), cwd=tmp_path)
    assert "Source" not in elsewhere.stdout


@pytest.mark.parametrize("text", ["def broken(:\n", "x = (" * 3000, "\0", "x = " + "-" * 20000 + "1\n"])
def test_a_file_that_cannot_be_parsed_is_left_out(text: str, project: Path, tmp_path: Path) -> None:
    log = failed(project, "key").read_text().replace(str(project), str(tmp_path))
    (tmp_path / "run.log").write_text(log)
    (tmp_path / "train.py").write_text(f"{SCRIPT}\n{text}")
    (one,) = with_sources(read.read_logs([tmp_path / "run.log"]), [tmp_path]).raised
    assert one.type == "KeyError"
    assert not one.defined


def test_a_definition_that_has_the_argument_by_now_says_nothing(project: Path, tmp_path: Path) -> None:
    log = failed(project, "argument").read_text()
    (tmp_path / "run.log").write_text(log.replace(str(project), str(tmp_path)))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "parts.py").write_text(PARTS.replace("width, scales=None", "width=1, scales=None, widht=2"))
    (one,) = with_sources(read.read_logs([tmp_path / "run.log"]), [tmp_path]).raised
    assert [part.kind for part in one.defined if part.kind in ("function", "similar_parameter")] == []


def test_a_secret_of_the_source_is_masked(mgpu: Run, tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE5gH" * 4
    script = f'def main():\n    token = "{secret}"\n    print({{}}[token])\nmain()\n'
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    (tmp_path / "run.log").write_text(done.stderr.replace(secret, "hidden"))
    shown = mgpu("doctor", "--log", "run.log", cwd=tmp_path).stdout
    assert "train.py:2 in main: token =" in shown, shown
    assert secret not in shown


EVALUATES = """\
import torch


class Net:
    def forward(self, x):
        return x.double()


def evaluate(model, batches):
    model.eval()
    for batch in batches:
        model(batch)


def main():
    model = Net()
    model.eval = bool
    evaluate(model, [1])


main()
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ["keeps_gradients"]),
        ("def evaluate", "@torch.no_grad()\ndef evaluate", []),
        ("    evaluate(model, [1])", "    with torch.inference_mode():\n        evaluate(model, [1])", []),
        ("    model = Net()", "    torch.set_grad_enabled(False)\n    model = Net()", []),
        ("        model(batch)", "        model(batch).backward()", []),
        ("    model.eval()\n", "    model.bool()\n", ["keeps_gradients"]),  # its name says it
        ("def main():\n", "def main():\n    loss = 1 and None\n    loss and loss.backward()\n", []),  # it trains
        ("evaluate(", "train_test(", []),
        ("    model.eval()\n", "    model.eval()\n    model.requires_grad_(False)\n", []),
    ],
)
def test_an_evaluation_with_gradients_fills_the_memory(old: str, new: str, found: list[str], tmp_path: Path) -> None:
    text = EVALUATES.replace(old, new) if old else EVALUATES
    (tmp_path / "train.py").write_text(text)
    frames = {name: number for number, name in enumerate(text.splitlines(), 1)}
    calls = [("main()", "<module>"), ("        evaluate(model, [1])", "main"), ("    evaluate(model, [1])", "main")]
    calls += [("    train_test(model, [1])", "main")]
    calls += [("        model(batch)", "evaluate"), ("        model(batch).backward()", "evaluate")]
    calls += [("        return x.double()", "forward")]
    lines = [(frames[code], where, code) for code, where in calls if code in frames]
    log = "Traceback (most recent call last):\n" + "".join(
        f'  File "/home/ada/train.py", line {number}, in {where}\n    {code.strip()}\n' for number, where, code in lines
    )
    (tmp_path / "run.log").write_text(f"{log}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (one,) = with_sources(read.read_logs([tmp_path / "run.log"]), [tmp_path]).raised
    assert [part.kind for part in one.defined] == found


def test_an_evaluation_with_gradients_is_named(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EVALUATES)
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 21, in <module>\n    main()\n'
        '  File "train.py", line 18, in main\n    evaluate(model, [1])\n'
        '  File "train.py", line 12, in evaluate\n    model(batch)\n'
        '  File "train.py", line 6, in forward\n    return x.double()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    (tmp_path / "run.log").write_text(log)
    found = json.loads(mgpu("doctor", "--log", "run.log", "--json").stdout)["probable_cause"]
    assert found["cause"].startswith("evaluate() evaluates with gradients (train.py:9)"), found
    assert found["fix"][0]["text"] == "Evaluate without gradients."


@pytest.mark.parametrize(
    "name",
    ["KeyboardInterrupt", "SyntaxError: invalid syntax", "MemoryError", "torch.OutOfMemoryError: CUDA out of memory"],
)
def test_where_the_memory_ended_or_a_signal_came_no_value_is_looked_up(name: str, project: Path) -> None:
    log = failed(project, "key").read_text().replace("KeyError: 'large'", name)
    path = project / "other.log"
    path.write_text(log)
    assert all(not one.defined for one in with_sources(read.read_logs([path]), [project]).raised)


TIMEOUT = """\
[rank0]:[E1130 10:02:03.123456789 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
{script} FAILED
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_10:02:05
  host      : node1
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 4720)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 4720
======================================================
"""
HANGS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    net = DDP(torch.nn.Linear(4, 2))
    net(torch.ones(2, 4)).sum().backward()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))


main()
"""


@pytest.mark.parametrize(
    ("text", "found"), [(HANGS, ["script_collective_on_one_rank"]), (HANGS.replace("get_rank() == 0", "is_nccl"), [])]
)
def test_after_a_timeout_the_script_is_examined(mgpu: Run, text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(text)
    (tmp_path / "run.log").write_text(TIMEOUT.format(script="scripts/train.py"))
    document = json.loads(mgpu("doctor", "--log", "run.log", "--json").stdout)
    assert document["probable_cause"]["id"] == "log_collective_timed_out"
    assert [one["id"] for one in document["foreseen"]] == found
    shown = mgpu("doctor", "--log", "run.log").stdout
    assert ("In the script  scripts/train.py: line 11: all_reduce() is called only on" in shown) is bool(found), shown


def test_a_script_that_is_not_there_is_not_examined(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(TIMEOUT.format(script="scripts/train.py"))
    assert json.loads(mgpu("doctor", "--log", "run.log", "--json").stdout)["foreseen"] == []


def test_an_exception_of_the_script_is_not_blamed_on_what_hangs(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 14, in <module>\n    main()\nValueError: no data\n'
    )
    (tmp_path / "run.log").write_text(log)
    assert json.loads(mgpu("doctor", "--log", "run.log", "--json").stdout)["foreseen"] == []


SUMS = """\
import torch

def train(model, batches):
    total = 0
    for batch in batches:
{reset}        total += model(batch).sum()
        {backward}

train(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), [torch.ones(1, 2)] * 2)
"""


@pytest.mark.parametrize(
    ("backward", "named"),
    [("total.backward()", True), ("torch.autograd.backward(total)", True), ("total.add(0).backward()", False)],
)
def test_a_sum_of_losses_that_keeps_the_graph_of_earlier_steps(
    mgpu: Run, tmp_path: Path, backward: str, named: bool
) -> None:
    (tmp_path / "train.py").write_text(SUMS.format(reset="", backward=backward))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "second time" in done.stderr
    (tmp_path / "run.log").write_text(done.stderr)
    shown = " ".join(mgpu("doctor", "--log", "run.log").stdout.split())
    assert ("train.py:6 in train adds to total with +=" in shown) is named
    assert ("total_loss += loss.item()" in shown) is named


@pytest.mark.parametrize(("size", "title"), [("0", "share of the batch is less"), ("2.5", "gets batch_size=2.5")])
def test_a_batch_size_that_is_none(mgpu: Run, tmp_path: Path, size: str, title: str) -> None:
    (tmp_path / "run.log").write_text(
        'Traceback (most recent call last):\n  File "/r/train.py", line 3, in <module>\n    load(n // ranks)\n'
        f"ValueError: batch_size should be a positive integer value, but got batch_size={size}\n"
    )
    assert title in " ".join(mgpu("doctor", "--log", "run.log").stdout.split())
