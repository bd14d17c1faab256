"""How large is a step? Pure arithmetic over batch, ranks and accumulation."""

from __future__ import annotations


def effective_batch(per_gpu: int, ranks: int, accumulate: int = 1) -> int:
    """Samples behind one optimizer step, over all ranks."""
    return per_gpu * ranks * accumulate
