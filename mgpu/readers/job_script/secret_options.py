"""Which options of a command have a secret as their value, written into the job script?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import masked_argv
from mgpu.snapshot import JobText

_SHORTEST_SECRET = 8
_PLACEHOLDER = re.compile(
    r"[<>\[\]{}*]|\.\.\.|x{3}|your|token|key|insert|change|replace|todo|secret|password|here|fill", re.IGNORECASE
)
_LOGIN = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@$]{1,100}:([^\s/@$]{5,200})@([^\s/:@$]+)")  # password, host
_NO_PASSWORDS = frozenset({"passwd", "passw0rd", "postgres", "12345", "123456", "admin", "guest"})
_FOLDER = r"[\w.@-]{1,32}"
# Where something is, or the name of a variable: a file that has the secret, --pwd of a container, HF_DATASETS_CACHE.
_NO_SECRET = re.compile(rf"(?:~|\.{{1,2}})?/{_FOLDER}(?:/{_FOLDER})*/?|[A-Z]+(?:_[A-Z]+)+")


def login_in_url(value: str) -> bool:
    """Whether a value has a user and a password in a URL, as HTTPS_PROXY may have: http://me:...@proxy:3128."""
    found = _LOGIN.search(value)
    return (
        found is not None
        and not _PLACEHOLDER.search(found[1])
        and found[1].lower() not in _NO_PASSWORDS
        and not _PLACEHOLDER.search(found[2])
    )


def secret_options(words: Sequence[str], lines: Sequence[int]) -> list[JobText]:
    """Return the name of each such option, with its line; `lines`: of the words."""
    found = []
    for place, (word, shown) in enumerate(zip(words, masked_argv(words), strict=True)):
        if word == shown or "$" in word or not may_be_secret(word.rpartition("=")[2]):
            continue
        name = word.partition("=")[0] if "=" in word else words[place - 1] if place else "a token"
        name = name if is_secret_name(name) else "a token"
        found.append(JobText(lines[place], "secret", name[:60]))
    return found


def may_be_secret(value: str) -> bool:
    """Whether a value can be a secret: not a placeholder (<your token>, xxx), a path or the name of a variable."""
    return len(value) >= _SHORTEST_SECRET and _PLACEHOLDER.search(value) is None and _NO_SECRET.fullmatch(value) is None
