"""Do environment variables that were left behind change how the ranks talk?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Nccl

from ._knowledge import whole

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TORCH = "https://pytorch.org/docs/stable/torch_nccl_environment_variables.html"

# Switch a transport off: NCCL counts them when they parse to 1 (src/graph/paths.cc, src/misc/param.cc).
_TRANSPORTS = {
    "NCCL_P2P_DISABLE": "GPU-to-GPU transfer, NVLink included",
    "NCCL_SHM_DISABLE": "shared memory: ranks of one machine talk over the network",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE: machines talk over TCP",
}
# Names that nothing reads (NCCL src at 2.30.7; torch's ProcessGroupNCCL.hpp).
_DEAD = (
    "NCCL_TIMEOUT",
    "NCCL_IB_CUDA_SUPPORT",
    "NCCL_LL_THRESHOLD",
    "NCCL_TREE_THRESHOLD",
    "NCCL_SINGLE_RING_THRESHOLD",
)
# torch reads these with getCvarBool: any other word than the ones below raises (torch Utils.hpp).
_TORCH_BOOLEANS = (
    "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_DESYNC_DEBUG", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING",
    "TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_HIGH_PRIORITY", "TORCH_NCCL_USE_COMM_NONBLOCKING",
)  # fmt: skip
_TRUE_FALSE = frozenset({"y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"})
# Set by a launcher for its ranks; in a plain shell they are leftovers.
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


_HERE = "the environment"


def _settings(env: Mapping[str, str], nccl: Nccl) -> dict[str, tuple[str, str]]:
    """Every NCCL variable with its value and origin: the environment wins, then the first file that names it."""
    found: dict[str, tuple[str, str]] = {}
    for path, lines in nccl.config_files.items():
        for line in lines:
            name, _, value = line.partition("=")
            found.setdefault(name.strip(), (value.strip(), path))
    found |= {name: (value, _HERE) for name, value in env.items() if name.startswith("NCCL_")}
    return found


def _unset(settings: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """What takes settings away, where each of them comes from."""
    commands = tuple(f"unset {name}" for name, (_, origin) in settings.items() if origin == _HERE)
    files = sorted({origin for _, origin in settings.values()} - {_HERE})
    return commands + tuple(f"# remove the line from {path}" for path in files)


@check(Severity.WARNING, source=_NCCL)
def nccl_transport_disabled(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A fast way of NCCL is switched off by a variable.

    Why: NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and NCCL_IB_DISABLE are for finding faults. Left set they cost most of the
    bandwidth, and nothing in the logs says so. They are also found in ~/.nccl.conf and /etc/nccl.conf.

    Fix: unset them; if the run then hangs, `mgpu smoke-test` finds out which path is broken.
    """
    settings = _settings(env, nccl)
    off = {name: settings[name] for name in _TRANSPORTS if settings.get(name, ("", ""))[0].strip() == "1"}
    if not off:
        return Ok("no transport is switched off")
    return Problem(
        ", ".join(f"{name}=1" for name in off),
        "Switched off: " + "; ".join(_TRANSPORTS[name] for name in off) + ".",
        Fix("Remove it, unless this machine needs it.", _unset(off)),
        {name: origin for name, (_, origin) in off.items()},
        tuple(off),
    )


@check(Severity.INFO, source=_NCCL)
def nccl_variable_without_effect(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable is set that nothing reads.

    Why: NCCL_TIMEOUT is in many launch scripts and has never had an effect; others were removed from NCCL years ago.
    Who set it believes that it protects the run.

    Fix: remove it; a timeout is the `timeout=` argument of init_process_group.
    """
    settings = _settings(env, nccl)
    dead = [name for name in _DEAD if name in settings]
    if not dead:
        return Ok(f"{len(settings)} NCCL variables set, none of them dead")
    return Problem(
        f"{', '.join(dead)} {'is' if len(dead) == 1 else 'are'} read by nothing",
        "Neither NCCL nor PyTorch looks at it.",
        Fix("Remove it.", _unset({name: settings[name] for name in dead})),
        {name: settings[name][1] for name in dead},
        tuple(dead),
    )


@check(Severity.WARNING, source=_NCCL)
def nccl_debug_leftover(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL or CUDA is left in a debugging mode that slows training.

    Why: NCCL_DEBUG=TRACE writes a line per operation, TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every collective,
    CUDA_LAUNCH_BLOCKING=1 makes every kernel wait. Each is right for an hour of debugging and wrong for a week of
    training.

    Fix: unset it.
    """
    settings = {name: (value, _HERE) for name, value in env.items()} | _settings(env, nccl)
    slow = {
        name: settings[name]
        for name, bad in (
            ("NCCL_DEBUG", ("TRACE",)),
            ("TORCH_DISTRIBUTED_DEBUG", ("DETAIL",)),
            ("CUDA_LAUNCH_BLOCKING", ("1",)),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", ("1",)),
            ("TORCH_NCCL_DESYNC_DEBUG", ("1", "true")),
        )
        if settings.get(name, ("", ""))[0].upper() in {word.upper() for word in bad}
    }
    if not slow:
        return Ok("no debugging mode is left on")
    return Problem(
        ", ".join(f"{name}={value}" for name, (value, _) in slow.items()),
        "A debugging mode that costs speed in every step.",
        Fix("Unset it for training.", _unset(slow)),
        {name: f"{value} ({origin})" for name, (value, origin) in slow.items()},
        tuple(slow),
    )


@check(Severity.WARNING, source=_TORCH)
def nccl_errors_not_raised(env: Mapping[str, str]) -> Answer:
    """PyTorch is told not to act on NCCL errors.

    Why: with TORCH_NCCL_ASYNC_ERROR_HANDLING=0 (or its old name NCCL_ASYNC_ERROR_HANDLING) nobody ends a collective
    that lost a rank: the run hangs for ever. Monitoring off has the same end.

    Fix: unset it.
    """
    bad = {
        name: env[name]
        for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")
        if env.get(name, "").strip().lower() in ("0", "false", "no", "n", "f")
    }
    if not bad:
        return Ok("errors of NCCL end the run")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in bad.items()),
        "When a rank dies, the others wait for it for ever instead of failing.",
        Fix("Unset it.", tuple(f"unset {name}" for name in bad)),
        bad,
        tuple(bad),
    )


