"""Values that are followed through the calls of a traceback, and what Python underlines in the line that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checks import _followed_values as followed
from mgpu.readers.log import read

from .test_log_callers import MODULE, frames
from .test_log_meanings import explained
from .test_log_versions import SCRIPT

NETS = "/home/ada/nets.py"
NO_ATTRIBUTE = "AttributeError: 'NoneType' object has no attribute 'pad'\n"
PAD = (NETS, "build", "ids = tok.pad(ids)")


@pytest.mark.parametrize(
    ("calls", "title"),
    [
        # By its keyword, or under the same name as the parameter's.
        ([(SCRIPT, "main", "net = build(1, tok=args.tok)"), PAD], "args.tok is None, and train.py:7 in main passes it"),
        ([(SCRIPT, "main", "net = build(self.tok, 1)"), PAD], "self.tok is None, and train.py:7 in main passes it on"),
        # A call that is cut after its first line, as Python before 3.13 shows it.
        ([(SCRIPT, "main", "net = build(model, tok=args.tok,"), PAD], "args.tok is None, and train.py:7 in main"),
        # Through two calls, and through a frame that passes everything on.
        ([(SCRIPT, "main", "run(t=cfg.tok)"), (SCRIPT, "run", "return build(tok=t)"), PAD],
         "cfg.tok is None, and train.py:7 in main passes it on as tok"),
        ([(SCRIPT, "main", "out = model(ids, tok=args.tok)"), MODULE, (NETS, "forward", "ids = tok.pad(ids)")],
         "args.tok is None, and train.py:7 in main passes it on as tok"),
        ([(SCRIPT, "main", "net = Net(tok=args.tok)"), (NETS, "__init__", "ids = tok.pad(ids)")],
         "args.tok is None, and train.py:7 in main passes it on as tok"),
        # Into a package.
        ([(SCRIPT, "main", "pack(ids, tok=cfg['tok'])"), ("trl/trainer/utils.py", "pack", "ids = tok.pad(ids)")],
         "cfg['tok'] is None, and train.py:7 in main passes it on as tok"),
        # What a call returned, and None itself.
        ([(SCRIPT, "main", "net = build(1, tok=find(args))"), PAD], "find(args) returned None, and train.py:7 in main"),
        ([(SCRIPT, "main", "net = build(1, tok=None)"), PAD], "train.py:7 in main passes None for tok, which the code"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_followed(calls: list[tuple[str, str, str]], title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, f"{frames(*calls)}{NO_ATTRIBUTE}")
    assert found.startswith(title), found


@pytest.mark.parametrize(
    "call",
    [
        "net = build(1, tok=a or b)",  # one of two values
        "net = build(1, **options)",
        "net = build(1, other)",
        "net = compare(build(1, tok=x), build(2, tok=y))",
        "net = rebuild(1, tok=args.tok)",
    ],
)
def test_a_value_that_the_call_does_not_show_is_not_followed(call: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, f"{frames((SCRIPT, 'main', call), PAD)}{NO_ATTRIBUTE}")
    assert found.startswith("tok is None (nets.py:7 in build)"), found


SAMPLE = 'if turn["role"].lower() == "user" and len(turn["content"]) == 0:'


@pytest.mark.parametrize("file", ["/home/ada/sft_dataset.py", "trl/data_utils.py"])
def test_a_field_of_a_sample_is_none(file: str, tmp_path: Path) -> None:
    text = f"{frames((file, 'tokenize', SAMPLE))}TypeError: object of type 'NoneType' has no len()\n"
    _, title, words = explained(tmp_path, text)
    assert title.startswith('turn["content"] is None: a sample of the data has no value for content')
    assert "grep -nE '\"content\": *null' DATA.jsonl" in words


def test_an_item_outside_of_the_data_is_no_field_of_a_sample(tmp_path: Path) -> None:
    calls = ((SCRIPT, "report", 'print(len(row["name"]))'),)
    _, title, _ = explained(tmp_path, f"{frames(*calls)}TypeError: object of type 'NoneType' has no len()\n")
    assert title.startswith('row["name"] is None (')


@pytest.mark.parametrize(
    ("call", "title"),
    [
        ("net = build(arch=cfg.model.arch)", "cfg.model.arch is 'resnet51', and MODELS has no entry of that name"),
        ("net = build(arch=name)", "MODELS has no key 'resnet51' (nets.py:7 in build)"),
    ],
)
def test_a_setting_that_is_not_in_a_table(call: str, title: str, tmp_path: Path) -> None:
    calls = ((SCRIPT, "main", call), (NETS, "build", "return MODELS[arch]()"))
    assert explained(tmp_path, f"{frames(*calls)}KeyError: 'resnet51'\n")[1].startswith(title)


PROGRAM = """\
import traceback
class Options:
    tok, table, sizes = None, {"a": {}}, [1, 2]
