"""Rung "group": do all ranks find each other, and is the world the one that the config asks for?"""

from __future__ import annotations

import os
from datetime import timedelta

from .here import Here
from .journal import Failure


def climb(here: Here) -> str:
    """Form the process group as the training will: through accelerate when it is the launcher.

    accelerate starts N trainings of one rank each, and says nothing, when it finds no device to train on: its own count
    of ranks is compared with what the config asks for.
    """
    torch, expected = here.torch, here.orders.world
    limit = timedelta(seconds=max(60.0, 4 * here.orders.stall_s))  # the runner stops a hang long before
    if "ACCELERATE_MIXED_PRECISION" in os.environ:
        here.about_to("import accelerate", limit_s=here.orders.start_limit_s)
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        here.about_to("init_process_group")
        here.accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=limit)])
        here.reports(accelerate_world_size=here.accelerator.num_processes)
    elif expected > 1:
        here.about_to("init_process_group")
        torch.distributed.init_process_group("nccl" if here.on_gpu else "gloo", timeout=limit)
    joined = torch.distributed.is_initialized()
    world = torch.distributed.get_world_size() if joined else 1
    here.reports(world_size=world)
    if world != expected:
        raise Failure(
            f"torch.distributed has a world of {world}, the config asks for {expected}",
            "wrong_world", found=world, wanted=expected,
        )  # fmt: skip
    if here.accelerator is not None and here.accelerator.num_processes != expected:
        raise Failure(
            f"accelerate counts {here.accelerator.num_processes} rank, the config asks for {expected}: "
            "each would train alone",
            "wrong_world", found=here.accelerator.num_processes, wanted=expected,
        )  # fmt: skip
    if joined and torch.distributed.get_rank() != here.rank:
        raise Failure(f"torch.distributed calls this rank {torch.distributed.get_rank()}, the launcher {here.rank}")
    if expected > 1:
        here.about_to("first barrier")
        torch.distributed.barrier()
    return f"{expected} ranks, {'one process' if expected == 1 else torch.distributed.get_backend()}"
