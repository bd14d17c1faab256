"""How is plain text from a table written in Markdown?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

_CODE = re.compile(r"(`[^`\n]+`)")
# What Markdown or HTML would not show as it is. An underscore within a word stays.
_SPECIAL = re.compile(r"[\\*<\[|#]|(?<![^\W_])_|_(?![^\W_])")
# mgpu/check.py: a source that is a measurement ends with its date.
_MEASURED = re.compile(r"measured (?:with |on )?(.+?),? (\d{4}-\d\d(?:-\d\d)?)")
_ADDRESS = re.compile(r"(https?://[^\s<>]*[^\s<>.,;)])")
_IN_CODE = re.compile(r"[|*_`\\\[\]]")


def plain(text: Any) -> str:
    """Return a text on one line that Markdown shows as it is, except for its `code`."""
    parts = _CODE.split(" ".join(str(text).split()))
    return "".join(code(part[1:-1]) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _entity(found) if found[0] in "<|" else f"\\{found[0]}", text)


def code(text: Any) -> str:
    """Return a text as inline code, also in a table and with backticks in it."""
    if not text or not set(str(text)) & {"|", "`"}:
        return f"`{text}`" if text else ""
    safe = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<code>{_IN_CODE.sub(_entity, safe)}</code>"


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines) + "\n"


def block(text: str, language: str = "text") -> str:
    """Return a block of code. The fence is longer than any in the text."""
    longest = max((len(found) for found in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def source(text: str) -> str:
    """Return a source, whose addresses become links."""
    if measured := _MEASURED.fullmatch(text):
        return f"Measurement of {measured[2]}: {_escaped(measured[1])}"
    if page := re.fullmatch(r"mgpu: docs/([\w-]+)\.md", text):
        return f"[mgpu's documentation](../{page[1]}.md)"
    parts = _ADDRESS.split(text)
    return "".join(f"<{part}>" if number % 2 else _escaped(part) for number, part in enumerate(parts))


def front(title: str, description: str, *, tags: Sequence[str] = (), searched: bool = True) -> str:
    """Return the head of a page: its title, its description for search engines, and what else a search finds it by."""
    head = {"title": title, "description": " ".join(description.split())}
    more = ({"tags": list(tags)} if tags else {}) | ({} if searched else {"search": {"exclude": True}})
    lines = [f"{name}: {json.dumps(value)}" for name, value in {**head, **more}.items()]  # JSON is YAML
    return "\n".join(("---", *lines, "---\n\n"))
