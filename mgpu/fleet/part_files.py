"""The files of a host's part of a run, which travel to the machine that started it.

What is joined with the evidence of other hosts travels as it changes; logs, stacks and the result travel at the end.
They are stored there as those of a node in a folder that all nodes share, so that the same code reads them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu import file_reading, files
from mgpu.errors import MgpuError, reason
from mgpu.hangs import hang_files
from mgpu.hangs.hang_evidence import RECORDED
from mgpu.launch import node_answers, node_pace, node_ranks, run_facts_file
from mgpu.launchers import run_folder
from mgpu.snapshot import fact_file

EVENT = "file"
_NOT_STORED = "what the hosts send cannot be stored here, so hangs, slow hosts and logs of hosts may be missing"
_LIVE = (hang_files.NAME, node_pace.NAME, node_ranks.NAME)
_MOST_OF_LOG = 4 << 20  # bytes of the end of a log
_MOST_OF_FACT = 16 << 20
_MOST_OF_HOST = 48 << 20
_MOST_FILES = 4096  # of a host
_KNOWN = re.compile(
    r"(?:run\.log(?:\.\d{1,6})?|mgpu\.log|(?:result|facts|gpus|hang|steps|ranks|answer)\.json"
    r"|recorder/\d{1,7}\.\d{1,10}\.(?:stacks|raised|values|flight|nan))"
)
_LOGS = ("run.log", "run.log.*", "mgpu.log")
_OF_RECORDER = (f"{RECORDED}/", f"{RECORDED}/*")
_KIND = run_folder.Kind(
    "host",
    "node",
    (*_LOGS, "result.json", run_facts_file.NAME, "gpus.json", node_answers.ANSWER, *_LIVE, *_OF_RECORDER),
)
Send = Callable[[Mapping[str, Any]], None]


class Sender:
    """Sends the files of one part, on its host."""

    def __init__(self, folder: Path, send: Send) -> None:
        self._folder, self._send = folder, send
        self._seen: dict[str, tuple[int, int, int] | None] = dict.fromkeys(_LIVE)

    def look(self) -> None:
        """Send what has changed of the files that are joined with those of other hosts."""
        for name in _LIVE:
            self._look_at(name)

    def end(self) -> None:
        """Send everything, after the end of the part."""
        self.look()
        left = _MOST_OF_HOST
        for name in [name for name in _names(self._folder) if name not in _LIVE][:_MOST_FILES]:
            if left > 0:
                left -= self._look_at(name)

    def _look_at(self, name: str) -> int:
        """Send a file if it has changed, or that it was removed; return its bytes."""
        path, found, data = self._folder / name, None, b""
        with contextlib.suppress(OSError):
            about = path.stat()
            found = (about.st_mtime_ns, about.st_size, about.st_ino)
        if found == self._seen.get(name):
            return 0
        if found is not None:
            try:
                is_log = not name.endswith(".json")
                read = file_reading.read_part if is_log else file_reading.read_whole
                data = read(path, most=_MOST_OF_LOG if is_log else _MOST_OF_FACT)
            except OSError:
                return 0
        self._seen[name] = found
        self._send({"event": EVENT, "name": name, "text": None if found is None else data.decode("utf-8", "replace")})
        return len(data)


def _names(folder: Path) -> list[str]:
    """Return the known files of a run's folder: the short ones first."""
    found: list[tuple[int, str]] = []
    for place, prefix in ((folder, ""), (folder / RECORDED, f"{RECORDED}/")):
        with contextlib.suppress(OSError):
            entries = [entry for entry in os.scandir(place) if entry.is_file(follow_symlinks=False)]
            found += [(entry.stat().st_size, f"{prefix}{entry.name}") for entry in entries]
    return [name for _, name in sorted(found) if _KNOWN.fullmatch(name)]


class Received:
    """Stores the files of all hosts, on the machine that started the run."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        """`folder`: of the hosts' files, which exists."""
        self._places = {host: hang_files.folder_of(folder, host) for host in hosts}
        self._left = dict.fromkeys(hosts, _MOST_OF_HOST + 3 * _MOST_OF_FACT)  # bytes that are stored after the end
        self._failed = False
        for place in self._places.values():
            with contextlib.suppress(OSError):  # a full disk: the run matters more
                run_folder.make_below(place, _KIND)

    def take(self, host: str, message: Mapping[str, Any]) -> str:
        """Store or remove a file; return why it could not be stored, once. What comes from others is not trusted."""
        name, content, place = message.get("name"), message.get("text"), self._places.get(host)
        if place is None or not isinstance(name, str) or not _KNOWN.fullmatch(name):
            return ""
        if content is None:
            fact_file.remove(place / name)
        if not isinstance(content, str) or len(content) > _MOST_OF_FACT:
            return ""
        if name not in _LIVE:
            self._left[host] -= len(content)
            if self._left[host] < 0:
                return ""
        try:
            (place / name).parent.mkdir(mode=0o700, exist_ok=True)
            files.write(place / name, content, mode=0o600)
            if isinstance(number := message.get("number"), int):
                os.utime(place / name, (number, number))
        except (MgpuError, OSError) as error:
            known, self._failed = self._failed, True
            why = error.message if isinstance(error, MgpuError) else reason(error)
            return "" if known else f"{_NOT_STORED}: {why}"
        return ""
