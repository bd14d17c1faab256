"""Which options does a launcher read from its words, and where does the script begin? As Python's argparse reads them.

An option that the parser would reject is not reported here: the launcher itself says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mgpu.launchers.foreign_programs import Options


class Given(NamedTuple):
    """The options of a line; the last of several counts. A switch has the value ""."""

    values: dict[str, str]
    rest: tuple[str, ...]  # the script and its arguments

    def number(self, name: str) -> int | None:
        """Return an option's value as a number; None if it is not given or is none."""
        return whole_number(self.values.get(name, ""))


def read(words: Sequence[str], options: Options) -> Given:
    """Return the options in the words after a launcher's name, and the words from its script on."""
    values: dict[str, str] = {}
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            place += 1
            break
        if not word.startswith("-") or len(word) == 1:
            break
        place += 1
        name, value = _split(word, options)
        if name in options.switches:
            values[name] = ""
        elif value is not None:
            values[name] = value
        elif place < len(words):
            values[name] = words[place]
            place += 1
    return Given(values, tuple(words[place:]))


def _split(word: str, options: Options) -> tuple[str, str | None]:
    """Return the long name of an option, and its value if it is in the same word: --x=1, -r3."""
    name, equals, value = word.partition("=")
    if not word.startswith("--") and word[1] in options.short:
        attached = word[2:].removeprefix("=")
        return options.short[word[1]], attached or None
    return long_name(name, options), value if equals else None


def long_name(written: str, options: Options) -> str:
    """Return the name of an option, also of an abbreviated one; as written if it is unknown."""
    name = written.lstrip("-").replace("-", "_")
    known = options.switches | options.values
    if not options.abbreviates or name in known:
        return name
    longer = [one for one in known if one.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def whole_number(text: str) -> int | None:
    """Return a text as int() reads it; None for any other, or for a number of more than nine digits."""
    plain = text.strip().removeprefix("+")
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) < 10 else None
