"""How many ranks does the config start, and are they what it says?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import (
    ARGS,
    BROKEN,
    LAUNCH,
    SIMPLE_TYPES,
    TYPES,
    as_whole,
    expands,
    is_readable,
    place_of,
    readable,
    started_by_torchrun,
    suggestion,
    written,
)
from ._spelling import meant

_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"

# What people call a type that accelerate calls otherwise. TPU was renamed in accelerate 0.27.
_RENAMED = {"TPU": "XLA"}
# fmt: off
_COLLOQUIAL = {
    "DDP": "MULTI_GPU", "GPU": "MULTI_GPU", "CUDA": "MULTI_GPU", "NCCL": "MULTI_GPU", "MULTI_NODE": "MULTI_GPU",
    "DATA_PARALLEL": "MULTI_GPU", "DISTRIBUTED_DATA_PARALLEL": "MULTI_GPU", "MULTI-GPU": "MULTI_GPU",
    "SINGLE_GPU": "NO", "SINGLE_MACHINE": "NO", "SINGLE": "NO", "NONE": "NO", "CPU": "NO", "MPS": "NO",
    "FSDP2": "FSDP", "FULLY_SHARDED_DATA_PARALLEL": "FSDP", "ZERO": "DEEPSPEED", "MEGATRON": "MEGATRON_LM",
}
# fmt: on
_ASK_THE_USER = -1  # what the loader puts in for a missing number; the launcher refuses it
# Words that torchrun counts devices for.
_COUNTED_AT_LAUNCH = ("auto", "gpu", "cpu", "xpu")


@check(Severity.ERROR, source=ARGS, because_of=("config_environment_unknown",), given=readable)
def config_type_invalid(config: Config) -> Answer:
    """distributed_type is missing or not one of accelerate's types.

    Why: it picks the launcher; accelerate refuses a file without it.

    Fix: MULTI_GPU for DDP on several GPUs, FSDP, DEEPSPEED, or 'NO' (in quotes) for one process.
    """
    value = config.distributed_type
    if value in TYPES:
        return Ok(f"{value}")
    if "distributed_type" not in config.values:
        return Problem(
            "distributed_type is missing",
            "It picks the launcher; accelerate refuses a file without it.",
            Fix("For DDP on several GPUs write MULTI_GPU."),
            place=place_of(config, "distributed_type"),
        )
    value = config.values["distributed_type"]
    given = value.strip() if isinstance(value, str) else ""
    word = given.upper()
    called = _RENAMED.get(word) or _COLLOQUIAL.get(word)
    sure = _RENAMED.get(word) or meant(given, TYPES)
    hint = f". accelerate calls it {called}" if called else suggestion(word, TYPES) if word else ""
    return Problem(
        f"distributed_type: {written(config, 'distributed_type')} does not exist{hint}",
        f"accelerate knows {', '.join(TYPES)}.",
        Fix(
            _write(sure or called) if sure or called else "For DDP on several GPUs write MULTI_GPU.",
            edits=(Edit("set", "distributed_type", sure),) if sure else (),
        ),
        place=place_of(config, "distributed_type"),
    )


def _write(name: str | None) -> str:
    return "Write 'NO', with the quotes." if name == "NO" else f"Write {name}."


@check(Severity.ERROR, source=LAUNCH)
def config_processes_invalid(config: Config) -> Answer:
    """num_processes is missing or not a whole number of at least 1.

    Why: accelerate stops late, with a bare AssertionError or "Unsupported nproc_per_node value".

    Fix: write the number of GPUs of all machines together.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not valid")
    given = config.values.get("num_processes")
    if "num_processes" not in config.values and config.values.get("distributed_type") is False:
        return Problem(
            "num_processes is missing",
            "accelerate puts 1 there for the type 'NO', but here the type is YAML's false.",
            Fix("Write distributed_type: 'NO' with quotes.", edits=(Edit("set", "distributed_type", "NO"),)),
            place=place_of(config, "distributed_type"),
        )
    if config.distributed_type in SIMPLE_TYPES and isinstance(given, int | float) and given != _ASK_THE_USER:
        return Ok(f"{config.distributed_type} starts one process, whatever it says")
    if expands(given) or _left_to_torchrun(config):
        return Skip(f"num_processes: {written(config, 'num_processes')} is not a number")
    computes = config.num_machines > 1 or not started_by_torchrun(config)  # with it, so that text stops the launcher
    if config.num_processes is not None and not (computes and isinstance(given, str)):
        return Ok(f"{config.num_processes} processes")
    whole = as_whole(given)
    return Problem(
        "num_processes is missing"
        if given is None
        else f"num_processes: {written(config, 'num_processes')} is not a whole number of at least 1",
        "One process runs for each GPU; the number counts all machines together.",
        Fix(
            f"Write {whole}." if whole else "Write the number of GPUs you want to use.",
            edits=(Edit("set", "num_processes", whole),) if whole else (),
        ),
        place=place_of(config, "num_processes"),
    )


def _left_to_torchrun(config: Config) -> bool:
    return (
        config.values.get("num_processes") in _COUNTED_AT_LAUNCH
        and config.num_machines == 1
        and started_by_torchrun(config)
        and not config.values.get("use_cpu")
    )


