"""Which signal killed a rank: one from the kernel, from the rank itself, or from outside?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Problem, Severity, Skip, check
from mgpu.snapshot import Log, Run

from ._ended_ranks import (
    STOP_SIGNALS,
    failed_ranks,
    ok_for_run,
    rank_name,
    rank_subjects,
    ranks_by_code,
    signal_name,
)

_RUN = "https://docs.docker.com/reference/cli/docker/container/run/"
_GIB = 1 << 30
_CONSEQUENCES = frozenset({"log_peer_gone", "log_child_failed"})  # what the other ranks and the launcher raise then
_WITHOUT_EXCEPTION = "terminate called without an active exception"
# mgpu samples free memory every half second. The kernel kills when it can reclaim nothing, and a fast allocation can
# use up memory between two samples. If more than this share was free, memory was not the cause.
_SHORT_SHARE = 0.05
_BY_SLURM = {
    "TIMEOUT": "it reached its time limit",
    "PREEMPTED": "a higher-priority job preempted it",
    "NODE_FAIL": "a node failed",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "it reached its deadline",
    "BOOT_FAIL": "a node did not boot",
}


def _gib(number: int | None) -> str:
    if number is None:
        return "unknown"
    return f"{number / _GIB:.0f} GiB" if number >= 10 * _GIB else f"{number / _GIB:.1f} GiB"


def _memory_text(run: Run) -> str:
    """Return "at minimum 0.4 of 503 GiB free"; empty if memory was not sampled."""
    total = run.memory_limit_bytes or run.memory_total_bytes
    if run.memory_lowest_bytes is None or not total:
        return ""
    return f"at minimum {_gib(run.memory_lowest_bytes)} of {_gib(total)} free"


@check(
    Severity.ERROR,
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    role="root",
    kind="kernel",
    same_as=("run_rank_killed", "log_rank_killed", "log_killed_for_memory"),
    tags=("job_state",),
)
def run_out_of_memory(run: Run) -> Answer:
    """The kernel killed a process of the run because the node, or the job's share of it, ran out of memory.

    Why: Linux kills a process with SIGKILL when no memory is left: no traceback, no message in the program's output,
    exit code 137. The other ranks then wait for the killed rank.

    Fix: Use less CPU memory (fewer loader workers, no pinned or preloaded data, weights loaded once per node), or
    request more (Slurm's --mem, the container's limit).
    """
    killed = ranks_by_code(run, -9)
    counted = (run.oom_kills or 0) > 0
    by_slurm = run.slurm == "OUT_OF_MEMORY"
    in_log = bool(killed and run.killed)
    if run.exit_code == 0 or not (counted or by_slurm or in_log):
        return ok_for_run(run, "the kernel killed no process of this run for memory")
    who = rank_name(killed[0]) if killed else "a process of the run"
    signs = (
        f"the control group's oom_kill count rose by {run.oom_kills}" if counted else "",
        f"the kernel log names {run.killed[-1]}" if in_log and run.killed else "",
        "Slurm reports OUT_OF_MEMORY" if by_slurm else "",
        _memory_text(run),
    )
    return Problem(
        f"out of CPU memory: the kernel killed {who}",
        f"{'; '.join(filter(None, signs))}. This is host memory, not GPU memory.",
        (
            Fix(
                "Use less CPU memory: fewer DataLoader workers (each copies its dataset), no pin_memory, "
                "fsdp_cpu_ram_efficient_loading: true for large models."
            ),
            Fix("Or request more: sbatch --mem=0 (all of the node), docker run --memory, a larger node."),
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
    """A rank was killed by SIGKILL, and nothing shows that it ran out of memory.

    Why: SIGKILL cannot be caught, so there is no traceback. It comes from the kernel (memory), Slurm, a container
    manager, an administrator, or a user's kill -9.

    Fix: Find out what sent it: check the kernel log, sacct for a Slurm job, and the container manager. Then check
    memory, the most frequent cause.
    """
    killed = ranks_by_code(run, -9)
    if not killed:
        return ok_for_run(run, "no rank was killed by SIGKILL")
    if (run.oom_kills or 0) > 0 or run.killed or run.slurm == "OUT_OF_MEMORY":
        return Skip("it ran out of memory: run_out_of_memory")
    total = run.memory_limit_bytes or run.memory_total_bytes
    short = bool(total and run.memory_lowest_bytes is not None and run.memory_lowest_bytes < _SHORT_SHARE * total)
    unknown = run.oom_kills is None and run.killed is None
    if short:
        why = f"Memory was low ({_memory_text(run)}), so the kernel most likely killed it"
    elif unknown:
        why = "Could not determine whether memory ran out: neither a counter nor the kernel log is readable here"
    else:
        why = f"The kernel counted no kill for memory{f' ({_memory_text(run)})' if _memory_text(run) else ''}"
    return Problem(
        f"{rank_name(killed[0])} was killed from outside (SIGKILL), without a traceback"
        if not short
        else f"{rank_name(killed[0])} was killed (SIGKILL) when memory was low",
        f"{why}. SIGKILL comes from the kernel, Slurm, a container manager or a user. A program cannot catch it.",
        (
            Fix("Find out what killed it.", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix("In a Slurm job, query Slurm.", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)),
        ),
        {"exit_code": -9, "oom_kills": run.oom_kills, "lowest_free_bytes": run.memory_lowest_bytes},
        rank_subjects(killed),
    )


def _answer_for_signal(run: Run, codes: tuple[int, ...], what: str, *fixes: Fix) -> Answer:
    """Return the answer for ranks that crashed with one of these signals."""
    failed = ranks_by_code(run, *codes)
    if not failed:
        return ok_for_run(run, f"no rank was killed by {' or '.join(signal_name(code) for code in codes)}")
    name = signal_name(failed[0].exit_code or 0)
    title, evidence = f"{rank_name(failed[0])} {what} ({name})", {"exit_code": failed[0].exit_code}
    return Problem(title, fix=fixes, evidence=evidence, subjects=rank_subjects(failed))


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/faulthandler.html",
    role="root",
    kind="kernel",
    same_as=("log_rank_segfault",),
    tags=("last_line",),
)
def run_rank_crashed(run: Run) -> Answer:
    """A rank accessed invalid memory and crashed (SIGSEGV).

    Why: Compiled code accessed invalid memory: an extension built for another torch (flash-attn, apex, a custom op),
    two copies of one library, or a bug. Python prints no traceback for it.
    More: xformers is such an extension too. Or a stack is too small.

    Fix: Let Python print where each thread was, and check the extension in the last frame.
    """
    return _answer_for_signal(
        run,
        (-11,),
        "crashed in compiled code",
        Fix(
            "Run again with PYTHONFAULTHANDLER=1. The log then shows the Python line of every thread.",
            ("export PYTHONFAULTHANDLER=1",),
        ),
        Fix("Check whether packages fit this torch.", ("mgpu doctor",)),
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
    """A rank aborted with SIGABRT.

    Why: The cause is an uncaught C++ exception, a failed assertion, a corrupted heap, or NCCL's watchdog after a
    collective timed out. The reason is in the log, above the abort.

    Fix: Read the first error of this rank in the log.
    """
    return _answer_for_signal(
        run,
        (-6,),
        "aborted",
        Fix("Read its last lines. PYTHONFAULTHANDLER=1 adds the Python line.", ("export PYTHONFAULTHANDLER=1",)),
    )


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/pull/179291",
    role="root",
    kind="kernel",
    same_as=("run_rank_aborted", "log_rank_aborted", "log_heap_corrupted"),
    tags=("last_line",),
)
def run_rank_aborted_at_exit(run: Run, log: Log) -> Answer:
    """A rank aborted while its Python exited, after the script had ended, because its process group still existed.

    Why: Threads of gloo still hold tensors. If Python is shutting down when they release them, they cannot acquire its
    lock, and C++ stops the process: "terminate called without an active exception". Whether it happens is a matter of
    timing.
    More: What the script saved before is complete. The exit code is 134, so a scheduler reports a failed run.

    Fix: Destroy the process group at the end of the script.
    More: accelerate's end_training() does so too.
    """
    failed = ranks_by_code(run, -6)
    own = [one for one in log.raised if not (one.caught or one.of_launcher or _CONSEQUENCES & set(one.signatures))]
    if not failed or own or _WITHOUT_EXCEPTION not in (log.last or ""):
        return ok_for_run(run, "no rank aborted at its exit")
    return Problem(
        f"{rank_name(failed[0])} aborted, probably at its exit with the process group still open",
        "No error came before it. Python was probably shutting down while threads of gloo still held tensors.",
        fix=(
            Fix(
                "Destroy the process group at the end of the script, and check that the last output is that of a "
                "finished run.",
                ("torch.distributed.destroy_process_group()",),
            ),
        ),
        evidence={"exit_code": -6},
        subjects=rank_subjects(failed),
    )


@check(Severity.ERROR, source=_RUN, role="root", kind="kernel", same_as=("log_rank_bus_error",))
def run_rank_bus_error(run: Run) -> Answer:
    """A rank crashed with SIGBUS: a memory-mapped file could not be read.

    Why: /dev/shm is full (containers get 64 MiB by default), or a mapped file (weights, a dataset) was truncated or its
    disk fails.
    More: NCCL and DataLoader workers keep their buffers in /dev/shm.

    Fix: Give the container more shared memory, or check the file.
    """
    return _answer_for_signal(
        run,
        (-7,),
        "crashed with a bus error",
        Fix("Give the container more shared memory.", ("docker run --shm-size=16g ...", "df -h /dev/shm")),
        Fix("Check whether /dev/shm is large enough for NCCL.", ("mgpu doctor --only storage",)),
    )


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man7/signal.7.html",
    role="root",
    kind="kernel",
    same_as=("log_illegal_instruction", "log_rank_floating_point_signal"),
)
def run_rank_illegal_instruction(run: Run) -> Answer:
    """A rank crashed with SIGILL or SIGFPE: a library ran an instruction that the CPU could not execute.

    Why: A wheel was built for a newer CPU (AVX2, AVX-512), or compiled code divided an integer by zero.

    Fix: Install a wheel built for this CPU.
    """
    return _answer_for_signal(
        run,
        (-4, -8),
        "crashed on an instruction that the CPU could not execute",
        Fix(
            "Compare the CPU's features with what the package requires. PYTHONFAULTHANDLER=1 shows the Python line.",
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
    """Slurm stopped the job: it reached its time limit, or was preempted or cancelled.

    Why: Slurm sends SIGTERM to all ranks, and SIGKILL shortly after. What the ranks print then is a consequence.
    More: KillWait is 30 s. The training script is not at fault.

    Fix: Save checkpoints often enough to resume, and let Slurm send a signal before the limit (--signal=USR1@90).
    """
    if run.exit_code == 0 or run.slurm not in _BY_SLURM:
        return ok_for_run(run, f"Slurm reports {run.slurm}" if run.slurm else "Slurm stopped no job")
    return Problem(
        f"Slurm stopped the job: {_BY_SLURM[run.slurm]} ({run.slurm})",
        fix=Fix("If you did not cancel it, find out who did.", ("sacct -j JOBID -o JobID,State,User,End",))
        if run.slurm == "CANCELLED"
        else Fix(
            "Request more time, and let Slurm send a signal before the limit, so that the script can save.",
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
    """Ranks were stopped by SIGTERM, SIGHUP or SIGINT that mgpu did not send.

    Why: Slurm (time limit, preemption), a container manager or another process sent it. The training script is not at
    fault.
    More: systemd and another user's kill do so too. When one rank fails, its launcher stops the others this way. That
    does not count here.

    Fix: Check Slurm (sacct), or contact the administrator.
    """
    failed = failed_ranks(run)
    if not failed or any(rank.exit_code not in STOP_SIGNALS for rank in failed):
        return ok_for_run(run, "no rank was stopped from outside by SIGTERM")
    name = signal_name(failed[0].exit_code or 0)
    return Problem(
        f"{rank_name(failed[0])} was stopped by {name}, which mgpu did not send",
        fix=Fix("In a Slurm job, query Slurm.", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,Elapsed,Timelimit",)),
        evidence={"signal": name},
        subjects=rank_subjects(failed),
    )
