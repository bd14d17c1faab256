"""Which dtype has a layer's input, and which its weights? Texts for `log_types_differ`."""

from __future__ import annotations

import ast
import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._followed_values import call_of
from .._wording import at_place
from ._refusal import layer_of

_PAIR = re.compile(
    r"Input type \((?P<input>[^)]+)\) and (?:bias|weight) type \((?P<weight>[^)]+)\) should be the same|"
    r"mat1 and mat2 must have the same dtype, but got (?P<first>\w+) and (?P<second>\w+)"
)
_LAYER = re.compile(r"torch/nn/modules/(?:linear|conv)\.py in (?:forward|_conv_forward)$")
_NAMES = {"double": "fp64", "float": "fp32", "half": "fp16", "bfloat16": "bf16"}
_TORCH_NAMES = {"fp64": "torch.float64", "fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}
_SHORT = ("fp16", "bf16")


def layer_types(one: UncaughtException) -> Meaning | None:
    """Explain a layer of torch whose input has another floating point type than its weights."""
    found = _PAIR.search(one.message)
    if found is None or not one.frames or not _LAYER.search(one.frames[-1]):
        return None
    given, own = (_dtype(found[a] or found[b] or "") for a, b in (("input", "first"), ("weight", "second")))
    if not given or not own or given == own:
        return None
    layer = _called(one)
    return Meaning(
        f"{layer} has {own} weights and gets an input in {given}{at_place(one)}",
        _why(given, own),
        (
            Fix(
                "Convert the input to the dtype of the weights, before the call.",
                (python("x = x.to({:dotted})", _TORCH_NAMES[own]),),
            ),
            _beside(given, own),
        ),
        complete=True,
    )


def _dtype(text: str) -> str | None:
    name = re.sub(r"^.*[.:]|Tensor$", "", text).lower()
    return _NAMES.get(name)


def _called(one: UncaughtException) -> str:
    """Return the layer as the line that calls it names it."""
    line = next((call.code for call in reversed(one.calls) if not call.place.startswith("torch/")), None)
    call = call_of(line or "", "forward")
    name = ast.unparse(call.func) if call else ""
    layer = name if re.fullmatch(r"self(?:\.\w+)+", name) else layer_of(one)
    return "a layer" if layer == "the layer" else layer


def _why(given: str, own: str) -> str:
    if given == "fp64":
        return (
            "numpy computes in fp64, and torch.from_numpy() and torch.tensor(array) keep that; constants and schedules "
            "made with numpy turn what they are multiplied with into fp64, too. Layers do not convert their input."
        )
    if own == "fp64":
        return (
            "The weights are in fp64 after model.double(), torch.set_default_dtype(torch.float64), or because they "
            "were made from an array of numpy. GPUs compute many times slower in it."
        )
    if own in _SHORT and given == "fp32":
        return (
            f"The weights were loaded or converted to {own}. Images, embeddings and what comes out of a norm or a loss "
            "are fp32, and outside of autocast a layer does not convert its input."
        )
    if given in _SHORT and own == "fp32":
        return (
            f"What is before this layer computes in {given}. This layer was made or loaded in fp32: a new head, an "
            "adapter, a projector, an encoder of its own. Outside of autocast a layer does not convert its input."
        )
    return "Parts of the model were loaded or converted to different types, and this call is outside of autocast."


def _beside(given: str, own: str) -> Fix:
    if own == "fp64":
        return Fix("Or convert the model, unless it has to compute in fp64.", ("model = model.float()",))
    if given == "fp64":
        return Fix("Or make the data in 32 bits.", ("array = array.astype('float32')", "torch.from_numpy(a).float()"))
    if given in _SHORT and own == "fp32":
        return Fix(
            "Or convert that layer once, or call both inside autocast.",
            (
                python("layer.to(dtype={:dotted})", _TORCH_NAMES[given]),
                python("with torch.autocast('cuda', dtype={:dotted}):", _TORCH_NAMES[given]),
            ),
        )
    return Fix(
        "Or call it inside autocast, which converts both.",
        (python("with torch.autocast('cuda', dtype={:dotted}):", _TORCH_NAMES[own if own in _SHORT else "bf16"]),),
    )
