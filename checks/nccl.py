"""Which NCCL is loaded, and is it the one that PyTorch was built for?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Gpu, Host, Libraries, Nccl, Plan, Pytorch, System, TorchRuntime, Visible
from mgpu.text import listed

from ._faults import Situation, describe, judge_faults, shown_gpus, sources, update_nccl
from ._faults_nccl import NCCL_FAULTS
from ._versions import satisfies

FAMILY = Family(gpu_only=True)

# Older NCCL crashes in init with an unlimited stack (glibc then gives threads 2 MB): NCCL troubleshooting guide.
_STACK_FIXED = (2, 28)


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/119932")
def nccl_wheels_mixed(nccl: Nccl, pytorch: Pytorch) -> Answer:
    """Two NCCL wheels for different CUDA major versions are installed.

    Why: both install libnccl.so.2 into the same directory, and the last one installed wins. If that one is older than
    torch's, torch fails at import with "undefined symbol: nccl…" or at run time. xgboost and other packages bring one.

    Fix: remove the extra wheel and reinstall the right one.
    """
    if not nccl.wheels:
        return Skip("no NCCL wheel is installed")
    if len(nccl.wheels) == 1:
        name, version = next(iter(nccl.wheels.items()))
        return Ok(f"{name} {version} only")
    if pytorch.nccl_required is None:
        return Skip("torch requires no NCCL wheel, other packages do")
    wanted, _, pin = pytorch.nccl_required.partition("==")
    there = next((library.version for library in nccl.libraries if library.origin == "wheel"), None)
    if pin and there and version_numbers(there) >= version_numbers(pin):
        return Ok(f"{listed(sorted(nccl.wheels))}: their shared file is {there}, torch requires {pin}")
    extra = [name for name in nccl.wheels if name != wanted]
    return Problem(
        " and ".join(f"{name} {version}" for name, version in sorted(nccl.wheels.items())),
        "They share one directory and one file name, so the last one installed wins. "
        + (f"The installed file is {there}." if there else "The installed file's version could not be read."),
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
    """A process would load a different NCCL than the one PyTorch ships with.

    Why: a preloaded library takes precedence over the wheel's. torch.cuda.nccl.version() still reports the version that
    torch was compiled with, so bugs and slowdowns of the preloaded library are easily missed.

    Fix: remove it from LD_PRELOAD.
    """
    if not pytorch.cuda or not nccl.libraries:
        return Skip("no NCCL library found")
    first = nccl.libraries[0]
    wheel = next((library for library in nccl.libraries if library.origin == "wheel"), None)
    if first.origin != "preload" or wheel is None:
        return Ok(f"NCCL {first.version} from {first.path}")
    return Problem(
        f"LD_PRELOAD loads NCCL {first.version or '?'} instead of the wheel's {wheel.version}",
        f"LD_PRELOAD loads {first.path} before the library that torch was built with.",
        Fix(commands=("unset LD_PRELOAD",)),
        {"loaded": first.path, "loaded_version": first.version, "wheel_version": wheel.version},
    )


def _is_repair(wanted: str, used: str | None, host: Host) -> bool:
    """Return whether a newer NCCL than wanted is used, and the wanted one has a known bug on this architecture."""
    rows = (row for row in NCCL_FAULTS if row.use is None and row.machine in (None, host.machine))
    newer = version_numbers(used) > version_numbers(wanted)
    return newer and any(satisfies(wanted, row.versions) for row in rows)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/176829", because_of=("nccl_wheels_mixed",))
def nccl_not_as_required(nccl: Nccl, pytorch: Pytorch, host: Host) -> Answer:
    """The installed NCCL wheel is not the version that PyTorch requires.

    Why: torch pins one version and was tested with it. Another may lack symbols or have other bugs.
    More: A newer version is right if the pinned one has a known bug on this architecture.

    Fix: install the pinned version.
    """
    if not pytorch.nccl_required or not nccl.wheels:
        return Skip("torch pins no NCCL wheel, or none is installed")
    name, _, wanted = pytorch.nccl_required.partition("==")
    installed = nccl.wheels.get(name)
    if installed == wanted:
        return Ok(f"{name} {installed}, as torch requires")
    if _is_repair(wanted, installed, host):
        return Ok(f"{name} {installed}: torch requires {wanted}, which has a known bug")
    return Problem(
        f"{name} {installed or 'is missing'}, torch requires {wanted}",
        "torch was built and tested with the version that it pins.",
        Fix(commands=(shell("pip install --no-deps {:package}", pytorch.nccl_required),)),
        {"required": pytorch.nccl_required, "installed": installed},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def nccl_stack_unlimited(nccl: Nccl, system: System) -> Answer:
    """The stack is unlimited, which can crash this NCCL version.

    Why: NCCL before 2.28 can crash at start with an unlimited stack: glibc then gives its threads 2 MB, too little for
    the path search between many ranks.

    Fix: set a stack limit in the job.
    """
    if not nccl.libraries or not nccl.libraries[0].version:
        return Skip("no NCCL library found")
    if system.limit_stack_bytes is not None:
        return Ok(f"stack limit {system.limit_stack_bytes // 1024} KiB")
    version = nccl.libraries[0].version
    if version_numbers(version) >= _STACK_FIXED:
        return Ok(f"NCCL {version} works with an unlimited stack")
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
def nccl_loaded_is_another(torch_runtime: TorchRuntime, host: Host) -> Answer:
    """The NCCL that `import torch` actually loaded is not the version that torch was compiled with.

    Why: torch.cuda.nccl.version() always reports the compile-time version. mgpu queried the library that is loaded in
    the process. An older one lacks functions ("undefined symbol: nccl..."), and each version has its own bugs.

    Fix: find out where it comes from: LD_PRELOAD, LD_LIBRARY_PATH, or a replaced wheel.
    """
    if torch_runtime.import_error is not None or torch_runtime.mapped is None:
        return Skip(
            "torch cannot be imported" if torch_runtime.import_error else "could not determine what torch loads"
        )
    path, loaded, compiled = (
        torch_runtime.mapped.get("nccl"),
        torch_runtime.nccl_loaded_version,
        torch_runtime.nccl_version,
    )
    if path is None:
        return Skip("torch loads no libnccl: it has none, or links it statically")
    if not loaded or not compiled:
        return Skip(f"{path} does not report its version")
    if version_numbers(loaded) == version_numbers(compiled):
        return Ok(f"NCCL {loaded} from {path}, the version torch was compiled with")
    if _is_repair(compiled, loaded, host):
        return Ok(f"NCCL {loaded} from {path}: {compiled}, with which torch was compiled, has a known bug")
    return Problem(
        f"NCCL {loaded} is loaded, torch was compiled with {compiled}",
        f"The ranks would use {path}, while torch and its messages still report {compiled}.",
        Fix(commands=("echo $LD_PRELOAD $LD_LIBRARY_PATH", "pip list | grep -i nccl")),
        {"path": path, "loaded": loaded, "compiled_with": compiled},
    )


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/122571")
def nccl_not_the_images(env: Mapping[str, str], nccl: Nccl, pytorch: Pytorch) -> Answer:
    """The image's NCCL_VERSION or CUDA_VERSION differs from what torch uses.

    Why: the variables describe packages of the image that torch does not use.
    More: NVIDIA's images set NCCL_VERSION and CUDA_VERSION for their own packages, but torch from pip brings its own.
    The variables select nothing. If you debug by them, or by `dpkg -l | grep nccl`, you look at the wrong version.

    Fix: no action needed. Do not rely on these variables.
    More: Use the versions shown here.
    """
    image = {name: env[name] for name in ("NCCL_VERSION", "CUDA_VERSION") if version_numbers(env.get(name))}
    if not image or not pytorch.cuda:
        return Skip("no version set by an image" if not image else "torch has no CUDA")
    used = {"NCCL_VERSION": nccl.libraries[0].version if nccl.libraries else None, "CUDA_VERSION": pytorch.cuda}
    differ = {
        name: value
        for name, value in image.items()
        if (have := version_numbers(used[name]))
        and have[: _compared_parts(name)] != version_numbers(value)[: _compared_parts(name)]
    }
    if not differ:
        return Ok(", ".join(f"{name}={value}" for name, value in image.items()))
    return Problem(
        ", ".join(f"{name}={value} in the image, torch uses {used[name]}" for name, value in differ.items()),
        evidence={name: f"{value}, used {used[name]}" for name, value in differ.items()},
    )


def _compared_parts(variable: str) -> int:
    """Return how many parts of the version to compare: major and minor for CUDA, three for NCCL."""
    return 2 if variable == "CUDA_VERSION" else 3


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deeplearning/nccl/release-notes/index.html",
    because_of=("nccl_not_the_wheels", "nccl_not_as_required"),
)
def nccl_version_known_bad(nccl: Nccl, gpus: tuple[Gpu, ...], visible: Visible, plan: Plan, host: Host) -> Answer:
    """This NCCL release has a known bug that affects this machine.

    Why: some releases hang, fail or corrupt data with certain GPUs, CPUs or across nodes, until a later release fixes
    it. The symptom is a hang in the first collective or much later, or a loss that diverges.

    Fix: use a release with the fix.
    """
    version = nccl.libraries[0].version if nccl.libraries else None
    if not version:
        return Skip("no NCCL library found")
    shown = shown_gpus(gpus, visible)
    if len(shown) < 2 and plan.nodes < 2:
        return Skip("NCCL is not used with a single GPU")
    rows = [row for row in NCCL_FAULTS if row.use is None]
    hits, unknown = judge_faults(rows, {"nccl": version}, Situation(host.machine, shown, plan.nodes))
    if not hits:
        missing = f"; not known: {listed(unknown)}" if unknown else ""
        return Ok(f"no known bug of NCCL {version} affects this machine{missing}")
    return Problem(
        describe(hits[0], version),
        " ".join(row.effect for row in hits),
        update_nccl(hits, nccl),
        sources(hits) | {"nccl": version},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-plugin")
def nccl_plugin_not_loadable(libraries: Libraries, plan: Plan) -> Answer:
    """A plugin configured for NCCL cannot be loaded.

    Why: NCCL_NET_PLUGIN and NCCL_TUNER_PLUGIN name a library. If it cannot be loaded, NCCL silently continues without
    it: the ranks use TCP instead of EFA or another fast network, ten times slower, or hang.

    Fix: add the plugin's directory to LD_LIBRARY_PATH, install its missing dependencies, or unset the variable.
    """
    named = [one for one in libraries.found if one.name in ("nccl-net", "nccl-tuner", "nccl-profiler")]
    if not named:
        return Ok("no plugin configured")
    if any(one.loads is None for one in named):
        return Skip("could not determine whether the plugins load")
    bad = [one for one in named if one.loads is False]
    if not bad:
        return Ok(f"{listed(one.path for one in named)} can be loaded")
    if plan.nodes == 1 and all(one.name == "nccl-net" for one in bad):
        return Ok(f"{listed(one.path for one in bad)} cannot be loaded, but a single-node run needs no network plugin")
    return Problem(
        f"{listed(f'{one.name} plugin {one.path}' for one in bad)} cannot be loaded",
        f"Loader error: {bad[0].error or 'none'}. NCCL continues without it, which only NCCL_DEBUG=INFO shows.",
        Fix(commands=tuple(shell("unset NCCL_{:name}_PLUGIN", one.name.removeprefix("nccl-").upper()) for one in bad)),
        {one.path: one.error for one in bad},
        tuple(one.name for one in bad),
    )
