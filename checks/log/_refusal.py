"""What is an entry of the tables of messages with which packages refuse what a script gives them?

The tables are in `_refused_inputs.py` and the modules that it imports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_MEMBER = re.compile(r"\b(?P<of>self(?:\.\w+)+(?:\[\w+\])?)\(")
_OF_LAYER = re.compile(r"torch/nn/modules/(?!module\.py)\w+\.py in forward$")
_ARTICLE = re.compile(
    r"\ba (?=(?:int|object|items|enumerate|iterator|array|ellipsis|exception|IterableDataset(?:Dict)?)\b)"
)
_CUT = " ... "  # what a log's reader has left out of a long message


class Look(NamedTuple):
    """What to look at first. The command is a template: the pattern's groups, each with a kind."""

    text: str
    command: str


@dataclass(frozen=True)
class Refusal:
    """What one message means. Title and why are templates of the pattern's groups.

    Beside these: {at}, the place in brackets, {layer}, which layer the script's line calls, and {package}.
    """

    types: str  # names of exceptions, without their module; empty: any
    pattern: str
    title: str
    why: str
    fixes: tuple[Fix, ...]
    of_code: bool = False  # about the code or the installation, which all ranks share; else about data
    raised: str = ""  # what the line that raised it has, also one of Python's own library, which `frames` leave out
    within: str = ""  # only if this matches a frame, for messages that mean something else in other packages
    own: bool = False  # only if the script's own line raised it: a package's line can have another reason
    in_package: bool = False  # only if an installed package's line raised it, which the templates call {package}
    line: str = ""  # what the script's own line has; its groups are the template's, too
    look: Look | None = None
    raised_in: str = ""  # only if this matches the deepest frame
    code: str = ""  # only if the line that raised it, in a package, has this

    def read(self, one: UncaughtException, text: str) -> Meaning | None:
        """Return what an exception means; None if it is another one."""
        types = self.types.split()
        if (types and short_name(one.type) not in types) or (self.own and not one.raised_in_own_code):
            return None
        package = one.packages[-1] if one.packages else ""
        if self.in_package and not package:
            return None
        if self.within and not any(re.search(self.within, frame) for frame in one.frames):
            return None
        if self.raised_in and not re.search(self.raised_in, (one.frames or ("",))[-1]):
            return None
        if self.code and not re.search(self.code, one.code or ""):
            return None
        if not (found := re.search(self.pattern, text)):
            return None
        if not re.search(self.raised, one.code or ""):
            return None
        if not (line := re.search(self.line, one.own_code or one.code or "")):
            return None
        groups = {name: value or "" for name, value in {**line.groupdict(), **found.groupdict()}.items()}
        groups["at"] = at_place(one)
        groups["layer"], groups["package"] = layer_of(one), package
        shows = self.look if _CUT not in groups.get("path", "") else None
        shown = (Fix(shows.text, (shell(shows.command, **groups),)),) if shows else ()
        title, why = (_ARTICLE.sub("an ", text.format(**groups)) for text in (self.title, self.why))
        return Meaning(title, why, (*shown, *self.fixes), self.of_code)


def layer_of(one: UncaughtException) -> str:
    """Return the layer that refused its input, as the script's line names it, if it calls only one."""
    names = {match["of"] for match in _MEMBER.finditer(one.own_code or "")}
    layers = [frame for frame in one.frames if _OF_LAYER.search(frame)]
    if len(names) != 1 or not layers:
        return "the layer"
    within = len(layers) > 1 or "/container.py" in layers[0]  # what the script calls has layers of its own
    return f"a layer in {names.pop()}" if within else names.pop()
