"""How is a line of the user's source shown? Without secrets: the values beside a secret's name, and keys."""

from __future__ import annotations

import re

from mgpu.readers.log.line import shown_text
from mgpu.secret_names import is_secret_name

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_LITERAL = re.compile(r"""[rRbBfFuU]{0,2}('{3}|"{3}|'|")(?P<text>(?:\\.|(?!\1).)*)\1""")
_KEY = re.compile(r"(?=[\w+/=-]{24,}$)(?=.*\d)(?=.*[A-Za-z])[\w+/=-]+")  # long, of letters and digits, without a space
_SECRET_DIGITS = 6  # a number with so many can be a password


def shown_code(text: str) -> str:
    """Return source code in one line, clipped.

    Every text and long number in it is masked if a name in the line, also one within a text, is a secret's.
    """
    text = shown_text(text)
    secret = any(map(is_secret_name, _NAME.findall(text)))

    def mask(found: re.Match[str]) -> str:
        inner = found["text"]
        names = secret and not is_secret_name(inner)
        return f"{found[1]}***{found[1]}" if inner and (names or _KEY.match(inner)) else found[0]

    masked = _LITERAL.sub(mask, text)
    return re.sub(rf"\b\d{{{_SECRET_DIGITS},}}\b", "***", masked) if secret else masked
