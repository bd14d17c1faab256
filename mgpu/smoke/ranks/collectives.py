"""Rung "collectives": does every collective give the exact numbers?"""

from __future__ import annotations

from typing import Any

from .here import Here
from .journal import Failure

_LARGEST = 11  # numbers the collectives carry: 1 to this


def climb(here: Here) -> str:
    """all-reduce, all-gather and broadcast with exactly known numbers, in several sizes and dtypes."""
    if here.world == 1:
        return "one rank has nobody to talk to"
    torch, device, rank, world = here.torch, here.device, here.rank, here.world
    distributed = torch.distributed
    tried = 0

    def pattern(of_rank: int, size: int, dtype: Any) -> Any:
        """Small whole numbers that every dtype holds exactly, different at every place and between neighbours."""
        return (torch.arange(size, device=device) % 5 + 1 + of_rank % 7).to(dtype)

    # bf16 counts exactly to 256: in a larger world its sum could not be compared, so it is left out.
    exact_in_bf16 = _LARGEST * world <= 256
    dtypes = (torch.float32, torch.int64, *((torch.bfloat16,) if exact_in_bf16 else ()))
    for dtype in dtypes:
        for size in (1, 1000, 1 << 18):
            what = f"{size} x {str(dtype).removeprefix('torch.')}"
            here.about_to(f"all-reduce {what}")
            tensor = pattern(rank, size, dtype)
            distributed.all_reduce(tensor)
            total = sum(pattern(r, size, torch.int64) for r in range(world))
            if not torch.equal(tensor, total.to(dtype)):
                raise Failure(f"all-reduce of {what} gave a wrong sum", "wrong_numbers", collective="all-reduce")
            here.about_to(f"all-gather {what}")
            gathered = torch.empty(world * size, dtype=dtype, device=device)
            distributed.all_gather_into_tensor(gathered, pattern(rank, size, dtype))
            for r, part in enumerate(gathered.split(size)):
                if not torch.equal(part, pattern(r, size, dtype)):
                    raise Failure(
                        f"all-gather of {what}: the part of rank {r} is wrong",
                        "wrong_numbers", collective="all-gather", suspects=[r],
                    )  # fmt: skip
            source = world - 1
            here.about_to(f"broadcast {what}")
            tensor = pattern(rank, size, dtype)
            distributed.broadcast(tensor, src=source)
            if not torch.equal(tensor, pattern(source, size, dtype)):
                raise Failure(
                    f"broadcast of {what} from rank {source} arrived wrong",
                    "wrong_numbers", collective="broadcast", suspects=[source],
                )  # fmt: skip
            tried += 3
    return f"{tried} exact: all-reduce, all-gather, broadcast"
