"""Are the wheels that contain CUDA libraries compatible with each other, and with torch?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Libraries, Pytorch
from mgpu.text import counted, listed

from .._versions import satisfies, split_requirement
from .._wording import minor_of

# Wheels for both CUDA majors install these in one folder under one name (nvidia/cudnn/lib/libcudnn.so.9). All others
# have separate folders since CUDA 13 (nvidia/cu13/lib). NCCL has its own check.
_SHARED_FOLDERS = ("nvidia-cudnn", "nvidia-cusparselt", "nvidia-nvshmem")


def _cuda_major(name: str) -> str | None:
    """Return the CUDA major version of a wheel: nvidia-cublas-cu12 -> "12"; None if the name has none."""
    found = re.search(r"-cu(\d+)$", name)
    return found.group(1) if found else None


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/119072")
def cuda_wheels_overwrite_each_other(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """Wheels of one library for two CUDA major versions are installed, and both write the same files.

    Why: They share one folder and one file name. The one installed last overwrites the other.
    More: nvidia-cudnn-cu12 and nvidia-cudnn-cu13 (and cuSPARSELt, NVSHMEM) share a folder and file names. The one
    installed last overwrites the other. torch then fails with an undefined symbol, or rejects the cuDNN it finds.

    Fix: Remove the wheels for the other CUDA version.
    """
    if not libraries.wheels:
        return Skip("no NVIDIA wheel is installed")
    families = {stem: [name for name in libraries.wheels if name.startswith(f"{stem}-cu")] for stem in _SHARED_FOLDERS}
    double = {stem: sorted(names) for stem, names in families.items() if len(names) > 1}
    if not double:
        return Ok(f"{counted(len(libraries.wheels), 'NVIDIA wheel')}, no duplicates")
    major = (pytorch.cuda or "").partition(".")[0]
    extra = [name for names in double.values() for name in names if _cuda_major(name) != major]
    kept = [f"{n}=={libraries.wheels[n]}" for names in double.values() for n in names if _cuda_major(n) == major]
    remove = Fix(commands=(shell("pip uninstall -y {:package}", extra),))
    back = Fix(
        "Reinstall torch's own wheels, whose files were overwritten.",
        (shell("pip install --force-reinstall --no-deps {:package}", kept),),
    )
    return Problem(
        "; ".join(" and ".join(f"{name} {libraries.wheels[name]}" for name in names) for names in double.values()),
        fix=(remove, back) if kept else remove,
        evidence={name: libraries.wheels[name] for names in double.values() for name in names},
    )


@check(
    Severity.INFO,
    source="https://pypi.org/project/nvidia-cudnn-cu13/",
    because_of=("nccl_wheels_mixed", "cuda_wheels_overwrite_each_other"),
)
def cuda_families_mixed(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """NVIDIA wheels for a different CUDA major version than torch's are installed.

    Why: They are left over from an earlier torch, or another framework needs them. torch does not use them. They take
    gigabytes, and a program that searches for any CUDA library can find the wrong one.

    Fix: Remove them if no other package needs them.
    """
    major = (pytorch.cuda or "").partition(".")[0]
    if not libraries.wheels or not major:
        return Skip("torch has no CUDA" if not major else "no NVIDIA wheel is installed")
    other = [name for name in libraries.wheels if _cuda_major(name) not in (None, major)]
    if not other:
        return Ok(f"{counted(len(libraries.wheels), 'NVIDIA wheel')}, all for CUDA {major}")
    families = listed(sorted({f"cu{_cuda_major(name)}" for name in other}))
    return Problem(
        f"{counted(len(other), 'NVIDIA wheel')} for {families}, torch is built for CUDA {pytorch.cuda}",
        "torch does not use them. Either another framework does, or they are left over.",
        Fix(commands=(shell("pip uninstall -y {:package}", other),)),
        {name: libraries.wheels[name] for name in other},
    )


@check(
    Severity.WARNING,
    source="https://packaging.python.org/en/latest/specifications/core-metadata/",
    because_of=("nccl_wheels_mixed", "cuda_wheels_overwrite_each_other"),
)
def cuda_wheels_not_as_required(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """An NVIDIA wheel that torch requires is missing or too old.

    Why: torch pins each of its CUDA libraries and was built with these versions. A missing one causes an ImportError
    (libcudnn.so.9: cannot open shared object file). An older one lacks symbols that torch or another library uses.

    Fix: Install the pinned versions.
    """
    lines = [*libraries.requires.get("torch", ()), *libraries.requires.get("cuda-toolkit", ())]
    wanted = dict(split_requirement(line) for line in lines if line.startswith(("nvidia-", "cuda-")))
    wanted = {name: spec for name, spec in wanted.items() if not name.startswith("nvidia-nccl-") and spec}
    if not pytorch.cuda or not wanted:
        return Skip("torch has no CUDA" if not pytorch.cuda else "torch requires no NVIDIA wheel")
    bad: dict[str, str] = {}
    newer = 0
    for name, spec in wanted.items():
        installed = libraries.wheels.get(name)
        if installed is None:
            bad[name] = "missing"
        elif satisfies(installed, spec) is False:
            have, pinned = version_numbers(installed), version_numbers(spec.removeprefix("=="))
            if pinned and have[0] == pinned[0] and have > pinned:
                newer += 1  # same major, newer: code linked against the older one still finds its symbols
            else:
                bad[name] = installed
    if not bad:
        return Ok(f"{len(wanted)} as torch requires" + (f", {newer} of them newer" if newer else ""))
    return Problem(
        ", ".join(f"{name} {have} (torch requires {wanted[name]})" for name, have in bad.items()),
        "torch was built and tested with the versions it pins. It does not load without them.",
        Fix(commands=(shell("pip install --no-deps {:package}", [name + wanted[name] for name in bad]),)),
        {name: f"{have}, required {wanted[name]}" for name, have in bad.items()},
    )


@check(
    Severity.WARNING,
    source="https://huggingface.co/docs/bitsandbytes/main/en/installation",
    because_of=("torch_is_cpu_build",),
)
def bitsandbytes_lacks_cuda(
    libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch, env: Mapping[str, str]
) -> Answer:
    """The installed bitsandbytes has no library for the CUDA that torch was built with.

    Why: It then runs without its CUDA library: 8-bit optimizers and 4-bit layers fail.
    More: Its wheel contains one library per CUDA version and selects it by torch.version.cuda. Without a match it loads
    the CPU library, and 8-bit optimizers and 4-bit layers fail with "CUDA Setup failed despite GPU being available" or
    "not available in CPU-only version".

    Fix: Update bitsandbytes.
    More: Newer versions have one. BNB_CUDA_VERSION selects another library manually.
    """
    installed = packages.get("bitsandbytes")
    if installed is None or not pytorch.cuda:
        return Skip("bitsandbytes is not installed" if installed is None else "torch has no CUDA")
    if env.get("BNB_CUDA_VERSION"):
        return Skip(f"BNB_CUDA_VERSION={env['BNB_CUDA_VERSION']} selects the library")
    have = {one.version for one in libraries.found if one.name == "bitsandbytes" and one.version}
    if not have:
        return Skip("its libraries are unknown")
    cuda = minor_of(pytorch.cuda)
    # Since 0.50 it falls back to another minor of the same major (bitsandbytes/cextension.py).
    falls_back = satisfies(installed, ">=0.50") and any(v.partition(".")[0] == cuda.partition(".")[0] for v in have)
    if cuda in have or falls_back:
        return Ok(f"bitsandbytes {installed} has a library for CUDA {cuda}")
    names = ", ".join(sorted(have, key=version_numbers))
    return Problem(
        f"bitsandbytes {installed} has libraries for CUDA {names}; torch is built for {cuda}",
        fix=Fix(commands=("pip install --upgrade bitsandbytes",)),
        evidence={"bitsandbytes": installed, "libraries": names, "torch_cuda": pytorch.cuda},
    )
