"""Which CUDA libraries did PyTorch really load?"""

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
    """`import torch` brought in a CUDA library from elsewhere than its wheels.

    Why: something puts another copy first: LD_LIBRARY_PATH, LD_PRELOAD, a package imported at start. Results, speed and
    crashes are then those of a library that neither torch nor its tests know.

    Fix: see what comes first, and take it out.
    """
    if torch_runtime.import_error is not None or torch_runtime.mapped is None:
        return Skip("torch cannot be imported" if torch_runtime.import_error else "what torch mapped is not known")
    if pytorch.nccl_required is None:  # an image's or conda's: NVIDIA's wheels beside it are of another package
        return Skip("this torch does not bring its CUDA libraries in wheels")
    ours: dict[str, set[str]] = {}
    for one in libraries.found:
        if one.origin == "wheel":
            ours.setdefault(one.name, set()).add(_tail(one.path))
    mapped = {name: path for name, path in torch_runtime.mapped.items() if name in ours and name != "nccl"}
    if not mapped:
        return Skip("torch brought no CUDA library of a wheel")
    foreign = {name: path for name, path in mapped.items() if _tail(path) not in ours[name]}
    if not foreign:
        return Ok(f"{listed(mapped)} from torch's wheels")
    return Problem(
        f"torch runs with {listed(foreign.values())}",
        f"Its wheels bring {listed(foreign)} of their own, and the loader took another copy.",
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
    """nvidia/cublas/lib/libcublas.so.12 of a path: site-packages may be reached by links."""
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
    """torch refuses the cuDNN it runs with.

    Why: it is older than the one torch was compiled with, or does not serve one of the GPUs. Whatever asks torch for
    cuDNN (recurrent layers, torch.backends.cudnn.version()) ends with "cuDNN version incompatibility"; convolutions and
    attention run with it unasked, or fail inside it.

    Fix: take a foreign cuDNN out of LD_LIBRARY_PATH, or install the one torch asks for.
    """
    if torch_runtime.cudnn_error is None:
        version = torch_runtime.cudnn_version
        return Ok(f"cuDNN {version}") if version else Skip("torch has no cuDNN, or was not asked")
    return Problem(
        torch_runtime.cudnn_error or "torch refuses its cuDNN",
        "torch raises this wherever it checks the cuDNN it finds; where it does not, an older one is used.",
        Fix(commands=("unset LD_LIBRARY_PATH", "pip list | grep -i cudnn")),
        {"cudnn_error": torch_runtime.cudnn_error},
    )
