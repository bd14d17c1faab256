"""Did every rank run to its end, and if not, which of them is why?"""

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
    nobody_started,
    own_failure,
    own_failures,
    python_at,
    rung,
    signal_name,
    who,
)

_CGROUP = "https://www.kernel.org/doc/html/latest/admin-guide/cgroup-v2.html#memory-interface-files"
_ERRORS = "https://pytorch.org/docs/stable/elastic/errors.html"
_KILL = -9
_WHO_STOPPED_IT = (
    "Find out who stopped it: a debugger, the scheduler, SIGSTOP, or a device that hangs in the kernel. "
    "While it hangs again, this lists what is stopped or stuck:"
)


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man7/signal.7.html")
def rank_frozen(ranks: Ranks) -> Answer:
    """A rank's process is stopped, or does not run any more.

    Why: its heartbeat ended while it was alive: stopped by SIGSTOP or a debugger, suspended by the scheduler, swapped
    out, or stuck in the kernel. The others wait for it in their next collective.

    Fix: find out who stopped it.
    """
    frozen = frozen_ranks(ranks)
    if frozen:
        return _frozen(frozen, ranks)
    if nobody_started(ranks):
        return Skip("no rank was started")
    return Ok(f"{counted(len(ranks.ranks), 'rank')} ran all the time")


def _frozen(frozen: list[Rank], ranks: Ranks) -> Problem:
    rank, where = frozen[0], rung(frozen[0], ranks)
    silent = f"{rank.silent_s or ranks.stall_limit_s:.0f} s"
    stopped = rank.process_state in ("stopped", "traced")
    state = f"is {rank.process_state}" if stopped else f"does not run (no heartbeat for {silent})"
    collective = next((r.collective for r in ranks.ranks if r.collective and r not in frozen), None)
    return Problem(
        f'{who(rank)} {state}, in "{where}"',
        f'Its last word was "{rank.last_word or "none"}"; then it did not run for {silent}, and the others wait '
        f"for it{f' in {collective}' if collective else ''}. {_asked(rank)}",
        Fix(_WHO_STOPPED_IT, ("ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /^[TtD]/'",)),
        {
            "rank": rank.rank,
            "rung": where,
            "pid": rank.pid,
            "host": rank.host,
            "state": rank.process_state,
            "last_word": rank.last_word,
            "collective": collective,
            "stack": python_at(rank),
            "stack_from": rank.stack_from,
            "kernel_wait": rank.kernel_wait,
        },
        tuple(f"rank {r.rank}" for r in frozen),
    )


def _asked(rank: Rank) -> str:
    """What a rank that does not run told of itself, and how."""
    if at := python_at(rank):
        return f"{'Woken to be asked' if rank.stack_from == 'woken' else 'Asked'}, its Python was at {at}."
    kernel = f" The kernel holds it in {rank.kernel_wait}." if rank.kernel_wait else ""
    return f"It did not answer: more than its last word is not known.{kernel}"


@check(Severity.ERROR, source=_CGROUP, because_of=("rank_frozen",))
def rank_out_of_memory(ranks: Ranks) -> Answer:
    """A rank could not have the memory it asked for, or was killed for it.

    Why: every rank needs memory of its own, of the GPU and of the machine. A limit of the shell (ulimit -v) or a full
    GPU refuses the request; the limit of a container or of a Slurm job (cgroup), and a machine that has no more, kill
    the process without a word.

    Fix: give the run more memory, or use less: fewer ranks, fewer loader workers, a smaller micro-batch.
    """
    if rank := own_failure(ranks, "out_of_memory"):
        return _refused_memory(rank, ranks)
    killed = [rank for rank in killed_ranks(ranks) if rank.exit_code == _KILL]
    if not killed or not ranks.killed_for_memory:
        return Ok("no rank ran out of memory")
    rank, where, many = killed[0], rung(killed[0], ranks), ranks.killed_for_memory
    return Problem(
        f'{who(rank)} was killed for want of memory, in "{where}"',
        f"It ended by SIGKILL, and meanwhile the kernel killed {counted(many, 'process', 'processes')} of its "
        f'control group (container, job or session) for want of memory. Its last word was "{rank.last_word}".',
        Fix(
            "See the limit of the container or job, and what the kernel says.",
            ("cat /sys/fs/cgroup/memory.max", "sudo dmesg | grep -i 'killed process'"),
        ),
        {"rank": rank.rank, "rung": where, "where": "host", "killed_for_memory": many},
        (f"rank {rank.rank}",),
    )


