"""What a log says of two ranks whose calls torch compared (TORCH_DISTRIBUTED_DEBUG=DETAIL).

The texts are those of torch 2.13 on two CPU ranks, with other numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained

DEVICE = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false "
    "(default), pinned_memory=false (default), memory_format=(nullopt))"
)
HEAD = "[rank{}]: RuntimeError: Detected mismatch between collectives on ranks. "


def call(operation: str, shape: str | None = "4", number: int = 7, dtype: str = "Float") -> str:
    if shape is None:
        return f"CollectiveFingerPrint(SequenceNumber={number}OpType={operation})"
    of_tensor = f"TensorShape=[{shape}], TensorDtypes={dtype}, {DEVICE}"
    return f"CollectiveFingerPrint(SequenceNumber={number}, OpType={operation}, {of_tensor})"


def mismatch(one: str, other: str, ranks: tuple[int, int] = (2, 5)) -> str:
    return (
        f"{HEAD.format(ranks[0])}Rank {ranks[0]} is running collective: {one}, but Rank {ranks[1]} is running "
        f"collective: {other}.Collectives differ in the following aspects:   Op type: and so on\n"
    )


@pytest.mark.parametrize(
    ("one", "other", "title", "there", "absent"),
    [
        (call("ALLGATHER", "1", dtype="Long"), call("REDUCE", "6"),
         "rank 2 is in ALLGATHER of the shape [1] (Long), and rank 5 in REDUCE of the shape [6] (Float)",
         "py-spy dump", "pad_across_processes"),
        (call("ALLREDUCE", None), call("BARRIER", None), "rank 2 is in ALLREDUCE, and rank 5 in BARRIER", "py-spy",
         "pad_across_processes"),
        (call("ALLREDUCE", "3"), call("ALLREDUCE", "4"),
         "ranks 2 and 5 called ALLREDUCE with different shapes: [3] and [4]", "pad_across_processes",
         "Padding a tensor does not help"),
        (call("ALLREDUCE"), call("ALLREDUCE", dtype="Double"),
         "ranks 2 and 5 called ALLREDUCE with different types: Float and Double", "dtype=torch.float32", "pad_across"),
        (call("ALLREDUCE", number=7), call("ALLREDUCE", number=8),
         "ranks 2 and 5 called ALLREDUCE with the same shape, as their calls number 7 and 8", "more collective calls",
         "pad_across"),
        # Another rank's fingerprint of another length is not read: what is printed of it is its length.
        (call("ALLREDUCE", "4"), call("REDUCE", None, 0),
         "rank 2 is in ALLREDUCE of the shape [4] (Float), and rank 5 probably in a call without a tensor to compare, "
         "such as a barrier", "is not what that rank called", "pad_across"),
        (call("ALLREDUCE", "4"), call("SCATTER", None, 0),
         "rank 2 is in ALLREDUCE of the shape [4] (Float), and rank 5 probably in a call with a tensor of 2 dimensions",
         "the same operation with a tensor of another layout", "pad_across"),
        (call("BARRIER", None), call("GATHER", None, 0),
         "rank 2 is in BARRIER, and rank 5 probably in a call with a tensor of 1 dimension", "py-spy", "pad_across"),
        # The first barrier of a run has the number 0, too, and both are read.
        (call("ALLTOALL_BASE", None, 0), call("BARRIER", None, 0), "rank 2 is in ALLTOALL_BASE, and rank 5 in BARRIER",
         "py-spy", "is not what that rank called"),
    ],
)  # fmt: skip
def test_the_calls_of_two_ranks(one: str, other: str, title: str, there: str, absent: str, tmp_path: Path) -> None:
    found, said, rest = explained(tmp_path, mismatch(one, other))
    assert (found, said) == ("log_collectives_differ", title)
    assert there in rest
    assert absent not in rest
    assert "DEBUG=DETAIL" not in rest  # torch compares them only with it


def test_an_older_torch_has_no_sequence_numbers(tmp_path: Path) -> None:
    one = f"CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[3], TensorDtypes=Float, {DEVICE})"
    other = one.replace("ALLREDUCE", "BROADCAST")
    assert explained(tmp_path, mismatch(one, other))[1].endswith("and rank 5 in BROADCAST of the shape [3] (Float)")


def test_a_line_that_is_cut_before_the_other_call(tmp_path: Path) -> None:
    text = mismatch(call("ALLGATHER", "1"), "x").partition(", layout")[0]
    found, said, rest = explained(tmp_path, text)
    assert found == "log_collectives_differ"
    assert said.endswith("rank 2 is in ALLGATHER of the shape [1] (Float)")
    assert "Read the whole line" in rest


def test_gloo_and_accelerate_name_no_calls(tmp_path: Path) -> None:
    """Then DETAIL is the way to them."""
    text = "[rank0]: RuntimeError: Received data size doesn't match expected size. Is there a mismatch?\n"
    _, said, rest = explained(tmp_path, text)
    assert said == "the ranks called different collectives, or the same one with different shapes"
    assert "DEBUG=DETAIL" in rest


def test_a_model_that_reads_images_keeps_its_own_reason(tmp_path: Path) -> None:
    text = f"Loading Qwen2.5-VL-7B-Instruct\n{mismatch(call('ALLREDUCE', '3'), call('ALLREDUCE', '4'))}"
    _, said, rest = explained(tmp_path, text)
    assert "probably one rank's batch had none" in said
    assert "DEBUG=DETAIL" not in rest
