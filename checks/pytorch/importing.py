"""Is PyTorch installed, and can it and its extensions be imported?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Python, Pytorch, TorchRuntime
from mgpu.text import listed

from ._wheels import pinned_wheel

_PYTORCH = "https://pytorch.org/get-started/locally/"
# `import torch` takes 1.1 s from a local disk (measured). Above this limit, every rank of every launch wastes time.
_SLOW_IMPORT_S = 20.0
# Each release of these is built for one torch and is also on PyTorch's index. Others are compiled here.
_WHEELS_PER_TORCH = frozenset({"torchvision", "xformers"})
# `apex` on PyPI is another project.
_NOT_ON_PYPI = {
    "apex": "git+https://github.com/NVIDIA/apex",
    "flash_attn_3": "git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper",
}


@check(Severity.ERROR, source=_PYTORCH)
def torch_missing(pytorch: Pytorch, python: Python) -> Answer:
    """PyTorch is not installed in the Python interpreter that runs the training script.

    Why: This interpreter has no PyTorch. Another environment may have it.
    More: Training cannot start.

    Fix: Activate the environment you train in, or install torch here.
    """
    if pytorch.installed:
        return Ok(f"torch {pytorch.version}")
    alone = python.chosen == "no environment in sight"  # then this is mgpu's own, possibly temporary: uvx
    return Problem(
        f"no torch in {python.executable}",
        fix=Fix("Activate the environment you train in, or pass its Python with --python.")
        if alone
        else Fix(commands=(shell("{:path} -m pip install torch", python.executable),)),
        evidence={"python": python.executable, "version": python.version, "chosen": python.chosen},
    )


@check(Severity.ERROR, source="https://docs.python.org/3/c-api/stable.html", because_of=("torch_missing",))
def torch_built_for_another_python(pytorch: Pytorch, python: Python) -> Answer:
    """The installed torch was compiled for another Python version.

    Why: Its compiled module is named for one Python version (_C.cpython-310-...so), and other versions do not find it:
    "No module named 'torch._C'" in every rank. The cause is a PYTHONPATH from another environment or a copied
    site-packages.

    Fix: Check which folder it comes from (PYTHONPATH, a copied environment), or install torch for this interpreter.
    """
    if not pytorch.installed or not pytorch.built_for or not python.suffixes:
        return Skip("torch is not installed" if not pytorch.installed else "torch's Python version is unknown")
    if set(pytorch.built_for) & set(python.suffixes):
        return Ok(f"compiled for Python {python.version}")
    found = re.search(r"cpython-(\d)(\d+)", pytorch.built_for[0])
    other = f"Python {found.group(1)}.{found.group(2)}" if found else pytorch.built_for[0]
    return Problem(
        f"torch in {pytorch.location} is compiled for {other}, this is Python {python.version}",
        f"{python.executable} cannot load its compiled part: No module named 'torch._C'.",
        Fix(commands=("echo $PYTHONPATH", shell("{:path} -m pip install --force-reinstall torch", python.executable))),
        {"location": pytorch.location, "built_for": " ".join(pytorch.built_for), "python": python.version},
    )


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/issues",
    because_of=(
        "torch_missing",
        "nccl_wheels_mixed",
        "nccl_not_the_wheels",
        "torch_built_for_another_python",
        "cuda_wheels_overwrite_each_other",
        "cuda_wheels_not_as_required",
        "library_path_shadows_wheels",
        "module_shadowed_here",
        "environment_package_hidden",
    ),
)
def torch_import_fails(torch_runtime: TorchRuntime, pytorch: Pytorch) -> Answer:
    """`import torch` fails.

    Why: A library it needs is missing, damaged, from another build, or shadowed by a file of the same name. Every rank
    fails at its first line.

    Fix: Reinstall it with its libraries.
    More: The last line of the error names the library. Reinstalling torch fixes most cases.
    """
    if torch_runtime.import_error is None:
        return Ok(f"imported in {torch_runtime.import_s or 0:.1f} s")
    if not pytorch.installed:
        return Skip("torch is not installed")
    build = pinned_wheel(pytorch)
    return Problem(
        f"import torch: {torch_runtime.import_error}",
        "torch is installed but cannot be imported. Every rank fails at its first line.",
        Fix(
            commands=(
                shell(
                    "pip install --force-reinstall {:package} --index-url https://download.pytorch.org/whl/{:id}",
                    *build,
                ),
            )
        )
        if build
        else Fix(f"Reinstall it from its original source. {pytorch.version} is not one of PyTorch's own wheels."),
        {"error": torch_runtime.import_error, "location": pytorch.location},
    )


@check(Severity.INFO, source="measured on 2 cores and a local disk, torch 2.13: 1.1 s, 2026-11-21")
def torch_import_slow(torch_runtime: TorchRuntime) -> Answer:
    """`import torch` takes very long.

    Why: From a local disk it takes about one second. All ranks together take longer.
    More: It reads thousands of small files and a few large ones. On a network file system that takes a minute, and
    every rank does it at the same time at every launch. Slow ranks can miss the rendezvous timeout.

    Fix: Copy the environment to a local disk of the node.
    More: Or use a container image or an archive, which is one file.
    """
    if torch_runtime.import_s is None:
        return Skip("torch was not imported")
    if torch_runtime.import_s < _SLOW_IMPORT_S:
        return Ok(f"imported in {torch_runtime.import_s:.1f} s")
    return Problem(
        f"import torch took {torch_runtime.import_s:.0f} s",
        fix=Fix(commands=("df -h $(python -c 'import sys; print(sys.prefix)')",)),
        evidence={"import_s": torch_runtime.import_s},
    )


@check(
    Severity.WARNING,
    source="https://pytorch.org/docs/stable/cpp_extension.html",
    because_of=("torch_import_fails", "torch_is_cpu_build", "extension_built_for_another_torch", "requirement_not_met"),
)
def extension_does_not_load(torch_runtime: TorchRuntime, pytorch: Pytorch) -> Answer:
    """An installed compiled extension cannot be loaded with this torch.

    Why: It was built for another torch or CUDA version. Any program that imports it fails.
    More: The error is "undefined symbol: _ZN3c10..." or a segmentation fault (exit code -11). transformers imports
    flash-attn whenever it is installed.

    Fix: Reinstall it for this torch.
    """
    if torch_runtime.import_error is not None or not torch_runtime.extensions:
        return Skip("torch cannot be imported" if torch_runtime.import_error else "no compiled extension of torch")
    bad = {name: error for name, error in torch_runtime.extensions.items() if error}
    if not bad:
        return Ok(f"{listed(torch_runtime.extensions)} can be loaded")
    first = next(iter(bad.values()))
    names = [name.replace("_", "-") for name in bad]
    reinstall = tuple(_reinstall_command(name, pytorch) for name in bad)
    return Problem(
        f"{listed(bad)} cannot be loaded: {first.rpartition('/')[2]}",
        fix=(
            Fix(commands=(shell("pip uninstall -y {:package}", names), *reinstall)),
            Fix("Or uninstall it if you do not need it.", (shell("pip uninstall -y {:package}", names),)),
        ),
        evidence=bad,
        subjects=tuple(bad),
    )


def _reinstall_command(name: str, pytorch: Pytorch) -> str:
    """Return the command that installs an extension for this torch: a matching wheel, or a build from source."""
    if name in _WHEELS_PER_TORCH:
        if (build := pinned_wheel(pytorch)) is None:
            return shell("pip install --no-cache-dir {:package} torch", name)
        index = "--index-url https://download.pytorch.org/whl/{:id}"
        return shell(f"pip install --no-cache-dir {{:package}} {{:package}} {index}", name, *build)
    source = _NOT_ON_PYPI.get(name, name.replace("_", "-"))
    return shell("pip install --no-deps --no-build-isolation --no-cache-dir {}", source)
