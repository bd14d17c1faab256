"""Rung "device": does this rank's GPU compute, alone?"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from .here import Here
from .journal import Failure


def climb(here: Here) -> str:
    """Find the device, compute on it."""
    here.device = _device(here)
    here.reports(device=str(here.device), gpu_uuid=_uuid(here))
    here.journal.introduce()
    here.reports(computed=_compute(here))
    return f"computes on {here.device}"


def _device(here: Here) -> Any:
    """This rank's GPU; the CPU only when the run was started for the CPU."""
    torch = here.torch
    if here.orders.cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "y", "t"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Failure("torch sees no GPU in this process, and the run was not started for the CPU", "no_gpu")
    count = torch.cuda.device_count()
    if here.local_rank >= count:
        raise Failure(f"local rank {here.local_rank} has no GPU: torch sees {count}", "no_gpu_for_rank", visible=count)
    torch.cuda.set_device(here.local_rank)
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is exact fp32
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda", here.local_rank)


def _uuid(here: Here) -> str | None:
    if not here.on_gpu:
        return None
    uuid = getattr(here.torch.cuda.get_device_properties(here.device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None


def _compute(here: Here) -> str:
    """The same computation on every rank: the bits must agree between equal GPUs."""
    torch = here.torch
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(256, 256, generator=generator).to(here.device)
    for _ in range(8):
        matrix = torch.tanh(matrix @ matrix / 16)
    if not bool(torch.isfinite(matrix).all()):
        raise Failure("a matrix product came out infinite or NaN", "not_finite")
    return hashlib.sha256(matrix.cpu().numpy().tobytes()).hexdigest()[:16]
