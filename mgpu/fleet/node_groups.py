"""Group nodes by kind, and find how some differ from the others of their kind.

First come roles (GPU model and count): nodes of different roles are never compared. Within a role, the usual value of a
fact is that of most nodes; nodes that differ from it in exactly the same facts are one class. A large class is a
separate population, and its members are compared with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mgpu.errors import clip
from mgpu.fleet import field_kinds
from mgpu.fleet.flatten import KNOWN, Several, Values, impersonal, is_unsaid
from mgpu.fleet.outliers import measure_of
from mgpu.hostlist import order, prefix
from mgpu.snapshot import Difference, NodeClass
from mgpu.snapshot.changes import format_value

# Nodes with the same differences are a separate population, not outliers, if they exceed this share of the role and
# this number, or if they fill a rack, whatever the share (mgpu's own choice: 16 nodes with four or eight GPUs).
_SHARE = 0.10
_FEW = 3
_RACK = 16
_NEARLY = 0.02  # firmware and kernel reserve different amounts of memory: under 1 % seen; a missing module is more
_USUAL_COUNTS = frozenset({1, 2, 3, 4, 6, 8, 10, 12, 16})  # GPUs per machine: 7 means 8 with one lost
# A fact without a majority value and with more values than this (or this share of the nodes) differs on every node.
_MOST_VALUES = 4
_MOST_VALUES_SHARE = 0.10
_LONGEST = 120  # characters of a value

NO_GPU = "no GPU"
UNKNOWN_GPUS = "unknown GPUs"


@dataclass(frozen=True)
class Compared:
    """The comparison of the nodes of one role."""

    classes: tuple[NodeClass, ...]
    populations: tuple[tuple[str, ...], ...]  # nodes equal except for single differences, for comparing measurements
    keys: int
    scattered: tuple[str, ...]


def roles(nodes: Mapping[str, Values], *, together: bool = False) -> dict[str, tuple[str, ...]]:
    """Return role -> its nodes, the largest role first.

    A node that lost all or some GPUs belongs to the role of its siblings. With `together`, all nodes of a job have one
    role, and a different GPU is a difference.
    """
    models = {node: values.get("gpus.name") for node, values in nodes.items()}
    sizes = Counter(model for model in models.values() if model is not None)
    bare = [node for node, model in models.items() if model is None]
    own = {model for model, size in sizes.items() if _many(size, len(nodes)) or _by_name(model, models)}
    if sizes and (together or not own):
        own = {sizes.most_common(1)[0][0]}
    without = [node for node in bare if _never_had_one(nodes[node])]
    many = not together and _many(len(without), len(nodes))
    apart = frozenset(without) if not sizes or many else frozenset()
    by_prefix: dict[str, Counter[Hashable]] = {}
    for node, model in models.items():
        if model in own:
            by_prefix.setdefault(prefix(node), Counter())[model] += 1
    everywhere = Counter(model for model in models.values() if model in own)
    grouped: dict[Hashable, list[str]] = {}
    for node in nodes:
        model = models[node]
        if node in apart:
            model = None
        elif model not in own:
            siblings = by_prefix.get(prefix(node)) or everywhere
            model = siblings.most_common(1)[0][0] if siblings else None
        grouped.setdefault(model, []).append(node)
    found: dict[str, tuple[str, ...]] = {}
    for model, members in grouped.items():
        found |= _by_count(model, members, nodes, together=together)
    return dict(sorted(found.items(), key=lambda role: -len(role[1])))


def _many(size: int, of: int) -> bool:
    return size > _FEW and (size > of * _SHARE or size >= _RACK)


def _by_name(model: Hashable, models: Mapping[str, Hashable]) -> bool:
    """Whether several nodes have this model and a name prefix of their own: dev[1-2] besides gpu[1-400]."""
    own = [node for node, one in models.items() if one == model]
    prefixes = {prefix(node) for node in own}
    return len(own) > 1 and all(one == model for node, one in models.items() if prefix(node) in prefixes)


def _never_had_one(values: Values) -> bool:
    """Whether the node is known to have no GPU, with no sign that it ever had one."""
    silent = values.get("driver.nvml_error") in (None, "LIBRARY_NOT_FOUND")
    return (
        values.get("driver") == KNOWN and silent and not values.get("driver.pci_gpus") and not values.get("gpus.count")
    )


def _by_count(
    model: Hashable, members: Sequence[str], nodes: Mapping[str, Values], *, together: bool
) -> dict[str, tuple[str, ...]]:
    """Return the nodes with one GPU model, split by GPU count if many have another usual count."""
    if model is None:
        return {NO_GPU if all(_never_had_one(nodes[node]) for node in members) else UNKNOWN_GPUS: tuple(members)}
    counts = Counter(count for node in members if (count := nodes[node].get("gpus.count")) is not None)
    usual = _most_common(counts)  # a node with a known model has a known count
    own: set[Hashable] = {
        n for n, size in counts.items() if n in _USUAL_COUNTS and _many(size, len(members)) and not together
    }
    own.add(usual)
    found: dict[str, list[str]] = {}
    for node in members:
        count = nodes[node].get("gpus.count")
        found.setdefault(f"{count if count in own else usual} x {_text(model)}", []).append(node)
    return {role: tuple(names) for role, names in found.items()}


def _most_common(counts: Counter[Hashable]) -> Hashable:
    """Return the most common value; of several, the larger number of GPUs."""
    return max(counts, key=lambda value: (counts[value], value if isinstance(value, int) else -1))


def compare_role(
    role: str, members: Sequence[str], nodes: Mapping[str, Values], names: Mapping[str, Sequence[str]]
) -> Compared:
    """Return the classes of one role. `names`: all names of each node."""
    members = sorted(members, key=order)
    clear: dict[str, list[Difference]] = {}
    tied: dict[str, list[Difference]] = {}
    scattered: list[str] = []
    tables = [nodes[node] for node in members]
    keys: dict[str, None] = {}
    for table in tables:
        keys |= dict.fromkeys(table)
    facts = frozenset(field_kinds.compared_facts())
    for key in keys:
        if len({table.get(key) for table in tables}) == 1 or measure_of(key):
            continue
        values = _impersonal(_values(key, members, nodes), names)
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        ranked = counts.most_common()
        (usual, most), (_, second) = ranked[:2]
        tie = most == second and not _many(second, len(values))
        if KNOWN in counts and key in facts:  # an unread fact is never the usual state, even on most nodes
            usual, tie = KNOWN, False
        elif most * 2 <= len(values) and len(counts) > max(_MOST_VALUES, len(values) * _MOST_VALUES_SHARE):
            scattered.append(key)
            continue
        label = field_kinds.key_label(key)
        for node, value in values.items():
            if value != usual:
                difference = Difference(key, label.what, _text_of(label.where, value), _text_of(label.where, usual))
                (tied if tie else clear).setdefault(node, []).append(difference)
    classes = _classes(role, clear, len(members))
    populations = _populations(members, classes)
    classes += [
        NodeClass(role, names, differences, len(members), tied=True) for names, differences in _group_nodes(tied)
    ]
    return Compared(tuple(classes), populations, len(keys), tuple(scattered))


def _values(key: str, members: Sequence[str], nodes: Mapping[str, Values]) -> dict[str, Hashable]:
    """Return the value of each node, without nodes on which the fact is unknown or whose mgpu lacks the field."""
    fact = key.partition(".")[0]
    of_fact = key != fact and fact in field_kinds.compared_facts()
    values = {
        node: nodes[node].get(key)
        for node in members
        if not of_fact or (nodes[node].get(fact) == KNOWN and not is_unsaid(nodes[node], key))
    }
    return _merge_near(values) if field_kinds.is_near(key) else values


def _impersonal(values: dict[str, Hashable], names: Mapping[str, Sequence[str]]) -> dict[str, Hashable]:
    """Replace a node's own name in its values by "{node}", if that makes them equal (/scratch/n7/tmp).

    Values that contain the same node everywhere, such as the rendezvous host, stay as they are.
    """
    different = len(set(values.values()))
    if different < 2 or not any(isinstance(value, (str, tuple)) for value in values.values()):
        return values
    replaced = {node: impersonal(value, names[node]) for node, value in values.items()}
    return replaced if len(set(replaced.values())) < different else values


def _merge_near(values: dict[str, Hashable]) -> dict[str, Hashable]:
    """Replace nearly equal numbers by the most common one."""
    counts = Counter(value for value in values.values() if isinstance(value, (int, float)) and value)
    replacement: dict[Hashable, Hashable] = {}
    for value, _ in counts.most_common():
        near = (other for other in dict.fromkeys(replacement.values()) if _is_near(value, other))
        replacement[value] = next(near, value)
    return {node: replacement.get(value, value) for node, value in values.items()}


def _is_near(value: Hashable, other: Hashable) -> bool:
    assert isinstance(value, (int, float)) and isinstance(other, (int, float))
    return abs(value - other) <= _NEARLY * abs(other)


def _group_nodes(
    differences: Mapping[str, Sequence[Difference]],
) -> list[tuple[tuple[str, ...], tuple[Difference, ...]]]:
    """Return groups of nodes with the same differences, the largest first."""
    groups: dict[tuple[Difference, ...], list[str]] = {}
    for node, found in differences.items():
        groups.setdefault(tuple(found), []).append(node)
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), order(group[1][0])))
    return [(tuple(sorted(nodes, key=order)), found) for found, nodes in ranked]


def _classes(role: str, differences: Mapping[str, Sequence[Difference]], of: int) -> list[NodeClass]:
    """Return the classes, second populations first.

    A node with a population's differences and more belongs to the population.
    """
    groups = _group_nodes(differences)
    large = [(names, frozenset(found)) for names, found in groups if _many(len(names), of)]
    members = {found: list(names) for names, found in large}
    rest: dict[str, tuple[Difference, ...]] = {}
    for names, found in groups:
        if frozenset(found) in members:
            continue
        fitting = [one for _, one in large if one < frozenset(found)]
        if fitting:
            population = max(fitting, key=len)
            members[population] += names
            found = tuple(one for one in found if one not in population)
        rest |= dict.fromkeys(names, found)
    populations = [
        NodeClass(role, tuple(sorted(members[frozenset(found)], key=order)), found, of, second=True)
        for names, found in groups
        if frozenset(found) in members
    ]
    return populations + [NodeClass(role, names, found, of) for names, found in _group_nodes(rest)]


def _populations(members: Sequence[str], classes: Iterable[NodeClass]) -> tuple[tuple[str, ...], ...]:
    others = [one.nodes for one in classes if one.second]
    taken = {node for nodes in others for node in nodes}
    return (tuple(node for node in members if node not in taken), *others)


def _text_of(where: str, value: Hashable) -> str | None:
    """Return a value as text; None if it is unknown."""
    if isinstance(value, Several):
        return _cut(", ".join(_text_of(where, one) or "unknown" for one in value))
    text = str(format_value(where, value))
    return None if value is None and text == "not known" else _cut(text)


def _text(value: Hashable) -> str:
    return " + ".join(map(str, value)) if isinstance(value, Several) else str(value)


def _cut(text: str) -> str:
    return clip(text, _LONGEST)
