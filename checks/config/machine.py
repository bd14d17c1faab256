"""Does the config fit the machine: its GPUs, its Slurm job, its GPU vendor?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.measured import FILL, batch_that_fits, need_bytes
from mgpu.planning.memory import PRECISIONS, RESERVE_BYTES, STRATEGY_NAMES, Need, fits, gib, need, what_fits
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config, Driver, Gpu, Model, Slurm, Stamp, Visible
from mgpu.text import counted

from .._gpus import usable_count
from .._wording import gpu_list, parse_digits
from ._config_file import BROKEN, LAUNCH, is_readable, place_of, skip_if_away, skip_if_unreadable
from ._schema import MEGATRON, PARALLELISM, fsdp_settings, fsdp_version, settings
from .gpus import selected_gpus
from .parallel import splits_ranks

_MEASURED = "mgpu: the result of `mgpu smoke-test SCRIPT`"
_ZERO_PAPER = "https://arxiv.org/abs/1910.02054"
_PLAN = "mgpu configure --plan --params {:id} --train {:id} --optimizer {:id}"
_ALL = (None, "all")  # gpu_ids that leave the choice open
_CLI = "https://huggingface.co/docs/accelerate/package_reference/cli"


@check(
    Severity.ERROR,
    source=_CLI,
    because_of=("visible_devices_cut_short", "visible_devices_hide_all", "gpu_lost", "config_gpu_ids_too_few"),
    given=skip_if_away,
)
def config_more_ranks_than_gpus(config: Config, visible: Visible, driver: Driver) -> Answer:
    """The config starts more processes on this machine than it has visible GPUs.

    Why: A rank without its own GPU fails, or makes all others hang in their first collective.
    More: Each rank uses the GPU of its local rank. Without one it stops with "invalid device ordinal", or shares a GPU.

    Fix: Set num_processes to the number of GPUs per node times the number of nodes.
    """
    if not is_readable(config) or config.ranks_here is None:
        return Skip("the number of processes is not known")
    if config.distributed_type not in GPU_TYPES:  # these use the GPUs even with use_cpu
        return Skip(f"{config.distributed_type} does not use the GPUs of this machine")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this machine: the ranks run on the CPU")
    if config.values.get("gpu_ids") not in _ALL:
        return Skip("gpu_ids selects the GPUs")
    number = usable_count(visible)
    if config.ranks_here <= number:
        return Ok(f"{counted(config.ranks_here, 'rank')} on {counted(number, 'visible GPU')}")
    return Problem(
        f"{counted(config.ranks_here, 'rank')} for {counted(number, 'visible GPU')} on this machine",
        fix=Fix(f"Set {config.line} to {number}.")
        if config.line
        else Fix(_number_fix(config, max(1, number)), ("mgpu configure --yes",)),
        evidence={"ranks": config.ranks_here, "visible_gpus": number, "CUDA_VISIBLE_DEVICES": visible.value},
        place=None if config.line else place_of(config, "num_processes"),
    )


def _number_fix(config: Config, each: int) -> str:
    """Return the fix that starts this many ranks on each node."""
    nodes = config.num_machines
    if settings(config, PARALLELISM) or settings(config, MEGATRON):  # their sizes fit the present number of ranks
        return f"Use {each * nodes} ranks: change num_processes and the sizes of the parallelism together."
    if config.distributed_type == "NO" and each > 1:  # it starts one process, whatever num_processes is
        return f"Write distributed_type: MULTI_GPU and num_processes: {each * nodes}."
    return f"Set num_processes to {each * nodes}" + (f", {each} on each of {nodes} nodes." if nodes > 1 else ".")


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues/2818", given=skip_if_away)
def config_leaves_gpus_idle(config: Config, visible: Visible) -> Answer:
    """The config uses fewer GPUs than are visible.

    Why: One process uses one GPU.
    More: The other GPUs are idle. accelerate's own wizard suggests 1 process on every machine.

    Fix: Set num_processes to the number of GPUs, or hide the GPUs you do not need.
    """
    if not is_readable(config) or not config.ranks_here:  # 0: fewer processes than nodes, config_ranks_uneven
        return Skip("the number of processes is not known")
    if config.values.get("use_cpu") is True:
        return Skip("use_cpu is set: the GPUs are not meant to be used")
    if len(visible.gpus) <= config.ranks_here:
        return Ok(f"{counted(len(visible.gpus), 'visible GPU')}, {counted(config.ranks_here, 'rank')}")
    if config.values.get("gpu_ids") not in _ALL:
        return Ok(f"gpu_ids selects the GPUs: {config.values['gpu_ids']}")
    idle = len(visible.gpus) - config.ranks_here
    return Problem(
        f"{counted(config.ranks_here, 'rank')} on {counted(len(visible.gpus), 'visible GPU')}: {idle} idle"
        + (" on each node" if config.num_machines > 1 else ""),
        fix=Fix(_number_fix(config, len(visible.gpus)), ("mgpu configure --yes",)),
        evidence={"ranks": config.ranks_here, "visible_gpus": len(visible.gpus)},
        place=place_of(config, "num_processes" if "num_processes" in config.values else "distributed_type"),
    )


@check(Severity.ERROR, source=LAUNCH, because_of=("config_gpu_ids_invalid",), given=skip_if_unreadable)
def config_gpu_ids_not_here(config: Config, gpus: tuple[Gpu, ...]) -> Answer:
    """gpu_ids names a GPU that this machine does not have.

    Why: CUDA stops at the first unknown id, so fewer GPUs are visible than ranks are started, or none.

    Fix: Name each GPU once, or leave gpu_ids out to use all.
    """
    entries = selected_gpus(config)
    number = sum(gpu.permitted for gpu in gpus)  # CUDA counts only these
    if entries is None or not number:
        return Skip("gpu_ids does not select GPUs, or there are no GPUs")
    bad = [entry for entry in entries if (place := parse_digits(entry)) is not None and place >= number]
    if not bad:
        return Ok(gpu_list(entries))
    return Problem(
        f"gpu_ids: {config.values['gpu_ids']!r}: {bad[0]!r} is not a GPU of this machine",
        f"CUDA numbers the {counted(number, 'GPU')} here from 0, and stops at an unknown id.",
        evidence={"gpu_ids": config.values["gpu_ids"], "gpus": number},
        place=place_of(config, "gpu_ids"),
    )


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_gpu_ids_override_mask(config: Config, env: Mapping[str, str]) -> Answer:
    """gpu_ids overrides the CUDA_VISIBLE_DEVICES of this shell.

    Why: accelerate overwrites the variable, so the run may use GPUs of other jobs.
    More: The ids count all GPUs of the machine: a job that was assigned GPUs 4 and 5 uses 0 and 1.

    Fix: Leave gpu_ids out, so that the variable applies.
    """
    entries, mask = selected_gpus(config), env.get("CUDA_VISIBLE_DEVICES", "").strip()
    if entries is None or not mask:
        return Ok("only one of the two selects GPUs")
    allowed = [entry.strip() for entry in mask.split(",") if entry.strip()]
    if set(entries) <= set(allowed):
        return Ok(f"gpu_ids is within CUDA_VISIBLE_DEVICES={mask}")
    return Problem(
        f"gpu_ids {config.values['gpu_ids']} overrides CUDA_VISIBLE_DEVICES={mask}",
        evidence={"gpu_ids": config.values["gpu_ids"], "CUDA_VISIBLE_DEVICES": mask},
        place=place_of(config, "gpu_ids"),
    )


@check(Severity.WARNING, source="https://slurm.schedmd.com/gres.html", because_of=("config_more_ranks_than_gpus",))
def config_exceeds_slurm_grant(config: Config, slurm: Slurm) -> Answer:
    """The config starts more ranks on this node than Slurm granted GPUs.

    Why: The other GPUs are not part of the job.
    More: If Slurm does not restrict access to them, the ranks use them anyway, and share their memory with another job.

    Fix: Set num_processes to the number of granted GPUs, or request more.
    """
    if not is_readable(config) or config.ranks_here is None or config.distributed_type not in GPU_TYPES:
        return Skip("not a GPU config")
    if slurm.job_id is None or slurm.gpus_on_node is None:
        return Skip("not in a Slurm allocation with GPUs")
    if config.ranks_here <= slurm.gpus_on_node:
        return Ok(f"{counted(config.ranks_here, 'rank')}, {counted(slurm.gpus_on_node, 'GPU')} granted")
    return Problem(
        f"{counted(config.ranks_here, 'rank')} on a node where Slurm granted {counted(slurm.gpus_on_node, 'GPU')}",
        fix=Fix(
            f"{_number_fix(config, max(1, slurm.gpus_on_node))[:-1]}, or request more.",
            (shell("#SBATCH --gpus-per-node={:number}", config.ranks_here),),
        ),
        evidence={"ranks": config.ranks_here, "granted": slurm.gpus_on_node, "job": slurm.job_id},
        place=place_of(config, "num_processes"),
    )


@check(
    Severity.WARNING, source="https://huggingface.co/docs/accelerate/package_reference/utilities", given=skip_if_away
)
def config_type_of_other_hardware(config: Config, driver: Driver) -> Answer:
    """The type is for hardware of another vendor, but this machine has NVIDIA GPUs.

    Why: The launcher starts the processes anyway, and each uses the devices it finds, regardless of the type.

    Fix: Write distributed_type: MULTI_GPU.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not known")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this machine")
    kind = config.distributed_type
    if kind != "XLA" and (kind in ("MULTI_GPU", "MULTI_CPU") or not kind.startswith("MULTI_")):
        return Ok(f"{kind} does not need hardware of another vendor")
    return Problem(
        f"distributed_type {kind} on a machine with NVIDIA GPUs",
        "It is for TPUs." if kind == "XLA" else f"It is for {kind.removeprefix('MULTI_')} devices of another vendor.",
        place=place_of(config, "distributed_type"),
    )


