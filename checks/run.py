"""How did a launched training end, and what does that say of the cause? By exit codes, the kernel and Slurm; what the
log says stands in `log`."""

from __future__ import annotations

import re

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import SIGNAL_NAMES, EndedRank, Run

from ._xid import XIDS

FAMILY = Family(of_a_run=True)
_GIB = 1 << 30
# mgpu: what was free at the least, of samples half a second apart. The kernel kills when nothing can be reclaimed, and
# memory that is taken fast is gone between two samples; above this share there was room.
_SHORT_SHARE = 0.05
# torchrun gives the ranks that it ends 30 s, then it kills them (torch/distributed/elastic/multiprocessing/api.py).
_KILLS_AFTER_S = 20.0
# A rank that is done this long before the others has left them; ranks that save or evaluate differ by less.
_EARLY_S = 120.0
# Of signals that end a process and that no other check here explains; signal(7), setrlimit(2).
_SIGNAL_MEANS = {
    5: "a trap: a failed assertion of a library, or a debugger's breakpoint",
    10: "somebody sent it (Slurm warns so before the time limit), and the script does not handle it",
    12: "somebody sent it (Slurm warns so before the time limit), and the script does not handle it",
    13: "what read its output was gone",
    14: "a timer that the script or a library had set",
    24: "its CPU time limit, ulimit -t",
    25: "its limit of a file's size, ulimit -f",
    31: "a system call that the container's or the machine's sandbox (seccomp) does not allow",
}
_BY_OTHERS = frozenset({-4, -6, -7, -8, -9, -11})  # exit codes of which another check tells, whatever else happened
_ASKED = frozenset({-1, -2, -3, -15})  # run_rank_terminated
_BY_SLURM = {
    "TIMEOUT": "its time limit was reached",
    "PREEMPTED": "a job of higher priority took its place",
    "NODE_FAIL": "a node failed",
    "CANCELLED": "somebody cancelled it",
    "DEADLINE": "its deadline was reached",
    "BOOT_FAIL": "a node did not start",
}
_HARDWARE = frozenset({"memory", "link", "firmware", "reset", "bus", "board"})
_UNINTERRUPTIBLE = "in uninterruptible sleep"
_EXIT = "mgpu: exit codes as the shell has them, https://docs.python.org/3/library/subprocess.html"


def _fell(run: Run) -> tuple[EndedRank, ...]:
    """The ranks that fell by themselves, the first failure first: not those that somebody ended afterwards."""
    if run.exit_code == 0:
        return ()
    stopped = run.signalled is not None or run.timed_out
    fell = [r for r in run.ranks if r.exit_code and (not stopped or r.gone_s is not None)]
    first = next((r for r in fell if r.first and r.gone_s is not None), None)
    if first is not None and first.gone_s is not None:
        until = first.gone_s + _KILLS_AFTER_S
        fell = [r for r in fell if r.first or (run.seconds if r.gone_s is None else r.gone_s) < until]
    own = [r for r in fell if r.exit_code != -15]
    return tuple(sorted(own or ([] if stopped else fell), key=lambda r: (not r.first, r.gone_s or 0.0, r.rank)))


def _by(run: Run, *codes: int) -> tuple[EndedRank, ...]:
    """The fallen ranks of these exit codes, where the launcher's first failure is no other kind of end."""
    return tuple(rank for rank in _fell(run) if rank.exit_code in codes)


def _who(rank: EndedRank) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"rank {rank.rank} (GPU {rank.gpu})"


