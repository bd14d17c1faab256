"""Which type does a message of torch name that an operation, a loss, an index or numpy does not take?

The message has the operation and the type: they decide what to convert, and to what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place

_LACKS = re.compile(r"\"(?P<op>\w+)\" not implemented for '(?P<dtype>Half|BFloat16|Float8\w*)'")
_OF_INTEGERS = re.compile(r"bitwise_|^[lr]?shift|_?(?:gcd|lcm|bincount|unique_dim)_?|(?:and|or|xor)_")
_ON_CPU = re.compile(r"cpu|out_frame|KernelImpl|kernel_impl|slow_conv|compute_indices_weights")
_OF_TARGET = re.compile(r"\"nll_loss\w*_index\" not implemented for '(?P<dtype>\w+)'")
_OF_OUTPUT = re.compile(r"\"nll_loss\w*\" not implemented for '(?P<dtype>Long|Int|Short|Byte|Char|Bool)'")
_INDICES = re.compile(r"'indices' to have one of the following .*but got torch\.(?:\w+\.)?(?P<dtype>\w+)Tensor instead")
# fmt: off
_PRINT = Fix("Print the type just before that line.", ("print(x.dtype, x.device)",))
_KINDS = (
    (r"Complex\w+", "It has complex numbers, and torch has this operation for real ones only.",
     Fix("Use the magnitude or the real part, or treat the two parts as real numbers.",
         ("x.abs()", "x.real", "torch.view_as_real(x)"))),
    (r"Bool", "It has bools: a mask, or the result of a comparison. Few computations take them.",
     Fix("Convert it before the operation, and use ~ for \"not\".", ("mask.float()", "~mask  # not 1 - mask"))),
    (r"UInt(?:16|32|64)", "torch has few operations for unsigned integers other than uint8. numpy and image files "
     "make them.", Fix("Convert it where it is read.", ("x = x.to(torch.int64)", "array.astype('int32')"))),
    (r"Long|Int|Short|Byte|Char", "It has integers: counts, ids, labels or bytes of an image, what argmax() returns, "
     "or a tensor that was made of Python integers or with the dtype of another one. torch has this operation for "
     "floating point numbers.",
     Fix("Convert it before the operation, or make it of floating point numbers.",
         ("x = x.float()", "torch.zeros(n)  # not dtype=torch.long"))),
)
# fmt: on


def operation_of_type(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an operation that torch does not have for a type; None for a type that says nothing by itself."""
    op, dtype = groups["op"], groups["dtype"]
    title = f"an operation ({op}) got a tensor of the type {dtype}, for which torch has no code{at_place(raised)}"
    for pattern, why, fix in _KINDS:
        if re.fullmatch(pattern, dtype):
            return Meaning(title, why, (fix, _PRINT))
    if dtype in ("Float", "Double") and _OF_INTEGERS.search(op):
        return Meaning(
            title,
            "This operation works on the bits of integers, or counts them. The tensor has floating point numbers: "
            "numpy, a table, a division, or a mask that is not bool made it so.",
            (Fix("Convert it before the operation.", ("mask = mask.bool()", "ids = ids.long()")), _PRINT),
        )
    return None


def operation_in_half(raised: UncaughtException) -> Meaning | None:
    """Explain an operation that torch does not have in half precision."""
    found = _LACKS.search(raised.message)
    if found is None:
        return None
    op, dtype = found["op"], found["dtype"]
    cuda, cpu = "cuda" in op, _ON_CPU.search(op)
    where = "on a GPU" if cuda else "on the CPU" if cpu else "on this device"
    why = "It computes in more than 16 bits only: convert its input, and the result back."
    on_cpu = (
        "On the CPU, torch lacks operations in 16 bits, and older releases lack most of those in fp16 (Half). The "
        "model or its input was converted: half(), a dtype in a config, a checkpoint in fp16."
    )
    convert = Fix(
        "Convert around that line.", ("y = f(x.float()).to(x.dtype)", "with torch.autocast('cuda', enabled=False): ...")
    )
    on_gpu = Fix("On the CPU, compute in float32, or move all to a GPU.", ("model.float()", "x = x.float()"))
    return Meaning(
        f"torch has no {op} for the type {dtype} {where}{at_place(raised)}",
        why if cuda else on_cpu if cpu else f"{on_cpu} On a GPU, some operations compute in more than 16 bits only.",
        (convert,) if cuda else (on_gpu,) if cpu else (on_gpu, convert),
        complete=True,
    )


def type_of_labels(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain whether the labels, the output or the indices have the wrong type; None without the exception."""
    if raised is None:
        return None
    text = f"{raised.message} {raised.more or ''}"
    if (found := _INDICES.search(text)) and found["dtype"] not in ("Half", "BFloat16"):
        return Meaning(
            f"the indices of an embedding are of the type {found['dtype']}, and must be integers (Long or Int)"
            f"{at_place(raised)}",
            "They are ids: of tokens, users, items or classes. A table, numpy, a division, or a tensor that also has "
            "other columns made them floating point numbers or another type.",
            (Fix("Convert them where the batch is made, or before that line.", ("ids = ids.long()",)),),
        )
    if found := _OF_TARGET.search(text):
        return Meaning(
            f"the labels of the loss have the type {found['dtype']}, and must be int64 (Long){at_place(raised)}",
            "Class numbers are indices. numpy, a table or a collate function made them int32 or floating point.",
            (Fix("Convert them where the batch is made.", ("labels = labels.long()",)),),
        )
    if found := _OF_OUTPUT.search(text):
        return Meaning(
            f"the loss got an output of the type {found['dtype']}, not of floating point numbers{at_place(raised)}",
            "The first argument of a classification loss is the scores of all classes. argmax() or a conversion "
            "(.long()) before the loss makes integers of them; or output and labels are exchanged.",
            (Fix("Give the loss the scores, and the labels second.", ("loss = criterion(model(x), labels)",)),),
        )
    return None


def not_for_numpy(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain why a tensor cannot become an array: its device, its gradient or its type."""
    if raised is None:
        return None
    what, at = groups["what"], at_place(raised)
    if device := re.search(r"convert (\S+) device", what):
        return Meaning(
            f"a tensor on {device[1]} is converted to numpy, which reads the memory of the CPU only{at}",
            "plt.plot(), np.array(), scikit-learn and .numpy() need a tensor on the CPU. In a list of tensors, each "
            "must be there.",
            (Fix("Copy it to the CPU first.", ("x.detach().cpu().numpy()", "losses.append(loss.item())")),),
        )
    if "requires grad" in what:
        return Meaning(
            f"a tensor that requires gradients is converted to numpy{at}",
            "Autograd does not follow numpy. plt.plot(), np.array() and scikit-learn convert what they get.",
            (Fix("Detach it first, or keep numbers.", ("x.detach().cpu().numpy()", "losses.append(loss.item())")),),
        )
    dtype = what.rpartition(" ")[2]
    return Meaning(
        f"a tensor of the type {dtype} is converted to numpy, which has no such type{at}",
        "Models in 16 bits or less, and autocast, return such tensors.",
        (Fix("Convert it to float32 first.", ("x.detach().float().cpu().numpy()",)),),
    )
