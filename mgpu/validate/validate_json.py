"""The JSON document of `mgpu configure --validate`, as a type (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Any, TypedDict

from mgpu.report.json_types import EditEntry, Envelope


class LoaderEntry(TypedDict):
    """What accelerate's own loader reports about the config."""

    accepted: bool
    error: str | None
    accelerate: str | None


class MendedEntry(TypedDict):
    """What `--fix` did, or would do."""

    edits: list[EditEntry]
    diff: list[str]
    left: list[str]
    backup: str | None
    written: bool


class ConfigDocument(Envelope, total=False):
    """mgpu.configure/1.x of one file."""

    config: dict[str, Any]
    config_path: str
    sha256: str | None
    loader: LoaderEntry | None
    mended: MendedEntry
    next: list[str]


class ConfigsDocument(TypedDict):
    """The same of several files."""

    schema: str
    files: list[ConfigDocument]
    exit_code: int
