"""Did every GPU of a run work, as observed through NVML?

NVML's utilization is the share of time in which any kernel ran. A kernel that only waits for other GPUs counts too, so
a low value is more meaningful than a high one.
"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import GpuWork, Run
from mgpu.text import counted, listed

from ._kernel_log_lines import format_duration
from ._wording import GIB, MIB, gib, gpu_list
from .smoke._rank_states import median

FAMILY = Family(of_a_run=True)
_CONTEXTS = "https://github.com/pytorch/pytorch/issues/135279"
_STARVED = "https://doi.org/10.1145/3597503.3639232"
_WAITING = "https://github.com/NVIDIA/nccl/issues/857"
_NVML = "https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html"
_ENOUGH = 10  # mgpu: fewer readings, one every second or two, may all fall into one pause
_WHOLE_RUN_S = 120.0  # a shorter run is mostly start and end
_NEVER_STARTED = 30  # mgpu: readings; a script that ends earlier may not have reached its training loop
# The smallest CUDA context: about 100 MiB (T4); 0.3-0.6 GB is usual (ml-engineering, "anatomy of model's memory").
_CONTEXT_BYTES = 64 * MIB
# If the use before the run is unknown: an idle GPU's driver itself uses up to about 700 MiB (B200).
_IDLE_BYTES = GIB
# "low GPU utilization": 50 % or less on average (Gao et al., ICSE 2024, doi.org/10.1145/3597503.3639232).
_LOW_PERCENT = 50.0
_NEARLY_FULL = 0.95  # mgpu: above this, a batch 5 % longer no longer fits
_UNEVEN_MEMORY = 0.2  # mgpu: share of the GPU by which batches on all other GPUs could be larger
_IDLE_S = 300.0  # mgpu: longer than most evaluations and checkpoints; half of NCCL's timeout
_STILL_BUSY_S = 60.0
# A waiting NCCL kernel draws little power: 47 of 250 W at 100 % (github.com/horovod/horovod/issues/3611).
_SPINNING_PERCENT, _SPINNING_POWER = 99.0, 35.0
# mgpu: a small model draws little power too, but all the time; a hang draws less than the steps before it.
_BELOW_USUAL = 0.7
_SILENT_S = 600.0  # mgpu: NCCL's own timeout (c10d's kProcessGroupNCCLDefaultTimeout)


def _is_free(gpu: GpuWork) -> bool | None:
    """Return whether a GPU shows no sign of the run, or None if NVML does not report enough."""
    if gpu.processes is not None:
        return not gpu.processes
    if gpu.busy_share:
        return False
    if gpu.peak_bytes is None or gpu.busy_share is None:
        return None
    before, noise = (0, _IDLE_BYTES) if gpu.before_bytes is None else (gpu.before_bytes, _CONTEXT_BYTES)
    return gpu.peak_bytes - before < noise


def _gpu_names(gpus: list[GpuWork]) -> str:
    """Return "GPU 3 (rank 3)" or "GPUs 1, 2 and 3"."""
    ranks = [gpu.rank for gpu in gpus if gpu.rank is not None]
    who = f" (rank {ranks[0]})" if len(gpus) == 1 and ranks else ""
    return f"{gpu_list(gpu.index for gpu in gpus)}{who}"


def _subjects(gpus: list[GpuWork]) -> tuple[str, ...]:
    return tuple(f"GPU {gpu.index}" for gpu in gpus)


def _ranks_on(run: Run) -> dict[int, list[int]] | None:
    """Return the ranks on each GPU by its index, or None if NVML's PIDs do not match the ranks'."""
    ranks = {ended.pid: ended.rank for ended in run.ranks if ended.pid is not None}
    found = {gpu.index: sorted(ranks[pid] for pid in gpu.processes or () if pid in ranks) for gpu in run.gpus or ()}
    return found if any(found.values()) else None


@check(Severity.INFO, source="mgpu: what was not observed is not reported as healthy")
def gpus_not_watched(run: Run) -> Answer:
    """The GPUs were not monitored during the run.

    Why: the process that reads NVML exited or hung, which indicates a driver fault. An idle or full GPU would not have
    been noticed.

    Fix: check the GPUs while the run is active. If that hangs too, the driver has a fault.
    """
    if run.gpus_gap is None:
        return Skip("no GPU to monitor") if run.gpus is None else Ok(f"{counted(len(run.gpus), 'GPU')} monitored")
    return Problem(
        "the GPUs were not monitored" if run.gpus is None else "the GPUs were not monitored to the end",
        f"{run.gpus_gap}. An idle or nearly full GPU would not have been noticed since.",
        Fix(commands=("nvidia-smi",)),
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/49481", watch="start")
def ranks_on_one_gpu(run: Run) -> Answer:
    """Several ranks use one GPU.

    Why: their processes are only on this GPU, so they share its memory and compute time.
    More: Every process that selects no device uses cuda:0, so several ranks share one GPU while others are idle. NCCL,
    if used, stops with "Duplicate GPU detected".

    Fix: in the script, do not use .cuda(), cuda:0 or device_map="auto". Use device = accelerator.device, or call
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything uses CUDA.
    More: accelerate's prepare() does this.
    """
    on = _ranks_on(run)
    if on is None:
        return Skip("unknown which rank was on which GPU")
    if run.expected is not None and run.expected > len(on):
        return Skip(f"{run.expected} ranks share {counted(len(on), 'GPU')}")
    alone = {
        index: [rank for rank in ranks if sum(rank in others for others in on.values()) == 1]
        for index, ranks in on.items()
    }
    shared = {index: ranks for index, ranks in alone.items() if len(ranks) > 1}
    if not shared:
        return Ok(f"no GPU has more than one of {counted(len({r for ranks in on.values() for r in ranks}), 'rank')}")
    index, ranks = max(shared.items(), key=lambda item: len(item[1]))
    return Problem(
        f"{len(ranks)} ranks share GPU {index}: ranks {listed(ranks)}",
        evidence={f"gpu_{index}_ranks": listed(ranks) for index, ranks in shared.items()},
        subjects=tuple(f"GPU {index}" for index in shared),
    )


@check(Severity.WARNING, source=_CONTEXTS, because_of=("ranks_on_one_gpu",), watch="start")
def gpu_context_of_other_ranks(run: Run) -> Answer:
    """Ranks use memory on another rank's GPU.

    Why: a rank that uses CUDA before it selects its device creates a context on the first GPU, about 0.5 GiB per rank.
    That GPU runs out of memory first.

    Fix: call torch.cuda.set_device(LOCAL_RANK) first, and load checkpoints with map_location="cpu".
    """
    on = _ranks_on(run)
    if on is None:
        return Skip("unknown which rank was on which GPU")
    several = {rank for ranks in on.values() for rank in ranks if sum(rank in others for others in on.values()) > 1}
    owners = {gpu.index: gpu.rank for gpu in run.gpus or ()}
    strays = {
        index: found
        for index, ranks in on.items()
        if len(ranks) > 1 and (found := [rank for rank in ranks if rank in several and rank != owners[index]])
    }
    if not strays:
        return Ok("every rank is on one GPU only" if not several else "no GPU has two ranks")
    index, ranks = next(iter(strays.items()))
    who = f"rank {ranks[0]} also uses" if len(ranks) == 1 else f"ranks {listed(ranks)} also use"
    return Problem(
        f"{who} memory on GPU {index}",
        "Each created a second CUDA context there, which uses about 0.5 GiB per rank. GPU "
        f"{index} runs out of memory before the others.",
        Fix(
            'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything uses CUDA, and '
            'torch.load(..., map_location="cpu").'
        ),
        {f"gpu_{index}_ranks": listed(ranks) for index, ranks in strays.items()},
        tuple(f"GPU {index}" for index in strays),
    )


@check(Severity.WARNING, source=_NVML, because_of=("ranks_on_one_gpu",), watch="start")
def gpu_idle_in_run(run: Run) -> Answer:
    """A GPU of the run was not used.

    Why: the run has no process, no memory and no activity on any of its GPUs.
    More: Fewer processes than GPUs were started, or a rank uses the wrong GPU or the CPU. The run is slower than
    planned, and its batch size per step is smaller.

    Fix: compare num_processes in the config with the number of GPUs. In the script, look for cuda:0, .cuda(),
    device_map="auto" and CUDA_VISIBLE_DEVICES.
    """
    gpus = list(run.gpus or ())
    unused = {gpu.index: _is_free(gpu) for gpu in gpus}
    if not gpus or all(absent is None for absent in unused.values()):
        return Skip("no data on GPU activity")
    absent = [gpu for gpu in gpus if unused[gpu.index]]
    at_work = [gpu for gpu in gpus if unused[gpu.index] is False]
    fix, enough = Fix(commands=("nvidia-smi",)), _ENOUGH if run.going else _NEVER_STARTED
    evidence = {f"gpu_{gpu.index}_peak_bytes": gpu.peak_bytes for gpu in gpus}
    worked = [gpu for gpu in at_work if gpu.busy_share != 0 and gpu.samples >= _ENOUGH]
    if absent and worked:
        return Problem(
            f"{len(absent)} of {counted(len(gpus), 'GPU')} {'is' if len(absent) == 1 else 'are'} not training: "
            f"{_gpu_names(absent)}",
            f"The run {_tense(run, 'has', 'had')} no process and no memory there, while it "
            f"{_tense(run, 'uses', 'used')} {gpu_list(gpu.index for gpu in at_work)}.",
            fix,
            evidence,
            _subjects(absent),
        )
    if len(absent) == len(gpus) and gpus[0].samples >= enough:
        if not run.going and run.exit_code:
            return Skip("it failed before any GPU was used")
        return Problem(
            f"none of {counted(len(gpus), 'GPU')} {_tense(run, 'is', 'was')} used: the program runs on the CPU",
            fix=(Fix("Check that torch in the script's Python sees the GPUs.", ("mgpu doctor",)), fix),
            evidence=evidence,
            subjects=_subjects(absent),
        )
    unknown = sum(absent is None for absent in unused.values())
    return Ok(f"{len(at_work)} of {counted(len(gpus), 'GPU')} used" + (f", {unknown} unknown" if unknown else ""))


@check(Severity.WARNING, source=_STARVED, because_of=("gpu_idle_in_run",), watch="start", tags=("passed_run",))
def gpu_starved(run: Run) -> Answer:
    """The GPUs are idle most of the time.

    Why: they wait for the CPU: usually for the next batch, otherwise for logging, saving or a value that is read back
    in every step.
    More: In about half of such cases data loading is the cause (Gao et al., ICSE 2024).

    Fix: in the DataLoader, set num_workers to about the CPUs per GPU, pin_memory and persistent_workers. Keep data on a
    local disk, log every 50 steps without .item() in between, or use a larger batch. torch.profiler shows the cause.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.busy_percent is not None and _is_free(gpu) is False and gpu.busy_share]
    if not gpus:
        return Skip("no data on GPU utilization")
    if max(gpu.samples for gpu in gpus) < _ENOUGH or (not run.going and run.seconds < _WHOLE_RUN_S):
        return Skip("the run was too short")
    mean = sum(gpu.busy_percent or 0 for gpu in gpus) / len(gpus)
    if mean > _LOW_PERCENT:
        return Ok(f"{mean:.0f} % busy on average")
    return Problem(
        f"the GPUs {_tense(run, 'are', 'were')} busy {mean:.0f} % of the time",
        evidence={f"gpu_{gpu.index}_busy_percent": gpu.busy_percent for gpu in gpus},
        subjects=_subjects(gpus),
    )