def _refused_memory(rank: Rank, ranks: Ranks) -> Problem:
    gpu, where = rank.evidence.get("where") == "gpu", rung(rank, ranks)
    asked, free = rank.evidence.get("asked"), rank.evidence.get("free_mib")
    title = f'{who(rank)} got no {"GPU" if gpu else "host"} memory, in "{where}"'
    cause = f"{free} MiB of the GPU's memory were free. " if free is not None else ""
    limits = ("ulimit -v", "cat /sys/fs/cgroup/memory.max", "free -g")
    look = Fix("See the limit of the shell, of the container or job, and what is free.", limits)
    return Problem(
        title + (f" (asked for {asked})" if asked else ""),
        f'{cause}Its last word was "{rank.last_word}": {rank.error or "out of memory"}',
        Fix("See who else uses the GPU.", ("nvidia-smi",)) if gpu else look,
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
    """A rank was ended by a signal.

    Why: SIGKILL without a word is the kernel when memory runs out, the scheduler, or a person; SIGSEGV, SIGBUS and
    SIGABRT are a crash in a library. The other ranks fail a moment later, because it is gone.

    Fix: See whether the kernel killed it for memory, and what it printed.
    """
    killed = killed_ranks(ranks)
    if killed:
        rank, where = killed[0], rung(killed[0], ranks)
        name = signal_name(rank.exit_code or 0)
        return Problem(
            f'{who(rank)} was killed by {name}, in "{where}"',
            f'It had come as far as "{rank.last_word}". What the others say is a consequence.',
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
    return Ok("no rank was ended by a signal")


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "ranks_not_of_one_world"))
def rank_failed(ranks: Ranks) -> Answer:
    """A rank met an error.

    Why: the error of the first rank that failed is the cause; the others stop because it is gone.

    Fix: See the whole error in the rank's report.
    """
    failed = own_failures(ranks)
    if not failed:
        return Ok("no rank met an error")
    rank = failed[0]
    if rank.kind in KINDS:
        return Skip(f"the error of rank {rank.rank} is told by {KINDS[rank.kind]}")
    step = next(step for step in rank.steps if step.ok is False)
    return Problem(
        f'{who(rank)} failed in "{step.rung}": {step.detail}',
        f'Its last word was "{rank.last_word}". Ranks that failed: {", ".join(str(r.rank) for r in failed)}.',
        commands(shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank)),
        {"rank": rank.rank, "rung": step.rung, "kind": rank.kind, "error": rank.error},
        tuple(f"rank {r.rank}" for r in failed),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "rank_failed"))
def ranks_hang(ranks: Ranks) -> Answer:
    """The ranks made no progress within the stall limit.

    Why: all ranks are alive and wait. When one is behind the others, it did not come to the collective they wait in;
    when all are at the same place, the collective itself does not get through (transport, interface, driver).

    Fix: Look at the stacks of the ranks.
    """
    if ranks.ended not in ("stalled", "timed_out"):
        return Ok("the ranks never stood still")
    limit = f"{ranks.stall_limit_s:g} s without progress" if ranks.ended == "stalled" else "the time limit ran out"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return Problem(
            f'all ranks finished, but the launcher did not end, after "{ranks.rungs[-1]}" ({limit})',
            "The launcher waits for something else than its ranks.",
            Fix("See what it printed.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": None, "rung": ranks.rungs[-1]},
        )
    behind, first = _behind(waiting, ranks), _furthest(ranks)
    stands_out = _place(behind, ranks) < _place(first, ranks)
    words, where, at = behind.last_word or "not heard of", rung(behind, ranks), python_at(behind)
    title = f'all ranks wait at "{words}", in "{where}" ({limit})'
    if stands_out:
        title = f'{who(behind)} is behind at "{words}", in "{where}" ({limit})'
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
    """What is known of the rank that is behind; `first`: the furthest one, unless all are at the same place."""
    cause = "Every rank came to the same place, and what they do there does not end."
    if first is not None:
        waits = f" in {first.collective}" if first.collective else ""
        cause = f'The others are at "{first.last_word}" ({rung(first, ranks)}) and wait for it{waits}.'
    if behind.collective:
        cause += f" It is in {behind.collective}."
    if at := python_at(behind):
        cause += f" Python is at {at}."
    if (behind.silent_s or 0.0) > SILENT_S:
        cause += f" Its heartbeat was missing for {behind.silent_s:.0f} s: a library holds Python's lock."
    return cause


