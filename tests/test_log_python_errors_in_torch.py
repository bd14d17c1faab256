"""Errors of Python that are raised within torch, other values of wrong types, and shapes in a line without a framework.

The messages are from scripts that provoked them (torch 2.13 on the CPU).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE
from tests.test_log_refused_by_torch import Frames, answer

_OPTIMIZER = ("torch/optim/optimizer.py", "add_param_group", "params = param_group['params']")
_MADE = ("torch/optim/optimizer.py", "__init__", "param_groups = list(params)")
_STEP = ("torch/optim/adamw.py", "step", "loss = closure()")
_SCHEDULER = ("torch/optim/lr_scheduler.py", "__init__", "self.milestones = Counter(milestones)")
_PLATEAU = ("torch/optim/lr_scheduler.py", "step", "current = float(metrics)")
_FETCH = ("torch/utils/data/_utils/fetch.py", "<listcomp>", "data = [self.dataset[idx] for idx in index]")
_SUBSET = ("torch/utils/data/dataset.py", "__getitems__", "return [self.dataset[self.indices[i]] for i in indices]")
_TENSORS = ("torch/utils/data/dataset.py", "<genexpr>", "tensors[0].size(0) == tensor.size(0)")
_LOADER = ("torch/utils/data/dataloader.py", "__next__", "data = self._next_data()")
_WORKER = ("torch/utils/data/_utils/worker.py", "_worker_loop", "init_fn(worker_id)")
_L1 = ("torch/nn/functional.py", "l1_loss", "if not (target.size() == input.size()):")
_PAD = ("torch/nn/utils/rnn.py", "pad_packed_sequence", "max_seq_length = sequence.batch_sizes.size(0)")
_LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
_TRAINER = ("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")
_DIFFER = "RuntimeError: The size of tensor a (8) must match the size of tensor b (16) at non-singleton dimension 1"
_JOINED = "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size {} but got size {} for"
_PRODUCT = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x256 and 512x10)"


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("opt = SGD(model, lr=1)", (_MADE,), "TypeError: 'Linear' object is not iterable",
         "the optimizer gets a Linear, and takes a list of parameters", "model.parameters()"),
        ("opt = SGD(groups)", (_OPTIMIZER,), "KeyError: 'params'", "a group of the optimizer has no 'params'",
         "Each dict in the list is a group"),
        ("opt.step(loss)", (_STEP,), "TypeError: 'Tensor' object is not callable",
         "step() of an optimizer gets a Tensor as its argument", "loss.backward(); optimizer.step()"),
        ("s = MultiStepLR(opt, 10)", (_SCHEDULER,), "TypeError: 'int' object is not iterable",
         "a scheduler gets one int where it takes a list", "milestones=[10]"),
        ("s.step(None)", (_PLATEAU,), "TypeError: float() argument must be a string or a real number, not 'NoneType'",
         "ReduceLROnPlateau.step() gets a NoneType", "scheduler.step(val_loss)"),
        ("s = CosineAnnealingLR(opt, 0)", (_PLATEAU,), "ZeroDivisionError: integer modulo by zero",
         "a scheduler divides by 0: one of its step counts is probably 0", "len(loader)"),
        ("for b in loader:", (_FETCH,), "KeyError: 0", "the dataset has no item 0: it is a dict or a table",
         "TensorDataset"),
        ("for b in loader:", (_SUBSET,), "IndexError: list index out of range",
         "an index of a Subset or a sampler is beyond the dataset", "max(subset.indices)"),
        ("d = TensorDataset([1], [2])", (_TENSORS,), "AttributeError: 'list' object has no attribute 'size'",
         "TensorDataset gets a list, and takes tensors", "torch.as_tensor"),
        ("d = TensorDataset(x, y)", (_TENSORS,), "TypeError: 'int' object is not callable",
         "an array of numpy or a table of pandas is given where torch takes a tensor", "df.to_numpy"),
        ("b = next(batches)", (_LOADER,), "StopIteration", "iterator that has no batch left", "iter(loader)"),
        ("for b in loader:", (_WORKER,), "TypeError: init() missing 1 required positional argument: 'seed'",
         "worker_init_fn takes more than the number of the worker", "functools.partial"),
        ("loss = F.l1_loss(out, None)", (_L1,), "AttributeError: 'NoneType' object has no attribute 'size'",
         "a loss or layer gets a NoneType where it takes a tensor", "type(y)"),
        ("x, _ = pad_packed_sequence(out)", (_PAD,), "AttributeError: 'Tensor' object has no attribute 'batch_sizes'",
         "pad_packed_sequence() gets a plain tensor", "pack_padded_sequence"),
        # Arguments of other types.
        ("x = x.clamp(min='0')", (), "TypeError: clamp() received an invalid combination of arguments - got "
                                     "(min=str, ), "
         "but expected one of:\n * (Tensor min = None, Tensor max = None)",
         "clamp() does not take arguments of the types (min=str, )", "help("),
        ("x = torch.full(s, 'a')", (), "TypeError: full(): argument 'fill_value' (position 2) must be Number, not str",
         "full() gets a str as fill_value, and takes Number", "print(type(x))"),
        ("x = torch.cat(a, b)", (), "TypeError: cat(): argument 'tensors' (position 1) must be tuple of Tensors, not "
         "Tensor", "cat() gets a Tensor as tensors, and takes tuple of Tensors", "one tensor instead of several"),
        ("n = len(stream)", (), "TypeError: object of type 'generator' has no len()",
         "the length of a generator is needed", "__len__"),
        ("n = len(data)", (), "TypeError: object of type 'Scans' has no len()", "the length of a Scans", "__len__"),
        # Shapes of a line without a framework.
        ("x = x + self.conv(x)", (), _DIFFER, "different sizes: 8 and 16 in dimension 1 (fit.py:7 in forward)",
         "residual connection"),
        ("x[0] = y", (), "RuntimeError: The expanded size of the tensor (8) must match the existing size (5) at "
         "non-singleton dimension 0.  Target sizes: [8].  Tensor sizes: [5]",
         "a tensor of the shape [5] cannot be expanded to, or written to, the shape [8]", "print(a.shape, b.shape)"),
        ("x = torch.cat([x, y], 1)", (), f"{_JOINED.format(17, 15)} tensor number 1 in the list.",
         "tensors of different sizes are joined along dimension 1: 17 and 15 in another", "F.interpolate"),
        ("x = self.fc(x)", (MODULE, _LINEAR), _PRODUCT, "self.fc expects 512 input features, but got 256",
         "nn.Linear(256, 10)"),
        ("y = a @ b", (), _PRODUCT, "two matrices cannot be multiplied: 4x256 and 512x10", "transpose(-1, -2)"),
        ("p = nn.Parameter(torch.arange(3))", (("torch/nn/parameter.py", "__new__", "return torch.Tensor._make("),),
         "RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
         "gradients are requested for a tensor of integers", "torch.tensor([1.0"),
    ],
)
def test_meanings(code: str, below: Frames, error: str, title: str, words: str, tmp_path: Path) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found
    assert words in texts


@pytest.mark.parametrize(
    ("code", "below", "error", "title"),
    [
        # The same errors of Python, raised by the script's own line.
        ("x = config['params']", (), "KeyError: 'params'", "config has no key 'params'"),
        ("y = table[0]", (), "KeyError: 0", "table has no key 0"),
        ("f = rate / n", (), "ZeroDivisionError: division by zero", "n is 0"),
        ("x = items[k]", (), "IndexError: list index out of range", "items is shorter than the index k needs"),
        ("n = len(rows)", (), "TypeError: object of type 'NoneType' has no len()", "rows is None"),
        # Sizes of a trainer's batch, and maps that differ by one.
        ("trainer.train()", (_TRAINER,), _DIFFER, "two tensors have different sizes: 8 and 16"),
        ("trainer.train()", (_TRAINER,), _PRODUCT, "a layer expects 512 input features, but got 256"),
        ("x = torch.cat([x, y], 1)", (), f"{_JOINED.format(26, 25)} tensor number 1 in the list.", "differ by one"),
    ],
)
def test_others(code: str, below: Frames, error: str, title: str, tmp_path: Path) -> None:
    assert title in answer(tmp_path, code, below, error)[0]

# fmt: on
