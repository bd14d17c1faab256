"""Did the launcher work?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks

from ._causes import CAUSES, LOST
from ._rank_states import last_line, own_failure, own_failures, rank_name, signal_name, stage_of

_LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py"
_CLI = "https://huggingface.co/docs/accelerate/package_reference/cli"

# Messages of accelerate's own port check, and of torch's store if it cannot listen.
_PORT_ERRORS = ("another process is utilizing it", "EADDRINUSE", "address already in use", "Address already in use")


@check(Severity.ERROR, source=_LAUNCH, because_of=LOST)
def meeting_port_taken(ranks: Ranks) -> Answer:
    """The rendezvous port is in use.

    Why: another process listens there, usually a training run that is still running, or a second launch with the
    same config. The launcher or the first rank cannot listen on it, and the ranks cannot connect.

    Fix: Or remove main_process_port from the config, so that mgpu chooses one.
    """
    fixes = (
        Fix(
            "Find the process that listens there.",
            (shell("ss -ltnp 'sport = :{:number}'", ranks.port),) if ranks.port else ("ss -ltnp",),
        ),
        Fix(),
    )
    if rank := own_failure(ranks, "port_taken"):
        port = rank.evidence.get("port")
        return Problem(
            f'{rank_name(rank)} cannot listen in stage "{stage_of(rank, ranks)}": port {port} is in use',
            f"The other ranks connect to it there. {rank.error}",
            fixes,
            {"rank": rank.rank, "rung": stage_of(rank, ranks), "port": port},
            (f"rank {rank.rank}",),
        )
    if any(rank.last_word for rank in ranks.ranks):
        return Ok("the ranks were started")
    said = next(
        (line for line in (ranks.launcher_output or "").splitlines() if any(word in line for word in _PORT_ERRORS)),
        None,
    )
    if said is None:
        return Ok("the launcher reported no port error")
    port = ranks.port or "of the rendezvous"
    return Problem(
        f'no rank was started in stage "{ranks.rungs[0]}": port {port} is in use',
        f"Launcher output: {said.strip()}",
        fixes,
        {"rank": None, "rung": ranks.rungs[0], "port": ranks.port},
    )


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11")
def launcher_killed(ranks: Ranks) -> Answer:
    """The launcher itself was killed by a signal, and its ranks with it.

    Why: Its ranks stopped with it; none of them had failed before.
    More: SIGKILL without a message comes from the OOM killer, the scheduler, or a user.

    Fix: Find out who sent the signal: the OOM killer (out of memory), the scheduler, or a user.
    More: Then run the test again.
    """
    if ranks.launcher_exit is None:
        return Skip("the launcher was stopped by mgpu")
    if ranks.launcher_exit >= 0:
        return Ok("the launcher was not killed")
    if own_failures(ranks):
        return Ok("a rank had failed before the launcher was killed")
    where, name = _stage_reached(ranks), signal_name(ranks.launcher_exit)
    return Problem(
        f'the launcher was killed by {name} in stage "{where}"',
        fix=commands("sudo dmesg | grep -i 'killed process'", shell("cat {:path}/launcher.log", ranks.folder)),
        evidence={"rank": None, "rung": where, "signal": name},
    )


@check(Severity.ERROR, source=_CLI, because_of=(*LOST, *CAUSES, "rank_failed", "ranks_hang", "rank_ended_early"))
def launcher_failed(ranks: Ranks) -> Answer:
    """The launcher failed.

    Why: a training run would fail with the same exit code.

    Fix: Show its complete output.
    """
    if ranks.ended not in ("finished", "died") or ranks.launcher_exit is None:
        return Skip("the launcher was stopped by mgpu")
    if ranks.launcher_exit == 0:
        return Ok("exit code 0")
    return Problem(
        f'the launcher failed with exit code {ranks.launcher_exit} in stage "{_stage_reached(ranks)}"',
        f"Its last line: {last_line(ranks)}",
        commands(shell("cat {:path}/launcher.log", ranks.folder)),
        {"rank": None, "rung": _stage_reached(ranks), "exit": ranks.launcher_exit},
    )


def _stage_reached(ranks: Ranks) -> str:
    """Return the first stage that not every rank has passed."""
    return min((stage_of(rank, ranks) for rank in ranks.ranks), key=ranks.rungs.index, default=ranks.rungs[0])
