"""Did a checkpointed layer compute something of another shape the second time, and by how much?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.signature import Row
from mgpu.snapshot import Log

_CHECKPOINT = "https://docs.pytorch.org/docs/stable/checkpoint.html"
_LARGEST_FACTOR = 64  # context and tensor parallel sizes


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


def _shapes(log: Log) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the first tensor's shapes in the forward pass and in the recomputation."""
    found = {one.signature: one.groups.get("shape") or "" for one in log.seen}
    both = [found.get("log_shape_saved"), found.get("log_shape_recomputed")]
    if not all(both):
        return None
    saved, again = (tuple(map(int, re.findall(r"\d+", text or ""))) for text in both)
    return (saved, again) if len(saved) == len(again) and saved != again else None


# fmt: off
_SPLIT_ONCE = (
    Fix("Run backward() inside the same context as forward().",
        ("with accelerator.maybe_context_parallel(...):  # forward and backward",)),
    Fix("Turn the cache off. With FSDP, checkpoint with its own setting instead of the model's.",
        ("model.config.use_cache = False", "accelerate launch --fsdp_activation_checkpointing true ...")),
)
_ROUTER = (
    Fix("Do not checkpoint the router: checkpoint attention only, or save the router's result.",
        ("--recompute-granularity selective", "activation_checkpoint.mode = 'selective'")),
    Fix("Make the layer deterministic.", ("torch.use_deterministic_algorithms(True)",)),
)
# fmt: on


# Packages whose traceback shows a framework with context parallelism.
_CONTEXT_PARALLEL = frozenset({"accelerate", "torchtitan", "megatron", "transformer_engine", "nemo", "nemo_rl", "verl"})


def _explain(differing: list[tuple[int, int]], packages: tuple[str, ...]) -> tuple[str, tuple[Fix, ...]]:
    """Return cause and fixes, from the sizes that differ: before, after."""
    small, large = sorted(differing[0])
    factor = large // small if not large % small else 0
    if len(differing) == 1 and factor > 1 and not _CONTEXT_PARALLEL.intersection(packages):
        return (
            f"One dimension is {factor} times as long in one pass: the layer appends its keys and values to a cache "
            "(use_cache) in both passes, or it keeps another state between them.",
            tuple(reversed(_SPLIT_ONCE)),
        )
    if len(differing) == 1 and 1 < factor <= _LARGEST_FACTOR:
        return (
            f"One dimension is {factor} times as long in one pass. Context or sequence parallelism over {factor} ranks "
            "splits it, and the recomputation ran outside of the context that splits it, or a cache joined keys twice "
            "(use_cache).",
            _SPLIT_ONCE,
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
    shapes = _shapes(log)
    raised = next((one for one in log.raised if "log_recomputation_differs" in one.signatures and not one.caught), None)
    if shapes is None or raised is None:
        return Ok(f"no such shapes in {log.lines:,} lines")
    saved, again = shapes
    differing = [(a, b) for a, b in zip(saved, again, strict=True) if a != b]
    texts = f"{list(saved)} in the forward pass, {list(again)} in the recomputation"
    cause, fixes = _explain(differing, raised.packages)
    return Problem(
        f"gradient checkpointing recomputed a tensor of another shape: {texts}",
        cause,
        fixes,
        {"exception": raised.type, "place": raised.place, "rank": raised.rank, "at": raised.at},
        tuple(f"rank {rank}" for rank in raised.ranks),
        Place(raised.file, raised.line),
    )
