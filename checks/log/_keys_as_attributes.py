"""Does an object lack a name that its class looks up itself: a config whose keys are read as attributes?

Such classes raise AttributeError with nothing but the name (yacs, ml_collections, a dict with attributes). The line
that reads it is the one that calls `__getattr__`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import PLAIN, Meaning

_LOOKS_UP = ("__getattr__", "__getattribute__")
_BARE = re.compile(r"[`'\"]?(?P<name>[A-Za-z_]\w*)[`'\"]?")


def lacking_key(one: UncaughtException) -> str | None:
    """Return the name that a class's own `__getattr__` did not find; None for any other exception."""
    if short_name(one.type) != "AttributeError" or not one.frames or not one.frames[-1].endswith(" in __getattr__"):
        return None
    found = _BARE.fullmatch(one.message)
    return found["name"] if found and not one.frames[-1].startswith("torch/") else None


def key_as_attribute(one: UncaughtException) -> Meaning | None:
    """Explain a name that an object does not have, by the line that reads it."""
    name = lacking_key(one)
    reader = next((call for call in reversed(one.calls) if call.function not in _LOOKS_UP), None)
    if name is None or reader is None:
        return None
    owners = {match["of"] for match in re.finditer(rf"(?<![\w.])(?P<of>{PLAIN})\.{name}\b", reader.code or "")}
    of = owners.pop() if len(owners) == 1 else None
    place = reader.place.partition(" in ")[0] if reader.package else reader.place
    look = python("print({:dotted})", of) if of else None
    return Meaning(
        f"{of or 'an object'} has no {name}, which {place} reads",
        "Its class looks up names itself: a config whose keys are read as attributes, or a wrapper that passes names "
        "on to what is in it. In a config, the key is missing in the file and in the defaults, is misspelled (also "
        "upper and lower case) or in another section, or code and config are from different versions. In a wrapper, "
        "what is inside has no such attribute.",
        (
            Fix("Print what it has, before that line.", (look or "print(x)",)),
            Fix(
                "Look for the key in the config files and the code, and add it or correct the name.",
                (shell("grep -rnwF --include='*.py' --include='*.y*ml' --include='*.json' -e {} .", name),),
            ),
        ),
    )
