"""Did the launcher do its part?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks

from ._causes import CAUSES, LOST
from ._rank_states import last_line, own_failure, own_failures, rung, signal_name, who

_LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py"
_CLI = "https://huggingface.co/docs/accelerate/package_reference/cli"

# The launchers' words: accelerate's own look at the port, torch's store that cannot listen.
_PORT_WORDS = ("another process is utilizing it", "EADDRINUSE", "address already in use", "Address already in use")


@check(Severity.ERROR, source=_LAUNCH, because_of=LOST)
def meeting_port_taken(ranks: Ranks) -> Answer:
    """The port at which the ranks were to meet is taken.

    Why: another program listens there, most often a training that was not ended or a second launch with the same
    config. The launcher, or the first rank, cannot listen there, and no rank finds another.

    Fix: Or let mgpu choose: take main_process_port out of the config.
    """
    fixes = (
        Fix(
            "See who listens there.",
            (shell("ss -ltnp 'sport = :{:number}'", ranks.port),) if ranks.port else ("ss -ltnp",),
        ),
        Fix(),
    )
    if rank := own_failure(ranks, "port_taken"):
        port = rank.evidence.get("port")
        return Problem(
            f'{who(rank)} cannot listen, in "{rung(rank, ranks)}": port {port} is taken',
            f"The other ranks look for it there. {rank.error}",
            fixes,
            {"rank": rank.rank, "rung": rung(rank, ranks), "port": port},
            (f"rank {rank.rank}",),
        )
    if any(rank.last_word for rank in ranks.ranks):
        return Ok("the ranks were started")
    said = next(
        (line for line in (ranks.launcher_output or "").splitlines() if any(word in line for word in _PORT_WORDS)), None
    )
    if said is None:
        return Ok("the launcher did not complain of a port")
    port = ranks.port or "of the rendezvous"
    return Problem(
        f'no rank was started, in "{ranks.rungs[0]}": port {port} is taken',
        f"The launcher said: {said.strip()}",
        fixes,
        {"rank": None, "rung": ranks.rungs[0], "port": ranks.port},
    )


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11")
def launcher_killed(ranks: Ranks) -> Answer:
    """The launcher itself was ended by a signal, and its ranks with it.

    Why: Its ranks end with it; none of them had failed before.
    More: SIGKILL without a word is the kernel when memory runs out, the scheduler, or a person.

    Fix: Find out who sent the signal: the kernel for want of memory, the scheduler, a person.
    More: Then run the test again.
    """
    if ranks.launcher_exit is None:
        return Skip("the launcher was ended by mgpu")
    if ranks.launcher_exit >= 0:
        return Ok("no signal ended the launcher")
    if own_failures(ranks):
        return Ok("a rank had failed before the launcher was ended")
    where, name = _reached(ranks), signal_name(ranks.launcher_exit)
    return Problem(
        f'the launcher was ended by {name}, in "{where}"',
        fix=commands("sudo dmesg | grep -i 'killed process'", shell("cat {:path}/launcher.log", ranks.folder)),
        evidence={"rank": None, "rung": where, "signal": name},
    )


@check(Severity.ERROR, source=_CLI, because_of=(*LOST, *CAUSES, "rank_failed", "ranks_hang", "rank_ended_early"))
def launcher_failed(ranks: Ranks) -> Answer:
    """The launcher ended with an error.

    Why: its exit code is what a training would end with, too.

    Fix: See all it printed.
    """
    if ranks.ended not in ("finished", "died") or ranks.launcher_exit is None:
        return Skip("the launcher was ended by mgpu")
    if ranks.launcher_exit == 0:
        return Ok("exit code 0")
    return Problem(
        f'the launcher ended with exit code {ranks.launcher_exit}, at "{_reached(ranks)}"',
        f"Its last line: {last_line(ranks)}",
        commands(shell("cat {:path}/launcher.log", ranks.folder)),
        {"rank": None, "rung": _reached(ranks), "exit": ranks.launcher_exit},
    )


def _reached(ranks: Ranks) -> str:
    """The lowest rung that not every rank has passed."""
    return min((rung(rank, ranks) for rank in ranks.ranks), key=ranks.rungs.index, default=ranks.rungs[0])
