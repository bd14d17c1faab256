"""Was a tokenizer's file not found, so the tokenizer opened None?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning

_OPENED_NONE = re.compile(
    r"expected str, bytes or os\.PathLike object, not NoneType|^not a string$|stat: path should be"
)
_OPENS = re.compile(r"\b(?:vocab|merges|spm|sp_model|sentencepiece|vocab_or_merges|emoji)\w*\b", re.I)
_TOKENIZER = re.compile(r"tokeni[sz]\w*\.py in |sentencepiece/\S+ in Load")


def without_file(one: UncaughtException) -> Meaning | None:
    """Explain a tokenizer that opens a file of which it got no path; None for any other exception."""
    if not _OPENED_NONE.search(one.message) or not any(map(_TOKENIZER.search, one.frames[-3:])):
        return None
    if one.code and not _OPENS.search(one.code) and "Load" not in one.code:
        return None
    where = at_place(one)
    return Meaning(
        f"the tokenizer's own files are missing in the model's folder: the path of its vocabulary is None{where}",
        "A tokenizer written in Python needs vocab.json and merges.txt, vocab.txt, tokenizer.model or spiece.model. "
        "from_pretrained passes None for a file that the folder does not have: only tokenizer.json was saved or "
        "downloaded, the folder has weights only, or the class is not the model's.",
        (
            Fix(
                "Let transformers choose the class, which can use tokenizer.json.",
                ("AutoTokenizer.from_pretrained(MODEL, use_fast=True)",),
            ),
            Fix(
                "Or copy the tokenizer's files from the base model.",
                (
                    "ls -l MODEL",
                    'python -c "from transformers import AutoTokenizer as A; '
                    "A.from_pretrained('BASE_MODEL').save_pretrained('MODEL')\"",
                ),
            ),
        ),
    )
