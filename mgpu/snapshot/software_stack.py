"""Which Python, PyTorch, NCCL and CUDA libraries would a training run use?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass


@dataclass(frozen=True)
class Python:
    """The interpreter the training would run under, and what PATH would start instead."""

    executable: str
    version: str
    on_path: str | None  # what `python` means in this shell
    accelerate_on_path: str | None  # the interpreter of the `accelerate` script on PATH
    accelerate_default_config: str | None = None  # a default_config.yaml in the Hugging Face cache
    accelerate_command: str | None = None  # the `accelerate` on PATH
    torchrun_on_path: str | None = None  # the interpreter of the `torchrun` script on PATH
    environment: Literal["venv", "conda", "system"] | None = None
    prefix: str | None = None
    suffixes: tuple[str, ...] = ()  # of compiled modules it can load: .cpython-311-x86_64-linux-gnu.so, .abi3.so
    user_site: str | None = None  # the user's own site-packages, when it looks there
    user_packages: Mapping[str, str] = field(default_factory=dict)  # those of `packages` that stand there
    accelerate_default_settings: Mapping[str, str] = field(default_factory=dict)  # of that config: what it asks for


@dataclass(frozen=True)
class Pytorch:
    """PyTorch as its files tell it, without importing it."""

    installed: bool
    version: str | None = None  # torch/version.py, with the local part (+cu130, +cpu)
    cuda: str | None = None  # CUDA it was built with; None for a CPU build
    hip: str | None = None
    location: str | None = None
    arch_list: tuple[str, ...] | None = None  # sm_80 … compute_90
    nccl_required: str | None = None  # the pin in torch's own metadata: nvidia-nccl-cu13==2.29.7
    built_for: tuple[str, ...] = ()  # suffixes of torch/_C*: .cpython-311-x86_64-linux-gnu.so


@dataclass(frozen=True)
class TorchDevice:
    """`cuda:index` in torch's order."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    memory_total_bytes: int
    uuid: str | None


@dataclass(frozen=True)
class TorchRuntime:
    """What `import torch` and torch.cuda say, asked in a child process."""

    import_error: str | None
    cuda_available: bool | None = None
    cuda_error: str | None = None
    device_count: int | None = None
    devices: tuple[TorchDevice, ...] = ()
    nccl_available: bool | None = None
    nccl_version: str | None = None  # compile-time version
    gloo_available: bool | None = None
    import_s: float | None = None
    mapped: Mapping[str, str] | None = None  # nccl, cudart, cublas … -> the file that `import torch` brought in
    nccl_loaded_version: str | None = None  # what ncclGetVersion of the mapped one answers
    cudnn_version: str | None = None
    cudnn_error: str | None = None  # torch's words when it refuses the cuDNN it found
    extensions: Mapping[str, str] = field(default_factory=dict)  # flash_attn … -> why it does not load; "" when it does


@dataclass(frozen=True)
class NcclLibrary:
    """One libnccl that a process could load."""

    path: str
    version: str | None  # what ncclGetVersion of that file answers
    origin: Literal["wheel", "preload", "library_path", "system", "conda"]


@dataclass(frozen=True)
class Nccl:
    """The NCCL libraries in reach. The first is the one a torch process would load."""

    libraries: tuple[NcclLibrary, ...]
    wheels: Mapping[str, str]  # nvidia-nccl-cu13 -> 2.29.7
    config_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # file -> NAME=value lines


@dataclass(frozen=True)
class Library:
    """A shared library the training might load."""

    name: str  # cudart, cudnn, cublas, nvJitLink, nccl, cuda, nvidia-ml, nccl-net …; a preloaded one: its file's name
    path: str
    origin: Literal["wheel", "library_path", "system", "compat", "stub", "preload", "conda"]
    version: str | None = None  # of libcuda the driver's, of bitsandbytes' libraries the CUDA they were built with
    loads: bool | None = None  # asked in the child; None: not asked
    error: str | None = None  # the loader's words when it does not


@dataclass(frozen=True)
class Libraries:
    """The CUDA libraries, wheels and tools of the interpreter of the training."""

    found: tuple[Library, ...]
    wheels: Mapping[str, str]  # every nvidia-* distribution: nvidia-cublas-cu12 -> 12.8.4.1
    twice: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # package -> its copies, the one used first
    shadowed: Mapping[str, str] = field(default_factory=dict)  # module -> the user's file that hides it
    cuda_home: str | None = None
    nvcc: str | None = None  # version
    compiler: str | None = None  # of C++: its version, or "unknown"; None: there is none
    ninja: str | None = None  # on PATH: its version, or "unknown"
    nvcc_path: str | None = None
    c_compiler: str | None = None
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # torch -> triton==3.5.1, python>=3.10 …
    built_with: Mapping[str, str] = field(default_factory=dict)  # flash-attn -> cu12torch2.4cxx11abiFALSE
