"""Tensors of another shape in the recomputation of a checkpointed layer: a split, a cache, or a choice of experts.

All logs are written here, in torch's form.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import SCRIPT, explained, traceback

ERROR = (
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have "
    "different metadata than during the forward pass."
)
CHECKPOINT = "torch/utils/checkpoint.py"
NO_CACHE, CACHE = "A cache (use_cache) is not the cause", "appends them to a cache (use_cache)"


def tensors(*pairs: tuple[str, str], recomputed_to: int | None = None) -> str:
    """The exception's message, which lists shapes: in the forward pass, in the recomputation."""
    lines = [ERROR]
    for position, both in enumerate(pairs, 3):
        lines.append(f"tensor at position {position}:")
        lines += [
            f"{which} metadata: {{'shape': torch.Size([{shape}]), 'dtype': torch.bfloat16, 'device': 'cuda'}}"
            for which, shape in zip(("saved", "recomputed"), both, strict=True)
        ]
    return "\n".join(lines[: recomputed_to and -recomputed_to])


@pytest.mark.parametrize(
    ("error", "files", "words", "absent"),
    [
        # Shorter: never a cache, also with tensors of keys and values only, and with a list that ends early.
        (tensors(("1, 4, 6000, 64", "1, 4, 3000, 64")), (CHECKPOINT,), NO_CACHE, "use_cache = False"),
        (tensors(("1, 4, 6000, 64", "1, 4, 3000, 64"), ("1, 8, 6000, 64", "1, 8, 3000, 64"), recomputed_to=1),
         (CHECKPOINT,), "over 2 ranks splits it", "use_cache = False"),
        (tensors(("2, 512, 768", "2, 128, 768")), (SCRIPT, CHECKPOINT), "4 times as long in the forward pass",
         "use_cache = False"),
        # Longer: a cache has keys and values. Other tensors exclude it.
        (tensors(("1, 4, 300, 64", "1, 4, 600, 64")), (CHECKPOINT,), CACHE, "Context or sequence"),
        (tensors(("1, 4, 300, 64", "1, 4, 600, 64"), ("1, 8, 300, 64", "1, 8, 600, 64")), (CHECKPOINT,), CACHE,
         "Context or sequence"),
        (tensors(("1, 300, 768", "1, 600, 768"), ("1, 4, 300, 64", "1, 4, 600, 64")), (CHECKPOINT,), NO_CACHE,
         "use_cache = False"),
        (tensors(("1, 3939", "1, 7878")), (CHECKPOINT,), "2 times as long in the recomputation", "use_cache = False"),
        # A framework with context parallelism: either.
        (tensors(("1, 4, 300, 64", "1, 4, 600, 64")), (SCRIPT, "accelerate", CHECKPOINT), "or a cache joined keys",
         "is not the cause"),
        # No factor, or another one in each tensor: tokens of experts.
        (tensors(("640, 96", "576, 96")), (CHECKPOINT,), "A router that chooses experts", "cache"),
        (tensors(("64, 96", "128, 96"), ("90, 96", "30, 96")), (CHECKPOINT,), "A router that chooses experts", "cache"),
    ],
)  # fmt: skip
def test_which_pass_is_longer_decides(
    error: str, files: tuple[str, ...], words: str, absent: str, tmp_path: Path
) -> None:
    for prefix in ("", "[rank2]: "):
        row, title, text = explained(tmp_path, traceback(error, *files, prefix=prefix))
        assert row == "log_recomputed_other_shape" and words in text and absent not in text, (title, text)


def test_shapes_of_two_ranks_in_turn_are_not_compared(tmp_path: Path) -> None:
    first, second = tensors(("1, 4, 600, 64", "1, 4, 300, 64")), tensors(("1, 4, 800, 64", "1, 4, 400, 64"))
    lines = zip(
        traceback(first, CHECKPOINT, prefix="[rank0]: ").splitlines(),
        traceback(second, CHECKPOINT, prefix="[rank1]: ").splitlines(),
        strict=True,
    )
    text = "".join(f"{one}\n" for both in lines for one in both)
    title = explained(tmp_path, text)[1]
    assert ("600" in title) == ("300" in title) and "[1, 4, 600, 64] in the forward pass" in title, title
