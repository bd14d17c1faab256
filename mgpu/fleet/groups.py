"""Choose which nodes to test together, and find the bad ones from the results. Pure: no node is contacted here.

First disjoint pairs, all at the same time. A node that passes with another one is good. The nodes of a failed pair are
tested again, each with a good one; a node is bad only if it fails with a good node too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Group = tuple[str, ...]
# Tests the groups at the same time -> why a group failed, as text; None: it passed.
Try = Callable[[Sequence[Group]], Mapping[Group, "str | None"]]
# If no pair passes, other pairs are tested this many times. Two good nodes among six are always paired once, among more
# mostly; if still no pair passes, the cause is seldom a node.
_CHANGES = 5


@dataclass
class Found:
    """The good nodes, and the bad ones with the reason."""

    good: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    tried: list[Group] = field(default_factory=list)
    failed: list[Group] = field(default_factory=list)


def pairs(nodes: Sequence[str]) -> list[Group]:
    """Return neighbors in the given order as pairs; with an odd number, the last three are one group."""
    groups = [tuple(nodes[at : at + 2]) for at in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2 and groups:
        groups[-1] = (*groups[-1], nodes[-1])
    return groups


def sort_out(nodes: Sequence[str], attempt: Try) -> Found:
    """Test the nodes in pairs until it is known for each whether it can train with another."""
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
        helpers = list(found.good)  # nodes found good in this round help from the next round on
        now, suspects = suspects[: len(helpers)], suspects[len(helpers) :]
        why |= _round([(helper, node) for helper, node in zip(helpers, now, strict=False)], attempt, found)
        found.bad |= {node: why[node] for node in now if node not in found.good}
    found.good.sort(key=list(nodes).index)
    return found


def _round(groups: Sequence[Group], attempt: Try, found: Found) -> dict[str, str]:
    """Test groups at the same time; nodes of a group that passes are good. Return why each other node failed."""
    why = {}
    failures = attempt(groups)
    for group in groups:
        found.tried.append(group)
        reason = failures.get(group, "was not tested")
        if reason is None:
            found.good += [node for node in group if node not in found.good]
            continue
        found.failed.append(group)
        for node in group:
            others = " and ".join(other for other in group if other != node)
            why[node] = f"with {others}: {reason}"
    return why


def _other_pairs(nodes: Sequence[str], turn: int) -> list[Group]:
    """Return new pairs for each turn, as in a round-robin tournament.

    The first node stays in place and the others rotate; with an odd number, one node pauses.
    """
    seats: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    first, rest = seats[0], seats[1:]
    moved = [first, *rest[turn % len(rest) :], *rest[: turn % len(rest)]]
    half = len(moved) // 2
    met = zip(moved[:half], reversed(moved[half:]), strict=True)
    return [(a, b) for a, b in met if a is not None and b is not None]
