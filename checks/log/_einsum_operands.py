"""Which tensor of an einsum call does not fit its equation? The message has only the operand's number."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._followed_values import call_of
from .._wording import at_place

_DIMENSIONS = re.compile(
    r"subscripts in the equation \((?P<named>\d+)\) (?:does not match|is more than) the number of dimensions "
    r"\((?P<has>\d+)\) for operand (?P<operand>\d+)"
)
_SIZES = re.compile(
    r"subscript (?P<letter>\w) has size (?P<size>\d+) for operand (?P<operand>\d+) which does not broadcast with "
    r"previously seen size (?P<seen>\d+)"
)
_SHAPE = re.compile(r"Input tensor shape: (?:torch\.Size\()?[\[(](?P<shape>[\d, ]*)[\])]")
_EINOPS_DIMS = re.compile(r"expected (?P<named>\d+) dims\. Received (?P<has>\d+)-dim")
_EINOPS_DIVIDES = re.compile(r"can't divide axis of length (?P<length>\d+) in chunks of (?P<by>\d+)")
_LONGEST = 60  # characters of an expression in a title
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


class _Operand(NamedTuple):
    """A tensor that einsum got."""

    name: str  # as the line writes it; "" if the log does not show it
    letters: str  # its part of the equation; "" likewise
    equation: str
    number: int  # counted from 0, as in the message
    place: str  # of the call; "" if the log does not have it

    @property
    def at(self) -> str:
        """The place in brackets."""
        return f" ({self.place})" if self.place else ""

    @property
    def position(self) -> str:
        """Where it is in the call: "operand 0, the first tensor after the equation"."""
        which = _ORDINALS[self.number] if self.number < len(_ORDINALS) else f"{self.number + 1}th"
        equation = f" '{self.equation}'" if self.equation else ""
        return f"operand {self.number}, the {which} tensor after the equation{equation}"


def explain_einsum(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the operand that does not fit, with both numbers; None if the message is another one."""
    text = groups["said"]
    if found := _DIMENSIONS.search(text):
        return _other_dimensions(_operand(raised, int(found["operand"])), int(found["named"]), int(found["has"]))
    if found := _SIZES.search(text):
        return _other_size(_operand(raised, int(found["operand"])), found)
    return _of_einops(raised) if raised else None


def _of_einops(raised: UncaughtException) -> Meaning | None:
    """Explain what einops refuses: the lines after its message have the shape and the reason."""
    text = f"{raised.message}\n{raised.more or ''}"
    shape, dims, divided = (pattern.search(text) for pattern in (_SHAPE, _EINOPS_DIMS, _EINOPS_DIVIDES))
    if shape is None or (dims is None and divided is None):
        return None
    at = at_place(raised)
    if dims:
        what = f"it names {dims['named']} dimensions, and the tensor has {dims['has']}"
        why = (
            "A batch dimension is missing or there twice (one sample, unsqueeze(), squeeze()), or what comes before it "
            "returns another form."
        )
        fix = Fix("Add or remove the dimension where the tensor is made.", ("x = x.unsqueeze(0)  # a batch of one",))
    else:
        length, by = (divided["length"], divided["by"]) if divided else ("", "")
        what = f"an axis of {length} cannot be divided into parts of {by}"
        why = (
            f"{length} is not a multiple of {by}: another image size, length or number of heads than the code expects."
        )
        fix = Fix(f"Resize, pad or cut to a multiple of {by}, or use another size of the parts.")
    return Meaning(
        f"the pattern of einops does not fit a tensor of the shape [{shape['shape']}]: {what}{at}",
        why,
        (Fix("Print the shape just before that line.", ("print(x.shape)",)), fix),
    )


def _operand(raised: UncaughtException | None, number: int) -> _Operand:
    """Return what the innermost call of einsum in the traceback passes as an operand."""
    for call in reversed(raised.calls if raised else ()):
        made = call_of(call.code or "", "einsum") if call.package != "torch" else None
        if made is None or not made.args or any(isinstance(arg, ast.Starred) for arg in made.args):
            continue
        first = made.args[0]
        if not isinstance(first, ast.Constant | ast.Name) or isinstance(made.args[-1], ast.Constant):
            continue  # einops has the pattern last; torch's other form has lists of numbers
        equation = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        operands = made.args[1:]
        if len(operands) == 1 and isinstance(operands[0], ast.List | ast.Tuple):
            operands = operands[0].elts
        parts = equation.partition("->")[0].replace(" ", "").split(",")
        name = ast.unparse(operands[number]) if number < len(operands) else ""
        letters = parts[number] if number < len(parts) else ""
        return _Operand(name if len(name) <= _LONGEST else "", letters, equation, number, call.place)
    return _Operand("", "", "", number, (raised.place if raised else None) or "")


def _shapes(operand: _Operand) -> Fix:
    shape = python("print({:dotted}.shape)", operand.name) or "print(x.shape)"
    return Fix("Print its shape where it is made and before this line.", (shape,))


def _other_dimensions(operand: _Operand, named: int, has: int) -> Meaning:
    """Explain a tensor that has more or fewer dimensions than its part of the equation has letters."""
    letters = f"{named} ({operand.letters})" if operand.letters else f"{named}"
    more = (
        "More dimensions than expected usually come from broadcasting before it: adding or multiplying a mask, a bias "
        "or a position table that has more dimensions than the tensor, masked_fill or torch.where with such a mask, or "
        "an unsqueeze, a stack or an index with None too many."
        if has > named
        else "Fewer dimensions than expected usually come from a squeeze, a reduction or an index that removes one, or "
        "from a single sample without its batch dimension."
    )
    drop = Fix(
        "Give the mask the dimensions of what it is applied to, or remove the extra one where it is added.",
        ("print(scores.shape, mask.shape)", "mask = mask.squeeze(1)"),
    )
    add = Fix("Keep the dimension where it is lost.", ("x = x.sum(dim=1, keepdim=True)", "x = x.unsqueeze(0)"))
    return Meaning(
        f"{operand.name or f'operand {operand.number} of einsum'} has {has} dimensions, and the equation of einsum "
        f"names {letters} for it{operand.at}",
        f"It is {operand.position}. Each letter is one dimension. {more}",
        (_shapes(operand), drop if has > named else add),
    )


def _other_size(operand: _Operand, found: re.Match[str]) -> Meaning:
    """Explain a letter that stands for two sizes."""
    return Meaning(
        f"the letter {found['letter']} of einsum's equation is {found['size']} in "
        f"{operand.name or f'operand {operand.number}'} and {found['seen']} in a tensor before it{operand.at}",
        f"{operand.name or 'It'} is {operand.position}. One letter is one size in all tensors. The two come from "
        "different settings or lengths (heads, features, queries and keys), one of them is transposed, the letters "
        "are in another order than the dimensions, or one has sizes per rank (tensor parallelism).",
        (_shapes(operand), Fix("Correct the order of the letters, or the tensor with the other size.")),
    )
