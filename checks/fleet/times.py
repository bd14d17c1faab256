"""Do the nodes' clocks agree, and is a node slower or hotter than the others?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, Outlier
from mgpu.text import counted

from ._families import too_few_nodes
from ._ways import ON_NODES, leave_out, look_at

# Log rotation, make and rsync compare times in seconds; the offsets are measured over srun to about 0.1 s.
_OFF_S = 2.0
# munge credentials are valid for 300 s (munged(8), --ttl), and two nodes may be off in opposite directions.
# Certificates, tokens and leases fail within minutes. This is mgpu's own limit, far above the accuracy of NTP.
_FAR_OFF_S = 60.0
_CLOCK = f"{ON_NODES} timedatectl status"
_MUNGE = "https://manpages.debian.org/bookworm/munge/munged.8.en.html"
_MOST_SHOWN = 12  # nodes in the evidence
_HOT = ("temperature", "load")


@check(Severity.ERROR, source=_MUNGE)
def fleet_clock_far_off(fleet: Fleet) -> Answer:
    """A node's clock differs by more than a minute from the other nodes.

    Why: Slurm credentials, TLS certificates and tokens contain times: on a node that is minutes off, they are
    expired or not yet valid, so steps fail to start and downloads are rejected. Log entries of that node cannot be
    ordered.

    Fix: have chrony or ntpd started there.
    """
    return _clocks(
        fleet,
        _FAR_OFF_S,
        None,
        "Slurm credentials (munge), certificates and tokens fail if clocks differ by minutes.",
    )


@check(Severity.WARNING, source=_MUNGE)
def fleet_clock_off(fleet: Fleet) -> Answer:
    """A node's clock differs by more than two seconds from the other nodes.

    Why: its clock is not synchronized and will drift further. Times in logs and of files cannot be compared.

    Fix: have chrony or ntpd started there.
    """
    return _clocks(
        fleet, _OFF_S, _FAR_OFF_S, "It is not synchronized and drifts further; log times cannot be compared."
    )


def _clocks(fleet: Fleet, least: float, below: float | None, cause: str) -> Answer:
    if fleet.clock_offsets_s is None:
        return Skip("the clocks were not read at the same time")
    if len(fleet.clock_offsets_s) < 2:
        return Skip(f"{counted(len(fleet.clock_offsets_s), 'node')} reported the time: nothing to compare")
    if halves := _halves(fleet.clock_offsets_s):
        behind, ahead, apart = halves
        if apart > least:
            if below is not None and apart > below:
                return Ok("larger offset: see fleet_clock_far_off")
            return _tied_clocks_problem(fleet, behind, ahead, apart, cause)
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
                    "Have its time service started; check its status.",
                    look_at(fleet, nodes, _CLOCK),
                    who="admin",
                ),
                leave_out(nodes, fleet),
            ),
            {"nodes": fold(nodes), "offset_s": round(off[nodes[0]], 1), "of": len(fleet.nodes)},
            subjects=tuple(nodes),
        )
        for (seconds, behind), nodes in groups.items()
    )


def _halves(offsets: Mapping[str, float]) -> tuple[list[str], list[str], float] | None:
    """Return the nodes behind and ahead of a median that no node has, and the distance between them; else None."""
    behind = [node for node, offset in offsets.items() if offset < 0]
    ahead = [node for node, offset in offsets.items() if offset > 0]
    if len(behind) != len(ahead) or len(behind) + len(ahead) < len(offsets):
        return None
    return behind, ahead, min(offsets[node] for node in ahead) - max(offsets[node] for node in behind)


def _tied_clocks_problem(fleet: Fleet, behind: list[str], ahead: list[str], seconds: float, cause: str) -> Problem:
    """Return the problem for two equally large groups of clocks."""
    nodes = (*behind, *ahead)
    return Problem(
        f"clock of {fold(behind)} {_span(round(seconds))} behind {fold(ahead)}",
        f"Equally many are behind and ahead, so which ones are right is unknown. {cause}",
        Fix(
            "Have the time services started; check their status.",
            look_at(fleet, nodes, _CLOCK),
            who="admin",
        ),
        {"behind": fold(behind), "ahead": fold(ahead), "apart_s": round(seconds, 1)},
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


@check(Severity.WARNING, source="mgpu: median and MAD of equal nodes")
def fleet_node_slow(fleet: Fleet) -> Answer:
    """A node is slower than other nodes with the same hardware.

    Why: a synchronous step takes as long as the slowest rank. One node that is 20% slower costs 20% on all nodes,
    without any error.

    Fix: exclude it, and have it checked.
    """
    slow = [one for one in fleet.outliers if not one.key.split(".")[-1].startswith(_HOT)]
    return _outliers(fleet, slow, "no node is slower than the others", "Every step waits for the slowest rank.")


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvidia-smi/index.html")
def fleet_node_strained(fleet: Fleet) -> Answer:
    """A node is hotter or busier than other nodes with the same hardware.

    Why: a fan or a pump has failed, or other processes are running there. Hot GPUs slow down, and ranks wait for
    CPUs that other processes use.

    Fix: check what runs there; if nothing does, have the cooling checked.
    """
    hot = [one for one in fleet.outliers if one.key.split(".")[-1].startswith(_HOT)]
    return _outliers(
        fleet, hot, "no node is hotter or busier than the others", "It slows down, and with it all others."
    )


def _outliers(fleet: Fleet, found: list[Outlier], well: str, cause: str) -> Answer:
    if (skip := too_few_nodes(fleet)) is not None:
        return skip
    if max((len(nodes) for nodes in fleet.roles.values()), default=0) < 8:
        return Skip("fewer than 8 nodes of any kind: too few for a reliable median")
    alike: dict[tuple[str, float], list[Outlier]] = {}  # one problem per group, not one per node
    for one in found:
        alike.setdefault((one.key, one.median), []).append(one)
    return tuple(_outlier_problem(fleet, far, cause) for far in alike.values()) or Ok(
        f"{well} ({counted(len(fleet.nodes), 'node')})"
    )


def _outlier_problem(fleet: Fleet, far: list[Outlier], cause: str) -> Problem:
    """Return the problem for nodes that are far from the median in one value."""
    far = sorted(far, key=lambda one: abs(one.deviation))
    least, most, nodes = far[0], far[-1], [one.node for one in far]
    said = list(dict.fromkeys(f"{one.value:.4g}" for one in (least, most)))
    named = fold(nodes)
    evidence: dict[str, str | float] = {"nodes": named, "median": most.median, "robust_deviations": most.deviation}
    return Problem(
        f"{most.what} {' to '.join(said)}{most.unit} on {named}, median {most.median:.4g}{most.unit}",
        f"That is {abs(most.deviation):.0f} robust standard deviations from nodes with the same hardware. {cause}",
        (
            Fix(
                "Check what runs there, and run mgpu doctor.",
                look_at(fleet, nodes, f"{ON_NODES} bash -c 'uptime; nvidia-smi; mgpu doctor'"),
            ),
            leave_out(nodes, fleet),
        ),
        evidence | {one.node: one.value for one in far[-_MOST_SHOWN:]},
        subjects=tuple(nodes),
    )
