"""Read many nodes from files: one `mgpu doctor --save` per node, or the folder of a pre-flight.

A node is named after its file, because `--save` replaces names with substitutes. Only the flat table of each file is
kept. A file that cannot be read is a missing node with the reason; a file that is not a saved machine is not a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from mgpu import engine, errors, file_reading, hostlist
from mgpu.engine import selections
from mgpu.errors import MgpuError, reason
from mgpu.fleet.artifacts import DOCUMENT, MACHINES, read
from mgpu.fleet.compare import Machine, fleet_of
from mgpu.fleet.flatten import names_of
from mgpu.snapshot import FACTS, SCHEMA, BadSnapshot, Fleet, NodeFault, Plan, Snapshot, from_json
from mgpu.structured_text import Malformed, json_of
from mgpu.text import counted

_LARGEST_FILE = 8 << 20  # bytes; a saved machine with 16 GPUs takes 0.2 MiB
# Up to this many nodes are also checked one by one: 12 ms each to decode and check (measured on two cores, 2026-11).
JUDGED = 128
_ENDING = ".json"
HOW = "srun --ntasks-per-node=1 bash -c 'mgpu doctor --quick --save nodes/$SLURMD_NODENAME.json'"


_Hardware: TypeAlias = tuple[str, ...]


class _NoMachine(Exception):
    """Valid JSON that is not a saved machine: a report, or anything else."""


@dataclass
class Read:
    """The contents of the files."""

    machines: dict[str, Machine] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # node -> why nothing is known about it
    faults: list[NodeFault] | None = field(default_factory=list)  # None: too many nodes to check one by one
    origin: dict[str, Path] = field(default_factory=dict)
    hardware: dict[_Hardware, Path] = field(default_factory=dict)  # identifies a machine under any file name
    strangers: list[str] = field(default_factory=list)  # files that are not saved machines


def fleet(named: Sequence[str], progress: Callable[[str], None] | None = None) -> Fleet:
    """Return the fact `fleet` of the given files and folders. Raises MgpuError (usage)."""
    seen = gather(named, progress)
    if len(seen.machines) + len(seen.missing) < 2 or not seen.machines:
        raise MgpuError(_too_few(named, seen), errors.USAGE)
    return fleet_of(seen.machines.values(), seen.missing, faults=seen.faults, strangers=seen.strangers)


def gather(named: Sequence[str], progress: Callable[[str], None] | None = None) -> Read:
    """Read the given files and folders. Raises MgpuError (usage)."""
    found, folders = _files(named)
    # A pre-flight has already checked the nodes it saved, and tested what the doctor can only guess (names, ports).
    judged = {folder / MACHINES for folder in folders}
    unjudged = sum(path.parent not in judged for path in found)
    judge = _Judge(len(found)) if unjudged <= JUDGED else None
    seen = Read(faults=[] if judge else None)
    for number, path in enumerate(found, 1):
        if progress and number % 10 == 0:
            progress(f"{number} of {len(found)} nodes")
        _take(path, seen, None if path.parent in judged else judge)
    for folder in folders:
        _add_preflight(folder, seen)
    return seen


def _files(named: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the files to read, in the order of the nodes' names, and the pre-flight folders among them."""
    files: dict[Path, None] = {}
    preflights: list[Path] = []
    for name in named:
        path = Path(name)
        if path.name == DOCUMENT and path.is_file():
            path = path.parent
        try:
            if path.is_dir():
                if read(path):
                    preflights.append(path)
                files |= dict.fromkeys(_inside(path))
            elif path.exists():
                files[path] = None
            else:
                raise MgpuError(f"--compare-nodes {name}: no such file or folder", errors.USAGE)
        except OSError as error:
            raise MgpuError(f"--compare-nodes {name}: {reason(error)}", errors.USAGE) from None
    return sorted(files, key=lambda path: hostlist.order(_node(path))), preflights


def _inside(folder: Path) -> Iterator[Path]:
    own = folder / MACHINES if (folder / MACHINES).is_dir() else folder
    return (
        path
        for path in own.iterdir()
        if path.suffix == _ENDING and path.name != DOCUMENT and path.name[0] != "." and not path.is_fifo()
    )


def _node(path: Path) -> str:
    return path.name.removesuffix(_ENDING)


