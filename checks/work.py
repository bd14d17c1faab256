"""Did every GPU of a run work, as NVML saw it from outside?

NVML's utilisation is the share of the time in which any kernel ran; one that only waits for the other GPUs counts, so a
low figure means more than a high one.
"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import GpuWork, Run
from mgpu.text import counted, listed

from ._kernel_log_lines import span
from ._wording import GIB, MIB, gib, gpu_list
from .smoke._rank_states import median

FAMILY = Family(of_a_run=True)
_CONTEXTS = "https://github.com/pytorch/pytorch/issues/135279"
_STARVED = "https://doi.org/10.1145/3597503.3639232"
_WAITING = "https://github.com/NVIDIA/nccl/issues/857"
_NVML = "https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html"
_ENOUGH = 10  # mgpu: fewer readings, at one in one or two seconds, may all fall into one pause
_WHOLE_RUN_S = 120.0  # a run this short is mostly start and end
_NEVER_STARTED = 30  # mgpu: readings; a script that ends before may not have come to its training
# The smallest CUDA context: about 100 MiB (T4); 0.3-0.6 GB is usual (ml-engineering, "anatomy of model's memory").
_CONTEXT_BYTES = 64 * MIB
# What was in use before is not known: an idle GPU's driver keeps up to about 700 MiB for itself (B200).
_IDLE_BYTES = GIB
# "low GPU utilization": 50 % or less on average (Gao et al., ICSE 2024, doi.org/10.1145/3597503.3639232).
_LOW_PERCENT = 50.0
_NEARLY_FULL = 0.95  # mgpu: a batch that is longer by a twentieth no longer fits
_UNEVEN_MEMORY = 0.2  # mgpu: of the GPU; what a batch could be larger by on all the others
_IDLE_S = 300.0  # mgpu: longer than most evaluations and checkpoints take; half of NCCL's limit
_STILL_BUSY_S = 60.0
# A kernel of NCCL that waits draws little: 47 of 250 W at 100 % (github.com/horovod/horovod/issues/3611).
_SPINNING_PERCENT, _SPINNING_POWER = 99.0, 35.0
# mgpu: a small model draws little as well, but always: a hang draws less than the steps before it did.
_BELOW_USUAL = 0.7
_SILENT_S = 600.0  # mgpu: as long as NCCL itself waits (c10d's kProcessGroupNCCLDefaultTimeout)


def _absent(gpu: GpuWork) -> bool | None:
    """Whether a GPU bears no sign of the run; None: NVML does not tell enough."""
    if gpu.processes is not None:
        return not gpu.processes
    if gpu.busy_share:
        return False
    if gpu.peak_bytes is None or gpu.busy_share is None:
        return None
    before, noise = (0, _IDLE_BYTES) if gpu.before_bytes is None else (gpu.before_bytes, _CONTEXT_BYTES)
    return gpu.peak_bytes - before < noise


def _named(gpus: list[GpuWork]) -> str:
    """ "GPU 3 (rank 3)", "GPU 1, 2 and 3"."""
    ranks = [gpu.rank for gpu in gpus if gpu.rank is not None]
    who = f" (rank {ranks[0]})" if len(gpus) == 1 and ranks else ""
    return f"{gpu_list(gpu.index for gpu in gpus)}{who}"


def _subjects(gpus: list[GpuWork]) -> tuple[str, ...]:
    return tuple(f"GPU {gpu.index}" for gpu in gpus)


def _ranks_on(run: Run) -> dict[int, list[int]] | None:
    """The ranks whose processes were on each GPU, by its index; None: NVML's pids are not those of the ranks."""
    ranks = {ended.pid: ended.rank for ended in run.ranks if ended.pid is not None}
    found = {gpu.index: sorted(ranks[pid] for pid in gpu.processes or () if pid in ranks) for gpu in run.gpus or ()}
    return found if any(found.values()) else None


