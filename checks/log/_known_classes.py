"""Which object of a class of Python or torch lacks an attribute, and what is it in place of: a model, a list, a number?

These classes are the same everywhere: nothing sets the attribute later, and no release of a package has it.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .._calls import asked_by_script
from ._messages import wrong_value
from ._own_objects import Meaning, file_of

_LACKS = re.compile(r"'(?:[\w.]+\.)?(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'")
_STATES = frozenset({"OrderedDict", "dict"})
# fmt: off
_OF_MODULES = frozenset({
    "eval", "train", "parameters", "named_parameters", "state_dict", "load_state_dict", "modules", "named_modules",
    "children", "requires_grad_", "forward", "zero_grad",
})
_MOVES = frozenset({"to", "cuda", "cpu", "half", "float", "bfloat16", "module", "predict", "generate", "encode"})
_ITERATORS = frozenset({"generator", "map", "zip", "filter", "enumerate", "reversed", "range", "list_iterator"})
_VIEWS = frozenset({"dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items"})
_TABLES = frozenset({"DataFrame", "Series", "DataFrameGroupBy", "SeriesGroupBy", "GeoDataFrame"})
_PATHS = frozenset({"PosixPath", "WindowsPath", "PurePosixPath"})
_OF_TENSORS = frozenset({"backward", "item", "detach", "cpu", "cuda", "numpy", "data", "mean", "sum", "to", "tolist"})
_CONTAINERS = frozenset({
    "Sequential", "ModuleList", "ModuleDict", "Linear", "Identity", "Conv1d", "Conv2d", "Conv3d", "BatchNorm2d",
    "LayerNorm", "Embedding", "Dropout", "ReLU", "LSTM", "GRU",
})
# fmt: on
_MODEL = re.compile(r"(?i)(?:^|[._])(?:model|net|network|policy|actor|critic|encoder|decoder|generator|unet|vae)\w*$")


def of_known_class(one: UncaughtException) -> Meaning | None:
    """Explain an attribute that an object of Python's or torch's own classes does not have."""
    found = _LACKS.match(one.message)
    own = one.raised_in_own_code or asked_by_script(one)
    if not found or not own or not one.place:
        return None
    owner, name, code = found["owner"], found["name"], one.own_code or one.code or ""
    of = _object(code, name)
    if owner in _STATES:
        return _state(owner, name, of, code, one)
    if owner in _TABLES:
        return _table(owner, name, of, one)
    if owner in _ITERATORS | _VIEWS:
        return _iterator(owner, name, of, one)
    if owner in _PATHS and hasattr(str, name):
        return Meaning(
            f"{of or 'a path'} is a {owner} of pathlib, and {one.place} uses it as a text (.{name})",
            "Objects of pathlib.Path have other methods than texts: name, stem, suffix, parent, with_suffix().",
            (Fix("Make a text of it, or use what a path has.", ("str(path)", "path.suffix == '.png'", "path.name")),),
        )
    if owner in ("float", "int") and name in _OF_TENSORS and wrong_value(one):
        return _number(owner, name, of, one)
    if owner in _CONTAINERS and one.frames[-1:] and one.frames[-1].startswith("torch/nn/modules/module.py"):
        return _layer(owner, name, of, one)
    return None


def _object(code: str, name: str) -> str | None:
    """Return what the line reads the attribute of, if it reads it once."""
    found = re.findall(rf"((?:[A-Za-z_]\w*)(?:\.\w+|\[[^\[\]]*\])*)\.{name}\b", code)
    return found[0] if len(found) == 1 else None


def _state(owner: str, name: str, of: str | None, code: str, one: UncaughtException) -> Meaning | None:
    loads = re.search(r"\btorch\.load\(", code)
    of_model = name in _OF_MODULES or (name in _MOVES and (loads or _MODEL.search(of or "")))
    if not of_model:
        return None
    return Meaning(
        f"{of or 'what was loaded'} is {'a dict' if owner == 'dict' else 'an OrderedDict'}, not a model, and "
        f"{one.place} uses it as one (.{name})",
        "Probably it is what torch.load() returned: a file with a state dict (names and weights), or a checkpoint that "
        "has it under a key. Such a file has no code of the model.",
        (
            Fix(
                "Build the model with its class, and load the weights into it.",
                ("model = Model(...)", "model.load_state_dict(torch.load(path, map_location='cpu'))"),
            ),
            Fix("If it is a checkpoint, look for the key of the weights.", ("print(list(checkpoint)[:10])",)),
        ),
    )


def _table(owner: str, name: str, of: str | None, one: UncaughtException) -> Meaning:
    return Meaning(
        f"{of or 'the table'} is a {owner}, which has no column and no method {name} ({one.place})",
        "A column that is read as an attribute must exist under exactly this name: another version of the data, a "
        "space or capital letters in the header, or a column that an earlier line removed or made the index. Methods "
        "differ between releases, and between a table, one column of it and its groups.",
        (
            Fix(
                "Print the type and the columns before that line.",
                (
                    python("print(type({:dotted}), getattr({:dotted}, 'columns', ''))", of, of)
                    if of
                    else "print(type(df), df.columns.tolist())",
                ),
            ),
            Fix("If it is a method, compare the release.", ("pip show pandas",)),
        ),
        of_code=False,
    )


def _iterator(owner: str, name: str, of: str | None, one: UncaughtException) -> Meaning:
    what = "a view of a dict" if owner in _VIEWS else f"a {owner}" if owner != "enumerate" else "an enumerate"
    return Meaning(
        f"{of or 'a value'} is {what}, and {one.place} reads its {name}",
        f"It only gives its items one after another{' or by position' if owner == 'range' else ''}, and has no methods "
        "that change or compute, as lists, arrays and tensors do. In Python 2, map, zip, filter, range and keys() were "
        "lists.",
        (
            Fix("Make a list of it first, or take its items.", ("items = list(values)", "first = next(iter(values))")),
            Fix("If it should be a single value, see what made it.", ("print(type(value))",)),
        ),
    )


def _number(owner: str, name: str, of: str | None, one: UncaughtException) -> Meaning:
    value, number = of or "a value", "an int" if owner == "int" else "a float"
    if name == "backward":
        return Meaning(
            f"{value} is {number}, not a tensor, and {one.place} calls its backward()",
            "Either the loss was made a number (.item(), float(), a mean of numpy), or it began as 0 and no term was "
            "added: a loop, a branch or a batch without any.",
            (
                Fix(
                    "Print it, and keep it a tensor until backward().",
                    (python("print(type({:dotted}), {:dotted})", value, value),),
                ),
                Fix(
                    "If there can be no term, skip the step, or begin with a tensor that has a gradient.",
                    ("loss = pred.sum() * 0.0",),
                ),
            ),
        )
    return Meaning(
        f"{value} is {number} already, not a tensor, and {one.place} reads its {name}",
        "It was made a number before (.item(), float(), len()), or it began as a number and nothing was added to it.",
        (
            Fix(f"Leave .{name} out, or use what accepts both.", ("float(x)  # of a number or a tensor",)),
            Fix(
                f"Look where {value} is set.",
                (shell("grep -nE {} {:path}", rf"{re.escape(value)} *[-+*/]?=", file_of(one)),),
            ),
        ),
    )


def _layer(owner: str, name: str, of: str | None, one: UncaughtException) -> Meaning:
    numbered = (
        " nn.Sequential and nn.ModuleList number what they hold: model[0]." if owner.endswith(("al", "st")) else ""
    )
    return Meaning(
        f"{of or 'the object'} is torch's nn.{owner}, which has no {name} ({one.place})",
        "The model has another structure than the line expects: it is another model or release of it, or a layer was "
        f"replaced (a new head, nn.Identity, a wrapper).{numbered}",
        (
            Fix(
                "Print the layers, and use the name that is there.",
                (python("print({:dotted})", of) if of else "print(model)",),
            ),
        ),
    )
