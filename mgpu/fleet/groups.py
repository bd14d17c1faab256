"""Which nodes are tried together, and what does it say of each when they fail? Pure: no node is asked here.

First disjoint pairs, all at the same time. Who passed with another one is good; the nodes of a pair that failed are
tried again, each with a good one, so that only the one that fails with everybody is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Group = tuple[str, ...]
# Tries the groups at the same time -> why a group failed, in words; None: it passed.
Try = Callable[[Sequence[Group]], Mapping[Group, "str | None"]]
# Where no pair at all has passed, other pairs are tried so often. Two good nodes among six always meet, among more
# mostly; where still nobody has passed, the cause is seldom a node.
_CHANGES = 5


@dataclass
class Found:
    """Who is good, and who is bad and why."""

    good: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    tried: list[Group] = field(default_factory=list)
    failed: list[Group] = field(default_factory=list)


def pairs(nodes: Sequence[str]) -> list[Group]:
    """Neighbours in the given order; of an odd number the last three are one group."""
    groups = [tuple(nodes[at : at + 2]) for at in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2 and groups:
        groups[-1] = (*groups[-1], nodes[-1])
    return groups


def sort_out(nodes: Sequence[str], attempt: Try) -> Found:
    """Try the nodes in pairs until it is known of each whether it can train with another."""
    found = Found()
    if len(nodes) < 2:
        found.good = list(nodes)
        return found
    why = _round(pairs(nodes), attempt, found)
    for turn in range(_CHANGES):
        if found.good:
            break
        tried = {frozenset(group) for group in found.tried}
        if others := [pair for pair in _other_pairs(nodes, turn) if frozenset(pair) not in tried]:
            why |= _round(others, attempt, found)
    suspects = [node for node in nodes if node not in found.good]
    if not found.good:
        found.bad = {node: why[node] for node in suspects}
        return found
    while suspects:
        helpers = list(found.good)  # who turns out good helps from the next round on
        now, suspects = suspects[: len(helpers)], suspects[len(helpers) :]
        why |= _round([(helper, node) for helper, node in zip(helpers, now, strict=False)], attempt, found)
        found.bad |= {node: why[node] for node in now if node not in found.good}
    found.good.sort(key=list(nodes).index)
    return found


def _round(groups: Sequence[Group], attempt: Try, found: Found) -> dict[str, str]:
    """Try groups at once; whoever is in one that passes is good. Why the others failed, for each node."""
    why = {}
    told = attempt(groups)
    for group in groups:
        found.tried.append(group)
        words = told.get(group, "was not tried")
        if words is None:
            found.good += [node for node in group if node not in found.good]
            continue
        found.failed.append(group)
        for node in group:
            others = " and ".join(other for other in group if other != node)
            why[node] = f"with {others}: {words}"
    return why


def _other_pairs(nodes: Sequence[str], turn: int) -> list[Group]:
    """Everybody with somebody else in every turn, as in a tournament: the first stays, the others move around; of an
    odd number one pauses."""
    seats: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    first, rest = seats[0], seats[1:]
    moved = [first, *rest[turn % len(rest) :], *rest[: turn % len(rest)]]
    half = len(moved) // 2
    met = zip(moved[:half], reversed(moved[half:]), strict=True)
    return [(a, b) for a, b in met if a is not None and b is not None]
