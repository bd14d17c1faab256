"""Rung "shutdown": does the rank leave its process group?"""

from __future__ import annotations

from .here import Here


def climb(here: Here) -> str:
    """Destroy the groups; what is left behind is seen from outside."""
    here.held.clear()
    here.groups.clear()
    if here.torch is not None and here.torch.distributed.is_initialized():
        here.about_to("destroy the process group")
        here.torch.distributed.destroy_process_group()
    here.accelerator = None
    return "left"
