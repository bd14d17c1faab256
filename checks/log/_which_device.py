"""Which tensor is on the wrong device? torch names the argument of the operation, and the devices in a fixed order.

In "found at least two devices, cuda:0 and cpu! (when checking argument for argument mat1 in method wrapper_CUDA_addmm)"
the second device is that of the named argument, the first one that of the arguments before it.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._followed_values import parsed
from .._wording import at_place
from ._module_cases import called_module, input_not_moved, never_moved, of_accelerate

# https://github.com/pytorch/pytorch/blob/main/c10/core/DeviceGuard.h and aten/src/ATen/core/adaption.cpp
_TWO = re.compile(
    r"found at least two devices, (?P<first>[\w:]+) and (?P<second>[\w:]+)! \(when checking argument for argument "
    r"(?P<argument>\w+) in method wrapper_\w+?_(?P<operation>[a-z]\w*)\)"
)
# Since torch 2.8.
_GOT = re.compile(
    r"but got (?P<argument>\w+) is on (?P<second>[\w:]+), different from other tensors on (?P<first>[\w:]+) \(when "
    r"checking argument in method wrapper_\w+?_(?P<operation>[a-z]\w*)\)"
)
_OF_RNN = re.compile(
    r"[Ii]nput and (?P<what>parameter|hidden) tensors are not at the same device, found input tensor at "
    r"(?P<first>[\w:]+) and \w+ tensor at (?P<second>[\w:]+)"
)
# Where these move or place tensors, the rows' cases know more.
_PLACED = re.compile(r"^accelerate/hooks\.py |^deepspeed/|^torch/nn/parallel/|^torch/optim/|^torch/distributed/fsdp/")
_SPLIT = re.compile(r"cuda:\d+|npu:\d+|xpu:\d+|hip:\d+|mps(?::\d)?|xla:\d+")


class _Roles(NamedTuple):
    """What the named argument of an operation is, and what the ones before it are."""

    named: str
    others: str


_WEIGHTS, _INPUT, _LABELS = "weights", "input", "labels"
# By the operation's name without "wrapper_CUDA_", and its argument.
# fmt: off
_OPERATIONS = {
    ("addmm", "mat1"): _Roles(_INPUT, _WEIGHTS),  # a linear layer: bias, input, weight
    ("addmm", "mat2"): _Roles(_WEIGHTS, _INPUT),
    ("mm", "mat2"): _Roles(_WEIGHTS, _INPUT),
    ("index_select", "index"): _Roles(_INPUT, _WEIGHTS),  # an embedding: weight, ids
    ("embedding", "indices"): _Roles(_INPUT, _WEIGHTS),
    ("native_layer_norm", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("native_batch_norm", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("cudnn_batch_norm", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("native_group_norm", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("cudnn_convolution", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("slow_conv2d_forward", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("prelu_kernel", "weight"): _Roles(_WEIGHTS, _INPUT),
    ("nll_loss_forward", "target"): _Roles(_LABELS, "predictions"),
    ("nll_loss2d_forward", "target"): _Roles(_LABELS, "predictions"),
    ("binary_cross_entropy", "target"): _Roles(_LABELS, "predictions"),
    ("nll_loss_forward", "weight"): _Roles("class weights", "predictions"),
    ("nll_loss2d_forward", "weight"): _Roles("class weights", "predictions"),
}
# fmt: on
_METRIC = re.compile(
    r"Encountered different devices in metric calculation(?:.*?Instead of `metric=(?P<metric>\w+)\()?", re.S
)
_CPU_AND_GPU = re.compile(
    r"found at least two devices, (?:cpu and (?:cuda|npu|xpu|mps)|(?:cuda|npu|xpu|mps)(?::\d+)? and cpu)"
)
_LAYER = re.compile(r"torch/nn/modules/(?!module\.py|container\.py)\w+\.py in |torch/nn/functional\.py in ")


# Functions of torch that make a tensor on the CPU, unless a device is named.
_MAKES = frozenset(
    {"arange", "empty", "eye", "from_numpy", "full", "linspace", "logspace", "ones", "rand", "randint", "randn"}
    | {"randperm", "tril_indices", "triu_indices", "zeros", "hann_window", "hamming_window", "blackman_window"}
)
# What gives a number, or a size, of a tensor: it has no device.
_NUMBERS = frozenset({"item", "tolist", "numpy", "shape", "size", "ndim", "dim", "numel", "dtype"})
_TO_NUMBERS = frozenset({"bool", "float", "int", "len", "range"})
_PLACES = re.compile(r"\bdevice\b|\.(?:to|cuda|type_as|new_\w+)\(")


def made_on_cpu(one: UncaughtException | None) -> Meaning | None:
    """Explain a tensor that the script's own line makes without a device, and combines with one on the GPU."""
    calls = one.calls if one else ()
    code = (one.own_code or "") if one else ""
    if one is None or not calls or calls[-1].package or _PLACES.search(code) or not _CPU_AND_GPU.search(one.message):
        return None
    tree = parsed(code)
    nodes = list(ast.walk(tree)) if tree else []
    elsewhere = {inner for node in nodes for part in _no_operands(node) for inner in ast.walk(part)}
    made = {
        (ast.unparse(node), node.func.attr)
        for node in nodes
        if node not in elsewhere
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _MAKES
        and ast.unparse(node.func.value) == "torch"
    }
    if len(made) != 1:
        return None
    call, function = made.pop()
    return Meaning(
        f"probably {call} makes a tensor on the CPU, and the line combines it with one on the GPU ({one.place})",
        f"torch.{function}() makes it on the CPU, unless a device is set (torch.set_default_device). The line is "
        f'"{code}".',
        (
            Fix("Move it to the device of the other tensor.", ("torch.from_numpy(array).to(x.device)",))
            if function == "from_numpy"  # has no argument for a device
            else Fix(
                "Make it on the device of the other tensor.", (python("torch.{:name}(..., device=x.device)", function),)
            ),
            Fix(
                "Or make it once and keep it in the module, which then moves it.",
                ("self.register_buffer('table', table)",),
            ),
        ),
    )


