"""Which NCCL will be loaded, and is it the one PyTorch was built for?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Gpu, Libraries, Nccl, Plan, Pytorch, System, TorchRuntime, Visible
from mgpu.text import listed

from ._versions import NCCL_DEFECTS, NcclDefect, satisfies

FAMILY = Family(gpu_only=True)

# NCCL before this crashes in init under an unlimited stack (glibc then gives threads 2 MB): NCCL troubleshooting guide.
_STACK_FIXED = (2, 28)


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/119932")
def nccl_wheels_mixed(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """Two NCCL wheels for different CUDA majors are installed side by side.

    Why: both put libnccl.so.2 into the same folder, and the one installed last wins. When that is older than torch's
    own, torch fails at import with "undefined symbol: nccl…" or at run time. xgboost and other packages bring one.

    Fix: remove the extra one and put the right one back.
    """
    if not nccl.wheels:
        return Skip("no NCCL wheel is installed")
    if len(nccl.wheels) == 1:
        name, version = next(iter(nccl.wheels.items()))
        return Ok(f"{name} {version} only")
    if pytorch.nccl_required is None:
        return Skip("torch asks for no NCCL wheel: they are of other packages")
    wanted, _, pin = pytorch.nccl_required.partition("==")
    there = next((library.version for library in nccl.libraries if library.origin == "wheel"), None)
    if pin and there and numbers(there) >= numbers(pin):
        return Ok(f"{listed(sorted(nccl.wheels))}: the file they share is {there}, and torch asks for {pin}")
    extra = [name for name in nccl.wheels if name != wanted]
    return Problem(
        " and ".join(f"{name} {version}" for name, version in sorted(nccl.wheels.items())),
        "They share one folder and one file name: which NCCL is there depends on what was installed last. "
        + (f"Now it is {there}." if there else "Which one it is now cannot be asked."),
        Fix(
            commands=(
                shell("pip uninstall -y {:package}", extra),
                shell("pip install --force-reinstall --no-deps {:package}", pytorch.nccl_required),
            )
        ),
        dict(nccl.wheels),
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1212", because_of=("nccl_wheels_mixed",))
def nccl_not_the_wheels(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """A process would load another NCCL than the one PyTorch ships with.

    Why: a preloaded library wins over the wheel's. torch.cuda.nccl.version() goes on telling the version it was
    compiled with, while another one runs: bugs and performance are those of a library nobody looks at.

    Fix: take it out of LD_PRELOAD.
    """
    if not pytorch.cuda or not nccl.libraries:
        return Skip("no NCCL library is in reach")
    first = nccl.libraries[0]
    wheel = next((library for library in nccl.libraries if library.origin == "wheel"), None)
    if first.origin != "preload" or wheel is None:
        return Ok(f"NCCL {first.version} from {first.path}")
    return Problem(
        f"NCCL {first.version or '?'} is preloaded over the wheel's {wheel.version}",
        f"LD_PRELOAD puts {first.path} before the library torch was built with.",
        Fix(commands=("unset LD_PRELOAD",)),
        {"loaded": first.path, "loaded_version": first.version, "wheel_version": wheel.version},
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/176829", because_of=("nccl_wheels_mixed",))
def nccl_not_as_required(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """The installed NCCL wheel is not the version PyTorch asks for.

    Why: torch pins one version and was tested with it. Another one may miss symbols, or carry bugs that torch's does
    not.

    Fix: install the pinned one.
    More: Install the version torch asks for.
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
        Fix(commands=(shell("pip install --no-deps {:package}", pytorch.nccl_required),)),
        {"required": pytorch.nccl_required, "installed": installed},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_stack_unlimited(nccl: Nccl, system: System) -> Answer:
    """The stack is unlimited, and this NCCL can crash with that.

    Why: NCCL before 2.28 can crash at start under an unlimited stack: glibc then gives its threads 2 MB, too little for
    its search of paths between many ranks.

    Fix: set a limit in the job.
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
        fix=Fix(commands=("ulimit -s 8192",)),
        evidence={"stack": None, "nccl": version},
    )


@check(
    Severity.WARNING,
    source="https://github.com/verl-project/verl/issues/6621",
    because_of=("nccl_wheels_mixed", "nccl_not_the_wheels", "nccl_not_as_required"),
)
def nccl_loaded_is_another(torch_runtime: TorchRuntime) -> Answer:
    """The NCCL that `import torch` really loaded is not the version torch was compiled with.

    Why: torch.cuda.nccl.version() tells what torch was compiled with, whatever runs. The file in the process's memory
    was asked itself. An older one misses functions ("undefined symbol: nccl..."); each has its own defects.

    Fix: see what brings it in: LD_PRELOAD, LD_LIBRARY_PATH, or a wheel that was replaced.
    """
    if torch_runtime.import_error is not None or torch_runtime.mapped is None:
        return Skip("torch cannot be imported" if torch_runtime.import_error else "what torch mapped is not known")
    path, loaded, compiled = (
        torch_runtime.mapped.get("nccl"),
        torch_runtime.nccl_loaded_version,
        torch_runtime.nccl_version,
    )
    if path is None:
        return Skip("torch loads no libnccl: it has none, or carries it inside")
    if not loaded or not compiled:
        return Skip(f"{path} does not tell its version")
    if numbers(loaded) == numbers(compiled):
        return Ok(f"NCCL {loaded} from {path}, as torch was compiled with")
    return Problem(
        f"NCCL {loaded} is loaded, torch was compiled with {compiled}",
        f"{path} is what the ranks would run; torch and its messages go on speaking of {compiled}.",
        Fix(commands=("echo $LD_PRELOAD $LD_LIBRARY_PATH", "pip list | grep -i nccl")),
        {"path": path, "loaded": loaded, "compiled_with": compiled},
    )


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/122571")
def nccl_not_the_images(env: Mapping[str, str], nccl: Nccl, pytorch: Pytorch) -> Answer:
    """The image announces another NCCL or CUDA than torch uses.

    Why: the variables tell of packages of the image that torch does not use.
    More: NVIDIA's images set NCCL_VERSION and CUDA_VERSION for the packages in them; torch from pip brings its own.
    Both variables choose nothing. Whoever reads them, or `dpkg -l | grep nccl`, looks for faults in the wrong version.

    Fix: nothing; do not go by these variables.
    More: Go by the versions shown here.
    """
    image = {name: env[name] for name in ("NCCL_VERSION", "CUDA_VERSION") if numbers(env.get(name))}
    if not image or not pytorch.cuda:
        return Skip("no image announces a version" if not image else "torch has no CUDA")
    used = {"NCCL_VERSION": nccl.libraries[0].version if nccl.libraries else None, "CUDA_VERSION": pytorch.cuda}
    differ = {
        name: value
        for name, value in image.items()
        if (have := numbers(used[name])) and have[: _told(name)] != numbers(value)[: _told(name)]
    }
    if not differ:
        return Ok(", ".join(f"{name}={value}" for name, value in image.items()))
    return Problem(
        ", ".join(f"{name}={value} in the image, torch uses {used[name]}" for name, value in differ.items()),
        evidence={name: f"{value}, used {used[name]}" for name, value in differ.items()},
    )


def _told(variable: str) -> int:
    """How many numbers count: of CUDA's the minor, not the update."""
    return 2 if variable == "CUDA_VERSION" else 3


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deeplearning/nccl/release-notes/index.html",
    because_of=("nccl_not_the_wheels", "nccl_not_as_required"),
)
def nccl_version_known_bad(nccl: Nccl, gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """This release of NCCL has a fault that concerns this machine.

    Why: some releases hang, fail or corrupt data with certain GPUs or across machines; the next release mends it. What
    is seen is a hang in the first collective, or a loss that goes its own way.

    Fix: use a release that has it mended.
    """
    if not nccl.libraries or not nccl.libraries[0].version:
        return Skip("no NCCL library is in reach")
    version = nccl.libraries[0].version
    shown = [gpu for gpu in gpus if gpu.index in visible.gpus]
    if len(shown) < 2 and plan.nodes < 2:
        return Skip("without a second GPU NCCL is not started")
    hits = [row for row in NCCL_DEFECTS if satisfies(version, row.versions) and _concerns(row, shown, plan)]
    if not hits:
        return Ok(f"nothing known against NCCL {version} here")
    fixed = max((row.fixed_in for row in hits), key=numbers)
    wheel = next(iter(nccl.wheels), None) if nccl.libraries[0].origin == "wheel" else None
    newer = (
        Fix(commands=(shell("pip install {:package}", f"{wheel}>={fixed}"),))
        if wheel
        else Fix(f"Use an image or a package with NCCL {fixed} or newer: {nccl.libraries[0].path} is not of a wheel.")
    )
    stopgaps = [
        Fix("Until then: without the part that fails.", (row.stopgap,), kind="stopgap", caveat="slower")
        for row in hits
        if row.stopgap
    ]
    return Problem(
        f"NCCL {version}: {hits[0].effect} Mended in {fixed}.",
        " ".join(row.effect for row in hits),
        (newer, *stopgaps),
        {f"source {place}": row.url for place, row in enumerate(hits, 1)} | {"nccl": version},
    )


def _concerns(row: NcclDefect, shown: list[Gpu], plan: Plan) -> bool:
    """Whether a defect matters with these visible GPUs and this plan."""
    if row.when == "sm_120":
        return any(gpu.compute_capability is not None and gpu.compute_capability[0] == 12 for gpu in shown)
    if row.when == "h100_pair":
        return len(shown) == 2 and all("H100" in (gpu.name or "") for gpu in shown)
    return row.when == "always" or plan.nodes > 1


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-plugin")
def nccl_plugin_not_loadable(libraries: Libraries, plan: Plan) -> Answer:
    """A plugin that NCCL is told to use cannot be loaded.

    Why: NCCL_NET_PLUGIN and NCCL_TUNER_PLUGIN name a library. When it cannot be loaded NCCL goes on without a word: the
    ranks talk over TCP where EFA or another fast network was meant, ten times slower, or hang.

    Fix: put the folder of the plugin on LD_LIBRARY_PATH, install what it lacks, or unset the variable.
    """
    named = [one for one in libraries.found if one.name in ("nccl-net", "nccl-tuner", "nccl-profiler")]
    if not named:
        return Ok("no plugin is named")
    if any(one.loads is None for one in named):
        return Skip("whether the plugins load is not known")
    bad = [one for one in named if one.loads is False]
    if not bad:
        return Ok(f"{listed(one.path for one in named)} can be loaded")
    if plan.nodes == 1 and all(one.name == "nccl-net" for one in bad):
        return Ok(f"{listed(one.path for one in bad)} cannot be loaded, and one machine needs no network plugin")
    return Problem(
        f"{listed(f'{one.name} plugin {one.path}' for one in bad)} cannot be loaded",
        f"The loader says: {bad[0].error or 'nothing'}. NCCL goes on without it, and only NCCL_DEBUG=INFO shows that.",
        Fix(commands=tuple(shell("unset NCCL_{:name}_PLUGIN", one.name.removeprefix("nccl-").upper()) for one in bad)),
        {one.path: one.error for one in bad},
        tuple(one.name for one in bad),
    )
