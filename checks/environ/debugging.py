"""Is a debugging mode still switched on?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check
from mgpu.snapshot import Nccl

from .._nccl_settings import (
    NCCL_GUIDE,
    Setting,
    environment_settings,
    file_settings,
    origin_evidence,
    setting_problem,
    settings,
)
from ._pytorch import TRUE

_CUDA = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
# Variables that slow every step, and the values that switch them on.
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
# CUDA switches that are meant for its debugger.
_FOR_DEBUGGERS = {
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "a fault writes the GPU's memory to disk",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "a fault writes the process's memory to disk",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "after a fault the rank waits indefinitely for a debugger",
    "CUDA_FORCE_PTX_JIT": "every kernel is recompiled, and those without PTX fail",
    "CUDA_DISABLE_PTX_JIT": "kernels without code for this GPU fail",
    "CUDA_CACHE_DISABLE": "kernels compiled at run time are recompiled in every rank",
}
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def _has_value(setting: Setting | None, values: frozenset[str]) -> bool:
    return setting is not None and setting.value.strip().lower() in values


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_debug_leftover(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A debugging mode of NCCL, CUDA, PyTorch or accelerate that slows training is on.

    Why: the debugging mode slows every step.
    More: NCCL_DEBUG=TRACE logs a line per operation, TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every collective,
    CUDA_LAUNCH_BLOCKING=1 waits for every kernel. They help while debugging and cost time in a long run.

    Fix: unset it for training.
    """
    found = file_settings(nccl) | environment_settings(env)
    slow = [found[name] for name, words in _SLOW if _has_value(found.get(name), words)]
    if not slow:
        return Ok("no debugging mode is on")
    return setting_problem(
        slow,
        ", ".join(map(str, slow)),
    )


@check(Severity.INFO, source=f"{NCCL_GUIDE}#nccl-debug")
def nccl_debug_verbose(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL logs every initialization step.

    Why: NCCL_DEBUG=INFO is useful for a first run. It prints hundreds of lines for each rank and communicator, and
    with NCCL_DEBUG_SUBSYS=COLL or ALL a line for every collective. The line that explains a failure is hard to find
    in them.

    Fix: reduce it to warnings.
    More: Use NCCL_DEBUG=WARN for training.
    """
    found = settings(env, nccl)
    debug, subsystems = found.get("NCCL_DEBUG"), found.get("NCCL_DEBUG_SUBSYS")
    if debug is None or not _has_value(debug, frozenset({"info"})):
        return Ok("NCCL logs warnings at most" if debug is None or not debug.value else f"{debug}")
    chatty = subsystems is not None and {"COLL", "ALL", "CALL"} & set(subsystems.value.upper().split(","))
    shown = [debug, *([subsystems] if subsystems and chatty else [])]
    return Problem(
        ", ".join(map(str, shown)),
        "NCCL prints a line for every collective of every rank."
        if chatty
        else "NCCL prints hundreds of lines while the ranks connect.",
        Fix(commands=("export NCCL_DEBUG=WARN",)),
        origin_evidence(shown),
        tuple(setting.name for setting in shown),
    )


@check(Severity.WARNING, source=_CUDA)
def cuda_debugging_left(env: Mapping[str, str]) -> Answer:
    """A CUDA debugger setting is on.

    Why: after a fault, the rank writes tens of gigabytes of GPU memory to disk, or waits for a debugger while the
    other ranks wait for it. Other settings make every rank recompile kernels that exist in compiled form.

    Fix: unset it for training.
    """
    found = environment_settings(env)
    on = {name: why for name, why in _FOR_DEBUGGERS.items() if _has_value(found.get(name), frozenset({"1"}))}
    if not on:
        return Ok("no CUDA debugger setting is on")
    bad = [found[name] for name in on]
    return setting_problem(
        bad,
        ", ".join(map(str, bad)),
        "; ".join(f"{name}: {why}" for name, why in on.items()) + ".",
    )


@check(Severity.INFO, source="https://docs.nvidia.com/cupti/main/main.html")
def cuda_injection_set(env: Mapping[str, str]) -> Answer:
    """CUDA loads an additional library into every rank.

    Why: every process that uses CUDA loads the library.
    More: Profilers and cluster monitors work this way. It may be intentional, or left over from a profiling
    session, in which case it slows every kernel.

    Fix: unset it unless it is intentional.
    """
    found = environment_settings(env)
    here = [found[name] for name in _INJECTIONS if name in found and found[name].value]
    if not here:
        return Ok("no library is injected into CUDA")
    return setting_problem(
        here,
        ", ".join(map(str, here)),
    )