@check(Severity.ERROR, source=_TORCH)
def torch_boolean_unreadable(env: Mapping[str, str]) -> Answer:
    """A torch.distributed switch has a value that PyTorch cannot read.

    Why: these take yes/no words and 0/1; anything else raises "Invalid value for environment variable" in every rank.

    Fix: use 1 or 0.
    """
    bad = {name: env[name] for name in _TORCH_BOOLEANS if name in env and env[name].lower() not in _TRUE_FALSE}
    if not bad:
        return Ok("every torch switch that is set can be read")
    return Problem(
        ", ".join(f"{name}={value!r}" for name, value in bad.items()),
        "PyTorch raises on this word when the process group forms.",
        Fix("Use 1 or 0, or unset it.", tuple(f"unset {name}" for name in bad)),
        bad,
        tuple(bad),
    )


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate (utils/environment.py)")
def omp_threads_not_a_number(env: Mapping[str, str]) -> Answer:
    """OMP_NUM_THREADS is not a whole number.

    Why: OpenMP allows a list ("4,2"), accelerate does not: it stops with ValueError before anything starts.

    Fix: give one number.
    """
    value = env.get("OMP_NUM_THREADS")
    if value is None:
        return Skip("OMP_NUM_THREADS is not set")
    if whole(value):
        return Ok(f"OMP_NUM_THREADS={value}")
    return Problem(
        f"OMP_NUM_THREADS={value!r}",
        "accelerate reads it as one integer and stops with ValueError.",
        Fix("Give one number, or unset it.", ("unset OMP_NUM_THREADS",)),
        {"OMP_NUM_THREADS": value},
        ("OMP_NUM_THREADS",),
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/elastic/run.html#environment-variables")
def launcher_variables_left(env: Mapping[str, str]) -> Answer:
    """Variables that a launcher sets for its ranks are set in this shell.

    Why: RANK, WORLD_SIZE and their like make a plain `python train.py` wait for ranks that never come. The launcher
    sets them anew for its own ranks, so they are leftovers of an earlier experiment.

    Fix: unset them.
    """
    if any(name in env for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")):
        return Skip("a launcher started this shell")
    left = {name: env[name] for name in _LAUNCHER if name in env}
    if not left:
        return Ok("no rank variables are left over")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in left.items()),
        "A script started without a launcher would wait for ranks that never come.",
        Fix("Unset them.", (f"unset {' '.join(left)}",)),
        left,
        tuple(left),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/run.html")
def torchrun_variables_left(env: Mapping[str, str]) -> Answer:
    """PET_* variables change what the launcher does.

    Why: torchrun reads each of its options from a PET_ variable as well, also inside accelerate: PET_NNODES=2 makes a
    one-machine launch wait for a second machine, without a word. Operators such as Kubeflow set them.

    Fix: unset those you did not mean.
    """
    names = (
        "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_STANDALONE",
    )  # fmt: skip
    left = {name: env[name] for name in names if name in env}
    if not left:
        return Ok("no PET_ variable steers the launcher")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in left.items()),
        "torchrun takes its options from these, whatever the config says; PET_NNODES=2 hangs a one-machine launch.",
        Fix("Unset them.", (f"unset {' '.join(left)}",)),
        left,
        tuple(left),
    )
