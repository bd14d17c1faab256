"""Do the wheels that bring CUDA libraries fit each other, and torch?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Libraries, Pytorch
from mgpu.text import counted, listed

from .._versions import requirement, satisfies
from .._wording import minor_of

# Wheels of both CUDA majors put these into one folder under one name (nvidia/cudnn/lib/libcudnn.so.9); all others have
# folders of their own since CUDA 13 (nvidia/cu13/lib). NCCL has a check of its own.
_SHARED_FOLDERS = ("nvidia-cudnn", "nvidia-cusparselt", "nvidia-nvshmem")


def _family(name: str) -> str | None:
    """nvidia-cublas-cu12 -> "12"; None for a wheel that names none."""
    found = re.search(r"-cu(\d+)$", name)
    return found.group(1) if found else None


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/119072")
def cuda_wheels_overwrite_each_other(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """Wheels of one library for two CUDA majors are installed, and both write the same files.

    Why: they share one folder and one file name: which library is there depends on what was installed last.
    More: nvidia-cudnn-cu12 and nvidia-cudnn-cu13 (and cuSPARSELt, NVSHMEM) share a folder and file names. The one
    installed last is there; torch then fails with an undefined symbol, or refuses the cuDNN it finds.

    Fix: remove the others.
    """
    if not libraries.wheels:
        return Skip("no NVIDIA wheel is installed")
    families = {stem: [name for name in libraries.wheels if name.startswith(f"{stem}-cu")] for stem in _SHARED_FOLDERS}
    double = {stem: sorted(names) for stem, names in families.items() if len(names) > 1}
    if not double:
        return Ok(f"{counted(len(libraries.wheels), 'NVIDIA wheel')}, none twice")
    major = (pytorch.cuda or "").partition(".")[0]
    extra = [name for names in double.values() for name in names if _family(name) != major]
    kept = [f"{n}=={libraries.wheels[n]}" for names in double.values() for n in names if _family(n) == major]
    remove = Fix(commands=(shell("pip uninstall -y {:package}", extra),))
    back = Fix(
        "Put torch's own back: it lost files to the other.",
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
    """NVIDIA wheels of another CUDA major than torch's are installed.

    Why: they are what an earlier torch left, or what another framework needs. torch does not use them; they take
    gigabytes, and a library of theirs can be found by a program that looks for any.

    Fix: remove them if nothing else needs them.
    """
    major = (pytorch.cuda or "").partition(".")[0]
    if not libraries.wheels or not major:
        return Skip("torch has no CUDA" if not major else "no NVIDIA wheel is installed")
    other = [name for name in libraries.wheels if _family(name) not in (None, major)]
    if not other:
        return Ok(f"{counted(len(libraries.wheels), 'NVIDIA wheel')}, all for CUDA {major}")
    families = listed(sorted({f"cu{_family(name)}" for name in other}))
    return Problem(
        f"{counted(len(other), 'NVIDIA wheel')} for {families}, torch is built for CUDA {pytorch.cuda}",
        "torch does not use them. Another framework may; otherwise they are left over.",
        Fix(commands=(shell("pip uninstall -y {:package}", other),)),
        {name: libraries.wheels[name] for name in other},
    )


@check(
    Severity.WARNING,
    source="https://packaging.python.org/en/latest/specifications/core-metadata/",
    because_of=("nccl_wheels_mixed", "cuda_wheels_overwrite_each_other"),
)
def cuda_wheels_not_as_required(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """An NVIDIA wheel that torch asks for is missing, or older than torch asks for.

    Why: torch pins each of its CUDA libraries and was built with those. A missing one is an ImportError (libcudnn.so.9:
    cannot open shared object file); an older one misses symbols that torch or another library uses.

    Fix: install the pinned ones.
    """
    asked = [*libraries.requires.get("torch", ()), *libraries.requires.get("cuda-toolkit", ())]
    wanted = dict(requirement(line) for line in asked if line.startswith(("nvidia-", "cuda-")))
    wanted = {name: spec for name, spec in wanted.items() if not name.startswith("nvidia-nccl-") and spec}
    if not pytorch.cuda or not wanted:
        return Skip("torch has no CUDA" if not pytorch.cuda else "torch asks for no NVIDIA wheel")
    bad: dict[str, str] = {}
    newer = 0
    for name, spec in wanted.items():
        installed = libraries.wheels.get(name)
        if installed is None:
            bad[name] = "missing"
        elif satisfies(installed, spec) is False:
            have, pinned = numbers(installed), numbers(spec.removeprefix("=="))
            if pinned and have[0] == pinned[0] and have > pinned:
                newer += 1  # the same major, newer: what was linked against it still finds its symbols
            else:
                bad[name] = installed
    if not bad:
        return Ok(f"{len(wanted)} as torch asks" + (f", {newer} of them newer" if newer else ""))
    return Problem(
        ", ".join(f"{name} {have} (torch asks {wanted[name]})" for name, have in bad.items()),
        "torch was built and tested with the versions it pins; it does not load without them.",
        Fix(commands=(shell("pip install --no-deps {:package}", [name + wanted[name] for name in bad]),)),
        {name: f"{have}, asked {wanted[name]}" for name, have in bad.items()},
    )


@check(
    Severity.WARNING,
    source="https://huggingface.co/docs/bitsandbytes/main/en/installation",
    because_of=("torch_is_cpu_build",),
)
def bitsandbytes_lacks_cuda(
    libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch, env: Mapping[str, str]
) -> Answer:
    """bitsandbytes has no library for the CUDA that torch was built with.

    Why: it would run without its CUDA part: 8-bit optimizers and 4-bit layers fail.
    More: Its wheel carries one library a CUDA version and picks by torch.version.cuda. Without a fitting one it loads
    the CPU part, and 8-bit optimizers and 4-bit layers fail with "CUDA Setup failed despite GPU being available" or
    "not available in CPU-only version".

    Fix: update it.
    More: A bitsandbytes that has one; BNB_CUDA_VERSION chooses another by hand.
    """
    installed = packages.get("bitsandbytes")
    if installed is None or not pytorch.cuda:
        return Skip("bitsandbytes is not installed" if installed is None else "torch has no CUDA")
    if env.get("BNB_CUDA_VERSION"):
        return Skip(f"BNB_CUDA_VERSION={env['BNB_CUDA_VERSION']} chooses the library")
    have = {one.version for one in libraries.found if one.name == "bitsandbytes" and one.version}
    if not have:
        return Skip("which libraries it carries is not known")
    cuda = minor_of(pytorch.cuda)
    # Since 0.50 it falls back to another minor of the same major (bitsandbytes/cextension.py).
    falls_back = satisfies(installed, ">=0.50") and any(v.partition(".")[0] == cuda.partition(".")[0] for v in have)
    if cuda in have or falls_back:
        return Ok(f"bitsandbytes {installed} has a library for CUDA {cuda}")
    names = ", ".join(sorted(have, key=numbers))
    return Problem(
        f"bitsandbytes {installed} has libraries for CUDA {names}; torch is built for {cuda}",
        fix=Fix(commands=("pip install --upgrade bitsandbytes",)),
        evidence={"bitsandbytes": installed, "libraries": names, "torch_cuda": pytorch.cuda},
    )