@check(
    Severity.INFO,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html (memory-management)",
    because_of=("gpu_context_of_other_ranks", "ranks_on_one_gpu"),
    tags=("passed_run",),
)
def gpu_memory_nearly_full(run: Run) -> Answer:
    """A GPU's memory was nearly full.

    Why: a longer batch, an evaluation or a checkpoint may no longer fit. Part of the memory may be torch's cache.

    Fix: if it runs out, halve the batch size and double gradient accumulation, which keeps the effective batch size. Or
    use gradient checkpointing.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.peak_bytes is not None and gpu.total_bytes]
    if not gpus:
        return Skip("no data on GPU memory")
    full = [gpu for gpu in gpus if (gpu.peak_bytes or 0) >= _NEARLY_FULL * (gpu.total_bytes or 0)]
    fullest = max(gpus, key=lambda gpu: (gpu.peak_bytes or 0) / (gpu.total_bytes or 1))
    of = f"{gib(fullest.peak_bytes or 0)} of {gib(fullest.total_bytes or 0)}"
    if not full:
        return Ok(f"at most {of}")
    return Problem(
        f"{_gpu_names(full)}: memory nearly full, {of}",
        evidence={f"gpu_{gpu.index}_peak_bytes": gpu.peak_bytes for gpu in full},
        subjects=_subjects(full),
    )


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/issues/49481",
    tags=("passed_run",),
    because_of=("gpu_idle_in_run", "gpu_context_of_other_ranks", "ranks_on_one_gpu", "gpu_fell_idle"),
)
def gpus_uneven(run: Run) -> Answer:
    """One GPU was much less busy, or used much more memory, than the others.

    Why: the slowest rank sets the pace for all, and the fullest GPU limits the batch size. Often rank 0 gathers, loads
    or evaluates for all.

    Fix: distribute the work evenly: gather less, load with map_location="cpu", evaluate on all ranks.
    """
    gpus = [gpu for gpu in run.gpus or () if _is_free(gpu) is False]
    if len(gpus) < 2 or max(gpu.samples for gpu in gpus) < _ENOUGH:
        return Skip("fewer than two GPUs to compare, or the run was too short")
    for gpu in gpus:
        if difference := _describe_less_busy(gpu, gpus) or _describe_fuller(gpu, gpus):
            return _uneven_problem(run, gpu, difference)
    if all(gpu.busy_percent is None and gpu.peak_bytes is None for gpu in gpus):
        return Skip("no data on GPU activity")
    return Ok(f"{counted(len(gpus), 'GPU')} evenly loaded")


def _describe_less_busy(gpu: GpuWork, gpus: list[GpuWork]) -> str:
    """Describe how much less busy the GPU was than the others; empty if it was not."""
    others = [other.busy_percent for other in gpus if other is not gpu and other.busy_percent is not None]
    if gpu.busy_percent is None or not others:
        return ""
    usual = median(others)
    slack = usual > _LOW_PERCENT and gpu.busy_percent < usual / 2
    return f"busy {gpu.busy_percent:.0f} % of the time, the others {usual:.0f} %" if slack else ""


def _describe_fuller(gpu: GpuWork, gpus: list[GpuWork]) -> str:
    """Describe how much more memory the GPU used than the others; empty if it did not."""
    others = [other.peak_bytes for other in gpus if other is not gpu and other.peak_bytes is not None]
    if gpu.peak_bytes is None or not gpu.total_bytes or not others:
        return ""
    usual = median(others)
    more = gpu.peak_bytes - usual > _UNEVEN_MEMORY * gpu.total_bytes
    return f"{gib(gpu.peak_bytes)} of memory, the others {gib(usual)}" if more else ""


def _uneven_problem(run: Run, gpu: GpuWork, difference: str) -> Problem:
    return Problem(
        f"{_gpu_names([gpu])} {_tense(run, 'differs', 'differed')} from the others: {difference}",
        "All ranks wait for the slowest one in every step, and the fullest GPU limits the batch size.",
        Fix(
            'Check what only this rank does: gathering, loading a checkpoint without map_location="cpu", evaluating or '
            "saving. Otherwise check whether the GPU is slower than the others.",
            ("mgpu doctor --deep",),
        ),
        {"busy_percent": gpu.busy_percent, "peak_bytes": gpu.peak_bytes},
        _subjects([gpu]),
    )


@check(Severity.WARNING, source=_WAITING, because_of=("gpu_idle_in_run",), watch="later")
def gpu_fell_idle(run: Run) -> Answer:
    """A GPU that was busy has been idle for minutes.

    Why: its rank is stuck, or is saving or evaluating for all while the others wait in a collective until NCCL's
    timeout. Or all of them wait for the CPU.

    Fix: check where its rank is.
    More: Use py-spy dump.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.idle_s is not None]
    if not gpus:
        return Skip("no GPU was busy")
    idle = [gpu for gpu in gpus if (gpu.idle_s or 0) >= _IDLE_S]
    busy = [gpu for gpu in gpus if (gpu.idle_s or 0) < _STILL_BUSY_S]
    whole = len(idle) == len(gpus) and (run.going or run.exit_code != 0)
    if not idle or not (busy or whole):
        return Ok(f"{len(busy)} of {counted(len(gpus), 'GPU')} busy at the last reading")
    least = min(gpu.idle_s or 0 for gpu in idle)
    who = f"all {len(idle)} GPUs" if whole and len(idle) > 1 else _gpu_names(idle)
    verb = ("has", "had") if len(idle) == 1 else ("have", "had")
    return Problem(
        f"{who} {_tense(run, *verb)} been idle for {format_duration(least)}"
        + ("" if whole else " while the others are busy"),
        "All ranks do something other than training: a checkpoint, an evaluation on the CPU, or a hang."
        if whole
        else "The others may be busy only because they wait for it. NCCL times out after 10 min.",
        Fix(commands=_dump_commands(run, idle)),
        {f"gpu_{gpu.index}_idle_s": gpu.idle_s for gpu in idle},
        _subjects(idle),
    )


