"""Which GPUs and network cards are close to each other?

Pure: builds the link matrix of a Snapshot, a sentence that explains it, and tables of a given width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mgpu.errors import clip
from mgpu.snapshot import Distance, Gpu, PciDevice, Snapshot, bus_address, nearest_nics, path_between

# Closest first, as `nvidia-smi topo -m` names them. NVLink is closer than all of these; more links are better.
_PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_CROSSES = {
    "PIX": "a PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe root",
    "NODE": "the PCIe roots of one CPU",
    "SYS": "the CPUs",
}
_LABEL = 7  # "GPU15  "


def matrix(snapshot: Snapshot) -> list[list[str]]:
    """Return link names between all GPUs, in the order of `nvidia-smi topo -m`; empty if the links are not known."""
    gpus = snapshot.gpus or ()
    if snapshot.links is None or not gpus:
        return []
    names = {(link.a, link.b): link.name for link in snapshot.links}

    def between(a: int, b: int) -> str:
        return "-" if a == b else names.get((min(a, b), max(a, b)), "?")

    return [[between(a.index, b.index) for b in gpus] for a in gpus]


def explain_matrix(gpus: Sequence[Gpu], table: Sequence[Sequence[str]]) -> str:
    """Return a sentence that explains the matrix to readers who do not know the notation."""
    pairs = {(gpus[a].index, gpus[b].index): table[a][b] for a in range(len(gpus)) for b in range(a + 1, len(gpus))}
    kinds = sorted(set(pairs.values()), key=_rank)
    if "?" in kinds:
        return "some links could not be read, so it is not known which GPUs are close."
    if len(kinds) == 1:
        return f"every pair is connected by {kinds[0]}, so any subset of these GPUs is equally fast."
    worst = kinds[-1]
    groups = _groups([gpu.index for gpu in gpus], [pair for pair, kind in pairs.items() if kind != worst])
    if len(groups) == 1:  # connected in a ring or a mesh
        best = [f"{a}+{b}" for (a, b), kind in pairs.items() if kind == kinds[0]]
        few = ", ".join(best[:8]) + (" and more" if len(best) > 8 else "")
        text = f"links differ ({', '.join(kinds)}). To use two GPUs, choose one of the closest pairs"
        return f"{text} ({kinds[0]}): {few}."
    together = [group for group in groups if len(group) > 1]
    alone = [group[0] for group in groups if len(group) == 1]
    between = "NVLinks" if worst.startswith("NV") else _CROSSES.get(worst, worst)
    inside = sorted({pairs[a, b] for group in together for a in group for b in group if a < b}, key=_rank)
    text = " and ".join(f"GPUs {spans(group)}" for group in together) if len(together) < 5 else _group_list(together)
    text += f" form {'a close group' if len(together) == 1 else 'close groups'} ({', '.join(inside)})"
    if alone:
        text += f". {f'GPU {spans(alone)} is' if len(alone) == 1 else f'GPUs {spans(alone)} are'} in no group"
    text += f". All other traffic crosses {between} ({worst})"
    return f"{text}. A run on fewer GPUs is fastest within one group."


def _group_list(groups: Sequence[Sequence[int]]) -> str:
    return "GPUs " + ", ".join(spans(group) for group in groups)


def _rank(kind: str) -> tuple[int, int]:
    """Return a sort key for a link's name: smaller is closer."""
    if kind.startswith("NV") and kind[2:].isdecimal():
        return (0, -int(kind[2:]))
    return (1, _PATHS.index(kind)) if kind in _PATHS else (2, 0)


