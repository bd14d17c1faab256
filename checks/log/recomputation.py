"""Did a checkpointed layer compute something of another shape the second time, and by how much?"""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import TypeAlias

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.signature import Row
from mgpu.snapshot import Log, UncaughtException

_CHECKPOINT = "https://docs.pytorch.org/docs/stable/checkpoint.html"
_LARGEST_FACTOR = 64  # context and tensor parallel sizes
_OF_HEADS = 4  # dimensions of queries, keys, values and attention scores
_LISTED = re.compile(r"^(saved|recomputed) metadata: \{'shape': torch\.Size\(\[([\d, ]*)\]\)", re.MULTILINE)
# Why a cache is excluded, by whether the recomputation is longer.
_NO_CACHE = {
    False: ". A cache (use_cache) is not the cause: it makes tensors only longer in the recomputation.",
    True: ". A cache (use_cache) is not the cause: other tensors than keys and values differ, too.",
}


def _shape(which: str) -> Row:
    return Row(
        f"log_shape_{which}",
        "noise",
        "script",
        rf"^{which} metadata: \{{'shape': torch\.Size\(\[(?P<shape>[1-9]\d*(?:, \d+)*)\]\)",
        (f"{which} metadata: {{'shape': torch.Size([1, 16, 3939, 128]), 'dtype': torch.bfloat16, 'device': 0}}",),
        "a shape that a CheckpointError lists",
        "It is part of that message.",
        Fix("No action needed.", ()),
        _CHECKPOINT,
    )


# Only the facts: `log_recomputed_other_shape` judges the shapes, a case of `log_recomputation_differs` the import.
# fmt: off
ROWS = (
    _shape("saved"),
    _shape("recomputed"),
    Row("unsloth_imported_late", "context", "script",
        r"Unsloth should be imported before (?:\[|trl|transformers|peft)",
        ("UserWarning: WARNING: Unsloth should be imported before [transformers, peft] to ensure all optimizations are "
         "applied.",), "", "", Fix("No action needed.", ()),
        "https://github.com/unslothai/unsloth/blob/main/unsloth/__init__.py"),
)
# fmt: on


_Shape: TypeAlias = tuple[int, ...]
_Pair: TypeAlias = tuple[_Shape, _Shape]  # in the forward pass, in the recomputation


def _pairs(log: Log, raised: UncaughtException) -> list[_Pair]:
    """Return the shapes of all tensors that the exception lists, or else of the first one that the log has."""
    listed = [(which, _numbers(shape)) for which, shape in _LISTED.findall(raised.more or "")]
    pairs = [
        (one, other)
        for (which, one), (next_one, other) in itertools.pairwise(listed)
        if (which, next_one) == ("saved", "recomputed")
    ]
    if not pairs:
        found = {one.signature: one.groups.get("shape") or "" for one in log.seen}
        pairs = [(_numbers(found.get("log_shape_saved")), _numbers(found.get("log_shape_recomputed")))]
    return [(one, other) for one, other in pairs if one and len(one) == len(other) and one != other]


def _numbers(text: str | None) -> _Shape:
    return tuple(map(int, re.findall(r"\d+", text or "")))


def _growth(pairs: list[_Pair]) -> Fraction | None:
    """Return the factor by which one dimension of each tensor was longer in the recomputation; None if there is none.

    Both passes of a split or of a cache differ by the same whole factor in all tensors.
    """
    factors = set()
    for saved, again in pairs:
        changed = _changed(saved, again)
        if len(changed) != 1 or not saved[changed[0]]:
            return None
        factors.add(Fraction(again[changed[0]], saved[changed[0]]))
    factor = factors.pop() if len(factors) == 1 else Fraction(0)
    return factor if factor and 1 in factor.as_integer_ratio() else None


def _changed(saved: _Shape, again: _Shape) -> list[int]:
    return [index for index, (a, b) in enumerate(zip(saved, again, strict=True)) if a != b]


