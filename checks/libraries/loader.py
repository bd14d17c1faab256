"""Does the loader find torch's libraries first, and the driver's own libcuda?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Gpu, Libraries, Library, Pytorch, Visible
from mgpu.text import counted, listed

from .._gpus import gpu_subjects
from .._wording import gpu_list

_FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_ERRORS = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
# The wheels load these by name, so LD_LIBRARY_PATH decides (torch/__init__.py works around it if it detects the problem
# in time). torch finds its own dependencies through its DT_RPATH first.
_NOT_BY_RPATH = {"nvJitLink": "nvidia-nvjitlink", "cudnn": "nvidia-cudnn", "cublasLt": "nvidia-cublas"}
# Often preloaded on purpose, and harmless: memory allocators and OpenMP runtimes.
_USUAL_PRELOADS = re.compile(
    r"lib(tcmalloc|tcmalloc_minimal|jemalloc|mimalloc|iomp5|omp|gomp|nccl|stdc\+\+|gcc_s)(-[.\w]+)?\.so[.\d]*"
)


def _wheel(wheels: Mapping[str, str], stem: str, cuda: str | None) -> tuple[str, str] | None:
    """Return name and version of a library's wheel: nvidia-cudnn-cu12, or without suffix since CUDA 13."""
    major = (cuda or "").partition(".")[0]
    for name in (f"{stem}-cu{major}", stem):
        if name in wheels:
            return name, wheels[name]
    return None


def _library(libraries: Libraries, name: str) -> Library | None:
    """Return the result of loading this library by its bare name, as CUDA programs do; None if not tried."""
    return next((one for one in libraries.found if one.name == name and one.loads is not None), None)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/140797")