@check(Severity.WARNING, source="measured accelerate 1.15 torch 2.13 2026-11", given=skip_if_away)
def config_cpu_with_gpu_type(config: Config, driver: Driver) -> Answer:
    """use_cpu is true, but the type is for GPUs.

    Why: The ranks still use the visible GPUs.
    More: With several processes, the launcher does not pass use_cpu to them. If torch finds no GPU, each rank trains
    alone.

    Fix: Write use_cpu: false. mgpu launch runs the ranks on the CPU if there is no GPU.
    More: Or use MULTI_CPU with mpirun.
    """
    if not is_readable(config) or config.distributed_type not in GPU_TYPES:
        return Skip("not a GPU config")
    if config.values.get("use_cpu") is not True:
        return Ok("use_cpu is not set")
    if not driver.any_gpu:
        return Ok("no GPU here: the ranks run on the CPU")
    return Problem(
        f"use_cpu: true has no effect with distributed_type {config.distributed_type}",
        place=place_of(config, "use_cpu"),
    )


@check(Severity.INFO, source="measured accelerate 1.15 torch 2.13 2026-11", given=skip_if_away)
def config_runs_on_cpu(config: Config, driver: Driver) -> Answer:
    """There is no NVIDIA GPU here: the ranks of this config will run on the CPU.

    Why: mgpu sets ACCELERATE_USE_CPU=true. Without it, accelerate would start independent single-process runs.
    More: With it, they are one gloo run of N ranks.

    Fix: Nothing to do for a dry run.
    """
    if not is_readable(config) or config.distributed_type not in GPU_TYPES:
        return Skip("not a GPU config")
    if driver.any_gpu:
        return Ok("this machine has NVIDIA GPUs")
    if _starts_no_rank(config):
        return Skip("no rank of this config starts on the CPU")
    return Problem(
        f"no GPU here: {counted(config.ranks_here or 1, 'rank')} on the CPU, over gloo",
        place=place_of(config, "distributed_type"),
    )


