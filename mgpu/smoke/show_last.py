"""`mgpu smoke-test --show`: what did the last smoke test of this config say? Nothing is run."""

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
from mgpu.launchers import stamp
from mgpu.report import document, output, screen
from mgpu.smoke import formats as smoke_telling
from mgpu.smoke.config_under_test import named
from mgpu.smoke.report import Result, kept
from mgpu.smoke.request import Request
from mgpu.snapshot import BadSnapshot, loads
from mgpu.structured_text import json_of
from mgpu.text import counted

_LARGEST = 16 << 20  # bytes; a smoke test of 1,000 ranks leaves about 6 MiB
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class _Found:
    """A result on disk."""

    folder: Path
    told: dict[str, Any]  # its document
    time: float


def show(request: Request) -> int:
    """Print it; the exit code is that of the result."""
    found = _newest(request)
    if found is None:
        return _from_stamp(request)
    if request.format == "json":
        output.write_out(request.output, lambda stream: output.whole_text(stream, document.text(found.told)))
        return int(found.told["exit_code"])
    result = _result(found)
    width = screen.Screen.of().width
    name = result.snapshot.config.path if result.snapshot.config else "a made-up config"
    text = f"Last result of {name}: {_when(found.time)}, {found.folder}/"
    head: list[screen.Line] = [[(line, "bold")] for line in screen.wrapped(text, width)]
    smoke_telling.tell(result, request, None, [*head, []])
    return result.code


def _result(found: _Found) -> Result:
    """The result judged again from its facts, by the checks of today; verdict, code and time as they were."""
    _, facts = kept(str(found.folder))
    try:
        snapshot = loads(file_reading.read(facts, most=_LARGEST).decode("utf-8"))
    except (OSError, UnicodeDecodeError, BadSnapshot) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise MgpuError(
            f"the facts of {found.folder} cannot be read: {why}\n  mgpu smoke-test --show --json   what it said",
            USAGE,
        ) from None
    if snapshot.ranks is None:
        raise MgpuError(f"{facts} holds no smoke test", USAGE)
    told = found.told
    outcomes = engine.judge(snapshot, selections.SMOKE)
    return Result(snapshot, outcomes, told["verdict"], int(told["exit_code"]), float(told["duration_s"]), told["stamp"])


def _newest(request: Request) -> _Found | None:
    """The newest result of this config among the run folders; the one in --log-dir, whatever it is of."""
    if request.log_dir:
        found = _read(Path(request.log_dir))
        if found is None:
            raise MgpuError(f"no result of a smoke test in {request.log_dir}", USAGE)
        return found
    wanted = Path(named(request)).resolve()
    anything = not request.config and not wanted.exists()  # a rehearsal without any config
    base = Path(os.environ.get("MGPU_LOG_DIR") or "runs")
    mine = [found for found in _all(base) if anything or _config(found) == wanted]
    return max(mine, key=lambda found: found.time, default=None)


def _all(base: Path) -> Iterator[_Found]:
    for folder in base.glob("smoke-*"):
        if (found := _read(folder)) is not None:
            yield found


def _config(found: _Found) -> Path | None:
    path = (found.told.get("config") or {}).get("path")
    return Path(path).resolve() if path else None


def _read(folder: Path) -> _Found | None:
    """A folder's document; None where there is none, or a damaged one."""
    path, _ = kept(str(folder))
    try:
        told = json_of(file_reading.read(path, most=_LARGEST))
        when = path.stat().st_mtime
    except (OSError, ValueError):
        return None
    return _Found(folder, told, when) if _is_result(told) else None


def _is_result(told: Any) -> bool:
    """Whether a document is the result of a smoke test, as far as it is read here."""
    if not isinstance(told, dict) or not str(told.get("schema", "")).startswith("mgpu.smoke/"):
        return False
    verdict, code, seconds, config = (told.get(key) for key in ("verdict", "exit_code", "duration_s", "config"))
    return (
        "stamp" in told
        and isinstance(verdict, str)
        and type(code) is int
        and 0 <= code <= 255
        and isinstance(seconds, int | float)
        and math.isfinite(seconds)
        and isinstance(told["stamp"], str | NoneType)
        and (config is None or (isinstance(config, dict) and isinstance(config.get("path"), str | NoneType)))
    )


def _from_stamp(request: Request) -> int:
    """Without a run folder: when it passed last, if it did."""
    config = Path(named(request))
    when = stamp.last_pass(config)
    if when is None or request.format != "human":
        raise MgpuError(f"no smoke test of {config} was kept here\n  mgpu smoke-test   makes one", USAGE)
    text = f"{config} passed {_when(_seconds(when))}; the files of that run are gone."
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
    """How long ago, and when."""
    ago = max(0.0, datetime.now(timezone.utc).timestamp() - then)
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if ago >= unit:
            return f"{counted(int(ago // unit), name)} ago ({_date(then)})"
    return f"just now ({_date(then)})"


def _date(then: float) -> str:
    return f"{datetime.fromtimestamp(then, timezone.utc):%Y-%m-%d %H:%M} UTC"
