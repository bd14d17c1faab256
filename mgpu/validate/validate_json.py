"""The JSON documents of `mgpu configure --validate` and `--show-origin`, as types (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from mgpu.report.json_types import EditEntry, Envelope, ExitCode


class LoaderEntry(TypedDict):
    """The result of accelerate's own loader; of a DeepSpeed file, of DeepSpeed's."""

    accepted: bool
    error: str | None
    accelerate: str | None
    options: list[str]
    deepspeed: Annotated[str | None, "its version, if it loaded the DeepSpeed file"]


class FixedEntry(TypedDict):
    """The changes that `--fix` made, or would make."""

    edits: list[EditEntry]
    diff: list[str]
    left: list[str]
    backup: str | None
    written: bool


class ConfigDocument(Envelope, total=False):
    """mgpu.configure/1.x for one file."""

    kind: Annotated[str, "accelerate, or deepspeed: the file is a DeepSpeed file (ds_config.json)"]
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
    exit_code: ExitCode


class OriginEntry(TypedDict):
    """One value, and where it comes from."""

    key: str
    value: Annotated[Any, "any JSON value"]
    source: Annotated[str, "FILE:LINE, accelerate's default, or environment"]
    applied: Annotated[bool | None, "null: unknown"]
    note: str
    line: int | None
    column: int | None


class OriginsDocument(TypedDict):
    """mgpu.configure/1.x of `--show-origin`."""

    schema: str
    config_path: str
    sha256: str | None
    accelerate: Annotated[str | None, "its version; null: it was not asked"]
    error: Annotated[str | None, "why accelerate rejects the file"]
    values: list[OriginEntry]
    exit_code: ExitCode