def _starts_no_rank(config: Config) -> bool:
    """Whether no rank starts without a GPU: accelerate rejects the config, or its workers stop at once on a CPU."""
    invalid = config.values.get("num_processes") is not None and not config.ranks_here
    rejected = config.loader is not None and not config.loader.accepted
    of_fsdp1 = config.distributed_type == "FSDP" and fsdp_version(fsdp_settings(config)) == 1
    return invalid or rejected or of_fsdp1 or splits_ranks(config)


@check(
    Severity.WARNING,
    source=_ZERO_PAPER,
    because_of=("config_more_ranks_than_gpus",),
    given=skip_if_away,
    tags=("before_start",),
)
def config_model_too_large(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The model this config was made for does not fit on the GPUs here.

    Why: Weights, gradients and optimizer state alone need more memory than a GPU has: "CUDA out of memory" in the first
    optimizer step or earlier. Activations need additional memory. mgpu writes the model size as a comment; other
    configs do not contain it.

    Fix: Shard more, offload, or use more GPUs.
    More: FSDP2 and ZeRO shard the model.
    """
    if not is_readable(config) or config.model is None:
        return Skip("the file does not contain the model size")
    strategy, offload = _strategy(config)
    ranks, here = config.num_processes, config.ranks_here
    if strategy is None or not ranks or not here or config.precision not in PRECISIONS:
        return Skip("the sharding of the model is not known")
    room = _smallest(gpus, visible.gpus, here if config.values.get("gpu_ids") in _ALL else None)
    if room is None:
        return Skip("the memory of the GPUs is not known")
    model = config.model
    each = _memory_need(model, strategy, ranks, config.precision, offload)
    name, needed = STRATEGY_NAMES[strategy], gib(each.resident_bytes)
    if fits(each, room):
        return Ok(f"{name} needs {needed} of {gib(room)}, before activations")
    kind = {"optimizer": model.optimizer, "train": model.train, "trainable": model.trainable}
    way = what_fits(model.params, room, ranks, precision=config.precision, **kind)
    return Problem(
        f"the model needs {needed} per GPU with {name} on {counted(ranks, 'GPU')}, a GPU here has {gib(room)}",
        f"{each.formula}; {gib(RESERVE_BYTES)} are reserved for CUDA and NCCL. Activations need more. "
        f"{f'It fits with {way}.' if way else 'It does not fit, split or offloaded.'}",
        commands(shell(_PLAN, model.params, model.train, model.optimizer)),
        {"parameters": model.params, "strategy": strategy, "need_bytes": each.resident_bytes, "gpu_bytes": room},
        place=place_of(config, "distributed_type"),
    )


@check(Severity.WARNING, source=_MEASURED, because_of=("config_model_too_large",), tags=("before_start",))
def config_batch_too_large(config: Config, stamp: Stamp, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The batch of the config needs more memory than a GPU here has, as measured with another batch.

    Why: Activations grow in proportion to the batch. The script stops with "CUDA out of memory" in its first steps.

    Fix: Use a batch that fits, and accumulate gradients for the same effective batch.
    """
    if config.batch_per_gpu is None:
        return Skip("the file does not contain the batch")
    room = _smallest(gpus, visible.gpus, config.ranks_here)
    found = stamp.measurements[-1] if stamp.measurements and stamp.verified is not None else None
    need_now = need_bytes(found, config.batch_per_gpu) if found else None
    if found is None or need_now is None or room is None:
        return Skip("the memory of the script was not measured on these GPUs" if room else "no GPU memory is known")
    fitting = batch_that_fits(found, room)
    if fitting is None or config.batch_per_gpu <= fitting.batch:
        return Ok(f"batch {config.batch_per_gpu} needs {gib(need_now)} of {gib(room)}, by a measurement")
    return Problem(
        f"batch {config.batch_per_gpu} per GPU needs {gib(need_now)}, a GPU here has {gib(room)}: {fitting.batch} fit",
        f"Measured for {found.script} with batch {found.batch}: {gib(found.peak_bytes or 0)}, of which "
        f"{gib(found.static_bytes or 0)} do not depend on the batch. {gib(RESERVE_BYTES)} for CUDA and NCCL and "
        f"{1 - FILL:.0%} stay free.",
        evidence={"batch": config.batch_per_gpu, "fits": fitting.batch, "need_bytes": need_now, "gpu_bytes": room},
        place=place_of(config, "distributed_type"),
    )


def _memory_need(model: Model, strategy: str, ranks: int, precision: str, offload: bool) -> Need:
    split = partial(need, model.params, strategy=strategy, ranks=ranks, precision=precision, offload=offload)
    return split(optimizer=model.optimizer, train=model.train, trainable=model.trainable)


def _smallest(gpus: tuple[Gpu, ...], visible: tuple[int, ...], most: int | None) -> int | None:
    """Return the memory of the smallest GPU among the first `most` visible ones; None if any is unknown."""
    by_index = {gpu.index: gpu for gpu in gpus}
    used = [by_index[index] for index in visible if index in by_index][:most]
    sizes = [gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0) for gpu in used if gpu.memory_total_bytes]
    return min(sizes) if used and len(sizes) == len(used) else None


def _strategy(config: Config) -> tuple[str | None, bool]:
    """Return the sharding strategy (as in mgpu.planning.memory; None if unknown) and whether it is offloaded."""
    kind = config.distributed_type
    if kind in ("NO", "MULTI_GPU"):
        return "ddp", False
    section = config.values.get({"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config"}.get(kind or "", ""))
    if not isinstance(section, dict):
        return None, False
    if kind == "FSDP":
        return ("fsdp2" if section.get("fsdp_version") == 2 else None), section.get("fsdp_offload_params") is True
    stages = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
    stage = section.get("zero_stage")
    if "deepspeed_config_file" in section or type(stage) is not int:
        return None, False
    offload = section.get("offload_optimizer_device") in ("cpu", "nvme")
    return (None if stage == 0 and offload else stages.get(stage)), offload
