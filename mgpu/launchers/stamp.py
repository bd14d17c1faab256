"""Which config was verified, on which machine, with which software?

A smoke test that passes adds an entry to `.mgpu/verified.json` beside the config: one per config and set of GPUs,
because several machines may share the folder. `mgpu launch` compares the entry with the current machine, fact by fact.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from mgpu import durations, files
from mgpu.errors import REFUSED, MgpuError, reason
from mgpu.file_reading import read_own
from mgpu.launchers import project_folder
from mgpu.launchers.project_folder import FOLDER
from mgpu.secrets_masking import masked_argv, masked_value
from mgpu.snapshot import (
    BadSnapshot,
    Bandwidth,
    Baseline,
    FailedRehearsal,
    Measurement,
    Rehearsal,
    Scaling,
    Snapshot,
    Stamp,
    decode,
)
from mgpu.structured_text import json_of
from mgpu.text import plural

FILE = "verified.json"
SCHEMA = 1
_LARGEST = 16 << 20  # bytes; an entry of 1,000 ranks has about 1 MiB
_MOST_SCRIPTS = 20  # rehearsed ones that an entry names
_CLOCK_SKEW_S = 600  # maximum clock difference between nodes that share the folder (far above chrony's default alarm)
Row = TypeVar("Row", Bandwidth, Scaling, Measurement, FailedRehearsal)
# fmt: off
# The variables a verdict depends on: one list for the stamp, the launch and the report.
RELEVANT_ENV = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING", "NVIDIA_TF32_OVERRIDE", "NCCL_", "OFI_NCCL_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_",
    "GLOO_", "USE_LIBUV", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "ACCELERATE_", "FSDP_",
    "PARALLELISM_CONFIG_", "PET_", "UCX_", "FI_", "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_NUM_THREADS",
)
# fmt: on
# Of those, the ones that only add log output.
_LOGGING = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT"})
# Packages that are used only with such a config.
_PACKAGES = {"DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron-core"}


def current_stamp(snapshot: Snapshot) -> Stamp | None:
    """Return the fact `stamp`: the best matching entry, with the current values of the same facts.

    None if a fact that the stamp covers is unknown: then nothing counts as verified.
    """
    config = snapshot.config
    now = fingerprint(snapshot)
    if config is None or now is None:
        return None
    entries, refused = _read(Path(config.path).parent)
    same_config = [e for e in entries.values() if e["facts"].get("config") == now["config"]]
    same_file = [e for e in entries.values() if e["facts"].get("file") == now["file"]]
    best = max(
        same_config or same_file,
        key=lambda e: (sum(e["facts"].get(key) == value for key, value in now.items()), str(e["time"])),
        default=None,
    )
    if best is None:
        return Stamp(None, None, now, refused=refused)
    stages, scaling = tuple(best["rungs"]), _rows(Scaling, best.get("scaling"))
    figures = _rows(Measurement, best.get("measurements"))
    scripts, failed = tuple(_scripts(best)), _rows(FailedRehearsal, best.get("failed"))
    return Stamp(best["facts"], best["time"], now, stages, scaling, best.get("level"), scripts, figures, failed)


def measurements(folder: Path) -> list[tuple[dict[str, str], Measurement]]:
    """Return what was measured of scripts with configs in this folder, each with the facts it depends on, latest first.

    The measurements of one run have the number of ranks, and may have those with fewer ranks (`--scaling`).
    """
    entries = _read(folder)[0].values()
    found = [(entry["facts"], one) for entry in entries for one in _rows(Measurement, entry.get("measurements"))]
    return sorted(found, key=lambda pair: (pair[1].taken or "", pair[1].ranks), reverse=True)


def _scripts(entry: Mapping[str, Any]) -> list[str]:
    """Return the hashes of the scripts that were rehearsed, oldest first."""
    found = entry.get("rehearsed")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def unknown_reason(snapshot: Snapshot) -> str:
    """Return which unknown fact prevents a verification here."""
    covered = ("config", "driver", "gpus", "visible", "pytorch", "packages", "nccl", "env", "python")
    missing = next((fact for fact in covered if getattr(snapshot, fact) is None), None)
    return snapshot.gap(missing).reason if missing else "some facts needed for a verification are unknown"


def last_measurements(snapshot: Snapshot, folder: Path) -> Baseline | None:
    """Return the measurements of the last pass on exactly these GPUs, preferably of this config; None if none."""
    now = gpus_text(snapshot)
    entries = [entry for entry in _read(folder)[0].values() if now and entry["facts"].get("gpus") == now]
    config = snapshot.config.sha256 if snapshot.config else None
    best = max(entries, key=lambda e: (e["facts"].get("config") == config, str(e["time"])), default=None)
    if best is None:
        return None
    return Baseline(
        path=str(folder / FOLDER / FILE),
        taken=best.get("measured_at") or best["time"],
        same_gpus=True,
        bandwidth=_rows(Bandwidth, best.get("bandwidth")),
        measured=_figures(best.get("measured")),
        scaling=_rows(Scaling, best.get("scaling")),
    )


def _rows(kind: type[Row], rows: Any) -> tuple[Row, ...]:
    """Return the measured rows of an entry; empty if an older mgpu wrote none, or in another format."""
    try:
        return tuple(decode(kind, row, "") for row in rows or ())
    except (BadSnapshot, TypeError):
        return ()


def _figures(measured: Any) -> dict[str, dict[str, float]]:
    """Return the measured numbers of each rank."""
    found = measured.items() if isinstance(measured, dict) else ()
    return {
        str(rank): {name: float(number) for name, number in figures.items() if isinstance(number, int | float)}
        for rank, figures in found
        if isinstance(figures, dict)
    }


def gpus_text(snapshot: Snapshot) -> str | None:
    """Return the GPUs a run would use, in CUDA's order, as in an entry; None if they are unknown."""
    if snapshot.gpus is None or snapshot.visible is None:
        return None
    named = {gpu.index: gpu.uuid or f"GPU {gpu.index}" for gpu in snapshot.gpus}
    return ", ".join(named[index] for index in snapshot.visible.gpus if index in named)


