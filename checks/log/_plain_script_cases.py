"""What does a message that mostly comes from a framework mean in a script that uses torch alone?

The rows of these messages explain the framework's case: sharded weights, a pipeline, quantized layers. Without a
framework among the frames, the message means what it says. Texts for the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Case, Meaning
from mgpu.snapshot import Log, UncaughtException

from .._wording import at_place
from ._circumstances import every, own_line, several_ranks
from ._layer_dtypes import layer_types
from ._refusal import layer_of
from ._refused_by_layers import alike
from ._refused_by_torch import refused_by_torch
from ._unsupported_types import operation_in_half

_JOINED = re.compile(r"except in dimension (?P<dim>\d+)\. Expected size (?P<one>\d+) but got size (?P<other>\d+)")
_PRODUCT = re.compile(r"@|\b(?:\w*matmul|\w*mm|linear|einsum|inner)\(")
_LOSS = re.compile(r"loss|criterion|entropy", re.I)
_SHARDED = ("torch/distributed/", "torch/nn/parallel/", "torch/utils/checkpoint.py")
# fmt: off
_OF_ROWS = alike(
    "The argument of backward() is the gradient of the output, in its shape. A loss that is a single number "
    "needs none.",
    (Fix("Reduce the output to a loss, or give a gradient of its shape.",
         ("out.mean().backward()", "out.backward(torch.ones_like(out))")),),
    (r"Mismatch in shape: grad_output\[\d+\] has a shape of torch\.Size\((?P<got>\[[\d, ]*\])\) and "
     r"output\[\d+\] has a "
     r"shape of torch\.Size\((?P<wanted>\[[\d, ]*\])\)",
     "backward() gets a gradient of the shape {got} for an output of the shape {wanted}{at}"),
) + alike(
    "expand() and broadcasting repeat one value in memory without copying it, so it cannot be written to.",
    (Fix("Copy it before, or compute out of place.", ("x = x.expand(n, -1).clone()", "x = x + 1  # not x += 1")),),
    (r"more than one element of the written-to tensor refers to a single memory location",
     "an expanded tensor is changed in place{at}"),
) + alike(
    "A distribution gives probabilities only to the values it can have: 0 to classes - 1 for Categorical, 0 and 1 for "
    "Bernoulli, numbers above 0 for LogNormal, between -1 and 1 for a squashed Normal. The value is NaN (the model or "
    "the data had NaN before), comes from the data or from another space of actions, or was rounded to the border.",
    (Fix("Print what is wrong with the values, and renumber labels or actions where they are made.",
         ("print(value.isnan().any(), value.min(), value.max())",)),
     Fix("Only values that rounding put on the border may be moved off it.", ("value.clamp(1e-6, 1 - 1e-6)  # Beta",))),
    (r"Expected value argument \(.{0,400}to be within the support \("
     r"(?P<support>(?!(?:IndependentConstraint\()?Real\().{1,80}?)\) of the distribution (?P<name>\w+)",
     "log_prob() of {name} gets NaN or a value outside of its support, {support}{at}"),
) + alike(
    "A 2D mask of nn.MultiheadAttention is (target length, source length), a 3D one (batch x heads, target length, "
    "source length). It was made for another length, before padding or cutting, or has one entry per sample.",
    (Fix("Make the mask from the tensors, and use key_padding_mask for padding.",
         ("mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))",
          "mask = mask.repeat_interleave(num_heads, dim=0)  # (batch, L, S)")),),
    (r"The shape of the (?P<number>\dD) attn_mask is torch\.Size\((?P<got>\[[\d, ]+\])\), but should be "
     r"\((?P<wanted>[\d, ]+)\)", "the {number} attn_mask has the shape {got}, and must be [{wanted}]{at}"),
) + alike(
    "The input is too small for the number of strides and poolings before it (32 x 32 for a model of 224 x 224, "
    "a short "
    "clip), or its dimensions are in another order, so that channels count as height or width.",
    (Fix("Print the shape, then resize the input, or use fewer layers with a stride or padding=1.",
         ("print(x.shape)  # N, C, H, W", "transforms.Resize((224, 224))")),),
    (r"input size per channel: \((?P<got>[\d x]+)\)\. Kernel size: \((?P<size>[\d x]+)\)\. Kernel size can't be",
     "the input of {layer}, ({got}) with its padding, is smaller than the kernel ({size}){at}"),
    (r"Given input size: \((?P<got>[\dx]+)\)\. Calculated output size: \((?P<size>[-\dx]+)\)",
     "the input of {layer}, ({got}), is smaller than the kernel: ({size}) would be left{at}"),
) + alike(
    "A layer does not convert its input. Images are bytes (unsigned char) until they are converted, a model in half "
    "precision needs half precision input, and what runs outside of autocast is not converted either.",
    (Fix("Convert the input to the type of the weights, or run it inside autocast.",
         ("x = x.float() / 255  # images as bytes", "x = x.to(next(model.parameters()).dtype)",
          "with torch.autocast('cuda', dtype=torch.bfloat16): ...")),),
    (r"Input type \((?P<one>torch\.(?P<gpu>cuda\.)?\w+|[\w: ]+)\) and (?P<what>bias|weight) type \("
     r"(?P<other>(?(gpu)torch\.cuda\.|torch\.(?!cuda\.))\w+|[\w: ]+)\) should be the same",
     "the input of {layer} has the type {one}, and its {what} {other}{at}"),
    (r"must have the same dtype, but got (?P<one>(?:Half|BFloat16|Float|Complex\w+)) and "
     r"(?P<other>(?:Half|BFloat16|Float)"
     r"\b)", "two factors of a product, such as input and weight, have the types {one} and {other}{at}"),
    (r"Expected query, key, and value to have the same dtype, but got query\.dtype: (?P<query>\S+) key\.dtype: "
     r"(?P<key>\S+) and value\.dtype: (?P<value>\S+) instead",
     "query, key and value of the attention have the types {query}, {key} and {value}{at}"),
) + alike(
    "item(), float(), int() and `if` take one number. There is one per sample or class, a list of tensors is to be "
    "stacked, or a loss was given the tensors when it was made: nn.CrossEntropyLoss(out, y).",
    (Fix("Reduce it, take one, or say what is meant.",
         ("x.mean().item()", "if (a == b).all(): ...", "torch.stack(list_of_tensors)",
          "nn.CrossEntropyLoss()(out, y)  # first make it, then call it")),),
    (r"Boolean value of Tensor with more than one value is ambiguous",
     "a tensor with several values is used as a single yes or no{at}"),
    (r"only one element tensors can be converted to Python scalars",
     "a tensor with several values is used as one number{at}"),
    (r"a Tensor with (?P<number>\d+) elements cannot be converted to Scalar",
     "a tensor with {number} elements is used as one number{at}"),
) + alike(
    "cat() joins along one dimension, and all other sizes must be equal. A convolution without padding, a stride or an "
    "odd size makes one of them smaller, samples have different lengths, or the wrong dimension is joined.",
    (Fix("Print the shapes, then pad, cut or resize one, or join along the dimension that differs.",
         ("print([t.shape for t in tensors])", "x = F.interpolate(x, size=skip.shape[-2:])",
          "nn.utils.rnn.pad_sequence(tensors, batch_first=True)")),),
    (r"Sizes of tensors must match except in dimension (?P<dim>\d+)\. Expected size (?P<one>\d+) but got size "
     r"(?P<other>\d+) for tensor number (?P<number>\d+)",
     "tensors of different sizes are joined along dimension {dim}: {one} and {other} in another{at}"),
) + alike(
    "A size is computed from others, such as a length minus a window or a maximum, and came out below 0.",
    (Fix("Print what it is computed from, and skip or pad what is too short.", ("print(x.shape)", "max(0, n)")),),
    (r"Trying to create tensor with negative dimension (?P<got>-\d{1,6})\b(?:: \[(?P<shape>[-\d, ]+)\])?",
     "a tensor with the negative size {got} is made: [{shape}]{at}"),
)
# fmt: on


def joined_in_plain_script(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return what joined sizes mean in such a script; None for maps that differ by one, which a case explains."""
    found = _JOINED.search(raised.message) if raised else None
    if found is None or (found["dim"] == "1" and abs(int(found["one"]) - int(found["other"])) == 1):
        return None
    return in_plain_script(groups, raised)


