"""Will accelerate do with this config what the file says, on this machine?"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Config, Driver, Gpu, Visible

from ._knowledge import counted, gpu_list, usable_count, whole

_CLI = "https://huggingface.co/docs/accelerate/package_reference/cli"
_LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py"
_ARGS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/config_args.py"

# accelerate.utils.DistributedType (1.15)
_TYPES = (
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU",
    "MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM",
)  # fmt: skip
_GPU_TYPES = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
# Top-level keys of ClusterConfig (1.15), and those older versions wrote and the loader migrates.
_KEYS = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "num_machines",
    "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster",
    "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "fp8_config", "deepspeed_config", "fsdp_config",
    "parallelism_config", "megatron_lm_config", "mpirun_config", "dynamo_config", "fp16", "dynamo_backend",
)  # fmt: skip
# Keys the launcher takes from the command line only (launch.py: the parser's default is not None), with the value that
# asks for nothing.
_NEVER_APPLIED: dict[str, tuple[Any, ...]] = {
    "rdzv_backend": ("static",),
    "enable_cpu_affinity": (False,),
    "downcast_bf16": (False, "no", "NO"),
}
_BOOLEANS = ("debug", "use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster", "tpu_use_sudo")
_BF16 = (8, 0)  # native bf16 begins here; torch.cuda.is_bf16_supported() counts emulation as well
_FP8 = (8, 9)  # accelerate.utils check_cuda_fp8_capability


def _place(config: Config, key: str | None = None) -> Place:
    mark = config.marks.get(key or "")
    return Place(config.path, mark.line if mark else None, mark.column if mark else None, key)


def _near(name: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ""


def _usable(config: Config) -> bool:
    return not any(fault.fatal for fault in config.faults)


_BROKEN = "the file cannot be read"


@check(Severity.ERROR, source=_ARGS)
def config_unreadable(config: Config) -> Answer:
    """The config file is not a YAML mapping.

    Why: accelerate stops with a Python error that names neither file nor line: tabs, merge-conflict markers, an empty
    file, a list, text that is not UTF-8.

    Fix: mend the line that is named.
    """
    bad = [fault for fault in config.faults if fault.fatal]
    if not bad:
        return Ok(f"{counted(len(config.values), 'key')} in {config.path}")
    return tuple(
        Problem(
            f"{config.path}: {fault.message}",
            "accelerate cannot load it.",
            Fix("Mend the file, or write a new one.", ("mgpu configure",)),
            place=Place(
                config.path, fault.mark.line if fault.mark else None, fault.mark.column if fault.mark else None
            ),
        )
        for fault in bad
    )


@check(Severity.WARNING, source="https://yaml.org/spec/1.2.2/#3213-node-comparison")
def config_key_twice(config: Config) -> Answer:
    """A key stands twice in the config.

    Why: the last one wins, in silence: half of the readers believe the other.

    Fix: delete one of them.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    bad = [fault for fault in config.faults if fault.key]
    if not bad:
        return Ok("every key stands once")
    return tuple(
        Problem(
            f"{fault.key}: {fault.message}",
            "YAML keeps the last value and says nothing.",
            Fix("Delete the one you do not mean."),
            place=_place(config, fault.key),
        )
        for fault in bad
    )


@check(Severity.ERROR, source=_ARGS)
def config_key_unknown(config: Config) -> Answer:
    """The config has a key that accelerate does not know.

    Why: the loader refuses the whole file.

    Fix: correct the name, or delete the key.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    if config.values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return Skip("not a config for this machine")
    unknown = [key for key in config.values if key not in _KEYS]
    if not unknown:
        return Ok(f"{counted(len(config.values), 'key')}, all known")
    if config.loader is not None and config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} takes {', '.join(unknown)}")  # newer than this table
    return tuple(
        Problem(
            f"unknown key {key!r}{_near(key, _KEYS)}",
            "accelerate refuses a file with a key it does not know.",
            Fix("Correct the name or delete the line."),
            place=_place(config, key),
        )
        for key in unknown
    )


@check(Severity.ERROR, source=_ARGS)
def config_environment_unknown(config: Config) -> Answer:
    """compute_environment is not LOCAL_MACHINE.

    Why: accelerate takes anything else, SLURM and local_machine included, for a SageMaker config and complains about
    unknown keys that are perfectly good.

    Fix: write LOCAL_MACHINE, also on a Slurm cluster.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    value = config.values.get("compute_environment", "LOCAL_MACHINE")
    if value == "LOCAL_MACHINE":
        return Ok("LOCAL_MACHINE")
    what = (
        "SageMaker configs are not mgpu's business"
        if value == "AMAZON_SAGEMAKER"
        else "accelerate reads it as SageMaker"
    )
    return Problem(
        f"compute_environment: {value!r}, not LOCAL_MACHINE",
        f"{what}.",
        Fix("Write LOCAL_MACHINE."),
        place=_place(config, "compute_environment"),
    )


