"""Which method of a base class of torch or gym, which a subclass has to define, was called without being defined?

The base class only raises NotImplementedError there, without a message.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._names_not_set import Answered

_FORWARD = re.compile(r"^torch/nn/modules/module\.py in (?:_forward_unimplemented|forward)$")
_BASES = re.compile(
    r"^(?P<file>torch/utils/data/(?:dataset|sampler|dataloader)\.py|"
    r"torch/autograd/function\.py|torch/optim/(?:optimizer|lr_scheduler)\.py|gym(?:nasium)?/(?:core|vector/\S+)\.py|"
    r"torchvision/datasets/vision\.py) in (?P<method>\w+)$"
)
_DISTRIBUTION = re.compile(r"^torch/distributions/(?:distribution|exp_family)\.py in (?P<method>\w+)$")
_PROPERTIES = frozenset({"mean", "variance", "support", "arg_constraints"})


def without_method(one: UncaughtException) -> Answered | None:
    """Explain a method that only the base class has; None if another function raised the exception."""
    frame = one.frames[-1] if one.frames else ""
    at = at_place(one)
    if _FORWARD.match(frame):
        return Answered(
            f"a module was called that has no forward(){at}",
            "Either it only holds others (nn.ModuleList, nn.ModuleDict), or forward() of its class is misspelled, "
            "indented wrongly or nested in another method.",
            (
                Fix(
                    "Call the modules in it, or define forward() in its class.",
                    ("for layer in layers: x = layer(x)", "grep -rn --include='*.py' 'def forward' ."),
                ),
            ),
        )
    if found := _DISTRIBUTION.match(frame):
        return _of_distribution(found["method"], at)
    if found := _BASES.match(frame):
        method = found["method"]
        return Answered(
            f"the class of the object does not define {method}(), which its base class requires{at}",
            f"{found['file']} only declares {method}(). In the class that derives from it, the method is missing, "
            "misspelled, indented wrongly (outside of the class, in another method), or has other underscores.",
            (
                Fix(
                    "Define it in the class, with exactly this name.",
                    (shell("grep -rn --include='*.py' {} .", f"def {method}"),),
                ),
            ),
        )
    return None


def _of_distribution(method: str, at: str) -> Answered:
    """Explain a method or property for which a distribution of torch has no formula."""
    if method != "entropy":
        name = method if method in _PROPERTIES else f"{method}()"
        return Answered(
            f"this distribution of torch has no {name}{at}",
            "torch has a formula for it for some distributions only: discrete ones have no rsample(), many have no "
            "cdf() and icdf(), and those that are transformed have no mean and variance.",
            (
                Fix(
                    "Estimate it from samples, or use that of the base distribution.",
                    ("x = dist.sample((1000,)); print(x.mean(0), x.var(0))", "dist.base_dist"),
                ),
            ),
        )
    return Answered(
        f"this distribution of torch has no entropy(){at}",
        "Not every distribution has a formula for it: transformed distributions, mixtures and a squashed Normal have "
        "none.",
        (
            Fix(
                "Estimate it from samples, or use that of the base distribution.",
                ("entropy = -dist.log_prob(dist.rsample())", "dist.base_dist"),
            ),
        ),
    )
