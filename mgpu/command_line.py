"""How is a command line that a person pastes into a shell or a file built from untrusted values?

`shell("sudo ip link set {:interface} mtu {:number}", name, mtu)`: the template is a literal in mgpu's code, a hole
accepts a value from a config, a log, a machine or a person. Every value is quoted and must be of its hole's kind. If
one is not, there is no command: `shell` returns "", which is never shown.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import string
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import takewhile
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "str | int | float | Sequence[str] | Sequence[int] | None"

_LONGEST = 4096  # characters of a value: PATH_MAX of Linux

# Values of these kinds are one word without quotes, and mean the same between quotes of either sort.
_INERT = {
    "number": r"\d{1,20}(?:\.\d{1,20})?",
    "numbers": r"\d{1,10}(?:[,:-]\d{1,10})*",  # 0,2-3: GPUs, CPUs, ports
    "pid": r"[2-9]|[1-9]\d{1,9}",  # never 0 (the own process group) or 1
    "name": r"[A-Za-z_]\w{0,200}",  # of a variable or an option
    "dotted": r"[A-Za-z_]\w{0,200}(?:\.[A-Za-z_]\w{0,200}){0,20}",  # a Python name, a key of a config
    "host": r"[A-Za-z0-9_][\w.-]{0,252}|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,45}(?:%[\w.-]{1,15})?",
    "interface": r"[A-Za-z0-9_][\w.:@-]{0,62}",
    "id": r"[A-Za-z0-9_][\w.:+@%/-]{0,252}",  # a job, a UUID, a PCI address, a device, a version, an image
    "ids": r"[A-Za-z0-9_][\w.:+@%/-]{0,252}(?:,[A-Za-z0-9_][\w.:+@%/-]{0,252})*",
    "user": r"[A-Za-z0-9_][\w.@-]{0,252}",
    "option": r"--?[A-Za-z][\w-]{0,100}",
}
_VERSIONS = r"[<>=!~]{1,3}[\w.*+!]+"
_QUOTED = {
    "hosts": r"[A-Za-z0-9_][\w.,\[\]-]*",  # a Slurm host list: node[1-3,7]
    "adapters": r"[=^]{0,2}[\w.:@-]+(?:,[=^]{0,2}[\w.:@-]+)*",  # an NCCL list: ^mlx5_0,mlx5_1
    "package": rf"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?:{_VERSIONS}(?:,{_VERSIONS})*)?",
    "text": r".*",
    "argument": r".*",  # a word of the user's own command, which may be an option
    "path": r".+",
    "folder": r".+",  # a path, of which the command gets the folder that holds it
}
# Values that are not quoted because the shell has to expand them, each in the one place where that is harmless.
_RAW = {
    "directive": r"--?[\w-]+(?:[ =][^$`;|&<>()\\!*?~]*)?",  # of a #SBATCH line, which some shells also run
    # $HOST, ${HOST} and $(hostname), between double quotes
    "expansion": r"(?:[\w.,:@%+=/-]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|\$\(hostname(?: -[sfiI])?\))+",
    "nodes": r"[A-Za-z0-9_][\w.,\[\]-]*",  # node[1-3,7], as #SBATCH lines require it
    "tilde": r"~[\w.-]*",  # a home folder, at the start of a word
}
_OF_FILES = {"path", "folder"}
_MAY_BE_OPTIONS = {"option", "argument", "directive"}
_KINDS = {kind: re.compile(form, re.ASCII) for kind, form in {**_INERT, **_QUOTED, **_RAW}.items()}


class Command(str):
    """A shell command built by this module. Every other command that is shown is a literal in mgpu's code."""


class Code(str):
    """A line of Python built by this module."""


class _Hole(NamedTuple):
    before: str  # the template's text between the hole and the one before it
    field: str | None  # None after the last hole
    kind: str
    starts_word: bool
    quoted: bool  # whether it is between quotes of the template


def shell(template: str, *values: Value, **named: Value) -> Command:
    """Return the line with every hole filled by its quoted value, or "" if a value is not of its hole's kind.

    A hole is `{}` or `{name}` and may name a kind: `{:host}`. Without a kind it accepts any printable text. A sequence
    becomes words separated by spaces. Raises ValueError for a template in which a value could end a quote.
    """
    return _fill(_holes(template), values, named)


def python(template: str, *values: Value, **named: Value) -> Code:
    """Return a line of Python, filled as by `shell`; its holes accept only kinds that need no quotes."""
    holes = _holes(template)
    if any(hole.kind not in _INERT for hole in holes if hole.field is not None):
        raise ValueError(f"a hole of a kind that needs quotes in the Python line {template!r}")
    return Code(_fill(holes, values, named))


