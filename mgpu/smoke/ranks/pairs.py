"""Stage "pairs": does the connection between every two ranks work?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import expected_values
from .context import Here
from .expected_values import Numbers, Wrong
from .journal import Failure

# Numbers of 4 bytes that are sent and timed in each direction.
_SIZES_ON_CPU = {"quick": 1 << 14, "standard": 1 << 18, "long": 1 << 22}
_SIZES_ON_GPU = {"quick": 1 << 18, "standard": 1 << 24, "long": 1 << 26}
_TIMES = {"quick": 2, "standard": 5, "long": 10}
_GROUPS_UP_TO = 8  # ranks: each pair also gets its own communicator, which all ranks must create together
_ROUNDS = {"quick": 15, "standard": 63}  # with more ranks not every pair is tested, except in level long


@dataclass
class _Pair:
    """This rank and another one, with the data they exchange."""

    here: Here
    other: int
    numbers: Numbers
    size: int

    @property
    def name(self) -> str:
        """Return both ranks, the lower one first: "0-3"."""
        return "-".join(str(rank) for rank in sorted((self.here.rank, self.other)))

    @property
    def leads(self) -> bool:
        """Whether this rank sends first."""
        return self.here.rank < self.other


def run_stage(here: Here) -> str:
    """Test every pair of ranks, like in a tournament: disjoint pairs at the same time."""
    if here.world == 1:
        return "only one rank"
    torch = here.torch
    over_gloo = torch.distributed.get_backend() == "gloo"
    # gloo sends from host memory only: https://pytorch.org/docs/stable/distributed.html (Backends)
    numbers = Numbers(torch, torch.device("cpu") if over_gloo else here.device, torch.float32, here.world)
    size = (_SIZES_ON_GPU if numbers.device.type == "cuda" else _SIZES_ON_CPU)[here.orders.level]
    groups = _groups(here)
    found: list[dict[str, Any]] = []
    wrong: list[Wrong] = []
    here.reports(pairs=found)
    rounds = list(_tournament(here.world, here.rank))
    tried = rounds[: _ROUNDS.get(here.orders.level, len(rounds))]
    if len(tried) < len(rounds):
        here.skips(f"{len(rounds) - len(tried)} of {len(rounds)} pairs per rank (--level long tests all)")
    for other in tried:
        if other is not None:
            wrong += _meet(_Pair(here, other, numbers, size), found, groups)
    for group in groups.values():
        if group is not None:
            torch.distributed.destroy_process_group(group)
    here.about_to("barrier after the pairs")
    torch.distributed.barrier()
    if wrong:
        raise Failure(
            expected_values.sentence(wrong[0], len(wrong) - 1), "pair_wrong_numbers", **expected_values.evidence(wrong)
        )
    met = len(tried) * (here.world // 2)  # in each round, over all ranks
    pairs = here.world * (here.world - 1) // 2
    return f"{met} of {pairs} pair{'' if pairs == 1 else 's'} correct, both directions"


def _tournament(world: int, rank: int) -> Iterator[int | None]:
    """Yield this rank's partner in each round; None if it has none, with an odd number of ranks.

    The circle method: the last player stays, the others move on by one.
    """
    players = world + world % 2
    last = players - 1
    for turn in range(last):
        if rank == last:
            other = turn
        elif rank == turn:
            other = last
        else:
            other = (2 * turn - rank) % last
        yield other if other < world else None


def _groups(here: Here) -> dict[tuple[int, int], Any]:
    """Create a communicator for each pair, in the same order on every rank; None for other ranks' pairs."""
    if here.orders.level == "quick" or not 2 < here.world <= _GROUPS_UP_TO:
        return {}
    made: dict[tuple[int, int], Any] = {}
    for a in range(here.world):
        for b in range(a + 1, here.world):
            here.about_to(f"new_group of pair {a}-{b}")
            group = here.torch.distributed.new_group([a, b])
            made[a, b] = group if here.rank in (a, b) else None
    return made


def _meet(pair: _Pair, found: list[dict[str, Any]], groups: dict[tuple[int, int], Any]) -> list[Wrong]:
    """Run all tests of one pair. The pair is reported to the runner first, because the tests may hang."""
    here = pair.here
    result: dict[str, Any] = {"other": pair.other, "ok": None}
    found.append(result)
    here.journal.introduce("pairs")
    here.about_to(f"pair {pair.name}: send {_amount(pair)}")
    wrong = _send_both_ways(pair)
    group = groups.get((min(here.rank, pair.other), max(here.rank, pair.other)))
    if group is not None:
        here.about_to(f"pair {pair.name}: all-reduce {_amount(pair)}")
        wrong += _add(pair, group)
    here.about_to(f"pair {pair.name}: time {_amount(pair)}")
    latency = _there_and_back(pair, 1) / 2
    seconds = _there_and_back(pair, pair.size) / 2
    result |= {
        "ok": not wrong,
        "detail": expected_values.sentence(wrong[0]) if wrong else None,
        "gb_per_s": pair.size * pair.numbers.dtype.itemsize / seconds / 1e9,
        "latency_s": latency,
    }
    return wrong


def _amount(pair: _Pair) -> str:
    size = pair.size * pair.numbers.dtype.itemsize
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


def _send_both_ways(pair: _Pair) -> list[Wrong]:
    here, numbers = pair.here, pair.numbers
    got, sent = numbers.receive_buffer(pair.size), numbers.of(here.rank, pair.size, to=pair.other)
    for sends in (pair.leads, not pair.leads):
        _pass(pair, sent if sends else got, sends)
    here.wait()
    wanted = numbers.of(pair.other, pair.size, to=here.rank)
    return list(numbers.compare(f"send/recv of pair {pair.name}", got, wanted, pair.other))


def _pass(pair: _Pair, data: Any, sends: bool) -> None:
    """Send or receive in one direction.

    As a batch of one, so that NCCL uses the communicator of all ranks: a plain send would create a communicator per
    pair, whose GPU buffers stay allocated for the whole test.
    """
    distributed = pair.here.torch.distributed
    way = distributed.isend if sends else distributed.irecv
    for request in distributed.batch_isend_irecv([distributed.P2POp(way, data, pair.other)]):
        request.wait()


def _add(pair: _Pair, group: Any) -> list[Wrong]:
    """All-reduce over the pair's own communicator. A wrong sum does not show which rank is at fault."""
    numbers = pair.numbers
    tensor = numbers.summand(pair.here.rank, pair.size)
    pair.here.torch.distributed.all_reduce(tensor, group=group)
    wanted = numbers.summand(pair.here.rank, pair.size) + numbers.summand(pair.other, pair.size)
    return list(numbers.compare(f"all-reduce of pair {pair.name}", tensor, wanted))


def _there_and_back(pair: _Pair, size: int) -> float:
    """Return the seconds for data to the other rank and back: the minimum of several runs."""
    here = pair.here
    data = pair.numbers.receive_buffer(size)
    least = float("inf")
    for _ in range(_TIMES[here.orders.level] + 1):
        here.wait()
        start = time.perf_counter()
        for sends in (pair.leads, not pair.leads):
            _pass(pair, data, sends)
        here.wait()
        least = min(least, time.perf_counter() - start)
    return least
