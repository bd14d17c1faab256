"""Which names of options, variables and keys mark their value as a secret? The words are in `secret_patterns.py`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from mgpu import secret_patterns as patterns

Kind = Literal["", "weak", "strong", "password"]  # weak: `key`, `token` alone; password: its value may be a number

LONGEST_NAME = 120
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NO_NAMES = frozenset({"PWD", "OLDPWD"})  # folders of a shell
_NUMBERS_TOO = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "passwords", "pass", "pw"})

OF_PROSE = frozenset({"credential", "credentials", "creds", "secret", "secrets"})
# fmt: off
_ENDINGS: tuple[tuple[str, frozenset[str]], ...] = (  # of a name, and the words before it with which it is not a secret
    ("token", patterns.NO_TOKEN), ("key", frozenset()), ("pass", patterns.NO_PASS), ("pw", patterns.NO_PASS),
)
# fmt: on


def is_secret_name(name: str) -> bool:
    """Whether the value of this option, variable or key is a secret: --hub_token, WANDB_API_KEY."""
    return bool(kind_of_name(name[-LONGEST_NAME:]))


@lru_cache(maxsize=4096)
def kind_of_name(name: str) -> Kind:
    """How surely a name marks a secret; "" if it does not."""
    words = [word.lower() for word in PARTS.findall(name)]
    if not words or name in _NO_NAMES:
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "webhook" in words and last in ("webhook", "url", "uri"):
        return "strong"
    if last in patterns.ABOUT and words[-2:] != ["secret", "id"]:
        return ""
    if words[0] in OF_PROSE and len(words) == 1:  # "Invalid credential: the clocks differ"
        return "weak"
    for word in words:
        if word in patterns.SECRET_WORDS or word.endswith(patterns.SECRET_ENDS):
            return "password" if word in _NUMBERS_TOO or word.endswith(("password", "passwd", "pwd")) else "strong"
    if words[-2:] == ["connection", "string"] or last in ("connectionstring", "connstr"):
        return "strong"
    return _kind_of_last(last, before)


def _kind_of_last(last: str, before: str) -> Kind:
    """Judge a name by its final word and the word before it."""
    for end, never in _ENDINGS:
        if not last.endswith(end):
            continue
        first = last[: -len(end)]
        if first and end in ("pass", "pw") and first not in patterns.PASS_OF:
            return ""
        if first and end == "token" and (first in never or before in ("num", "max", "min", "n")):
            return ""
        of = first or before
        if not of:
            return "weak"
        known = of not in never if never else of in patterns.CREDENTIAL_OF
        return ("password" if end in ("pass", "pw") else "strong") if known else ""
    if last in ("tokens", "keys", "pat"):
        return "strong" if before in patterns.CREDENTIAL_OF else ""
    if last in ("cookie", "cookies", "auth", "sas"):
        return "strong" if before else "weak"
    return "weak" if last in ("sig", "signature") else ""
