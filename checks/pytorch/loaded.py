"""Which CUDA libraries did PyTorch actually load?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Libraries, Pytorch, TorchRuntime
from mgpu.text import listed


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/issues/140797",
    because_of=("library_path_shadows_wheels",),
)
def torch_maps_foreign_library(torch_runtime: TorchRuntime, libraries: Libraries, pytorch: Pytorch) -> Answer:
    """`import torch` loaded a CUDA library that is not from its wheels.

    Why: LD_LIBRARY_PATH, LD_PRELOAD or a package imported at start puts another copy first. torch was not tested with
    it, so results and speed can differ, and it can crash.

    Fix: Find the copy that comes first, and remove it.
    """
    if torch_runtime.import_error is not None or torch_runtime.mapped is None:
        return Skip(
            "torch cannot be imported" if torch_runtime.import_error else "torch's loaded libraries are unknown"
        )
    if pytorch.nccl_required is None:  # from an image or conda: NVIDIA's wheels belong to another package
        return Skip("this torch does not get its CUDA libraries from wheels")
    ours: dict[str, set[str]] = {}
    for one in libraries.found:
        if one.origin == "wheel":
            ours.setdefault(one.name, set()).add(_tail(one.path))
    mapped = {name: path for name, path in torch_runtime.mapped.items() if name in ours and name != "nccl"}
    if not mapped:
        return Skip("torch loaded no CUDA library that its wheels contain")
    foreign = {name: path for name, path in mapped.items() if _tail(path) not in ours[name]}
    if not foreign:
        return Ok(f"{listed(mapped)} from torch's wheels")
    return Problem(
        f"torch loaded {listed(foreign.values())}",
        f"Its wheels contain their own {listed(foreign)}, but the loader used another copy.",
        Fix(
            commands=(
                "echo $LD_LIBRARY_PATH $LD_PRELOAD",
                "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep -m20 calling",
            )
        ),
        foreign,
        tuple(foreign),
    )


def _tail(path: str) -> str:
    """Return the last four parts (nvidia/cublas/lib/libcublas.so.12): the path to site-packages can contain links."""
    return "/".join(path.split("/")[-4:])


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/blob/main/torch/backends/cudnn/__init__.py",
    because_of=(
        "library_path_shadows_wheels",
        "torch_maps_foreign_library",
        "cuda_wheels_overwrite_each_other",
        "cuda_wheels_not_as_required",
    ),
)
def cudnn_refused_by_torch(torch_runtime: TorchRuntime) -> Answer:
    """PyTorch rejects the cuDNN that it loaded.

    Why: It is older than the one torch was compiled with, or does not support one of the GPUs. Code that checks cuDNN
    (recurrent layers, torch.backends.cudnn.version()) fails with "cuDNN version incompatibility". Convolutions and
    attention use it without a check, or fail inside it.

    Fix: Remove another cuDNN from LD_LIBRARY_PATH, or install the one torch requires.
    """
    if torch_runtime.cudnn_error is None:
        version = torch_runtime.cudnn_version
        return Ok(f"cuDNN {version}") if version else Skip("torch has no cuDNN, or its version was not read")
    return Problem(
        torch_runtime.cudnn_error or "torch rejects its cuDNN",
        "torch raises this error wherever it checks cuDNN. Elsewhere it uses the older version without a check.",
        Fix(commands=("unset LD_LIBRARY_PATH", "pip list | grep -i cudnn")),
        {"cudnn_error": torch_runtime.cudnn_error},
    )
