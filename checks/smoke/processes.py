"""Did every rank run to completion, and if not, which rank is the cause?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted

from ._causes import CAUSES, KINDS, LOST
from ._rank_states import (
    TORCH,
    exited_ranks,
    frozen_ranks,
    killed_ranks,
    last_line,
    last_progress,
    no_rank_started,
    own_failure,
    own_failures,
    rank_name,
    report_of,
    signal_name,
    stage_of,
)
from ._stack_dumps import python_location

_CGROUP = "https://www.kernel.org/doc/html/latest/admin-guide/cgroup-v2.html#memory-interface-files"
_ERRORS = "https://pytorch.org/docs/stable/elastic/errors.html"
_KILL = -9
_WHO_STOPPED_IT = (
    "Find out what stopped it: a debugger, the scheduler, SIGSTOP, or a device that hangs in the kernel. "
    "The next time it hangs, list stopped or stuck processes:"
)


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man7/signal.7.html")
def rank_frozen(ranks: Ranks) -> Answer:
    """A rank's process is stopped or no longer running.

    Why: its heartbeat stopped while the process was alive: stopped by SIGSTOP or a debugger, suspended by the
    scheduler, swapped out, or stuck in the kernel. The others wait for it in their next collective.

    Fix: find out what stopped it.
    """
    frozen = frozen_ranks(ranks)
    if frozen:
        return _frozen_problem(frozen, ranks)
    if no_rank_started(ranks):
        return Skip("no rank was started")
    return Ok(f"{counted(len(ranks.ranks), 'rank')} kept running")


def _frozen_problem(frozen: list[Rank], ranks: Ranks) -> Problem:
    rank, where = frozen[0], stage_of(frozen[0], ranks)
    silent = f"{rank.silent_s or ranks.stall_limit_s:.0f} s"
    stopped = rank.process_state in ("stopped", "traced")
    state = f"is {rank.process_state}" if stopped else f"is not running (no heartbeat for {silent})"
    collective = next((r.collective for r in ranks.ranks if r.collective and r not in frozen), None)
    return Problem(
        f'{rank_name(rank)} {state} in stage "{where}"',
        f"{last_progress(rank)}, then no heartbeat for {silent}. The others wait "
        f"for it{f' in {collective}' if collective else ''}. {_stack_sentence(rank)}",
        Fix(_WHO_STOPPED_IT, ("ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /^[TtD]/'",)),
        {
            "rank": rank.rank,
            "rung": where,
            "pid": rank.pid,
            "host": rank.host,
            "state": rank.process_state,
            "last_word": rank.last_word,
            "collective": collective,
            "stack": python_location(rank),
            "stack_from": rank.stack_from,
            "kernel_wait": rank.kernel_wait,
        },
        tuple(f"rank {r.rank}" for r in frozen),
    )


def _stack_sentence(rank: Rank) -> str:
    """Return the Python or kernel location of a rank that is not running, as a sentence."""
    if at := python_location(rank):
        return f"Python stack{' (after SIGCONT)' if rank.stack_from == 'woken' else ''}: {at}."
    kernel = f" It is waiting in the kernel in {rank.kernel_wait}." if rank.kernel_wait else ""
    return f"It did not respond, so no stack is available.{kernel}"


@check(Severity.ERROR, source=_CGROUP, because_of=("rank_frozen",))
def rank_out_of_memory(ranks: Ranks) -> Answer:
    """A rank ran out of memory, or was killed by the OOM killer.

    Why: every rank needs its own GPU and host memory. With a shell limit (ulimit -v) or a full GPU, the allocation
    fails. At the limit of a container or Slurm job (cgroup), or if the machine has no free memory, the process is
    killed without a message.

    Fix: give the run more memory, or use less: fewer ranks, fewer loader workers, a smaller micro-batch.
    """
    if rank := own_failure(ranks, "out_of_memory"):
        return _refused_memory(rank, ranks)
    killed = [rank for rank in killed_ranks(ranks) if rank.exit_code == _KILL]
    if not killed or not ranks.killed_for_memory:
        return Ok("no rank ran out of memory")
    rank, where, many = killed[0], stage_of(killed[0], ranks), ranks.killed_for_memory
    return Problem(
        f'{rank_name(rank)} was killed by the OOM killer (out of memory) in stage "{where}"',
        f"It got SIGKILL, and the OOM killer killed {counted(many, 'process', 'processes')} in its control group "
        f"(container, job or session) during the run. {last_progress(rank)}.",
        Fix(
            "Check the limit of the container or job, and the kernel log.",
            ("cat /sys/fs/cgroup/memory.max", "sudo dmesg | grep -i 'killed process'"),
        ),
        {"rank": rank.rank, "rung": where, "where": "host", "killed_for_memory": many},
        (f"rank {rank.rank}",),
    )


def _refused_memory(rank: Rank, ranks: Ranks) -> Problem:
    gpu, where = rank.evidence.get("where") == "gpu", stage_of(rank, ranks)
    asked, free = rank.evidence.get("asked"), rank.evidence.get("free_mib")
    title = f'{rank_name(rank)} ran out of {"GPU" if gpu else "host"} memory in stage "{where}"'
    cause = f"{free} MiB of GPU memory were free. " if free is not None else ""
    limits = ("ulimit -v", "cat /sys/fs/cgroup/memory.max", "free -g")
    check_limits = Fix("Check the limits of the shell and of the container or job, and the free memory.", limits)
    return Problem(
        title + (f" (requested {asked})" if asked else ""),
        f"{cause}{last_progress(rank)}. {rank.error or 'Out of memory'}",
        Fix("Check which other processes use the GPU.", ("nvidia-smi",)) if gpu else check_limits,
        {
            "rank": rank.rank,
            "rung": where,
            "where": "gpu" if gpu else "host",
            "asked": asked,
            "free_mib": free,
            "error": rank.error,
        },
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_ERRORS, because_of=("rank_frozen", "rank_out_of_memory"))
def rank_killed(ranks: Ranks) -> Answer:
    """A rank was killed by a signal.

    Why: SIGKILL without a message comes from the OOM killer, the scheduler, or a user; SIGSEGV, SIGBUS and SIGABRT
    are crashes in a library. The other ranks fail shortly after, because the rank is missing.

    Fix: Check its output, and after SIGKILL whether the OOM killer killed it.
    """
    killed = killed_ranks(ranks)
    if killed:
        rank, where = killed[0], stage_of(killed[0], ranks)
        name = signal_name(rank.exit_code or 0)
        # A crash explains itself in the output, SIGKILL only in the kernel's log.
        kernel, output = "sudo dmesg | grep -i 'killed process'", shell("cat {:path}/launcher.log", ranks.folder)
        return Problem(
            f'{rank_name(rank)} was killed by {name} in stage "{where}"',
            f"{last_progress(rank)}. Errors of other ranks are consequences.",
            commands(kernel, output) if rank.exit_code == _KILL else commands(output, kernel),
            {
                "rank": rank.rank,
                "rung": where,
                "pid": rank.pid,
                "host": rank.host,
                "signal": name,
                "last_word": rank.last_word,
            },
            tuple(f"rank {r.rank}" for r in killed),
        )
    return Ok("no rank was killed by a signal")


@check(Severity.ERROR, source=_ERRORS, because_of=("launcher_killed", "rank_frozen", "rank_killed"))
def rank_exited(ranks: Ranks) -> Answer:
    """A rank's process exited by itself in the middle of a stage.

    Why: Code in that process called sys.exit or os._exit; exit code 0 does not make it a success. The other ranks
    lose their connection to it, or wait for it.

    Fix: Find the call: in a library, a sitecustomize.py, or a plugin that this rank imports.
    """
    gone = exited_ranks(ranks)
    if not gone:
        return Ok("no rank exited before it passed all stages")
    rank, where = gone[0], stage_of(gone[0], ranks)
    code = rank.evidence.get("code") if rank.kind == "exited" else rank.exit_code
    how = f"with code {code}" if code is not None else "by itself"
    said = f"{rank.error}. " if rank.kind == "exited" else ""
    return Problem(
        f'{rank_name(rank)} exited {how} in stage "{where}" at "{rank.last_word}"',
        f"{said}The errors of other ranks are consequences.",
        commands(
            shell("cat {:path}/launcher.log", ranks.folder),
            shell("cat {:path}/rank{:number}.jsonl", ranks.folder, rank.rank),
        ),
        {"rank": rank.rank, "rung": where, "code": code, "last_word": rank.last_word},
        tuple(f"rank {r.rank}" for r in gone),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "ranks_not_of_one_world"))
def rank_failed(ranks: Ranks) -> Answer:
    """A rank failed with an error.

    Why: the error of the first rank that failed is the cause; the others stop because that rank is missing.

    Fix: Read the complete error in the rank's report.
    """
    failed = own_failures(ranks)
    if not failed:
        return Ok("no rank failed with an error")
    rank = failed[0]
    if rank.kind in KINDS:
        return Skip(f"the error of rank {rank.rank} is reported by {KINDS[rank.kind]}")
    step = next(step for step in rank.steps if step.ok is False)
    return Problem(
        f'{rank_name(rank)} failed in stage "{step.rung}": {step.detail}',
        f"{last_progress(rank)}. Failed ranks: {', '.join(str(r.rank) for r in failed)}.",
        commands(report_of(rank, ranks)),
        {"rank": rank.rank, "rung": step.rung, "kind": rank.kind, "error": rank.error},
        tuple(f"rank {r.rank}" for r in failed),
    )


def _skipped_stage_problem(ranks: Ranks) -> Problem | None:
    """Return the problem of a rank that finished without an error but did not run every stage, or None."""
    failed = own_failures(ranks)
    short = [rank for rank in ranks.ranks if set(ranks.rungs) - {step.rung for step in rank.steps if step.ok}]
    if not short or failed:
        return None
    rank = short[0]
    return Problem(
        f'{rank_name(rank)} exited without an error before passing stage "{stage_of(rank, ranks)}"',
        "Its report is complete, but it did not pass all planned stages.",
        Fix("Check the stages it ran.", (shell("cat {:path}/rank{:number}.jsonl", ranks.folder, rank.rank),)),
        {"rank": rank.rank, "rung": stage_of(rank, ranks), "last_word": rank.last_word},
        tuple(f"rank {r.rank}" for r in short),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "rank_failed", "ranks_hang"))
def rank_ended_early(ranks: Ranks) -> Answer:
    """A rank's process disappeared before its report was complete, and it did not exit by itself.

    Why: the launcher stopped it, or it never started.

    Fix: Check the launcher's output, and whether the kernel killed it.
    """
    missing = [rank for rank in ranks.ranks if not rank.finished]
    if not missing:
        if (skipped := _skipped_stage_problem(ranks)) is not None:
            return skipped
        return Ok(f"{counted(len(ranks.ranks), 'report')} complete")
    if ranks.ended in ("stalled", "timed_out", "interrupted"):
        return Skip("the ranks were stopped by mgpu")
    if gone := exited_ranks(ranks):
        return Skip(f"rank {gone[0].rank} exited by itself")
    rank = min(missing, key=lambda r: r.last_word_order)
    output = (ranks.launcher_output or "").splitlines()
    said = next((line.strip() for line in reversed(output) if "exitcode" in line), "")
    if not rank.pid:
        return Problem(
            f'rank {rank.rank} did not reach stage "{ranks.rungs[0]}" (launcher exit {ranks.launcher_exit})',
            f"Launcher output: {last_line(ranks)}",
            Fix("Show its complete output.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": rank.rank, "rung": ranks.rungs[0], "launcher_exit": ranks.launcher_exit},
            tuple(f"rank {r.rank}" for r in missing),
        )
    how = "was stopped by SIGTERM" if rank.terminated else "disappeared"
    return Problem(
        f'{rank_name(rank)} {how} at "{rank.last_word}" in stage "{stage_of(rank, ranks)}"',
        f"Its process stopped without a Python error. {said}".strip(),
        commands(shell("cat {:path}/launcher.log", ranks.folder), "sudo dmesg | grep -i 'killed process'"),
        {
            "rank": rank.rank,
            "rung": stage_of(rank, ranks),
            "last_word": rank.last_word,
            "launcher_exit": ranks.launcher_exit,
        },
        tuple(f"rank {r.rank}" for r in missing),
    )
