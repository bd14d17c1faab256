"""What is an entry of the tables of messages with which packages refuse what a script gives them?

The tables are in `_refused_inputs.py` and the modules that it imports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import Meaning


@dataclass(frozen=True)
class Refusal:
    """What one message means. Title and why are templates: the pattern's groups, and {at}, the place in brackets."""

    types: str  # names of exceptions, without their module; empty: any
    pattern: str
    title: str
    why: str
    fixes: tuple[Fix, ...]
    of_code: bool = False  # about the code or the installation, which all ranks share; else about data
    within: str = ""  # only if this matches a frame, for messages that mean something else in other packages
    own: bool = False  # only if the script's own line raised it: a package's line can have another reason

    def read(self, one: UncaughtException, text: str) -> Meaning | None:
        """Return what an exception means; None if it is another one."""
        types = self.types.split()
        if (types and short_name(one.type) not in types) or (self.own and one.packages[-1:] != ("",)):
            return None
        if self.within and not any(re.search(self.within, frame) for frame in one.frames):
            return None
        if not (found := re.search(self.pattern, text)):
            return None
        groups = {name: value or "" for name, value in found.groupdict().items()}
        groups["at"] = f" ({one.place})" if one.place else ""
        return Meaning(self.title.format(**groups), self.why.format(**groups), self.fixes, self.of_code)
