"""Was PyTorch compiled for these GPUs?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Driver, Gpu, Pytorch, Visible
from mgpu.text import counted, listed

from .._gpus import names_of
from .._wording import gpu_list
from ._wheels import install

_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
# Words of TORCH_CUDA_ARCH_LIST and what they stand for (torch/utils/cpp_extension.py, _get_cuda_arch_flags).
# fmt: off
_NAMED_ARCHES = {
    "Maxwell": "5.0;5.2+PTX", "Pascal": "6.0;6.1+PTX", "Volta": "7.0+PTX", "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX", "Ada": "8.9+PTX", "Hopper": "9.0+PTX", "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}
# fmt: on


def _kernels(arch_list: tuple[str, ...], capability: tuple[int, int]) -> Literal["machine code", "PTX"] | None:
    """What of a wheel's kernels runs on a GPU: sm_XY on major X and minor >= Y; PTX (compute_XY) on anything newer,
    once the driver has compiled it."""
    ptx = False
    for arch in arch_list:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
        if not found:
            continue
        kind, major, minor, exact = found.group(1), int(found.group(2)), int(found.group(3)), found.group(4)
        if exact and exact != "f":  # sm_90a runs on the very one; sm_100f is for the family, as sm_100 is
            fits = (major, minor) == capability
        elif kind == "compute":
            fits = (major, minor) <= capability
        else:
            fits = major == capability[0] and minor <= capability[1]
        if fits and kind == "sm":
            return "machine code"
        ptx = ptx or fits
    return "PTX" if ptx else None


def _visible(gpus: tuple[Gpu, ...], visible: Visible) -> list[tuple[Gpu, tuple[int, int]]]:
    """The visible GPUs whose compute capability is known, with it."""
    return [(g, g.compute_capability) for g in gpus if g.index in visible.gpus and g.compute_capability]


@check(Severity.ERROR, source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility")
def torch_lacks_gpu_kernels(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The installed PyTorch has no kernels for one of the GPUs.

    Why: the wheel was compiled for other compute capabilities. torch sees the GPU, and the first operation there fails
    with "no kernel image is available for execution on the device" (error 209).

    Fix: install a build that has them.
    More: A torch build that has them: a newer one for new GPUs, a cu126 one for Volta and older.
    """
    if not pytorch.arch_list:
        return Skip("the wheel's kernels are not known" if pytorch.cuda else "torch has no CUDA")
    known = _visible(gpus, visible)
    bad = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) is None]
    if bad:
        major, minor = bad[0].compute_capability or (0, 0)
        wheel = "cu126" if (major, minor) < (7, 5) else "cu128"
        return Problem(
            f"torch {pytorch.version} has no kernels for sm_{major}{minor} ({gpu_list(g.index for g in bad)})",
            f"It was compiled for {' '.join(pytorch.arch_list)}: "
            f"the first kernel on {bad[0].name} fails with error 209.",
            Fix(
                commands=(
                    shell(
                        "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{:id}", wheel
                    ),
                )
            ),
            {"arch_list": " ".join(pytorch.arch_list), "compute_capability": f"{major}.{minor}"},
            names_of(bad),
        )
    return Ok(f"kernels for {counted(len(known), 'visible GPU')}") if known else Skip("no visible GPU tells")


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#just-in-time-compilation",
    because_of=("torch_lacks_gpu_kernels", "torch_ptx_too_new_for_driver"),
)
def torch_kernels_only_as_ptx(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """For one of the GPUs torch has its kernels only as PTX, which the driver compiles when they are first used.

    Why: each kernel is compiled on first use and kept in ~/.nv/ComputeCache. The first steps take minutes, in every
    rank at once, and look like a hang; a cache on a slow or full home folder makes that every time.

    Fix: a newer torch has it, most likely; a large cache helps until then.
    """
    if not pytorch.arch_list:
        return Skip("the wheel's kernels are not known" if pytorch.cuda else "torch has no CUDA")
    known = _visible(gpus, visible)
    slow = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) == "PTX"]
    if not slow:
        return (
            Ok(f"nothing to compile for {counted(len(known), 'visible GPU')}")
            if known
            else Skip("no visible GPU tells")
        )
    major, minor = slow[0].compute_capability or (0, 0)
    return Problem(
        f"torch {pytorch.version} has only PTX for sm_{major}{minor} ({gpu_list(g.index for g in slow)})",
        f"It was compiled for {' '.join(pytorch.arch_list)}: the driver compiles every kernel when it is first used.",
        Fix(commands=("pip install --upgrade torch", "export CUDA_CACHE_MAXSIZE=4294967296")),
        {"arch_list": " ".join(pytorch.arch_list), "compute_capability": f"{major}.{minor}"},
        names_of(slow),
    )


