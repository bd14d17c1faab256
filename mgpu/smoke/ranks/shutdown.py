"""Rung "shutdown": does the rank leave its process group?"""

from __future__ import annotations

from . import memory
from .context import Here


def climb(here: Here) -> str:
    """Destroy the groups, within the stall limit; what is left behind is seen from outside."""
    memory.read_back(here)
    here.held.clear()
    here.groups.clear()
    if here.torch is not None and here.torch.distributed.is_initialized():
        here.about_to("destroy the process group")
        here.torch.distributed.destroy_process_group()
    here.store = here.accelerator = None
    if here.on_gpu:
        here.about_to("give GPU memory back")
        here.torch.cuda.empty_cache()
        here.wait()
    here.about_to("leave")
    return "every rank left its groups"
