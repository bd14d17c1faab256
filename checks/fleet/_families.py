"""Which differences between nodes belong together, and how are they reported?

A difference belongs to the family of the fact that causes it: on a node with a different torch version, the NCCL,
wheels and libraries installed with it are part of that finding; on a node with the same torch they are a separate one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mgpu.check import WHY, Answer, Evidence, Fix, Ok, Problem, Skip
from mgpu.command_line import Value
from mgpu.hostlist import fold
from mgpu.snapshot import Difference, Fleet, NodeClass
from mgpu.text import counted

from ._ways import leave_out, look_at

_SHOWN = 28  # characters of a value in a title, which must fit on a line
_MOST_SHOWN = 12  # differences of one class in the evidence
_LEAST = 2  # nodes
_NOT_CHECKED = "not checked"  # the value of a fact that was not queried on this node

# Family -> the facts that cause it (leading), and the facts that follow from them. A fact that follows from several
# families belongs to the first one found.
_FAMILIES: dict[str, tuple[str, str]] = {
    "driver_silent": (
        r"driver|driver\.nvml_error|gpus|gpus\.lost",
        r"driver\..*|gpus\..*|links.*|nccl.*|pci\..*|kernel\.(modules|driver_flavour)|torch_runtime\.(cuda|device).*"
        r"|libraries\.found\.(cuda|nvidia-ml).*|gpu_runs.*",
    ),
    "gpu_model": (r"gpus\.(name|compute_capability)", r"gpus\..*|links\..*|pci\.devices\.gpu\..*|gpu_runs\..*"),
    "gpu_count": (
        r"gpus\.count|gpus\.visible\.count|driver\.pci_gpus|pci\.devices\.gpu\.count|torch_runtime\.device_count|slurm\.gpus_on_node",
        r"driver\.device_nodes|gpus\.(permitted|nvlinks)|links.*|pci\.devices\.gpu\..*",
    ),
    "gpu_memory": (r"gpus\.memory_total_bytes", r"gpus\.bar1_total_bytes"),
    "torch": (
        r"pytorch|pytorch\.(installed|version|cuda|hip)|torch_runtime\.(import_error|cuda_available|cuda_error)"
        r"|packages\.torch",
        r"pytorch\..*|torch_runtime\..*|nccl\..*|packages\.(triton|torch.*|nvidia.*)|libraries\..*",
    ),
    "nccl": (
        r"nccl\.loaded\..*|torch_runtime\.nccl_loaded_version",
        r"nccl.*|torch_runtime\.(mapped\.nccl|nccl_.*)"
        r"|libraries\.(wheels\.nvidia-nccl|found\.nccl).*|packages\.nvidia-nccl.*",
    ),
    "driver": (
        r"driver\.(version|module_version|nvml_version|cuda_version)|kernel\.driver_flavour",
        r"driver\..*|gpus\.gsp_firmware|libraries\.found\.(cuda|nvidia-ml).*|gpu_runs\.(cuda_version|libcuda)"
        r"|pci\.fabric_manager",
    ),
    "accelerate": (r"packages\.accelerate", r"python\.accelerate.*"),
    "python": (
        r"python\.(version|executable|prefix|environment)|python",
        r"python\..*|packages\..*|libraries\..*"
        r"|pytorch\.(location|built_for)|torch_runtime\.mapped\..*",
    ),
    "unread": (r"(?!mgpu|slurm)[a-z_]+", r""),
    "packages": (r"packages.*|python\..*|libraries\.(wheels|twice|shadowed|built_with)\..*", r""),
    "config": (r"config.*|files\.config", r""),
    "script": (r"files\..*", r""),
    "environment": (r"env\.(?!SLURM_).*|nccl\.config_files.*", r""),
    "firmware": (r"infiniband\.ports\..*\.firmware|gpus\.(vbios|gsp_firmware)", r""),
    "gpu_settings": (
        r"gpus\.(mig|ecc_|power_limit|persistence|compute_mode|application_clock|sm_clock_max|virtualization).*",
        r"gpus\.(temperature|memory_temperature).*_c",
    ),
    "gpu_links": (
        r"gpus\.(nvlinks|pcie_|fabric_|c2c).*|links.*|pci\.(nvswitches|fabric_manager)"
        r"|pci\.devices\.gpu\..*|driver\.imex.*",
        r"",
    ),
    "gpu_health": (r"gpus\..*|gpu_runs.*", r""),
    "network_cards": (r"infiniband.*(?<!firmware)|network\.(?!master).*|pci\.devices\.nic\..*", r""),
    "cpus": (r"system\.(cpus|numa|memory).*|kernel\.(cpus|cpu_|smt).*|slurm\.(cpus|memory).*|pci\.cpu_vendor", r""),
    "shm": (r"system\.shm_.*", r""),
    "limits": (r"system\.(limit_|hard_|tasks_).*|kernel\.(overcommit|files_max|port_range|reserved).*", r""),
    "storage": (r"storage.*|system\.cwd_writable", r""),
    "libraries": (r"libraries.*|torch_runtime\..*|pytorch\..*|nccl\..*|driver\..*", r""),
    "system": (r"host\..*|kernel.*|container.*|pci.*", r""),
    "rest": (r".*", r""),
}
_LEADS = {family: re.compile(leads) for family, (leads, _) in _FAMILIES.items()}
_FOLLOWS = {family: re.compile(follows) for family, (_, follows) in _FAMILIES.items() if follows}
# fmt: off
# At least one of these facts must be known on several nodes. For the other families something always is.
_FACTS: dict[str, tuple[str, ...]] = {
    "driver": ("driver",), "driver_silent": ("driver",), "torch": ("pytorch",), "nccl": ("nccl", "torch_runtime"),
    "accelerate": ("packages",), "packages": ("packages",), "python": ("python",), "config": ("config", "files"),
    "script": ("files",), "environment": ("env", "nccl"), "gpu_model": ("gpus",), "gpu_count": ("gpus", "pci"),
    "gpu_memory": ("gpus",), "gpu_settings": ("gpus",), "gpu_links": ("gpus", "links"), "gpu_health": ("gpus",),
    "network_cards": ("network", "infiniband"), "firmware": ("gpus", "infiniband"), "cpus": ("system",),
    "shm": ("system",), "limits": ("system",), "storage": ("storage",), "libraries": ("libraries",),
    "system": ("host", "kernel"),
}
# fmt: on
# Nodes that differ in these cannot train together in one job.
INCOMPATIBLE = frozenset({"gpu_model", "gpu_count", "gpu_memory", "torch", "nccl", "config", "script", "driver_silent"})
# A fault does not make a separate kind of node, on however many nodes it occurs.
_BROKEN = frozenset({"driver_silent", "gpu_count", "unread"})
# In these families, a different value on every node is normal: scratch folders, the names of interfaces.
_FREE = frozenset({"environment", "storage", "network_cards", "libraries", "system", "rest"})
# Differences in these families seldom matter.
MINOR = frozenset({"firmware", "libraries", "system", "rest"})


@dataclass(frozen=True)
class Group:
    """Nodes of one role that have the same differences in one family."""

    role: str
    nodes: tuple[str, ...]
    differences: tuple[Difference, ...]  # the leading one first
    of: int
    usual_nodes: tuple[str, ...]  # nodes of the role with the usual value
    tied: bool

    @property
    def others(self) -> int:
        """The number of nodes with the usual value."""
        return len(self.usual_nodes)

    @property
    def range(self) -> str:
        """The nodes in Slurm's notation."""
        return fold(self.nodes)


