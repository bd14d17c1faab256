"""Do the clocks agree, and is one node slower or hotter than the others?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, Outlier
from mgpu.text import counted

from ._families import leave_out, too_few

# Rotating logs, make and rsync judge by the second; the offsets are measured over srun to about 0.1 s.
_OFF_S = 2.0
# munge's credentials live 300 s (munged(8), --ttl), and half of that is used up when two nodes are off in opposite
# directions; certificates, tokens and leases fail within minutes: mgpu's own limit, far from what NTP leaves.
_FAR_OFF_S = 60.0
_MUNGE = "https://manpages.debian.org/bookworm/munge/munged.8.en.html"
_MOST_SHOWN = 12  # nodes in the evidence
_HOT = ("temperature", "load")


@check(Severity.ERROR, source=_MUNGE)
def fleet_clock_far_off(fleet: Fleet) -> Answer:
    """The clock of a node is more than a minute from those of the others.

    Why: Slurm's credentials, TLS certificates and tokens carry times: on a node that is minutes off they are expired or
    not yet valid, and steps fail to start or downloads are refused. Logs of such a node cannot be put in order.

    Fix: have chrony or ntpd started there.
    """
    return _clocks(
        fleet,
        _FAR_OFF_S,
        None,
        "Credentials of Slurm (munge), certificates and tokens fail with clocks minutes off.",
    )


@check(Severity.WARNING, source=_MUNGE)
def fleet_clock_off(fleet: Fleet) -> Answer:
    """The clock of a node is more than two seconds from those of the others.

    Why: nothing keeps it in step, so that it will drift further. Times in logs and of files do not compare.

    Fix: have chrony or ntpd started there.
    """
    return _clocks(fleet, _OFF_S, _FAR_OFF_S, "Nothing keeps it in step: it drifts on, and logs do not compare.")


def _clocks(fleet: Fleet, least: float, below: float | None, cause: str) -> Answer:
    if fleet.clock_offsets_s is None:
        return Skip("the clocks were not asked at the same moment")
    if len(fleet.clock_offsets_s) < 2:
        return Skip(f"{counted(len(fleet.clock_offsets_s), 'node')} told the time: nothing to compare")
    if halves := _halves(fleet.clock_offsets_s):
        behind, ahead, apart = halves
        if apart > least:
            told = below is None or apart <= below
            return _apart(behind, ahead, apart, cause) if told else Ok("further apart: fleet_clock_far_off tells it")
    off = {
        node: offset
        for node, offset in fleet.clock_offsets_s.items()
        if abs(offset) > least and (below is None or abs(offset) <= below)
    }
    if not off:
        return Ok(f"{counted(len(fleet.clock_offsets_s), 'node')} within {least:g} s")
    groups: dict[tuple[float, bool], list[str]] = {}
    for node, offset in off.items():
        groups.setdefault((round(abs(offset)), offset < 0), []).append(node)
    return tuple(
        Problem(
            f"clock of {fold(nodes)} {_span(seconds)} {'behind' if behind else 'ahead'}",
            cause,
            (
                Fix(
                    "Have its time service started; see what it says.",
                    (shell("srun -N{:number} -w {:hosts} --label timedatectl status", len(nodes), fold(nodes)),),
                    who="admin",
                ),
                leave_out(nodes),
            ),
            {"nodes": fold(nodes), "offset_s": round(off[nodes[0]], 1), "of": len(fleet.nodes)},
            subjects=tuple(nodes),
        )
        for (seconds, behind), nodes in groups.items()
    )


def _halves(offsets: Mapping[str, float]) -> tuple[list[str], list[str], float] | None:
    """The nodes before and behind a median that is the time of none of them, and how far apart these are."""
    behind = [node for node, offset in offsets.items() if offset < 0]
    ahead = [node for node, offset in offsets.items() if offset > 0]
    if len(behind) != len(ahead) or len(behind) + len(ahead) < len(offsets):
        return None
    return behind, ahead, min(offsets[node] for node in ahead) - max(offsets[node] for node in behind)


def _apart(behind: list[str], ahead: list[str], seconds: float, cause: str) -> Problem:
    """As many clocks say the one as the other."""
    nodes = (*behind, *ahead)
    return Problem(
        f"clock of {fold(behind)} {_span(round(seconds))} behind {fold(ahead)}",
        f"As many are behind as ahead: which are right is not known here. {cause}",
        Fix(
            "Have the time services started; see what they say.",
            (shell("srun -N{:number} -w {:hosts} --label timedatectl status", len(nodes), fold(nodes)),),
            who="admin",
        ),
        {"behind": fold(behind), "ahead": fold(ahead), "apart_s": round(seconds, 1)},
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


@check(Severity.WARNING, source="mgpu: median and MAD of the nodes that are alike")
def fleet_node_slow(fleet: Fleet) -> Answer:
    """A node is slower than the nodes that are built like it.

    Why: a synchronous step takes as long as the slowest rank. One node that is a fifth slower costs a fifth of all of
    them, and nothing fails.

    Fix: leave it out, and have it looked at.
    """
    slow = [one for one in fleet.outliers if not one.key.split(".")[-1].startswith(_HOT)]
    return _outliers(fleet, slow, "no node slower than the others", "Every step waits for the slowest rank.")


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvidia-smi/index.html")
def fleet_node_strained(fleet: Fleet) -> Answer:
    """A node is hotter or busier than the nodes that are built like it.

    Why: a fan or a pump has failed, or somebody else computes there. GPUs slow down when they are hot, and ranks wait
    for CPUs that others use.

    Fix: see what runs there; if nothing does, have the cooling looked at.
    """
    hot = [one for one in fleet.outliers if one.key.split(".")[-1].startswith(_HOT)]
    return _outliers(fleet, hot, "no node hotter or busier than the others", "It will be slow, and slow all others.")


def _outliers(fleet: Fleet, found: list[Outlier], well: str, cause: str) -> Answer:
    if (skip := too_few(fleet)) is not None:
        return skip
    if max((len(nodes) for nodes in fleet.roles.values()), default=0) < 8:
        return Skip("fewer than 8 nodes of a kind: what is usual is not known")
    alike: dict[tuple[str, float], list[Outlier]] = {}  # of one population: one problem, and not forty
    for one in found:
        alike.setdefault((one.key, one.median), []).append(one)
    return tuple(_far(far, cause) for far in alike.values()) or Ok(f"{well} ({counted(len(fleet.nodes), 'node')})")


def _far(far: list[Outlier], cause: str) -> Problem:
    """Nodes that are far from the median in one thing."""
    far = sorted(far, key=lambda one: abs(one.deviation))
    least, most, nodes = far[0], far[-1], [one.node for one in far]
    said = list(dict.fromkeys(f"{one.value:.4g}" for one in (least, most)))
    named = fold(nodes)
    evidence: dict[str, str | float] = {"nodes": named, "median": most.median, "robust_deviations": most.deviation}
    return Problem(
        f"{most.what} {' to '.join(said)}{most.unit} on {named}, median {most.median:.4g}{most.unit}",
        f"That is {abs(most.deviation):.0f} robust standard deviations from the nodes that are alike. {cause}",
        (
            Fix(
                "See what runs there, and what the doctor says.",
                (
                    shell(
                        "srun -N{:number} -w {:hosts} --ntasks-per-node=1 --label "
                        "bash -c 'uptime; nvidia-smi; mgpu doctor'",
                        len(nodes),
                        named,
                    ),
                ),
            ),
            leave_out(nodes),
        ),
        evidence | {one.node: one.value for one in far[-_MOST_SHOWN:]},
        subjects=tuple(nodes),
    )
