"""Ranks whose numbers are wrong: patches for the ranks of tests/rungs.py, called in each rank before it climbs.

What a function here replaces is torch's, as a defective device or transport would be: the rungs need no hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from mgpu.smoke.ranks import compute, memory

ODD = 1  # the rank at fault
_GATHERS = ("all_gather_single", "all_gather_into_tensor")


def _replace(names: tuple[str, ...], wrap: Callable[[Any], Any]) -> None:
    for name in names:
        if hasattr(distributed, name):
            setattr(distributed, name, wrap(getattr(distributed, name)))


def gathers_wrong(rank: int) -> None:
    """One element of what rank 1 gives to an all-gather is another."""

    def wrap(real: Any) -> Any:
        def gather(output: Any, sent: Any, **keywords: Any) -> Any:
            sent[-1] += 1
            return real(output, sent, **keywords)

        return gather

    if rank == ODD:
        _replace(_GATHERS, wrap)


def adds_wrong(rank: int) -> None:
    """What rank 1 gives to an all-reduce is twice as much."""

    def wrap(real: Any) -> Any:
        def reduce(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            tensor *= 2
            return real(tensor, *arguments, **keywords)

        return reduce

    if rank == ODD:
        _replace(("all_reduce",), wrap)


def sums_wrong(rank: int) -> None:
    """The first element of every all-reduce comes out too large on all ranks: nobody can say whose it was."""

    def wrap(real: Any) -> Any:
        def reduce(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            done = real(tensor, *arguments, **keywords)
            tensor[0] += 1
            return done

        return reduce

    _replace(("all_reduce",), wrap)


def receives_wrong(rank: int) -> None:
    """Rank 1 reads everything that it gathers wrong; what it sends is right."""

    def wrap(real: Any) -> Any:
        def gather(output: Any, sent: Any, **keywords: Any) -> Any:
            done = real(output, sent, **keywords)
            output += 1
            return done

        return gather

    if rank == ODD:
        _replace(_GATHERS, wrap)


def pair_is_wrong(rank: int) -> None:
    """What rank 1 and the last rank send to each other alone, and to nobody else, arrives wrong."""
    real = distributed.batch_isend_irecv

    def exchange(operations: list[Any]) -> list[Any]:
        requests: list[Any] = real(operations)
        (one, *others) = operations
        if not others and one.op is distributed.irecv and {rank, one.peer} == {ODD, distributed.get_world_size() - 1}:
            requests.pop().wait()
            one.tensor[0] = 0
        return requests

    distributed.batch_isend_irecv = exchange


def pair_hangs(rank: int) -> None:
    """Rank 1 never sends anything to another one alone."""
    real = distributed.batch_isend_irecv

    def exchange(operations: list[Any]) -> Any:
        if len(operations) > 1:
            return real(operations)
        return distributed.recv(torch.empty(1), src=0, tag=77)

    if rank == ODD:
        distributed.batch_isend_irecv = exchange


def slow(rank: int) -> None:
    """Rank 1 needs eight times as long for its own compute."""
    real = compute._work

    def work(torch: Any, matrix: Any, rounds: int) -> None:
        real(torch, matrix, rounds * 8)

    if rank == ODD:
        compute._work = work


def not_a_number(rank: int) -> None:
    """An elementwise kernel of rank 1 gives NaN."""
    real = torch.relu
    if rank == ODD:
        torch.relu = lambda tensor: real(tensor) / 0 * 0


def other_bits(rank: int) -> None:
    """A kernel of rank 1 is off by one bit."""
    real = torch.relu
    if rank == ODD:
        torch.relu = lambda tensor: real(tensor) * (1 + 2**-20)


def unsteady(rank: int) -> None:
    """A kernel of rank 1 gives another result every time."""
    real, calls = torch.relu, [0]

    def relu(tensor: Any) -> Any:
        calls[0] += 1
        return real(tensor) * (1 + calls[0] / 100)

    if rank == ODD:
        torch.relu = relu


def forgets(rank: int) -> None:
    """A number in rank 1's memory is not what it wrote there."""
    real = memory._write_pattern

    def written(*arguments: Any) -> Any:
        held = real(*arguments)
        held.blocks[-1][7] ^= 1 << 40
        return held

    if rank == ODD:
        setattr(memory, "_write_pattern", written)  # noqa: B010


def no_memory(rank: int) -> None:
    """Rank 1 asks for memory, and there is none."""

    def pattern(*arguments: Any) -> Any:
        return torch.empty(1 << 62, dtype=torch.uint8)

    if rank == ODD:
        setattr(memory, "_pattern", pattern)  # noqa: B010


def cuda_error(rank: int) -> None:
    """Rank 1's device does not answer any more, in torch's words for it."""

    def refuse(tensor: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")

    if rank == ODD:
        torch.relu = refuse


def fewer_types(rank: int) -> None:
    """A backend that does not carry bfloat16."""

    def wrap(real: Any) -> Any:
        def reduce(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if tensor.dtype == torch.bfloat16:
                raise RuntimeError("Invalid scalar type")
            return real(tensor, *arguments, **keywords)

        return reduce

    _replace(("all_reduce",), wrap)