def last_pass(config: Path) -> str | None:
    """Return when a config of this name in this folder last passed, on any GPUs; None if no pass is recorded."""
    entries = _read(config.parent)[0].values()
    return max((str(e["time"]) for e in entries if e["facts"].get("file") == config.name), default=None)


def fingerprint(snapshot: Snapshot) -> dict[str, str] | None:
    """Return everything a verification depends on, as flat text values; None if part of it is unknown."""
    config, driver, gpus, visible = snapshot.config, snapshot.driver, snapshot.gpus, snapshot.visible
    torch, packages, env, python = snapshot.pytorch, snapshot.packages, snapshot.env, snapshot.python
    if config is None or driver is None or gpus is None or visible is None:
        return None
    if torch is None or packages is None or env is None or python is None or config.sha256 is None:
        return None
    if snapshot.nccl is None or (torch.installed and not torch.version):
        return None
    if driver.nvml_error is None and not driver.version:
        return None
    libraries = snapshot.nccl.libraries
    facts = {
        "config": config.sha256,
        "file": Path(config.path).name,
        "gpus": gpus_text(snapshot) or "none",
        "driver": driver.version or "none",
        "torch": torch.version or "none",
        "nccl": (libraries[0].version or "unknown") if libraries else "none",
        "nccl library": libraries[0].path if libraries else "none",
        "accelerate": packages.get("accelerate", "none"),
        "python": f"{python.version} at {python.executable}",
    }
    if package := _PACKAGES.get(config.distributed_type or ""):
        facts[package] = packages.get(package, "none")
    if config.launch_flags:
        facts["launch flags"] = " ".join(masked_argv(config.launch_flags))
    for file, lines in snapshot.nccl.config_files.items():
        facts |= {f"{file}: {line.partition('=')[0]}": line.partition("=")[2] for line in lines}
    if config.deepspeed_file is not None:
        named = config.deepspeed_file
        facts |= _flat(f"{named.path}: ", named.values) if not named.fault else {named.path: named.fault}
    facts |= _flat("config.", config.values)
    facts |= {name: value for name, value in env.items() if _matters(name)}
    return _mask_secrets(facts)


