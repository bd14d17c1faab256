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


def secret_options(words: Sequence[str], lines: Sequence[int]) -> list[JobText]:
    """Return the name of each such option, with its line; `lines`: of the words."""
    found = []
    for place, (word, shown) in enumerate(zip(words, masked_argv(words), strict=True)):
        if word == shown or "$" in word or is_placeholder(word.rpartition("=")[2]):
            continue
        name = word.partition("=")[0] if "=" in word else words[place - 1] if place else "a token"
        name = name if is_secret_name(name) else "a token"
        found.append(JobText(lines[place], "secret", name[:60]))
    return found


def is_placeholder(value: str) -> bool:
    """Whether a value is only a placeholder for a secret: <your token>, xxx, YOUR_KEY."""
    return len(value) < _SHORTEST_SECRET or _PLACEHOLDER.search(value) is not None