def from_words(words: Iterable[str]) -> Command:
    """Return a command from untrusted words, each quoted; "" if one of them is not printable."""
    given = list(words)
    if not given or not given[0] or not all(map(_printable, given)):
        return Command()
    return Command(" ".join([_as_program(given[0]), *map(shlex.quote, given[1:])]))


def joined(commands: Iterable[Command], between: str) -> Command:
    """Return the commands with a literal text between them; "" if one of them is ""."""
    given = list(commands)
    return Command(between.join(given)) if given and all(given) else Command()


def below(command: Command, remark: str = "", width: int = 0) -> str:
    """Return a command as another line of a message, followed by a remark; "" if there is no command."""
    return f"\n  {command:<{width}}   {remark}".rstrip() if command else ""


def remark(words: Iterable[str], longest: int = 50) -> str:
    """Return words as a comment after a command: "# train.py --lr 1"; only those before one that needs quotes.

    By default an interactive zsh runs the text of a comment.
    """
    plain = list(takewhile(lambda word: shlex.quote(word) == word, words))
    return f"# {' '.join(plain)[:longest]}" if plain else ""


def is_kind(kind: str, value: object) -> bool:
    """Return whether a value is of this kind and not too long for a command."""
    text = str(value)
    return len(text) <= _LONGEST and _printable(text) and _KINDS[kind].fullmatch(text) is not None


def _printable(text: str) -> bool:
    """Whether a text has no control character, line end, direction mark or undecoded byte."""
    return text.isprintable()


@cache
def _holes(template: str) -> tuple[_Hole, ...]:
    """The template's pieces. Raises ValueError for an unknown kind, or a kind that is not allowed in its place."""
    found: list[_Hole] = []
    quote = ""
    for before, field, kind, conversion in string.Formatter().parse(template):
        quote = _quote_after(before, quote)
        if field is not None:
            kind = kind or "text"
            if kind not in _KINDS or conversion:
                raise ValueError(f"no kind {kind!r} in {template!r}")
            if not _may_be_here(kind, quote, template):
                raise ValueError(f"a value of kind {kind!r} could end its quote or comment: {template!r}")
        starts = not quote and (before[-1:].isspace() if before else not found)
        found.append(_Hole(before, field, kind or "", starts, bool(quote)))
    return tuple(found)


def _may_be_here(kind: str, quote: str, template: str) -> bool:
    """Whether no value of this kind can end the quote or the comment that its hole is in."""
    if kind in _RAW:
        places = {
            "directive": template.startswith("#"),
            "expansion": quote == '"',
            "tilde": not quote,
            "nodes": not quote,
        }
        return places[kind]
    return not quote or kind in _INERT


def _quote_after(text: str, quote: str) -> str:
    """The quote that is open after this part of a template."""
    escaped = False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
    return quote


def _fill(holes: Sequence[_Hole], values: Sequence[Value], named: dict[str, Value]) -> Command:
    left = list(values)
    made = []
    for hole in holes:
        made.append(hole.before)
        if hole.field is None:
            continue
        value = named[hole.field] if hole.field else left.pop(0)
        items = [value] if value is None or isinstance(value, str | int | float) else value
        texts = [_quote(str(item), hole, first=made == [""]) for item in items if item is not None]
        written = [text for text in texts if text is not None]
        if not written or len(written) < len(items):
            return Command()
        made.append(" ".join(written))
    if left:
        raise ValueError("more values than holes")
    return Command("".join(made))


def _quote(value: str, hole: _Hole, *, first: bool) -> str | None:
    """A value as a word or a part of one; None if it is not of the hole's kind, or would be an option."""
    if not is_kind(hole.kind, value):
        return None
    if hole.kind == "folder":
        value = posixpath.dirname(value.rstrip("/") or "/") or "."
    if hole.starts_word and value.startswith("-") and hole.kind not in _MAY_BE_OPTIONS:
        if hole.kind not in _OF_FILES:
            return None
        value = f"./{value}"
    if hole.kind in _INERT or hole.kind in _RAW:
        return value
    return _as_program(value) if first else shlex.quote(value)


def _as_program(word: str) -> str:
    """Quote the word at the start of a line: `A=b/python` without quotes would set a variable."""
    return "'" + word.replace("'", "'\"'\"'") + "'" if "=" in word else shlex.quote(word)
