"""Did every rank run to its end, and if not, which of them is why?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Ranks

from .._knowledge import counted
from ._ranks import TORCH, file, frozen_ranks, killed_ranks, last_line, own_failures, rung, who

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 1: "SIGHUP", 2: "SIGINT"}


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man7/signal.7.html")
def rank_frozen(ranks: Ranks) -> Answer:
    """A rank's process is stopped, or does not run any more.

    Why: its heartbeat ended while it was alive: stopped by SIGSTOP or a debugger, suspended by the scheduler, swapped
    out, or stuck in the kernel. The others wait for it in their next collective.

    Fix: find out who stopped it.
    """
    frozen = frozen_ranks(ranks)
    if frozen:
        rank = frozen[0]
        silent = f"{rank.silent_s or ranks.stall_limit_s:.0f} s"
        stopped = rank.process_state in ("stopped", "traced")
        state = f"is {rank.process_state}" if stopped else f"does not run (no heartbeat for {silent})"
        return Problem(
            f"{who(rank)} {state}",
            f"It came as far as \"{rank.last_word}\" ({rung(rank, ranks)}) and then did not run for {silent}; "
            "the others wait for it.",
            Fix("Find out who stopped it: a debugger, the scheduler, SIGSTOP, or a device that hangs in the kernel.",
                (f"ps -o pid,stat,wchan:32,cmd -p {rank.pid}",) if rank.pid else ()),
            {"rank": rank.rank, "pid": rank.pid, "host": rank.host, "state": rank.process_state,
             "last_word": rank.last_word},
            tuple(f"rank {r.rank}" for r in frozen),
        )  # fmt: skip
    return Ok(f"{counted(len(ranks.ranks), 'rank')} ran all the time")


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/errors.html", because_of=("rank_frozen",))
def rank_killed(ranks: Ranks) -> Answer:
    """A rank was ended by a signal.

    Why: SIGKILL without a word is the kernel when memory runs out, the scheduler, or a person; SIGSEGV, SIGBUS and
    SIGABRT are a crash in a library. The other ranks fail a moment later, because it is gone.

    Fix: the kernel log tells whether it was the memory.
    """
    killed = killed_ranks(ranks)
    if killed:
        rank = killed[0]
        name = _SIGNALS.get(-(rank.exit_code or 0), f"signal {-(rank.exit_code or 0)}")
        return Problem(
            f"{who(rank)} was killed by {name}",
            f'It had come as far as "{rank.last_word}" ({rung(rank, ranks)}). What the others say is a consequence.',
            Fix(
                "See whether the kernel killed it for memory, and what it printed.",
                ("sudo dmesg | grep -i 'killed process'", f"cat {file(ranks, 'launcher.log')}"),
            ),
            {"rank": rank.rank, "pid": rank.pid, "signal": name, "last_word": rank.last_word},
            tuple(f"rank {r.rank}" for r in killed),
        )
    return Ok("no rank was ended by a signal")


@check(Severity.ERROR, source=TORCH, because_of=("rank_frozen", "rank_killed", "ranks_not_of_one_world"))
def rank_failed(ranks: Ranks) -> Answer:
    """A rank met an error.

    Why: the error of the first rank that failed is the cause; the others stop because it is gone.

    Fix: as the error says.
    """
    failed = own_failures(ranks)
    if failed:
        rank = failed[0]
        step = next(step for step in rank.steps if step.ok is False)
        return Problem(
            f"{who(rank)} failed at \"{step.rung}\": {step.detail}",
            f"Its last word was \"{rank.last_word}\". Ranks that failed: {', '.join(str(r.rank) for r in failed)}.",
            Fix("See the whole error in the rank's report.", (f"cat {file(ranks, f'rank{rank.rank}.json')}",)),
            {"rank": rank.rank, "rung": step.rung, "error": rank.error},
            tuple(f"rank {r.rank}" for r in failed),
        )  # fmt: skip
    return Ok("no rank met an error")


@check(Severity.ERROR, source=TORCH, because_of=("rank_frozen", "rank_killed", "rank_failed"))
def ranks_hang(ranks: Ranks) -> Answer:
    """The ranks made no progress within the stall limit.

    Why: all ranks are alive and wait. When one is behind the others, it did not come to the collective they wait in;
    when all are at the same place, the collective itself does not get through (transport, interface, driver).

    Fix: the stack of the rank that is behind shows what it does.
    """
    if ranks.ended not in ("stalled", "timed_out"):
        return Ok("the ranks never stood still")
    limit = f"{ranks.stall_limit_s:g} s without progress" if ranks.ended == "stalled" else "the time limit ran out"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return Problem(
            f"all ranks finished, but the launcher did not end ({limit})",
            "The launcher waits for something else than its ranks.",
            Fix("See what it printed.", (f"cat {file(ranks, 'launcher.log')}",)),
        )
    behind = min(waiting, key=lambda rank: rank.last_word_order)
    first = max(ranks.ranks, key=lambda rank: rank.last_word_order)
    if behind.last_word_order < first.last_word_order:
        title = f'{who(behind)} is behind at "{behind.last_word or "not heard of"}" ({limit})'
        cause = f'The others are at "{first.last_word}" ({rung(first, ranks)}) and wait for it.'
    else:
        title = f'all ranks wait at "{behind.last_word or "not heard of"}" ({limit})'
        cause = f'Every rank came to the same place of "{rung(behind, ranks)}", and what they do there does not end.'
    stack = (behind.stack or "").splitlines()
    where = next((line.strip() for line in stack if line.strip().startswith("File ")), None)
    return Problem(
        title,
        cause + (f" Python is at {where}." if where else ""),
        Fix("Look at the stacks of the ranks.", (f"cat {file(ranks, 'rank*.stack')}",)),
        {"rank": behind.rank, "last_word": behind.last_word, "rung": rung(behind, ranks), "stack": where},
        (f"rank {behind.rank}",),
    )


@check(Severity.ERROR, source=TORCH, because_of=("rank_frozen", "rank_killed", "rank_failed", "ranks_hang"))
def rank_ended_early(ranks: Ranks) -> Answer:
    """A rank's process ended before its report was complete.

    Why: it was killed (out of memory, a signal), or crashed in a library, without a Python error.

    Fix: the launcher's last lines name the exit code or the signal.
    """
    missing = [rank for rank in ranks.ranks if not rank.finished]
    if not missing:
        return Ok(f"{counted(len(ranks.ranks), 'report')} complete")
    if ranks.ended in ("stalled", "timed_out", "interrupted"):
        return Skip("the ranks were ended by mgpu")
    rank = min(missing, key=lambda r: r.last_word_order)
    said = next(
        (line for line in reversed((ranks.launcher_output or "").splitlines()) if "exitcode" in line), ""
    ).strip()
    if not rank.pid:
        return Problem(
            f"rank {rank.rank} never started (launcher exit {ranks.launcher_exit})",
            f"The launcher said: {last_line(ranks)}",
            Fix("See all it printed.", (f"cat {file(ranks, 'launcher.log')}",)),
            {"rank": rank.rank, "launcher_exit": ranks.launcher_exit},
            tuple(f"rank {r.rank}" for r in missing),
        )
    return Problem(
        f"{who(rank)} ended at \"{rank.last_word}\" ({rung(rank, ranks)})",
        f"Its process is gone without a Python error. {said}".strip(),
        Fix("See what the launcher printed, and whether the kernel killed it.",
            (f"cat {file(ranks, 'launcher.log')}", "sudo dmesg | grep -i 'killed process'")),
        {"rank": rank.rank, "last_word": rank.last_word, "launcher_exit": ranks.launcher_exit},
        tuple(f"rank {r.rank}" for r in missing),
    )  # fmt: skip


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/accelerate/package_reference/cli",
    because_of=("rank_frozen", "rank_killed", "rank_failed", "ranks_hang", "rank_ended_early"),
)
def launcher_failed(ranks: Ranks) -> Answer:
    """The launcher ended with an error.

    Why: its exit code is what a training would end with, too.

    Fix: its last lines say what it did not like.
    """
    if ranks.ended not in ("finished", "died"):
        return Skip("the launcher was ended by mgpu")
    if ranks.launcher_exit == 0:
        return Ok("exit code 0")
    return Problem(
        f"the launcher ended with exit code {ranks.launcher_exit}",
        f"Its last line: {last_line(ranks)}",
        Fix("See all it printed.", (f"cat {file(ranks, 'launcher.log')}",)),
        {"exit": ranks.launcher_exit},
    )
