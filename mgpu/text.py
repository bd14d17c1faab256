"""How is untrusted text made safe to show: file names, log lines, messages of libraries?

Colors are dropped. Every other control character, and the characters that reorder a line, are shown as escapes: two
different names never look equal, and no name acts on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_COLORS = re.compile(r"\x1b\[[0-9;?]{0,64}[ -/]{0,8}[@-~]")
# C0 except tab and newline, DEL, C1, line and paragraph separators, and the marks that change the text direction.
_UNSEEN = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff"
_ACTING = re.compile(f"[{_UNSEEN}]")
_IN_NAMES = re.compile(f"[\\t\\n{_UNSEEN}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def clean(text: object) -> str:
    """Return untrusted text without colors, its control characters as escapes. Line breaks and tabs stay."""
    return _ACTING.sub(_escaped, _COLORS.sub("", str(text)))


def visible(name: object) -> str:
    """Return a name on one line: newlines, tabs and escape sequences are also shown as escapes."""
    return _IN_NAMES.sub(_escaped, str(name))


def with_visible(text: str, names: Iterable[str]) -> str:
    """Make these names, and the names of folders and files in them, visible in a message."""
    parts = {part for name in names if _IN_NAMES.search(name) for part in (name, *name.split("/")) if part.strip()}
    for part in sorted(parts, key=len, reverse=True):
        if _IN_NAMES.search(part):
            text = text.replace(part, visible(part))
    return text


def listed(items: Iterable[object], word: str = "and") -> str:
    """[0] -> "0", [0, 2] -> "0 and 2", [0, 1, 3] -> "0, 1 and 3"."""
    *most, last = [str(item) for item in items] or [""]
    return f"{', '.join(most)} {word} {last}" if most else last


def plural(number: int, one: str, many: str | None = None) -> str:
    """(1, "GPU") -> "GPU", (2, "GPU") -> "GPUs"."""
    return one if number == 1 else many or f"{one}s"


def with_article(word: str) -> str:
    """Return "a tuple", "an int"."""
    return f"{'an' if word[:1].lower() in set('aeiou') else 'a'} {word}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """(1, "GPU") -> "1 GPU", (2, "GPU") -> "2 GPUs"."""
    return f"{number} {plural(number, one, many)}"


def visible_json(text: str) -> str:
    """Escape the characters in a JSON text that act on a terminal. The parsed value is the same."""
    return _ACTING.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    char = found.group()
    if char in _SHORT:
        return _SHORT[char]
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean X?" with the closest of the names; "" if none is close."""
    import difflib

    by_word = {each.lstrip("-"): each for each in names}  # the dashes of two options make them no more alike
    near = difflib.get_close_matches(name.lstrip("-"), list(by_word), n=1, cutoff=0.5)
    return f" Did you mean {by_word[near[0]]}?" if near else ""


_EXPANSION = re.compile(r"\$(?:\{(\w+)(?=[}:?=+-])|\()")


def shell_path(path: str, longest: int = 60) -> str:
    """Return a path of a shell script, shortened to be shown: its end, without the defaults of its variables.

    ${ROOT:-${PWD:?no folder}}/train.sh becomes $ROOT/train.sh; a command becomes $(...).
    """
    shown, start = "", 0
    for found in _EXPANSION.finditer(path):
        if found.start() >= start:
            name = found[1]
            shown += path[start : found.start()] + (f"${name}" if name else "$(...)")
            start = _end_of_brackets(path, found.end(), "{}" if name else "()")
    shown = " ".join((shown + path[start:]).split())
    if len(shown) <= longest:
        return shown
    end = shown[3 - longest :]
    return f"...{end[end.find('/') :] if '/' in end[:-1] else end}"


def _end_of_brackets(text: str, start: int, kind: str) -> int:
    """Return the index after the bracket that closes one open before `start`."""
    depth = 1
    while depth and start < len(text):
        depth += (text[start] == kind[0]) - (text[start] == kind[1])
        start += 1
    return start
