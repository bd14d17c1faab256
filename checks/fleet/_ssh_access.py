"""Which hosts of `--hosts` could not be reached with ssh, and how is that shown?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Skip
from mgpu.snapshot import Fleet, HostAccess
from mgpu.text import counted

LONGEST = 60  # characters of ssh's message in a title


def over_ssh(fleet: Fleet) -> Skip | None:
    """Return a Skip if the nodes were not reached with ssh, else None."""
    return None if fleet.access else Skip("the nodes are not hosts of --hosts")


def judge_access(
    fleet: Fleet,
    kinds: Sequence[str],
    title: Callable[[HostAccess], str],
    cause: str,
    fix: Callable[[HostAccess], Fix],
    well: str,
) -> Answer:
    """Return a problem for each host with a problem of these kinds, or Ok."""
    access = fleet.access or ()
    found = [one for one in access if one.problem in kinds]
    if not found:
        reached = [one for one in access if not one.problem]
        return Ok(f"{well} ({counted(len(reached), 'host')})") if reached else Skip("no host was reached")
    return tuple(
        Problem(
            f"{one.node}: {title(one)}",
            cause,
            fix(one),
            {"host": one.destination, "port": one.port, "ssh": one.said},
            subjects=(one.node,),
        )
        for one in found
    )


def short_message(one: HostAccess) -> str:
    """Return ssh's message without its prefix, short enough for a title."""
    text = one.said.removeprefix("ssh: ")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
