"""What is in the folder where a file is missing? The recorder lists it, on the node of the rank that failed."""

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
from mgpu.snapshot import EndedRank, LineValues, ListedFolder, Run
from tests.conftest import Run as Command
from tests.conftest import environment
from tests.test_log_contexts import RAISED

FAILS = """\
import json, os, subprocess, sys
from pathlib import Path
os.makedirs("out/checkpoint-10"); os.makedirs("empty"); os.symlink("nowhere", "broken")
for number in range(12):
    Path("out/checkpoint-10", f"shard{number:02}.pt").write_text("")
Path("out/log.txt").write_text("")

def in_folder(): open("out/checkpoint-10/trainer_state.json")
def whole(): open(Path("out/none/deep/x.json").absolute())
def here(): open("data/train.txt")
def writes(): open("./results/log.txt", "w")
def safetensors(): raise FileNotFoundError("No such file or directory: empty/model.safetensors")
def named(folder="out"): raise ValueError(f"No valid checkpoint found in output directory ({folder})")
def other_word(split="out"): raise ValueError("cannot compute out of this")
def program(): subprocess.run(["no-such-program-1"])
def link(): open("broken")
def root(): open("/no-such-folder-1/x")
def home(): open(os.path.expanduser("~/x.json"))
def other(): raise KeyError("out/none")

import _mgpu_raised
found = {}
for name in sys.argv[1:]:
    try:
        globals()[name]()
    except Exception as error:
        lines = _mgpu_raised._failed_lines(error, error.__traceback__.tb_next)
        found[name] = next((line[5] for line in lines if len(line) == 6), None)
print(json.dumps(found))
"""
SHARDS = [f"shard{number:02}.pt" for number in range(8)]
TOP = ["broken", "empty", "fails.py", "out"]


def listing(folder: str, names: list[str], count: int, missing: str = "", *, here: bool = False) -> dict[str, Any]:
    return {"missing": missing, "folder": folder, "here": here, "names": names, "count": count}


def test_what_is_in_the_folder(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    (work / "fails.py").write_text(FAILS)
    expected = {
        "in_folder": listing("out/checkpoint-10", SHARDS, 12, "out/checkpoint-10/trainer_state.json"),
        "whole": listing(f"{work}/out", ["checkpoint-10", "log.txt"], 2, f"{work}/out/none/deep/x.json"),
        "here": listing(".", TOP, 4, "data/train.txt", here=True),
        "writes": listing(".", TOP, 4, "./results/log.txt", here=True),
        "safetensors": listing("empty", [], 0, "empty/model.safetensors"),
        "named": listing("out", ["checkpoint-10", "log.txt"], 2),
        **dict.fromkeys(("other_word", "program", "link", "root", "home", "other")),
    }
    done = subprocess.run(
        [sys.executable, "fails.py", *expected],
        cwd=work,
        capture_output=True,
        text=True,
        env=environment(tmp_path, {"PYTHONPATH": str(INJECTED)}),
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    "changed",
    [{"folder": "a\x1b"}, {"folder": ""}, {"missing": "x" * 2000}, {"missing": 3}, {"names": "a"}, {"count": -1}],
)
def test_what_a_script_may_have_written_is_no_folder(changed: dict[str, Any], tmp_path: Path) -> None:
    good = {"folder": "out", "missing": "out/a", "names": ["b\x1b[2J", "hf_" + "Ab1" * 12], "count": 2}
    for facts in (good, {**good, **changed}):
        (tmp_path / "0.7.values").write_text(json.dumps([["/home/me/t.py", 3, "main", {}, "", facts]]))
        (line,) = recorded_values.read(tmp_path, 0, 7)
        assert line.folder == (ListedFolder("out", ("b", "***"), 2, "out/a") if facts is good else None)


def found(error: str, folder: ListedFolder | None, tmp_path: Path) -> Problem:
    """The first cause of an exception at train.py:41."""
    (tmp_path / "run.log").write_text(RAISED.format(code="state = torch.load(path)", error=error))
    log = read.read_logs([tmp_path / "run.log"])
    recorded = (LineValues("/home/u/train.py", 41, "main", {}, folder=folder),)
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
    first = root_cause.find_cause(log, run).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem


NOT_FOUND = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"


@pytest.mark.parametrize(
    ("error", "folder", "title", "cause"),
    [
        (
            NOT_FOUND.format("runs/a/weights.pt"),
            ListedFolder("runs/a", ("weight.pt",), 1, "runs/a/weights.pt"),
            "runs/a has no file 'weights.pt' (train.py:41 in main)",
            "runs/a has weight.pt, and no file 'weights.pt'. There is 'weight.pt'. The path is runs/a/weights.pt.",
        ),
        (
            NOT_FOUND.format("runs/b/c/weights.pt"),
            ListedFolder("runs", tuple("adefghij"), 1000, "runs/b/c/weights.pt"),
            "runs has no folder 'b' (train.py:41 in main)",
            "runs has more than 1,000 entries, among them a, d, e, f, g, h, i and j, and no folder 'b'.",
        ),
        (
            NOT_FOUND.format("weights.pt"),
            ListedFolder(".", ("train.py",), 1, "weights.pt", here=True),
            "weights.pt is not in the current folder of the process (train.py:41 in main)",
            "The current folder has train.py, and no file 'weights.pt'. The path is relative",
        ),
        (
            NOT_FOUND.format("/d/x/weights.pt"),
            ListedFolder("/d", (), 0, "/d/x/weights.pt"),
            "a file that the script reads does not exist: /d/x/weights.pt",
            "/d is empty, it has no folder 'x'.",
        ),
        (
            "ValueError: No valid checkpoint found in output directory (out)",
            ListedFolder("out", ("log.txt",), 1),
            "there is no complete checkpoint to resume from in out",
            "out has log.txt. It was left by an interrupted save",
        ),
    ],
)
def test_the_cause_says_what_is_there(error: str, folder: ListedFolder, title: str, cause: str, tmp_path: Path) -> None:
    problem = found(error, folder, tmp_path)
    assert problem.title == title and problem.cause.startswith(cause)
    assert not found(error, None, tmp_path).cause.startswith(cause)


def test_a_launch_lists_the_folder(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "out" / "step_5").mkdir(parents=True)
    (tmp_path / "out" / "step_5" / "model.pt").write_text("")
    (tmp_path / "train.py").write_text('open("out/step_5/trainer_state.pt", "rb")\n')
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150)
    shown = " ".join(done.stderr.split())
    assert done.returncode == 1 and "out/step_5 has no file 'trainer_state.pt' (train.py:1)" in shown, shown
    assert "out/step_5 has model.pt, and no file" in shown and "ls -la out/step_5" in shown
