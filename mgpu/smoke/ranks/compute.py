"""What does one rank compute on its own, and how fast?

Every rank runs the same arithmetic on its own device, so results and times can be compared between ranks.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable
from typing import Any

from .context import Here

_SEED = 1
_ROUNDS = 4


def precisions(here: Here) -> dict[str, Any]:
    """Return the types that the training computes with, by short name; more types above the quick level."""
    torch = here.torch
    wanted = {"fp32": torch.float32}
    every = here.orders.level != "quick"
    if here.orders.precision == "bf16" or (every and (not here.on_gpu or torch.cuda.is_bf16_supported())):
        wanted["bf16"] = torch.bfloat16
    if here.orders.precision == "fp16" or every:
        wanted["fp16"] = torch.float16
    return wanted


def chain(here: Here, kind: Any) -> tuple[str, bool]:
    """Return the digest of a chain of matrix products and elementwise kernels, and whether all values are finite.

    The inputs are generated on the CPU, so they are equal on all ranks.
    """
    torch, size = here.torch, 512 if here.on_gpu else 96
    source = torch.Generator().manual_seed(_SEED)
    left = torch.randn(size, size, generator=source).to(kind).to(here.device)
    right = (torch.randn(size, size, generator=source) / size**0.5).to(kind).to(here.device)
    for _ in range(_ROUNDS):
        left = torch.add(torch.relu(left @ right), left, alpha=0.5)
    return digest(left), bool(torch.isfinite(left).all())


def whole_numbers(here: Here) -> str:
    """Return the digest of int64 arithmetic with carries and overflow: GPUs have no int64 matrix product."""
    torch = here.torch
    numbers = torch.arange(1 << 14, device=here.device, dtype=torch.int64)
    for _ in range(_ROUNDS):  # Knuth's multiplier of 64 bits
        numbers = numbers * 6364136223846793005 + 1442695040888963407
        numbers = torch.cumsum(numbers ^ (numbers >> 29), 0)
    return digest(numbers)


def digest(tensor: Any) -> str:
    """Return the digest of a tensor's bytes. Without numpy, which may not be installed."""
    flat = tensor.detach().cpu().contiguous()
    data = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
    return hashlib.sha256(data).hexdigest()[:16]


def own_seconds(here: Here) -> float:
    """Return the seconds for a small fixed amount of local work: the minimum of several runs.

    The minimum, because other load on the machine can only add to it.
    """
    torch, on_gpu = here.torch, here.on_gpu
    size = 2048 if on_gpu else 128
    repeats = {"quick": 5, "standard": 10, "long": 20}[here.orders.level]
    matrix = torch.full((size, size), 1.0 / size, device=here.device)

    def piece() -> None:
        _work(torch, matrix, rounds=4)

    return min(_measure_seconds(here, piece) for _ in range(repeats + 1))


def _work(torch: Any, matrix: Any, rounds: int) -> None:
    for _ in range(rounds):
        matrix = torch.tanh(matrix @ matrix)


def gemm_tflops(here: Here, kind: Any) -> float:
    """Return the TFLOP/s of matrix products of this type: the best of several runs, after a warm-up."""
    torch = here.torch
    size = _gemm_size(here, kind)
    # Random numbers, as in training: constant data needs less power, which keeps the clocks unrealistically high.
    source = torch.Generator(device=here.device).manual_seed(_SEED)
    a = torch.randn(size, size, device=here.device, generator=source).to(kind)
    b = torch.randn(size, size, device=here.device, generator=source).to(kind)
    out = torch.empty_like(a)
    inner = 8 if here.on_gpu else 1

    def products() -> None:
        for _ in range(inner):
            torch.mm(a, b, out=out)

    rounds = {"quick": 2, "standard": 6, "long": 20}[here.orders.level]
    _measure_seconds(here, products)
    best = min(_measure_seconds(here, products) for _ in range(rounds))
    return 2.0 * size**3 * inner / best / 1e12


def _gemm_size(here: Here, kind: Any) -> int:
    """Return the matrix size: large enough on a GPU to be compute-bound, with at most 1/16 of the free memory.

    Small on a CPU, which may have no fast kernels for half precision.
    """
    if not here.on_gpu:
        sizes = {"quick": 128, "standard": 256, "long": 512}
        return sizes[here.orders.level] // (1 if kind == here.torch.float32 else 2)
    size = {"quick": 2048, "standard": 8192, "long": 8192}[here.orders.level]
    if kind == here.torch.float32:
        size //= 2
    free = here.torch.cuda.mem_get_info(here.device)[0]
    while 3 * size * size * kind.itemsize > free // 16 and size > 512:
        size //= 2
    return size


def copy_rates(here: Here) -> dict[str, float]:
    """Return the rates of copies to the device and back through pinned memory, in decimal GB/s: the best of several."""
    torch = here.torch
    size = {"quick": 16, "standard": 128, "long": 256}[here.orders.level] << 20
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(7)
    device = torch.empty(size, dtype=torch.uint8, device=here.device)
    rates = {}
    for name, target, source in (("h2d_gb_per_s", device, host), ("d2h_gb_per_s", host, device)):

        def copy(target: Any = target, source: Any = source) -> None:
            target.copy_(source, non_blocking=True)

        _measure_seconds(here, copy)
        rates[name] = size / min(_measure_seconds(here, copy) for _ in range(5)) / 1e9
    return rates


def _measure_seconds(here: Here, work: Callable[[], None]) -> float:
    """Return the seconds for the work, measured with the device's clock."""
    if not here.on_gpu:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    events = [here.torch.cuda.Event(enable_timing=True) for _ in range(2)]
    here.wait()
    events[0].record()
    work()
    events[1].record()
    here.wait()
    return float(events[0].elapsed_time(events[1])) / 1e3
