"""Which collectives did two ranks call at once, by the fingerprints that torch compares, and what does that mean?

With TORCH_DISTRIBUTED_DEBUG=DETAIL each rank sends the others a fingerprint of its call first. torch can read another
rank's only if it has as many numbers as its own. Otherwise it prints the sequence number 0, and as the operation the
one whose number is that count (measured: torch 2.13, CPU, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

_CALL = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(?P<number>\d+)(?:, )?)?"
    r"OpType=(?P<operation>[A-Z_]+)(?:, TensorShape=\[(?P<shape>[\d, ]*)\](?:, TensorDtypes=(?P<type>\w+))?)?"
)
_WITHOUT_TENSOR = ("BARRIER", "ALLTOALL_BASE")
# fmt: off
# What a fingerprint that torch could not read is of, by the operation that it prints instead.
_UNREAD = {
    "REDUCE": "a call without a tensor to compare, such as a barrier",
    "ALLGATHER_COALESCED": "a call with a tensor without dimensions",
    "GATHER": "a call with a tensor of 1 dimension",
    "SCATTER": "a call with a tensor of 2 dimensions",
    "REDUCE_SCATTER": "a call with a tensor of 3 dimensions",
    "ALLTOALL": "a call with a tensor of 4 dimensions",
}
# fmt: on
_BRANCHES = (
    "The code takes another way on one of them: a condition on the rank, on its files or its batch, a loop with "
    "another number of steps, a part of the model that one batch skips, or an exception that only one rank handles."
)
COMPARE_STACKS = Fix(
    "Compare where the ranks are: in their tracebacks, or while they run.",
    ("mgpu doctor --log rank0.log rank1.log ...", "py-spy dump --pid PID"),
)
_SAME_CALLS = Fix("Make all ranks run the same calls in the same order.", ("mgpu doctor --script train.py",))
_PAD = Fix(
    "Give the tensor the same shape on all ranks: pad it before the call, and drop or pad the last batch.",
    ("accelerator.pad_across_processes(tensor, dim=0)", "DataLoader(..., drop_last=True)"),
)


class _Call(NamedTuple):
    rank: str
    number: str | None
    operation: str
    shape: str | None  # None: without a tensor
    type: str | None

    @property
    def text(self) -> str:
        if self.shape is None:
            return self.operation
        return f"{self.operation} of the shape [{self.shape}]{f' ({self.type})' if self.type else ''}"


def explain_calls(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain how the calls of two ranks differ; None if the line does not have them."""
    found = [
        _Call(*call.group("rank", "number", "operation", "shape", "type")) for call in _CALL.finditer(groups["calls"])
    ]
    if not found:
        return None
    one = found[0]
    if len(found) == 1:
        return _of_one(one)
    other = found[1]
    if _unread(one, other):
        return _of_unread(one, other)
    if one.operation != other.operation:
        return Meaning(
            f"rank {one.rank} is in {one.text}, and rank {other.rank} in {other.text}",
            f"The ranks are at different places of the program. {_BRANCHES} Padding a tensor does not help.",
            (COMPARE_STACKS, _SAME_CALLS),
        )
    return _of_same_operation(one, other)


def _unread(one: _Call, other: _Call) -> bool:
    """Whether torch could not read the other rank's fingerprint, so its operation is not the one that is printed."""
    blank = other.number == "0" and other.shape is None
    return blank and (one.shape is not None or other.operation not in _WITHOUT_TENSOR)


def _of_one(one: _Call) -> Meaning:
    return Meaning(
        f"the ranks called different collectives, or the same one with different shapes: rank {one.rank} "
        f"is in {one.text}",
        "The line is cut before the call of the other rank. If it is another operation, the code takes another way on "
        "one of them (a condition on the rank, a loop with another number of steps). If it is the same one with "
        "another shape, a batch or an output has another size on one rank.",
        (Fix("Read the whole line, or that of another rank: it has both calls."), COMPARE_STACKS),
    )


def _of_unread(one: _Call, other: _Call) -> Meaning:
    is_in = _UNREAD.get(other.operation, "a call with tensors of other dimensions")
    same = "" if other.operation == "REDUCE" else " It can be the same operation with a tensor of another layout."
    return Meaning(
        f"rank {one.rank} is in {one.text}, and rank {other.rank} probably in {is_in}",
        f"torch could not read the fingerprint of rank {other.rank}, because it has another length than its own: "
        f"{other.operation} with the sequence number 0 is not what that rank called, only that length."
        f"{same} {_BRANCHES}",
        (
            Fix(
                f"Look for what rank {other.rank} reports itself: its own line names its operation first.",
                ("mgpu doctor --log rank0.log rank1.log ...",),
            ),
            Fix("Compare where the ranks are: in their tracebacks, or while they run.", ("py-spy dump --pid PID",)),
            _SAME_CALLS,
        ),
    )


def _of_same_operation(one: _Call, other: _Call) -> Meaning:
    both = f"ranks {one.rank} and {other.rank} called {one.operation}"
    if one.shape != other.shape:
        return Meaning(
            f"{both} with different shapes: [{one.shape or ''}] and [{other.shape or ''}]",
            "Usual reasons: a last batch or a generated text of another size, samples that one rank dropped, a part of "
            "the model that has no gradient on one rank (a batch without images, an expert without tokens), or "
            "parameters that were added or frozen on one rank only. If one of the shapes belongs to another tensor, "
            "one rank has made a call more than the other.",
            (_PAD, COMPARE_STACKS),
        )
    if one.type != other.type:
        return Meaning(
            f"{both} with different types: {one.type} and {other.type}",
            "One rank made the tensor in another way: from a Python number or a NumPy array (Double), within autocast, "
            "or in a branch for an empty batch.",
            (Fix("Set the type where the tensor is made.", ("torch.zeros(1, device=device, dtype=torch.float32)",)),),
        )
    if one.number != other.number:
        return Meaning(
            f"{both} with the same shape, as their calls number {one.number} and {other.number}",
            "One rank has made more collective calls before, so the calls that meet now do not belong together. "
            f"{_BRANCHES}",
            (COMPARE_STACKS, _SAME_CALLS),
        )
    return Meaning(
        f"{both} with tensors that differ in something else, such as the device",
        "The shapes, the types and the sequence numbers are equal. One rank has the tensor on another kind of device.",
        (Fix("Print the tensor's device just before the call, on both ranks."),),
    )
