"""Is a rank somewhere else than in the collective that the others wait in?"""

from __future__ import annotations

from mgpu.check import WHY, Answer, Fix, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import NOT_LOADED, Hang

from ._findings import SAME_AS, SOURCE, other_reason, problem, suspects
from ._verdict import Rank, loader_workers, names, verdict, view


def _at_line(rank: Rank) -> str:
    """Return the user's line as a sentence, or ""."""
    return f"The line is: {rank.own.text}" if rank.own and rank.own.text else ""


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_sleeps(hang: Hang) -> Answer:
    """A rank sleeps, and the others wait for it.

    Why: It does not come to the collective that the others wait in.
    More: A sleep on one rank only is usually a wait for something that another rank does: a file, a server.

    Fix: Remove the sleep, or change the condition that leads only this rank there. To wait for another rank, call a
    barrier on all ranks.
    """
    found = suspects(hang, "sleep")
    return problem(hang, "sleeps", Fix(), why=_at_line(found[0])) if found else other_reason(hang)


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_in_lock(hang: Hang) -> Answer:
    """A rank waits for a lock, a queue or a thread, and the others wait for it.

    Why: Nothing releases it. The usual cause is a lock that was held when the process was forked, or one that is taken
    twice.

    Fix: Release it on every path, and start threads after forking.
    """
    found = suspects(hang, "lock")
    if not found:
        return other_reason(hang)
    target = found[0].facts.waits_for or ""
    what = (
        f"waits for a lock on a file ({target.partition(' of ')[2]})"
        if target.startswith("flock")
        else "waits for a lock"
    )
    return problem(hang, what, Fix(), why=_at_line(found[0]))


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_asks_for_input(hang: Hang) -> Answer:
    """A rank waits for input from a person, and the others wait for it.

    Why: It is in input(), a debugger or a prompt. Ranks have no keyboard.

    Fix: Remove the prompt, or answer it before the start.
    """
    found = suspects(hang, "input")
    return problem(hang, "waits for input", Fix(), why=_at_line(found[0])) if found else other_reason(hang)


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_in_loader(hang: Hang) -> Answer:
    """A rank waits for a batch of its data loader, and the others wait for it.

    Why: A worker of the loader hangs, or is much slower than on the other ranks.
    More: Workers are forked from the rank. If a thread held a lock at that moment (tokenizers, OpenCV, a logger), it
    stays locked in the worker forever.

    Fix: Run once with num_workers=0. If that works, start the workers with multiprocessing_context="spawn".
    """
    found = suspects(hang, "loader")
    if not found:
        return other_reason(hang)
    rank = found[0]
    workers = loader_workers(rank)
    stuck = [worker for worker in workers if not worker.busy]
    since = f" for {rank.facts.batch_wait_s:,.0f} s" if rank.facts.batch_wait_s else ""
    own = next((frame for worker in stuck for frame in worker.frames if not frame.library), None)
    which = "Its worker" if len(workers) == 1 else f"{len(stuck)} of its {len(workers)} workers"
    why = f"{which} {'does' if len(stuck) == 1 else 'do'} nothing{f' at {own.place}' if own else ''}."
    return problem(hang, f"waits for a batch{since}", Fix(), why=why if stuck else "")


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_reads(hang: Hang) -> Answer:
    """A rank waits for a file, pipe or socket, and the others wait for it.

    Why: The other end sends nothing, or the file system does not answer.

    Fix: Check what it reads from, and give the read a time limit.
    """
    found = suspects(hang, "read")
    if not found:
        return other_reason(hang)
    facts = found[0].facts
    what = f" ({facts.waits_for})" if facts.waits_for else f" (in the kernel's {facts.kernel_wait})"
    return problem(hang, f"waits for a file, pipe or socket{what}", Fix(), why=_at_line(found[0]))


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_waits_for_process(hang: Hang) -> Answer:
    """A rank waits for a process that it has started, and the others wait for it.

    Why: That process does not end.

    Fix: Check that process, and give the wait a time limit.
    """
    found = suspects(hang, "child")
    if not found:
        return other_reason(hang)
    facts = found[0].facts
    there, pid = facts.host, facts.pid
    here = shell("ps -o pid,stat,wchan:20,args --ppid {:pid}", pid)
    command = shell("ssh {:host} ps -o pid,stat,wchan:20,args --ppid {:pid}", there, pid) if there else here
    look = Fix(commands=(command,)) if pid else Fix()
    return problem(hang, "waits for a process that it has started", look, why=_at_line(found[0]))


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_elsewhere(hang: Hang) -> Answer:
    """A rank does nothing, outside of any collective, and the others wait for it.

    Why: It uses no CPU and does not come to the collective that the others wait in.

    Fix: Look at this line.
    """
    found = suspects(hang, "idle")
    if not found:
        return other_reason(hang)
    there, pid = found[0].facts.host, found[0].facts.pid
    here = shell("py-spy dump --native --pid {:pid}", pid)
    dump = shell("ssh {:host} py-spy dump --native --pid {:pid}", there, pid) if there else here
    return problem(
        hang,
        "does nothing",
        Fix(commands=(dump,) if pid else ()),
        why=_at_line(found[0]),
    )


@check(Severity.INFO, source=SOURCE)
def hang_rank_works(hang: Hang) -> Answer:
    """A rank works while the others wait for it.

    Why: This is no hang yet: rank 0 often tokenizes, evaluates or saves alone. If it takes longer than torch's timeout,
    the run fails.

    Fix: Let all ranks share the work, or raise the timeout: InitProcessGroupKwargs(timeout=...), ddp_timeout.
    """
    found = suspects(hang, "busy")
    if not found:
        return other_reason(hang)
    limit = f"torch gives up after {hang.timeout_s:,.0f} s." if hang.timeout_s else ""
    return problem(hang, f"works for {hang.quiet_s:,.0f} s", Fix(), why=limit)


@check(Severity.INFO, source=SOURCE)
def hang_stacks_unknown(hang: Hang) -> Answer:
    """The run makes no progress, and the ranks have not loaded the recorder: what they do is not known.

    Why: Python loads the recorder because of PYTHONPATH, which it ignores with -I, -E or -S.
    More: mgpu launch sets PYTHONPATH and MGPU_RECORDER for all ranks. Progress is then known from output only.

    Fix: Start the ranks without these options, and with the PYTHONPATH of the run.
    """
    silent = [view(rank) for rank in hang.ranks if rank.silent == NOT_LOADED]
    if verdict(hang).kind != "nothing" or not silent:
        return other_reason(hang)
    return Problem(f"the stacks of {names(silent)} are not known: Python has not loaded the recorder", WHY, Fix())
