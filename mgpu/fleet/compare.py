"""Compare many machines: classes of nodes with the same differences, and outliers among measured values.

Facts only; `checks/fleet` judges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from mgpu.fleet.field_kinds import compared_facts as compared_facts
from mgpu.fleet.flatten import KNOWN, Values, flat, names_of
from mgpu.fleet.node_groups import compare_role, roles
from mgpu.fleet.outliers import MEASURED, outliers
from mgpu.hostlist import order
from mgpu.snapshot import Fleet, NodeAddresses, NodeFault, NodePath, Snapshot, to_json

_FAILED_READS = frozenset({"timed out", "crashed", "no permission"})  # reasons why a fact is unknown


@dataclass(frozen=True)
class Machine:
    """One node's facts as a flat table; the original tree is not kept.

    `extra`: more values that should be equal everywhere, "files.script" -> its hash. `measured`: more measurements,
    named with their unit: "all_reduce_gb_per_s" -> 412.0, "first_step_s" -> 1.2.
    """

    node: str
    facts: InitVar[Snapshot | Mapping[str, Any]]  # a Snapshot, or its JSON
    extra: InitVar[Mapping[str, str] | None] = None
    measured: InitVar[Mapping[str, float] | None] = None
    values: Values = field(init=False)
    names: tuple[str, ...] = field(init=False)  # of the node
    known: tuple[str, ...] = field(init=False)  # the facts it has, and "files" if hashes of files were passed

    def __post_init__(
        self,
        facts: Snapshot | Mapping[str, Any],
        extra: Mapping[str, str] | None,
        measured: Mapping[str, float] | None,
    ) -> None:
        """Flatten the tree."""
        plain = to_json(facts) if isinstance(facts, Snapshot) else facts
        values, names = flat(plain), names_of(plain, self.node)
        known = tuple(fact for fact in compared_facts() if values.get(fact) == KNOWN)
        values |= extra or {}
        values |= {f"{MEASURED}{name}": value for name, value in (measured or {}).items()}
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "known", (*known, *dict.fromkeys(key.partition(".")[0] for key in extra or ())))


def fleet_of(
    machines: Iterable[Machine],
    missing: Mapping[str, str] | None = None,
    *,
    faults: Sequence[NodeFault] | None = (),
    clock_offsets_s: Mapping[str, float] | None = None,
    unshared: Mapping[str, tuple[str, ...]] | None = None,
    paths: Sequence[NodePath] | None = None,
    doors: Sequence[NodeAddresses] = (),
    together: bool = False,
    strangers: Sequence[str] = (),
) -> Fleet:
    """Return the fact `fleet`.

    `missing`: nodes that did not answer -> why. `faults` None: the nodes were not checked one by one. `together`: they
    will run one job.
    """
    machines = sorted(machines, key=lambda machine: order(machine.node))
    nodes = {machine.node: machine.values for machine in machines}
    found = roles(nodes, together=together)
    names = {machine.node: machine.names for machine in machines}
    of_roles = [compare_role(role, members, nodes, names) for role, members in found.items()]
    return Fleet(
        tuple(nodes),
        dict(sorted((missing or {}).items(), key=lambda one: order(one[0]))),
        tuple(node_class for of_role in of_roles for node_class in of_role.classes),
        tuple(far for of_role in of_roles for group in of_role.populations for far in outliers(nodes, group)),
        None if faults is None else tuple(faults),
        clock_offsets_s,
        unshared,
        tuple(doors),
        None if paths is None else tuple(paths),
        max((of_role.keys for of_role in of_roles), default=0) if len(nodes) > 1 else 0,
        found,
        _comparable_facts(machines, found),
        tuple(dict.fromkeys(name for of_role in of_roles for name in of_role.scattered)),
        together,
        _unread(nodes, found),
        tuple(strangers),
    )


def _unread(nodes: Mapping[str, Values], found: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the facts that were probed but that no node of a role could read -> why."""
    unread: dict[str, str] = {}
    for fact in compared_facts():
        for members in found.values():
            states = {str(nodes[node].get(fact)) for node in members}
            if KNOWN not in states and (why := sorted(states & _FAILED_READS)):
                unread[fact] = ", ".join(why)
    return unread


def _comparable_facts(machines: Iterable[Machine], found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the facts that at least two nodes of one role have, which can be compared."""
    role_of = {node: role for role, nodes in found.items() for node in nodes}
    times = Counter((role_of[machine.node], fact) for machine in machines for fact in machine.known)
    return tuple(dict.fromkeys(fact for (_, fact), number in times.items() if number > 1))
