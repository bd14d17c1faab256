"""Can the rank allocate memory, and does the memory keep what is written to it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .context import Here
from .journal import Failure

MEMORY_BYTES = 1 << 30  # maximum of GPU memory per rank, without --fill
_SHARE_OF_FREE = 10  # … and at most a tenth of the free memory
_ON_CPU = {"standard": 32 << 20, "long": 256 << 20}
_BLOCK = 1 << 25  # numbers of 8 bytes: 256 MiB per allocation
_PIECE = 1 << 21  # … compared 16 MiB at a time, because little memory may be free
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, so that the numbers differ in all their bits


@dataclass
class Held:
    """Blocks of memory that --fill keeps allocated during the whole test."""

    blocks: list[Any]

    @property
    def mib(self) -> int:
        """Return the total size in MiB."""
        return int(sum(block.numel() * block.element_size() for block in self.blocks)) >> 20


def check(here: Here) -> None:
    """Allocate some memory, write it, read it back, and free it."""
    if here.orders.level == "quick":
        return
    size = _ON_CPU[here.orders.level]
    if here.on_gpu:
        size = min(MEMORY_BYTES, here.torch.cuda.mem_get_info(here.device)[0] // _SHARE_OF_FREE)
    here.about_to(f"write and read {size >> 20} MiB")
    held = _write_pattern(here, size)
    here.measured(memory_checked_mib=float(held.mib))
    _compare(here, held)
    del held
    if here.on_gpu:
        here.torch.cuda.empty_cache()


def fill(here: Here) -> None:
    """Apply --fill: allocate a share of the GPU's free memory from now on; `read_back` compares it at the end."""
    percent = here.orders.fill_percent
    if not percent:
        return
    if not here.on_gpu:
        here.skips(f"--fill {percent}: no GPU memory to fill")
        return
    size = here.torch.cuda.mem_get_info(here.device)[0] * percent // 100
    here.about_to(f"fill {size >> 20} MiB of GPU memory")
    held = _write_pattern(here, size)
    here.held.append(held)
    here.measured(memory_filled_mib=float(held.mib))


def read_back(here: Here) -> None:
    """Read back and compare what --fill wrote, at the end of the test."""
    for held in here.held:
        if isinstance(held, Held):
            here.about_to(f"read back {held.mib} MiB of GPU memory")
            _compare(here, held)


def _write_pattern(here: Here, size: int) -> Held:
    torch, held = here.torch, Held([])
    left = size // 8
    while left > 0:
        block = torch.empty(min(left, _BLOCK), dtype=torch.int64, device=here.device)
        for start in range(0, len(block), _PIECE):
            piece = block[start : start + _PIECE]
            piece.copy_(_pattern(here, len(held.blocks) * _BLOCK + start, len(piece)))
        held.blocks.append(block)
        left -= len(block)
    here.wait()
    return held


def _pattern(here: Here, first: int, count: int) -> Any:
    """Return the numbers from index `first` on; all are different."""
    return here.torch.arange(first, first + count, device=here.device, dtype=here.torch.int64).mul_(_STEP)


def _compare(here: Here, held: Held) -> None:
    for number, block in enumerate(held.blocks):
        for start in range(0, len(block), _PIECE):
            piece = block[start : start + _PIECE]
            wanted = _pattern(here, number * _BLOCK + start, len(piece))
            if not here.torch.equal(piece, wanted):
                raise _memory_failure(piece, wanted, number * _BLOCK + start)


def _memory_failure(piece: Any, wanted: Any, first: int) -> Failure:
    wrong = piece.ne(wanted).nonzero().flatten()
    place = int(wrong[0])
    return Failure(
        f"{len(wrong)} of {len(piece)} numbers in memory differ from what was written",
        "memory_altered",
        wrong=len(wrong),
        of=len(piece),
        first=first + place,
        expected=f"{int(wanted[place]) & (1 << 64) - 1:016x}",
        got=f"{int(piece[place]) & (1 << 64) - 1:016x}",
    )