def sub(table, key): return table["a"][key]["b"]
def add(x, y): return y * 2 + x / 3
def call(fn): return len([1]) + fn(1)
def read(x): return str(1).lower() + x.name.lower()
def pick(a, i): return a[0] + a[i]
def share(n, m): return n / 2 + 8 / m
o = Options()
for test in (
    lambda: sub(o.table, "x"),
    lambda: add(o.tok, 3),
    lambda: call(fn=o.tok),
    lambda: read(x=o.tok),
    lambda: pick(o.sizes, i=7),
    lambda: share(4, m=0),
):
    try:
        test()
    except Exception:
        traceback.print_exc()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python underlines what failed since 3.11")
def test_what_python_underlines(tmp_path: Path) -> None:
    """Real tracebacks: the lines have several subscripts, operators and calls, and only one of each failed."""
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    shown = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "run.log").write_text(shown.stderr, "utf-8")
    found = {one.place.partition(" in ")[2]: one for one in read.read_logs([tmp_path / "run.log"]).raised if one.place}
    assert followed.subscript(found["sub"]) == ('table["a"]', "key")
    assert followed.operands(found["add"]) == ("x", "3")
    assert followed.called(found["call"]) == "fn"
    assert followed.reads_attribute(found["read"], "name") == "x"
    assert followed.subscript(found["pick"]) == ("a", "i")
    assert followed.operands(found["share"]) == ("8", "m")
    origin = followed.origin(found["read"], "x.name")
    assert origin is not None and (origin.expression, origin.passed, origin.own) == ("o.tok.name", 1, True)


SEVERAL_LINES = f"""\
Traceback (most recent call last):
  File "{SCRIPT}", line 9, in main
    return build(
        model,
        tok=args.tok,
    )
  File "{NETS}", line 5, in build
    ids = tok.pad(ids)
          ^^^^^^^
{NO_ATTRIBUTE}"""


def test_a_call_in_several_lines(tmp_path: Path) -> None:
    """Python 3.13 shows all lines of a call."""
    assert explained(tmp_path, SEVERAL_LINES)[1].startswith("args.tok is None, and train.py:9 in main passes it on")


BROKEN = """\
  File \n"/opt/conda/lib/python3.13/site-packages/lightning/pytorch/trainer/trainer.py", \nline 560, in fit
    call._call_and_handle_interrupt(
  File \n"/opt/conda/lib/python3.13/site-packages/torch/profiler/profiler.py", line \n341, in events
    assert self.profiler
AssertionError: \n"""


def test_frames_that_a_console_has_broken(tmp_path: Path) -> None:
    """rich breaks lines at its width; the numbers of the log's lines stay those of the file."""
    path = tmp_path / "run.log"
    path.write_text(f"Epoch 1 done\nTraceback (most recent call last):\n{BROKEN}", "utf-8")
    (one,) = read.read_logs([path]).raised
    assert (one.library, one.line) == ("torch/profiler/profiler.py:341 in events", 11)
    assert [call.code for call in one.calls] == ["call._call_and_handle_interrupt(", "assert self.profiler"]


OF_VSCODE = """\
---------------------------------------------------------------------------
TypeError                                 Traceback (most recent call last)
/home/ada/work/Net.ipynb Cell 9 line 1
----> <a href='vscode-notebook-cell://ssh-remote/home/ada/work/Net.ipynb#X11?line=0'>1</a> evaluate(model, loader)

/home/ada/work/Net.ipynb Cell 9 line 2
     <a href='vscode-notebook-cell://ssh-remote/home/ada/work/Net.ipynb#X11?line=25'>26</a> for batch in loader:
---> <a href='vscode-notebook-cell://ssh-remote/home/ada/work/Net.ipynb#X11?line=26'>27</a>     out = model(batch, 1, 2)

TypeError: Net.forward() takes 3 positional arguments but 4 were given
"""


def test_frames_of_a_notebook_in_vs_code(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(OF_VSCODE, "utf-8")
    (one,) = read.read_logs([path]).raised
    assert (one.place, one.own_code) == ("Net.ipynb Cell 9:2", "out = model(batch, 1, 2)")


def test_what_is_underlined_shows_no_secret(tmp_path: Path) -> None:
    """A part of a line has no name that shows it to be one."""
    frame = (
        f'  File "{SCRIPT}", line 3, in main\n    secret_key = "hunter2topsecret".foo(3)\n                 {"^" * 22}\n'
    )
    text = f"Traceback (most recent call last):\n{frame}AttributeError: 'str' object has no attribute 'foo'\n"
    found = explained(tmp_path, text)
    assert "hunter2" not in "".join(found)
    assert "hunter2" not in repr(read.read_logs([tmp_path / "run.log"]).raised)