def _of_heads(saved: _Shape, again: _Shape) -> bool:
    """Whether only a tensor of keys, values or scores can be: batch, heads and tokens in any order, size of a head."""
    return len(saved) == _OF_HEADS and 0 not in _changed(saved, again)


# fmt: off
_IN_CONTEXT = Fix("Run backward() inside the same context as forward().",
                  ("with accelerator.maybe_context_parallel(...):  # forward and backward",))
_WITHOUT_CACHE = Fix("Turn the cache off. With FSDP, checkpoint with its own setting instead of the model's.",
                     ("model.config.use_cache = False", "accelerate launch --fsdp_activation_checkpointing true ..."))
_OTHER_SPLIT = Fix("If it is inside already, find which of the two changes it: train without the split, or without "
                   "gradient checkpointing.")
_ROUTER = (
    Fix("Do not checkpoint the router: checkpoint attention only, or save the router's result.",
        ("--recompute-granularity selective", "activation_checkpoint.mode = 'selective'")),
    Fix("Make the layer deterministic.", ("torch.use_deterministic_algorithms(True)",)),
)
# fmt: on


# Packages whose traceback shows a framework with context parallelism.
_CONTEXT_PARALLEL = frozenset({"accelerate", "torchtitan", "megatron", "transformer_engine", "nemo", "nemo_rl", "verl"})


def _explain(pairs: list[_Pair], packages: tuple[str, ...]) -> tuple[str, tuple[Fix, ...]]:
    """Return cause and fixes, from the shapes that differ."""
    factor = _growth(pairs)
    times = max(factor.as_integer_ratio()) if factor else 0
    cached = factor is not None and factor > 1 and all(_of_heads(*pair) for pair in pairs)
    if cached and not _CONTEXT_PARALLEL.intersection(packages):
        return (
            f"One dimension of the keys and values is {times} times as long in the recomputation: the layer appends "
            "them to a cache (use_cache) in both passes, or it keeps another state between them.",
            (_WITHOUT_CACHE, _IN_CONTEXT),
        )
    if factor is not None and 1 < times <= _LARGEST_FACTOR:
        longer, shorter = ("recomputation", "forward pass") if factor > 1 else ("forward pass", "recomputation")
        return (
            f"One dimension is {times} times as long in the {longer} as in the {shorter}. Context or sequence "
            f"parallelism over {times} ranks splits it, and only one of the two passes ran inside the context that "
            f"splits it{', or a cache joined keys twice (use_cache).' if cached else _NO_CACHE[factor > 1]}",
            (_IN_CONTEXT, _WITHOUT_CACHE if cached else _OTHER_SPLIT),
        )
    return (
        "The number of tokens that a layer processed differs. A router that chooses experts (MoE) gave other results "
        "the second time, or the layer's input was changed in between, or depends on random numbers.",
        _ROUTER,
    )


@check(
    Severity.ERROR,
    source="https://github.com/huggingface/trl/issues/4314",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_recomputation_differs", "log_exception"),
)
def log_recomputed_other_shape(log: Log) -> Answer:
    """Gradient checkpointing computed a tensor of another shape the second time.

    Why: The backward pass repeats a layer's forward pass. With context parallelism, that happens outside of the context
    that splits the sequence if backward() does. With mixtures of experts, a token can choose another expert.

    Fix: Run backward() inside the context, or make the layer choose the same experts.
    """
    raised = next((one for one in log.raised if "log_recomputation_differs" in one.signatures and not one.caught), None)
    pairs = _pairs(log, raised) if raised else []
    if raised is None or not pairs:
        return Ok(f"no such shapes in {log.lines:,} lines")
    saved, again = pairs[0]
    texts = f"{list(saved)} in the forward pass, {list(again)} in the recomputation"
    cause, fixes = _explain(pairs, raised.packages)
    return Problem(
        f"gradient checkpointing recomputed a tensor of another shape: {texts}",
        cause,
        fixes,
        {"exception": raised.type, "place": raised.place, "rank": raised.rank, "at": raised.at},
        tuple(f"rank {rank}" for rank in raised.ranks),
        Place(raised.file, raised.line),
    )
