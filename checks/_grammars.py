"""How does NCCL interpret the value of a variable?

A grammar returns the effect of a value that NCCL misreads, as part of a sentence ("NCCL reads 0"), or None if the value
is valid. A grammar never raises. The user guide (env.html) defines the allowed values, the sources define the effect of
invalid ones: src/misc/param.cc (numbers), src/graph/paths.cc (levels), src/graph/tuning.cc (algorithms and protocols),
src/debug.cc (logging), src/misc/socket.cc (interfaces), src/init.cc (policies).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]  # () if unknown


@dataclass(frozen=True)
class Misread:
    """The effect of a value that NCCL misreads. `fatal`: NCCL stops with an error."""

    effect: str
    fatal: bool = False


Grammar: TypeAlias = Callable[[str, Version], "Misread | None"]


def format_version(version: Version) -> str:
    """Format a version: (2, 24) -> "2.24"."""
    return ".".join(map(str, version))


_UNIT = re.compile(r"[kKmMgG]i?[bB]?|[bB]", re.ASCII)


def c_integer(text: str) -> tuple[int, str]:
    """Parse like strtoll with base 0: the number at the start of the text (0 if none), and the rest of the text."""
    found = re.match(r"[ \t\n\v\f\r]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))", text, re.ASCII)
    if found is None:
        return 0, text
    sign, hexadecimal, octal, decimal = found.groups()
    digits, base = next((d, b) for d, b in ((hexadecimal, 16), (decimal, 10), (octal, 8)) if d is not None)
    # 40 digits are out of range of a long already, and int() rejects thousands of digits.
    number = int(digits[:40] or "0", base)
    return -number if sign == "-" else number, text[found.end() :]


def is_on(value: str | None) -> bool:
    """Return whether NCCL reads a switch with this value as on: the number is 1."""
    return value is not None and c_integer(value)[0] == 1


@dataclass(frozen=True)
class Number:
    """An integer as NCCL reads it: anything after the digits is dropped, and text without digits is 0."""

    low: int | None = None
    high: int | None = None
    beyond: str | None = None  # effect of a number out of range, if known
    before: tuple[Version, int] | None = None  # (version, highest value before that version)

    def __call__(self, value: str, version: Version) -> Misread | None:
        if not value or value == "***":  # NCCL uses its default; a masked value is unknown
            return None
        number, rest = c_integer(value)
        if abs(number) >= 1 << 63:
            return Misread("the number is too large: NCCL uses its default")
        if rest.strip():
            return Misread(f"NCCL reads {number}" + (" and drops the unit" if _UNIT.fullmatch(rest.strip()) else ""))
        if re.fullmatch(r"\s*[+-]?0[0-7]{1,30}\s*", value, re.ASCII) and int(value) != number:
            return Misread(f"a leading 0 means octal: NCCL reads {number}")
        high = self.high
        if self.before and version and version < self.before[0]:
            high = self.before[1]
        if number in (-1, -2):  # "not set" in the sources
            return None
        if (self.low is not None and number < self.low) or (high is not None and number > high):
            allowed = f"{self.low} to {high}" if high is not None else f"{self.low} or more"
            return Misread(self.beyond or f"the guide allows {allowed}")
        return None


SWITCH = Number(0, 1)
THREE_WAY = Number(0, 2)
ANY_NUMBER = Number()


def boolean(value: str, version: Version) -> Misread | None:
    """Accept 1 and 0 and, from 2.30.7 (typed parameters), true and false."""
    if version >= (2, 30, 7) and value.upper() in ("T", "TRUE", "F", "FALSE"):
        return None
    return SWITCH(value, version)


SIZE = Number(1, None, "a size must be at least 1")
# p2p and shm are disabled only by exactly 1 (src/graph/paths.cc ncclGetLevel, src/transport/shm.cc).
OFF_AT_ONE = Number(0, 1, "only 1 disables it")


@dataclass(frozen=True)
class Words:
    """One of several words."""

    words: tuple[str, ...]
    otherwise: str
    any_case: bool = True
    trimmed_since: Version | None = None  # surrounding spaces are ignored from this version on
    since: Mapping[str, Version] = field(default_factory=dict)  # of words that older versions do not know

    def __call__(self, value: str, version: Version) -> Misread | None:
        if self.trimmed_since and version >= self.trimmed_since:
            value = value.strip()
        word = value.upper() if self.any_case else value
        known = word in self.words and (not version or version >= self.since.get(word, ()))
        return None if not value or value == "***" or known else Misread(self.otherwise)


@dataclass(frozen=True)
class WordList:
    """Comma-separated words; `^` before the first means all but these."""

    words: tuple[str, ...]
    whole_since: Version  # from this version on, one unknown word invalidates the whole list
    since: Mapping[str, Version] = field(default_factory=dict)  # of words that older versions do not know

    def __call__(self, value: str, version: Version) -> Misread | None:
        tokens = [token for token in value.removeprefix("^").split(",") if token.strip()]
        blanks = bool(version) and version < self.whole_since  # spaces were significant before
        known = [word for word in self.words if not version or version >= self.since.get(word, ())]
        unknown = [token for token in tokens if (token if blanks else token.strip()).upper() not in known]
        if not unknown or value == "***":
            return None
        if version >= self.whole_since:
            return Misread(f"{unknown[0]!r} is unknown: NCCL uses its default for the whole list")
        if len(unknown) == len(tokens) and not value.startswith("^"):
            return Misread("all entries are unknown: nothing is logged")
        return Misread(f"{unknown[0]!r} is unknown and ignored")


_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_LEVELS_SINCE: Mapping[str, Version] = {"C2C": (2, 26), "P2C": (2, 27)}
_OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")  # the numbers 0 to 4; more is SYS


def level(value: str, version: Version = ()) -> str | None:
    """Return the path type that NCCL_P2P_LEVEL or NCCL_NET_GDR_LEVEL selects, or None if NCCL ignores the value."""
    if value in _LEVELS:
        return value if not version or version >= _LEVELS_SINCE.get(value, ()) else None
    if value[:1].isascii() and value[:1].isdecimal():
        return _OLD_LEVELS[min(max(c_integer(value)[0], 0), 4)]
    return None


def path_type(value: str, version: Version) -> Misread | None:
    """Accept path types in capitals, or the older numbers."""
    if value in ("", "***") or level(value, version):
        return None
    if value.strip().upper() in _LEVELS:
        return Misread(f"it must be {value.strip().upper()} in capitals: NCCL ignores it silently")
    return Misread("no such path type: NCCL ignores it silently")


_FUNCTIONS = ("BROADCAST", "REDUCE", "ALLGATHER", "REDUCESCATTER", "ALLREDUCE")
_STRICT: Version = (2, 24)  # from here on, an unknown word is an error, and NCCL does not silently fall back to ring
# fmt: off
ALGORITHMS: Mapping[str, Version] = {
    "RING": (2, 5), "TREE": (2, 5), "COLLNETCHAIN": (2, 14), "COLLNETDIRECT": (2, 14), "NVLS": (2, 17),
    "NVLSTREE": (2, 18), "PAT": (2, 23),
}
# fmt: on
PROTOCOLS: Mapping[str, Version] = {"LL": (2, 5), "LL128": (2, 5), "SIMPLE": (2, 5)}


@dataclass(frozen=True)
class Choices:
    """NCCL_ALGO and NCCL_PROTO: `ring,tree`, `^tree`, and from 2.24 on `ring;allreduce:tree`. Spaces count."""

    names: Mapping[str, Version]

    def __call__(self, value: str, version: Version) -> Misread | None:
        if not value or value == "***":
            return None
        strict = not version or version >= _STRICT
        if not strict and any(sign in value for sign in ";:"):
            return Misread("choices per function require NCCL 2.24: they are ignored")
        for place, (function, listed) in enumerate(self._parts(value)):
            if not function and place:
                return Misread(f"{listed!r} has no function name: NCCL stops with an error", fatal=True)
            if function and function.upper() not in _FUNCTIONS:
                return Misread(f"{function!r} is not an NCCL function: NCCL stops with an error", fatal=True)
            for word in listed.removeprefix("^").split(","):
                if word and (misread := self._word(word, version, strict)):
                    return misread
        return None

    @staticmethod
    def _parts(value: str) -> Iterator[tuple[str, str]]:
        """Yield each function ("" for all) with its words."""
        for part in value.split(";"):
            pieces = [piece for piece in part.split(":") if piece]
            if pieces:
                yield ("", pieces[0]) if len(pieces) == 1 else (pieces[0], pieces[1])

    def _word(self, word: str, version: Version, strict: bool) -> Misread | None:
        since = self.names.get(word.upper())
        if since is not None and (not version or version >= since):
            return None
        what = f"{word!r} is unknown" if since is None else f"{word!r} requires NCCL {format_version(since)}"
        if word.strip().upper() in self.names and word != word.strip():
            what = f"{word!r} with a space is unknown"
        if not version:
            return Misread(f"{what}: NCCL 2.24 and newer stop with an error, older versions ignore it")
        if strict:
            return Misread(f"{what}: NCCL stops with an error", fatal=True)
        return Misread(f"{what}: NCCL ignores it")

    def chosen(self, value: str) -> dict[str, frozenset[str]]:
        """Return the remaining choices for each function, by its name in capitals."""
        everything = frozenset(self.names)
        left = dict.fromkeys(_FUNCTIONS, everything)
        for function, listed in self._parts(value.upper()):
            words = frozenset(listed.removeprefix("^").split(",")) & everything
            kept = everything - words if listed.startswith("^") else words
            left.update(dict.fromkeys((function,) if function in left else () if function else _FUNCTIONS, kept))
        return left


ALGO = Choices(ALGORITHMS)
PROTO = Choices(PROTOCOLS)


def interface_list(value: str, version: Version) -> Misread | None:
    """Accept `eth`, `=eth0,eth1`, `^docker,lo`: name prefixes, with `=` exact names, with `^` exclusions."""
    del version
    if not value or value == "***":
        return None
    if len(value) == 1:
        return Misread("one character is too short: NCCL ignores it and chooses an interface")
    listed = value.removeprefix("^").removeprefix("=")
    for part in listed.split(","):
        if part != part.strip() or any(sign in part for sign in " \t;"):
            return Misread(f"NCCL reads spaces and semicolons as part of the name {part!r}: separate names with commas")
        if part[:1] in "^=!" and part:
            return Misread(f"{part[0]!r} works only at the start of the list: no interface is called {part!r}")
        if any(sign in part for sign in "*?"):
            return Misread(f"{part!r} is taken literally: NCCL matches prefixes, not patterns")
    return None


def adapter_list(value: str, version: Version) -> Misread | None:
    """Accept `mlx5`, `=mlx5_0:1,mlx5_1`, `^mlx5_2`, and from 2.30 on rail and plane: `=mlx5_0:1:0:0`."""
    misread = interface_list(value, version)
    if misread or value == "***":
        return misread
    for part in value.removeprefix("^").removeprefix("=").split(","):
        _, *numbers = part.split(":")
        wrong = next((text for text in numbers if text and not re.fullmatch(r"-?[0-9]+", text)), None)
        if wrong is not None:
            return Misread(f"{wrong!r} is not a port number: NCCL reads 0")
        if len(numbers) > 3:
            return Misread(f"{part!r} has more than port, rail and plane: the rest is ignored")
    return None


def file_path(value: str, version: Version) -> Misread | None:
    """Accept any path that does not start with `~`, which NCCL does not expand."""
    del version
    return Misread("NCCL does not expand ~: no such file") if value.startswith("~") else None


# Redacted addresses have the form address-<hex> or address6-<hex>.
_CIDR = re.compile(r"(?:[0-9.]+|[0-9a-fA-F:.]+|address6?-[0-9a-f]+)/([0-9]{1,3})", re.ASCII)


def address_range(value: str, version: Version) -> Misread | None:
    """Accept addresses in CIDR notation: `10.0.0.0/8`."""
    del version
    if value in ("", "***"):
        return None
    found = _CIDR.fullmatch(value)
    if found is None:
        return Misread("it is not in CIDR notation (10.0.0.0/8): NCCL ignores it")
    most = 128 if ":" in value or value.startswith("address") else 32
    return Misread(f"/{found[1]} is more than {most}: NCCL ignores it") if int(found[1]) > most else None


def host_and_port(value: str, version: Version) -> Misread | None:
    """Accept `localhost:28028`, `[::1]:28028`."""
    del version
    if value in ("", "***"):
        return None
    found = re.fullmatch(r"(?:\[[^\]]*\]|[^\[\]:]+):([0-9]{1,5})", value, re.ASCII)
    if found and int(found[1]) < 65536:
        return None
    return Misread("it is not HOST:PORT, or [ADDRESS]:PORT for IPv6")


def cta_policy(value: str, version: Version) -> Misread | None:
    """Accept `DEFAULT`, `EFFICIENCY`, `ZERO`, joined by `|`; before 2.29, 0 to 2."""
    if value in ("", "***"):
        return None
    if value[0].isascii() and value[0].isdecimal():
        return None if value in ("0", "1", "2") else Misread("NCCL uses DEFAULT (allowed numbers: 0, 1, 2)")
    unknown = [word for word in value.split("|") if word.upper() not in ("DEFAULT", "EFFICIENCY", "ZERO")]
    if unknown:
        return Misread(f"{unknown[0]!r} is not a policy: NCCL ignores it")
    if version and version < (2, 29):
        return Misread("names require NCCL 2.29: NCCL reads 0, the default")
    return None


def device_policy(value: str, version: Version) -> Misread | None:
    """Accept `AUTO`, `ALL`, `MAX:4`."""
    del version
    if value in ("", "***") or value.upper() in ("AUTO", "ALL") or re.fullmatch(r"(?i)MAX:0*[1-9][0-9]*", value):
        return None
    return Misread("NCCL uses AUTO (allowed: AUTO, ALL, MAX:number)")


def thread_count(value: str, version: Version) -> Misread | None:
    """Accept threads per block: whole warps, 64 to 512."""
    misread = ANY_NUMBER(value, version)
    number = c_integer(value)[0]
    if misread or number <= 0 or (number % 32 == 0 and 64 <= number <= 512):
        return misread
    return Misread(f"NCCL uses its {'minimum' if 0 < number < 64 else 'maximum'} (allowed: 64, 128, 256, 512)")


def any_text(value: str, version: Version) -> Misread | None:
    """Accept any value."""
    del value, version
    return None
