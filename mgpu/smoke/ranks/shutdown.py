"""Stage "shutdown": can the rank destroy its process groups?"""

from __future__ import annotations

from . import memory
from .context import Here


def run_stage(here: Here) -> str:
    """Destroy the groups within the stall limit. The runner checks for leftovers."""
    memory.read_back(here)
    here.held.clear()
    here.groups.clear()
    if here.torch is not None and here.torch.distributed.is_initialized():
        here.about_to("destroy the process group")
        here.torch.distributed.destroy_process_group()
    here.store = here.accelerator = None
    if here.on_gpu:
        here.about_to("free GPU memory")
        here.torch.cuda.empty_cache()
        here.wait()
    here.about_to("exit")
    return "process groups destroyed"
