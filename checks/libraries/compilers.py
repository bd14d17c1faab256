"""Are the compilers for extensions and kernels installed, and compatible with torch and the driver?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Config, Driver, Libraries, Pytorch
from mgpu.text import listed

from .._versions import DEEPSPEED_MINORS, parse_version
from .._wording import minor_of

# The other dynamo backends do not need a C compiler.
_COMPILING_BACKENDS = frozenset({"INDUCTOR"})


@check(Severity.INFO, source="https://pytorch.org/docs/stable/cpp_extension.html")
def nvcc_of_another_cuda(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """The CUDA toolkit for extensions has a different major version than torch's CUDA.

    Why: torch itself needs no toolkit. Building flash-attn, apex or any CUDA extension from source stops with "The
    detected CUDA version mismatches the version that was used to compile PyTorch".

    Fix: If you build extensions, set CUDA_HOME to a matching toolkit.
    More: It must be a toolkit for torch's CUDA version.
    """
    nvcc, cuda = version_numbers(libraries.nvcc), version_numbers(pytorch.cuda)
    if not nvcc or not cuda:
        return Skip("torch has no CUDA" if not cuda else "there is no nvcc, or its version is unknown")
    if nvcc[0] == cuda[0]:
        return Ok(f"nvcc {libraries.nvcc}, torch for CUDA {pytorch.cuda}")
    return Problem(
        f"nvcc is {libraries.nvcc}, torch is built for CUDA {pytorch.cuda}",
        "torch does not build extensions with a toolkit of another major version. Training itself does not use it.",
        Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:id}", minor_of(pytorch.cuda)),)),
        {"nvcc": libraries.nvcc, "path": libraries.nvcc_path, "torch_cuda": pytorch.cuda},
    )


@check(
    Severity.INFO,
    source="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
    because_of=("driver_too_old_for_torch",),
)
def nvcc_newer_than_driver(libraries: Libraries, driver: Driver) -> Answer:
    """The CUDA toolkit for extensions is newer than the CUDA this driver supports.

    Why: Extensions that contain PTX from this compiler fail with error 222. Extensions compiled for the GPU's own
    architecture run within one CUDA major version.
    More: An older driver cannot compile PTX from a newer compiler: "the provided PTX was compiled with an unsupported
    toolchain" (error 222). Machine code for this GPU, as opposed to PTX, is not affected.

    Fix: If you build extensions, compile for the GPU itself, or with a toolkit the driver supports.
    """
    nvcc, newest = version_numbers(libraries.nvcc)[:2], driver.cuda_version
    if not nvcc or newest is None:
        return Skip("there is no nvcc, or its version is unknown" if not nvcc else "the driver's CUDA is unknown")
    if nvcc <= newest:
        return Ok(f"nvcc {libraries.nvcc}, the driver supports CUDA {newest[0]}.{newest[1]}")
    return Problem(
        f"nvcc is {libraries.nvcc}, the driver supports CUDA up to {newest[0]}.{newest[1]}",
        fix=(
            Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:number}.{:number}", newest[0], newest[1]),)),
            Fix("Or install a newer driver.", who="admin"),
        ),
        evidence={"nvcc": libraries.nvcc, "path": libraries.nvcc_path, "driver_cuda": f"{newest[0]}.{newest[1]}"},
    )


def _install_fixes(missing: Collection[str], cuda: str) -> tuple[Fix, ...]:
    """Return the fixes that install what is missing."""
    fixes: list[Fix] = []
    if "nvcc" in missing:
        fixes += [
            Fix(
                f"Install a CUDA {cuda} toolkit (or use a -devel image). A conda environment needs no root access.",
                (shell("conda install -c nvidia cuda-toolkit={:id}", cuda), "export CUDA_HOME=$CONDA_PREFIX"),
            ),
            Fix("Or set CUDA_HOME to an installed one.", (shell("export CUDA_HOME=/usr/local/cuda-{:id}", cuda),)),
        ]
    if "a C++ compiler" in missing:
        fixes.append(Fix("Install a C++ compiler.", ("sudo apt-get install -y g++",), who="admin"))
    if "ninja" in missing:
        fixes.append(Fix("Install ninja in a folder on PATH.", ("pip install ninja",)))
    return tuple(fixes)


@check(Severity.WARNING, source="https://github.com/deepspeedai/DeepSpeed/issues/2772", because_of=("torch_missing",))
def deepspeed_cannot_compile(libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """DeepSpeed is installed, but not the compilers for its operators.

    Why: It compiles operators on first use, and looks for nvcc on import.
    More: Without nvcc, `import deepspeed` itself, which transformers and accelerate run, can fail with
    "MissingCUDAException: CUDA_HOME does not exist". Without ninja or a C++ compiler, the first operator fails.

    Fix: Install a CUDA toolkit of torch's version, a C++ compiler and ninja. Or remove deepspeed if it is not used.
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
        fix=_install_fixes(missing, minor_of(pytorch.cuda)),
        evidence={
            "cuda_home": libraries.cuda_home,
            "nvcc": libraries.nvcc_path,
            "compiler": libraries.compiler,
            "ninja": libraries.ninja,
        },
    )


