"""Stage "collectives": does every collective return exactly the right numbers?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from . import expected_values
from .context import Here
from .expected_values import Numbers, Wrong
from .journal import Failure

SIZES = {"quick": (1000,), "standard": (1, 1000, 65537, 1 << 20), "long": (1, 1000, 65537, 1 << 20, 1 << 22)}
_SMALL, _FEW_RANKS = 1000, 16  # elements, and ranks: each rank broadcasts that many
_LARGEST_ON_GPU = {"standard": 1 << 24, "long": 1 << 28}  # bytes
_LARGE = 65537  # elements; larger sizes are tested with one type only
_LEAST_FREE = 32  # a collective's data uses at most this fraction of a GPU's free memory
_BESIDE_LIMIT_S = 15.0  # for gloo to connect the ranks, in addition to NCCL
# torch's and NCCL's messages about a type that a backend does not support.
_NOT_CARRIED = re.compile(r"scalar ?type|data ?type|dtype|not (?:yet )?(?:supported|implemented)|unsupported", re.I)

_Collective: TypeAlias = "Callable[[_Run, Numbers, int], Iterator[Wrong]]"


@dataclass
class _Run:
    """Collectives over one communicator of the first ranks, and the wrong numbers found."""

    here: Here
    group: Any  # None: all ranks
    world: int
    device: Any
    over: str = ""  # in the announced step: the communicator, unless it is the default one
    collectives: Sequence[_Collective] = ()
    wrong: list[Wrong] = field(default_factory=list)
    tried: int = 0
    broadcasts: int = 0

    def numbers(self, dtype: Any) -> Numbers:
        """Return the numbers that its ranks send."""
        return Numbers(self.here.torch, self.device, dtype, self.world)

    def run_collectives(self, numbers: Numbers, size: int) -> None:
        """Run and announce all its collectives, and collect wrong numbers."""
        for collective in self.collectives:
            name = collective.__name__.replace("_", "-")
            self.here.about_to(f"{name} {size} x {numbers.name}{self.over}")
            self.wrong += collective(self, numbers, size)
            self.tried += 1


def run_stage(here: Here) -> str:
    """Run every collective with known numbers, in several sizes and types.

    Also over a second communicator and half of the ranks, and over gloo in addition to NCCL. All ranks run everything,
    even after an error, so that each has its own evidence of which rank is at fault.
    """
    if here.world == 1:
        here.skips("collectives: only one rank")
        return "only one rank"
    backend = here.torch.distributed.get_backend()
    beside = _gloo_beside(here) if here.on_gpu and backend != "gloo" else []
    runs = _default_runs(here, backend)
    types = _each_type(runs)
    if here.orders.level != "quick":
        runs += [_second(runs[0]), *_part(here, runs[0])]
    here.about_to("barrier")
    here.torch.distributed.barrier()
    runs += beside
    _raise_wrong([wrong for run in runs for wrong in run.wrong])
    return f"{len(_ALL)} collectives x {types} dtypes: all {sum(run.tried for run in runs)} correct"


def _raise_wrong(wrong: Sequence[Wrong]) -> None:
    if not wrong:
        return
    worst = next((found for found in wrong if found.sender is not None), wrong[0])
    raise Failure(expected_values.sentence(worst, len(wrong) - 1), "wrong_numbers", **expected_values.evidence(wrong))


def _default_runs(here: Here, backend: str) -> list[_Run]:
    """Return the runs over the default communicator. For GPU tensors gloo supports few collectives (torch's table)."""
    if not here.on_gpu or backend != "gloo":
        return [_Run(here, None, here.world, here.device, collectives=_ALL)]
    here.skips("gloo with GPU memory, except all-reduce and broadcast: host memory used")
    rest = [collective for collective in _ALL if collective not in _GLOO_ON_GPU]
    host = here.torch.device("cpu")
    return [
        _Run(here, None, here.world, here.device, collectives=_GLOO_ON_GPU),
        _Run(here, None, here.world, host, " from host memory", rest),
    ]


def _each_type(runs: Sequence[_Run]) -> int:
    """Run all collectives in all sizes and types. Returns the number of supported types."""
    here, tried = runs[0].here, 0
    torch = here.torch
    for dtype in _types(here):
        try:
            for run in runs:
                numbers = run.numbers(dtype)
                for size in _sizes(here, numbers):
                    run.run_collectives(numbers, size)
        except (RuntimeError, TypeError, ValueError) as error:
            if _is_needed(here, dtype) or not _NOT_CARRIED.search(str(error)):
                raise
            name = str(dtype).removeprefix("torch.")
            here.skips(f"{name} over {torch.distributed.get_backend()}: {str(error).splitlines()[0]}")
            continue
        tried += 1
    return tried


def _half(here: Here) -> Any:
    return {"bf16": here.torch.bfloat16, "fp16": here.torch.float16}.get(here.orders.precision)


def _is_needed(here: Here, dtype: Any) -> bool:
    """Whether the training sends this type. A CPU rehearsal works without half precision, which an old gloo lacks."""
    return bool(dtype == here.torch.float32 or (here.on_gpu and dtype == _half(here)))


def _types(here: Here) -> tuple[Any, ...]:
    torch, half = here.torch, _half(here)
    if here.orders.level == "quick":
        return (torch.float32, torch.int64, *((half,) if half else ()))
    return (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float64, torch.uint8)


def _sizes(here: Here, numbers: Numbers) -> tuple[int, ...]:
    """Return the numbers of elements over all ranks. Large sizes are tested in fp32 only."""
    sizes = SIZES[here.orders.level]
    if here.orders.level == "quick":
        return sizes
    if numbers.dtype != here.torch.float32:
        return tuple(size for size in sizes if size <= _LARGE)
    if numbers.device.type == "cpu":
        return sizes
    free = here.torch.cuda.mem_get_info(here.device)[0]
    largest = min(_LARGEST_ON_GPU[here.orders.level], free // _LEAST_FREE) // numbers.dtype.itemsize
    return (*(size for size in sizes if size < largest), largest)


def _second(first: _Run) -> _Run:
    """Alternate between two communicators of all ranks, like tensor plus data parallelism."""
    here = first.here
    here.about_to("new_group of all ranks")
    group = here.torch.distributed.new_group(list(range(here.world)))
    second = _Run(here, group, here.world, first.device, " over a second communicator", (all_reduce, broadcast))
    numbers = first.numbers(here.torch.float32)
    for size in (1000, _LARGE):
        for _ in range(2):
            second.run_collectives(numbers, size)
            first.run_collectives(numbers, size)
    return second


def _part(here: Here, first: _Run) -> list[_Run]:
    """Run the collectives on the first half of the ranks; not if there are only two."""
    half = max(2, here.world // 2)
    if half == here.world:
        return []
    here.about_to(f"new_group of ranks 0 to {half - 1}")
    group = here.first(half)
    if here.rank >= half:
        return []
    run = _Run(here, group, half, first.device, f" over ranks 0 to {half - 1}", first.collectives)
    run.run_collectives(run.numbers(here.torch.float32), 1000)
    return [run]


def _gloo_beside(here: Here) -> list[_Run]:
    """Run the same over gloo in host memory: if only NCCL fails, the network itself works.

    It runs first, so that its result exists when NCCL hangs. A failure of gloo does not fail the stage.
    """
    torch = here.torch
    try:
        here.about_to("new_group over gloo", limit_s=max(here.orders.stall_s, 2 * _BESIDE_LIMIT_S))
        group = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=_BESIDE_LIMIT_S))
        run = _Run(here, group, here.world, torch.device("cpu"), " over gloo", _ALL)
        run.run_collectives(run.numbers(torch.float32), 1000)
    except RuntimeError as error:
        here.reports(gloo_works=False)
        here.skips(f"gloo in addition to NCCL: {str(error).splitlines()[0]}")
        here.journal.introduce()
        return []
    here.reports(gloo_works=not run.wrong)
    here.journal.introduce()
    return [run]


# torch 2.13 renamed these two functions and warns about the old names.


def all_gather_into(distributed: Any) -> Any:
    """Return torch's all-gather from one tensor into one tensor."""
    return getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


def reduce_scatter_into(distributed: Any) -> Any:
    """Return torch's reduce-scatter from one tensor into one tensor."""
    return getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


# The collectives. Each runs once with known numbers and yields the wrong results and their senders.


def all_reduce(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Sum over all ranks; then a sum with one contributing rank per element, to identify the rank at fault."""
    distributed, rank = run.here.torch.distributed, run.here.rank
    if numbers.can_sum:
        tensor = numbers.summand(rank, size)
        distributed.all_reduce(tensor, group=run.group)
        yield from numbers.compare("all-reduce", tensor, numbers.total(size))
    tensor = numbers.turn(rank, size)
    distributed.all_reduce(tensor, group=run.group)
    yield from numbers.compare_turns("all-reduce", tensor, numbers.turns(size))


def all_gather(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Send each rank's part to every rank."""
    part = -(-size // numbers.world)
    gathered = numbers.receive_buffer(part * numbers.world)
    sent = numbers.of(run.here.rank, part)
    all_gather_into(run.here.torch.distributed)(gathered, sent, group=run.group)
    for place, piece in enumerate(gathered.split(part)):
        yield from numbers.compare("all-gather", piece, numbers.of(place, part), place)


def reduce_scatter(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Give each rank its share of the sum."""
    distributed, rank = run.here.torch.distributed, run.here.rank
    part = -(-size // numbers.world)
    whole, share = part * numbers.world, slice(rank * part, (rank + 1) * part)
    if numbers.can_sum:
        got = numbers.receive_buffer(part)
        reduce_scatter_into(distributed)(got, numbers.summand(rank, whole), group=run.group)
        yield from numbers.compare("reduce-scatter", got, numbers.total(whole)[share])
    got = numbers.receive_buffer(part)
    reduce_scatter_into(distributed)(got, numbers.turn(rank, whole), group=run.group)
    yield from numbers.compare_turns("reduce-scatter", got, numbers.turns(whole)[share], share.start)


def broadcast(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Send one rank's data to all: from each rank in turn if that is fast, else from another one each time."""
    all_of_them = size <= _SMALL and numbers.world <= _FEW_RANKS
    run.broadcasts += 1
    for source in range(numbers.world) if all_of_them else (run.broadcasts % numbers.world,):
        tensor = numbers.of(source, size) if source == run.here.rank else numbers.receive_buffer(size)
        run.here.torch.distributed.broadcast(tensor, src=source, group=run.group)
        yield from numbers.compare("broadcast", tensor, numbers.of(source, size), source)


def all_to_all(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Send a different part from each rank to each rank."""
    part, rank = -(-size // numbers.world), run.here.rank
    blocks = [numbers.of(rank, part, to=place) for place in range(numbers.world)]
    got = numbers.receive_buffer(part * numbers.world)
    run.here.torch.distributed.all_to_all_single(got, run.here.torch.cat(blocks), group=run.group)
    for place, piece in enumerate(got.split(part)):
        yield from numbers.compare("all-to-all", piece, numbers.of(place, part, to=rank), place)


def send_recv(run: _Run, numbers: Numbers, size: int) -> Iterator[Wrong]:
    """Send around the ring: from each rank to the next."""
    distributed, rank, world = run.here.torch.distributed, run.here.rank, numbers.world
    left, right = (rank - 1) % world, (rank + 1) % world
    got, sent = numbers.receive_buffer(size), numbers.of(rank, size)
    swaps = [
        distributed.P2POp(distributed.isend, sent, right, group=run.group),
        distributed.P2POp(distributed.irecv, got, left, group=run.group),
    ]
    for request in distributed.batch_isend_irecv(swaps):
        request.wait()
    run.here.wait()
    yield from numbers.compare("send/recv", got, numbers.of(left, size), left)


_ALL: tuple[_Collective, ...] = (all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv)
# What gloo supports for GPU tensors: https://pytorch.org/docs/stable/distributed.html (Backends)
_GLOO_ON_GPU: tuple[_Collective, ...] = (all_reduce, broadcast)