@check(Severity.INFO, source="mgpu: what nobody looked at is not called healthy")
def gpus_not_watched(run: Run) -> Answer:
    """The GPUs were not watched during the run.

    Why: the process that reads NVML ended or hung, as it does with a driver in trouble; an idle or full GPU would not
    have been noticed.

    Fix: look at them while it runs; if that hangs as well, the driver is in trouble.
    """
    if run.gpus_gap is None:
        return Skip("no GPU was to be watched") if run.gpus is None else Ok(f"{counted(len(run.gpus), 'GPU')} watched")
    return Problem(
        "the GPUs were not watched" if run.gpus is None else "the GPUs were not watched to the end",
        f"{run.gpus_gap}. An idle GPU, or one that is nearly full, would not have been noticed since.",
        Fix(commands=("nvidia-smi",)),
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/49481", watch="start")
def ranks_on_one_gpu(run: Run) -> Answer:
    """Several ranks train on one GPU.

    Why: their processes are on this GPU and on no other: they share its memory and its time.
    More: Every process that names no device takes cuda:0, so the ranks share one GPU's memory and time while others
    stand idle; NCCL stops with "Duplicate GPU detected" where it is asked.

    Fix: in the script: no .cuda(), cuda:0 or device_map="auto"; device = accelerator.device, or
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything touches CUDA.
    More: prepare() of accelerate does it.
    """
    on = _ranks_on(run)
    if on is None:
        return Skip("which rank was on which GPU is not told")
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
        f"{len(ranks)} ranks sit on GPU {index}: rank {listed(ranks)}",
        evidence={f"gpu_{index}_ranks": listed(ranks) for index, ranks in shared.items()},
        subjects=tuple(f"GPU {index}" for index in shared),
    )


@check(Severity.WARNING, source=_CONTEXTS, because_of=("ranks_on_one_gpu",), watch="start")
def gpu_context_of_other_ranks(run: Run) -> Answer:
    """Ranks hold memory on a GPU that is another rank's.

    Why: a rank that touches CUDA before it chose its device opens a context on the first GPU, about 0.5 GiB for each
    rank; that GPU is the first to run out of memory.

    Fix: call torch.cuda.set_device(LOCAL_RANK) first, and load checkpoints with map_location="cpu".
    """
    on = _ranks_on(run)
    if on is None:
        return Skip("which rank was on which GPU is not told")
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
    return Problem(
        f"rank {listed(ranks)} also hold{'s' * (len(ranks) == 1)} memory on GPU {index}",
        "Each has opened a CUDA context there besides its own, which takes about 0.5 GiB a rank: GPU "
        f"{index} is full before the others.",
        Fix(
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything touches CUDA, and '
            'torch.load(..., map_location="cpu").'
        ),
        {f"gpu_{index}_ranks": listed(ranks) for index, ranks in strays.items()},
        tuple(f"GPU {index}" for index in strays),
    )


@check(Severity.WARNING, source=_NVML, because_of=("ranks_on_one_gpu",), watch="start")
def gpu_idle_in_run(run: Run) -> Answer:
    """A GPU of the run did nothing.

    Why: no process and no memory of the run, and no work, on any of its GPUs.
    More: Fewer processes than GPUs were started, or a rank uses another GPU than its own or the CPU; the run is slower
    than it was planned, and the batch of a step smaller.

    Fix: compare num_processes in the config with the GPUs; in the script look for cuda:0, .cuda(), device_map="auto"
    and CUDA_VISIBLE_DEVICES.
    """
    gpus = list(run.gpus or ())
    told = {gpu.index: _absent(gpu) for gpu in gpus}
    if not gpus or all(absent is None for absent in told.values()):
        return Skip("what the GPUs did is not told")
    absent = [gpu for gpu in gpus if told[gpu.index]]
    at_work = [gpu for gpu in gpus if told[gpu.index] is False]
    fix, enough = Fix(commands=("nvidia-smi",)), _ENOUGH if run.going else _NEVER_STARTED
    evidence = {f"gpu_{gpu.index}_peak_bytes": gpu.peak_bytes for gpu in gpus}
    worked = [gpu for gpu in at_work if gpu.busy_share != 0 and gpu.samples >= _ENOUGH]
    if absent and worked:
        return Problem(
            f"{len(absent)} of {counted(len(gpus), 'GPU')} {'is' if len(absent) == 1 else 'are'} not training: "
            f"{_named(absent)}",
            f"No process and no memory of the run {_now(run, 'is', 'was')} there, while "
            f"{gpu_list(gpu.index for gpu in at_work)} {_now(run, 'works', 'worked')}.",
            fix,
            evidence,
            _subjects(absent),
        )
    if len(absent) == len(gpus) and gpus[0].samples >= enough:
        if not run.going and run.exit_code:
            return Skip("it failed before any GPU was used")
        return Problem(
            f"none of {counted(len(gpus), 'GPU')} {_now(run, 'is', 'was')} used: the program runs on the CPU",
            fix=(Fix("Ask the script's Python whether its torch sees the GPUs.", ("mgpu doctor",)), fix),
            evidence=evidence,
            subjects=_subjects(absent),
        )
    unknown = sum(absent is None for absent in told.values())
    return Ok(f"{len(at_work)} of {counted(len(gpus), 'GPU')} used" + (f", {unknown} not told" if unknown else ""))


