"""Which lines show a text that is no report of this run: a sample of its data, an answer of a model, a skipped item?"""

from __future__ import annotations

import re

_SKIPPED = re.compile(r"\W{0,4}\[skip(?:ped|ping)?\]", re.I)
# Generated text, samples of a data set and results of an evaluation quote errors.
_TEXTS = re.compile(r"^\s*\[\[?(?:'[^'\n]{300}|\"[^\"\n]{300})")  # a list of texts, of which the first is long
_QUOTES = re.compile(
    r"^[\s\W]*(?:prompts?|responses?|questions?|answers?|completions?|(?:generated|generation|model)|sample|assistant|user|human|system|"
    r"solution|model[ _]output|prediction|predicted|expected|reference|target|instruction|input|text|content|chosen|"
    r"rejected|docstring|feedback|Q|A)(?:[ _#]?\d+)?"
    r"(?: (?:(?:text|sample|output|answer|response|completion|solution|rollout|program)s?|\d+))?['\"]?\s?[:=>|\]]",
    re.I,
)


def is_quoted(text: str) -> bool:
    """Whether a line is a sample of text: what it contains did not happen in this run."""
    return bool(_QUOTES.search(text) or _TEXTS.search(text))


def is_skipped(text: str) -> bool:
    """Whether the program reports with this line that it leaves out one item, and why, before it takes the next."""
    return bool(_SKIPPED.match(text))
