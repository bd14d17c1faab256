"""How many ranks does the config start, and is that the number it sets?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import (
    ARGS,
    ASK_THE_USER,
    BROKEN,
    LAUNCH,
    SIMPLE_TYPES,
    TYPES,
    as_integer,
    has_shell_variable,
    is_left_open,
    is_readable,
    place_of,
    skip_if_unreadable,
    source_text,
    started_by_torchrun,
    suggestion,
)
from ._spelling import intended_name

_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"

# Common names for accelerate's types. TPU was renamed in accelerate 0.27.
_RENAMED = {"TPU": "XLA"}
# fmt: off
_COLLOQUIAL = {
    "DDP": "MULTI_GPU", "GPU": "MULTI_GPU", "CUDA": "MULTI_GPU", "NCCL": "MULTI_GPU", "MULTI_NODE": "MULTI_GPU",
    "DATA_PARALLEL": "MULTI_GPU", "DISTRIBUTED_DATA_PARALLEL": "MULTI_GPU", "MULTI-GPU": "MULTI_GPU",
    "SINGLE_GPU": "NO", "SINGLE_MACHINE": "NO", "SINGLE": "NO", "NONE": "NO", "CPU": "NO", "MPS": "NO",
    "FSDP2": "FSDP", "FULLY_SHARDED_DATA_PARALLEL": "FSDP", "ZERO": "DEEPSPEED", "MEGATRON": "MEGATRON_LM",
}
# fmt: on
# Values for which torchrun counts the devices.
_COUNTED_AT_LAUNCH = ("auto", "gpu", "cpu", "xpu")


@check(Severity.ERROR, source=ARGS, because_of=("config_environment_unknown",), given=skip_if_unreadable)
def config_type_invalid(config: Config) -> Answer:
    """distributed_type is missing or not one of accelerate's types.

    Why: It selects the launcher. accelerate rejects a file without it.

    Fix: Write MULTI_GPU for DDP on several GPUs, FSDP, DEEPSPEED, or 'NO' (in quotes) for one process.
    """
    value = config.distributed_type
    if value in TYPES:
        return Ok(f"{value}")
    if "distributed_type" not in config.values:
        return Problem(
            "distributed_type is missing",
            "It selects the launcher. accelerate rejects a file without it.",
            Fix("For DDP on several GPUs, write MULTI_GPU."),
            place=place_of(config, "distributed_type"),
        )
    value = config.values["distributed_type"]
    given = value.strip() if isinstance(value, str) else ""
    word = given.upper()
    called = _RENAMED.get(word) or _COLLOQUIAL.get(word)
    sure = _RENAMED.get(word) or intended_name(given, TYPES)
    hint = f". accelerate calls it {called}" if called else suggestion(word, TYPES) if word else ""
    return Problem(
        f"distributed_type: {source_text(config, 'distributed_type')} does not exist{hint}",
        f"accelerate supports {', '.join(TYPES)}.",
        Fix(
            _write_text(sure or called) if sure or called else "For DDP on several GPUs, write MULTI_GPU.",
            edits=(Edit("set", "distributed_type", sure),) if sure else (),
        ),
        place=place_of(config, "distributed_type"),
    )


def _write_text(name: str | None) -> str:
    return "Write 'NO', including the quotes." if name == "NO" else f"Write {name}."


@check(Severity.ERROR, source=LAUNCH)
def config_processes_invalid(config: Config) -> Answer:
    """num_processes is not a whole number of at least 1.

    Why: accelerate stops late, with an AssertionError without a message or "Unsupported nproc_per_node value".

    Fix: Write the total number of GPUs on all nodes.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not valid")
    given = config.values.get("num_processes")
    if config.distributed_type in SIMPLE_TYPES and isinstance(given, int | float) and given != ASK_THE_USER:
        return Ok(f"{config.distributed_type} starts one process, whatever num_processes is")
    if is_left_open(config, "num_processes"):
        return Skip("num_processes is left to the command line")
    if has_shell_variable(given) or _left_to_torchrun(config):
        return Skip(f"num_processes: {source_text(config, 'num_processes')} is not a number")
    computes = config.num_machines > 1 or not started_by_torchrun(
        config
    )  # the launcher computes with it, which fails on text
    if config.num_processes is not None and not (computes and isinstance(given, str)):
        return Ok(f"{config.num_processes} processes")
    whole = as_integer(given)
    return Problem(
        f"num_processes: {source_text(config, 'num_processes')} is not a whole number of at least 1",
        "There is one process per GPU, counted over all nodes.",
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
    """num_processes is auto, gpu, cpu or xpu, so torchrun counts the devices at launch.

    Why: Without a working CUDA, the count changes silently.
    More: accelerate passes the value on to torchrun. If CUDA is broken, auto starts one process per CPU, and each
    trains alone.

    Fix: Write the number of GPUs.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not valid")
    if not _left_to_torchrun(config):
        return Ok("the number of processes is not left to torchrun")
    return Problem(
        f"num_processes: {source_text(config, 'num_processes')} is counted at launch",
        place=place_of(config, "num_processes"),
    )


@check(Severity.ERROR, source=LAUNCH, given=skip_if_unreadable)
def config_machines_invalid(config: Config) -> Answer:
    """num_machines is not a whole number.

    Why: accelerate compares it with 1 and stops with a TypeError, or divides by it and starts nothing.

    Fix: Write the number of nodes.
    """
    given = config.values.get("num_machines", 1)
    if type(given) is int or _counts_as_one(given):
        return Ok(f"{given} nodes" if given != 1 else "1 node")
    if "num_machines" in config.values and is_left_open(config, "num_machines"):
        return Skip("num_machines is left to the command line")
    if has_shell_variable(given):
        return Skip("num_machines contains a shell variable")
    whole = as_integer(given)
    return Problem(
        f"num_machines: {source_text(config, 'num_machines')} is not a whole number",
        fix=Fix(
            f"Write {whole}." if whole else "Write the number of nodes.",
            edits=(Edit("set", "num_machines", whole),) if whole else (),
        ),
        place=place_of(config, "num_machines"),
    )


def _counts_as_one(given: object) -> bool:
    """Whether the launcher silently treats it as 1: 0, -2, true, 1.0."""
    return isinstance(given, int | float) and not (type(given) is int and given >= 1) and given <= 1


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_machines_taken_as_one(config: Config) -> Answer:
    """num_machines is 0, negative or not a whole number, and accelerate treats it as 1.

    Why: accelerate only checks if it is greater than 1.
    More: A launch meant for several nodes silently runs on this one alone.

    Fix: Write 1, or the number of nodes.
    """
    given = config.values.get("num_machines", 1)
    if not _counts_as_one(given):
        return Ok("num_machines is at least 1" if type(given) is int else "covered by config_machines_invalid")
    return Problem(
        f"num_machines: {source_text(config, 'num_machines')} is treated as 1",
        fix=Fix(edits=(Edit("set", "num_machines", 1),)),
        place=place_of(config, "num_machines"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_ranks_uneven(config: Config) -> Answer:
    """num_processes is not a multiple of num_machines.

    Why: accelerate divides and silently drops the remainder: 3 processes on 2 nodes become a world size of 2. With
    fewer processes than nodes, the launch stops with an AssertionError without a message.

    Fix: Set num_processes to nodes x GPUs per node.
    """
    if not is_readable(config) or config.num_processes is None:
        return Skip("the number of processes is not known")
    ranks, machines = config.num_processes, config.num_machines
    if config.distributed_type not in TYPES or config.distributed_type in (*SIMPLE_TYPES, "XLA"):
        return Skip(f"{config.distributed_type} does not distribute ranks over nodes")
    if ranks % machines == 0:
        return Ok(f"{ranks // machines} on each of {counted(machines, 'node')}")
    world = ranks // machines * machines
    return Problem(
        f"num_processes: {ranks} is not a multiple of {machines} nodes",
        f"accelerate starts {ranks // machines} on each: a world size of {world}, not {ranks}."
        if world
        else "num_processes counts all nodes together. With fewer processes than nodes, some would start none.",
        Fix(f"Write a multiple of {machines}."),
        place=place_of(config, "num_processes"),
    )


@check(Severity.WARNING, source=LAUNCH, stops_start=True)
def config_one_process_of_many(config: Config) -> Answer:
    """The type starts a single process, but the config sets several.

    Why: accelerate accepts the file and silently trains on one rank.
    More: 'NO' runs one process whatever num_processes is. So does MULTI_CPU without an MPI hostfile.

    Fix: Write num_processes: 1 if one process is meant, or distributed_type: MULTI_GPU for several.
    More: MULTI_GPU is right for CPU ranks, too: mgpu launch adds ACCELERATE_USE_CPU.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    kind, given = config.distributed_type, config.values.get("num_processes")
    ranks = given if isinstance(given, float) and given > 1 else config.num_processes or 1
    mpirun = config.values.get("mpirun_config")
    by_mpi = isinstance(mpirun, dict) and bool(mpirun.get("mpirun_hostfile"))
    if ranks == 1 or kind not in SIMPLE_TYPES or by_mpi:
        return Ok(f"{kind} with {ranks} process{'' if ranks == 1 else 'es'}")
    hostfile = "Name the MPI hostfile: mpirun_config.mpirun_hostfile." if kind == "MULTI_CPU" else ""
    return Problem(
        f"distributed_type {kind} starts 1 process, not {ranks}",
        fix=Fix(hostfile),
        evidence={"distributed_type": kind, "num_processes": ranks},
        place=place_of(config, "distributed_type"),
    )


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1316")
def config_one_rank(config: Config) -> Answer:
    """The type is for several GPUs, but the config starts one process.

    Why: One process uses one GPU.
    More: It works, but goes through torchrun. accelerate's own wizard suggests 1 process on every machine.

    Fix: Write the number of GPUs, or distributed_type: 'NO' for one.
    """
    if not is_readable(config) or config.distributed_type != "MULTI_GPU" or config.num_processes is None:
        return Skip("not a config of several GPUs")
    if config.num_processes > 1:
        return Ok(f"{config.num_processes} processes")
    return Problem("MULTI_GPU with 1 process", place=place_of(config, "num_processes"))