def _signal(code: int) -> str:
    """The name of the signal that ended a process with this exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}")


def _subjects(ranks: tuple[EndedRank, ...]) -> tuple[str, ...]:
    return tuple(f"rank {rank.rank}" for rank in ranks)


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


def _none(run: Run, what: str) -> Ok:
    return Ok(f"{what} (exit {run.exit_code}, {len(run.ranks)} rank{'s' * (len(run.ranks) != 1)})")


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
    killed = _by(run, -9)
    counted = (run.oom_kills or 0) > 0
    by_slurm = run.slurm == "OUT_OF_MEMORY"
    in_log = bool(killed and run.killed)
    if run.exit_code == 0 or not (counted or by_slurm or in_log):
        return _none(run, "the kernel killed nothing of this run for memory")
    who = _who(killed[0]) if killed else "a process of the run"
    told = []
    if counted:
        told.append(f"the control group's oom_kill count rose by {run.oom_kills}")
    if in_log and run.killed:
        told.append(f"the kernel's log names {run.killed[-1]}")
    if by_slurm:
        told.append("Slurm says OUT_OF_MEMORY")
    memory = _memory(run)
    return Problem(
        f"out of CPU memory: the kernel killed {who}",
        f"{'; '.join(told)}{f'; {memory}' if memory else ''}. This is the machine's memory, not the GPU's.",
        (
            Fix("use less CPU memory: fewer DataLoader workers (each copies what its dataset holds), no pin_memory, "
                "fsdp_cpu_ram_efficient_loading: true for big models"),
            Fix("or get more: sbatch --mem=0 (all of the node), docker run --memory, a bigger machine"),
        ),
        {"oom_kills": run.oom_kills, "lowest_free_bytes": run.memory_lowest_bytes,
         "limit_bytes": run.memory_limit_bytes, "slurm": run.slurm},
        _subjects(killed),
    )  # fmt: skip


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
    killed = _by(run, -9)
    if not killed:
        return _none(run, "no rank was ended by SIGKILL")
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
        f"{_who(killed[0])} was killed from outside (SIGKILL), without a traceback"
        if not short
        else f"{_who(killed[0])} was killed (SIGKILL) when memory was short",
        f"{why}. SIGKILL comes from the kernel, Slurm, a container's manager or a person; the program itself is not "
        "asked.",
        (
            Fix("see who ended it", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix(
                "in a Slurm job, ask what Slurm did", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)
            ),
        ),
        {"exit_code": -9, "oom_kills": run.oom_kills, "lowest_free_bytes": run.memory_lowest_bytes},
        _subjects(killed),
    )


def _by_signal(run: Run, codes: tuple[int, ...], what: str, why: str, *fixes: Fix) -> Answer:
    """A rank that a signal of its own doing ended."""
    fallen = _by(run, *codes)
    if not fallen:
        return _none(run, f"no rank ended by {' or '.join(_signal(code) for code in codes)}")
    name = _signal(fallen[0].exit_code or 0)
    return Problem(f"{_who(fallen[0])} {what} ({name})", why, fixes, {"exit_code": fallen[0].exit_code},
                   _subjects(fallen))  # fmt: skip


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

    Why: Compiled code failed: an extension built for another torch (flash-attn, apex, xformers, a custom op), a stack
    that is too small, or a bug in a library. Python has no traceback for it.

    Fix: Let Python write where each thread was, and look at the extension in the last frame.
    """
    return _by_signal(
        run, (-11,), "crashed in compiled code",
        "Compiled code touched memory that is not its own: an extension built for another torch (flash-attn, apex, a "
        "custom op), two copies of one library, or a bug. Python has no traceback for that.",
        Fix("run again with PYTHONFAULTHANDLER=1: the log then shows the Python line of every thread",
            ("export PYTHONFAULTHANDLER=1",)),
        Fix("see whether packages fit this torch", ("mgpu doctor",)),
    )  # fmt: skip


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

    Why: A C++ exception that nobody caught, a failed assertion in a library, glibc's check of its heap, or NCCL's
    watchdog, which ends the process after a collective has timed out. The log has the reason a few lines above.

    Fix: Read the first error of this rank in the log.
    """
    return _by_signal(
        run, (-6,), "aborted",
        "A C++ exception nobody caught, a failed assertion, a damaged heap, or NCCL's watchdog after a collective "
        "timed out. The reason stands in the log, above the abort.",
        Fix("read what it wrote last; PYTHONFAULTHANDLER=1 adds the Python line", ("export PYTHONFAULTHANDLER=1",)),
    )  # fmt: skip


@check(
    Severity.ERROR,
    source="https://docs.docker.com/reference/cli/docker/container/run/",
    role="root",
    kind="kernel",
    same_as=("log_rank_bus_error",),
)
def run_rank_bus_error(run: Run) -> Answer:
    """A rank ended with SIGBUS: a file it had mapped into memory could not be had.

    Why: /dev/shm is full (NCCL and DataLoader workers keep their buffers there; containers give 64 MiB), or a file that
    was mapped (weights, a memory-mapped dataset) was truncated or lies on a disk that fails.

    Fix: Give the container more shared memory, or look at the file.
    """
    return _by_signal(
        run, (-7,), "ended by a bus error",
        "A mapped file could not be had: /dev/shm is full (containers give 64 MiB), or a mapped file (weights, a "
        "dataset) was cut short or its disk fails.",
        Fix("give the container shared memory", ("docker run --shm-size=16g ...", "df -h /dev/shm")),
        Fix("see whether /dev/shm is large enough for NCCL", ("mgpu doctor --only storage",)),
    )  # fmt: skip


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man7/signal.7.html",
    role="root",
    kind="kernel",
    same_as=("log_illegal_instruction", "log_rank_floating_point_signal"),
)
def run_rank_illegal_instruction(run: Run) -> Answer:
    """A rank ended with SIGILL or SIGFPE: the processor could not do what a library asked of it.

    Why: A wheel was built for a newer processor (AVX-512, AVX2), or an integer was divided by zero in compiled code.

    Fix: Install a wheel that was built for this processor.
    """
    return _by_signal(
        run, (-4, -8), "ended by an instruction that the processor refused",
        "A wheel was built for a newer processor (AVX2, AVX-512), or compiled code divided an integer by zero.",
        Fix("compare what the processor has with what the package wants; PYTHONFAULTHANDLER=1 names the line",
            ("lscpu | grep -i flags", "export PYTHONFAULTHANDLER=1")),
    )  # fmt: skip


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

    Why: Slurm sends SIGTERM to every process of the job, and SIGKILL a little later (KillWait, 30 s). The training did
    nothing wrong.

    Fix: Save checkpoints often enough to go on from; let Slurm warn the training before the limit (--signal=USR1@90).
    """
    if run.exit_code == 0 or run.slurm not in _BY_SLURM:
        return _none(run, f"Slurm says {run.slurm}" if run.slurm else "no Slurm job was ended")
    return Problem(
        f"Slurm ended the job: {_BY_SLURM[run.slurm]} ({run.slurm})",
        "Slurm sends SIGTERM to all ranks and SIGKILL a little later. What the ranks say then is a consequence.",
        Fix("ask who did it, if it was not you", ("sacct -j JOBID -o JobID,State,User,End",))
        if run.slurm == "CANCELLED"
        else Fix("ask for more time, and let Slurm warn the training so that it can save",
                 ("sbatch --time=24:00:00 --signal=USR1@90 --requeue ...",)),
        {"slurm": run.slurm},
    )  # fmt: skip


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

    Why: Somebody else asked them to end: Slurm (time limit, preemption), a container's manager, systemd, another user's
    kill. When one rank has failed before, its launcher ends the others in this way; that does not count here.

    Fix: Ask Slurm (sacct), or whoever runs the machine.
    """
    fallen = _fell(run)
    if not fallen or any(rank.exit_code not in _ASKED for rank in fallen):
        return _none(run, "no rank was ended from outside by SIGTERM")
    name = _signal(fallen[0].exit_code or 0)
    return Problem(
        f"{_who(fallen[0])} was asked to end by {name}, and not through mgpu",
        "Slurm (time limit, preemption), a container's manager or another process sent it. The training did "
        "nothing wrong.",
        Fix(
            "ask Slurm, if this is a job of its", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,Elapsed,Timelimit",)
        ),
        {"signal": name},
        _subjects(fallen),
    )


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/argparse.html#exiting-methods",
    role="secondary",
    kind="launcher",
)
def run_arguments_wrong(run: Run) -> Answer:
    """The script, or its launcher, refused its arguments and ended with 2.

    Why: argparse and click end with 2 after they have said what they do not know; python does when it cannot open the
    script.

    Fix: Read the usage in the output, and correct the arguments behind the script's name.
    """
    first = _fell(run)[:1]
    code = first[0].exit_code if first else run.exit_code if not run.ranks else None
    if code != 2 or run.signalled or run.timed_out:
        return _none(run, "arguments were not refused")
    return Problem(
        "arguments were refused (exit code 2)",
        "A program ends with 2 when it does not know an argument, or misses one; its usage stands in the output.",
        Fix("correct the arguments behind the script's name; --help there is the script's own"),
        {"exit_code": 2},
        _subjects(first),
    )


@check(Severity.ERROR, source=_EXIT, role="root", kind="launcher")
def run_launcher_killed(run: Run) -> Answer:
    """The launcher itself was killed by a signal, and no rank had failed before.

    Why: Its ranks are nobody's then: they train on, and the launcher can tell nothing. SIGKILL comes from the kernel
    (memory), from Slurm, or from somebody's kill -9.

    Fix: Look who did it: the kernel's log, sacct for a Slurm job.
    """
    fell = any(rank.exit_code for rank in run.ranks)
    if run.launcher_code >= 0 or fell or run.signalled or run.timed_out:
        return _none(run, "the launcher was not killed before its ranks")
    name = _signal(run.launcher_code)
    short = (run.oom_kills or 0) > 0 or bool(run.killed) or run.slurm == "OUT_OF_MEMORY"
    if short:
        return Skip("it was for want of memory: run_out_of_memory")
    return Problem(
        f"the launcher itself was killed ({name}), not a rank",
        "The ranks were still at work, and were ended with it. No traceback is left by that; the program is not what "
        "failed.",
        (
            Fix("see who ended it", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix(
                "in a Slurm job, ask what Slurm did", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)
            ),
        ),
        {"launcher_code": run.launcher_code},
    )


@check(
    Severity.ERROR,
    source="mgpu: a launcher that ends with an error before any rank was seen under it",
    role="wrapper",
    kind="launcher",
)
def run_launcher_failed(run: Run) -> Answer:
    """The launcher ended with an error before it had started a single rank.

    Why: It refused its config or its arguments, could not import, could not meet the other machines, or its port was
    taken. Nothing of the training has run.

    Fix: Read the launcher's own error, the last lines of the output.
    """
    if not run.watched:
        return Skip("it ran elsewhere: nobody saw whether it started a rank")
    if run.exit_code == 0 or run.ranks or run.signalled or run.timed_out:
        return _none(run, "the launcher started its ranks")
    return Problem(
        f"the launcher ended with {run.exit_code} before it started a rank",
        "It refused its config, could not be imported, could not meet the other machines, or its port was taken. "
        "Nothing of the training has run.",
        Fix("read the last lines of the output, and validate the config", ("mgpu configure --validate",)),
        {"launcher_code": run.launcher_code},
    )


@check(Severity.ERROR, source=_EXIT, role="wrapper", kind="script", tags=("last_line",))
def run_rank_failed(run: Run) -> Answer:
    """A rank ended with an exit code that is not 0, or by a signal of which no other check tells.

    Why: A Python exception ends a process with 1; any other number is the script's own (sys.exit). A signal comes from
    a limit (ulimit), from a sandbox, or from somebody who sent it.

    Fix: Read what this rank wrote last, or what the script means by that number.
    """
    fallen = tuple(rank for rank in _fell(run) if rank.exit_code not in _BY_OTHERS | _ASKED)
    if not fallen:
        return _none(run, "no rank ended itself with an error")
    first = fallen[0]
    code = first.exit_code or 0
    said = f": {first.error}" if first.error else ""
    if code < 0:
        means = _SIGNAL_MEANS.get(-code, "somebody sent it, or the kernel did")
        how = f"was ended by {_signal(code)}: {means}"
        why = f"{_signal(code)} ends a process at once, without a traceback"
    else:
        how = f"ended with exit code {code}{said}"
        why = "A Python exception, or sys.exit(1)" if code == 1 else "The script's own sys.exit, or a library's"
    return Problem(
        f"{_who(first)} {how}",
        f"{why}. Nothing else that mgpu knows was found in what it wrote.",
        Fix("read what it wrote last; each rank's own file makes that easier" if len(run.ranks) > 1
            else "read what it wrote last"),
        {"exit_code": first.exit_code, "error": first.error},
        _subjects(fallen),
    )  # fmt: skip


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html", role="root", kind="xid")
def run_gpu_fell_out(run: Run) -> Answer:
    """The driver reported a fault of a GPU (Xid) while the training ran.

    Why: The Xid is what the driver saw first: memory that cannot be corrected, a link, the GPU's firmware, or the bus.
    What CUDA and NCCL report afterwards are its consequences.

    Fix: Do what NVIDIA's catalogue says for the number; train on the other GPUs until then.
    """
    if run.xids is None:
        return Skip("the kernel's log is not readable by this user, so Xids are not known")
    for text in run.xids:
        number = re.match(r"\d+", text)
        known = XIDS.get(int(number[0])) if number else None
        if run.exit_code and known and known.kind in _HARDWARE:
            return Problem(
                f"a GPU failed: Xid {text}",
                f"Xid {known.code}: {known.meaning}. What CUDA and NCCL say after it are consequences.",
                (
                    Fix(known.action, ("sudo nvidia-smi -q | less",), who="admin"),
                    Fix("leave that GPU out until then", ("mgpu launch --gpus LIST ...",)),
                ),
                {"xid": known.code},
            )
    return Ok(f"no Xid of hardware in the kernel's log meanwhile ({len(run.xids)} of other kinds)")


@check(
    Severity.ERROR,
    source="mgpu: the state of each rank at the moment of the signal, from /proc",
    role="root",
    kind="timeout",
    tags=("silent_rank",),
)
def run_rank_silent(run: Run) -> Answer:
    """A run was stopped by hand while one rank did nothing and the others waited for it.

    Why: A collective waits for its slowest member. A rank that is stopped (SIGSTOP, a debugger, Ctrl-Z), that hangs in
    the kernel (a dead NFS server, a GPU that does not answer) or that uses no processor while the others spin is the
    one they wait for.

    Fix: Look at that rank: what it wrote last, where it stands (py-spy dump), and its disk and GPU.
    """
    if run.signalled is None and not run.timed_out:
        return Ok("the run was not stopped by hand")
    known = [rank for rank in run.ranks if rank.state is not None]
    if not known:
        return Skip("the ranks' states were not seen when the run was stopped")
    silent = [rank for rank in known if rank.state in ("stopped", "traced", _UNINTERRUPTIBLE, "ended")]
    words = f"is {silent[0].state}" if silent else ""
    if silent and silent[0].state == "stopped":
        words = "is stopped (SIGSTOP)"
    if not silent:
        silent = [rank for rank in known if rank.idle]
        words = "does nothing while the others wait busily"
        if len(silent) != 1 or len(known) < 3:
            return Ok(f"{len(known)} ranks were there, none of them alone in being silent")
    return Problem(
        f"{_who(silent[0])} {words}",
        "The others wait for it in a collective; that somebody ended the run is a consequence of the hang, not its "
        "cause.",
        Fix("look at that rank: its last lines, its disk, its GPU; and where it stands in the code",
            (shell("py-spy dump --pid {:pid}", silent[0].pid) if silent[0].pid else "py-spy dump --pid PID",)),
        {"state": silent[0].state, "signal": run.signalled},
        _subjects(tuple(silent)),
    )  # fmt: skip


@check(Severity.ERROR, source="mgpu: --timeout of mgpu launch", role="secondary", kind="timeout", tags=("time_limit",))
def run_timed_out(run: Run) -> Answer:
    """The run took longer than --timeout allows, and was ended.

    Why: It hangs, or needs more time than was given.

    Fix: Give it more time, or find out what it waits for.
    """
    if not run.timed_out:
        return Ok(f"the run ended by itself after {run.seconds:,.0f} s")
    return Problem(
        f"--timeout ended the run after {run.seconds:,.0f} s",
        "It hangs, or needs more time than it was given.",
        Fix("give it more time, or see whether the ranks can train together at all", ("mgpu smoke-test",)),
        {"seconds": run.seconds},
    )


@check(
    Severity.INFO,
    source="mgpu: a signal that was forwarded to the launcher",
    role="wrapper",
    kind="timeout",
    same_as=("log_interrupted", "log_asked_to_end", "log_terminal_closed"),
    tags=("user_stop",),
)
def run_stopped(run: Run) -> Answer:
    """The run was stopped by a signal: Ctrl-C, kill, or the end of its terminal.

    Why: mgpu hands these signals on to the launcher, which ends its ranks.

    Fix: Nothing, where it was meant; a run that outlives its terminal is started with --detach.
    """
    if run.signalled is None:
        return Ok("nobody stopped the run")
    how = {
        "SIGINT": "Ctrl-C or kill -INT",
        "SIGHUP": "its terminal was closed",
        "SIGTERM": "kill, or a service manager",
    }
    lost = run.signalled == "SIGHUP"
    return Problem(
        f"stopped by {run.signalled}" + (f": {how[run.signalled]}" if run.signalled in how else ""),
        "The signal was handed on to the launcher, which ended its ranks.",
        Fix("start it so that it outlives the terminal", ("mgpu launch --detach ...",))
        if lost
        else Fix("nothing, if you meant it"),
        {"signal": run.signalled},
    )


@check(
    Severity.WARNING,
    source="mgpu: when each rank's process was seen to be gone",
    role="secondary",
    kind="timeout",
    tags=("ranks_done",),
)
def run_rank_left_early(run: Run) -> Answer:
    """A rank was done long before the others, without an error.

    Why: Ranks that train together end together. One that leaves early had less data, returned early or was sent out by
    sys.exit(0): the others wait for it in their next collective, or go on without its share of the data.

    Fix: Let every rank take the same number of steps (drop_last, the same length on every rank, Join).
    """
    gone = [rank for rank in run.ranks if rank.gone_s is not None and not rank.exit_code]
    first = next((rank for rank in run.ranks if rank.first and rank.exit_code), None)
    before = [rank for rank in gone if first and (rank.gone_s or 0.0) <= (first.gone_s or run.seconds)]
    if before and first and not run.signalled and not run.timed_out:
        return Problem(
            f"{_who(before[0])} had ended without an error when {_who(first)} failed",
            "Ranks that train together end together: what the others say of a lost connection, or of a wait that was "
            "too long, is the consequence.",
            Fix("look for what lets one rank leave: sys.exit or return behind a condition, fewer batches than the "
                "others (drop_last=True, a sampler of the same length on every rank)"),
            {"gone_s": before[0].gone_s, "seconds": run.seconds},
            _subjects(tuple(before)),
        )  # fmt: skip
    early = [rank for rank in gone if rank.gone_s is not None and run.seconds - rank.gone_s > _EARLY_S]
    if not early or len(early) == len(run.ranks):
        return _none(run, "no rank left long before the others")
    one = min(early, key=lambda rank: rank.gone_s or 0.0)
    return Problem(
        f"{_who(one)} was done {run.seconds - (one.gone_s or 0.0):,.0f} s before the others, without an error",
        "Ranks that train together end together. The others then wait for it in a collective, or go on without it.",
        Fix("give every rank the same number of steps: drop_last=True, a sampler of the same length on every rank"),
        {"gone_s": one.gone_s, "seconds": run.seconds},
        _subjects(tuple(early)),
    )


@check(Severity.WARNING, source="mgpu: processes with this run's mark after the launcher had ended")
def run_left_processes(run: Run) -> Answer:
    """Processes of the run were still there when the launcher had ended, and mgpu ended them.

    Why: A rank that starts helpers of its own (loaders, servers, loggers) and is killed leaves them; they would keep
    GPU memory and ports.

    Fix: Nothing now; where it happens at every end, let the script end what it starts.
    """
    if not run.left_over or run.signalled or run.timed_out:
        return _none(run, "nothing was left behind")
    return Problem(
        f"{run.left_over} process{'es' * (run.left_over > 1)} of the run had to be ended afterwards",
        "They would have kept GPU memory and ports from the next run.",
        Fix("nothing now; let the script end what it starts (loaders, servers)"),
        {"left_over": run.left_over},
    )
