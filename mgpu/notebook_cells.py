"""Which places of a traceback are a notebook's cells, and which commands cannot read them?

A cell has no file: IPython calls it "Cell In[3]" or "<ipython-input-3-...>", its kernel "/tmp/ipykernel_7/2861540.py".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu.check import Fix

_NAMES = (
    r"<ipython-input-(?P<old>\d+)|Cell In ?\[(?P<count>\d+)\]|\.ipynb Cell \d|"
    r"(?<![\w.-])(?!(?:19|20)\d\d[01]\d[0-3]\d(?:\d\d)*\.py)\d{7,}\.py\b"  # of ipykernel; no date
)
_CELL = re.compile(_NAMES)
_LOOKS_INTO_CELL = re.compile(rf"^(?:grep|python -m (?:pyflakes|py_compile)) .*(?:{_NAMES})")
_LINTER = "pip install pyflakes"


def is_cell(place: str | None) -> bool:
    """Whether a place, such as "Cell In[3]:8 in load", is in a notebook's cell."""
    return _CELL.search(place or "") is not None


def is_first_run(place: str | None) -> bool:
    """Whether the place is at the top level of the first cell that its kernel ran."""
    found = _CELL.search(place or "")
    return found is not None and "1" in (found["old"], found["count"]) and " in " not in (place or "")


def without_cells(fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Return the fixes without the commands that look into a cell as into a file."""
    return tuple(kept for fix in fixes if (kept := _without_cells(fix)) is not None)


def _without_cells(fix: Fix) -> Fix | None:
    """Return a fix without such commands; None if it only runs a linter."""
    left = [command for command in fix.commands if not _LOOKS_INTO_CELL.search(command)]
    if len(left) == len(fix.commands):
        return fix
    return None if left == [_LINTER] else replace(fix, commands=tuple(left))