@check(Severity.ERROR, source=_ARGS, because_of=("config_environment_unknown",))
def config_type_invalid(config: Config) -> Answer:
    """distributed_type is missing or not one of accelerate's types.

    Why: it picks the launcher; accelerate refuses a file without it.

    Fix: MULTI_GPU for DDP on several GPUs, FSDP, DEEPSPEED, or 'NO' (in quotes) for one process.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    value = config.distributed_type
    if value in _TYPES:
        return Ok(f"{value}")
    given = config.values.get("distributed_type")
    title = "distributed_type is missing" if given is None else f"distributed_type: {given!r} does not exist"
    return Problem(
        title + (_near(str(given).upper(), _TYPES) if given is not None else ""),
        f"accelerate knows {', '.join(_TYPES)}.",
        Fix("For DDP on several GPUs write MULTI_GPU."),
        place=_place(config, "distributed_type" if given is not None else None),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_processes_invalid(config: Config) -> Answer:
    """num_processes is missing or not a whole number of at least 1.

    Why: accelerate stops late, with a bare AssertionError, or (for `auto`) starts one process per CPU when CUDA is
    broken.

    Fix: write the number of GPUs of all machines together.
    """
    if not _usable(config) or config.distributed_type is None:
        return Skip(_BROKEN if not _usable(config) else "the type is not valid")
    if config.num_processes is not None:
        return Ok(f"{config.num_processes} processes")
    given = config.values.get("num_processes")
    return Problem(
        "num_processes is missing"
        if given is None
        else f"num_processes: {given!r} is not a whole number of at least 1",
        "One process runs for each GPU; the number counts all machines together.",
        Fix("Write the number of GPUs you want to use."),
        place=_place(config, "num_processes" if given is not None else None),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_machines_invalid(config: Config) -> Answer:
    """num_machines is not a whole number of at least 1.

    Why: 0 and negative numbers are quietly taken as 1; text stops the launcher with a TypeError.

    Fix: write the number of machines.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    given = config.values.get("num_machines", 1)
    if type(given) is int and given >= 1:
        return Ok(f"{counted(given, 'machine')}")
    return Problem(
        f"num_machines: {given!r} is not a whole number of at least 1",
        "accelerate takes 0 as 1 and stops on text.",
        Fix("Write the number of machines."),
        place=_place(config, "num_machines"),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_ranks_uneven(config: Config) -> Answer:
    """num_processes cannot be shared out evenly over the machines.

    Why: accelerate divides and drops the rest: 3 processes on 2 machines are a world of 2, and nobody is told.

    Fix: num_processes = machines x GPUs per machine.
    """
    if not _usable(config) or config.num_processes is None:
        return Skip("the number of processes is not known")
    ranks, machines = config.num_processes, config.num_machines
    if ranks % machines == 0:
        return Ok(f"{ranks // machines} on each of {counted(machines, 'machine')}")
    return Problem(
        f"num_processes: {ranks} over {machines} machines",
        f"accelerate starts {ranks // machines} on each: a world of {ranks // machines * machines}, not {ranks}.",
        Fix(f"Write a multiple of {machines}."),
        place=_place(config, "num_processes"),
    )


@check(Severity.ERROR, source=_CLI, because_of=("visible_devices_cut_short", "visible_devices_hide_all", "gpu_lost"))
def config_more_ranks_than_gpus(config: Config, visible: Visible, driver: Driver) -> Answer:
    """The config starts more processes on this machine than it has visible GPUs.

    Why: each rank takes the GPU of its local rank. A rank without one fails with "invalid device ordinal", or shares a
    GPU, and the first NCCL collective stops or hangs.

    Fix: set num_processes to the number of GPUs times the number of machines.
    """
    if not _usable(config) or config.ranks_here is None:
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
        place=_place(config, "num_processes"),
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues/2818")
def config_leaves_gpus_idle(config: Config, visible: Visible) -> Answer:
    """The config uses fewer GPUs than are visible.

    Why: the rest stands idle, and is paid for. accelerate's own wizard proposes 1 process whatever the machine has.

    Fix: set num_processes to the number of GPUs, or hide the ones you leave out.
    """
    if not _usable(config) or config.ranks_here is None:
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
        place=_place(config, "num_processes"),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_one_process_of_many(config: Config) -> Answer:
    """The type starts a single process, and the config asks for several.

    Why: 'NO' runs one process whatever num_processes says; MULTI_CPU without an MPI hostfile as well. The run succeeds,
    on one rank.

    Fix: MULTI_GPU starts one process per GPU.
    """
    if not _usable(config) or config.distributed_type is None:
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
        place=_place(config, "distributed_type"),
    )