def _no_operands(node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression that its operation does not combine: indices, and what becomes a number."""
    if isinstance(node, ast.Subscript):
        return [node.slice]  # an index may be on the CPU
    if isinstance(node, ast.Attribute) and node.attr in _NUMBERS:
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TO_NUMBERS:
        return node.args
    return []


def metric_elsewhere(one: UncaughtException | None) -> Meaning | None:
    """Explain a metric of torchmetrics that is on another device than what it is given."""
    found = _METRIC.search(one.message) if one else None
    if one is None or found is None:
        return None
    where = at_place(one)
    line = f' The line is "{one.own_code}".' if one.own_code else ""
    return Meaning(
        f"the metric{f' {name}' if (name := found['metric']) else ''} is on another device than the predictions it "
        f"gets{where}",
        "A metric of torchmetrics keeps its sums in tensors. Those are moved with the model only if the metric is an "
        "attribute of it, or in a ModuleList, a ModuleDict or a MetricCollection. One in a list, a dict or a callback "
        "stays where it was made, and predictions that were moved with .cpu() do not fit a metric on the GPU."
        f"{line}",
        (
            Fix("Move the metric to the device of what it gets.", ("metric = metric.to(preds.device)",)),
            Fix("Or do not move the predictions and targets with .cpu() before the metric gets them."),
        ),
    )


def which_device(one: UncaughtException | None) -> Meaning | None:
    """Explain which tensor is on the CPU and which on the GPU; None if two GPUs, or a library's placing, are meant."""
    text = one.message if one else ""
    found = _TWO.search(text) or _GOT.search(text) or _OF_RNN.search(text)
    if one is None or found is None or any(_PLACED.search(frame) for frame in one.frames):
        return None
    roles = _roles(found.groupdict(), one)
    first, second = found["first"], found["second"]
    if roles is None or "cpu" not in (first, second) or not (_SPLIT.match(first) or _SPLIT.match(second)):
        return None
    on_cpu, on_gpu = (roles.named, roles.others) if second == "cpu" else (roles.others, roles.named)
    where, name = at_place(one), called_module(one)
    if on_cpu == _WEIGHTS:
        return never_moved(name, where, accelerated=of_accelerate(one))
    if on_cpu == _INPUT and on_gpu == _WEIGHTS:
        return input_not_moved(name, where, accelerated=of_accelerate(one))
    return _of_loss(on_cpu, on_gpu, where)


def _roles(groups: dict[str, str], one: UncaughtException) -> _Roles | None:
    if groups.get("what"):
        return _Roles(_WEIGHTS if groups["what"] == "parameter" else "hidden state", _INPUT)
    operation = groups["operation"].strip("_")
    roles = _OPERATIONS.get((operation, groups["argument"]))
    of_layer = bool(one.frames) and bool(_LAYER.search(one.frames[-1]))
    return roles if of_layer else None  # a product in the script's own line has no weights


def _of_loss(on_cpu: str, on_gpu: str, where: str) -> Meaning:
    """Explain labels, class weights or a state that stayed on the CPU."""
    made = {
        _LABELS: "The labels of the batch were not moved to the GPU with the inputs.",
        "predictions": "The model is on the CPU, or its predictions were moved there (.cpu(), a gather), and the "
        "labels were not.",
        "class weights": "The weights of the classes are a tensor that the script makes itself: it stays on the CPU.",
        "hidden state": "The first state of the network is made in the script, and stays on the CPU.",
    }
    right = {
        "predictions": "model.to(labels.device)",
        _INPUT: "x = x.to(h0.device)",
        _LABELS: "labels = labels.to(logits.device)",
        "class weights": "criterion = nn.CrossEntropyLoss(weight=weight.to(device))",
        "hidden state": "h0 = torch.zeros(layers, x.size(0), hidden, device=x.device)",
    }
    verb = "is" if on_cpu in (_INPUT, "hidden state") else "are"
    return Meaning(
        f"the {on_cpu} {verb} on the CPU, and the {on_gpu} on the GPU{where}",
        made.get(on_cpu, "One of the two was not moved to the GPU."),
        (Fix("Move them to the same device.", (right.get(on_cpu, "x = x.to(y.device)"),)),),
    )
