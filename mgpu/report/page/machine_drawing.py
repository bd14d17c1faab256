"""The machine as a picture: NUMA nodes, GPUs, NVLink, PCIe, network cards; and the links between all pairs of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mgpu.errors import clip
from mgpu.quantities import gib
from mgpu.report.page.markup import Html, element, joined
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.case.case_json import CardEntry, CaseDocument, NumaEntry, PictureEntry
    from mgpu.report.json_types import GpuEntry

NARROW = 360
# Class of a drawing, of which the style shows the one that fits, and its width in units: pixels at full size.
WIDTHS = (("wide", 1040), ("medium", 700), ("narrow", NARROW))
_GAP, _PAD, _TITLE = 10, 14, 26
_TALL, _LOW = 74, 58  # height of a tile: with a line for its state, and without
_ARCS, _BAR, _CARD_H = 70, 14, 40
_MOST_CELLS = 16
_LONGEST = 18  # characters in a tile
_BRANDS = ("NVIDIA ", "Tesla ", "GeForce ")
_LINKS = (("NV", "c-nv"), ("PI", "c-near"), ("PX", "c-near"), ("PHB", "c-mid"), ("NODE", "c-mid"), ("SYS", "c-far"))


@dataclass(frozen=True)
class _Group:
    """A NUMA node with its GPUs and cards, and its place."""

    numa: NumaEntry
    gpus: Sequence[GpuEntry]
    cards: Sequence[CardEntry]
    x: int = 0
    y: int = 0
    width: int = 0
    columns: int = 1
    nvlink: int = 0  # height of the room for NVLinks above the tiles
    tall: int = _TALL

    @property
    def tile(self) -> int:
        """The width of a tile."""
        return (self.width - 2 * _PAD - (self.columns - 1) * _GAP) // self.columns

    @property
    def top(self) -> int:
        """Where the first row of tiles begins."""
        return self.y + _TITLE + self.nvlink

    @property
    def rows(self) -> int:
        """The number of rows of tiles."""
        return -(-len(self.gpus) // self.columns)

    @property
    def bus(self) -> int:
        """Where the PCIe bar begins."""
        return self.top + self.rows * (self.tall + _GAP) + (8 if self.gpus else 0)

    @property
    def height(self) -> int:
        """The height of the whole box."""
        fit = max(1, (self.width - 2 * _PAD + _GAP) // (112 + _GAP))
        cards = -(-len(self.cards) // fit) * (_CARD_H + _GAP)
        return self.bus - self.y + _BAR + cards + _PAD

    def place(self, number: int) -> tuple[int, int]:
        """Return the corner of a tile."""
        row, column = divmod(number, self.columns)
        return self.x + _PAD + column * (self.tile + _GAP), self.top + row * (self.tall + _GAP)


def drawing(case: CaseDocument, width: int) -> Html:
    """Return the machine as SVG with this many units of width; nothing without a GPU."""
    picture = case["picture"]
    if picture is None:
        return Html()
    groups = _laid_out(case, picture, width)
    height = max(group.y + group.height for group in groups)
    parts = [_box(group, case, picture) for group in groups]
    parts += _nvlinks(groups, case, picture) + _between(groups)
    shown = element("title", f"{counted(len(case['gpus']), 'GPU')} on {counted(len(groups), 'NUMA node')}")
    return element("svg", shown, *parts, viewBox=f"0 0 {width} {height + 1}", role="img")


def _laid_out(case: CaseDocument, picture: PictureEntry, width: int) -> list[_Group]:
    """Place the groups side by side while they fit, else below each other."""
    most = max(1, (width - 2 * _PAD) // (100 + _GAP)) if width > NARROW else 2
    tall = _TALL if any(state_of(gpu, case)[1] for gpu in case["gpus"]) else _LOW
    linked = any(slot["nvlinks"] for slot in picture["slots"])
    room = (34 if picture["switch"] else _ARCS) if linked and width > NARROW else 0
    found: list[_Group] = []
    x = y = below = 0
    for numa in picture["numa"]:
        gpus = [gpu for gpu in case["gpus"] if gpu["numa"] == numa["node"]]
        cards = [card for card in picture["cards"] if card["numa"] == numa["node"]]
        columns = max(1, min(most, len(gpus) or 2))
        wide = width if width <= NARROW else max(260, columns * 108 + (columns - 1) * _GAP + 2 * _PAD)
        wide = width if 2 * (wide + _GAP) > width else wide
        if x and x + wide > width:
            x, y = 0, below + 2 * _GAP
        group = _Group(numa, gpus, cards, x, y, wide, columns, room if gpus else 0, tall)
        found.append(group)
        x, below = x + wide + 2 * _GAP, max(below, y + group.height)
    return found


def _box(group: _Group, case: CaseDocument, picture: PictureEntry) -> Html:
    numa, name = group.numa, "NUMA node unknown"
    if numa["node"] is not None:
        name = f"NUMA node {numa['node']}" + (f" · CPUs {numa['cpus']}" if numa["cpus"] else "")
    parts = [
        element(
            "rect", class_="box", x=group.x + 0.5, y=group.y + 0.5, width=group.width - 1, height=group.height, rx=9
        ),
        element("text", clip(name, group.width // 7), class_="soft", x=group.x + _PAD, y=group.y + 18),
        element("rect", class_="well", x=group.x + _PAD, y=group.bus, width=group.width - 2 * _PAD, height=_BAR, rx=4),
        element("text", "PCIe", class_="soft small", x=group.x + _PAD + 6, y=group.bus + 11),
    ]
    slots = {slot["gpu"]: slot for slot in picture["slots"]}
    for number, gpu in enumerate(group.gpus):
        x, y = group.place(number)
        slot = slots[gpu["index"]]
        if number >= len(group.gpus) - group.columns:  # the last row, from which nothing is in the way
            kind = "wire narrow-link" if slot["narrow"] else "wire"
            middle = x + group.tile // 2
            parts.append(element("line", class_=kind, x1=middle, y1=y + group.tall, x2=middle, y2=group.bus))
        detail = " · ".join(filter(None, [gib(gpu["mem_total"]) if gpu["mem_total"] else "", slot["pcie"] or ""]))
        parts.append(_tile(gpu, detail, state_of(gpu, case), x, y, group))
    parts += _cards(group, case)
    return element("g", *parts)


def state_of(gpu: GpuEntry, case: CaseDocument) -> tuple[str, str]:
    """Return the state of a GPU: a class of the style, and a few words."""
    name = f"GPU {gpu['index']}"
    found = [one for one in case["checks"] if name in one.get("subjects", ()) and one["status"] in ("fail", "warn")]
    grave = [one for one in found if one["status"] == "fail"]
    if gpu["lost"]:
        return "fail", "no response"
    if grave or found:
        return ("fail" if grave else "warn"), (grave or found)[0]["id"]
    if not gpu["visible"]:
        return "hidden", "not visible"
    if gpu["busy_by"]:
        return "ok", f"busy: {counted(len(gpu['busy_by']), 'process', 'processes')}"
    return "ok", ""


def short_name(name: str | None) -> str:
    """Return the model of a GPU without the maker's name."""
    shown = name or "unknown model"
    for brand in _BRANDS:
        shown = shown.replace(brand, "")
    return shown


