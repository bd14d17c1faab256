"""Was the run stopped, did a rank exit before the others, and were processes left over?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Run

from ._ended_ranks import ok_for_run, rank_name, rank_subjects

_PROC = "mgpu: the state of each rank at the moment of the signal, from /proc"
_LAST_SEEN = "mgpu: when each rank's process was found to have exited"

# A rank that finishes this long before the others exited early. Saving or evaluating makes a smaller difference.
_EARLY_S = 120.0
_UNINTERRUPTIBLE = "in uninterruptible sleep"


@check(Severity.ERROR, source=_PROC, role="root", kind="timeout", tags=("silent_rank",))
def run_rank_silent(run: Run) -> Answer:
    """A run was stopped manually while one rank did nothing and the others waited for it.

    Why: The others wait for it in a collective. The manual stop is a consequence of the hang, not its cause.
    More: Such a rank is stopped (SIGSTOP, a debugger, Ctrl-Z), hangs in the kernel (a dead NFS server, a GPU that does
    not respond) or uses no CPU while the others spin.

    Fix: Check that rank: its last lines, its stack (py-spy dump), its disk and its GPU.
    """
    if run.signalled is None and not run.timed_out:
        return Ok("the run was not stopped manually")
    known = [rank for rank in run.ranks if rank.state is not None]
    if not known:
        return Skip("the ranks' states were not read when the run was stopped")
    silent = [rank for rank in known if rank.state in ("stopped", "traced", _UNINTERRUPTIBLE, "ended")]
    how = f"is {silent[0].state}" if silent else ""
    if silent and silent[0].state == "stopped":
        how = "is stopped (SIGSTOP)"
    if not silent:
        silent = [rank for rank in known if rank.idle]
        how = "uses no CPU while the others wait for it"
        if len(silent) != 1 or len(known) < 3:
            return Ok(f"{len(known)} ranks were running, and no single rank was idle")
    return Problem(
        f"{rank_name(silent[0])} {how}",
        fix=Fix(
            "Check that rank: its last lines, its disk, its GPU, and its stack.",
            (shell("py-spy dump --pid {:pid}", silent[0].pid) if silent[0].pid else "py-spy dump --pid PID",),
        ),
        evidence={"state": silent[0].state, "signal": run.signalled},
        subjects=rank_subjects(tuple(silent)),
    )


@check(Severity.ERROR, source="mgpu: --timeout of mgpu launch", role="secondary", kind="timeout", tags=("time_limit",))
def run_timed_out(run: Run) -> Answer:
    """The run took longer than --timeout allows, and was stopped.

    Why: It hangs, or needs more time.

    Fix: Raise the timeout, or find out what it waits for.
    """
    if not run.timed_out:
        return Ok(f"the run ended by itself after {run.seconds:,.0f} s")
    return Problem(
        f"--timeout stopped the run after {run.seconds:,.0f} s",
        fix=Fix("Raise the timeout, or check whether the ranks can train together at all.", ("mgpu smoke-test",)),
        evidence={"seconds": run.seconds},
    )


@check(
    Severity.INFO,
    source="mgpu: a signal that was forwarded to the launcher",
    role="wrapper",
    kind="timeout",
    same_as=("log_interrupted", "log_asked_to_end", "log_spawned_rank_asked_to_end", "log_terminal_closed"),
    tags=("user_stop",),
)
def run_stopped(run: Run) -> Answer:
    """The run was stopped by a signal: Ctrl-C, kill, or a closed terminal.

    Why: mgpu forwarded the signal to the launcher, which stopped its ranks.

    Fix: Nothing, if you stopped it. Use --detach for a run that continues after its terminal closes.
    """
    if run.signalled is None:
        return Ok("no signal stopped the run")
    how = {
        "SIGINT": "Ctrl-C or kill -INT",
        "SIGHUP": "its terminal was closed",
        "SIGTERM": "kill, or a service manager",
    }
    lost = run.signalled == "SIGHUP"
    return Problem(
        f"stopped by {run.signalled}" + (f": {how[run.signalled]}" if run.signalled in how else ""),
        fix=Fix("Detach the run from the terminal.", ("mgpu launch --detach ...",))
        if lost
        else Fix("Nothing, if you stopped it."),
        evidence={"signal": run.signalled},
    )


@check(Severity.WARNING, source=_LAST_SEEN, role="secondary", kind="timeout", tags=("ranks_done",))
def run_rank_left_early(run: Run) -> Answer:
    """A rank finished long before the others, without an error.

    Why: Ranks that train together finish together. This rank had less data, returned early, or called sys.exit(0). The
    others wait for it in their next collective, or continue without its share of the data.

    Fix: Give every rank the same number of steps (drop_last, the same length on every rank, Join).
    """
    finished = [rank for rank in run.ranks if rank.gone_s is not None and not rank.exit_code]
    first = next((rank for rank in run.ranks if rank.first and rank.exit_code), None)
    before = [rank for rank in finished if first and (rank.gone_s or 0.0) < (first.gone_s or run.seconds)]
    if before and first and not run.signalled and not run.timed_out:
        return Problem(
            f"{rank_name(before[0])} had finished without an error when {rank_name(first)} failed",
            "Ranks that train together finish together. Lost connections or timeouts of the other ranks are "
            "consequences.",
            Fix(
                "Find out why one rank exits early: a conditional sys.exit or return, or fewer batches than the "
                "others (drop_last=True, a sampler of the same length on every rank)."
            ),
            {"gone_s": before[0].gone_s, "seconds": run.seconds},
            rank_subjects(tuple(before)),
        )
    early = [rank for rank in finished if rank.gone_s is not None and run.seconds - rank.gone_s > _EARLY_S]
    if not early or len(early) == len(run.ranks):
        return ok_for_run(run, "no rank finished long before the others")
    one = min(early, key=lambda rank: rank.gone_s or 0.0)
    return Problem(
        f"{rank_name(one)} finished {run.seconds - (one.gone_s or 0.0):,.0f} s before the others, without an error",
        "Ranks that train together finish together. The others wait for it in a collective, or continue without it.",
        Fix("Give every rank the same number of steps: drop_last=True, a sampler of the same length on every rank."),
        {"gone_s": one.gone_s, "seconds": run.seconds},
        rank_subjects(tuple(early)),
    )


@check(Severity.WARNING, source="mgpu: processes with this run's mark after the launcher had ended")
def run_left_processes(run: Run) -> Answer:
    """Processes of the run were left over after the launcher exited, and mgpu stopped them.

    Why: They would have blocked GPU memory and ports for the next run.
    More: A rank that starts helper processes (loaders, servers, loggers) and is killed leaves them running.

    Fix: Nothing now. If it happens after every run, let the script stop the processes it starts.
    """
    if not run.left_over or run.signalled or run.timed_out:
        return ok_for_run(run, "no process was left over")
    return Problem(
        f"mgpu stopped {run.left_over} process{'es' * (run.left_over > 1)} left over from the run",
        fix=Fix("Nothing now. Let the script stop the processes it starts (loaders, servers)."),
        evidence={"left_over": run.left_over},
    )
