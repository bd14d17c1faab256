"""What does a project set for mgpu: the table `[tool.mgpu]` of its pyproject.toml, or its mgpu.toml?

    [tool.mgpu.doctor]          # defaults of options; the command line wins (mgpu/cli/project_defaults.py)
    strict = true

    [[tool.mgpu.waive]]         # findings of this check are shown as waived, and do not fail
    check = "gpu_ecc_uncorrected"
    reason = "replacement ordered, ticket 4711"
    until = 2027-01-31

The file is searched in the current folder and its parents, up to the folder of the repository. MGPU_NO_PROJECT=1
ignores it.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.errors import USAGE, MgpuError, clip, reason
from mgpu.structured_text import Malformed, toml_of
from mgpu.text import did_you_mean

_MOST_BYTES = 1 << 20
_FILES = (("mgpu.toml", ""), ("pyproject.toml", "tool.mgpu"))  # the prefix of mgpu's tables in each
_REPOSITORY = (".git", ".hg", ".jj")


@dataclass(frozen=True)
class Key:
    """One key of `[[tool.mgpu.waive]]`."""

    name: str
    kind: type
    kind_text: str
    required: bool = True


KEYS = (
    Key("check", str, "a check's id as text"),
    Key("reason", str, "text"),
    Key("until", datetime.date, "a date such as 2027-01-31", required=False),
)


@dataclass(frozen=True)
class Waiver:
    """A check whose findings the project accepts."""

    check: str
    reason: str
    until: str | None  # ISO date, the last day
    line: int | None  # in the file


@dataclass(frozen=True)
class Project:
    """The settings of a project."""

    path: Path
    prefix: str  # of mgpu's tables in this file
    defaults: Mapping[str, Any]  # by command
    waivers: tuple[Waiver, ...]


def find() -> Project | None:
    """Return the settings of the project in the current folder; None without any. Raises MgpuError (usage)."""
    if os.environ.get("MGPU_NO_PROJECT"):
        return None
    try:
        here = Path.cwd()
    except OSError:  # the folder no longer exists
        return None
    folders = [here, *here.parents]
    top = next((place for place, one in enumerate(folders) if any((one / name).exists() for name in _REPOSITORY)), 0)
    for folder in folders[: top + 1]:
        for name, prefix in _FILES:
            if (folder / name).is_file() and (found := _read(folder / name, prefix)) is not None:
                return found
    return None


def _read(path: Path, prefix: str) -> Project | None:
    """Return the settings in a file; None if it has none."""
    try:
        raw = file_reading.read(path, most=_MOST_BYTES)
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MgpuError(f"cannot read {path}: {reason(error)}", USAGE) from None
    if prefix and not re.search(r"\bmgpu\b", text):  # most pyproject.toml: parsing takes milliseconds
        return None
    try:
        tree = toml_of(text)
    except Malformed as error:
        raise MgpuError(f"{path}{f':{error.line}' if error.line else ''}: not TOML: {error}", USAGE) from None
    for name in filter(None, prefix.split(".")):
        tree = tree.get(name, {}) if isinstance(tree, dict) else {}
    if not tree:
        return None
    if not isinstance(tree, dict):
        raise MgpuError(f"{path}: [{prefix}] must be a table", USAGE)
    waive = tree.pop("waive", [])
    if not isinstance(waive, list):
        raise MgpuError(f"{path}: write each waiver as [[{_dotted(prefix, 'waive')}]]", USAGE)
    lines = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r"^\s*\[\[.*waive\s*\]\]", text, re.M)]
    waivers = tuple(
        _waiver(table, f"{path}: [[{_dotted(prefix, 'waive')}]]", lines[place] if place < len(lines) else None)
        for place, table in enumerate(waive)
    )
    return Project(path, prefix, tree, waivers)


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def table_name(project: Project, command: str) -> str:
    """Return how a message names the table of a command: `pyproject.toml: [tool.mgpu.doctor]`."""
    return f"{project.path}: [{_dotted(project.prefix, command)}]"


def _waiver(table: Any, where: str, line: int | None) -> Waiver:
    """Return a waiver. Raises MgpuError (usage) for an unknown or missing key and for a wrong type."""
    if not isinstance(table, dict):
        raise MgpuError(f"{where}: must be a table", USAGE)
    by_name = {key.name: key for key in KEYS}
    for name, value in table.items():
        if name not in by_name:
            raise MgpuError(f"{where}: no key {clip(name)!r}.{did_you_mean(name, by_name)}", USAGE)
        if name == "until" and isinstance(value, str):
            value = table[name] = _date(value)
        if not isinstance(value, by_name[name].kind) or not str(value).strip():
            raise MgpuError(f"{where}: {name} must be {by_name[name].kind_text}", USAGE)
    if missing := next((key.name for key in KEYS if key.required and key.name not in table), None):
        raise MgpuError(f"{where}: {missing} is missing", USAGE)
    until = table.get("until")
    last = until.date() if isinstance(until, datetime.datetime) else until
    check = table["check"].strip().lower().replace("-", "_")
    return Waiver(check, " ".join(table["reason"].split()), last.isoformat() if last else None, line)


def _date(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None
