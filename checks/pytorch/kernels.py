"""Was PyTorch compiled for these GPUs?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Gpu, Pytorch, Visible
from mgpu.text import counted, listed

from .._gpus import gpu_subjects
from .._wording import gpu_list
from ._wheels import install_command

_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
# Names in TORCH_CUDA_ARCH_LIST and their architectures (torch/utils/cpp_extension.py, _get_cuda_arch_flags).
# fmt: off
_NAMED_ARCHES = {
    "Maxwell": "5.0;5.2+PTX", "Pascal": "6.0;6.1+PTX", "Volta": "7.0+PTX", "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX", "Ada": "8.9+PTX", "Hopper": "9.0+PTX", "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}
# fmt: on


def _kernels(arch_list: tuple[str, ...], capability: tuple[int, int]) -> Literal["machine code", "PTX"] | None:
    """Return which of a wheel's kernels run on a GPU; None if there are none.

    sm_XY runs on major version X and minor version >= Y. PTX (compute_XY) runs on any newer GPU, after the driver has
    compiled it.
    """
    ptx = False
    for arch in arch_list:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
        if not found:
            continue
        kind, major, minor, exact = found.group(1), int(found.group(2)), int(found.group(3)), found.group(4)
        if exact and exact != "f":  # sm_90a runs on exactly that GPU; sm_100f covers the family, like sm_100
            fits = (major, minor) == capability
        elif kind == "compute":
            fits = (major, minor) <= capability
        else:
            fits = major == capability[0] and minor <= capability[1]
        if fits and kind == "sm":
            return "machine code"
        ptx = ptx or fits
    return "PTX" if ptx else None


def _visible_capabilities(gpus: tuple[Gpu, ...], visible: Visible) -> list[tuple[Gpu, tuple[int, int]]]:
    """Return the visible GPUs with a known compute capability, and that capability."""
    return [(g, g.compute_capability) for g in gpus if g.index in visible.gpus and g.compute_capability]


@check(Severity.ERROR, source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility")
def torch_lacks_gpu_kernels(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The installed PyTorch has no kernels for one of the GPUs.

    Why: The wheel was compiled for other compute capabilities. torch sees the GPU, but the first operation on it fails
    with "no kernel image is available for execution on the device" (error 209).

    Fix: Install a torch build that has them.
    More: Use a newer torch build for new GPUs, and a cu126 build for Volta and older.
    """
    if not pytorch.arch_list:
        return Skip("the wheel's kernels are unknown" if pytorch.cuda else "torch has no CUDA")
    known = _visible_capabilities(gpus, visible)
    bad = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) is None]
    if bad:
        major, minor = bad[0].compute_capability or (0, 0)
        wheel = "cu126" if (major, minor) < (7, 5) else "cu128"
        return Problem(
            f"torch {pytorch.version} has no kernels for sm_{major}{minor} ({gpu_list(g.index for g in bad)})",
            f"It was compiled for {' '.join(pytorch.arch_list)}. "
            f"The first kernel on {bad[0].name} fails with error 209.",
            Fix(
                commands=(
                    shell(
                        "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{:id}", wheel
                    ),
                )
            ),
            {"arch_list": " ".join(pytorch.arch_list), "compute_capability": f"{major}.{minor}"},
            gpu_subjects(bad),
        )
    return (
        Ok(f"kernels for {counted(len(known), 'visible GPU')}")
        if known
        else Skip("the visible GPUs' compute capability is unknown")
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#just-in-time-compilation",
    because_of=("torch_lacks_gpu_kernels", "torch_ptx_too_new_for_driver"),
)
def torch_kernels_only_as_ptx(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """For one of the GPUs torch has only PTX kernels, which the driver compiles on first use.

    Why: Each kernel is compiled on first use and cached in ~/.nv/ComputeCache. The first steps take minutes in every
    rank, and look like a hang. If the home folder is slow or full, this happens on every run.

    Fix: Install a newer torch, which most likely has machine code for it. Until then, use a large cache.
    """
    if not pytorch.arch_list:
        return Skip("the wheel's kernels are unknown" if pytorch.cuda else "torch has no CUDA")
    known = _visible_capabilities(gpus, visible)
    slow = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) == "PTX"]
    if not slow:
        return (
            Ok(f"nothing to compile for {counted(len(known), 'visible GPU')}")
            if known
            else Skip("the visible GPUs' compute capability is unknown")
        )
    major, minor = slow[0].compute_capability or (0, 0)
    return Problem(
        f"torch {pytorch.version} has only PTX for sm_{major}{minor} ({gpu_list(g.index for g in slow)})",
        f"It was compiled for {' '.join(pytorch.arch_list)}. The driver compiles every kernel on first use.",
        Fix(commands=("pip install --upgrade torch", "export CUDA_CACHE_MAXSIZE=4294967296")),
        {"arch_list": " ".join(pytorch.arch_list), "compute_capability": f"{major}.{minor}"},
        gpu_subjects(slow),
    )


