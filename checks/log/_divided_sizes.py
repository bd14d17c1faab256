"""Which size of the model could not be divided over the tensor-parallel ranks? The message has only the numbers.

Megatron, vLLM and SGLang divide each size with `divide(size, ranks)`, whose message names neither of the two. The line
that called it does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_NUMBERS = re.compile(r"^\W*(\d{1,9}) is not divisible by (\d{1,6})\W*$")
_DIVIDES = re.compile(r" in (?:ensure_divisibility|divide|ensure_divisible|split_tensor_along_last_dim)$")
_MOST = 12  # sizes that are listed


class _Subject(NamedTuple):
    called: re.Pattern[str]  # the line that divides
    name: str
    why: str
    fix: Fix | None = None


# fmt: off
_SUBJECTS = (
    _Subject(
        re.compile(r"(?i)per_attention_head\b.*(?:divide|ensure_divisib)|(?:hidden|embed)\w*, *[\w.]*heads"),
        "the model's width {size} cannot be divided over its {ranks} attention heads",
        "Each head has an equal part of the width. Both are settings of the model; the number of ranks is not the "
        "cause.",
        Fix("Change one of the two in the model's config or arguments, or take both from a published model."),
    ),
    _Subject(
        re.compile(r"(?i)query_groups|kv_heads|key_value_heads|num_kv|kv_groups"),
        "the model's {size} key-value heads (query groups) cannot be divided by tensor parallel size {ranks}",
        "Each tensor-parallel rank needs at least one whole key-value head. A model with few of them (grouped-query "
        "attention) limits the tensor parallel size.",
    ),
    _Subject(
        re.compile(r"(?i)attention_heads|num_heads|n_heads?\b|heads_per_partition|attention\.py|_attention\b"),
        "the model's {size} attention heads cannot be divided by tensor parallel size {ranks}",
        "Tensor parallelism gives every rank the same number of whole heads.",
    ),
    _Subject(
        re.compile(r"(?i)vocab|num_embeddings|embedding\.py"),
        "the vocabulary of {size} tokens cannot be divided by tensor parallel size {ranks}",
        "Each tensor-parallel rank has an equal part of the embedding, so the vocabulary must be padded to a multiple "
        "of the tensor parallel size.",
        Fix("Pad the vocabulary, in the run and when the checkpoint is converted.",
            ("--make-vocab-size-divisible-by 128",)),
    ),
    _Subject(
        re.compile(r"(?i)num_experts|n_experts|experts_per|local_experts"),
        "the model's {size} experts cannot be divided by expert parallel size {ranks}",
        "Each expert-parallel rank holds the same number of experts.",
        Fix("Choose an expert parallel size that divides the number of experts.",
            ("--expert-model-parallel-size N  # Megatron", "--ep-size N  # SGLang")),
    ),
    _Subject(
        re.compile(r"(?i)seq(?:uence)?_?len|sequence|\bseq\b"),
        "a sequence of {size} tokens cannot be divided over {ranks} ranks",
        "Sequence and context parallelism give each rank an equal part of the sequence.",
        Fix("Pad the sequences to a multiple of that number, or choose a size that divides them."),
    ),
    _Subject(
        re.compile(r"(?i)output_size|input_size|hidden_size|ffn|intermediate|\bdim\b|projection_size|linear\.py"),
        "a layer's width {size} cannot be divided by tensor parallel size {ranks}",
        "Tensor parallelism splits the rows or columns of the layer's weight equally over the ranks.",
    ),
)
_UNKNOWN = _Subject(
    re.compile(""),
    "{size} is not divisible by {ranks}: a size of the model does not fit the parallel size, or another setting",
    "Megatron, vLLM and SGLang print only the two numbers. Usually the second is the tensor parallel size, and the "
    "first a number of heads, experts, layers or tokens, or a width of the model. The line of the traceback that "
    "calls divide() names both.",
)
# fmt: on


def divided_size(what: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a message that has only two numbers; None if it has more, or comes from the script's own check."""
    found = _NUMBERS.match(what)
    if found is None:
        return None
    own = raised is not None and raised.frames and not any(map(_DIVIDES.search, raised.frames))
    if own:
        return None
    size, ranks = found.groups()
    subject = _subject(raised)
    fixes = (subject.fix,) if subject.fix else (_smaller(int(size), int(ranks), named=subject is not _UNKNOWN),)
    return Meaning(subject.name.format(size=size, ranks=ranks), subject.why, fixes)


def _subject(raised: UncaughtException | None) -> _Subject:
    """Return what the deepest line, or else file, that names it divides."""
    lines = raised.own_lines if raised else ()
    calls = [frame for frame in raised.frames if not _DIVIDES.search(frame)] if raised else []
    for line in (*reversed(lines), *calls[-1:]):
        for one in _SUBJECTS:
            if one.called.search(line):
                return one
    return _UNKNOWN


def _smaller(size: int, ranks: int, *, named: bool) -> Fix:
    fit = [number for number in range(1, min(size, 1 << 14) + 1) if size % number == 0][:_MOST]
    best = max((number for number in fit if number <= ranks), default=1)
    text = "Choose a parallel size that divides it" if named else "If the second number is a parallel size, choose one"
    return Fix(
        f"{text}: {', '.join(map(str, fit))}.",
        (
            shell("--tensor-model-parallel-size {:number}  # Megatron", best),
            shell("--tensor-parallel-size {:number}  # vLLM, SGLang", best),
        ),
    )