def _take(path: Path, seen: Read, judge: _Judge | None) -> None:
    """Read one file."""
    node = _node(path)
    if node in seen.origin:
        raise MgpuError(
            f"two files for {node}: {seen.origin[node]} and {path} (nodes are named after their files)", errors.USAGE
        )
    seen.origin[node] = path
    try:
        facts = _facts(path)
        if judge and seen.faults is not None:
            seen.faults += judge(node, facts)
        seen.machines[node] = Machine(node, facts)
        if (own := _hardware(facts)) and (other := seen.hardware.setdefault(own, path)) != path:
            raise MgpuError(
                f"{other} and {path} describe the same machine, {own[0]} (same name and GPUs). Pass only one of them. "
                f"To save each node:  {HOW}",
                errors.USAGE,
            )
    except _NoMachine:
        seen.strangers.append(path.name)
    except (OSError, BadSnapshot) as error:
        seen.missing[node] = f"cannot read {path.name}: {_failure_reason(error)}"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        seen.missing[node] = f"{path.name} is not a machine saved by mgpu doctor --save ({type(error).__name__})"


def _hardware(facts: Mapping[str, Any]) -> _Hardware | None:
    """Return the machine's name and the UUIDs of its GPUs; None if they do not identify it."""
    uuids = sorted(gpu["uuid"] for gpu in facts.get("gpus") or () if gpu.get("uuid"))
    name = (facts.get("host") or {}).get("name")
    return (name, *uuids) if name and uuids else None


def _failure_reason(error: Exception) -> str:
    return str(error) if isinstance(error, BadSnapshot) else reason(error).partition(": ")[0]


def _facts(path: Path) -> Mapping[str, Any]:
    """Return the JSON of one file. Raises OSError, BadSnapshot, _NoMachine."""
    data = file_reading.read(path, most=_LARGEST_FILE)
    try:
        facts = json_of(data)
    except Malformed as error:
        why = f"not JSON (line {error.line})" if error.line else str(error)
        raise BadSnapshot(why if data.strip() else "empty") from None
    if not isinstance(facts, dict) or not facts.keys() & {*FACTS} or str(facts.get("schema", "")).startswith("mgpu."):
        raise _NoMachine
    if facts.get("schema", SCHEMA) != SCHEMA:
        raise BadSnapshot(f"schema {facts['schema']!r} instead of {SCHEMA}, saved by another version of mgpu")
    return facts


class _Judge:
    """Finds the errors that the doctor would report on each node."""

    def __init__(self, nodes: int) -> None:
        self.plan = Plan(nodes=max(nodes, 1))

    def __call__(self, node: str, facts: Mapping[str, Any]) -> list[NodeFault]:
        snapshot: Snapshot = replace(from_json(facts), plan=self.plan)
        outcomes = engine.judge(snapshot, selections.SAVED_NODE)
        bad = [outcome for outcome in outcomes if outcome.status == "fail" and not outcome.because_of]
        hidden = [name for name in names_of(facts, node) if name != node]  # substitutes written by --save
        return [NodeFault(node, o.check.id, _with_name(o.problem.title, hidden, node)) for o in bad if o.problem]


def _with_name(text: str, hidden: Sequence[str], node: str) -> str:
    """Replace the substitutes in a text with the node's name."""
    for name in hidden:
        text = text.replace(name, node)
    return text


def _add_preflight(folder: Path, seen: Read) -> None:
    """Add the nodes that did not answer or failed according to the pre-flight in this folder."""
    document = read(folder) or {}
    judged = {fault.node for fault in seen.faults or ()}
    for entry in document.get("bad") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("node"), str):
            continue
        node, why, check = entry["node"], str(entry.get("reason") or ""), str(entry.get("id") or "")
        if node not in seen.machines:
            seen.missing.setdefault(node, why)
        elif (not check.startswith("fleet_") or _is_node_fault(check)) and node not in judged:
            seen.faults = [*(seen.faults or ()), NodeFault(node, check, why.removeprefix(f"{node}: "))]


def _is_node_fault(check: str) -> bool:
    """Whether a fault was found on the node itself; differences between nodes are found here again."""
    return "node_fault" in engine.tags(check, selections.FLEET)


def _too_few(named: Sequence[str], seen: Read) -> str:
    there = len(seen.machines)
    number = f"{counted(there, 'saved machine')} in {', '.join(named[:3])}"
    no_machines = [f"{name} is not a machine saved by mgpu doctor --save" for name in seen.strangers]
    broken = "".join(f"; {why}" for why in [*seen.missing.values(), *no_machines][:3])
    return f"--compare-nodes needs at least 2 nodes, found {number}{broken}. Save each node: mkdir -p nodes; {HOW}"
