"""Which file, and which line of it, could not be read? What the recorder sees, and what mgpu says of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mgpu.check import Problem
from mgpu.engine import root_cause
from mgpu.hangs.hang_evidence import INJECTED
from mgpu.readers import recorded_values
from mgpu.readers.log import read
from mgpu.recorder.inject import _mgpu_raised
from mgpu.snapshot import EndedRank, LineValues, ReadFile, Run
from tests.conftest import Run as Command
from tests.conftest import environment
from tests.test_log_contexts import RAISED

# Each function fails: its file could not be read, or a line of it.
FAILS = r"""
import collections, csv, gzip, json, pickle, sys, zipfile
from pathlib import Path
d = Path("data"); d.mkdir()
(d / "rows.jsonl").write_text('{"a": 1}\n' * 4 + '{"a": \n' + '{"a": 1}\n')
(d / "blank.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
(d / "blank.txt").write_text("a\n\nb\n")
(d / "one.json").write_text('{\n"a": 1,\n"b": }\n')
(d / "page.gz").write_bytes(b"<!DOCTYPE html><p>Sign in")
(d / "cut.gz").write_bytes(gzip.compress(bytes(range(256)) * 40)[:100])
(d / "vocab.pkl").write_bytes(pickle.dumps(list(range(999)))[:40])
(d / "pointer.zip").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
(d / "latin.txt").write_bytes(b"abc\n" * 9 + b"caf\xe9\n")
(d / "rows.csv").write_text("a,b\n1,2\n3,x\n4\n")
(d / "pairs.txt").write_text("1 2\n3 4\n5\n")
(d / "empty.pkl").write_bytes(b"")

def lines(path=d / "rows.jsonl"):
    with open(path) as file:
        return [json.loads(line) for line in file]
def texts(path=str(d / "blank.jsonl")):
    for line in Path(path).read_text().splitlines():
        json.loads(line)
def whole():
    with open(d / "one.json") as f:
        return json.load(f)
def nothing():
    with open(d / "empty.pkl") as f:
        return json.load(f)
def answer(path=d / "rows.csv", config=d / "blank.txt"):
    return json.loads("")
def no_file(path=d / "rows.jsonl"):
    return json.loads("{'a': 1}")
def page():
    with gzip.open(d / "page.gz") as f:
        return f.read()
def cut():
    with gzip.open(d / "cut.gz", "rb") as f, open(d / "pairs.txt") as other:
        return f.read()
def pickled():
    with open(d / "vocab.pkl", "rb") as f:
        return pickle.load(f)
def empty():
    with open(d / "empty.pkl", "rb") as f:
        return pickle.load(f)
def zipped():
    return zipfile.ZipFile(d / "pointer.zip")
def latin():
    return (d / "latin.txt").read_text(encoding="utf-8")
def latin_lines():
    with open("data/latin.txt", encoding="utf-8") as f:
        return f.readlines()
def row():
    with open(d / "rows.csv", newline="") as f:
        reader = csv.reader(f)
        for row in reader:
            a, b = row
def column():
    with open(d / "rows.csv", newline="") as f:
        next(f)
        for row in csv.DictReader(f, ["a", "b"]):
            float(row["b"])
def parse(line):
    a, b = line.split()
def pairs():
    with open(d / "pairs.txt") as f:
        for number, line in enumerate(f):
            parse(line)
def after_the_loop():
    with open(d / "pairs.txt") as f:
        for line in f:
            pass
        raise ValueError("x")
def twice():
    first, second = d / "vocab.pkl", d / "empty.pkl"
    return pickle.loads(first.read_bytes() + second.read_bytes())
def not_a_reader():
    with open(d / "pairs.txt") as f, open("log.txt", "w") as log:
        raise EOFError

import _mgpu_raised
found = {}
for name in sys.argv[1:]:
    try:
        globals()[name]()
    except Exception as error:
        lines_ = _mgpu_raised._failed_lines(error, error.__traceback__.tb_next)
        found[name] = next((line[5] for line in lines_ if len(line) == 6), None)
print(json.dumps(found))
"""


def file(path: str, form: str, line: int | None = None, fault: str = "") -> dict[str, Any]:
    return {"path": f"data/{path}", "form": form, "line": line, "fault": fault}


SEEN: dict[str, dict[str, Any] | None] = {
    "lines": file("rows.jsonl", "text", 5, "invalid_row"),
    "texts": file("blank.jsonl", "text", 2, "blank"),
    "whole": file("one.json", "text", 3, "invalid"),
    "nothing": file("empty.pkl", ""),
    "answer": None,
    "no_file": None,
    "page": file("page.gz", "an HTML page"),
    "cut": file("cut.gz", "a gzip file"),
    "pickled": file("vocab.pkl", "a pickle"),
    "empty": file("empty.pkl", ""),
    "zipped": file("pointer.zip", "a Git LFS pointer"),
    "latin": file("latin.txt", "", 10, "invalid"),
    "latin_lines": file("latin.txt", "", 10, "invalid"),
    "row": file("rows.csv", "text", 4),
    "column": file("rows.csv", "text", 3),
    "pairs": file("pairs.txt", "text", 3),
    "after_the_loop": None,
    "twice": None,
    "not_a_reader": None,
}


def test_the_file_that_a_failed_line_read(tmp_path: Path) -> None:
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
    found = json.loads(done.stdout)
    sizes = {name: one.pop("size") for name, one in found.items() if one}
    assert found == SEEN
    assert sizes["page"] == 25 and sizes["empty"] == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"path": "a\x1b[2J.json", "size": 1},
        {"path": "a.json", "size": "1"},
        {"path": "", "size": 1},
        {"path": "x" * 5000, "size": 1},
        {"path": "hf_" + "Ab1" * 12, "size": 1},
        [],
        None,
    ],
)
def test_what_a_script_may_have_written_is_no_file(facts: Any, tmp_path: Path) -> None:
    (tmp_path / "0.7.values").write_text(json.dumps([["/home/me/t.py", 3, "main", {}, "", facts]]))
    (line,) = recorded_values.read(tmp_path, 0, 7)
    assert line.read is None


def found(error: str, code: str, seen: ReadFile | None, folder: Path) -> Problem:
    """The first cause of an exception at train.py:41, whose line has read this file."""
    (folder / "run.log").write_text(RAISED.format(code=code, error=error))
    log = read.read_logs([folder / "run.log"])
    recorded = (LineValues("/home/u/train.py", 41, "main", {}, None, seen),)
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, first=True, values=recorded),), expected=1)
    first = root_cause.find_cause(log, run).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem


JSON = "json.decoder.JSONDecodeError: Expecting value: line 1 column 9 (char 8)"
DECODE = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 83: invalid continuation byte"


@pytest.mark.parametrize(
    ("error", "seen", "title", "command"),
    [
        (
            JSON,
            ReadFile("d/my set.jsonl", 99, "text", 7, "invalid_row"),
            "line 7 of d/my set.jsonl is not JSON: Expecting value at column 9",
            "sed -n 7p 'd/my set.jsonl' | cat -v",
        ),
        (
            JSON,
            ReadFile("d/a.jsonl", 99, "text", 7, "blank"),
            "line 7 of d/a.jsonl is empty, and is read as JSON",
            "sed -n 7p d/a.jsonl | cat -v",
        ),
        (
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 1 (char 20)",
            ReadFile("d/a.json", 99, "text", 3, "invalid"),
            "d/a.json is not JSON: Expecting ',' delimiter: line 3 column 1 (char 20)",
            "sed -n 3p d/a.json | cat -v",
        ),
        (
            "json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 20)",
            ReadFile("d/a.json", 99, "text", 2, "invalid"),
            "the file is JSON Lines (one object per line), and is read as one JSON value: Extra data: line 2 column 1 "
            "(char 20): line 2 of d/a.json",
            "sed -n 2p d/a.json | cat -v",
        ),
        (
            DECODE,
            ReadFile("d/a.txt", 99, "text", 21, "invalid"),
            "line 21 of d/a.txt is not utf-8 text: byte 0xe9",
            "sed -n 21p d/a.txt | cat -v",
        ),
        (
            "yaml.scanner.ScannerError: mapping values are not allowed here",
            ReadFile("c.yaml", 99, "text", 3, "invalid"),
            "line 3 of c.yaml is not valid YAML: mapping values are not allowed here",
            "sed -n 3p c.yaml | cat -v",
        ),
        (
            "gzip.BadGzipFile: Not a gzipped file (b'<h')",
            ReadFile("d/x.gz", 21, "an HTML page"),
            "d/x.gz is an HTML page of 21 bytes (train.py:41 in main)",
            "head -c 600 d/x.gz",
        ),
        (
            "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value",
            ReadFile("c/last.pt", 130, "a Git LFS pointer"),
            "c/last.pt is a Git LFS pointer of 130 bytes (train.py:41 in main)",
            "git lfs install; git lfs pull --include c/last.pt",
        ),
        ("EOFError", ReadFile("c/last.pt", 0), "c/last.pt is empty (train.py:41 in main)", "ls -l c/last.pt; df -h c"),
        (
            "EOFError: Compressed file ended before the end-of-stream marker was reached",
            ReadFile("d/x.gz", 5000, "a gzip file"),
            "a compressed file is cut off (train.py:41 in main): d/x.gz",
            "ls -la d/x.gz",
        ),
        (
            "pandas.errors.ParserError: Error tokenizing data. C error: Expected 3 fields in line 12, saw 5",
            ReadFile("d/x.csv", 500, "text"),
            "a table file is empty, cut off or of another format: Error tokenizing data. C error: Expected 3 fields in "
            "line 12, saw 5: d/x.csv",
            "sed -n 12p d/x.csv | cat -v",
        ),
        (
            "zipfile.BadZipFile: File is not a zip file",
            ReadFile("d/x.zip", 50, "text"),
            "train.py:41 in main could not read a file of the dataset (BadZipFile): d/x.zip",
            "ls -l d/x.zip; file d/x.zip",
        ),
    ],
)
def test_the_cause_names_the_file(error: str, seen: ReadFile, title: str, command: str, tmp_path: Path) -> None:
    problem = found(error, "x = load(f)", seen, tmp_path)
    assert problem.title == title
    assert command in [one for fix in problem.fixes for one in fix.commands]
    shell_commands = [one for fix in problem.fixes for one in fix.commands if "(" not in one]
    assert not any("FILE" in one for one in shell_commands)
    assert found(error, "x = load(f)", None, tmp_path).title != title


def test_a_json_file_that_ends_too_early(tmp_path: Path) -> None:
    error = "json.decoder.JSONDecodeError: Expecting value: line 9 column 1 (char 90)"
    assert found(error, "json.load(f)", ReadFile("a.json", 90, "text", 9, "invalid"), tmp_path).cause == (
        "The file ends there: it was cut off."
    )
    assert "cut off" not in found(error, "json.load(f)", ReadFile("a.json", 900, "", 9, "invalid"), tmp_path).cause


def test_a_page_that_is_read_as_text_is_no_failed_download(tmp_path: Path) -> None:
    problem = found(DECODE, "x = f.read()", ReadFile("d/a.html", 99, "an HTML page", 2, "invalid"), tmp_path)
    assert problem.title == "line 2 of d/a.html is not utf-8 text: byte 0xe9"


TRAIN = """\
import json
def rows(path):
    with open(path) as file:
        for line in file:
            yield json.loads(line)
with open("rows.jsonl", "w") as file:
    file.write('{"a": 1}\\n' * 3 + '{"a": \\n')
print(list(rows("rows.jsonl")))
"""


def test_a_launch_names_the_line_of_the_file(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = mgpu("launch", "--yes", "--log-dir", "log", "--", sys.executable, "train.py", timeout=150)
    shown = " ".join(done.stderr.split())
    assert done.returncode == 1 and "line 4 of rows.jsonl is not JSON: Expecting value at column 8" in shown, shown
    assert "sed -n 4p rows.jsonl | cat -v" in shown


def test_a_file_system_that_does_not_answer_keeps_no_rank_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    monkeypatch.setattr(_mgpu_raised, "_LOOK_S", 0.05)
    assert _mgpu_raised._in_time(ends.wait) is None
    ends.set()
    monkeypatch.setattr(_mgpu_raised, "_LOOK_S", 10.0)
    assert _mgpu_raised._in_time(lambda name: name, "found") == "found"
    assert _mgpu_raised._in_time(open, "/none/of/this") is None  # and nothing is printed