def product_in_plain_script(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain the product in a script without a framework: a layer with its input, or two tensors of a line."""
    if raised is None or not raised.frames or {*raised.packages} - {"", "torch"}:
        return None
    at, rows, columns = at_place(raised), groups["b"], groups["c"]
    product = _PRODUCT.search(raised.code or "")
    if raised.raised_in_own_code and product:
        return Meaning(
            f"two matrices cannot be multiplied: {groups['a']}x{rows} and {columns}x{groups['d']}{at}",
            f"The first has {rows} columns and the second {columns} rows, and these must be equal. One of them has to "
            "be transposed, or was made for another number of features.",
            (Fix("Print both shapes, and transpose one.", ("print(a.shape, b.shape)", "a @ b.transpose(-1, -2)")),),
        )
    return Meaning(
        f"{layer_of(raised).replace('the layer', 'a layer')} expects {columns} input features, but got {rows}{at}",
        f"The input is {groups['a']}x{rows}, the weight {columns}x{groups['d']}. The layer was made for another "
        f"size of "
        "its input: another image size before flatten(), another number of columns, a concatenation, or dimensions in "
        "another order (the features are the last one).",
        (
            Fix("Print the shape just before that line.", ("print(x.shape)",)),
            Fix(
                "If the input is as it should be, make the layer for it.",
                (
                    python("nn.Linear({:number}, {:number})", rows, groups["d"]),
                    python("nn.LazyLinear({:number})  # takes its size from the first input", groups["d"]),
                ),
            ),
        ),
    )


def in_plain_script(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return what the message means if only the script and torch are among the frames; None otherwise."""
    if raised is None or not raised.frames or {*raised.packages} - {"", "torch"}:
        return None
    if any(frame.startswith(_SHARDED) for frame in raised.frames):
        return None
    if raised.message.startswith("result type") and _LOSS.search(f"{raised.own_code} {raised.frames[-1]}"):
        return None  # labels of a loss, which the row explains
    text = "\n".join(filter(None, (raised.message, raised.more)))
    meant = next((meant for known in _OF_ROWS if (meant := known.read(raised, text))), None) or refused_by_torch(raised)
    return Meaning(meant.title, meant.why, meant.fixes, complete=True) if meant else None


def _in_half(raised: UncaughtException) -> Meaning | None:
    return None if any(map(_IN_OPTIMIZER.search, raised.frames)) else operation_in_half(raised)


_IN_OPTIMIZER = re.compile(r"^torch/optim/|^(?:deepspeed|apex)/\S*adam\S*\.py in")  # which a case explains


def _without_shards(log: Log, raised: UncaughtException | None) -> bool:
    """Whether nothing in the log shows shards: no framework among the frames, and no other rank."""
    signs = {"fsdp", "zero_three", "optimizer_offloaded", "tensor_parallel"}
    if raised is None or not raised.frames or {*raised.packages} - {"", "torch"} or several_ranks(log, raised):
        return False
    shards = any(one.name in signs for one in log.shows) or any(one.startswith(_SHARDED) for one in raised.frames)
    return not shards


# fmt: off
WEIGHT_OF_ONE_PROCESS = Case(
    every(_without_shards, own_line(r"\b(?:\w*mm|mv|matmul|embedding|linear|conv\dd|\w+_norm)\(|@")),
    "a weight, or a factor of a product, has fewer dimensions than the operation needs: {the_line}",
    "The tensor was flattened, squeezed or indexed before, or another one is passed in its place: a bias, a row. "
    "If its size is 0, its values are elsewhere: ZeRO-3 and FSDP leave that outside of the wrapped model.",
    (Fix("Print the shapes of all tensors in that line.", ("print(x.shape, weight.shape)",)),
     Fix("Give it the dimension that it lacks.",
         ("torch.mv(matrix, vector)  # or matrix @ vector", "weight = weight.view(out_features, in_features)"))),
    'Traceback (most recent call last):\n  File "/home/ada/fit.py", line 7, in main\n    y = torch.mm(a, b)\n'
    "RuntimeError: mat2 must be a matrix, got 1-D tensor\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.mm.html")
# fmt: on


_INDEXED = re.compile(r"Index put requires .* got (?P<kept>\w+) for the destination and (?P<given>\w+) for the source")


def types_differ(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an assignment by an index and a layer's input; other messages as `in_plain_script` does."""
    found = _INDEXED.search(raised.message) if raised else None
    if found is None or raised is None:
        return (layer_types(raised) or _in_half(raised) if raised else None) or in_plain_script(groups, raised)
    at = at_place(raised)
    return Meaning(
        f"values of the type {found['given']} are written by an index into a tensor of the type {found['kept']}{at}",
        "x[index] = values does not convert the values, other than most operations. Autocast computes some results in "
        "half precision and others, such as losses and norms, in Float: a tensor that is made like one of the first "
        "(zeros_like, new_zeros) does not fit the second.",
        (
            Fix("Convert the values in that line.", ("x[index] = values.to(x.dtype)",)),
            Fix("Or make the tensor with the type of the values.", ("torch.zeros_like(x, dtype=values.dtype)",)),
        ),
        complete=True,
    )
