"""Did every rank run to completion, and if not, which rank is the cause?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted

from ._causes import CAUSES, KINDS, LOST
from ._rank_states import (
    SILENT_S,
    TORCH,
    frozen_ranks,
    killed_ranks,
    last_line,
    last_progress,
    no_rank_started,
    own_failure,
    own_failures,
    python_location,
    rank_name,
    signal_name,
    stage_of,
)

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
        f"{cause}{last_progress(rank)}: {rank.error or 'out of memory'}",
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

    Fix: Check whether the OOM killer killed it, and its output.
    """
    killed = killed_ranks(ranks)
    if killed:
        rank, where = killed[0], stage_of(killed[0], ranks)
        name = signal_name(rank.exit_code or 0)
        return Problem(
            f'{rank_name(rank)} was killed by {name} in stage "{where}"',
            f"{last_progress(rank)}. Errors of other ranks are consequences.",
            commands("sudo dmesg | grep -i 'killed process'", shell("cat {:path}/launcher.log", ranks.folder)),
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
        commands(shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank)),
        {"rank": rank.rank, "rung": step.rung, "kind": rank.kind, "error": rank.error},
        tuple(f"rank {r.rank}" for r in failed),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "rank_failed"))
def ranks_hang(ranks: Ranks) -> Answer:
    """The ranks made no progress within the stall limit.

    Why: all ranks are alive and waiting. If one is behind the others, it did not reach the collective that they
    wait in. If all are at the same place, the collective itself hangs (transport, interface, driver).

    Fix: Check the stacks of the ranks.
    """
    if ranks.ended not in ("stalled", "timed_out"):
        return Ok("the ranks did not stall")
    limit = f"{ranks.stall_limit_s:g} s without progress" if ranks.ended == "stalled" else "time limit reached"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return Problem(
            f'all ranks finished, but the launcher did not exit after stage "{ranks.rungs[-1]}" ({limit})',
            "The launcher is waiting for something other than its ranks.",
            Fix("Check its output.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": None, "rung": ranks.rungs[-1]},
        )
    behind, first = _rank_behind(waiting, ranks), _rank_ahead(ranks)
    stands_out = _progress_key(behind, ranks) < _progress_key(first, ranks)
    progress, where, at = behind.last_word or "no progress reported", stage_of(behind, ranks), python_location(behind)
    title = f'all ranks wait at "{progress}" in stage "{where}" ({limit})'
    if stands_out:
        title = f'{rank_name(behind)} is behind at "{progress}" in stage "{where}" ({limit})'
    return Problem(
        title,
        _why_they_wait(behind, first if stands_out else None, ranks),
        commands(shell("cat {:path}/rank*.stack", ranks.folder)),
        {
            "rank": behind.rank if stands_out else None,
            "rung": where,
            "last_word": behind.last_word,
            "collective": (first if stands_out else behind).collective,
            "stack": at,
        },
        (f"rank {behind.rank}",) if stands_out else tuple(f"rank {rank.rank}" for rank in waiting),
    )


def _why_they_wait(behind: Rank, first: Rank | None, ranks: Ranks) -> str:
    """Return the known state of the rank behind. `first`: the rank furthest ahead, or None if all are equal."""
    cause = "Every rank is at the same place, and the operation there does not finish."
    if first is not None:
        waits = f" in {first.collective}" if first.collective else ""
        cause = f'The others are at "{first.last_word}" ({stage_of(first, ranks)}) and wait for it{waits}.'
    if behind.collective:
        cause += f" It is in {behind.collective}."
    if at := python_location(behind):
        cause += f" Python is at {at}."
    if (behind.silent_s or 0.0) > SILENT_S:
        cause += f" Its heartbeat was missing for {behind.silent_s:.0f} s: a library holds the GIL."
    return cause


Place = tuple[int, int, bool, int]


def _progress_key(rank: Rank, ranks: Ranks) -> Place:
    """Return how far a rank came, as a sort key.

    The key contains the stage, the number of collectives over all ranks that it started (if every rank's flight
    recorder
    reports it), whether it is in one, and its last progress.
    """
    recorded = all(r.collective_seq is not None for r in ranks.ranks if not r.finished)
    seq = (rank.collective_seq or 0) if recorded else 0
    return ranks.rungs.index(stage_of(rank, ranks)), seq, recorded and rank.collective is not None, rank.last_word_order


def _rank_behind(waiting: list[Rank], ranks: Ranks) -> Rank:
    return min(waiting, key=lambda rank: _progress_key(rank, ranks))


def _rank_ahead(ranks: Ranks) -> Rank:
    return max(ranks.ranks, key=lambda rank: _progress_key(rank, ranks))


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
    """A rank's process exited before its report was complete.

    Why: it was killed (out of memory, a signal), or crashed in a library, without a Python error.

    Fix: Check the launcher's output, and whether the kernel killed it.
    """
    missing = [rank for rank in ranks.ranks if not rank.finished]
    if not missing:
        if (skipped := _skipped_stage_problem(ranks)) is not None:
            return skipped
        return Ok(f"{counted(len(ranks.ranks), 'report')} complete")
    if ranks.ended in ("stalled", "timed_out", "interrupted"):
        return Skip("the ranks were stopped by mgpu")
    rank = min(missing, key=lambda r: r.last_word_order)
    said = next(
        (line for line in reversed((ranks.launcher_output or "").splitlines()) if "exitcode" in line), ""
    ).strip()
    if not rank.pid:
        return Problem(
            f'rank {rank.rank} did not reach stage "{ranks.rungs[0]}" (launcher exit {ranks.launcher_exit})',
            f"Launcher output: {last_line(ranks)}",
            Fix("Show its complete output.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": rank.rank, "rung": ranks.rungs[0], "launcher_exit": ranks.launcher_exit},
            tuple(f"rank {r.rank}" for r in missing),
        )
    return Problem(
        f'{rank_name(rank)} exited at "{rank.last_word}" in stage "{stage_of(rank, ranks)}"',
        f"Its process exited without a Python error. {said}".strip(),
        commands(shell("cat {:path}/launcher.log", ranks.folder), "sudo dmesg | grep -i 'killed process'"),
        {
            "rank": rank.rank,
            "rung": stage_of(rank, ranks),
            "last_word": rank.last_word,
            "launcher_exit": ranks.launcher_exit,
        },
        tuple(f"rank {r.rank}" for r in missing),
    )
