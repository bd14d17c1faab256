"""Which config was tested on which hosts, and how do they reach each other? `.mgpu/hosts.json` beside the config."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from mgpu import files
from mgpu.file_reading import read_own
from mgpu.launchers.project_folder import FOLDER
from mgpu.structured_text import json_of

FILE = "hosts.json"
_SCHEMA = 1
_LARGEST = 1 << 20  # bytes
_MOST = 20  # entries; the oldest are dropped


@dataclass(frozen=True)
class Tested:
    """A config that passed the smoke test on these hosts."""

    config: str  # hash of the file
    hosts: tuple[str, ...]  # Host.identity, in the order of their node ranks
    python: str  # mgpu's own, of the hosts without another one
    time: str = ""  # ISO 8601, UTC


def find(config: Path, config_hash: str | None, hosts: Sequence[str], python: str) -> Tested | None:
    """Return the entry for this config on these hosts with this Python; None if they were not tested."""
    return next(
        (
            one
            for one in _read(config.parent)
            if (one.config, one.hosts, one.python) == (config_hash, tuple(hosts), python)
        ),
        None,
    )


def record(config: Path, tested: Tested) -> None:
    """Add an entry, or replace the one for the same hosts and config file. Raises MgpuError."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new = Tested(tested.config, tested.hosts, tested.python, now)
    kept = [one for one in _read(config.parent) if (one.config, one.hosts) != (new.config, new.hosts)]
    entries = [asdict(one) for one in [*kept, new][-_MOST:]]
    folder = config.parent / FOLDER
    folder.mkdir(exist_ok=True)
    files.write(folder / FILE, json.dumps({"schema": _SCHEMA, "tested": entries}, indent=1) + "\n")


def _read(folder: Path) -> list[Tested]:
    try:
        whole = json_of(read_own(folder / FOLDER / FILE, most=_LARGEST))
        entries = whole["tested"] if isinstance(whole, dict) and whole.get("schema") == _SCHEMA else []
        return [_entry(one) for one in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _entry(one: Mapping[str, object]) -> Tested:
    hosts = one["hosts"]
    if not isinstance(hosts, list):
        raise TypeError("hosts")
    return Tested(str(one["config"]), tuple(map(str, hosts)), str(one["python"]), str(one.get("time", "")))