def families(differences: Sequence[Difference]) -> dict[str, list[Difference]]:
    """Return the differences of one class by family, leading ones before those that follow from them."""
    leading: dict[str, list[Difference]] = {}
    rest: list[Difference] = []
    for one in differences:
        family = _family(one)
        if family in _FOLLOWS:
            leading.setdefault(family, []).append(one)
        else:
            rest.append(one)
    found: dict[str, list[Difference]] = {}
    order = [family for family in _LEADS if family in leading]
    for place, family in enumerate(order):  # a leader may follow from another one: GPUs missing because of the driver
        above = [f for f in order[:place] if f in found]
        for one in leading[family]:
            found.setdefault(next((f for f in above if _FOLLOWS[f].fullmatch(one.key)), family), []).append(one)
    for one in rest:
        cause = next((f for f in order if f in found and _FOLLOWS[f].fullmatch(one.key)), None)
        found.setdefault(cause or _family(one), []).append(one)
    return found


def _family(one: Difference) -> str:
    """Return the first family that the fact causes."""
    if _NOT_CHECKED in (one.value, one.usual):
        return "rest"
    return next(family for family, leads in _LEADS.items() if leads.fullmatch(one.key))


def population_differences(one: NodeClass) -> dict[str, list[Difference]]:
    """Return the differences of a second population by family, without those that are faults."""
    return {family: found for family, found in families(one.differences).items() if family not in _BROKEN}


def scattered_facts(fleet: Fleet) -> dict[str, list[str]]:
    """Return the facts with a different value on almost every node, by family; "": those for which this is normal."""
    found: dict[str, list[str]] = {}
    for family, keys in families([Difference(key, key, None, None) for key in fleet.scattered]).items():
        found.setdefault("" if family in _FREE else family, []).extend(one.key for one in keys)
    return found


def groups(fleet: Fleet, family: str) -> Iterator[Group]:
    """Yield the nodes that differ in a family, grouped by equal differences.

    Second populations are reported once, by another check, unless they are faulty or cannot run one job together.
    """
    apart = family in _BROKEN or (fleet.together and family in INCOMPATIBLE)
    merged: dict[tuple[str, bool, tuple[Difference, ...]], list[str]] = {}
    classes = [one for one in fleet.classes if apart or not one.second]
    for one in classes:
        if found := families(one.differences).get(family):
            merged.setdefault((one.role, one.tied, tuple(found)), []).extend(one.nodes)
    for (role, tied, differences), nodes in merged.items():
        of = len(fleet.roles.get(role, ()))
        key = differences[0].key
        unlike = {
            n for c in fleet.classes if c.role == role and any(d.key == key for d in c.differences) for n in c.nodes
        }
        usual_nodes = tuple(node for node in fleet.roles.get(role, ()) if node not in unlike)
        yield Group(role, tuple(nodes), differences, of, usual_nodes, tied)