@check(Severity.WARNING, source=_STARVED, because_of=("gpu_idle_in_run",), watch="start", tags=("passed_run",))
def gpu_starved(run: Run) -> Answer:
    """The GPUs wait most of the time.

    Why: they hold the model and wait for the CPU: mostly for the next batch, else for logging, saving or a value that
    is read back in every step.
    More: The next batch is not there in time, or the CPU holds them up by logging, saving or reading back values; half
    of such cases are the data's (Gao et al., ICSE 2024).

    Fix: DataLoader: num_workers about CPUs per GPU, pin_memory, persistent_workers; data on a local disk; log every 50
    steps, no .item() in between; a larger batch. torch.profiler shows which.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.busy_percent is not None and _absent(gpu) is False and gpu.busy_share]
    if not gpus:
        return Skip("how busy the GPUs were is not told")
    if max(gpu.samples for gpu in gpus) < _ENOUGH or (not run.going and run.seconds < _WHOLE_RUN_S):
        return Skip("too short a run to tell")
    mean = sum(gpu.busy_percent or 0 for gpu in gpus) / len(gpus)
    if mean > _LOW_PERCENT:
        return Ok(f"{mean:.0f} % busy on average")
    return Problem(
        f"the GPUs {_now(run, 'are', 'were')} busy {mean:.0f} % of the time",
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

    Why: a longer batch, an evaluation or a checkpoint may not fit any more; a part of it may be what torch keeps for
    later.

    Fix: if it runs out: half the batch and twice the accumulation give the same effective batch; or gradient
    checkpointing.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.peak_bytes is not None and gpu.total_bytes]
    if not gpus:
        return Skip("how full the GPUs were is not told")
    full = [gpu for gpu in gpus if (gpu.peak_bytes or 0) >= _NEARLY_FULL * (gpu.total_bytes or 0)]
    fullest = max(gpus, key=lambda gpu: (gpu.peak_bytes or 0) / (gpu.total_bytes or 1))
    of = f"{gib(fullest.peak_bytes or 0)} of {gib(fullest.total_bytes or 0)}"
    if not full:
        return Ok(f"at most {of}")
    return Problem(
        f"{_named(full)}: memory nearly full, {of}",
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
    """One GPU did much less, or took much more memory, than the others.

    Why: the slowest rank sets the pace of all, and the fullest GPU the size of the batch; rank 0 often gathers, loads
    or evaluates for all.

    Fix: the same work on each rank: gather less, load with map_location="cpu", evaluate on all ranks.
    """
    gpus = [gpu for gpu in run.gpus or () if _absent(gpu) is False]
    if len(gpus) < 2 or max(gpu.samples for gpu in gpus) < _ENOUGH:
        return Skip("fewer than two GPUs to compare, or too short a run")
    for gpu in gpus:
        if words := _less_busy(gpu, gpus) or _fuller(gpu, gpus):
            return _uneven(run, gpu, words)
    if all(gpu.busy_percent is None and gpu.peak_bytes is None for gpu in gpus):
        return Skip("what the GPUs did is not told")
    return Ok(f"{counted(len(gpus), 'GPU')} did alike")


def _less_busy(gpu: GpuWork, gpus: list[GpuWork]) -> str:
    """How much less than the others it did; empty when it did not."""
    others = [other.busy_percent for other in gpus if other is not gpu and other.busy_percent is not None]
    if gpu.busy_percent is None or not others:
        return ""
    usual = median(others)
    slack = usual > _LOW_PERCENT and gpu.busy_percent < usual / 2
    return f"busy {gpu.busy_percent:.0f} % of the time, the others {usual:.0f} %" if slack else ""


def _fuller(gpu: GpuWork, gpus: list[GpuWork]) -> str:
    """How much more memory than the others' it took; empty when it did not."""
    others = [other.peak_bytes for other in gpus if other is not gpu and other.peak_bytes is not None]
    if gpu.peak_bytes is None or not gpu.total_bytes or not others:
        return ""
    usual = median(others)
    more = gpu.peak_bytes - usual > _UNEVEN_MEMORY * gpu.total_bytes
    return f"{gib(gpu.peak_bytes)} of memory, the others {gib(usual)}" if more else ""