def _mask_secrets(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the facts without secrets, because the stamp and its changes are shown.

    A change of a hidden value in the config is still detected by the hash of the whole config.
    """
    return {name: masked_value(value, name) for name, value in facts.items()}


def _matters(name: str) -> bool:
    return name.upper().startswith(RELEVANT_ENV) and name.upper() not in _LOGGING


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings by dotted key, each value as JSON."""
    facts: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            facts |= _flat(f"{prefix}{key}.", value)
        else:
            facts[f"{prefix}{key}"] = json.dumps(value, sort_keys=True, default=str)
    return facts


def write(snapshot: Snapshot, stages: Sequence[str], measured: Mapping[str, Any]) -> Path:
    """Add or replace the entry for this config and set of GPUs, with its measurements. Raises MgpuError."""
    facts = fingerprint(snapshot)
    assert snapshot.config is not None
    folder = Path(snapshot.config.path).parent
    from mgpu.planning import bandwidth

    if facts is None:
        raise MgpuError("some facts needed for a verification are unknown")
    with _lock_folder(folder):
        entries, _ = _read(folder)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry: dict[str, Any] = {"time": now, "facts": facts, "rungs": list(stages), "measured": dict(measured)}
        if snapshot.ranks is not None:
            entry["level"] = snapshot.ranks.level
            entry["bandwidth"] = [asdict(row) for row in bandwidth.merge_ranks(snapshot.ranks.ranks)]
            entry["scaling"] = [asdict(run) for run in bandwidth.merge_scaling(snapshot.ranks.ranks)]
        key = _key(facts)
        if not entry.get("bandwidth") and (before := entries.get(key, {})).get(
            "bandwidth"
        ):  # quick level: no bandwidth
            entry |= {name: before.get(name) for name in ("bandwidth", "scaling")}
            entry["measured_at"] = before.get("measured_at") or before["time"]
        known = entries.get(key, {})
        entry |= _of_scripts(known if known.get("facts") == facts else {}, snapshot.rehearsal)
        entries[key] = entry
        return _save(folder, entries)


def _key(facts: Mapping[str, str]) -> str:
    return f"{facts['config'][:16]} on {facts['gpus']}"


def _save(folder: Path, entries: Mapping[str, Any]) -> Path:
    path = folder / FOLDER / FILE
    files.write(path, json.dumps({"schema": SCHEMA, "entries": entries}, indent=1) + "\n", mode=0o600)
    return path


def _of_scripts(known: Mapping[str, Any], rehearsal: Rehearsal | None) -> dict[str, Any]:
    """Return what an entry has of scripts: those of the entry before, and this one with its measurements."""
    scripts, figures = _scripts(known), list(_rows(Measurement, known.get("measurements")))
    failed = list(_rows(FailedRehearsal, known.get("failed")))
    if rehearsal is not None and (sha256 := rehearsal.script_sha256) is not None:
        failed = [one for one in failed if one.script_sha256 != sha256]
        scripts = [*(one for one in scripts if one != sha256), sha256]
    if rehearsal is not None and (new := rehearsal.measurement) is not None:
        same = (new.script_sha256, new.arguments_sha256)
        figures = [one for one in figures if (one.script_sha256, one.arguments_sha256) != same]
        figures += [*(run.measurement for run in rehearsal.scaling if run.measurement is not None), new]
    kept = {"failed": [asdict(one) for one in failed]} if failed else {}
    if not scripts:
        return kept
    rows = [asdict(one) for one in figures[-_MOST_SCRIPTS:]]
    return {"rehearsed": scripts[-_MOST_SCRIPTS:], "measurements": rows, **kept}


def add_failure(snapshot: Snapshot, check: str, arguments_sha256: str) -> None:
    """Add to the entry of this config and set of GPUs, if there is one, that the script failed. Raises MgpuError."""
    facts, rehearsal, config = fingerprint(snapshot), snapshot.rehearsal, snapshot.config
    if facts is None or config is None or rehearsal is None or rehearsal.script_sha256 is None:
        return
    folder, key = Path(config.path).parent, _key(facts)
    if key not in _read(folder)[0]:
        return
    sha256, now = rehearsal.script_sha256, durations.now()
    with _lock_folder(folder):
        entries, _ = _read(folder)
        if (entry := entries.get(key)) is None:
            return
        before = [one for one in _rows(FailedRehearsal, entry.get("failed")) if one.script_sha256 != sha256]
        failed = [*before, FailedRehearsal(sha256, arguments_sha256, check, now)][-_MOST_SCRIPTS:]
        passed = [one for one in _scripts(entry) if one != sha256]
        entries[key] = {**entry, "failed": [asdict(one) for one in failed], "rehearsed": passed}
        _save(folder, entries)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises MgpuError with exit code 5 if another mgpu has it."""
    try:
        own = project_folder.create(folder)
        handle = os.open(own / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise MgpuError(f"cannot record the verification: {reason(error)}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise MgpuError(f"another mgpu is writing {folder / FOLDER / FILE}", REFUSED) from None
    finally:
        os.close(handle)


def _read(folder: Path) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the entries of the folder's stamp file, and why the file or some entries are ignored.

    The file must belong to the user, in a folder that is not a link. A damaged file verifies nothing.
    """
    path = folder / FOLDER / FILE
    try:
        if path.parent.is_symlink():
            return {}, f"{path.parent} is a symbolic link"
        data = json_of(read_own(path, most=_LARGEST))
        entries = data["entries"] if data.get("schema") == SCHEMA else {}
        possible = {key: entry for key, entry in entries.items() if _is_possible(entry)}
        # Entries of an older mgpu contain secrets.
        counted = {key: entry | {"facts": _mask_secrets(entry["facts"])} for key, entry in possible.items()}
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, f"{path} is ignored: {reason(error).partition(': ')[0]}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, f"{path} is damaged"
    left_out = len(entries) - len(counted)
    return (
        counted,
        f"{path}: {left_out} {plural(left_out, 'entry', 'entries')} ignored (no stages, or a time in the future)"
        if left_out
        else None,
    )


def _is_possible(entry: Any) -> bool:
    """Whether a smoke test can have written the entry: it has facts and stages, and its time is not in the future."""
    facts, stages, time = entry.get("facts"), entry.get("rungs"), entry.get("time")
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        return False
    if not isinstance(stages, list) or not stages or not all(isinstance(name, str) and name for name in stages):
        return False
    ahead = durations.seconds_between(durations.now(), time) if isinstance(time, str) else None
    return ahead is not None and ahead <= _CLOCK_SKEW_S
