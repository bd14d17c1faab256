"""Which numbers does torch report when a GPU is full, and when does a case of such a row apply?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mgpu.signature import Applies
from mgpu.snapshot import Log, UncaughtException

ROWS = ("log_gpu_memory_full", "log_gpu_memory_taken")
# Patterns of frames. The engine runs backward passes only: torch/autograd/function.py also runs the forward pass of a
# function of its own, such as a compiled model's, and grad_mode.py everything under no_grad(), such as step().
ENGINE = r"torch/autograd/(?:__init__\.py in (?:backward|grad)|graph\.py in _engine_run_backward)$"
TUNING = (
    r"torch/_inductor/(?:select_algorithm|autotune\w*|runtime/\w*benchmark\w*|runtime/triton_\w+)\S* in |"
    r"triton/(?:testing|runtime/autotuner)\.py in "
)
# The driver's own refusal: what torch's allocator reports has "Tried to allocate" and the sizes.
BY_DRIVER = r"^(?!.*Tried to allocate).*(?:CUDA [Ee]rror: out of memory|cuda runtime error \(2\))"
# GiB in one allocation: a tensor of all tokens and the whole vocabulary, or of all pairs of tokens. Such a request is a
# problem of its own, wherever there is room.
GIANT = 3.0
_UNITS = {
    "bytes": 2.0**-30,
    "KiB": 2.0**-20,
    "MiB": 2.0**-10,
    "GiB": 1.0,
    "TiB": 2.0**10,
    "PiB": 2.0**20,
    "EiB": 2.0**30,
}
_SIZE = r"(\d{1,15}(?:\.\d{1,15})?) (bytes|[KMGTPE]iB)"
# c10/cuda/CUDACachingAllocator.cpp: the message of torch 2.1 and later (2.1 has "capacty"), then of earlier ones, which
# report what is reserved in total.
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free[;)]")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"allocated memory {_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")
_POOLS = re.compile(rf"with {_SIZE} allocated in private pools")
_ALLOWED = re.compile(rf"{_SIZE} allowed")


class Process(NamedTuple):
    """A process with memory on the GPU, as NVML reports it to torch."""

    pid: str
    held: float  # GiB
    text: str  # as printed


class Numbers(NamedTuple):
    """What the message reports, in GiB. None: it does not."""

    tried: float | None
    total: float | None
    free: float | None
    own: float | None  # of this process, if the message names it so
    allocated: float | None
    unallocated: float | None  # reserved by torch, but not in use
    reserved: float | None  # in total by torch, before torch 2.1
    pools: float | None  # of CUDA graphs
    allowed: float | None  # limit set by the program itself
    processes: tuple[Process, ...]  # the others, or all if the message does not name this one


def read_numbers(message: str) -> Numbers:
    """Return what a message reports."""
    allocated, reserved = _first(_ALLOCATED, message), _first(_RESERVED, message)
    unallocated = _first(_UNALLOCATED, message)
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(0.0, reserved - allocated)
    return Numbers(
        _first(_TRIED, message),
        _first(_TOTAL, message),
        _first(_FREE, message),
        _first(_OWN, message),
        allocated,
        unallocated,
        reserved,
        _first(_POOLS, message),
        _first(_ALLOWED, message),
        tuple(
            Process(one[1], float(one[2]) * _UNITS[one[3]], f"{one[2]} {one[3]}") for one in _PROCESS.finditer(message)
        ),
    )


def _first(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    if not found:
        return None
    number, unit = (one for one in found.groups() if one)
    return float(number) * _UNITS[unit]


def numbers(test: Callable[[Numbers], bool]) -> Applies:
    """The numbers of the exception's message, or of the first line that reports a full GPU, pass the test."""

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        texts = [raised.message] if raised is not None else []
        texts += [one.text for one in log.seen if one.signature in ROWS]
        return any(test(read_numbers(text)) for text in texts[:1])

    return applies


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 0.90 GiB is free. Including non-PyTorch memory, this process has 78.25 GiB memory in use. Of the "
    "allocated memory 76.01 GiB is allocated by PyTorch, and 0.61 GiB is reserved by PyTorch but unallocated."
)


def trace(*frames: str, message: str = OUT_OF_MEMORY, code: str = "pass") -> str:
    """Return a sample: a traceback through "transformers/trainer.py in train", "train.py in main", ..."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        file, _, function = frame.partition(" in ")
        folder = "/venv/lib/python3.11/site-packages" if "/" in file else "/home/user"
        lines += [f'  File "{folder}/{file}", line 7, in {function}', f"    {code}"]
    return "\n".join([*lines, message])