def library_path_shadows_wheels(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """LD_LIBRARY_PATH puts an older CUDA library before the one from torch's wheels.

    Why: The loader uses the older one, which lacks symbols that torch's libraries need.
    More: The wheels' libraries load each other by name, and the loader searches LD_LIBRARY_PATH first. `import torch`
    then fails with "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4", or torch rejects the cuDNN it
    finds.

    Fix: Remove the folder from LD_LIBRARY_PATH. Wheels do not need it.
    """
    if not pytorch.cuda or not libraries.wheels or pytorch.nccl_required is None:
        return Skip("torch has no CUDA" if not pytorch.cuda else "torch's libraries are not from wheels")
    foreign = [one for one in libraries.found if one.origin == "library_path"]
    if not foreign:
        return Ok("no CUDA library on LD_LIBRARY_PATH")
    names = {one.path.rpartition("/")[2] for one in libraries.found if one.origin == "wheel"}
    bad: dict[str, tuple[Library, str]] = {}
    for one in foreign:
        wheel = _wheel(libraries.wheels, _NOT_BY_RPATH.get(one.name, ""), pytorch.cuda)
        same = one.path.rpartition("/")[2] in names
        if same and wheel and one.version and _is_older(one.version, wheel[1]):
            bad.setdefault(one.name, (one, wheel[1]))
    if not bad:
        return Ok(
            f"{counted(len(foreign), 'CUDA library', 'CUDA libraries')} on LD_LIBRARY_PATH, none older than torch's"
        )
    folders = list(dict.fromkeys(one.path.rpartition("/")[0] for one, _ in bad.values()))
    return Problem(
        "; ".join(f"{one.path} is {one.version}, torch's wheel {wheel}" for one, wheel in bad.values()),
        fix=Fix(
            f"Remove {listed(folders)} from LD_LIBRARY_PATH (with `module unload cuda`, or in a shell profile).",
            ("unset LD_LIBRARY_PATH",),
        ),
        evidence={one.path: f"{one.version}, wheel {wheel}" for one, wheel in bad.values()},
        subjects=tuple(bad),
    )


def _is_older(one: str, other: str) -> bool:
    """Compare major and minor version only: files and wheels count the third number differently."""
    return version_numbers(one)[:2] < version_numbers(other)[:2]


@check(Severity.ERROR, source=_ERRORS, because_of=("driver_lacks_compute",))
def libcuda_missing(libraries: Libraries, driver: Driver, gpus: tuple[Gpu, ...]) -> Answer:
    """The driver and its GPUs work, but this Python interpreter cannot load libcuda.so.1.

    Why: Every CUDA program loads this library first. It comes with the driver, not with torch. Without it torch prints
    "Found no NVIDIA driver on your system".

    Fix: Check where the loader finds it.
    More: Install the driver's user-space part, or add its folder to the loader's path.
    """
    if driver.nvml_error is not None or not gpus:
        return Skip("no NVIDIA driver responds here" if driver.nvml_error is not None else "no GPU here")
    cuda = _library(libraries, "cuda")
    if cuda is None:
        return Skip("loading libcuda was not tried")
    if cuda.loads:
        return Ok(f"libcuda from {cuda.path}")
    if driver.cuda_version is not None:
        return Skip("NVML found libcuda, but this interpreter's loader did not")
    return Problem(
        "libcuda.so.1 cannot be loaded",
        f"The loader's error: {cuda.error or 'none'}. CUDA cannot start in this interpreter.",
        (
            Fix(commands=("ldconfig -p | grep libcuda",)),
            Fix("Install the driver's CUDA library (libcuda1, nvidia-driver-cuda-libs).", who="admin"),
        ),
        {"error": cuda.error, "driver": driver.version},
    )


@check(Severity.ERROR, source=_ERRORS)
def libcuda_is_stub(libraries: Libraries) -> Answer:
    """The loader finds a stub of the driver's library before the real one.

    Why: A stub has the names of the driver's functions but no code. CUDA fails with error 34, stub library.
    More: A toolkit contains empty copies of libcuda and libnvidia-ml for linking, in a folder named stubs. With that
    folder on LD_LIBRARY_PATH every CUDA call fails with error 34, "CUDA driver is a stub library", and torch sees no
    GPU.

    Fix: Remove the stubs folder from LD_LIBRARY_PATH, or remove the link libcuda.so.1 in it.
    """
    tried = [one for one in (_library(libraries, "cuda"), _library(libraries, "nvidia-ml")) if one is not None]
    found = [one for one in tried if one.loads]
    if not found:
        return Skip("neither libcuda nor libnvidia-ml can be loaded" if tried else "loading them was not tried")
    stubs = [one for one in found if one.origin == "stub"]
    if not stubs:
        return Ok(f"{listed(one.path for one in found)}: no stub")
    return Problem(
        f"{listed(one.path for one in stubs)} {'is a stub' if len(stubs) == 1 else 'are stubs'}",
        fix=Fix(commands=("echo $LD_LIBRARY_PATH | tr ':' '\\n' | grep stubs",)),
        evidence={one.name: one.path for one in stubs},
    )


@check(Severity.ERROR, source=_ERRORS)
def libcuda_not_the_drivers(libraries: Libraries, driver: Driver) -> Answer:
    """The loaded libcuda has a different version than the running NVIDIA driver.

    Why: The library and the kernel driver must have the same version. Only a newer libcuda from a cuda-compat package
    may differ. An image with its own driver package, or an old cuda-compat folder with a newer driver, causes error
    803, "system has unsupported display driver / cuda driver combination".

    Fix: Remove the copy that does not belong to the driver.
    """
    cuda, running = _library(libraries, "cuda"), version_numbers(driver.version)
    if cuda is None or not cuda.loads or not running:
        return Skip("the driver's version is unknown" if not running else "libcuda cannot be loaded")
    ours = version_numbers(cuda.version)
    if len(ours) < 2 or ours[0] < 100 or cuda.origin == "stub":  # WSL's libcuda.so.1.1 does not contain a version
        return Skip(f"{cuda.path} does not report its version")
    if cuda.origin == "compat":
        if ours > running:
            return Ok(f"cuda-compat {cuda.version} over driver {driver.version}")
        what = f"cuda-compat {cuda.version} is used with the newer driver {driver.version}"
        why = "A compatibility library supports older drivers only. With a newer one, CUDA fails with error 803."
    elif ours == running:
        return Ok(f"libcuda and driver are {driver.version}")
    else:
        what = f"libcuda is {cuda.version}, the driver {driver.version}"
        why = (
            "They must have the same version. Otherwise CUDA fails with error 803. Images can contain their own driver."
        )
    return Problem(
        what,
        why,
        Fix(
            f"Remove {cuda.path.rpartition('/')[0]} from the loader's path (LD_LIBRARY_PATH, /etc/ld.so.conf.d), or "
            "uninstall the package that contains it.",
            ("ldconfig -p | grep libcuda.so.1", "echo $LD_LIBRARY_PATH"),
        ),
        {"libcuda": cuda.path, "libcuda_version": cuda.version, "driver": driver.version},
    )


@check(Severity.INFO, source=_FORWARD, because_of=("libcuda_not_the_drivers", "cuda_compat_on_geforce"))
def cuda_compat_active(libraries: Libraries, driver: Driver) -> Answer:
    """A cuda-compat library replaces the driver's own libcuda.

    Why: Forward compatibility is in use. CUDA and NCCL report the versions of the compatibility library.
    More: It lets a newer CUDA run on an older driver of a data center GPU. NCCL then detects a newer driver than the
    real one, uses functions that the driver does not have, and fails while the ranks connect.

    Fix: Nothing, unless NCCL fails while connecting. Then turn off its cuMem host buffers.
    """
    cuda = _library(libraries, "cuda")
    if cuda is None or not cuda.loads:
        return Skip("libcuda cannot be loaded")
    if cuda.origin != "compat":
        return Ok(f"the driver's own {cuda.path}")
    return Problem(
        f"cuda-compat {cuda.version or 'of unknown version'} over driver {driver.version or 'of unknown version'}",
        fix=Fix(commands=("export NCCL_CUMEM_HOST_ENABLE=0",)),
        evidence={"libcuda": cuda.path, "driver": driver.version},
    )


@check(Severity.ERROR, source=_FORWARD)
def cuda_compat_on_geforce(libraries: Libraries, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A cuda-compat library is in use on a GeForce card.

    Why: Forward compatibility supports data center GPUs only. On GeForce, CUDA fails with error 804, "forward
    compatibility was attempted on non supported HW", and torch sees no GPU.

    Fix: Remove the compat folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d. Then install a torch that this driver
    supports, or a newer driver.
    """
    cuda = _library(libraries, "cuda")
    if cuda is None or not cuda.loads:
        return Skip("libcuda cannot be loaded")
    if cuda.origin != "compat":
        return Ok(f"the driver's own {cuda.path}")
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.name]
    bad = [gpu for gpu in known if "GeForce" in (gpu.name or "")]
    if not bad:
        return Ok(f"no GeForce among {counted(len(known), 'visible GPU')}") if known else Skip("no visible GPU")
    return Problem(
        f"{bad[0].name} ({gpu_list(gpu.index for gpu in bad)}) with cuda-compat",
        f"CUDA loads {cuda.path}, which does not support GeForce, and fails with error 804.",
        Fix(commands=("ldconfig -p | grep libcuda.so.1", "echo $LD_LIBRARY_PATH")),
        {"libcuda": cuda.path, "gpu": bad[0].name},
        gpu_subjects(bad),
    )


@check(Severity.INFO, source="https://man7.org/linux/man-pages/man8/ld.so.8.html")
def preload_hooks_ranks(libraries: Libraries) -> Answer:
    """A library is preloaded into every process, including the ranks.

    Why: LD_PRELOAD and /etc/ld.so.preload replace functions of the C library in all programs. Profilers, monitors and
    sandboxes use this. If a rank hangs or crashes inside one, only the stack shows it. If the file does not exist,
    every process prints an error at its start.

    Fix: Remove it unless you need it.
    More: Check whether you need it. Remove it while you debug a crash.
    """
    preloaded = [one for one in libraries.found if one.origin == "preload"]
    odd = [one for one in preloaded if one.loads is False or not _USUAL_PRELOADS.fullmatch(one.name)]
    if not odd:
        return Ok(f"{len(preloaded)} preloaded, all of them common" if preloaded else "no library is preloaded")
    missing = [one for one in odd if one.loads is False]
    return Problem(
        ", ".join(f"{one.path}{' (does not exist)' if one.loads is False else ''}" for one in odd),
        "It is loaded into every rank." if not missing else "A missing preloaded file only causes error messages.",
        Fix(commands=("unset LD_PRELOAD", "cat /etc/ld.so.preload")),
        {one.path: one.loads for one in odd},
    )
