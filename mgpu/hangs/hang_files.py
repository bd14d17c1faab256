"""The file beside a run's log with what its ranks did while it made no progress; and those of all nodes of a run."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu.snapshot import Hang, Snapshot, fact_file, to_json

NAME = "hang.json"
STOPPED = "stopped.json"  # what the node found, with those of the other nodes, that stopped the run for it
_LARGEST = 16 << 20  # bytes; 64 collectives with their stacks of a rank take 20 KiB
_NODE = re.compile(r"node(?:\d+|-([\w.:%-]+))")  # of --node-rank K; of a Slurm job and of --hosts, with the name
_NUMBER = re.compile(r"(\d+)")
_FRESH_S = 180.0  # the nodes look at a run without progress about once a minute


def write(folder: Path, hang: Hang, name: str = NAME) -> None:
    """Keep the facts beside the log."""
    fact_file.write(folder / name, to_json(Snapshot(hang=hang))["hang"])


def remove(folder: Path) -> None:
    """Remove the file of a run that makes progress again."""
    fact_file.remove(folder / NAME)


def read(folder: Path, name: str = NAME) -> Hang | None:
    """Return the facts beside a log; None if there are none, or if they cannot be read."""
    return fact_file.read(folder / name, Hang, most=_LARGEST)


def of_run(folder: Path) -> Hang | None:
    """Return the facts of a run that has ended, joined with those of its other nodes in the same --log-dir."""
    nodes = node_folders(folder.parent) if _NODE.fullmatch(folder.name) else []
    found = [on_host(hang, place) for place in nodes or [folder] if (hang := read(place)) is not None]
    return merged(found) if found else None


def node_folders(folder: Path) -> list[Path]:
    """Return the folders `node0`, `node1` ... that several nodes of a run have in one folder."""
    try:
        found = [path for path in folder.iterdir() if _NODE.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return []
    return sorted(found, key=lambda path: [part.zfill(12) for part in _NUMBER.split(path.name)])


def is_of_node(folder: Path) -> bool:
    """Whether this is the folder of one of several nodes, by its name."""
    return _NODE.fullmatch(folder.name) is not None


def node_name(folder: Path) -> str | None:
    """Return the node or host whose folder `node-NAME` this is."""
    found = _NODE.fullmatch(folder.name)
    return found[1] if found else None


def folder_of(folder: Path, name: str) -> Path:
    """Return the folder of a node or host in the one that all share, or that is filled for them."""
    return folder / f"node-{name}"


def on_host(hang: Hang, folder: Path) -> Hang:
    """Return what the ranks of a host do, with the host's name if its folder has it."""
    name = node_name(folder)
    return replace(hang, ranks=tuple(replace(rank, host=name or rank.host) for rank in hang.ranks))


def of_other_nodes(folder: Path) -> list[Hang]:
    """Return what the other nodes of this run have just found, if they write to the same --log-dir."""
    if not _NODE.fullmatch(folder.name):
        return []
    others = [path for path in node_folders(folder.parent) if path.name != folder.name]
    return [hang for path in others if _is_fresh(path) and (hang := read(path)) is not None]


def stopped_by_other_node(folder: Path, since: float) -> Hang | None:
    """Return why another node of this run has stopped it, if they write to the same --log-dir.

    `since`: when this node's part of the run was started (seconds since the epoch); older files are of another run.
    """
    if not _NODE.fullmatch(folder.name):
        return None
    for other in node_folders(folder.parent):
        with contextlib.suppress(OSError):
            if other.name != folder.name and (other / STOPPED).stat().st_mtime >= since:
                return read(other, STOPPED)
    return None


def _is_fresh(folder: Path) -> bool:
    try:
        return time.time() - (folder / NAME).stat().st_mtime < _FRESH_S
    except OSError:
        return False


def merged(nodes: Sequence[Hang]) -> Hang:
    """Return what the ranks of several nodes do as one fact. The first node's answer about a rank is kept."""
    first = nodes[0]
    ranks = {rank.rank: rank for node in reversed(nodes) for rank in node.ranks}
    return replace(
        first,
        quiet_s=min(node.quiet_s for node in nodes),
        longest_s=max(node.longest_s for node in nodes),
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        expected=max(first.expected, len(ranks)),
        world=max(node.world for node in nodes),
        timeout_s=next((node.timeout_s for node in nodes if node.timeout_s), None),
        backend=next((node.backend for node in nodes if node.backend), None),
        ras=next((node.ras for node in nodes if node.ras), ()),
    )
