"""On which hosts and GPUs does `deepspeed` start its ranks? As deepspeed 0.19, launcher/runner.py."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mgpu import file_reading
from mgpu.errors import reason
from mgpu.launchers.option_words import Given

_DEFAULT = "/job/hostfile"
_LARGEST = 1 << 20
_ENTRY = re.compile(r"(\S+)\s+slots=(\d{1,6})")
_LOCAL = "localhost"


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run with the number of ranks on each; empty if the visible GPUs of this machine decide."""

    slots: Mapping[str, int] = field(default_factory=dict)
    unread: str = ""  # why they are not known

    def here(self, node: int | None) -> int | None:
        """Return the number of ranks on this machine, which is host number `node`; None if it is not known."""
        names = {_LOCAL, socket.gethostname()} if node is None else set(list(self.slots)[node : node + 1])
        return next((count for host, count in self.slots.items() if host in names or len(self.slots) == 1), None)


def chosen(given: Given, environ: Mapping[str, str] = os.environ) -> Hosts:
    """Return the hosts after --include, --exclude and --num_nodes."""
    path = given.values.get("hostfile", _DEFAULT)
    slots: dict[str, int] = {}
    if os.path.isfile(path):
        try:
            text = file_reading.read(Path(path), most=_LARGEST).decode("utf-8", "replace")
        except OSError as error:
            return Hosts(unread=f"the hostfile {path} was not read: {error.strerror or reason(error)}")
        slots = {found[1]: int(found[2]) for line in text.splitlines() if (found := _ENTRY.match(line.strip()))}
    include, exclude = given.values.get("include", ""), given.values.get("exclude", "")
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if not slots and visible and not include and not exclude and given.number("num_gpus") is None:
        include = f"{_LOCAL}:{visible}"
    if include:
        return Hosts({host: len(numbers) or slots.get(host, 0) for host, numbers in _filter(include).items()})
    for host, numbers in _filter(exclude).items():
        slots[host] = max(0, slots.get(host, 0) - len(numbers)) if numbers else 0
    slots = {host: count for host, count in slots.items() if count}
    first = given.number("num_nodes")
    return Hosts(dict(list(slots.items())[:first]) if first else slots)


def _filter(text: str) -> dict[str, list[str]]:
    """Return the hosts of worker-0@worker-1:0,2 with the GPUs that are named."""
    found: dict[str, list[str]] = {}
    for part in text.split("@") if text else ():
        host, _, numbers = part.partition(":")
        found.setdefault(host, []).extend(one for one in numbers.split(",") if one)
    return found
