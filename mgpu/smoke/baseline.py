"""Which earlier result is the new one compared with?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from mgpu import file_reading
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.launchers import stamp
from mgpu.snapshot import BadSnapshot, Bandwidth, Baseline, Scaling, Snapshot, decode
from mgpu.structured_text import Malformed, json_of

Row = TypeVar("Row", Bandwidth, Scaling)
SCHEMA = "mgpu.smoke/"
_LARGEST = 16 << 20  # bytes; a smoke test of 1,000 ranks leaves about 6 MiB


def load(path: str, snapshot: Snapshot) -> Baseline | None:
    """Return the result at `path` (--baseline), or by default the recorded last pass on these GPUs.

    Raises MgpuError (2) if the file is not a smoke test result.
    """
    if path:
        return _read(path, snapshot)
    if snapshot.config is None:
        return None
    return stamp.last_measurements(snapshot, Path(snapshot.config.path).parent)


def _read(path: str, snapshot: Snapshot) -> Baseline:
    where = Path(path)
    file = where / "smoke.json" if where.is_dir() else where
    try:
        document = json_of(file_reading.read(file, most=_LARGEST))
    except OSError as error:
        raise MgpuError(f"--baseline {file}: cannot read the file: {reason(error)}", USAGE) from None
    except Malformed as error:
        at = f" (line {error.line}, column {error.column})" if error.line else ""
        raise _invalid(file, f"{error}{at}") from None
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(SCHEMA):
        raise _invalid(file, "not a smoke test result")
    ranks = document.get("ranks")
    if not isinstance(ranks, list) or not all(isinstance(rank, dict) for rank in ranks):
        raise _invalid(file, "ranks: expected a list of objects")
    taken = document.get("time") or document.get("taken")
    return Baseline(
        path=str(file),
        taken=taken if isinstance(taken, str) else None,
        same_gpus=_same_gpus(ranks, snapshot),
        bandwidth=_rows(Bandwidth, document, "bandwidth", file),
        measured=_figures(ranks, file),
        scaling=_rows(Scaling, document, "scaling", file),
    )


def _invalid(file: Path, why: str) -> MgpuError:
    return MgpuError(
        f"--baseline {file}: {why}\nUse the smoke.json of an earlier run, e.g. .mgpu/runs/smoke-<time>/smoke.json",
        USAGE,
    )


def _rows(kind: type[Row], document: dict[str, Any], key: str, file: Path) -> tuple[Row, ...]:
    """Return the measured rows; empty for the quick level and for runs that failed earlier."""
    rows = document.get(key) or []
    if not isinstance(rows, list):
        raise _invalid(file, f"{key}: expected a list")
    try:
        return tuple(decode(kind, row, f"{key}[{number}]") for number, row in enumerate(rows))
    except BadSnapshot as error:
        raise _invalid(file, str(error)) from None


def _figures(ranks: list[dict[str, Any]], file: Path) -> dict[str, dict[str, float]]:
    """Return the measured numbers of each rank."""
    found: dict[str, dict[str, float]] = {}
    for number, rank in enumerate(ranks):
        measured = rank.get("measured") or {}
        if not isinstance(measured, dict) or not all(isinstance(value, int | float) for value in measured.values()):
            raise _invalid(file, f"ranks[{number}].measured: expected an object of numbers")
        found[str(rank.get("rank", number))] = {name: float(value) for name, value in measured.items()}
    return found


def _same_gpus(ranks: list[dict[str, Any]], snapshot: Snapshot) -> bool | None:
    """Whether its ranks ran on GPUs that are visible here; None if either is unknown."""
    named = [rank.get("gpu") for rank in ranks]
    then = {name for name in named if isinstance(name, str)}
    if len(then) < len(set(map(str, named))) or not then or not snapshot.gpus or snapshot.visible is None:
        return None
    return then <= {gpu.uuid for gpu in snapshot.gpus if gpu.index in snapshot.visible.gpus}
