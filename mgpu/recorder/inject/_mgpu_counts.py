"""How many samples has a dataset, and how many batches a loader, as far as that is known without running their code?

A dataset's own `__len__` is not called: its source is read, and computed if it is as plain as `len(self.rows)`.

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import types
from typing import Any

_BUILTIN = (list, tuple, dict, set, frozenset, range, str, bytes)
_LARGEST = 1 << 21  # characters of a file
_MOST_STEPS = 20
_SEEDED = ("accelerate.data_loader", "SeedableRandomSampler")  # in place of a RandomSampler
_SAMPLER, _LOADER = "torch.utils.data.sampler", "torch.utils.data.dataloader"


def stored(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are stored in it, without running code for them."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def is_kind(value: Any, module: str, *names: str) -> bool:
    """Whether an object's class, or one that it inherits from, is one of a module's."""
    return any(one.__module__ == module and one.__name__ in names for one in type.mro(type(value)))


def length_of(value: Any, steps: int = _MOST_STEPS) -> int | None:
    """Return the number of items; None if that cannot be known."""
    if type(value) in _BUILTIN:
        return len(value)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    arrays = (numpy.ndarray, numpy.memmap) if numpy is not None else ()
    if type(value) in arrays or (torch is not None and type(value) is torch.Tensor):
        return int(value.shape[0]) if len(value.shape) else None
    own, kind = stored(value), type(value)
    if steps and kind.__module__ == "torch.utils.data.dataset":
        parts = {"TensorDataset": "tensors", "Subset": "indices", "ConcatDataset": "cumulative_sizes"}
        part = own.get(parts.get(kind.__name__, ""))
        if kind.__name__ == "Subset":
            return length_of(part, steps - 1)
        first = part[0 if kind.__name__ == "TensorDataset" else -1] if type(part) in (list, tuple) and part else None
        return first if type(first) is int else length_of(first, steps - 1)
    if kind.__module__ == "datasets.arrow_dataset":
        table = own.get("_indices") if own.get("_indices") is not None else own.get("_data")
        rows = getattr(stored(table).get("table"), "num_rows", None)
        return rows if type(rows) is int else None
    return _by_source(value, steps - 1) if steps and is_kind(value, "torch.utils.data.dataset", "Dataset") else None


def _by_source(value: Any, steps: int) -> int | None:
    """Return what `__len__` would, if it only returns a plain expression of what the object stores."""
    own = next((vars(one)["__len__"] for one in type.mro(type(value)) if "__len__" in vars(one)), None)
    if type(own) is not types.FunctionType or "len" in own.__globals__:
        return None
    code = own.__code__
    source = "".join(linecache.getlines(code.co_filename))
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        nodes = ast.walk(ast.parse(source)) if len(source) <= _LARGEST else ()
        for node in nodes:
            plain = isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name == "__len__"
            if plain and isinstance(node, ast.FunctionDef) and node.lineno == code.co_firstlineno:
                last = node.body[-1]
                known = {node.args.args[0].arg: value} if node.args.args else {}
                documented = len(node.body) == 2 and ast.get_docstring(node) is not None
                if isinstance(last, ast.Return) and last.value and (len(node.body) == 1 or documented):
                    return integer(last.value, known, steps)
    return None


def integer(node: ast.AST, known: dict[str, Any], steps: int = _MOST_STEPS) -> int | None:
    """Return the value of an expression that is as plain as `len(self.ids) // self.block`; None of another."""
    if steps <= 0:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "len" and len(node.args) == 1:
            return length_of(value_of(node.args[0], known), steps - 1)
        parts = [integer(one, known, steps - 1) for one in node.args]
        whole = [one for one in parts if one is not None]
        compute = {"max": max, "min": min}.get(node.func.id)
        return compute(whole) if compute and len(parts) == len(whole) > 1 else None
    if isinstance(node, ast.BinOp):
        left, right = integer(node.left, known, steps - 1), integer(node.right, known, steps - 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.FloorDiv):
            return left // right if right else None
        return {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}.get(type(node.op))
    found = node.value if isinstance(node, ast.Constant) else value_of(node, known)
    return found if type(found) is int and abs(found) < 1 << 60 else None


def value_of(node: ast.AST, known: dict[str, Any]) -> Any:
    """Return what a name, or an attribute that is stored, stands for; None of another expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    return stored(value_of(node.value, known)).get(node.attr) if isinstance(node, ast.Attribute) else None


