"""Does a log have a weight's name again, with the part that a wrapper adds?"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PARTS = ("_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module")
_WRAPPERS = rf"(?:(?:{'|'.join(_PARTS)}|base_model\.model)\.)*"
# An outer module's name is in front of many names that have nothing to do with the checkpoint.
_OF_CHECKPOINT = re.compile(r"(?i)unexpected|checkpoint|\bsaved\b|metadata|on disk")
_LONGEST_KEY, _SHORTEST_KEY = 400, 4


def wrapped_name(lines: Sequence[str], key: str) -> str | None:
    """Return the first name that is the key with parts of wrappers, or with "model." in a line about a checkpoint."""
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY or "." not in key:
        return None
    inner = r"\.".join(rf"{_WRAPPERS}{re.escape(part)}" for part in key.split("."))
    known = re.compile(rf"(?<![\w.-])(?:model\.)?{inner}(?![\w-]|\.\w)")
    last = key.rpartition(".")[2]
    for line in lines:
        if last not in line:
            continue
        for found in known.finditer(line):
            if found[0] == key or (found[0] == f"model.{key}" and not _OF_CHECKPOINT.search(line)):
                continue
            return found[0]
    return None
