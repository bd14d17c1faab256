"""Which signal ended a rank: the kernel's, one of its own doing, or one that was sent from outside?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Problem, Severity, Skip, check
from mgpu.snapshot import Run

from ._ended_ranks import (
    STOP_SIGNALS,
    fallen_ranks,
    nothing_found,
    rank_name,
    rank_subjects,
    ranks_by_code,
    signal_name,
)

_RUN = "https://docs.docker.com/reference/cli/docker/container/run/"
_GIB = 1 << 30
# mgpu: what was free at the least, of samples half a second apart. The kernel kills when nothing can be reclaimed, and
# memory that is taken fast is gone between two samples; above this share there was room.
_SHORT_SHARE = 0.05
_BY_SLURM = {
    "TIMEOUT": "its time limit was reached",
    "PREEMPTED": "a job of higher priority took its place",
    "NODE_FAIL": "a node failed",
    "CANCELLED": "somebody cancelled it",
    "DEADLINE": "its deadline was reached",
    "BOOT_FAIL": "a node did not start",
}


def _gib(number: int | None) -> str:
    if number is None:
        return "not known"
    return f"{number / _GIB:.0f} GiB" if number >= 10 * _GIB else f"{number / _GIB:.1f} GiB"


def _memory(run: Run) -> str:
    """ "at the least 0.4 of 503 GiB were free"; empty where nobody looked."""
    whole = run.memory_limit_bytes or run.memory_total_bytes
    if run.memory_lowest_bytes is None or not whole:
        return ""
    return f"at the least {_gib(run.memory_lowest_bytes)} of {_gib(whole)} were free"


@check(
    Severity.ERROR,
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    role="root",
    kind="kernel",
    same_as=("run_rank_killed", "log_rank_killed", "log_killed_for_memory"),
    tags=("job_state",),
)
def run_out_of_memory(run: Run) -> Answer:
    """The kernel killed a process of the run because the machine's memory, or the job's share of it, was used up.

    Why: Linux ends a process with SIGKILL when nothing more can be had: no traceback, no message in the program's
    output, exit code 137. The other ranks then wait for a rank that is gone.

    Fix: Use less CPU memory (fewer loader workers, no pinned or preloaded data, weights loaded once a machine), or get
    more (--mem of Slurm, the container's limit).
    """
    killed = ranks_by_code(run, -9)
    counted = (run.oom_kills or 0) > 0
    by_slurm = run.slurm == "OUT_OF_MEMORY"
    in_log = bool(killed and run.killed)
    if run.exit_code == 0 or not (counted or by_slurm or in_log):
        return nothing_found(run, "the kernel killed nothing of this run for memory")
    who = rank_name(killed[0]) if killed else "a process of the run"
    told = (
        f"the control group's oom_kill count rose by {run.oom_kills}" if counted else "",
        f"the kernel's log names {run.killed[-1]}" if in_log and run.killed else "",
        "Slurm says OUT_OF_MEMORY" if by_slurm else "",
        _memory(run),
    )
    return Problem(
        f"out of CPU memory: the kernel killed {who}",
        f"{'; '.join(filter(None, told))}. This is the machine's memory, not the GPU's.",
        (
            Fix(
                "use less CPU memory: fewer DataLoader workers (each copies what its dataset holds), no pin_memory, "
                "fsdp_cpu_ram_efficient_loading: true for big models"
            ),
            Fix("or get more: sbatch --mem=0 (all of the node), docker run --memory, a bigger machine"),
        ),
        {
            "oom_kills": run.oom_kills,
            "lowest_free_bytes": run.memory_lowest_bytes,
            "limit_bytes": run.memory_limit_bytes,
            "slurm": run.slurm,
        },
        rank_subjects(killed),
    )


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man7/signal.7.html",
    because_of=("run_out_of_memory",),
    role="root",
    kind="kernel",
    same_as=("log_rank_killed",),
)
def run_rank_killed(run: Run) -> Answer:
    """A rank was ended by SIGKILL, and nothing says that it was for want of memory.

    Why: SIGKILL cannot be caught, so that there is no traceback. It comes from the kernel (memory), from Slurm or a
    container's manager, from an administrator, or from somebody's kill -9.

    Fix: Look who did it: the kernel's log, sacct for a Slurm job, the container's manager; then memory, which it is
    most of the time.
    """
    killed = ranks_by_code(run, -9)
    if not killed:
        return nothing_found(run, "no rank was ended by SIGKILL")
    if (run.oom_kills or 0) > 0 or run.killed or run.slurm == "OUT_OF_MEMORY":
        return Skip("it was for want of memory: run_out_of_memory")
    whole = run.memory_limit_bytes or run.memory_total_bytes
    short = bool(whole and run.memory_lowest_bytes is not None and run.memory_lowest_bytes < _SHORT_SHARE * whole)
    unknown = run.oom_kills is None and run.killed is None
    if short:
        why = f"Memory was short: {_memory(run)}, so the kernel has most likely taken it"
    elif unknown:
        why = "Whether it was for memory cannot be told: neither a counter nor the kernel's log is readable here"
    else:
        why = f"The kernel counted no kill for memory{f'; {_memory(run)}' if _memory(run) else ''}"
    return Problem(
        f"{rank_name(killed[0])} was killed from outside (SIGKILL), without a traceback"
        if not short
        else f"{rank_name(killed[0])} was killed (SIGKILL) when memory was short",
        f"{why}. SIGKILL comes from the kernel, Slurm, a container's manager or a person; the program itself is not "
        "asked.",
        (
            Fix("see who ended it", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix(
                "in a Slurm job, ask what Slurm did", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)
            ),
        ),
        {"exit_code": -9, "oom_kills": run.oom_kills, "lowest_free_bytes": run.memory_lowest_bytes},
        rank_subjects(killed),
    )


def _by_signal(run: Run, codes: tuple[int, ...], what: str, *fixes: Fix) -> Answer:
    """A rank that a signal of its own doing ended."""
    fallen = ranks_by_code(run, *codes)
    if not fallen:
        return nothing_found(run, f"no rank ended by {' or '.join(signal_name(code) for code in codes)}")
    name = signal_name(fallen[0].exit_code or 0)
    title, evidence = f"{rank_name(fallen[0])} {what} ({name})", {"exit_code": fallen[0].exit_code}
    return Problem(title, fix=fixes, evidence=evidence, subjects=rank_subjects(fallen))


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/faulthandler.html",
    role="root",
    kind="kernel",
    same_as=("log_rank_segfault",),
    tags=("last_line",),
)
def run_rank_crashed(run: Run) -> Answer:
    """A rank touched memory that is not its own, and ended with SIGSEGV.

    Why: Compiled code touched memory that is not its own: an extension built for another torch (flash-attn, apex, a
    custom op), two copies of one library, or a bug. Python has no traceback for that.
    More: xformers is such an extension too; or a stack is too small.

    Fix: Let Python write where each thread was, and look at the extension in the last frame.
    """
    return _by_signal(
        run,
        (-11,),
        "crashed in compiled code",
        Fix(
            "run again with PYTHONFAULTHANDLER=1: the log then shows the Python line of every thread",
            ("export PYTHONFAULTHANDLER=1",),
        ),
        Fix("see whether packages fit this torch", ("mgpu doctor",)),
    )


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man3/abort.3.html",
    because_of=("log_collective_timed_out", "log_watchdog_stuck", "log_desynchronised"),
    role="secondary",
    kind="kernel",
    same_as=("log_rank_aborted",),
    tags=("last_line",),
)
def run_rank_aborted(run: Run) -> Answer:
    """A rank ended itself with SIGABRT.

    Why: A C++ exception nobody caught, a failed assertion, a damaged heap, or NCCL's watchdog after a collective timed
    out. The reason stands in the log, above the abort.

    Fix: Read the first error of this rank in the log.
    """
    return _by_signal(
        run,
        (-6,),
        "aborted",
        Fix("read what it wrote last; PYTHONFAULTHANDLER=1 adds the Python line", ("export PYTHONFAULTHANDLER=1",)),
    )


@check(Severity.ERROR, source=_RUN, role="root", kind="kernel", same_as=("log_rank_bus_error",))
def run_rank_bus_error(run: Run) -> Answer:
    """A rank ended with SIGBUS: a file it had mapped into memory could not be had.

    Why: A mapped file could not be had: /dev/shm is full (containers give 64 MiB), or a mapped file (weights, a
    dataset) was cut short or its disk fails.
    More: NCCL and DataLoader workers keep their buffers in /dev/shm.

    Fix: Give the container more shared memory, or look at the file.
    """
    return _by_signal(
        run,
        (-7,),
        "ended by a bus error",
        Fix("give the container shared memory", ("docker run --shm-size=16g ...", "df -h /dev/shm")),
        Fix("see whether /dev/shm is large enough for NCCL", ("mgpu doctor --only storage",)),
    )


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man7/signal.7.html",
    role="root",
    kind="kernel",
    same_as=("log_illegal_instruction", "log_rank_floating_point_signal"),
)
def run_rank_illegal_instruction(run: Run) -> Answer:
    """A rank ended with SIGILL or SIGFPE: the processor could not do what a library asked of it.

    Why: A wheel was built for a newer processor (AVX2, AVX-512), or compiled code divided an integer by zero.

    Fix: Install a wheel that was built for this processor.
    """
    return _by_signal(
        run,
        (-4, -8),
        "ended by an instruction that the processor refused",
        Fix(
            "compare what the processor has with what the package wants; PYTHONFAULTHANDLER=1 names the line",
            ("lscpu | grep -i flags", "export PYTHONFAULTHANDLER=1"),
        ),
    )


@check(
    Severity.ERROR,
    source="https://slurm.schedmd.com/job_state_codes.html",
    role="root",
    kind="scheduler",
    same_as=("log_slurm_time_up", "log_slurm_preempted", "log_slurm_cancelled", "run_rank_terminated"),
    effect_of="job_cancel",
    tags=("job_state",),
)
def run_ended_by_slurm(run: Run) -> Answer:
    """Slurm ended the job: its time was up, or it was preempted or cancelled.

    Why: Slurm sends SIGTERM to all ranks and SIGKILL a little later. What the ranks say then is a consequence.
    More: KillWait is 30 s. The training did nothing wrong.

    Fix: Save checkpoints often enough to go on from; let Slurm warn the training before the limit (--signal=USR1@90).
    """
    if run.exit_code == 0 or run.slurm not in _BY_SLURM:
        return nothing_found(run, f"Slurm says {run.slurm}" if run.slurm else "no Slurm job was ended")
    return Problem(
        f"Slurm ended the job: {_BY_SLURM[run.slurm]} ({run.slurm})",
        fix=Fix("ask who did it, if it was not you", ("sacct -j JOBID -o JobID,State,User,End",))
        if run.slurm == "CANCELLED"
        else Fix(
            "ask for more time, and let Slurm warn the training so that it can save",
            ("sbatch --time=24:00:00 --signal=USR1@90 --requeue ...",),
        ),
        evidence={"slurm": run.slurm},
    )


@check(
    Severity.ERROR,
    source="https://slurm.schedmd.com/sbatch.html",
    because_of=("run_ended_by_slurm",),
    role="secondary",
    kind="scheduler",
    effect_of="stop",
)
def run_rank_terminated(run: Run) -> Answer:
    """Ranks were ended by SIGTERM, SIGHUP or SIGINT that did not come through mgpu.

    Why: Slurm (time limit, preemption), a container's manager or another process sent it. The training did nothing
    wrong.
    More: systemd and another user's kill do it too. When one rank has failed before, its launcher ends the others in
    this way; that does not count here.

    Fix: Ask Slurm (sacct), or whoever runs the machine.
    """
    fallen = fallen_ranks(run)
    if not fallen or any(rank.exit_code not in STOP_SIGNALS for rank in fallen):
        return nothing_found(run, "no rank was ended from outside by SIGTERM")
    name = signal_name(fallen[0].exit_code or 0)
    return Problem(
        f"{rank_name(fallen[0])} was asked to end by {name}, and not through mgpu",
        fix=Fix(
            "ask Slurm, if this is a job of its", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,Elapsed,Timelimit",)
        ),
        evidence={"signal": name},
        subjects=rank_subjects(fallen),
    )
