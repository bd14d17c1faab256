"""Which modules does a file import, according to its lines? It is not parsed: thousands of lines take a millisecond."""

from __future__ import annotations

import re

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_COMMENT = re.compile(rb"#[^\n]*")
_MOST = 200  # imports that are read in one file


def imported_modules(raw: bytes, package: str) -> list[str]:
    """Return the dotted names that may be modules: `a.b` and `a.b.c` for `from a.b import c`."""
    found: dict[str, None] = {}
    for number, match in enumerate(_IMPORT.finditer(raw)):
        if number >= _MOST:
            break
        dots, module, names, plain = (part or b"" for part in match.groups())
        if plain:
            found.update(dict.fromkeys(_first_words(plain)))
            continue
        parts = package.split(".") if package else []
        if len(dots) > 1:
            parts = parts[: len(parts) - (len(dots) - 1)]
        above = ".".join(parts) if dots else ""
        base = ".".join(part for part in (above, module.decode("ascii", "ignore").strip(".")) if part)
        if base:
            found[base] = None
        for name in _first_words(_COMMENT.sub(b"", names).strip(b"()")):
            found[f"{base}.{name}" if base else name] = None
    return list(found)


def _first_words(names: bytes) -> list[str]:
    """Return `a.b` and `c` for `a.b as x, c`."""
    words = (part.split() for part in names.decode("ascii", "ignore").replace("\\", " ").split(","))
    return [one[0] for one in words if one and one[0] != "*"]
