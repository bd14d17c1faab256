"""Is a rank missing: gone, stopped, or no longer training?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import WHY, Answer, Fix, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Hang, HangRank

from ._findings import SAME_AS, SOURCE, other_reason, problem, suspects
from ._verdict import Rank, destroys, verdict


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_stopped(hang: Hang) -> Answer:
    """A rank is stopped, and the others wait for it.

    Why: A stopped process (SIGSTOP, Ctrl-Z, a debugger) reaches no collective. The others wait until torch's timeout.

    Fix: Continue it.
    """
    found = suspects(hang, "stopped")
    if not found:
        return other_reason(hang)
    resume = _resume(found)
    if verdict(hang).waiting:
        return problem(hang, "is stopped (SIGSTOP)", Fix(commands=resume), where=False)
    why = "A stopped process (SIGSTOP, Ctrl-Z, a debugger) does nothing until it is continued."
    text = "Type fg in the terminal of the run, if it was stopped there. Or continue all of its processes."
    return problem(hang, "is stopped (SIGSTOP)", Fix(text, commands=resume), why=why, where=False)


def _resume(found: Sequence[Rank]) -> tuple[str, ...]:
    """Return for each host the command that continues its ranks, their workers, and what is stopped above them."""
    pids: dict[str | None, dict[int, None]] = {}
    for rank in (one.facts for one in found):
        workers = [worker.pid for worker in rank.workers if worker.state == "stopped"]
        own = [rank.pid] if rank.pid else []
        pids.setdefault(rank.host, {}).update(dict.fromkeys([*rank.stopped_above, *own, *workers]))
    commands = [
        shell("ssh {:host} kill -CONT {:pid}", host, list(numbers))
        if host
        else shell("kill -CONT {:pid}", list(numbers))
        for host, numbers in pids.items()
        if numbers
    ]
    return tuple(commands)


@check(Severity.INFO, source=SOURCE)
def hang_rank_in_debugger(hang: Hang) -> Answer:
    """A debugger holds a rank, and the others wait for it.

    Why: The others wait until torch's timeout, which then ends the run.

    Fix: Let it continue, or raise the timeout while you debug.
    """
    return problem(hang, "is held by a debugger", Fix()) if suspects(hang, "debugger") else other_reason(hang)


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_in_kernel(hang: Hang) -> Answer:
    """A rank is in uninterruptible sleep, and the others wait for it.

    Why: The kernel does not return from a call: a disk or mount that does not answer, or a GPU driver.
    More: Such a process does not react to signals, not even to SIGKILL.

    Fix: Check the mounts and the kernel log.
    """
    found = suspects(hang, "kernel")
    if not found:
        return other_reason(hang)
    facts = found[0].facts
    wait = f" in the kernel's {facts.kernel_wait}" if facts.kernel_wait else ""
    return problem(
        hang,
        f"is in uninterruptible sleep{wait}",
        Fix(commands=("mount | grep -E 'nfs|fuse'", "sudo dmesg | tail -n 30")),
    )


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_gone(hang: Hang) -> Answer:
    """The process of a rank has ended, and the others wait for it.

    Why: A rank that was killed or that exited takes part in no collective.
    More: The launcher usually notices within a second. It does not if the process was replaced or is on another node.

    Fix: Look for its last lines in the log, and for the kernel's OOM killer.
    """
    found = suspects(hang, "gone")
    if not found:
        return other_reason(hang)
    if found[0].facts.pid is None and found[0].facts.unrecorded:
        return problem(
            hang, f"has {found[0].facts.unrecorded}", Fix("Look for its last lines in the log."), where=False
        )
    return problem(
        hang, "has ended: there is no such process any more", Fix(commands=("sudo dmesg | grep -i 'killed process'",))
    )


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_left(hang: Hang) -> Answer:
    """A rank has left the training, and the others wait for it.

    Why: Its script has returned or raised an exception, so it takes part in no further collective.
    More: The process still exists: it runs exit functions, waits in destroy_process_group, or for its threads.

    Fix: Give every rank the same number of steps, and let no rank return or raise alone.
    """
    found = suspects(hang, "left")
    if not found:
        return other_reason(hang)
    facts = found[0].facts
    if facts.raised:
        where = f" at {facts.raised_at.place}" if facts.raised_at else ""
        fix = Fix("Correct this error. It ended the script of this rank only.")
        return problem(hang, f"has left the training{where}: {facts.raised}", fix, where=False)
    if destroys(facts):
        return problem(hang, "has left the training and waits in destroy_process_group", Fix(), why=_last(facts))
    exits = ", and runs an exit function" if found[0].own else ""
    return problem(hang, f"has left the training: its script has returned{exits}", Fix(), why=_last(facts))


def _last(facts: HangRank) -> str:
    """Return the last collective of a rank as a sentence: up to there it has taken part."""
    last = next(((one.title, one.caller.place) for one in reversed(facts.collectives) if one.caller), None)
    return f"Its last collective was {last[0]} at {last[1]}." if last else WHY