def _tile(gpu: GpuEntry, detail: str, state: tuple[str, str], x: int, y: int, group: _Group) -> Html:
    kind, words = state
    lines = (
        (f"GPU {gpu['index']}", "strong", 17),
        (short_name(gpu["name"]), "small", 33),
        (detail, "small soft", 48),
        (words, "small strong" if kind in ("fail", "warn") else "small soft", 64),
    )
    return joined(
        element("rect", class_=f"tile {kind}", x=x, y=y, width=group.tile, height=group.tall, rx=6),
        *(
            element("text", clip(text, _LONGEST - 3 * ("small strong" in style)), class_=style, x=x + 8, y=y + down)
            for text, style, down in lines
            if text
        ),
    )


def _of_card(card: CardEntry, case: CaseDocument) -> str:
    """Return the status of the findings that name a card; "" without one. A port that is down may be unused."""
    names = {card["name"], card["name"].partition(":")[0]}
    found = {one["status"] for one in case["checks"] if names & set(one.get("subjects", ()))}
    return "fail" if "fail" in found else "warn" if "warn" in found else ""


def _cards(group: _Group, case: CaseDocument) -> list[Html]:
    fit = max(1, (group.width - 2 * _PAD + _GAP) // (112 + _GAP))
    width = (group.width - 2 * _PAD - (fit - 1) * _GAP) // fit
    parts = []
    for number, card in enumerate(group.cards):
        row, column = divmod(number, fit)
        x, y = group.x + _PAD + column * (width + _GAP), group.bus + _BAR + 10 + row * (_CARD_H + _GAP)
        down = card["state"] not in (None, "ACTIVE")
        speed = f" {card['gbit_per_s']:g}G" if card["gbit_per_s"] and not down else ""
        text = f"{card['kind']} {card['state']}" if down else f"{card['kind']}{speed}"
        parts += [
            element("line", class_="wire", x1=x + 14, y1=group.bus + _BAR, x2=x + 14, y2=y) if not row else Html(),
            element(
                "rect",
                class_=f"nic {_of_card(card, case) or ('off' if down else '')}",
                x=x,
                y=y,
                width=width,
                height=_CARD_H,
                rx=5,
            ),
            element("text", clip(card["name"], _LONGEST), class_="small strong", x=x + 8, y=y + 16),
            element("text", clip(text, _LONGEST), class_="small soft", x=x + 8, y=y + 31),
        ]
    return parts


def _nvlinks(groups: Sequence[_Group], case: CaseDocument, picture: PictureEntry) -> list[Html]:
    """Draw the NVLinks above the tiles: a bar for the switches, else an arc for each pair."""
    room = [group for group in groups if group.nvlink]
    slots = {slot["gpu"]: slot for slot in picture["slots"]}
    tops: dict[int, tuple[int, int]] = {}  # GPU -> the middle of the upper edge of its tile
    for group in room:
        for number, gpu in enumerate(group.gpus[: group.columns]):
            x, y = group.place(number)
            tops[gpu["index"]] = (x + group.tile // 2, y)
    parts: list[Html] = []
    if picture["switch"]:
        for y in dict.fromkeys(y for _, y in tops.values()):
            inside = {index: x for index, (x, top) in tops.items() if top == y}
            left, right = min(inside.values()) - 40, max(inside.values()) + 40
            bar = element("rect", class_="switch", x=left, y=y - 31, width=right - left, height=16, rx=4)
            label = element("text", "NVSwitch", class_="small on mid", x=(left + right) // 2, y=y - 19)
            wires = [
                element("line", class_="nvwire", x1=x, y1=y - 15, x2=x, y2=y)
                for index, x in inside.items()
                if slots[index]["nvlinks"]
            ]
            parts += [*wires, bar, label]
        return parts
    names, order = case["links"]["matrix"], [gpu["index"] for gpu in case["gpus"]]
    for a, row in enumerate(names):
        for b in range(a + 1, len(row)):
            if row[b].startswith("NV") and order[a] in tops and order[b] in tops:
                parts.append(_arc(tops[order[a]], tops[order[b]], row[b]))
    return parts


def _arc(a: tuple[int, int], b: tuple[int, int], name: str) -> Html:
    if a[1] != b[1]:
        return Html()
    high = min(_ARCS + 14, 14 + abs(b[0] - a[0]) // 7)  # the curve reaches three quarters of it
    count = int(name[2:]) if name[2:].isdecimal() else 1
    path = f"M{a[0]} {a[1]}C{a[0]} {a[1] - high},{b[0]} {b[1] - high},{b[0]} {b[1]}"
    return element("path", element("title", name), class_="nvwire", d=path, stroke_width=f"{1 + count / 5:.1f}")


def _between(groups: Sequence[_Group]) -> list[Html]:
    """Draw the link between the CPUs of groups that are side by side."""
    parts = []
    for left, right in pairwise(groups):
        if left.y == right.y and left.bus == right.bus:
            y, start = left.bus + _BAR // 2, left.x + left.width - _PAD
            parts.append(element("line", class_="wire", x1=start, y1=y, x2=right.x + _PAD, y2=y))
    return parts


def matrix(case: CaseDocument) -> Html:
    """Return the link between each pair of GPUs as SVG; nothing if there is no pair, or too many."""
    table, gpus = case["links"]["matrix"], case["gpus"]
    number = len(table)
    if not 2 <= number <= _MOST_CELLS:
        return Html()
    cell = 40 if number <= 8 else 25
    side = 28 + number * cell
    parts = [element("title", "Link between each pair of GPUs, as nvidia-smi topo -m names it")]
    for a, row in enumerate(table):
        at = 28 + a * cell
        parts.append(element("text", gpus[a]["index"], class_="small soft mid", x=at + cell // 2, y=20))
        parts.append(element("text", gpus[a]["index"], class_="small soft end", x=22, y=at + cell // 2 + 4))
        for b, name in enumerate(row):
            x = 28 + b * cell
            parts.append(element("rect", class_=_color(name), x=x + 1, y=at + 1, width=cell - 2, height=cell - 2, rx=3))
            if name != "-":
                shown = name if cell > 30 else name[:4]
                parts.append(element("text", shown, class_="small on mid", x=x + cell // 2, y=at + cell // 2 + 4))
    return element("svg", *parts, viewBox=f"0 0 {side} {side}", role="img", width=side, class_="matrix")


def _color(name: str) -> str:
    if name == "-":
        return "c-self"
    return next((kind for begin, kind in _LINKS if name.startswith(begin)), "c-none")
