"""How is HTML written so that no text can become markup?

Every text is escaped, except what these functions returned. Secrets are masked, and control characters and those that
reorder a line are shown as escapes, here and only once. The result is also well-formed XML.
"""

from __future__ import annotations

import html
import re
from typing import TypeAlias

from mgpu.messages import clean

# XML 1.0 cannot represent these. `clean` has already made the control characters visible.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMPTY = frozenset({"br", "hr", "meta", "col", "rect", "line", "path", "circle", "polyline", "use"})


class Html(str):
    """Markup that is complete and safe. A plain text is not."""

    __slots__ = ()


Part: TypeAlias = "Html | str | int | float | None"


def escaped(text: object) -> Html:
    """Return a text as markup that shows it."""
    return Html(html.escape(_NOT_XML.sub("?", clean(text))))


def joined(*parts: Part) -> Html:
    """Return the parts one after another. None is left out."""
    return Html("".join(part if isinstance(part, Html) else escaped(part) for part in parts if part is not None))


def element(tag: str, *parts: Part, **attributes: str | float | bool | None) -> Html:
    """Return an element. An attribute `of_` is `of`, `a_b` is `a-b`; None and False are left out, True has no value."""
    shown = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if tag in _EMPTY and not parts:
        return Html(f"<{tag}{shown}/>")
    return Html(f"<{tag}{shown}>{joined(*parts)}</{tag}>")


def _attribute(name: str, value: str | float | bool | None) -> str:
    text = name.rstrip("_") if value is True else f"{value:g}" if isinstance(value, float) else str(value)
    return f' {name.rstrip("_").replace("_", "-")}="{escaped(text)}"'


def table(heads: tuple[str, ...], rows: list[tuple[Part, ...]], kind: str = "") -> Html:
    """Return a table. On a narrow screen each row becomes a block with the heads as labels."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = [
        element("tr", *(element("td", cell, data_label=name) for name, cell in zip(heads, row, strict=True)))
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", *body), class_=f"grid {kind}".strip())
