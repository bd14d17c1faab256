"""Is there what extensions and kernels are compiled with, and does it fit torch and the driver?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Config, Driver, Libraries, Pytorch
from mgpu.text import listed

from .._versions import DEEPSPEED_MINORS, version
from .._wording import minor_of

# Environments with Inductor as their compiler; the other dynamo backends need no C compiler of this machine.
_COMPILING_BACKENDS = frozenset({"INDUCTOR"})


@check(Severity.INFO, source="https://pytorch.org/docs/stable/cpp_extension.html")
def nvcc_of_another_cuda(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """The CUDA toolkit that would compile extensions is of another major version than torch's CUDA.

    Why: torch itself needs no toolkit. Building flash-attn, apex or any CUDA extension from source stops with "The
    detected CUDA version mismatches the version that was used to compile PyTorch".

    Fix: if you build extensions: name the other.
    More: Point CUDA_HOME to a toolkit of torch's CUDA.
    """
    nvcc, cuda = numbers(libraries.nvcc), numbers(pytorch.cuda)
    if not nvcc or not cuda:
        return Skip("torch has no CUDA" if not cuda else "there is no nvcc, or its version is not known")
    if nvcc[0] == cuda[0]:
        return Ok(f"nvcc {libraries.nvcc}, torch for CUDA {pytorch.cuda}")
    return Problem(
        f"nvcc is {libraries.nvcc}, torch is built for CUDA {pytorch.cuda}",
        "torch refuses to build extensions with a toolkit of another major version. Training itself does not use it.",
        Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:id}", minor_of(pytorch.cuda)),)),
        {"nvcc": libraries.nvcc, "path": libraries.nvcc_path, "torch_cuda": pytorch.cuda},
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
    because_of=("driver_too_old_for_torch",),
)
def nvcc_newer_than_driver(libraries: Libraries, driver: Driver) -> Answer:
    """The CUDA toolkit that would compile extensions is newer than the CUDA this driver serves.

    Why: extensions that bring PTX from this compiler fail with error 222; those compiled for the GPU's own architecture
    run within one CUDA major.
    More: PTX from a newer compiler cannot be finished by an older driver: "the provided PTX was compiled with an
    unsupported toolchain" (error 222). Code compiled for the very GPU, not as PTX, is not concerned.

    Fix: if you build extensions: compile for the GPU itself, or with a toolkit the driver serves.
    """
    nvcc, serves = numbers(libraries.nvcc)[:2], driver.cuda_version
    if not nvcc or serves is None:
        return Skip("there is no nvcc, or its version is not known" if not nvcc else "the driver's CUDA is not known")
    if nvcc <= serves:
        return Ok(f"nvcc {libraries.nvcc}, the driver serves CUDA {serves[0]}.{serves[1]}")
    return Problem(
        f"nvcc is {libraries.nvcc}, the driver serves CUDA up to {serves[0]}.{serves[1]}",
        fix=(
            Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:number}.{:number}", serves[0], serves[1]),)),
            Fix("Or a newer driver.", who="admin"),
        ),
        evidence={"nvcc": libraries.nvcc, "path": libraries.nvcc_path, "driver_cuda": f"{serves[0]}.{serves[1]}"},
    )


def _brought(missing: Collection[str], cuda: str) -> tuple[Fix, ...]:
    """What is missing, installed."""
    fixes: list[Fix] = []
    if "nvcc" in missing:
        fixes += [
            Fix(
                f"Install a CUDA {cuda} toolkit (or use a -devel image): in a conda environment without any rights.",
                (shell("conda install -c nvidia cuda-toolkit={:id}", cuda), "export CUDA_HOME=$CONDA_PREFIX"),
            ),
            Fix("Or name the one that is there.", (shell("export CUDA_HOME=/usr/local/cuda-{:id}", cuda),)),
        ]
    if "a C++ compiler" in missing:
        fixes.append(Fix("Install a C++ compiler.", ("sudo apt-get install -y g++",), who="admin"))
    if "ninja" in missing:
        fixes.append(Fix("Install ninja where PATH finds it.", ("pip install ninja",)))
    return tuple(fixes)


@check(Severity.WARNING, source="https://github.com/deepspeedai/DeepSpeed/issues/2772", because_of=("torch_missing",))
def deepspeed_cannot_compile(libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """DeepSpeed is installed, and what it compiles its operators with is not.

    Why: it compiles operators on first use, and looks for nvcc when it is imported.
    More: Without nvcc `import deepspeed` itself, which transformers and accelerate do, can end with
    "MissingCUDAException: CUDA_HOME does not exist"; without ninja or a C++ compiler the first operator fails.

    Fix: a CUDA toolkit of torch's version, a C++ compiler and ninja; or remove deepspeed if it is not used.
    """
    if "deepspeed" not in packages or not pytorch.cuda:
        return Skip("deepspeed is not installed" if "deepspeed" not in packages else "torch has no CUDA")
    lacking = {
        "nvcc": libraries.nvcc_path is None,
        "a C++ compiler": libraries.compiler is None,
        "ninja": libraries.ninja is None,
    }
    missing = [name for name, absent in lacking.items() if absent]
    if not missing:
        return Ok(f"nvcc {libraries.nvcc or '?'}, C++ compiler, ninja")
    return Problem(
        f"deepspeed {packages['deepspeed']} without {listed(missing)}",
        fix=_brought(missing, minor_of(pytorch.cuda)),
        evidence={
            "cuda_home": libraries.cuda_home,
            "nvcc": libraries.nvcc_path,
            "compiler": libraries.compiler,
            "ninja": libraries.ninja,
        },
    )


_LET_THROUGH = Fix(
    "Or let the minor difference through.",
    ("export DS_SKIP_CUDA_CHECK=1",),
    kind="stopgap",
    caveat="DeepSpeed does not know the combination",
)


@check(
    Severity.WARNING,
    source="https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/builder.py",
    because_of=("deepspeed_cannot_compile",),
)
def deepspeed_refuses_nvcc(
    libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch, env: Mapping[str, str]
) -> Answer:
    """DeepSpeed would refuse to compile with this CUDA toolkit.

    Why: compiling an operator ends with CUDAMismatchException.
    More: It compares nvcc with torch.version.cuda and accepts other minors only of versions it knows. Otherwise the
    first operator ends with CUDAMismatchException, "Installed CUDA version does not match the version torch was
    compiled with": with CPU offload at the first step.

    Fix: use the toolkit of torch's CUDA.
    """
    installed = packages.get("deepspeed")
    nvcc, cuda = numbers(libraries.nvcc)[:2], numbers(pytorch.cuda)[:2]
    if installed is None or not cuda or not nvcc:
        missing = "deepspeed is not installed" if installed is None else "torch has no CUDA" if not cuda else ""
        return Skip(missing or "there is no nvcc, or its version is not known")
    ours, theirs = minor_of(libraries.nvcc), minor_of(pytorch.cuda)
    if ours == theirs:
        return Ok(f"nvcc and torch are both for CUDA {theirs}")
    have = version(installed)
    known: frozenset[str] = next(
        (minors for since, minors in DEEPSPEED_MINORS if have and have >= (version(since) or have)), frozenset()
    )
    if (ours in known and theirs in known) or nvcc[0] == 11 == cuda[0]:
        by = f"deepspeed {installed}" if ours in known and theirs in known else "deepspeed"
        return Ok(f"{by} accepts nvcc {ours} with torch for CUDA {theirs}")
    if env.get("DS_SKIP_CUDA_CHECK") == "1" and nvcc[0] == cuda[0]:
        return Ok(f"nvcc {ours} with torch for CUDA {theirs}, let through by DS_SKIP_CUDA_CHECK=1")
    fix = Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:id}", theirs),))
    return Problem(
        f"nvcc is {ours}, torch is built for CUDA {theirs}, and deepspeed {installed} does not accept that",
        fix=(fix, _LET_THROUGH) if nvcc[0] == cuda[0] else fix,
        evidence={
            "nvcc": libraries.nvcc,
            "path": libraries.nvcc_path,
            "torch_cuda": pytorch.cuda,
            "deepspeed": installed,
        },
    )


@check(Severity.WARNING, source="https://github.com/triton-lang/triton/blob/main/python/triton/runtime/build.py")
def compiler_missing_for_dynamo(libraries: Libraries, config: Config) -> Answer:
    """The config asks for torch.compile, and there is no C compiler.

    Why: Triton compiles a starter for each kernel with gcc or clang.
    More: Inductor's kernels are started through a small C program that Triton compiles on this machine: "Failed to find
    C compiler. Please specify via CC environment variable", in every rank, at the first step.

    Fix: install one.
    More: Or name a compiler in CC.
    """
    section = config.values.get("dynamo_config")
    section = section if isinstance(section, Mapping) else {}
    # accelerate puts the prefix before keys that lack it, and moves the old top-level key into the section.
    backend = section.get("dynamo_backend", section.get("backend", config.values.get("dynamo_backend")))
    if not isinstance(backend, str) or backend.upper() not in _COMPILING_BACKENDS:
        return Skip("the config does not ask for Inductor")
    if libraries.c_compiler:
        return Ok(f"a C compiler, version {libraries.c_compiler}")
    return Problem(
        "dynamo_backend: INDUCTOR, and no C compiler",
        fix=Fix(commands=("sudo apt-get install -y gcc",), who="admin"),
        evidence={"dynamo_backend": backend},
    )
