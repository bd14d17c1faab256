"""Which names of options and variables mean that a run has several ranks?"""

from __future__ import annotations

import re

# The calls with which torch starts processes as ranks, by their whole name.
TORCH_SPAWNS = r"torch\.multiprocessing\.(?:spawn|start_processes)"
_WORDS = r"distributed|ddp|dist|multi[-_]?gpu|parallel|fsdp"
_NAME = re.compile(rf"(?:use_|is_)?(?:{_WORDS}|accelerator)(?:_training)?")
_OPTION = re.compile(rf"--(?:[\w-]*[-_])?(?:{_WORDS}|multiprocessing|spawn)[\w-]*")


def is_name_of_several(name: str) -> bool:
    """Whether a variable of this name means a run of several ranks: use_ddp, distributed."""
    return _NAME.fullmatch(name) is not None


def has_option_of_several(text: str) -> bool:
    """Whether a text contains an option that may decide whether there are several: --multi-gpu, --dist-url."""
    return _OPTION.search(text) is not None
