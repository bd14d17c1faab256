"""`mgpu smoke-test --show`: print the last result for this config without running anything."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import NoneType
from typing import Any

from mgpu import engine, file_reading
from mgpu.engine import selections
from mgpu.errors import READY, USAGE, MgpuError, reason
from mgpu.launchers import project_folder, stamp
from mgpu.report import document, output, screen
from mgpu.smoke import formats as smoke_formats
from mgpu.smoke.config_under_test import config_path
from mgpu.smoke.report import Result, result_paths
from mgpu.smoke.request import Request
from mgpu.snapshot import BadSnapshot, Ranks, loads
from mgpu.structured_text import json_of
from mgpu.text import counted

_LARGEST = 16 << 20  # bytes; a smoke test of 1,000 ranks leaves about 6 MiB
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class _Found:
    """A result on disk."""

    folder: Path
    document: dict[str, Any]
    time: float


def show(request: Request) -> int:
    """Print the last result and return its exit code. Raises MgpuError (2) if there is none."""
    found = _newest(request)
    if found is None:
        return _from_stamp(request)
    if request.format == "json":
        output.write_out(request.output, lambda stream: output.write_text(stream, document.text(found.document)))
        return int(found.document["exit_code"])
    result = _result(found)
    width = screen.Screen.of().width
    name = result.snapshot.config.path if result.snapshot.config else "a generated config"
    texts = (f"Last result of {name}: {_when(found.time)}", f"in {found.folder}/")
    head: list[screen.Line] = [[(line, "bold")] for text in texts for line in screen.wrapped(text, width)]
    smoke_formats.write_report(result, request, None, [*head, []])
    return result.code


def _result(found: _Found) -> Result:
    """Return the result with its facts judged again by the current checks; verdict, code and time are kept."""
    _, facts = result_paths(str(found.folder))
    try:
        snapshot = loads(file_reading.read(facts, most=_LARGEST).decode("utf-8"))
    except (OSError, UnicodeDecodeError, BadSnapshot) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise MgpuError(
            f"the facts of {found.folder} cannot be read: {why}\n  mgpu smoke-test --show --json   prints the result",
            USAGE,
        ) from None
    if snapshot.ranks is None:
        raise MgpuError(f"{facts} does not contain a smoke test", USAGE)
    old = found.document
    outcomes = engine.judge(snapshot, selections.SMOKE)
    return Result(snapshot, outcomes, old["verdict"], int(old["exit_code"]), float(old["duration_s"]), old["stamp"])


def _newest(request: Request) -> _Found | None:
    """Return the newest result of this config in the run folders, or the one in --log-dir for any config."""
    if request.log_dir:
        found = _read(Path(request.log_dir))
        if found is None:
            raise MgpuError(f"no smoke test result in {request.log_dir}", USAGE)
        return found
    wanted = Path(config_path(request)).resolve()
    anything = not request.config and not wanted.exists()  # a CPU rehearsal without a config
    named = os.environ.get("MGPU_LOG_DIR")
    places = (named,) if named else (project_folder.RUNS, project_folder.RUNS_BEFORE)
    mine = [found for base in places for found in _find_runs(Path(base)) if anything or _config(found) == wanted]
    return max(mine, key=lambda found: found.time, default=None)


def last_ranks(config: Path, base: Path) -> Ranks | None:
    """Return the ranks of the newest smoke test of a config in a folder of runs; None if there is none."""
    wanted = config.resolve()
    found = max((one for one in _find_runs(base) if _config(one) == wanted), key=lambda one: one.time, default=None)
    if found is None:
        return None
    try:
        _, facts = result_paths(str(found.folder))
        return loads(file_reading.read(facts, most=_LARGEST).decode("utf-8")).ranks
    except (OSError, UnicodeDecodeError, BadSnapshot):
        return None


def _find_runs(base: Path) -> Iterator[_Found]:
    for folder in base.glob("smoke-*"):
        if (found := _read(folder)) is not None:
            yield found


def _config(found: _Found) -> Path | None:
    path = (found.document.get("config") or {}).get("path")
    return Path(path).resolve() if path else None


def _read(folder: Path) -> _Found | None:
    """Return the result in a folder; None if it is missing or damaged."""
    path, _ = result_paths(str(folder))
    try:
        content = json_of(file_reading.read(path, most=_LARGEST))
        when = path.stat().st_mtime
    except (OSError, ValueError):
        return None
    return _Found(folder, content, when) if _is_result(content) else None


def _is_result(content: Any) -> bool:
    """Whether a document is a smoke test result, with all keys that are read here."""
    if not isinstance(content, dict) or not str(content.get("schema", "")).startswith("mgpu.smoke/"):
        return False
    verdict, code, seconds, config = (content.get(key) for key in ("verdict", "exit_code", "duration_s", "config"))
    return (
        "stamp" in content
        and isinstance(verdict, str)
        and type(code) is int
        and 0 <= code <= 255
        and isinstance(seconds, int | float)
        and math.isfinite(seconds)
        and isinstance(content["stamp"], str | NoneType)
        and (config is None or (isinstance(config, dict) and isinstance(config.get("path"), str | NoneType)))
    )


def _from_stamp(request: Request) -> int:
    """Print when the config last passed, from its verification record, if no run folder is left."""
    config = Path(config_path(request))
    when = stamp.last_pass(config)
    if when is None or request.format != "human":
        raise MgpuError(f"no smoke test result for {config} here\n  mgpu smoke-test   runs one", USAGE)
    text = f"{config} passed {_when(_seconds(when))}. The files of that run were deleted."
    output.write_out(
        request.output,
        lambda stream: screen.Screen.of(stream).show(
            screen.headed("PASSED", "ok", text, screen.Screen.of(stream)),
        ),
    )
    return READY


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _when(then: float) -> str:
    """Return how long ago a time was, and the time itself."""
    ago = max(0.0, datetime.now(timezone.utc).timestamp() - then)
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if ago >= unit:
            return f"{counted(int(ago // unit), name)} ago ({_date(then)})"
    return f"just now ({_date(then)})"


def _date(then: float) -> str:
    return f"{datetime.fromtimestamp(then, timezone.utc):%Y-%m-%d %H:%M} UTC"
