"""The JSON document of `mgpu configure --validate`, as a type (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Any, TypedDict

from mgpu.report.json_types import EditEntry, Envelope


class LoaderEntry(TypedDict):
    """The result of accelerate's own loader."""

    accepted: bool
    error: str | None
    accelerate: str | None
    options: list[str]


class FixedEntry(TypedDict):
    """The changes that `--fix` made, or would make."""

    edits: list[EditEntry]
    diff: list[str]
    left: list[str]
    backup: str | None
    written: bool


class ConfigDocument(Envelope, total=False):
    """mgpu.configure/1.x for one file."""

    config: dict[str, Any]
    config_path: str
    sha256: str | None
    loader: LoaderEntry | None
    mended: FixedEntry  # codespell:ignore
    next: list[str]


class ConfigsDocument(TypedDict):
    """mgpu.configure/1.x for several files."""

    schema: str
    files: list[ConfigDocument]
    exit_code: int