@check(Severity.ERROR, source=_COMPATIBILITY, because_of=("driver_too_old_for_torch",))
def torch_ptx_too_new_for_driver(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible, driver: Driver) -> Answer:
    """For one of the GPUs torch has only PTX kernels, but this driver is too old to compile them.

    Why: The driver cannot compile PTX from a newer toolkit, so the first kernel fails with error 222.
    More: The message is "the provided PTX was compiled with an unsupported toolchain".

    Fix: Install a torch with machine code for this GPU.
    """
    cuda, newest = version_numbers(pytorch.cuda)[:2], driver.cuda_version
    if not pytorch.arch_list or not cuda:
        return Skip("the wheel's kernels are unknown" if pytorch.cuda else "torch has no CUDA")
    known = _visible_capabilities(gpus, visible)
    ptx = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) == "PTX"]
    if not ptx:
        return (
            Ok(f"nothing to compile for {counted(len(known), 'visible GPU')}")
            if known
            else Skip("the visible GPUs' compute capability is unknown")
        )
    if newest is None:
        return Skip("the driver's CUDA version is unknown")
    if newest >= cuda:
        return Ok(f"the driver compiles PTX of CUDA {pytorch.cuda}")
    return Problem(
        f"torch has only PTX of CUDA {pytorch.cuda} for {gpu_list(g.index for g in ptx)}, the driver supports "
        f"{newest[0]}.{newest[1]}",
        fix=(
            Fix(commands=(install_command(driver),)),
            Fix(f"Or install a driver that supports CUDA {pytorch.cuda}.", who="admin"),
        ),
        evidence={"torch_cuda": pytorch.cuda, "driver_cuda": f"{newest[0]}.{newest[1]}", "driver": driver.version},
        subjects=gpu_subjects(ptx),
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/cpp_extension.html")
def arch_list_lacks_gpu(env: Mapping[str, str], gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """TORCH_CUDA_ARCH_LIST does not include one of the GPUs.

    Why: Extensions and DeepSpeed's operators are compiled only for the architectures in this list. On other GPUs they
    fail with "no kernel image is available", or DeepSpeed prints "no compute capabilities remaining after filtering".
    Images often contain a list for other GPUs.

    Fix: Unset it, or add the missing architectures.
    More: If it is unset, extensions are compiled for the GPUs of this node.
    """
    value = env.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if not value or value == "native":
        return Skip("TORCH_CUDA_ARCH_LIST is not set" if not value else "TORCH_CUDA_ARCH_LIST=native")
    known = _visible_capabilities(gpus, visible)
    entries = " ".join(_NAMED_ARCHES.get(entry, entry) for entry in re.split(r"[;\s]+", value))
    arches: list[str] = []
    for major, minor, exact, ptx in re.findall(r"(\d+)\.(\d)([a-z]?)(\+PTX)?", entries):
        arches += [f"sm_{major}{minor}{exact}", *([f"compute_{major}{minor}{exact}"] if ptx else ())]
    if not known or not arches:
        return Skip(
            "the visible GPUs' compute capability is unknown"
            if not known
            else f"TORCH_CUDA_ARCH_LIST={value} names no architecture"
        )
    lacking = {capability for _, capability in known if _kernels(tuple(arches), capability) is None}
    if not lacking:
        return Ok(f"{value} includes {counted(len(known), 'visible GPU')}")
    names = listed(f"{major}.{minor}" for major, minor in sorted(lacking))
    without = gpu_list(gpu.index for gpu, capability in known if capability in lacking)
    return Problem(
        f"TORCH_CUDA_ARCH_LIST={value} does not include {names}",
        f"Extensions compiled with it do not run on {without}.",
        Fix(commands=("unset TORCH_CUDA_ARCH_LIST",)),
        {"TORCH_CUDA_ARCH_LIST": value, "lacking": names},
        ("TORCH_CUDA_ARCH_LIST",),
    )
