"""What does NCCL's own log of the run say: version, interfaces, transport of every pair, channels?

The words are those of NCCL 2.18 to 2.29 (src/init.cc, src/graph/*.cc, src/transport/*.cc); a line that is not known is
passed over. Every process writes a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mgpu import file_reading
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import NcclLine, NcclLog

_FILES = "nccl.*.txt"
_SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,GRAPH,NET"  # one that an older NCCL does not know is ignored
_MOST_BYTES = 16 << 20  # of one file: eight H100s in one communicator write about 0.2 MB a rank
_MOST_WARNINGS = 20

_PREFIX = re.compile(r"([\w.<>-]+):(\d+):(\d+) \[(\d+)\] (?:NCCL INFO |(\S+:\d+) NCCL WARN )(.*)")
_WARNING = re.compile(r"NCCL WARN (.+)")
_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
_USING = re.compile(r"(?:Bootstrap ?:|NET/Socket ?:|; OOB) ?(?:Using )?(.*<\d+>)")
_ADDRESS = re.compile(r"(?:\[\d+\])?([\w.@-]+):([0-9a-fA-F.:]+(?:%[\w.@-]+)?)<\d+>")
_NETWORK = re.compile(r"Using network (\S+)")
_PLUGIN = re.compile(r"(?:Loaded net plugin|P2P plugin) (.+)")
# A number has at most six digits here: a longer one is no rank, and Python refuses to read one of thousands.
_COMM = re.compile(
    r"comm 0x[0-9a-f]+ rank (\d{1,6}) n[rR]anks (\d{1,6}) cudaDev \d+(?: nvmlDev (\d{1,6}))? busId ([0-9a-f]{1,9})\b"
)
_CONNECTION = re.compile(
    r"Channel \d+(?:/\d+)? : (\d{1,6})\[([0-9a-f]+)\] -> (\d{1,6})\[([0-9a-f]+)\] (?:\[(?:send|receive)\] )?"
    r"via (\S+(?: pointer\S*)?)"
)
_CHANNELS = re.compile(r"\b(\d{1,6}) coll channels(?:, \d+ collnet channels)?(?:, (\d{1,6}) nvls channels)?")
_NO_NVLS = re.compile(r"NVLS multicast support is not available")


def environment(orders: Orders, environ: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL write its log into the run folder; empty where no NCCL takes part. Shown to the user.

    Who has asked NCCL to talk himself keeps his level, and his file: then nothing is read.
    """
    if orders.cpu or orders.world < 2 or any(name in environ for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE")):
        return {}
    file = f"{orders.folder.replace('%', '%%')}/nccl.%h.%p.txt"
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": _SUBSYSTEMS, "NCCL_DEBUG_FILE": file}


def read(folder: Path) -> NcclLog | None:
    """The facts of the run's log; None when NCCL wrote none."""
    reader = _Reader()
    for path in sorted(folder.glob(_FILES)):
        try:
            text = file_reading.read_part(path, most=_MOST_BYTES, start=0).decode("utf-8", "replace")
            reader.take(text.splitlines())
        except OSError:
            continue
    return reader.facts()


def parse(text: str) -> NcclLog | None:
    """The facts of one log; None when there is no word of NCCL in it."""
    reader = _Reader()
    reader.take(text.splitlines())
    return reader.facts()


@dataclass(frozen=True)
class _Way:
    """A connection as a line tells it: numbers of ranks in a communicator, and of the devices they are on."""

    host: str
    ranks: tuple[int, int]
    devices: tuple[str, str]
    transport: str
    comm_size: int | None  # of the communicator that the process set up last


@dataclass
class _Reader:
    """Takes lines, and keeps what they say."""

    lines: int = 0
    version: str | None = None
    network: str | None = None
    plugin: str | None = None
    interfaces: dict[str, None] = field(default_factory=dict)  # in the order they were met
    warnings: dict[str, None] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)  # host and device -> rank in the whole world
    largest: int = 0  # ranks of the largest communicator
    current: dict[tuple[str, str], int] = field(default_factory=dict)  # process -> size of its last communicator
    ways: dict[_Way, None] = field(default_factory=dict)
    channels: dict[int, tuple[int, int | None]] = field(default_factory=dict)  # of a communicator of that size
    complete: bool = False
    trees: bool = False
    rings: bool = False
    nvls: bool | None = None

    def take(self, lines: Iterable[str]) -> None:
        for line in lines:
            if version := _VERSION.search(line):
                self.version = self.version or version[1]
                self.lines += 1
            known = _PREFIX.search(line)
            if known is None:
                if bare := _WARNING.search(line):
                    self._warn(bare[1])
                continue
            self.lines += 1
            host, process, _, _, place, words = known.groups()
            if place is not None:
                self._warn(f"{place} {words}")
            else:
                self._take(host, process, words)

    def _warn(self, words: str) -> None:
        self.lines += 1
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings[words.strip()] = None

    def _take(self, host: str, process: str, words: str) -> None:
        if comm := _COMM.search(words):
            self._communicator(host, process, comm)
            self.complete |= "Init COMPLETE" in words
        elif way := _CONNECTION.search(words):
            sender, sending, receiver, receiving, transport = way.groups()
            size = self.current.get((host, process))
            found = _Way(host, (int(sender), int(receiver)), (sending, receiving), transport, size)
            self.ways[found] = None
        elif channels := _CHANNELS.search(words):
            nvls = int(channels[2]) if channels[2] is not None else None
            self.channels[self.current.get((host, process), 0)] = (int(channels[1]), nvls)
        elif using := _USING.search(words):
            self.interfaces |= {f"{name}:{address}": None for name, address in _ADDRESS.findall(using[1])}
        elif network := _NETWORK.search(words):
            self.network = network[1]
        elif plugin := _PLUGIN.search(words):
            self.plugin = plugin[1].strip()
        elif _NO_NVLS.search(words):
            self.nvls = False
        elif "Connected NVLS tree" in words:
            self.nvls = True
        self.trees |= words.startswith(("Trees [", "Connected all trees"))
        self.rings |= words.startswith(("Ring ", "Connected all rings"))

    def _communicator(self, host: str, process: str, comm: re.Match[str]) -> None:
        rank, size, device, bus = int(comm[1]), int(comm[2]), comm[3], comm[4]
        self.current[host, process] = size
        if size > self.largest:
            self.largest, self.places = size, {}
        if size == self.largest:
            self.places[host, device or bus] = rank

    def facts(self) -> NcclLog | None:
        if not self.lines:
            return None
        connections = sorted(
            {line for way in self.ways if (line := self._line(way)) is not None},
            key=lambda line: (line.sender, line.receiver, line.transport),
        )
        channels, in_switch = self.channels.get(self.largest) or self.channels.get(0) or (None, None)
        if in_switch is not None:
            self.nvls = in_switch > 0
        direct = [line.transport for line in connections if line.transport.startswith("P2P/")]
        return NcclLog(
            version=self.version,
            interfaces=tuple(self.interfaces),
            network=self.network,
            plugin=self.plugin,
            connections=tuple(connections),
            channels=channels,
            trees=True if self.trees else False if self.rings and self.complete else None,
            nvls=self.nvls,
            cumem=any("CUMEM" in transport for transport in direct) if direct else None,
            warnings=tuple(self.warnings),
        )

    def _line(self, way: _Way) -> NcclLine | None:
        """The connection between ranks of the whole world; None where the line, of a smaller communicator, does not
        tell which they are."""
        whole = way.comm_size is None or way.comm_size == self.largest
        sender, receiver = way.ranks
        if not whole:
            places = [self.places.get((way.host, device)) for device in way.devices]
            if way.transport.startswith("NET/") or None in places:
                return None
            sender, receiver = (place for place in places if place is not None)
        return NcclLine(sender, receiver, way.transport)
