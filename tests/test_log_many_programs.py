"""What does a line mean that several kinds of programs print, and what does it not prove?

Each kind has a near message in which it must not apply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", "an old architecture, compute_35", "older than"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_61'\n", "compute_61, which this CUDA", "8.0 is"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_90a'\n", "the installed CUDA compiler does not", "drop"),
        ("Your compiler (c++ 4.8.5) may be ABI-incompatible with PyTorch!\n", "may be too old", "too new"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not supported!\n", "too new", "too old"),
        ("/usr/bin/ld: cannot find -lcudart\n", "the CUDA runtime (libcudart.so)", "stubs"),
        ("/usr/bin/ld: cannot find -lcuda\n", "the driver's libcuda.so", "toolkit brings"),
        ("LLVM ERROR: Failed to infer result type(s).\n", "Apple's GPU (MPS)", "Triton"),
        ("LLVM ERROR: Symbol not found: __svml_cosf8_ha\n", "numba cannot load", "Triton"),
        ("LLVM ERROR: Failed to compute parent layout for slice layout.\n", "usually Triton", "Apple's GPU"),
        ("a/m.c:9:10: fatal error: Python.h: No such file or directory\n", "Python's headers", "so Triton"),
    ],
)  # fmt: skip
def test_a_compilers_message_means_what_its_values_show(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """The release, the library or the program that the line names decides, and nothing is said of another one."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"
