"""A synthetic torch: not PyTorch, and it computes nothing. A tensor is the digest of the story of its operations, so
the same operations give the same bytes. `fake_cuda.build` copies this file as torch/__init__.py.

FAKE_TORCH plans faults, joined by `;`, each for every GPU or (with `@LETTERS`) those whose CUDA_VISIBLE_DEVICES has the
letters in it: missing, broken=WORDS and segv (of the import), cpu (built without CUDA), init=WORDS (torch.cuda.init
raises), hang, kernel=WORDS and oom (of the first kernel), nan, wrong (other bits than the other GPUs give), unsteady
(other bits each time).
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import signal
import time
from typing import Any

_COUNTER = itertools.count()
_PLAN: dict[str, str] = {}
for _entry in filter(None, os.environ.get("FAKE_TORCH", "").split(";")):
    _name, _, _words = _entry.partition("=")
    _name, _, _where = _name.partition("@")
    if not _where or _where in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        _PLAN[_name] = _words

if "missing" in _PLAN:
    raise ModuleNotFoundError("No module named 'torch'", name="torch")
if "broken" in _PLAN:
    raise OSError(_PLAN["broken"])
if "segv" in _PLAN:
    os.kill(os.getpid(), signal.SIGSEGV)

__version__ = "2.9.0+cpu" if "cpu" in _PLAN else "2.9.0+cu130"
float32, bfloat16, float16 = "float32", "bfloat16", "float16"


class version:
    cuda = None if "cpu" in _PLAN else "13.0"


class OutOfMemoryError(RuntimeError):
    pass


class AcceleratorError(RuntimeError):
    pass


class cuda:
    @staticmethod
    def init() -> None:
        if "init" in _PLAN:
            raise RuntimeError(_PLAN["init"])


class Generator:
    seed: object = None

    def manual_seed(self, seed: int) -> Generator:
        self.seed = seed
        return self


class Tensor:
    def __init__(self, *story: object) -> None:
        told = hashlib.sha256(repr(story).encode())
        self.story = told.hexdigest()
        self.bytes = ctypes.create_string_buffer(told.digest(), 32)

    def to(self, what: str) -> Tensor:
        return Tensor(self.story, what)

    def __truediv__(self, other: float) -> Tensor:
        return Tensor(self.story, "/", other)

    def __matmul__(self, other: Tensor) -> Tensor:
        if "hang" in _PLAN:
            time.sleep(3600)
        if "kernel" in _PLAN:
            raise AcceleratorError(f"CUDA error: {_PLAN['kernel']}\nCUDA kernel errors might be reported elsewhere")
        if "oom" in _PLAN:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 16.00 MiB.")
        extra = next(_COUNTER) if "unsteady" in _PLAN else "wrong" if "wrong" in _PLAN else ""
        return Tensor(self.story, "@", other.story, extra)

    def cpu(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return self

    def data_ptr(self) -> int:
        return ctypes.addressof(self.bytes)

    def numel(self) -> int:
        return 8

    def element_size(self) -> int:
        return 4

    def all(self) -> bool:
        return "nan" not in _PLAN


def randn(rows: int, columns: int, generator: Generator) -> Tensor:
    made = Tensor(rows, columns, generator.seed)
    generator.seed = f"after {generator.seed}"
    return made


def add(left: Tensor, right: Tensor, alpha: float) -> Tensor:
    return Tensor(left.story, "+", alpha, right.story)


def isfinite(tensor: Any) -> Any:
    return tensor
