"""Which Python, PyTorch, NCCL and CUDA libraries would a training run use?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import (
    History,
    Identity,
    Label,
    Measure,
    Moment,
    Same,
    SecretsByKey,
    Text,
    Version,
    Wording,
)

Chosen = Literal[
    "active virtual environment",
    "active conda environment",
    ".venv in this folder",
    "conda's base environment",
    "python on PATH",
    "--python",
    "no environment in sight",
]


@dataclass(frozen=True)
class Python:
    """The interpreter of the training run, and the programs that PATH resolves to."""

    executable: Annotated[Same[Text], Wording("interpreter")]
    version: Annotated[Same[Version], Wording("Python")]
    on_path: Annotated[Same[Text | None], Wording("python on PATH", none="none")]  # `python` in this shell
    # the interpreter of the `accelerate` script on PATH
    accelerate_on_path: Annotated[Same[Text | None], Wording("accelerate on PATH", none="none")]
    # a default_config.yaml in the Hugging Face cache
    accelerate_default_config: Annotated[Same[Text | None], Wording("default config", none="none")] = None
    accelerate_command: Same[Text | None] = None  # the `accelerate` on PATH
    torchrun_on_path: Same[Text | None] = None  # the interpreter of the `torchrun` script on PATH
    environment: Literal["venv", "conda", "system"] | None = None
    prefix: Same[Text | None] = None
    # file suffixes of compiled modules it can load: .cpython-311-x86_64-linux-gnu.so, .abi3.so
    suffixes: Same[tuple[Label, ...]] = ()
    user_site: Same[Text | None] = None  # the user's site-packages, if enabled
    user_packages: Mapping[str, Version] = field(default_factory=dict)  # the `packages` installed in user_site
    # settings in accelerate_default_config
    accelerate_default_settings: SecretsByKey[Mapping[str, Label]] = field(default_factory=dict)
    chosen: Chosen | None = None  # how mgpu, which has no torch itself, found it; None: it is mgpu's own


@dataclass(frozen=True)
class Pytorch:
    """PyTorch, read from its files without importing it."""

    installed: bool
    # torch/version.py, with the local part (+cu130, +cpu)
    version: Annotated[Same[Version | None], Wording("torch")] = None
    # CUDA version it was built with; None for a CPU build
    cuda: Annotated[Same[Label | None], Wording("torch CUDA", none="a CPU build")] = None
    hip: Same[Label | None] = None
    location: Annotated[Same[Text | None], Wording("torch location")] = None
    arch_list: Same[tuple[Label, ...] | None] = None  # sm_80 … compute_90
    nccl_required: Same[Version | None] = None  # the pin in torch's metadata: nvidia-nccl-cu13==2.29.7
    built_for: Same[tuple[Label, ...]] = ()  # suffixes of torch/_C*: .cpython-311-x86_64-linux-gnu.so


@dataclass(frozen=True)
class TorchDevice:
    """`cuda:index` in torch's order."""

    index: int
    name: Label
    compute_capability: tuple[int, int]
    memory_total_bytes: int
    uuid: Label | None


@dataclass(frozen=True)
class TorchRuntime:
    """The results of `import torch` and torch.cuda in a subprocess."""

    import_error: Annotated[Same[Text | None], Wording(none="none")]
    cuda_available: Annotated[bool | None, Wording(of_nodes="torch CUDA usable")] = None
    cuda_error: Annotated[Same[Text | None], Wording(none="none")] = None
    device_count: Annotated[Same[int | None], Wording("GPUs visible to torch")] = None
    devices: Moment[tuple[TorchDevice, ...]] = ()
    nccl_available: bool | None = None
    nccl_version: Annotated[Same[Version | None], Wording("torch NCCL")] = None  # compile-time version
    gloo_available: bool | None = None
    # The first import from a cold file system takes several times as long.
    import_s: Annotated[Moment[float | None], Measure("high", share=1.0, least=5, what="torch import time")] = None
    mapped: Mapping[str, Text] | None = None  # nccl, cudart, cublas … -> the file loaded by `import torch`
    # reported by ncclGetVersion of the mapped library
    nccl_loaded_version: Annotated[Same[Version | None], Wording(of_nodes="loaded NCCL")] = None
    cudnn_version: Same[Version | None] = None
    cudnn_error: Same[Text | None] = None  # torch's error if it rejects the installed cuDNN
    # flash_attn … -> why it does not load; "" if it loads
    extensions: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True)
class NcclLibrary:
    """One libnccl that a process could load."""

    path: Identity[Text]
    version: Same[Version | None]  # reported by ncclGetVersion of that file
    origin: Literal["wheel", "preload", "library_path", "system", "conda"]


@dataclass(frozen=True)
class Nccl:
    """The NCCL libraries on this machine. The first is the one a torch process would load."""

    libraries: tuple[NcclLibrary, ...]
    wheels: Mapping[str, Version]  # nvidia-nccl-cu13 -> 2.29.7
    config_files: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)  # file -> NAME=value lines


@dataclass(frozen=True)
class Library:
    """A shared library the training run might load."""

    # cudart, cudnn, cublas, nvJitLink, nccl, cuda, nvidia-ml, nccl-net …; if preloaded: the file name
    name: Identity[Label]
    path: Same[Text]
    origin: Identity[Literal["wheel", "library_path", "system", "compat", "stub", "preload", "conda"]]
    # libcuda: the driver's version; libraries of bitsandbytes: the CUDA version they were built with
    version: Same[Version | None] = None
    loads: bool | None = None  # tested in a subprocess; None: not tested
    error: Same[Text | None] = None  # the loader's error if it does not load


@dataclass(frozen=True)
class Libraries:
    """The CUDA libraries, wheels and tools of the training run's interpreter."""

    found: tuple[Library, ...]
    wheels: Mapping[str, Version]  # every nvidia-* distribution: nvidia-cublas-cu12 -> 12.8.4.1
    twice: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)  # package -> its copies, the used one first
    shadowed: Mapping[str, Text] = field(default_factory=dict)  # module -> the user's file that hides it
    cuda_home: Annotated[Same[Text | None], Wording(none="not set")] = None
    nvcc: Annotated[Same[Version | None], Wording(none="none")] = None  # version
    # C++ compiler: its version, or "unknown"; None: not found
    compiler: Annotated[Same[Version | None], Wording(none="none")] = None
    ninja: Annotated[Same[Version | None], Wording(none="none")] = None  # on PATH: its version, or "unknown"
    nvcc_path: Same[Text | None] = None
    c_compiler: Same[Version | None] = None
    # torch -> triton==3.5.1, python>=3.10 …
    requires: History[Mapping[str, tuple[Version, ...]]] = field(default_factory=dict)
    built_with: Mapping[str, Version] = field(default_factory=dict)  # flash-attn -> cu12torch2.4cxx11abiFALSE
