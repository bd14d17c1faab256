"""Is something left switched on that is meant for finding faults?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check
from mgpu.snapshot import Nccl

from .._nccl_settings import NCCL_GUIDE, Setting, of_environment, of_files, origins, setting_problem, settings
from ._pytorch import TRUE

_CUDA = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
# Slow in every step: the variable, and the words that switch it on.
_SLOW: tuple[tuple[str, frozenset[str]], ...] = (
    ("NCCL_DEBUG", frozenset({"trace"})),
    ("TORCH_DISTRIBUTED_DEBUG", frozenset({"detail"})),
    ("CUDA_LAUNCH_BLOCKING", frozenset({"1"})),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", frozenset({"1"})),
    ("TORCH_NCCL_DESYNC_DEBUG", TRUE),
    ("TORCH_NCCL_BLOCKING_WAIT", TRUE),
    ("NCCL_BLOCKING_WAIT", TRUE),
    ("TORCH_NCCL_NAN_CHECK", TRUE),
    ("ACCELERATE_DEBUG_MODE", TRUE | {"on"}),
)
# Switches of CUDA that are for its debugger.
_FOR_DEBUGGERS = {
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "a fault writes the GPU's memory to disk",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "a fault writes the process's memory to disk",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "a fault stops the rank for ever, to wait for a debugger",
    "CUDA_FORCE_PTX_JIT": "every kernel is compiled anew, and those without PTX fail",
    "CUDA_DISABLE_PTX_JIT": "kernels without code for this GPU fail",
    "CUDA_CACHE_DISABLE": "what is compiled at run time is compiled anew in every rank",
}
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def _is(setting: Setting | None, words: frozenset[str]) -> bool:
    return setting is not None and setting.value.strip().lower() in words


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_debug_leftover(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL, CUDA, PyTorch or accelerate is left in a debugging mode that slows training.

    Why: a debugging mode that costs speed in every step.
    More: NCCL_DEBUG=TRACE writes a line per operation, TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every collective,
    CUDA_LAUNCH_BLOCKING=1 makes every kernel wait. Each is right for an hour of debugging and wrong for a week of
    training.

    Fix: unset it for training.
    """
    found = of_files(nccl) | of_environment(env)
    slow = [found[name] for name, words in _SLOW if _is(found.get(name), words)]
    if not slow:
        return Ok("no debugging mode is left on")
    return setting_problem(
        slow,
        ", ".join(map(str, slow)),
    )


@check(Severity.INFO, source=f"{NCCL_GUIDE}#nccl-debug")
def nccl_debug_verbose(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL logs everything it does at the start.

    Why: NCCL_DEBUG=INFO is right for a first run, and prints hundreds of lines for each rank and communicator; with
    NCCL_DEBUG_SUBSYS=COLL or ALL a line for every collective. The line that tells why a run failed is lost in it.

    Fix: let it warn only.
    More: NCCL_DEBUG=WARN for training.
    """
    found = settings(env, nccl)
    debug, subsystems = found.get("NCCL_DEBUG"), found.get("NCCL_DEBUG_SUBSYS")
    if debug is None or not _is(debug, frozenset({"info"})):
        return Ok("NCCL logs warnings at most" if debug is None or not debug.value else f"{debug}")
    chatty = subsystems is not None and {"COLL", "ALL", "CALL"} & set(subsystems.value.upper().split(","))
    shown = [debug, *([subsystems] if subsystems and chatty else [])]
    return Problem(
        ", ".join(map(str, shown)),
        "A line for every collective of every rank." if chatty else "Hundreds of lines while the ranks connect.",
        Fix(commands=("export NCCL_DEBUG=WARN",)),
        origins(shown),
        tuple(setting.name for setting in shown),
    )


@check(Severity.WARNING, source=_CUDA)
def cuda_debugging_left(env: Mapping[str, str]) -> Answer:
    """CUDA is left in a mode for its debugger.

    Why: a fault then writes tens of gigabytes of GPU memory to disk, or stops the rank to wait for a debugger while the
    others wait for the rank; or CUDA compiles at the start of every rank what is there in compiled form.

    Fix: unset it for training.
    """
    found = of_environment(env)
    on = {name: why for name, why in _FOR_DEBUGGERS.items() if _is(found.get(name), frozenset({"1"}))}
    if not on:
        return Ok("CUDA is in no mode for its debugger")
    bad = [found[name] for name in on]
    return setting_problem(
        bad,
        ", ".join(map(str, bad)),
        "; ".join(f"{name}: {why}" for name, why in on.items()) + ".",
    )


@check(Severity.INFO, source="https://docs.nvidia.com/cupti/main/main.html")
def cuda_injection_set(env: Mapping[str, str]) -> Answer:
    """CUDA loads a library of somebody else into every rank.

    Why: the library is loaded by every process that uses CUDA.
    More: Profilers and monitors of a cluster enter so. It may be meant; it may also be the leftover of a profiling
    session, which slows every kernel.

    Fix: unset it unless you mean it.
    """
    found = of_environment(env)
    here = [found[name] for name in _INJECTIONS if name in found and found[name].value]
    if not here:
        return Ok("no library is injected into CUDA")
    return setting_problem(
        here,
        ", ".join(map(str, here)),
    )