@check(Severity.INFO, source="measured accelerate 1.15 torch 2.13 2026-11")
def config_runs_on_cpu(config: Config, driver: Driver) -> Answer:
    """There is no NVIDIA GPU here: the ranks of this config will run on the CPU.

    Why: accelerate would start N trainings that do not know of each other when torch sees no GPU. mgpu launch and
    smoke-test add ACCELERATE_USE_CPU=true, which makes them one gloo run of N ranks.

    Fix: nothing for a rehearsal.
    """
    if not _usable(config) or config.distributed_type not in _GPU_TYPES:
        return Skip("the config does not ask for GPUs")
    if driver.any_gpu:
        return Ok("this machine has NVIDIA GPUs")
    return Problem(
        f"no GPU here: {counted(config.ranks_here or 1, 'rank')} on the CPU, over gloo",
        "mgpu adds ACCELERATE_USE_CPU=true; without it accelerate would start independent trainings.",
        Fix("Nothing, for a rehearsal."),
        place=_place(config, "distributed_type"),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_master_missing(config: Config) -> Answer:
    """A config for several machines names no address of the main one.

    Why: accelerate passes the text "None" as host name, and every machine tries to resolve it for 15 minutes.

    Fix: set main_process_ip to an address of the first machine that the others reach.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    if config.num_machines < 2:
        return Skip("one machine needs no address")
    address = config.values.get("main_process_ip")
    if isinstance(address, str) and address.strip():
        return Ok(f"main_process_ip {address}")
    return Problem(
        f"{config.num_machines} machines and no main_process_ip",
        'accelerate would look for a host called "None".',
        Fix("Give it in the file or on the command line.", ("accelerate launch --main_process_ip ADDRESS ...",)),
        place=_place(config, "num_machines"),
    )


@check(Severity.ERROR, source="measured two network namespaces 2026-11")
def config_master_is_loopback(config: Config) -> Answer:
    """A config for several machines gives the loopback address as the main one's.

    Why: every machine would wait for itself, in silence.

    Fix: an address of the first machine on the cluster's network.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    if config.num_machines < 2:
        return Skip("one machine may use the loopback address")
    address = str(config.values.get("main_process_ip") or "")
    if not address:
        return Skip("no address is given")
    if address != "localhost" and not address.startswith("127.") and address != "::1":
        return Ok(address)
    return Problem(
        f"main_process_ip: {address} with {config.num_machines} machines",
        "The other machines cannot reach it; they wait for themselves.",
        Fix("Write an address the others reach.", ("ip -brief address",)),
        place=_place(config, "main_process_ip"),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_port_invalid(config: Config) -> Answer:
    """main_process_port is not a port number.

    Why: text or a number out of range stops the launcher with a TypeError or OverflowError; 0 means "pick a free one"
    and works on one machine only.

    Fix: a number from 1 to 65535 without quotes, the same on all machines.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    port = config.values.get("main_process_port")
    if port is None:
        return Skip("no port is given")
    if type(port) is int and (0 < port < 65536 or (port == 0 and config.num_machines == 1)):
        return Ok(f"port {port or 'chosen at launch'}")
    why = (
        "0 lets each machine pick another port; they never meet."
        if port == 0
        else "Ports are numbers from 1 to 65535, written without quotes."
    )
    return Problem(
        f"main_process_port: {port!r}",
        why,
        Fix("Write a free port, for example 29500."),
        place=_place(config, "main_process_port"),
    )


@check(Severity.ERROR, source=_LAUNCH)
def config_gpu_ids_invalid(config: Config, gpus: tuple[Gpu, ...]) -> Answer:
    """gpu_ids is not a list of GPUs of this machine.

    Why: accelerate writes it into CUDA_VISIBLE_DEVICES as it stands. A number without quotes crashes the launcher; an
    id twice or out of range leaves fewer GPUs, or none, and then every rank trains alone on the CPU.

    Fix: quote it, and name each GPU once; or leave it out.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    value = config.values.get("gpu_ids")
    if value in (None, "all"):
        return Skip("gpu_ids does not choose")
    at = _place(config, "gpu_ids")
    if not isinstance(value, str):
        quoted = str(value).strip("[]").replace(" ", "")
        return Problem(
            f"gpu_ids: {value!r} is not text",
            "accelerate splits it at commas and stops with AttributeError.",
            Fix(f'Write gpu_ids: "{quoted}".'),
            place=at,
        )
    entries = [entry.strip() for entry in value.split(",")]
    number = sum(gpu.permitted for gpu in gpus)  # CUDA counts only those
    bad = [entry for entry in entries if (place := whole(entry)) is None or (gpus and place >= number)]
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    if bad or twice:
        what = f"{bad[0]!r} is no GPU of this machine" if bad else f"{twice[0]} stands twice"
        return Problem(
            f"gpu_ids: {value!r}: {what}",
            "CUDA stops at an id it does not know, and shows no GPU at all when one stands twice.",
            Fix("Name each GPU once, or leave gpu_ids out to use all."),
            {"gpu_ids": value, "gpus": number},
            place=at,
        )
    ranks = config.ranks_here
    if ranks is not None and ranks > len(entries):
        return Problem(
            f"gpu_ids names {len(entries)} GPUs for {ranks} ranks",
            "Two ranks would share a GPU, and NCCL refuses that.",
            Fix("Name as many GPUs as there are ranks."),
            {"gpu_ids": value, "ranks": ranks},
            place=at,
        )
    return Ok(f"{gpu_list(entries)}")


@check(Severity.ERROR, source=_LAUNCH)
def config_precision_invalid(config: Config) -> Answer:
    """mixed_precision is not one of no, fp16, bf16, fp8.

    Why: an unquoted `no` is false in YAML and crashes the launcher; other words are refused.

    Fix: 'no' in quotes, fp16, bf16 or fp8.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    value = config.values.get("mixed_precision")
    if value is None or (isinstance(value, str) and value.lower() in ("no", "fp16", "bf16", "fp8")):
        return Ok(f"{value or 'none'}")
    fix = "Write mixed_precision: 'no' with quotes." if value is False else "Write 'no', fp16, bf16 or fp8."
    return Problem(
        f"mixed_precision: {value!r}" + _near(str(value), ("no", "fp16", "bf16", "fp8")),
        "YAML reads an unquoted no as false, and accelerate stops with AttributeError." if value is False
        else "accelerate knows no, fp16, bf16 and fp8.",
        Fix(fix),
        place=_place(config, "mixed_precision"),
    )  # fmt: skip


def _precision(config: Config) -> str:
    """mixed_precision as accelerate takes it: in any case."""
    return str(config.values.get("mixed_precision") or "no").lower()


def _weakest(gpus: tuple[Gpu, ...], visible: Visible) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.compute_capability]
    return min(known, key=lambda gpu: gpu.compute_capability or (0, 0), default=None)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/148322")
def config_bf16_emulated(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for bf16 on a GPU that does not have it.

    Why: below compute capability 8.0 torch emulates bf16: nothing fails, training is slow. accelerate's own test counts
    emulation as support.

    Fix: fp16 on Volta and Turing, 'no' on older ones.
    """
    weakest = _weakest(gpus, visible)
    if not _usable(config) or _precision(config) != "bf16":
        return Skip("the config does not ask for bf16")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= _BF16:
        return Ok(f"native from compute capability 8.0; the weakest GPU has {major}.{minor}")
    return Problem(
        f"bf16 on {weakest.name} (compute capability {major}.{minor})",
        "torch emulates it: correct, and slower than fp32.",
        Fix("Write mixed_precision: fp16." if major >= 7 else "Write mixed_precision: 'no'."),
        place=_place(config, "mixed_precision"),
    )


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py")
def config_fp8_unsupported(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for fp8 on a GPU without fp8 units.

    Why: fp8 begins with compute capability 8.9; below it the ranks fall back to fp16, or stop.

    Fix: bf16.
    """
    weakest = _weakest(gpus, visible)
    if not _usable(config) or _precision(config) != "fp8":
        return Skip("the config does not ask for fp8")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= _FP8:
        return Ok(f"the weakest GPU has {major}.{minor}")
    return Problem(
        f"fp8 on {weakest.name} (compute capability {major}.{minor})",
        "fp8 needs 8.9 (Ada) or 9.0 (Hopper).",
        Fix("Write mixed_precision: bf16." if (major, minor) >= _BF16 else "Write mixed_precision: fp16."),
        place=_place(config, "mixed_precision"),
    )


@check(Severity.ERROR, source=_ARGS)
def config_boolean_is_text(config: Config) -> Answer:
    """A yes/no key holds text.

    Why: any text counts as yes: debug: "false" switches debugging on.

    Fix: true or false without quotes.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    bad = {key: config.values[key] for key in _BOOLEANS if isinstance(config.values.get(key), str)}
    if not bad:
        return Ok("yes/no keys hold yes or no")
    return tuple(
        Problem(
            f"{key}: {value!r} is text",
            "Text counts as yes, whatever it says.",
            Fix("Write true or false, without quotes."),
            place=_place(config, key),
        )
        for key, value in bad.items()
    )


@check(Severity.WARNING, source=_LAUNCH)
def config_key_never_applied(config: Config) -> Answer:
    """The config sets a key that accelerate never applies from a file.

    Why: the launcher takes these from the command line only, although its own wizard asks for them and writes the
    answers.

    Fix: give it on the command line.
    """
    if not _usable(config):
        return Skip(_BROKEN)
    values: Mapping[str, Any] = config.values
    bad = [key for key, nothing in _NEVER_APPLIED.items() if key in values and values[key] not in (*nothing, None)]
    if not bad:
        return Ok("every key that is set has an effect")
    return tuple(
        Problem(
            f"{key}: {values[key]!r} has no effect in a file",
            "accelerate launch reads it from the command line only.",
            Fix(
                "Give it there.",
                (f"accelerate launch --{key}{'' if values[key] is True else f' {shlex.quote(str(values[key]))}'} ...",),
            ),
            place=_place(config, key),
        )
        for key in bad
    )


@check(Severity.WARNING, source=_LAUNCH)
def config_section_ignored(config: Config) -> Answer:
    """The config has a section for another type than it names.

    Why: fsdp_config counts only with distributed_type FSDP, deepspeed_config with DEEPSPEED. With MULTI_GPU the file
    trains plain DDP, whatever the section says.

    Fix: change the type, or delete the section.
    """
    if not _usable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    sections = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED", "megatron_lm_config": "MEGATRON_LM"}
    bad = [key for key, kind in sections.items() if config.values.get(key) and config.distributed_type != kind]
    if not bad:
        return Ok("every section belongs to the type")
    return tuple(
        Problem(
            f"{key} is ignored with distributed_type {config.distributed_type}",
            f"It counts only with {sections[key]}.",
            Fix(f"Write distributed_type: {sections[key]}, or delete the section."),
            place=_place(config, key),
        )
        for key in bad
    )


@check(
    Severity.ERROR,
    source=_LAUNCH,
    because_of=(
        "config_unreadable", "config_key_unknown", "config_environment_unknown", "config_type_invalid",
        "config_processes_invalid", "config_machines_invalid", "config_port_invalid", "config_gpu_ids_invalid",
        "config_precision_invalid", "config_ranks_uneven", "config_master_missing",
    ),
)  # fmt: skip
def config_refused_by_accelerate(config: Config) -> Answer:
    """The installed accelerate does not take the config.

    Why: its own loader and launch validation were asked, in a child process; the launch would end with this error.

    Fix: accelerate's words name the key.
    """
    if config.loader is None:
        return Skip("accelerate could not be asked" if _usable(config) else _BROKEN)
    if config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} takes it")
    return Problem(
        f"accelerate {config.loader.accelerate}: {config.loader.error}",
        "accelerate launch would end with this error.",
        Fix("Change what it names, or write a new config.", ("mgpu configure --yes",)),
        {"error": config.loader.error},
        place=Place(config.path),
    )