def _uneven(run: Run, gpu: GpuWork, words: str) -> Problem:
    return Problem(
        f"{_named([gpu])} {_now(run, 'differs', 'differed')} from the others: {words}",
        "All ranks wait for the slowest one in every step, and the fullest GPU decides how large a batch can be.",
        Fix(
            'Look at what this rank does alone: gathering, loading a checkpoint without map_location="cpu", '
            "evaluating, saving; or a GPU that is slower than its siblings.",
            ("mgpu doctor --deep",),
        ),
        {"busy_percent": gpu.busy_percent, "peak_bytes": gpu.peak_bytes},
        _subjects([gpu]),
    )


@check(Severity.WARNING, source=_WAITING, because_of=("gpu_idle_in_run",), watch="later")
def gpu_fell_idle(run: Run) -> Answer:
    """A GPU that had worked has been idle for minutes.

    Why: its rank is stuck, or does something for all the others (saving, evaluating), and these wait for it in a
    collective until NCCL's timeout; or all of them wait for the CPU.

    Fix: see where its rank is.
    More: py-spy dump.
    """
    gpus = [gpu for gpu in run.gpus or () if gpu.idle_s is not None]
    if not gpus:
        return Skip("no GPU was seen at work")
    idle = [gpu for gpu in gpus if (gpu.idle_s or 0) >= _IDLE_S]
    busy = [gpu for gpu in gpus if (gpu.idle_s or 0) < _STILL_BUSY_S]
    whole = len(idle) == len(gpus) and (run.going or run.exit_code != 0)
    if not idle or not (busy or whole):
        return Ok(f"{len(busy)} of {counted(len(gpus), 'GPU')} at work at last")
    least = min(gpu.idle_s or 0 for gpu in idle)
    who = f"all {len(idle)} GPUs" if whole and len(idle) > 1 else _named(idle)
    verb = ("has", "had") if len(idle) == 1 else ("have", "had")
    return Problem(
        f"{who} {_now(run, *verb)} been idle for {span(least)}" + ("" if whole else " while the others are busy"),
        "All ranks are in something else than training: a checkpoint, an evaluation on the CPU, or a hang."
        if whole
        else "The others may be busy only with waiting for it; NCCL gives up after 10 min.",
        Fix(commands=_dumps(run, idle)),
        {f"gpu_{gpu.index}_idle_s": gpu.idle_s for gpu in idle},
        _subjects(idle),
    )


@check(Severity.WARNING, source="https://github.com/nebius/soperator/issues/796", watch="later")
def gpus_spin_in_silence(run: Run) -> Answer:
    """All GPUs are fully busy at little power, and the program prints nothing.

    Why: this is how a collective looks that waits for a rank that will not come.
    More: A collective that waits for a rank that will not come keeps every GPU at 100 % and draws much less than a
    training step does.

    Fix: see where each rank is; the one that is elsewhere holds up the others.
    """
    gpus = list(run.gpus or ())
    known = [gpu for gpu in gpus if None not in (gpu.now_percent, gpu.power_percent, gpu.usual_power_percent)]
    if not gpus or len(known) < len(gpus) or run.quiet_s is None:
        return Skip("load, power or output of the run is not told")
    power = max(gpu.power_percent or 0 for gpu in known)
    spins = power <= _SPINNING_POWER and all(
        (gpu.now_percent or 0) >= _SPINNING_PERCENT
        and (gpu.power_percent or 0) <= _BELOW_USUAL * (gpu.usual_power_percent or 0)
        for gpu in known
    )
    if len(gpus) < 2 or not spins or run.quiet_s < _SILENT_S:
        return Ok(f"last output {span(run.quiet_s)} before; power at most {power:.0f} % of its limit")
    return Problem(
        f"all {len(gpus)} GPUs {_now(run, 'are', 'were')} 100 % busy at {power:.0f} % of their power, and nothing was "
        f"printed for {span(run.quiet_s)}: a hang, it seems",
        fix=Fix(commands=_dumps(run, gpus)),
        evidence={"quiet_s": run.quiet_s} | {f"gpu_{gpu.index}_power_percent": gpu.power_percent for gpu in known},
        subjects=_subjects(gpus),
    )


def _now(run: Run, going: str, ended: str) -> str:
    return going if run.going else ended


def _dumps(run: Run, gpus: list[GpuWork]) -> tuple[str, ...]:
    """py-spy for the ranks of these GPUs, as far as their pids are known."""
    pids = [pid for gpu in gpus for pid in (gpu.processes or ())[:1]]
    indices = {gpu.rank for gpu in gpus if gpu.rank is not None}
    pids = pids or [ended.pid for ended in run.ranks if ended.pid is not None and ended.rank in indices]
    first = tuple(shell("py-spy dump --pid {:pid}", pid) for pid in pids[:4])
    return (*first, "mgpu launch --status") if run.going else ()