@check(Severity.ERROR, source=_COMPATIBILITY, because_of=("driver_too_old_for_torch",))
def torch_ptx_too_new_for_driver(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible, driver: Driver) -> Answer:
    """For one of the GPUs torch has only PTX, and this driver is too old to compile it.

    Why: the driver cannot compile PTX of a newer toolkit: the first kernel fails with error 222.
    More: The first kernel there ends with "the provided PTX was compiled with an unsupported toolchain" (error 222).

    Fix: install a torch with machine code for this GPU.
    """
    cuda, serves = numbers(pytorch.cuda)[:2], driver.cuda_version
    if not pytorch.arch_list or not cuda:
        return Skip("the wheel's kernels are not known" if pytorch.cuda else "torch has no CUDA")
    known = _visible(gpus, visible)
    ptx = [gpu for gpu, capability in known if _kernels(pytorch.arch_list, capability) == "PTX"]
    if not ptx:
        return (
            Ok(f"nothing to compile for {counted(len(known), 'visible GPU')}")
            if known
            else Skip("no visible GPU tells")
        )
    if serves is None:
        return Skip("the CUDA that the driver serves is not known")
    if serves >= cuda:
        return Ok(f"the driver compiles PTX of CUDA {pytorch.cuda}")
    return Problem(
        f"torch has only PTX of CUDA {pytorch.cuda} for {gpu_list(g.index for g in ptx)}, the driver serves "
        f"{serves[0]}.{serves[1]}",
        fix=(Fix(commands=(install(driver),)), Fix(f"Or a driver that serves CUDA {pytorch.cuda}.", who="admin")),
        evidence={"torch_cuda": pytorch.cuda, "driver_cuda": f"{serves[0]}.{serves[1]}", "driver": driver.version},
        subjects=names_of(ptx),
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/cpp_extension.html")
def arch_list_lacks_gpu(env: Mapping[str, str], gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """TORCH_CUDA_ARCH_LIST leaves out one of the GPUs.

    Why: extensions, and the operators DeepSpeed compiles, are made for the architectures it lists, nothing else. On the
    one left out they fail with "no kernel image is available", or DeepSpeed says "no compute capabilities remaining
    after filtering". Images often carry the list of another machine.

    Fix: unset it, or add what is missing.
    More: Then what this machine has is compiled for.
    """
    value = env.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if not value or value == "native":
        return Skip("TORCH_CUDA_ARCH_LIST is not set" if not value else "TORCH_CUDA_ARCH_LIST=native")
    known = _visible(gpus, visible)
    words = " ".join(_NAMED_ARCHES.get(word, word) for word in re.split(r"[;\s]+", value))
    arches: list[str] = []
    for major, minor, exact, ptx in re.findall(r"(\d+)\.(\d)([a-z]?)(\+PTX)?", words):
        arches += [f"sm_{major}{minor}{exact}", *([f"compute_{major}{minor}{exact}"] if ptx else ())]
    if not known or not arches:
        return Skip("no visible GPU tells" if not known else f"TORCH_CUDA_ARCH_LIST={value} names no architecture")
    lacking = {capability for _, capability in known if _kernels(tuple(arches), capability) is None}
    if not lacking:
        return Ok(f"{value} serves {counted(len(known), 'visible GPU')}")
    names = listed(f"{major}.{minor}" for major, minor in sorted(lacking))
    left_out = gpu_list(gpu.index for gpu, capability in known if capability in lacking)
    return Problem(
        f"TORCH_CUDA_ARCH_LIST={value} leaves out {names}",
        f"What is compiled with it does not run on {left_out}.",
        Fix(commands=("unset TORCH_CUDA_ARCH_LIST",)),
        {"TORCH_CUDA_ARCH_LIST": value, "lacking": names},
        ("TORCH_CUDA_ARCH_LIST",),
    )