Place = tuple[int, int, bool, int]


def _place(rank: Rank, ranks: Ranks) -> Place:
    """How far a rank came: the rung; how many collectives of the whole world it began (where every rank's recorder
    tells that); whether it is in one; its last word."""
    told = all(r.collective_seq is not None for r in ranks.ranks if not r.finished)
    seq = (rank.collective_seq or 0) if told else 0
    return ranks.rungs.index(rung(rank, ranks)), seq, told and rank.collective is not None, rank.last_word_order


def _behind(waiting: list[Rank], ranks: Ranks) -> Rank:
    return min(waiting, key=lambda rank: _place(rank, ranks))


def _furthest(ranks: Ranks) -> Rank:
    return max(ranks.ranks, key=lambda rank: _place(rank, ranks))


def _left_out(ranks: Ranks) -> Problem | None:
    """A rank that says that it is through, met no error, and was not on every rung: what it left out is not proven."""
    failed = own_failures(ranks)
    short = [rank for rank in ranks.ranks if set(ranks.rungs) - {step.rung for step in rank.steps if step.ok}]
    if not short or failed:
        return None
    rank = short[0]
    return Problem(
        f'{who(rank)} left before it had passed "{rung(rank, ranks)}", and met no error',
        "Its report is complete, but a rung that it was to climb is not among those that it passed.",
        Fix("See the steps it took.", (shell("cat {:path}/rank{:number}.jsonl", ranks.folder, rank.rank),)),
        {"rank": rank.rank, "rung": rung(rank, ranks), "last_word": rank.last_word},
        tuple(f"rank {r.rank}" for r in short),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "rank_failed", "ranks_hang"))
def rank_ended_early(ranks: Ranks) -> Answer:
    """A rank's process ended before its report was complete.

    Why: it was killed (out of memory, a signal), or crashed in a library, without a Python error.

    Fix: See what the launcher printed, and whether the kernel killed it.
    """
    missing = [rank for rank in ranks.ranks if not rank.finished]
    if not missing:
        if (skipped := _left_out(ranks)) is not None:
            return skipped
        return Ok(f"{counted(len(ranks.ranks), 'report')} complete")
    if ranks.ended in ("stalled", "timed_out", "interrupted"):
        return Skip("the ranks were ended by mgpu")
    rank = min(missing, key=lambda r: r.last_word_order)
    said = next(
        (line for line in reversed((ranks.launcher_output or "").splitlines()) if "exitcode" in line), ""
    ).strip()
    if not rank.pid:
        return Problem(
            f'rank {rank.rank} never came to "{ranks.rungs[0]}" (launcher exit {ranks.launcher_exit})',
            f"The launcher said: {last_line(ranks)}",
            Fix("See all it printed.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": rank.rank, "rung": ranks.rungs[0], "launcher_exit": ranks.launcher_exit},
            tuple(f"rank {r.rank}" for r in missing),
        )
    return Problem(
        f'{who(rank)} ended at "{rank.last_word}", in "{rung(rank, ranks)}"',
        f"Its process is gone without a Python error. {said}".strip(),
        commands(shell("cat {:path}/launcher.log", ranks.folder), "sudo dmesg | grep -i 'killed process'"),
        {
            "rank": rank.rank,
            "rung": rung(rank, ranks),
            "last_word": rank.last_word,
            "launcher_exit": ranks.launcher_exit,
        },
        tuple(f"rank {r.rank}" for r in missing),
    )
