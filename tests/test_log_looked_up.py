"""Which key, row, name or part is missing, in programs of all kinds: tables, images, notebooks, one process?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

LOC = ("pandas/core/indexing.py", "__getitem__", "return self._getitem_axis(key, axis=axis)")
SERIES = ("pandas/core/series.py", "__getitem__", "return self._get_value(key)")
FRAME = ("pandas/core/frame.py", "__getitem__", "indexer = self.columns.get_loc(key)")
GET_LOC = ("pandas/core/indexes/base.py", "get_loc", "raise KeyError(key) from err")
GROUP = ("pandas/core/groupby/groupby.py", "get_group", "raise KeyError(name)")
DROP = ("pandas/core/indexes/base.py", "drop", "raise KeyError(text)")
TRAINER = ("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")
GRAPH = (
    ("graphs/views.py", "__getitem__", "return self.nodes[n]"),
    ("graphs/core.py", "__getitem__", "return self.n[key]"),
)


@pytest.mark.parametrize(
    ("calls", "error", "title", "words", "never"),
    [
        # pandas: columns, rows, groups. A release of pandas is never the cause.
        (
            [(SCRIPT, "main", "y = labels[i]"), SERIES, GET_LOC],
            "KeyError: 3",
            "no row with the label 3",
            "iloc",
            "pip install",
        ),
        (
            [(SCRIPT, "main", "r = table.loc[i]"), LOC, GET_LOC],
            "KeyError: 1187",
            "no row with the label 1187",
            "reset_index",
            "release",
        ),
        (
            [(SCRIPT, "main", "c = table[7]"), FRAME, GET_LOC],
            "KeyError: 7",
            "the table has no column 7",
            "iloc",
            "label ",
        ),
        (
            [(SCRIPT, "main", "r = table.loc['2020-01-01']"), LOC, GET_LOC],
            "KeyError: '2020-01-01'",
            "no row (or column) with the label '2020-01-01'",
            "df.index",
            "header",
        ),
        (
            [(SCRIPT, "main", "y = table['score']"), FRAME, GET_LOC],
            "KeyError: 'score'",
            "the table has no column 'score'",
            "df.columns",
            "label ",
        ),
        (
            [(SCRIPT, "main", "t = table.drop('id')"), DROP],
            "KeyError: \"['id'] not found in axis\"",
            "drop() did not find what it should remove: ['id']",
            "columns=['NAME']",
            "release",
        ),
        (
            [(SCRIPT, "main", "t = table.drop(columns=['id'])"), DROP],
            "KeyError: \"['id'] not found in axis\"",
            "the table lacks columns that the line names: ['id']",
            "df.columns",
            "axis=1",
        ),
        (
            [(SCRIPT, "main", "t = groups.get_group(3)"), GROUP],
            "KeyError: 3",
            "the table has no group 3",
            "groups",
            "iloc",
        ),
        # A package that only looks up a key is not at fault.
        (
            [(SCRIPT, "main", "n = graph[7]"), *GRAPH],
            "KeyError: 7",
            "graph has no key 7",
            "print(graph.keys())",
            "pip install --upgrade graphs",
        ),
        # Items of data, without a Trainer; batches with one.
        (
            [(SCRIPT, "main", "name = row['name']")],
            "KeyError: 'name'",
            "row has no key 'name' (fit.py:7 in main)",
            "only some of them",
            "collate",
        ),
        (
            [(SCRIPT, "main", "y = x['label']")],
            "KeyError: 'label'",
            "x has no key 'label' (fit.py:7 in main)",
            "print",
            "collate",
        ),
        ([(SCRIPT, "main", "m = batch['mask']")], "KeyError: 'mask'", "batch has no key 'mask'", "collate", "Trainer"),
        (
            [TRAINER, (SCRIPT, "compute_loss", "m = inputs['mask']")],
            "KeyError: 'mask'",
            "inputs has no key 'mask'",
            "remove_unused_columns",
            "pip",
        ),
        # Shapes, texts, zip and loops that number their items.
        (
            [(SCRIPT, "main", "b, c, h, w = x.shape")],
            "ValueError: not enough values to unpack (expected 4, got 3)",
            "x has 3 dimensions, and fit.py:7 in main expects 4 (b, c, h, w)",
            "print(x.shape)",
            "transformers",
        ),
        (
            [(SCRIPT, "main", "h, w, c = img.shape")],
            "ValueError: not enough values to unpack (expected 3, got 2)",
            "img has 2 dimensions",
            "is gray",
            "return_dict",
        ),
        (
            [(SCRIPT, "main", "b, t, d = h.size()")],
            "ValueError: too many values to unpack (expected 3)",
            "h has more dimensions, and fit.py:7 in main expects 3",
            "print(h.shape)",
            "gray",
        ),
        (
            [(SCRIPT, "main", "word, n = line.split(' ')")],
            "ValueError: too many values to unpack (expected 2)",
            "a text was split into more parts",
            "maxsplit=1",
            "model",
        ),
        (
            [(SCRIPT, "main", "host, port = addr.split(':')")],
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "a text was split into 1 part",
            "repr(text)",
            "maxsplit",
        ),
        (
            [(SCRIPT, "main", "xs, ys = zip(*found)")],
            "ValueError: not enough values to unpack (expected 2, got 0)",
            "found is empty",
            "print(len(found))",
            "return_dict",
        ),
        (
            [(SCRIPT, "main", "xs, ys = zip(*found)")],
            "ValueError: too many values to unpack (expected 2)",
            "each item of found has more parts",
            "print(found[0])",
            "return_dict",
        ),
        (
            [(SCRIPT, "main", "for i, (x, y) in enumerate(loader):")],
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "an item of loader has 1 part, and the loop at fit.py:7 in main expects 2 (x, y)",
            "iter(loader)",
            "transformers",
        ),
        (
            [(SCRIPT, "main", "for k, v in options:")],
            "ValueError: too many values to unpack (expected 2)",
            "an item of options has more parts",
            "options.items()",
            "transformers",
        ),
        (
            [(SCRIPT, "main", "loss, out = model(x)")],
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "model(x) gives 1 value",
            "Outputs of transformers",
            "split",
        ),
        # What was 0?
        (
            [(SCRIPT, "main", "if step % args.save_every == 0:")],
            "ZeroDivisionError: integer modulo by zero",
            "args.save_every is 0",
            "turn it off",
            "ranks",
        ),
        (
            [(SCRIPT, "main", "rate = n / elapsed")],
            "ZeroDivisionError: float division by zero",
            "elapsed is 0",
            "perf_counter",
            "ranks",
        ),
        (
            [(SCRIPT, "main", "acc = correct / total")],
            "ZeroDivisionError: division by zero",
            "total is 0",
            "counts something",
            "ranks",
        ),
        (
            [(SCRIPT, "main", "size = args.batch // args.ngpus")],
            "ZeroDivisionError: integer division or modulo by zero",
            "args.ngpus is 0",
            "sees no GPU",
            "tensor, pipeline",
        ),
        (
            [(SCRIPT, "main", "size = args.batch // world_size")],
            "ZeroDivisionError: integer division or modulo by zero",
            "world_size is 0",
            "tensor, pipeline",
            "sees no GPU",
        ),
    ],
)
def test_what_is_missing_is_said_for_every_program(
    calls: list[tuple[str, str, str]], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames(*calls)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)


@pytest.mark.parametrize(
    ("place", "code", "error", "title", "words"),
    [
        (
            "main",
            "x = conv(x)",
            "NameError: name 'conv' is not defined. Did you mean: 'self.conv'?",
            "probably self.conv is meant",
            "Write self.conv",
        ),
        (
            "main",
            "x = conv(x)",
            "NameError: name 'conv' is not defined. Did you mean: 'convs'?",
            "uses conv, which does not exist there",
            "suggests convs",
        ),
        (
            "main",
            "for i in xrange(9):",
            "NameError: name 'xrange' is not defined",
            "the code was written for Python 2: fit.py:7 in main uses xrange",
            "Write range",
        ),
        ("main", "run(shuffle=true)", "NameError: name 'true' is not defined", "probably True is meant", "json.loads"),
        (
            "main",
            "for x in true['a']:",
            "NameError: name 'true' is not defined",
            "uses true, which does not",
            "pyflakes",
        ),
        (
            "main",
            "get_ipython().run_line_magic('time', '')",
            "NameError: name 'get_ipython' is not defined",
            "exists only in notebooks",
            "ipython",
        ),
        (
            "main",
            "start = time()",
            "NameError: name 'time' is not defined",
            "uses time without importing it",
            "from time import time",
        ),
        (
            "main",
            "start = time.time()",
            "NameError: name 'time' is not defined",
            "uses time without importing it",
            "import time",
        ),
        (
            "main",
            "now = datetime.now()",
            "NameError: name 'datetime' is not defined",
            "without importing it",
            "from datetime import datetime",
        ),
        (
            "main",
            "one = datetime.timedelta(1)",
            "NameError: name 'datetime' is not defined",
            "without importing it",
            "| import datetime",
        ),
        (
            "main",
            "out = run(",
            "NameError: name 'copy' is not defined",
            "uses copy without importing it",
            "import copy",
        ),
        (
            "main",
            "h, w, F = a, b, F",
            "NameError: name 'F' is not defined",
            "uses F, which does not exist there",
            "as a variable",
        ),
        (
            "main",
            "x = F.relu(x)",
            "NameError: name 'F' is not defined",
            "uses F without importing it",
            "functional as F",
        ),
        (
            "main",
            "x = torch.ones(3)",
            "UnboundLocalError: local variable 'torch' referenced before assignment",
            "reads torch before it has a value",
            "imports or sets torch itself",
        ),
        (
            "main",
            "count += 1",
            "UnboundLocalError: local variable 'count' referenced before assignment",
            "reads count before it has a value",
            "global count",
        ),
        (
            "main",
            "y = count + 1",
            "UnboundLocalError: local variable 'count' referenced before assignment",
            "reads count before it has a value",
            "on every path",
        ),
        (
            "main",
            "print(err)",
            "UnboundLocalError: local variable 'err' referenced before assignment",
            "reads err before it has a value",
            "deleted at the end of its block",
        ),
    ],
)
def test_a_name_without_a_value(place: str, code: str, error: str, title: str, words: str, tmp_path: Path) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, place, code))}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


def test_a_cell_has_no_file(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "<ipython-input-3-a1>", line 1, in <cell line: 1>\n    r = __file__'
    )
    _, found, _ = explained(tmp_path, f"{text}\nNameError: name '__file__' is not defined\n")
    assert "which a notebook's cell does not have" in found


def test_a_package_that_computes_with_a_missing_key_can_be_at_fault(tmp_path: Path) -> None:
    calls = [(SCRIPT, "main", "run()"), ("graphs/core.py", "run", "step()"), ("graphs/core.py", "step", "v = a[n]")]
    assert explained(tmp_path, f"{frames(*calls)}KeyError: 7\n")[0] == "log_framework_failed"