def of_loader(value: Any) -> tuple[int | None, int | None, str]:
    """Return the samples and the batches of a DataLoader or its iterator, and what says how it makes batches.

    "": the value is something else. None: not known.
    """
    own, names, method = stored(value), ("dataset", "batch_sampler"), "__iter__"
    if is_kind(value, "accelerate.data_loader", "DataLoaderAdapter"):
        return of_loader(own.get("base_dataloader"))
    if is_kind(value, _LOADER, "_BaseDataLoaderIter"):
        names, method = ("_dataset", "_index_sampler"), "__next__"
    elif not is_kind(value, _LOADER, "DataLoader"):
        return None, None, ""
    samples, batches = length_of(own.get(names[0])), own.get(names[1])
    whole = not is_kind(
        batches, "accelerate.data_loader", "BatchSamplerShard"
    )  # else each rank gets some of the batches
    parts = stored(batches if whole else stored(batches).get("batch_sampler"))
    of_torch = _is_of_torch(value, method) and (not whole or type(batches).__module__ == _SAMPLER)
    size, drop, share = parts.get("batch_size"), parts.get("drop_last"), _drawn(parts.get("sampler"))
    if not of_torch or type(size) is not int or type(drop) is not bool or size < 1:
        return samples, None, "DataLoader"
    count = None if share is None else share // size if drop else -(-share // size)
    shared = type(parts.get("sampler")).__name__ == "DistributedSampler" and share is not None
    text = f"batch_size {size}{', drop_last' if drop else ''}{f', {share} for this rank' if shared else ''}"
    return samples, count if whole or not count else None, f"DataLoader, {text}"


def _is_of_torch(value: Any, method: str) -> bool:
    """Whether an object has a method from torch's own module of loaders: no class of the user replaces it."""
    own = next((one for one in type.mro(type(value)) if method in vars(one)), None)
    return own is not None and own.__module__ == _LOADER


def _drawn(sampler: Any) -> int | None:
    """Return how many samples a sampler of torch draws in an epoch."""
    kind, own = type(sampler), stored(sampler)
    if kind.__module__ == "torch.utils.data.distributed" and kind.__name__ == "DistributedSampler":
        count = own.get("num_samples")
        return count if type(count) is int else None
    if kind.__module__ != _SAMPLER and (kind.__module__, kind.__name__) != _SEEDED:
        return None
    if kind.__name__ == "RandomSampler" and type(own.get("_num_samples")) is int:
        return int(own["_num_samples"])
    parts = {"SequentialSampler": "data_source", "RandomSampler": "data_source", "SubsetRandomSampler": "indices"}
    return length_of(own.get(parts.get(kind.__name__, "data_source")))


def described(value: Any) -> str:
    """Return what is said of a loader or a dataset: "DataLoader of 3 samples, batch_size 8, drop_last: no batch"."""
    samples, batches, text = of_loader(value)
    if text:
        of = "" if samples is None else f" of {_counted(samples, 'sample')}"
        kind, comma, how = text.partition(", ")
        ends = {None: "", 0: ": no batch"}.get(batches, f": {_counted(batches or 0, 'batche')}")
        return f"{kind}{of}{comma}{how}{ends}".replace("1 batche", "1 batch")
    count = length_of(value) if is_kind(value, "torch.utils.data.dataset", "Dataset") else None
    return f"{type(value).__name__} of {_counted(count, 'sample')}" if count is not None else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
