"""Was the run stopped, did a rank leave before the others, and did processes outlive it?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Run

from ._ended_ranks import nothing_found, rank_name, rank_subjects

_PROC = "mgpu: the state of each rank at the moment of the signal, from /proc"
_LAST_SEEN = "mgpu: when each rank's process was seen to be gone"

# A rank that is done this long before the others has left them; ranks that save or evaluate differ by less.
_EARLY_S = 120.0
_UNINTERRUPTIBLE = "in uninterruptible sleep"


@check(Severity.ERROR, source=_PROC, role="root", kind="timeout", tags=("silent_rank",))
def run_rank_silent(run: Run) -> Answer:
    """A run was stopped by hand while one rank did nothing and the others waited for it.

    Why: The others wait for it in a collective; that somebody ended the run is a consequence of the hang, not its
    cause.
    More: Such a rank is stopped (SIGSTOP, a debugger, Ctrl-Z), hangs in the kernel (a dead NFS server, a GPU that does
    not answer) or uses no processor while the others spin.

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
        f"{rank_name(silent[0])} {words}",
        fix=Fix(
            "look at that rank: its last lines, its disk, its GPU; and where it stands in the code",
            (shell("py-spy dump --pid {:pid}", silent[0].pid) if silent[0].pid else "py-spy dump --pid PID",),
        ),
        evidence={"state": silent[0].state, "signal": run.signalled},
        subjects=rank_subjects(tuple(silent)),
    )


@check(Severity.ERROR, source="mgpu: --timeout of mgpu launch", role="secondary", kind="timeout", tags=("time_limit",))
def run_timed_out(run: Run) -> Answer:
    """The run took longer than --timeout allows, and was ended.

    Why: It hangs, or needs more time than it was given.

    Fix: Give it more time, or find out what it waits for.
    """
    if not run.timed_out:
        return Ok(f"the run ended by itself after {run.seconds:,.0f} s")
    return Problem(
        f"--timeout ended the run after {run.seconds:,.0f} s",
        fix=Fix("give it more time, or see whether the ranks can train together at all", ("mgpu smoke-test",)),
        evidence={"seconds": run.seconds},
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

    Why: The signal was handed on to the launcher, which ended its ranks.

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
        fix=Fix("start it so that it outlives the terminal", ("mgpu launch --detach ...",))
        if lost
        else Fix("nothing, if you meant it"),
        evidence={"signal": run.signalled},
    )


@check(Severity.WARNING, source=_LAST_SEEN, role="secondary", kind="timeout", tags=("ranks_done",))
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
            f"{rank_name(before[0])} had ended without an error when {rank_name(first)} failed",
            "Ranks that train together end together: what the others say of a lost connection, or of a wait that was "
            "too long, is the consequence.",
            Fix(
                "look for what lets one rank leave: sys.exit or return behind a condition, fewer batches than the "
                "others (drop_last=True, a sampler of the same length on every rank)"
            ),
            {"gone_s": before[0].gone_s, "seconds": run.seconds},
            rank_subjects(tuple(before)),
        )
    early = [rank for rank in gone if rank.gone_s is not None and run.seconds - rank.gone_s > _EARLY_S]
    if not early or len(early) == len(run.ranks):
        return nothing_found(run, "no rank left long before the others")
    one = min(early, key=lambda rank: rank.gone_s or 0.0)
    return Problem(
        f"{rank_name(one)} was done {run.seconds - (one.gone_s or 0.0):,.0f} s before the others, without an error",
        "Ranks that train together end together. The others then wait for it in a collective, or go on without it.",
        Fix("give every rank the same number of steps: drop_last=True, a sampler of the same length on every rank"),
        {"gone_s": one.gone_s, "seconds": run.seconds},
        rank_subjects(tuple(early)),
    )


@check(Severity.WARNING, source="mgpu: processes with this run's mark after the launcher had ended")
def run_left_processes(run: Run) -> Answer:
    """Processes of the run were still there when the launcher had ended, and mgpu ended them.

    Why: They would have kept GPU memory and ports from the next run.
    More: A rank that starts helpers of its own (loaders, servers, loggers) and is killed leaves them.

    Fix: Nothing now; where it happens at every end, let the script end what it starts.
    """
    if not run.left_over or run.signalled or run.timed_out:
        return nothing_found(run, "nothing was left behind")
    return Problem(
        f"{run.left_over} process{'es' * (run.left_over > 1)} of the run had to be ended afterwards",
        fix=Fix("nothing now; let the script end what it starts (loaders, servers)"),
        evidence={"left_over": run.left_over},
    )
