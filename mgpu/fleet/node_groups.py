"""Which nodes are of one kind, and in what do some of them differ from the others of it?

First roles (GPU model and how many): nodes of different roles are never compared. Within a role every fact has the
value of most nodes; nodes that differ from it in exactly the same facts are one class. A class that is large is a
population of its own, with which its members are compared instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mgpu.errors import clipped
from mgpu.fleet import field_kinds
from mgpu.fleet.flatten import KNOWN, Several, Values, impersonal, unsaid
from mgpu.fleet.outliers import measure_of
from mgpu.hostlist import order, prefix
from mgpu.snapshot import Difference, NodeClass
from mgpu.snapshot.changes import said

# From here on nodes that differ alike are a population of their own and no accident: the share of the role and at least
# so many of them, or so many whatever the share is, which is a rack (mgpu's own choice: 16 four- or eight-GPU nodes).
_SHARE = 0.10
_FEW = 3
_RACK = 16
_NEARLY = 0.02  # memory of equal machines differs by what firmware and kernel keep: under 1 % seen, 2 % is no module
_USUAL_COUNTS = frozenset({1, 2, 3, 4, 6, 8, 10, 12, 16})  # GPUs machines are built with: 7 are 8 with one lost
# A fact without a majority and with more values than this (or this share of the nodes) is another on every node.
_MOST_VALUES = 4
_MOST_VALUES_SHARE = 0.10
_LONGEST = 120  # of a value, in characters

NO_GPU = "no GPU"
UNKNOWN_GPUS = "GPUs not known"


@dataclass(frozen=True)
class Compared:
    """The nodes of one role, compared."""

    classes: tuple[NodeClass, ...]
    populations: tuple[tuple[str, ...], ...]  # nodes alike but for single differences, by which values are measured
    keys: int
    scattered: tuple[str, ...]


def roles(nodes: Mapping[str, Values], *, together: bool = False) -> dict[str, tuple[str, ...]]:
    """Role -> its nodes, the largest first. A node whose GPUs are gone, or one of them, is with its siblings; nodes of
    one job are all of one role: what makes them another is a difference."""
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
    """Whether several nodes have this model, and a name by which no other node goes: dev[1-2] beside gpu[1-400]."""
    own = [node for node, one in models.items() if one == model]
    prefixes = {prefix(node) for node in own}
    return len(own) > 1 and all(one == model for node, one in models.items() if prefix(node) in prefixes)


def _never_had_one(values: Values) -> bool:
    """Whether it is known that there is no GPU, and nothing says that there was one."""
    silent = values.get("driver.nvml_error") in (None, "LIBRARY_NOT_FOUND")
    return (
        values.get("driver") == KNOWN and silent and not values.get("driver.pci_gpus") and not values.get("gpus.count")
    )


def _by_count(
    model: Hashable, members: Sequence[str], nodes: Mapping[str, Values], *, together: bool
) -> dict[str, tuple[str, ...]]:
    """The nodes with one model, parted where many have another number that machines are built with."""
    if model is None:
        return {NO_GPU if all(_never_had_one(nodes[node]) for node in members) else UNKNOWN_GPUS: tuple(members)}
    counts = Counter(count for node in members if (count := nodes[node].get("gpus.count")) is not None)
    usual = _most(counts)  # whose model is known, is known to have some
    own: set[Hashable] = {
        n for n, size in counts.items() if n in _USUAL_COUNTS and _many(size, len(members)) and not together
    }
    own.add(usual)
    found: dict[str, list[str]] = {}
    for node in members:
        count = nodes[node].get("gpus.count")
        found.setdefault(f"{count if count in own else usual} x {_text(model)}", []).append(node)
    return {role: tuple(names) for role, names in found.items()}


def _most(counts: Counter[Hashable]) -> Hashable:
    """The value most have; of several the larger number of GPUs."""
    return max(counts, key=lambda value: (counts[value], value if isinstance(value, int) else -1))


def compared(
    role: str, members: Sequence[str], nodes: Mapping[str, Values], names: Mapping[str, Sequence[str]]
) -> Compared:
    """The classes of one role. `names`: those that each node goes by."""
    members = sorted(members, key=order)
    clear: dict[str, list[Difference]] = {}
    tied: dict[str, list[Difference]] = {}
    scattered: list[str] = []
    tables = [nodes[node] for node in members]
    keys: dict[str, None] = {}
    for table in tables:
        keys |= dict.fromkeys(table)
    facts = frozenset(field_kinds.compared())
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
        if KNOWN in counts and key in facts:  # that most could not be asked makes it nothing to be like
            usual, tie = KNOWN, False
        elif most * 2 <= len(values) and len(counts) > max(_MOST_VALUES, len(values) * _MOST_VALUES_SHARE):
            scattered.append(key)
            continue
        words = field_kinds.words(key)
        for node, value in values.items():
            if value != usual:
                difference = Difference(key, words.what, _told(words.where, value), _told(words.where, usual))
                (tied if tie else clear).setdefault(node, []).append(difference)
    classes = _classes(role, clear, len(members))
    populations = _populations(members, classes)
    classes += [NodeClass(role, names, differences, len(members), tied=True) for names, differences in _alike(tied)]
    return Compared(tuple(classes), populations, len(keys), tuple(scattered))


def _values(key: str, members: Sequence[str], nodes: Mapping[str, Values]) -> dict[str, Hashable]:
    """The value of each node; of one on which the whole fact is not known, or whose mgpu
    does not know the field, nothing is said."""
    fact = key.partition(".")[0]
    of_fact = key != fact and fact in field_kinds.compared()
    values = {
        node: nodes[node].get(key)
        for node in members
        if not of_fact or (nodes[node].get(fact) == KNOWN and not unsaid(nodes[node], key))
    }
    return _merged(values) if field_kinds.near(key) else values


def _impersonal(values: dict[str, Hashable], names: Mapping[str, Sequence[str]]) -> dict[str, Hashable]:
    """Values that name their own node say "{node}" there, where that makes them alike (/scratch/n7/tmp); not those that
    name one and the same node everywhere, as that where all ranks meet."""
    different = len(set(values.values()))
    if different < 2 or not any(isinstance(value, (str, tuple)) for value in values.values()):
        return values
    replaced = {node: impersonal(value, names[node]) for node, value in values.items()}
    return replaced if len(set(replaced.values())) < different else values


def _merged(values: dict[str, Hashable]) -> dict[str, Hashable]:
    """Numbers that are nearly the same become one: the one most have."""
    counts = Counter(value for value in values.values() if isinstance(value, (int, float)) and value)
    stands: dict[Hashable, Hashable] = {}
    for value, _ in counts.most_common():
        near = (other for other in dict.fromkeys(stands.values()) if _near(value, other))
        stands[value] = next(near, value)
    return {node: stands.get(value, value) for node, value in values.items()}


def _near(value: Hashable, other: Hashable) -> bool:
    assert isinstance(value, (int, float)) and isinstance(other, (int, float))
    return abs(value - other) <= _NEARLY * abs(other)


def _alike(differences: Mapping[str, Sequence[Difference]]) -> list[tuple[tuple[str, ...], tuple[Difference, ...]]]:
    """Nodes with the same differences, the most nodes first."""
    groups: dict[tuple[Difference, ...], list[str]] = {}
    for node, found in differences.items():
        groups.setdefault(tuple(found), []).append(node)
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), order(group[1][0])))
    return [(tuple(sorted(nodes, key=order)), found) for found, nodes in ranked]


def _classes(role: str, differences: Mapping[str, Sequence[Difference]], of: int) -> list[NodeClass]:
    """The classes, the second populations first; who differs as a population does and in more is a member of it."""
    groups = _alike(differences)
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
    return populations + [NodeClass(role, names, found, of) for names, found in _alike(rest)]


def _populations(members: Sequence[str], classes: Iterable[NodeClass]) -> tuple[tuple[str, ...], ...]:
    others = [one.nodes for one in classes if one.second]
    taken = {node for nodes in others for node in nodes}
    return (tuple(node for node in members if node not in taken), *others)


def _told(where: str, value: Hashable) -> str | None:
    """A value in words; None: not known, where that is nothing one knows."""
    if isinstance(value, Several):
        return _cut(", ".join(_told(where, one) or "not known" for one in value))
    text = str(said(where, value))
    return None if value is None and text == "not known" else _cut(text)


def _text(value: Hashable) -> str:
    return " + ".join(map(str, value)) if isinstance(value, Several) else str(value)


def _cut(text: str) -> str:
    return clipped(text, _LONGEST)
