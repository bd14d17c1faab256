"""readers/training_script/used_parameters.py: does a forward pass certainly use all parameters?"""

from __future__ import annotations

import pytest

from tests.bad_scripts import read

pytestmark = pytest.mark.quick

NET = """\
import torch, timm
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
    def forward(self, x):
        return self.inner(x)
class Net(nn.Module):
    def __init__(self, wide, given):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = {}
    def forward(self, x, mask=None):
        {}
"""
PLAIN = "return self.second(self.first(x))"


def uses_all(forward: str = PLAIN, made: str = "Block()", more: str = "") -> bool:
    """Whether the model certainly uses all of its parameters."""
    text = NET.format(made, forward.replace("\n", "\n        ")) + more
    return next(one.uses_all for one in read(text).classes if one.name == "Net")


@pytest.mark.parametrize(
    "forward",
    [
        PLAIN,
        "x = self.first(x)\nreturn self.second(x)",
        "y = self.first(x)\nx = y + self.second(y)\nreturn x.mean(1)",
        "assert x.ndim == 2\nif x.shape[1] != 2:\n    raise ValueError(x)\nx = self.first(x)\nreturn self.second(x)",
        "total = 0\nfor part in x:\n    total = total + self.second(self.first(part))\nreturn total",
    ],
)
def test_all_are_used(forward: str) -> None:
    assert uses_all(forward)


@pytest.mark.parametrize(
    "forward",
    [
        "return self.first(x)",
        "y = self.second(x)\nreturn self.first(x)",
        "y = self.second(x)\ny = self.first(x)\nreturn y",
        "x = self.first(x)\nif mask is not None:\n    x = self.second(x)\nreturn x",
        "return self.second(self.first(x)) if mask else self.first(x)",
        "if mask is None:\n    return self.first(x)\nreturn self.second(self.first(x))",
        "return self.first(x), self.second(x)",
        "both = {'a': self.first(x), 'b': self.second(x)}\nreturn both",
        "with torch.no_grad():\n    x = self.first(x)\nreturn self.second(x)",
        "return self.second(self.first(x).detach())",
        "return self.encode(x)",
    ],
)
def test_some_may_be_unused(forward: str) -> None:
    assert not uses_all(forward)


@pytest.mark.parametrize(
    "made",
    [
        "nn.Linear(2, 2)",
        "nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Block())",
        "nn.Sequential([nn.Linear(2, 2), Block()])",
    ],
)
def test_layers_that_are_used(made: str) -> None:
    assert uses_all(made=made)


@pytest.mark.parametrize(
    "made",
    [
        "given",
        "make()",
        "timm.create_model('vit')",
        "nn.LSTM(2, 2)",
        "nn.Sequential(*given)",
        "nn.Linear(2, 2).requires_grad_(False)",
        "nn.Linear(2, 2)\n        if wide:\n            self.third = nn.Linear(2, 2)",
        "nn.Linear(2, 2)\n        self.third = nn.Linear(2, 2)",
        "nn.Linear(2, 2)\n        setattr(self, 'third', nn.Linear(2, 2))",
    ],
)
def test_layers_that_may_be_unused(made: str) -> None:
    assert not uses_all(made=made)


def test_a_layer_of_a_class_that_may_not_use_all() -> None:
    text = NET.format("Block()", PLAIN).replace("return self.inner(x)", "return x")
    assert not any(one.uses_all for one in read(text).classes)