def judge(fleet: Fleet, family: str, well: str, *lines: str, cause: str = WHY, fix: str = "") -> Answer:
    """Return a problem for each group of nodes that differ in a family, or Ok.

    `lines` are the commands of the fix, see `_ways.commands`, with the holes {usual:id} and {key:name}. `fix` may
    contain {usual}.
    """
    if (skip := too_few_nodes(fleet)) is not None:
        return skip
    problems = tuple(_problem(fleet, group, cause, fix, lines) for group in groups(fleet, family))
    if keys := scattered_facts(fleet).get(family):
        problems += (_scattered_problem(fleet, keys, cause),)
    facts = _FACTS.get(family, ())
    if not problems and facts and not set(facts) & set(fleet.known):
        named = " and ".join(fact.replace("_", " ") for fact in facts)
        return Skip(f"{named}: known on fewer than two nodes of any kind")
    return problems or Ok(f"{well} on {counted(len(fleet.nodes), 'node')}")


def _scattered_problem(fleet: Fleet, keys: Sequence[str], cause: str) -> Problem:
    """Report facts with a different value on almost every node that should be equal."""
    return Problem(
        f"{keys[0]} differs on almost every node: no value has a majority",
        f"Which value is right could not be determined, and the nodes do not match each other. {cause}",
        Fix("Set the same value on all nodes. See the value of each:", ("mgpu doctor --from FILE",)),
        {"facts": ", ".join(keys[:_MOST_SHOWN]), "nodes": len(fleet.nodes)},
    )


def too_few_nodes(fleet: Fleet) -> Skip | None:
    """Return a Skip if fewer than two nodes answered, else None."""
    answered = len(fleet.nodes)
    return Skip(f"{counted(answered, 'node')} answered: nothing to compare") if answered < _LEAST else None


def _problem(fleet: Fleet, group: Group, cause: str, fix: str, lines: Iterable[str]) -> Problem:
    first = group.differences[0]
    values: dict[str, Value] = {
        "usual": first.usual,
        "key": first.key.rpartition(".")[2],
    }
    if group.tied:
        cause = f"Equally many nodes have each value, so which one is right is unknown. {cause}"
    own_fix = Fix(fix.replace("{usual}", first.usual or ""), look_at(fleet, group.nodes, *lines, **values))
    subjects = () if group.tied and not fleet.together else group.nodes
    return Problem(title(group), cause, (own_fix, leave_out(group.nodes, fleet)), evidence(group), subjects)


def title(group: Group) -> str:
    """Return the leading difference with its nodes: "torch 2.12.1 on n[3,17], 2.13.0 on the other 998 nodes"."""
    first = group.differences[0]
    value, usual = _short(first.value), _short(first.usual)
    theirs = _fact_with_value(first, value)
    if group.tied:
        rest = fold(group.usual_nodes)
    elif group.others == group.of - len(group.nodes):
        rest = "the other node" if group.others == 1 else f"the other {group.others} nodes"
    else:
        rest = f"{group.others} other node{'s' if group.others != 1 else ''}"
    return f"{theirs} on {group.range}, {'none' if usual is None else usual} on {rest}"


def _fact_with_value(one: Difference, value: str | None) -> str:
    """Return a fact with its value: "torch 2.9.0", "NCCL_DEBUG=INFO", "3 GPUs", "no torch"."""
    if value is None:
        return f"no {one.what}"
    if one.key.startswith("env."):
        return f"{one.what}={value}"
    return f"{value} {one.what}" if one.key.endswith(".count") else f"{one.what} {value}"


def _short(value: str | None) -> str | None:
    if value is None or len(value) <= _SHOWN:
        return value
    if "/" in value and " " not in value:  # the end of a path is more informative
        return f"...{value[3 - _SHOWN :]}"
    return f"{value[: _SHOWN - 3]}..."


def evidence(group: Group) -> Evidence:
    """Return the nodes, how many they were compared with, and every fact in which they differ."""
    found: dict[str, str | int] = {"nodes": group.range, "compared_with": f"{group.others} of {group.of}: {group.role}"}
    for one in group.differences[:_MOST_SHOWN]:
        found[one.what] = f"{_value_or_none(one.value)}, most: {_value_or_none(one.usual)}"
    if len(group.differences) > _MOST_SHOWN:
        found["more"] = len(group.differences) - _MOST_SHOWN
    return found


def _value_or_none(value: str | None) -> str:
    return "none" if value is None else value


def describe_class(one: NodeClass) -> str:
    """Describe a class: "driver 550.1, mlx5_0:1 firmware 20.1 and 3 more"."""
    by_family = families(one.differences)
    leaders = [found[0] for found in by_family.values()]
    said = [_fact_with_value(d, _short(d.value)) for d in leaders[:2]]
    more = len(one.differences) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")
