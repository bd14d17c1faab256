"""Which NCCL will be loaded, and is it the one PyTorch was built for?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Nccl, Pytorch, System

from ._knowledge import numbers

# NCCL before this crashes in init under an unlimited stack (glibc then gives threads 2 MB): NCCL troubleshooting guide.
_STACK_FIXED = (2, 28)


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/119932")
def nccl_wheels_mixed(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """Two NCCL wheels for different CUDA majors are installed side by side.

    Why: both put libnccl.so.2 into the same folder; the one installed last wins, and torch fails at import with
    "undefined symbol: nccl…" or at run time.

    Fix: remove the one torch does not ask for, then reinstall the other.
    """
    if not nccl.wheels:
        return Skip("no NCCL wheel is installed")
    if len(nccl.wheels) == 1:
        name, version = next(iter(nccl.wheels.items()))
        return Ok(f"{name} {version} only")
    wanted = (pytorch.nccl_required or "").partition("==")[0]
    extra = [name for name in nccl.wheels if name != wanted]
    keep = pytorch.nccl_required or max(nccl.wheels)
    return Problem(
        " and ".join(f"{name} {version}" for name, version in sorted(nccl.wheels.items())),
        "They share one folder and one file name: which NCCL is there depends on what was installed last.",
        Fix(
            "Remove the extra one and put the right one back.",
            (f"pip uninstall -y {' '.join(extra)}", f"pip install --force-reinstall --no-deps {keep}"),
        ),
        dict(nccl.wheels),
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1212", because_of=("nccl_wheels_mixed",))
def nccl_not_the_wheels(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """A process would load another NCCL than the one PyTorch ships with.

    Why: a preloaded library wins over the wheel's. torch.cuda.nccl.version() goes on telling the version it was
    compiled with, while another one runs: bugs and performance are those of a library nobody looks at.

    Fix: take it out of LD_PRELOAD, unless you mean it.
    """
    if not pytorch.cuda or not nccl.libraries:
        return Skip("no NCCL library is in reach")
    first = nccl.libraries[0]
    wheel = next((library for library in nccl.libraries if library.origin == "wheel"), None)
    if first.origin == "wheel" or wheel is None:
        return Ok(f"NCCL {first.version} from {first.path}")
    return Problem(
        f"NCCL {first.version or '?'} is preloaded over the wheel's {wheel.version}",
        f"LD_PRELOAD puts {first.path} before the library torch was built with.",
        Fix("Take it out of LD_PRELOAD.", ("unset LD_PRELOAD",)),
        {"loaded": first.path, "loaded_version": first.version, "wheel_version": wheel.version},
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/176829", because_of=("nccl_wheels_mixed",))
def nccl_not_as_required(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """The installed NCCL wheel is not the version PyTorch asks for.

    Why: torch pins one version and was tested with it. Another one may miss symbols, or carry bugs that torch's does
    not.

    Fix: install the version torch asks for.
    """
    if not pytorch.nccl_required or not nccl.wheels:
        return Skip("torch pins no NCCL wheel, or none is installed")
    name, _, wanted = pytorch.nccl_required.partition("==")
    installed = nccl.wheels.get(name)
    if installed == wanted:
        return Ok(f"{name} {installed}, as torch asks")
    return Problem(
        f"{name} {installed or 'is missing'}, torch asks for {wanted}",
        "torch was built and tested with the version it pins.",
        Fix("Install the pinned one.", (f"pip install --no-deps {pytorch.nccl_required}",)),
        {"required": pytorch.nccl_required, "installed": installed},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_stack_unlimited(nccl: Nccl, system: System) -> Answer:
    """The stack is unlimited, and this NCCL crashes with that.

    Why: with `ulimit -s unlimited` glibc gives new threads a stack of 2 MB, too small for NCCL before 2.28: it crashes
    while it starts.

    Fix: set a limit.
    """
    if not nccl.libraries or not nccl.libraries[0].version:
        return Skip("no NCCL library is in reach")
    if system.limit_stack_bytes is not None:
        return Ok(f"stack limit {system.limit_stack_bytes // 1024} KiB")
    version = nccl.libraries[0].version
    if numbers(version) >= _STACK_FIXED:
        return Ok(f"NCCL {version} copes with an unlimited stack")
    return Problem(
        f"ulimit -s is unlimited, NCCL is {version}",
        "NCCL before 2.28 crashes at start under an unlimited stack.",
        Fix("Set a limit in the job.", ("ulimit -s 8192",)),
        {"stack": None, "nccl": version},
    )
