"""Which object is of another class than the line expects, and what did the script's own check find?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

GETATTR = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(text)")
ASTYPE = ("pandas/core/dtypes/astype.py", "astype_nansafe", "return arr.astype(dtype)")
GETITEM = ("torch/utils/data/dataset.py", "__getitem__", "raise NotImplementedError")
ENTROPY = ("torch/distributions/distribution.py", "entropy", "raise NotImplementedError")
FORWARD = ("torch/nn/modules/module.py", "_forward_unimplemented", "raise NotImplementedError")
OTHER = ("torch/onnx/utils.py", "export", "raise NotImplementedError")


def lacks(owner: str, name: str) -> str:
    return f"AttributeError: '{owner}' object has no attribute '{name}'"


@pytest.mark.parametrize(
    ("calls", "error", "title", "words", "never"),
    [
        # State dicts in place of models.
        (
            [("model.eval()", ())],
            lacks("collections.OrderedDict", "eval"),
            "model is an OrderedDict, not a model",
            "load_state",
            "pass",
        ),
        (
            [("model.eval()", ())],
            lacks("dict", "eval"),
            "model is a dict, not a model",
            "load_state_dict",
            "config object",
        ),
        (
            [("m = torch.load(p).to(d)", ())],
            lacks("OrderedDict", "to"),
            "what was loaded is an OrderedDict",
            "Model(",
            "super()",
        ),
        ([("batch.to(device)", ())], lacks("dict", "to"), "batch is a dict", "batch", "load_state_dict"),
        (
            [("n = table.first()", ())],
            lacks("OrderedDict", "first"),
            "Python's class OrderedDict has no first",
            "type(",
            "super()",
        ),
        (
            [("y = df.score", ())],
            lacks("DataFrame", "score"),
            "df is a DataFrame, which has no column and no method",
            "columns",
            "super()",
        ),
        (
            [("y = df.append(row)", ())],
            lacks("DataFrame", "append"),
            "pandas is probably too new",
            "pd.concat",
            "super()",
        ),
        # Iterators, paths, numbers, layers.
        (
            [("n = net.parameters().numel()", ())],
            lacks("generator", "numel"),
            "a value is a generator",
            "list(",
            "Go to",
        ),
        ([("keys.sort()", ())], lacks("dict_keys", "sort"), "keys is a view of a dict", "list(values)", "Go to"),
        (
            [("if path.endswith('.png'):", ())],
            lacks("PosixPath", "endswith"),
            "path is a PosixPath",
            "str(path)",
            "super()",
        ),
        (
            [("n = path.size()", ())],
            lacks("PosixPath", "size"),
            "Python's class PosixPath has no size",
            "type(",
            "super()",
        ),
        ([("loss.backward()", ())], lacks("int", "backward"), "loss is an int, not a tensor", "no term was", "config"),
        (
            [("total += loss.item()", ())],
            lacks("float", "item"),
            "loss is a float already",
            "Leave .item out",
            "config",
        ),
        ([("n = lr.step", ())], lacks("float", "step"), "lr is a float", "Look where lr is set", "Leave"),
        (
            [("w = model.fc.weight", GETATTR)],
            lacks("Sequential", "fc"),
            "model is torch's nn.Sequential",
            "model[0]",
            "super()",
        ),
        (
            [("x = self.fc(x)", GETATTR)],
            lacks("Net", "fc"),
            "Net has no attribute fc",
            "indented wrongly",
            "nn.Sequential",
        ),
        ([("x = net.fc(x)", GETATTR)], lacks("Net", "fc"), "Net has no attribute fc", "another model", "indented"),
        # Too few items.
        (
            [("path = sys.argv[2]", ())],
            "IndexError: list index out of range",
            "without its argument number 2",
            "python fit.py",
            "layers",
        ),
        (
            [("n = name.split('_')[2]", ())],
            "IndexError: list index out of range",
            "split into fewer than 3 parts",
            "repr(text)",
            "ranks",
        ),
        (
            [("f = sorted(glob.glob('*.pt'))[-1]", ())],
            "IndexError: list index out of range",
            "glob.glob('*.pt') found nothing",
            "ls FOLDER",
            "ranks",
        ),
        (
            [("y = labels[i]", ())],
            "IndexError: list index out of range",
            "labels is shorter than the index i needs",
            "print(len(labels), i)",
            "number i",
        ),
        # Texts in tables, JSON.
        (
            [("t = t.astype(float)", ASTYPE)],
            "ValueError: could not convert string to float: 'male'",
            "a column of texts is used as numbers, such as 'male'",
            "get_dummies",
            "environment",
        ),
        (
            [("json.dump(x, f)", ())],
            "TypeError: Object of type int64 is not JSON serializable",
            "an int64 is written",
            "value.item()",
            "float(value)",
        ),
        (
            [("json.dump(x, f)", ())],
            "TypeError: Object of type set is not JSON serializable",
            "a set is written",
            "sorted(value)",
            "float(value)",
        ),
        (
            [("json.dump(x, f)", ())],
            "TypeError: Object of type device is not JSON serializable",
            "a device is written",
            "str(value)",
            "float(value)",
        ),
        # Own checks: about what they name.
        (
            [("assert ready(path), path", ())],
            "AssertionError: /data/a",
            "failed at fit.py:7 in main: /data/a",
            'requires "ready(path)"',
            "path, path",
        ),
        ([("assert x.ndim == 3", ())], "AssertionError", "x.ndim == 3", "not about a GPU", "nothing"),
        (
            [("raise RuntimeError(text)", ())],
            "RuntimeError: GPU 3 has an ECC error",
            "GPU 3 has an ECC error",
            "raises this RuntimeError itself",
            "not about a GPU",
        ),
        (
            [("raise ValueError(text)", ())],
            "ValueError: the link of rank 3 is down",
            "the link of rank 3 is down",
            "raises this ValueError itself",
            "not about a GPU",
        ),
        (
            [("raise ValueError(text)", ())],
            "ValueError: unknown name huge",
            "unknown name huge",
            "not about a GPU",
            "nothing",
        ),
        # Methods that only a base class has.
        (
            [("x = data[0]", GETITEM)],
            "NotImplementedError",
            "does not define __getitem__(), which its base class",
            "def __getitem__",
            "branches",
        ),
        (
            [("h = d.entropy()", ENTROPY)],
            "NotImplementedError",
            "this distribution of torch has no entropy()",
            "log_prob",
            "branches",
        ),
        (
            [("h = d.mean", (ENTROPY[0], "mean", ENTROPY[2]))],
            "NotImplementedError",
            "this distribution of torch has no mean",
            "dist.sample((1000,))",
            "entropy",
        ),
        (
            [("y = layers(x)", FORWARD)],
            "NotImplementedError",
            "a module was called that has no forward()",
            "ModuleList",
            "branches",
        ),
        (
            [("export(net)", OTHER)],
            "NotImplementedError",
            "export has no implementation for what this run asks",
            "branches",
            "underscores",
        ),
        # Entries of checkpoints, and of other things that are called a state.
        (
            [("v = checkpoint['epoch']; load_state_dict(v)", ())],
            "KeyError: 'epoch'",
            "the loaded checkpoint has no epoch",
            "print",
            "table",
        ),
        (
            [("x = state['load']", ())],
            "KeyError: 'load'",
            "state has no key 'load'",
            "print(state.keys())",
            "checkpoint has",
        ),
    ],
)
def test_the_object_is_named(
    calls: list[tuple[str, tuple[str, ...]]], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    ((code, below),) = calls
    trace = frames((SCRIPT, "main", code), *((below,) if len(below) == 3 else ()))
    _, found, text = explained(tmp_path, f"{trace}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)
