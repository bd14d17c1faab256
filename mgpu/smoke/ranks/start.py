"""Rung "start": is this rank there, one of as many as the config asks for?"""

from __future__ import annotations

import socket

from .here import Here
from .journal import Failure


def climb(here: Here) -> str:
    """Import torch; the launcher's world is the config's."""
    here.reports(local_rank=here.local_rank, host=socket.gethostname())
    here.journal.introduce()
    if here.world != here.orders.world:
        raise Failure(
            f"the launcher started a world of {here.world}, the config asks for {here.orders.world}",
            "wrong_world", found=here.world, wanted=here.orders.world,
        )  # fmt: skip
    here.about_to("import torch", limit_s=here.orders.start_limit_s)
    import torch

    if here.world > 1:
        import torch._dynamo  # DDP imports it lazily; here it does not hold up the others one by one

    here.torch = torch
    return f"rank {here.rank} of {here.world}"