_SKIP_CHECK = Fix(
    "Or allow the minor version difference.",
    ("export DS_SKIP_CUDA_CHECK=1",),
    kind="stopgap",
    caveat="DeepSpeed has not tested this combination",
)


@check(
    Severity.WARNING,
    source="https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/builder.py",
    because_of=("deepspeed_cannot_compile",),
)
def deepspeed_refuses_nvcc(
    libraries: Libraries, packages: Mapping[str, str], pytorch: Pytorch, env: Mapping[str, str]
) -> Answer:
    """DeepSpeed does not compile with this CUDA toolkit.

    Why: Compiling an operator fails with CUDAMismatchException.
    More: It compares nvcc with torch.version.cuda, and accepts another minor version only from its own list. Otherwise
    the first operator fails with CUDAMismatchException, "Installed CUDA version does not match the version torch was
    compiled with". With CPU offload this happens at the first step.

    Fix: Use the toolkit for torch's CUDA version.
    """
    installed = packages.get("deepspeed")
    nvcc, cuda = version_numbers(libraries.nvcc)[:2], version_numbers(pytorch.cuda)[:2]
    if installed is None or not cuda or not nvcc:
        missing = "deepspeed is not installed" if installed is None else "torch has no CUDA" if not cuda else ""
        return Skip(missing or "there is no nvcc, or its version is unknown")
    ours, theirs = minor_of(libraries.nvcc), minor_of(pytorch.cuda)
    if ours == theirs:
        return Ok(f"nvcc and torch are both for CUDA {theirs}")
    have = parse_version(installed)
    known: frozenset[str] = next(
        (minors for since, minors in DEEPSPEED_MINORS if have and have >= (parse_version(since) or have)), frozenset()
    )
    if (ours in known and theirs in known) or nvcc[0] == 11 == cuda[0]:
        by = f"deepspeed {installed}" if ours in known and theirs in known else "deepspeed"
        return Ok(f"{by} accepts nvcc {ours} with torch for CUDA {theirs}")
    if env.get("DS_SKIP_CUDA_CHECK") == "1" and nvcc[0] == cuda[0]:
        return Ok(f"nvcc {ours} with torch for CUDA {theirs}, allowed by DS_SKIP_CUDA_CHECK=1")
    fix = Fix(commands=(shell("export CUDA_HOME=/usr/local/cuda-{:id}", theirs),))
    return Problem(
        f"nvcc is {ours}, torch is built for CUDA {theirs}, and deepspeed {installed} does not accept that",
        fix=(fix, _SKIP_CHECK) if nvcc[0] == cuda[0] else fix,
        evidence={
            "nvcc": libraries.nvcc,
            "path": libraries.nvcc_path,
            "torch_cuda": pytorch.cuda,
            "deepspeed": installed,
        },
    )


@check(Severity.WARNING, source="https://github.com/triton-lang/triton/blob/main/python/triton/runtime/build.py")
def compiler_missing_for_dynamo(libraries: Libraries, config: Config) -> Answer:
    """The config uses torch.compile, but there is no C compiler.

    Why: Triton compiles a launcher for each kernel with gcc or clang.
    More: Inductor's kernels start through a small C program that Triton compiles on this node. Without a compiler,
    every rank fails at the first step: "Failed to find C compiler. Please specify via CC environment variable".

    Fix: Install a C compiler.
    More: Or set CC to one.
    """
    section = config.values.get("dynamo_config")
    section = section if isinstance(section, Mapping) else {}
    # accelerate adds the prefix to keys that lack it, and moves the old top-level key into the section.
    backend = section.get("dynamo_backend", section.get("backend", config.values.get("dynamo_backend")))
    if not isinstance(backend, str) or backend.upper() not in _COMPILING_BACKENDS:
        return Skip("the config does not use Inductor")
    if libraries.c_compiler:
        return Ok(f"a C compiler, version {libraries.c_compiler}")
    return Problem(
        "dynamo_backend: INDUCTOR, but no C compiler",
        fix=Fix(commands=("sudo apt-get install -y gcc",), who="admin"),
        evidence={"dynamo_backend": backend},
    )