def _groups(members: Sequence[int], joined: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components of a graph, each sorted."""
    group = {member: {member} for member in members}
    for a, b in joined:
        if group[a] is not group[b]:
            merged = group[a] | group[b]
            for member in merged:
                group[member] = merged
    return [sorted(part) for part in {id(part): part for part in group.values()}.values()]


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `0-3,6` for 0, 1, 2, 3, 6."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def matrix_lines(gpus: Sequence[Gpu], table: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of the matrix in at most `width` columns.

    Adds NUMA node and CPUs if they fit. Splits the GPUs into blocks of columns if they do not fit.
    """
    names = [f"GPU{gpu.index}" for gpu in gpus]
    cell = max(len(text) for text in (*names, *(name for row in table for name in row))) + 2
    indent = 8 if 8 + _LABEL + cell * len(gpus) + 12 <= width else 0
    fit = max(1, (width - indent - _LABEL) // cell)
    fit = -(-len(gpus) // -(-len(gpus) // fit))  # blocks of equal width
    lines: list[str] = []
    for start in range(0, len(gpus), fit):
        part = range(start, min(start + fit, len(gpus)))
        beside = part.stop == len(gpus) and indent + _LABEL + cell * len(part) + 12 <= width
        head = " " * _LABEL + "".join(f"{names[b]:<{cell}}" for b in part) + ("NUMA  CPUs near" if beside else "")
        lines += [""] if lines else []
        lines.append(_cut(" " * indent + head, width))
        for gpu, name, row in zip(gpus, names, table, strict=True):
            text = f"{name:<{_LABEL}}" + "".join(f"{row[b]:<{cell}}" for b in part)
            if beside:
                text += f"{'-' if gpu.numa_node is None else gpu.numa_node:<6}{gpu.cpus_near or ''}"
            lines.append(_cut(" " * indent + text, width))
    return lines


def _cut(text: str, width: int) -> str:
    text = text.rstrip()
    return clip(text, width)


def nics(snapshot: Snapshot, gpu: Gpu) -> list[tuple[str, Distance | None]]:
    """Return the names and distances of the network cards nearest to a GPU."""
    if snapshot.pci is None or gpu.pci is None:
        return []
    here = snapshot.pci.at(gpu.pci)
    found = nearest_nics(snapshot.pci, gpu.pci)
    return [("/".join(nic.names) or nic.address, _distance(here, nic)) for nic in found]


def _distance(gpu: PciDevice | None, nic: PciDevice) -> Distance | None:
    return path_between(gpu, nic) if gpu else None


def address_lines(snapshot: Snapshot, width: int) -> list[str]:
    """Return a table of index, UUID, PCI address, NUMA node and nearest network card per GPU; stacked if too narrow."""
    lines = []
    wide = width >= 76
    if wide:
        lines.append(f"{'':<2}{'GPU':<5}{'UUID':<42}{'PCI':<14}{'NUMA':<6}near")
    for gpu in snapshot.gpus or ():
        near = _card_labels(nics(snapshot, gpu))
        numa = "-" if gpu.numa_node is None else str(gpu.numa_node)
        address = bus_address(gpu.pci) if gpu.pci else "?"
        if wide:
            head = f"{'':<2}{gpu.index:<5}{gpu.uuid or '?':<42}{address:<14}{numa:<6}"
            room = max(8, width - len(head))
            first, *rest = _fill_lines(near, room) or [""]
            lines += [(head + first).rstrip(), *(" " * len(head) + more for more in rest)]
        else:
            lines.append(_cut(f"GPU{gpu.index}  {address}  NUMA {numa}", width))
            lines += [_cut(text, width) for text in (gpu.uuid or "UUID unknown",)]
            lines += [_cut(f"near {text}", width) for text in _fill_lines(near, width - 5)]
    return lines


def _card_labels(cards: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the cards' names, preceded by their distance if it is the same for all: `PIX mlx5_0`."""
    counted = Counter(distance for _, distance in cards)
    names = [name for name, _ in cards]
    if len(counted) == 1 and (distance := next(iter(counted))):
        return [distance, *names]
    return names


def _fill_lines(words: Sequence[str], room: int) -> list[str]:
    """Fill lines of at most `room` characters; a longer word gets a line of its own."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
