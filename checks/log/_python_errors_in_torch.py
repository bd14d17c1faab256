"""What did the script give to torch, if Python raises an error of its own within torch's code?

The message names a type that torch's code could not use, and the place shows what for. Texts for `exceptions.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning


class _Place(NamedTuple):
    """An error of Python in a file of torch. The title is a template of the pattern's groups and {at}."""

    frame: str  # searched in the innermost frame
    types: str
    pattern: str
    title: str
    why: str
    fixes: tuple[Fix, ...]


# fmt: off
_PARAMETERS = (Fix("Pass the parameters.", ("torch.optim.AdamW(model.parameters(), lr=1e-3)",
                                            "[{'params': model.parameters(), 'lr': 1e-3}]")),)
_NOT_A_TENSOR = (
    Fix("Print the types just before that line.", ("print(type(out), type(y))",)),
    Fix("Take the tensor out of it, or make one of plain numbers.",
        ("out = out[0]  # a model that returns a tuple", "loss = torch.stack(losses).sum()  # keeps the gradients",
         "torch.tensor(values)  # numbers only")),
)
_TENSORS = (Fix("Convert it first.", ("torch.as_tensor(values)", "torch.from_numpy(array)")),)
_PLACES = (
    _Place(r"torch/optim/(?!lr_scheduler)\w+\.py in (?:__init__|add_param_group)$", "TypeError",
           r"'(?P<got>\w+)' object is not iterable",
           "the optimizer gets a {got}, and takes a list of parameters{at}",
           "It takes an iterable of tensors, or of dicts with the key 'params'.", _PARAMETERS),
    _Place(r"torch/optim/optimizer\.py in (?:__init__|add_param_group)$", "KeyError", r"^'params'$",
           "a group of the optimizer has no 'params'{at}",
           "Each dict in the list is a group: its parameters under 'params', and options that differ.", _PARAMETERS),
    _Place(r"torch/optim/lr_scheduler\.py in __init__", "TypeError", r"'(?P<got>int|float)' object is not iterable",
           "a scheduler gets one {got} where it takes a list{at}",
           "milestones of MultiStepLR and schedulers of SequentialLR are lists, also with one item.",
           (Fix("Make a list of it.", ("MultiStepLR(optimizer, milestones=[10])",)),)),
    _Place(r"torch/optim/lr_scheduler\.py in ", "ZeroDivisionError", r"(?:division|modulo)",
           "a scheduler divides by 0: one of its step counts is probably 0{at}",
           "T_max, step_size or another option is 0: epochs or len(loader) rounded down, or an empty loader. "
           "OneCycleLR also fails if total_steps x pct_start is 1.",
           (Fix("Print what it is computed from.", ("print(len(loader), epochs)", "T_max=max(1, steps)")),)),
    _Place(r"torch/optim/lr_scheduler\.py in step", "TypeError", r"float\(\) argument must be .* not '(?P<got>\w+)'",
           "ReduceLROnPlateau.step() gets a {got} instead of the value it watches{at}",
           "It takes one number. None comes from a validation that did not run; a dict or list holds several values "
           "(metrics['val_loss']).",
           (Fix("Pass a number, and step only after a validation.", ("scheduler.step(val_loss)",)),)),
    _Place(r"torch/nn/functional\.py in |torch/nn/modules/loss\.py in ", "AttributeError",
           r"'(?P<got>NoneType|list|tuple|dict|str|float|int)' object has no attribute '(?:size|dim|shape|new|dtype)'",
           "a loss or layer gets a {got} where it takes a tensor{at}",
           "A label is missing (None), a batch was not converted to tensors, or a model returns several values.",
           _NOT_A_TENSOR),
    _Place(r"torch/nn/(?:functional|modules/loss)\.py in |torch/utils/data/dataset\.py in ",
           "TypeError AttributeError",
           r"^'int' object is not callable|'numpy\.ndarray' object has no attribute '(?:dim|size|new)'",
           "an array of numpy or a table of pandas is given where torch takes a tensor{at}",
           "size() and dim() are of tensors; an array or a table has a number of that name, or none.",
           (Fix("Convert it first.", ("torch.as_tensor(values)", "torch.from_numpy(array)",
                                      "torch.from_numpy(df.to_numpy(dtype='float32'))")),)),
    _Place(r"torch/utils/data/dataset\.py in ", "AttributeError",
           r"'(?P<got>list|tuple)' object has no attribute 'size'",
           "TensorDataset gets a {got}, and takes tensors{at}", "It indexes tensors by their first "
                                                                "dimension.", _TENSORS),
    _Place(r"torch/utils/data/_utils/fetch\.py in ", "KeyError", r"^(?P<got>\d+)$",
           "the dataset has no item {got}: it is a dict or a table, or its keys are no positions{at}",
           "A DataLoader asks for dataset[0] to dataset[len - 1]. A dict takes its keys, a table of pandas its "
           "columns, "
           "and a Series the labels that a filter left.",
           (Fix("Make a list of samples, or a Dataset of it.",
                ("TensorDataset(data['x'], data['y'])", "list(zip(data['x'], data['y']))",
                 "df = df.reset_index(drop=True)")),)),
    _Place(r"torch/utils/data/dataset\.py in (?:__getitem|<listcomp>)", "IndexError", r"index out of range",
           "an index of a Subset or a sampler is beyond the dataset{at}",
           "The indices were made for a larger dataset: before a filter, of another split, or of a file that was saved "
           "earlier.",
           (Fix("Compare them.", ("print(max(subset.indices), len(subset.dataset))",)),)),
    _Place(r"torch/utils/data/(?:dataloader|_utils/fetch)\.py in ", "StopIteration", r"^$",
           "next() is called on a DataLoader's iterator that has no batch left{at}",
           "An epoch has len(loader) batches. A for loop ends after them; next() raises StopIteration.",
           (Fix("Begin again, or take the batches in a loop.",
                ("print(len(loader))", "iterator = iter(loader)  # in except StopIteration")),)),
    _Place(r"torch/utils/data/_utils/worker\.py in ", "TypeError", r"missing \d+ required positional argument",
           "worker_init_fn takes more than the number of the worker{at}",
           "The DataLoader calls it with one argument, the number of the worker.",
           (Fix("Fix the other arguments.", ("functools.partial(init, seed=0)", "def init(worker): ...")),)),
    _Place(r"torch/nn/utils/rnn\.py in pad_packed", "AttributeError", r"'Tensor' object has no attribute 'batch_sizes'",
           "pad_packed_sequence() gets a plain tensor{at}",
           "It takes what a recurrent layer returns for a packed input. This layer got a tensor, and returned one.",
           (Fix("Pack the input first, or leave it out.", ("pack_padded_sequence(x, lengths, batch_first=True)",)),)),
    _Place(r"torch/nn/utils/rnn\.py in pad_packed", "AttributeError",
           r"'tuple' object has no attribute 'batch_sizes'",
           "pad_packed_sequence() gets the whole output of the layer, a tuple{at}",
           "A recurrent layer returns its output and its state. Only the output is a packed sequence.",
           (Fix("Take the output alone.", ("out, state = lstm(packed); pad_packed_sequence(out)",)),)),
    _Place(r"torch/optim/lr_scheduler\.py in ", "TypeError", r"'(?P<got>\w+)' object is not callable",
           "a scheduler gets one {got} where it takes a function{at}",
           "LambdaLR and MultiplicativeLR call lr_lambda with the number of the epoch.",
           (Fix("Give it a function.", ("LambdaLR(optimizer, lr_lambda=lambda epoch: 0.9 ** epoch)",)),)),
    _Place(r"torch/optim/(?!lr_scheduler|swa_utils)\w+\.py in step$", "TypeError",
           r"'(?P<got>\w+)' object is not callable",
           "step() of an optimizer gets a {got} as its argument{at}",
           "Its only argument is a function that computes the loss again, which LBFGS needs.",
           (Fix("Leave it out.", ("loss.backward(); optimizer.step()",)),)),
    _Place(r"torch/random\.py in _?manual_seed", "TypeError", r"not '?NoneType'?",
           "the seed is None{at}", "The option or the key of the config that gives it is not set.",
           (Fix("Set it, or leave the call out without one.", ("if seed is not None: torch.manual_seed(seed)",)),)),
    _Place(r"torch/random\.py in _?manual_seed", "ValueError TypeError", r".",
           "a seed is not a whole number{at}", "It was read as text, or is a list or a fraction.",
           (Fix("Convert it.", ("torch.manual_seed(int(seed))",)),)),
    _Place(r"torch/utils/checkpoint\.py in checkpoint_sequential", "ValueError", r"range\(\) arg 3 must not be zero",
           "checkpoint_sequential() has more segments than layers{at}", "Each segment has at least one layer.",
           (Fix("Use fewer.", ("checkpoint_sequential(layers, min(4, len(layers)), x, use_reentrant=False)",)),)),
)
# fmt: on


def python_error_in_torch(one: UncaughtException) -> Meaning | None:
    """Return what an error of Python means in the place of torch that raised it; None in any other place."""
    frame = one.frames[-1] if one.frames else ""
    for known in _PLACES:
        if short_name(one.type) not in known.types.split() or not re.search(known.frame, frame):
            continue
        if found := re.search(known.pattern, one.message):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            groups["at"] = at_place(one)
            return Meaning(known.title.format(**groups), known.why, known.fixes)
    return None
