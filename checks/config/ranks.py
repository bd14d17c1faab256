"""How many ranks does the config start, and is there a GPU for each?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config, Driver, Visible

from .._knowledge import counted, usable_count
from ._file import ARGS, BROKEN, LAUNCH, place_of, readable, suggestion

_CLI = "https://huggingface.co/docs/accelerate/package_reference/cli"

# accelerate.utils.DistributedType (1.15)
_TYPES = (
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU",
    "MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM",
)  # fmt: skip
_GPU_TYPES = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")


@check(Severity.ERROR, source=ARGS, because_of=("config_environment_unknown",))
def config_type_invalid(config: Config) -> Answer:
    """distributed_type is missing or not one of accelerate's types.

    Why: it picks the launcher; accelerate refuses a file without it.

    Fix: MULTI_GPU for DDP on several GPUs, FSDP, DEEPSPEED, or 'NO' (in quotes) for one process.
    """
    if not readable(config):
        return Skip(BROKEN)
    value = config.distributed_type
    if value in _TYPES:
        return Ok(f"{value}")
    given = config.values.get("distributed_type")
    title = "distributed_type is missing" if given is None else f"distributed_type: {given!r} does not exist"
    return Problem(
        title + (suggestion(str(given).upper(), _TYPES) if given is not None else ""),
        f"accelerate knows {', '.join(_TYPES)}.",
        Fix("For DDP on several GPUs write MULTI_GPU."),
        place=place_of(config, "distributed_type" if given is not None else None),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_processes_invalid(config: Config) -> Answer:
    """num_processes is missing or not a whole number of at least 1.

    Why: accelerate stops late, with a bare AssertionError, or (for `auto`) starts one process per CPU when CUDA is
    broken.

    Fix: write the number of GPUs of all machines together.
    """
    if not readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not readable(config) else "the type is not valid")
    if config.num_processes is not None:
        return Ok(f"{config.num_processes} processes")
    given = config.values.get("num_processes")
    return Problem(
        "num_processes is missing"
        if given is None
        else f"num_processes: {given!r} is not a whole number of at least 1",
        "One process runs for each GPU; the number counts all machines together.",
        Fix("Write the number of GPUs you want to use."),
        place=place_of(config, "num_processes" if given is not None else None),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_machines_invalid(config: Config) -> Answer:
    """num_machines is not a whole number of at least 1.

    Why: 0 and negative numbers are quietly taken as 1; text stops the launcher with a TypeError.

    Fix: write the number of machines.
    """
    if not readable(config):
        return Skip(BROKEN)
    given = config.values.get("num_machines", 1)
    if type(given) is int and given >= 1:
        return Ok(f"{counted(given, 'machine')}")
    return Problem(
        f"num_machines: {given!r} is not a whole number of at least 1",
        "accelerate takes 0 as 1 and stops on text.",
        Fix("Write the number of machines."),
        place=place_of(config, "num_machines"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_ranks_uneven(config: Config) -> Answer:
    """num_processes cannot be shared out evenly over the machines.

    Why: accelerate divides and drops the rest: 3 processes on 2 machines are a world of 2, and nobody is told.

    Fix: num_processes = machines x GPUs per machine.
    """
    if not readable(config) or config.num_processes is None:
        return Skip("the number of processes is not known")
    ranks, machines = config.num_processes, config.num_machines
    if ranks % machines == 0:
        return Ok(f"{ranks // machines} on each of {counted(machines, 'machine')}")
    return Problem(
        f"num_processes: {ranks} over {machines} machines",
        f"accelerate starts {ranks // machines} on each: a world of {ranks // machines * machines}, not {ranks}.",
        Fix(f"Write a multiple of {machines}."),
        place=place_of(config, "num_processes"),
    )


@check(Severity.ERROR, source=_CLI, because_of=("visible_devices_cut_short", "visible_devices_hide_all", "gpu_lost"))
def config_more_ranks_than_gpus(config: Config, visible: Visible, driver: Driver) -> Answer:
    """The config starts more processes on this machine than it has visible GPUs.

    Why: each rank takes the GPU of its local rank. A rank without one fails with "invalid device ordinal", or shares a
    GPU, and the first NCCL collective stops or hangs.

    Fix: set num_processes to the number of GPUs times the number of machines.
    """
    if not readable(config) or config.ranks_here is None:
        return Skip("the number of processes is not known")
    if config.distributed_type not in _GPU_TYPES or config.values.get("use_cpu") is True:
        return Skip(f"{config.distributed_type} does not use GPUs of this machine")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this machine: the ranks run on the CPU")
    number = usable_count(visible)
    if config.ranks_here <= number:
        return Ok(f"{counted(config.ranks_here, 'rank')} on {counted(number, 'visible GPU')}")
    return Problem(
        f"{counted(config.ranks_here, 'rank')} for {counted(number, 'visible GPU')} on this machine",
        "A rank without a GPU of its own fails, or hangs all others in their first collective.",
        Fix(f"Set num_processes to {max(1, number) * config.num_machines}.", ("mgpu configure --yes",)),
        {"ranks": config.ranks_here, "visible_gpus": number, "CUDA_VISIBLE_DEVICES": visible.value},
        place=place_of(config, "num_processes"),
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues/2818")
def config_leaves_gpus_idle(config: Config, visible: Visible) -> Answer:
    """The config uses fewer GPUs than are visible.

    Why: the rest stands idle, and is paid for. accelerate's own wizard proposes 1 process whatever the machine has.

    Fix: set num_processes to the number of GPUs, or hide the ones you leave out.
    """
    if not readable(config) or config.ranks_here is None:
        return Skip("the number of processes is not known")
    if len(visible.gpus) <= config.ranks_here:
        return Ok(f"{counted(len(visible.gpus), 'visible GPU')}, {counted(config.ranks_here, 'rank')}")
    if isinstance(config.values.get("gpu_ids"), str) and config.values["gpu_ids"] != "all":
        return Ok(f"GPUs are chosen by gpu_ids: {config.values['gpu_ids']}")
    idle = len(visible.gpus) - config.ranks_here
    return Problem(
        f"{counted(config.ranks_here, 'rank')} on {len(visible.gpus)} visible GPUs: {idle} idle",
        "One process uses one GPU.",
        Fix(f"Set num_processes to {len(visible.gpus) * config.num_machines}.", ("mgpu configure --yes",)),
        {"ranks": config.ranks_here, "visible_gpus": len(visible.gpus)},
        place=place_of(config, "num_processes"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_one_process_of_many(config: Config) -> Answer:
    """The type starts a single process, and the config asks for several.

    Why: 'NO' runs one process whatever num_processes says; MULTI_CPU without an MPI hostfile as well. The run succeeds,
    on one rank.

    Fix: MULTI_GPU starts one process per GPU.
    """
    if not readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    kind, ranks = config.distributed_type, config.num_processes or 1
    mpirun = config.values.get("mpirun_config")
    by_mpi = isinstance(mpirun, dict) and bool(mpirun.get("mpirun_hostfile"))
    if ranks == 1 or kind not in ("NO", "MULTI_CPU") or by_mpi:
        return Ok(f"{kind} with {counted(ranks, 'process', 'processes')}")
    return Problem(
        f"distributed_type {kind} starts 1 process, not {ranks}",
        "accelerate takes the file and trains on one rank, without a word.",
        Fix("Write distributed_type: MULTI_GPU (also for CPU ranks: mgpu launch adds ACCELERATE_USE_CPU)."),
        {"distributed_type": kind, "num_processes": ranks},
        place=place_of(config, "distributed_type"),
    )


@check(Severity.INFO, source="measured accelerate 1.15 torch 2.13 2026-11")
def config_runs_on_cpu(config: Config, driver: Driver) -> Answer:
    """There is no NVIDIA GPU here: the ranks of this config will run on the CPU.

    Why: accelerate would start N trainings that do not know of each other when torch sees no GPU. mgpu launch and
    smoke-test add ACCELERATE_USE_CPU=true, which makes them one gloo run of N ranks.

    Fix: nothing for a rehearsal.
    """
    if not readable(config) or config.distributed_type not in _GPU_TYPES:
        return Skip("the config does not ask for GPUs")
    if driver.any_gpu:
        return Ok("this machine has NVIDIA GPUs")
    return Problem(
        f"no GPU here: {counted(config.ranks_here or 1, 'rank')} on the CPU, over gloo",
        "mgpu adds ACCELERATE_USE_CPU=true; without it accelerate would start independent trainings.",
        Fix("Nothing, for a rehearsal."),
        place=place_of(config, "distributed_type"),
    )