@check(Severity.WARNING, source=_TORCHRUN)
def config_processes_left_open(config: Config) -> Answer:
    """num_processes is a word that torchrun counts devices for.

    Why: Without a working CUDA the count is another one, and nobody is told.
    More: accelerate hands `auto` and `gpu` on unread. Where CUDA is broken, auto starts a process for every CPU, and
    each trains alone.

    Fix: Write the number of GPUs.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not valid")
    if not _left_to_torchrun(config):
        return Ok("the number of processes is not left to torchrun")
    return Problem(
        f"num_processes: {written(config, 'num_processes')} is counted at launch",
        place=place_of(config, "num_processes"),
    )


@check(Severity.ERROR, source=LAUNCH, given=readable)
def config_machines_invalid(config: Config) -> Answer:
    """num_machines is not a whole number.

    Why: accelerate compares it with 1 and stops with a TypeError, or divides and starts nothing.

    Fix: write the number of machines.
    """
    given = config.values.get("num_machines", 1)
    if type(given) is int or _counts_as_one(given):
        return Ok(f"{given} machines" if given != 1 else "1 machine")
    if expands(given):
        return Skip("num_machines waits for a shell")
    whole = as_whole(given)
    return Problem(
        f"num_machines: {written(config, 'num_machines')} is not a whole number",
        fix=Fix(
            f"Write {whole}." if whole else "Write the number of machines.",
            edits=(Edit("set", "num_machines", whole),) if whole else (),
        ),
        place=place_of(config, "num_machines"),
    )


def _counts_as_one(given: object) -> bool:
    """Whether the launcher takes it as 1 without a word: 0, -2, true, 1.0."""
    return isinstance(given, int | float) and not (type(given) is int and given >= 1) and given <= 1


@check(Severity.WARNING, source=LAUNCH, given=readable)
def config_machines_taken_as_one(config: Config) -> Answer:
    """num_machines is 0, negative or no whole number, and accelerate takes it as 1.

    Why: accelerate asks only whether it is greater than 1.
    More: Nobody is told: a launch meant for several machines runs on this one alone.

    Fix: Write 1, or the number of machines.
    """
    given = config.values.get("num_machines", 1)
    if not _counts_as_one(given):
        return Ok("num_machines is at least 1" if type(given) is int else "another check judges it")
    return Problem(
        f"num_machines: {written(config, 'num_machines')} is taken as 1",
        fix=Fix(edits=(Edit("set", "num_machines", 1),)),
        place=place_of(config, "num_machines"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_ranks_uneven(config: Config) -> Answer:
    """num_processes cannot be shared out evenly over the machines.

    Why: accelerate divides and drops the rest: 3 processes on 2 machines are a world of 2, and nobody is told. Fewer
    processes than machines leave none, and the launch stops with a bare AssertionError.

    Fix: num_processes = machines x GPUs per machine.
    """
    if not is_readable(config) or config.num_processes is None:
        return Skip("the number of processes is not known")
    ranks, machines = config.num_processes, config.num_machines
    if config.distributed_type not in TYPES or config.distributed_type in (*SIMPLE_TYPES, "XLA"):
        return Skip(f"{config.distributed_type} does not share ranks out")
    if ranks % machines == 0:
        return Ok(f"{ranks // machines} on each of {counted(machines, 'machine')}")
    world = ranks // machines * machines
    return Problem(
        f"num_processes: {ranks} over {machines} machines",
        f"accelerate starts {ranks // machines} on each: a world of {world}, not {ranks}."
        if world
        else "num_processes counts all machines together; with fewer than machines, some would start none.",
        Fix(f"Write a multiple of {machines}."),
        place=place_of(config, "num_processes"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_one_process_of_many(config: Config) -> Answer:
    """The type starts a single process, and the config asks for several.

    Why: accelerate takes the file and trains on one rank, without a word.
    More: 'NO' runs one process whatever num_processes says; MULTI_CPU without an MPI hostfile as well.

    Fix: Write distributed_type: MULTI_GPU (also for CPU ranks: mgpu launch adds ACCELERATE_USE_CPU).
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    kind, given = config.distributed_type, config.values.get("num_processes")
    ranks = given if isinstance(given, float) and given > 1 else config.num_processes or 1
    mpirun = config.values.get("mpirun_config")
    by_mpi = isinstance(mpirun, dict) and bool(mpirun.get("mpirun_hostfile"))
    if ranks == 1 or kind not in SIMPLE_TYPES or by_mpi:
        return Ok(f"{kind} with {ranks} process{'' if ranks == 1 else 'es'}")
    return Problem(
        f"distributed_type {kind} starts 1 process, not {ranks}",
        evidence={"distributed_type": kind, "num_processes": ranks},
        place=place_of(config, "distributed_type"),
    )


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1316")
def config_one_rank(config: Config) -> Answer:
    """The type is for several GPUs, and the config starts one process.

    Why: One process uses one GPU.
    More: It works, through the launcher of many. accelerate's own wizard proposes 1 process whatever the machine has.

    Fix: Write the number of GPUs, or distributed_type: 'NO' for one.
    """
    if not is_readable(config) or config.distributed_type != "MULTI_GPU" or config.num_processes is None:
        return Skip("not a config of several GPUs")
    if config.num_processes > 1:
        return Ok(f"{config.num_processes} processes")
    return Problem("MULTI_GPU with 1 process", place=place_of(config, "num_processes"))
