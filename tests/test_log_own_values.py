"""Which value of the script's own line was wrong: one line of code and Python's message, which says only the type.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

PANDAS = ("pandas/core/indexes/base.py", "get_loc", "raise KeyError(key) from err")
GETATTR = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
OUTPUTS = ("transformers/utils/generic.py", "__getitem__", "return inner_dict[k]")
JSON = ("/opt/env/lib/python3.11/json/encoder.py", "default", "raise TypeError(text)")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("x = batch['mask'].cuda()", (), "KeyError: 'mask'", "batch has no key 'mask': the dataset or the collate",
            ".keys()"),
        ("n = cfg['depth']", (), "KeyError: 'depth'", "cfg has no key 'depth': it is missing in the config",
            "cfg.get("),
        ("f = TABLE[name]", (), "KeyError: 'swish'", "TABLE has no key 'swish'", "print(TABLE.keys())"),
        ("y = frame['score']", (PANDAS,), "KeyError: 'score'", "the table has no column 'score'", "df.columns"),
        ("n = args.total // args.each", (), "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'",
         "args.each is None", "The option was not set"),
        ("sched.step()", (), "AttributeError: 'NoneType' object has no attribute 'step'", "sched is None", "grep -nE"),
        ("first = found[0]", (), "TypeError: 'NoneType' object is not subscriptable", "found is None", "a lookup"),
        ("for one in listing:", (), "TypeError: 'NoneType' object is not iterable", "listing is None", "returned "
                                                                                                       "nothing"),
        ("lr = cfg.optim.lr", (), "AttributeError: 'dict' object has no attribute 'optim'",
         "cfg is a dict, and fit.py:7 in main reads its attribute optim", "cfg['optim']"),
        ("loss, pred = net(x)", (), "ValueError: not enough values to unpack (expected 2, got 1)",
         "net(x) gives 1 value, and fit.py:7 in main expects 2 (loss, pred)", "len(out)"),
        ("a, b = batch", (), "ValueError: too many values to unpack (expected 2)", "batch gives more values",
            "collated"),
        ("y = net(x, t)", (MODULE,), "TypeError: Net.forward() takes 2 positional arguments but 3 were given",
         "your call at fit.py:7 in main passes 2 arguments to Net.forward(), which takes 1", "def forward"),
        ("y = net(x)", (MODULE,), "TypeError: Net.forward() missing 1 required positional argument: 't'",
         "your call at fit.py:7 in main does not pass 't' to Net.forward()", "The line is"),
        ("mean = total / len(loader)", (), "ZeroDivisionError: division by zero", "loader is empty", "on every rank"),
        ("steps = n // world", (), "ZeroDivisionError: integer division or modulo by zero", "world is 0",
            "print(world)"),
        ("x = torch.cat(parts)", (), "RuntimeError: torch.cat(): expected a non-empty list of Tensors", "parts is "
                                                                                                        "empty",
         "share of the data"),
        ("last = parts[3]", (), "IndexError: list index out of range", "parts has fewer than 4 items",
            "print(len(parts)"),
        ("step = int(name)", (), "ValueError: invalid literal for int() with base 10: 'final'",
         "name is the text 'final', which is no number", "repr(name)"),
        ("json.dump(row, f)", (JSON,), "TypeError: Object of type Tensor is not JSON serializable",
         "a Tensor is written as JSON", "value.tolist()"),
        ("print(f'{best:.3f}')", (), "TypeError: unsupported format string passed to NoneType.__format__",
            "best is None",
         "no step or evaluation"),
        ("assert len(files) > 0, 'no files'", (), "AssertionError: no files",
         "a check in the script's own code failed at fit.py:7 in main: no files", 'requires "len(files) > 0"'),
        ("raise ValueError(f'unknown loss {name}')", (), "ValueError: unknown loss huberr",
         "the script's own code stopped the run at fit.py:7 in main: unknown loss huberr", "grep -n -B8"),
        ("main()", (), "RecursionError: maximum recursion depth exceeded", "main calls itself without an end",
            "repeat"),
        ("h = net.encode(x)", (GETATTR,), "AttributeError: 'TinyNet' object has no attribute 'encode'",
         "TinyNet has no attribute encode, which fit.py:7 in main reads", "def encode"),
        ("self.proj(x)", (), "AttributeError: 'MyTrainer' object has no attribute 'proj'. Did you mean: 'prof'?",
         "MyTrainer has no attribute proj", "Python suggests prof"),
        ("sampler.set_epoch(n)", (), "AttributeError: 'RandomSampler' object has no attribute 'set_epoch'",
         "only a DistributedSampler has set_epoch()", "hasattr"),
        ("t.backward()", (), "AttributeError: 'float' object has no attribute 'backward'", "t is a float, not a tensor",
         "print(type(t)"),
        ("y = out['scores']", (OUTPUTS,), "KeyError: 'scores'", "out has no key 'scores'", "print(out.keys())"),
        ("from src.nets import Net", (), "ModuleNotFoundError: No module named 'src'",
         "Python does not find src, probably a module of the project itself", "PYTHONPATH=$PWD"),
        ("import utils.ranks", (), "ModuleNotFoundError: No module named 'utils.ranks'", "Python does not find "
                                                                                         "utils.ranks",
         "An installed package named utils"),
    ],
)  # fmt: skip
def test_the_value_is_named(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("call()", "KeyError: 'mask'"),
        ("x = a[i][j]", "IndexError: list index out of range"),
        ("n = a // b // c", "TypeError: unsupported operand type(s) for //: 'NoneType' and 'NoneType'"),
        ("run()", "ValueError: something of mine"),
        ("raise error", "ValueError: something of another"),
    ],
)
def test_a_line_that_does_not_show_it_is_only_quoted(code: str, error: str, tmp_path: Path) -> None:
    assert "fit.py:7 in main raised" in explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")[1]


def test_an_error_of_the_settings_is_not_put_down_to_one_ranks_data(tmp_path: Path) -> None:
    """One rank of two printed it. A batch without a key can be one rank's, an option cannot."""
    start = "[rank0]: start\n[rank1]: start\n"
    option = frames((SCRIPT, "main", "n = args.a * args.b"), prefix="[rank1]: ")
    error = "[rank1]: TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'\n"
    assert "not about one rank's data" in explained(tmp_path, start + option + error)[2]
    batch = frames((SCRIPT, "main", "x = batch['mask']"), prefix="[rank1]: ")
    assert "share of the data" in explained(tmp_path, f"{start}{batch}[rank1]: KeyError: 'mask'\n")[2]
