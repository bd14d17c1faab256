"""Which numbers does a collective send, which results are expected, and which rank sent wrong ones?

All numbers are small integers, so a sum has exactly one result in every type and order. They repeat every 251 elements,
a prime: data that is shifted by a block, a page or a shard is wrong nearly everywhere. Receive buffers are filled with
another number first, because memory may still contain the right numbers from an earlier test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_PERIOD = 251
UNTOUCHED = 255  # never sent
_LARGEST_SUMMAND = 11
# Largest integer up to which a type represents every integer exactly (its significand has that many bits).
_COUNTS_TO = {"bfloat16": 1 << 8, "float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53, "uint8": 255}
_TURNS = 4099  # a prime: the sequence of contributing ranks repeats after this many elements
# A wrong element to which one rank contributes points to that rank; with fewer elements it may be a coincidence.
_NEEDED_OF_ONE = 8


@dataclass(frozen=True)
class Wrong:
    """Wrong results of one collective."""

    collective: str
    dtype: str
    size: int  # compared elements
    count: int  # wrong elements
    first: int
    expected: float
    got: float
    sender: int | None  # the rank that sent them; None if unknown


@dataclass
class Numbers:
    """The numbers that each of `world` ranks sends, of one type on one device."""

    torch: Any
    device: Any
    dtype: Any
    world: int
    tiles: dict[tuple[str, int], Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the type."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def can_sum(self) -> bool:
        """Whether the type represents the sum of all ranks' numbers exactly."""
        return _LARGEST_SUMMAND * self.world <= _COUNTS_TO.get(self.name, 1 << 31)

    def of(self, rank: int, size: int, to: int = 0) -> Any:
        """Return what a rank sends without a sum: 1 to 251, shifted for each rank and receiver."""
        if ("of", rank) not in self.tiles:
            self.tiles["of", rank] = self._tile((self.torch.arange(_PERIOD) + 17 * rank) % _PERIOD + 1)
        return self._long(self.tiles["of", rank], size + to)[to:]

    def summand(self, rank: int, size: int) -> Any:
        """Return what a rank contributes to a sum."""
        return self._long(self._summand(rank), size)

    def total(self, size: int) -> Any:
        """Return the sum over all ranks."""
        if ("total", 0) not in self.tiles:
            self.tiles["total", 0] = sum(self._summand(rank) for rank in range(self.world))
        return self._long(self.tiles["total", 0], size)

    def turn(self, rank: int, size: int) -> Any:
        """Return what a rank contributes if only one rank per element contributes more than zero."""
        return self._long(self._tile(self._in_turn() * (self.whose(_TURNS) == rank)), size)

    def turns(self, size: int) -> Any:
        """Return the sum of all `turn` contributions."""
        return self._long(self._tile(self._in_turn()), size)

    def whose(self, size: int) -> Any:
        """Return the contributing rank of each element, on the CPU. Random, unlike the patterns of memory faults."""
        source = self.torch.Generator().manual_seed(5)
        return self._long(self.torch.randint(0, self.world, (_TURNS,), generator=source), size)

    def receive_buffer(self, size: int) -> Any:
        """Return a receive buffer."""
        return self.torch.full((size,), UNTOUCHED, dtype=self.dtype, device=self.device)

    def compare(self, collective: str, got: Any, wanted: Any, sender: int | None = None) -> Iterator[Wrong]:
        """Yield at most one Wrong: how `got` differs from `wanted`."""
        if self.torch.equal(got, wanted):
            return
        yield _difference(collective, self.name, got, wanted, got.ne(wanted), sender)

    def compare_turns(self, collective: str, got: Any, wanted: Any, offset: int = 0) -> Iterator[Wrong]:
        """Like `compare`, for sums with one contributing rank per element; `got` starts at element `offset`.

        If enough elements are wrong and all of them are from one rank, it is reported as the sender.
        """
        if self.torch.equal(got, wanted):
            return
        wrong = got.ne(wanted)
        owners = self.whose(offset + len(got))[offset:][wrong.cpu()].unique()
        sender = int(owners[0]) if len(owners) == 1 and int(wrong.sum()) >= _NEEDED_OF_ONE else None
        yield _difference(collective, self.name, got, wanted, wrong, sender)

    def _summand(self, rank: int) -> Any:
        if ("summand", rank % 7) not in self.tiles:
            self.tiles["summand", rank % 7] = self._tile(self.torch.arange(_PERIOD) % 5 + 1 + rank % 7)
        return self.tiles["summand", rank % 7]

    def _in_turn(self) -> Any:
        return self.torch.arange(_TURNS) % _PERIOD + 1

    def _tile(self, numbers: Any) -> Any:
        return numbers.to(self.dtype).to(self.device)

    @staticmethod
    def _long(tile: Any, size: int) -> Any:
        return tile.repeat(-(-size // len(tile)))[:size]


def _difference(collective: str, dtype: str, got: Any, wanted: Any, wrong: Any, sender: int | None) -> Wrong:
    first = int(wrong.nonzero()[0])
    expected, found = float(wanted[first]), float(got[first])
    return Wrong(collective, dtype, len(got), int(wrong.sum()), first, expected, found, sender)


def sentence(wrong: Wrong, more: int = 0) -> str:
    """Return the text for the report."""
    whose = f" from rank {wrong.sender}" if wrong.sender is not None else ""
    others = f" (and {more} more)" if more else ""
    return (
        f"{wrong.collective} of {wrong.size} x {wrong.dtype}: {wrong.count} of {wrong.size} numbers{whose} are wrong, "
        f"the first at {wrong.first}: {wrong.got:g} instead of {wrong.expected:g}{others}"
    )


def evidence(found: Sequence[Wrong], most: int = 12) -> dict[str, Any]:
    """Return JSON values from which a check names the rank at fault."""
    senders = [wrong.sender for wrong in found if wrong.sender is not None]
    return {
        "wrong": [{**asdict(wrong), "got": str(wrong.got), "expected": str(wrong.expected)} for wrong in found[:most]],
        "count": len(found),
        "suspects": sorted(set(senders), key=lambda sender: (-senders.count(sender), sender)),
        "collectives": sorted({wrong.collective for wrong in found}),
    }
