"""What does NCCL's log of the run contain: version, interfaces, transport of every pair, channels?

The patterns match NCCL 2.18 to 2.29 (src/init.cc, src/graph/*.cc, src/transport/*.cc); other lines are ignored. Each
process writes its own file.
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
_SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,GRAPH,NET"  # an older NCCL ignores unknown ones
_MOST_BYTES = 16 << 20  # of one file: eight H100s in one communicator write about 0.2 MB per rank
_MOST_WARNINGS = 20

_PREFIX = re.compile(r"([\w.<>-]+):(\d+):(\d+) \[(\d+)\] (?:NCCL INFO |(\S+:\d+) NCCL WARN )(.*)")
_WARNING = re.compile(r"NCCL WARN (.+)")
_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
_USING = re.compile(r"(?:Bootstrap ?:|NET/Socket ?:|; OOB) ?(?:Using )?(.*<\d+>)")
_ADDRESS = re.compile(r"(?:\[\d+\])?([\w.@-]+):([0-9a-fA-F.:]+(?:%[\w.@-]+)?)<\d+>")
_NETWORK = re.compile(r"Using network (\S+)")
_PLUGIN = re.compile(r"(?:Loaded net plugin|P2P plugin) (.+)")
# At most six digits: a longer number is not a rank, and Python refuses to parse one with thousands of digits.
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
    """Return the variables that make NCCL log into the run folder, shown to the user; empty if NCCL is not used.

    Also empty if the user has set NCCL_DEBUG or NCCL_DEBUG_FILE: then no log is read.
    """
    if orders.cpu or orders.world < 2 or any(name in environ for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE")):
        return {}
    file = f"{orders.folder.replace('%', '%%')}/nccl.%h.%p.txt"
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": _SUBSYSTEMS, "NCCL_DEBUG_FILE": file}


def read(folder: Path) -> NcclLog | None:
    """Return the facts of the run's log; None if NCCL wrote none."""
    reader = _Reader()
    for path in sorted(folder.glob(_FILES)):
        try:
            text = file_reading.read_part(path, most=_MOST_BYTES, start=0).decode("utf-8", "replace")
            reader.take(text.splitlines())
        except OSError:
            continue
    return reader.facts()


def parse(text: str) -> NcclLog | None:
    """Return the facts of one log; None if no line is from NCCL."""
    reader = _Reader()
    reader.take(text.splitlines())
    return reader.facts()


@dataclass(frozen=True)
class _Link:
    """A connection as logged: the ranks in a communicator, and their devices."""

    host: str
    ranks: tuple[int, int]
    devices: tuple[str, str]
    transport: str
    comm_size: int | None  # of the communicator that the process set up most recently


@dataclass
class _Reader:
    """Collects the facts from the lines of the log."""

    lines: int = 0
    version: str | None = None
    network: str | None = None
    plugin: str | None = None
    interfaces: dict[str, None] = field(default_factory=dict)  # in the order of the log
    warnings: dict[str, None] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)  # host and device -> global rank
    largest: int = 0  # ranks of the largest communicator
    current: dict[tuple[str, str], int] = field(default_factory=dict)  # process -> size of its last communicator
    links: dict[_Link, None] = field(default_factory=dict)
    channels: dict[int, tuple[int, int | None]] = field(default_factory=dict)  # by communicator size
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
            host, process, _, _, place, message = known.groups()
            if place is not None:
                self._warn(f"{place} {message}")
            else:
                self._take(host, process, message)

    def _warn(self, message: str) -> None:
        self.lines += 1
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings[message.strip()] = None

    def _take(self, host: str, process: str, message: str) -> None:
        if comm := _COMM.search(message):
            self._communicator(host, process, comm)
            self.complete |= "Init COMPLETE" in message
        elif connection := _CONNECTION.search(message):
            sender, sending, receiver, receiving, transport = connection.groups()
            size = self.current.get((host, process))
            found = _Link(host, (int(sender), int(receiver)), (sending, receiving), transport, size)
            self.links[found] = None
        elif channels := _CHANNELS.search(message):
            nvls = int(channels[2]) if channels[2] is not None else None
            self.channels[self.current.get((host, process), 0)] = (int(channels[1]), nvls)
        elif using := _USING.search(message):
            self.interfaces |= {f"{name}:{address}": None for name, address in _ADDRESS.findall(using[1])}
        elif network := _NETWORK.search(message):
            self.network = network[1]
        elif plugin := _PLUGIN.search(message):
            self.plugin = plugin[1].strip()
        elif _NO_NVLS.search(message):
            self.nvls = False
        elif "Connected NVLS tree" in message:
            self.nvls = True
        self.trees |= message.startswith(("Trees [", "Connected all trees"))
        self.rings |= message.startswith(("Ring ", "Connected all rings"))

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
            {line for link in self.links if (line := self._line(link)) is not None},
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

    def _line(self, link: _Link) -> NcclLine | None:
        """Return the connection between global ranks; None if a smaller communicator does not identify them."""
        whole = link.comm_size is None or link.comm_size == self.largest
        sender, receiver = link.ranks
        if not whole:
            places = [self.places.get((link.host, device)) for device in link.devices]
            if link.transport.startswith("NET/") or None in places:
                return None
            sender, receiver = (place for place in places if place is not None)
        return NcclLine(sender, receiver, link.transport)