@check(Severity.WARNING, source="https://github.com/nebius/soperator/issues/796", watch="later")
def gpus_spin_in_silence(run: Run) -> Answer:
    """All GPUs are 100 % busy at low power, and the program prints nothing.

    Why: this is typical of a collective that waits for a missing rank.
    More: Such a collective keeps every GPU at 100 % but draws much less power than a training step.

    Fix: check where each rank is. The one that is elsewhere blocks the others.
    """
    gpus = list(run.gpus or ())
    known = [gpu for gpu in gpus if None not in (gpu.now_percent, gpu.power_percent, gpu.usual_power_percent)]
    if not gpus or len(known) < len(gpus) or run.quiet_s is None:
        return Skip("no data on GPU load, power or the run's output")
    power = max(gpu.power_percent or 0 for gpu in known)
    spins = power <= _SPINNING_POWER and all(
        (gpu.now_percent or 0) >= _SPINNING_PERCENT
        and (gpu.power_percent or 0) <= _BELOW_USUAL * (gpu.usual_power_percent or 0)
        for gpu in known
    )
    if len(gpus) < 2 or not spins or run.quiet_s < _SILENT_S:
        return Ok(f"last output {format_duration(run.quiet_s)} ago, power at most {power:.0f} % of the limit")
    return Problem(
        f"all {len(gpus)} GPUs {_tense(run, 'are', 'were')} 100 % busy at {power:.0f} % of their power limit, without "
        f"output for {format_duration(run.quiet_s)}: probably a hang",
        fix=Fix(commands=_dump_commands(run, gpus)),
        evidence={"quiet_s": run.quiet_s} | {f"gpu_{gpu.index}_power_percent": gpu.power_percent for gpu in known},
        subjects=_subjects(gpus),
    )


def _tense(run: Run, going: str, ended: str) -> str:
    return going if run.going else ended


def _dump_commands(run: Run, gpus: list[GpuWork]) -> tuple[str, ...]:
    """Return py-spy commands for the ranks on these GPUs whose PIDs are known."""
    pids = [pid for gpu in gpus for pid in (gpu.processes or ())[:1]]
    indices = {gpu.rank for gpu in gpus if gpu.rank is not None}
    pids = pids or [ended.pid for ended in run.ranks if ended.pid is not None and ended.rank in indices]
    first = tuple(shell("py-spy dump --pid {:pid}", pid) for pid in pids[:4])
    return (*first, "mgpu launch --status") if run.going else ()
