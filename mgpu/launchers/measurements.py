"""Which measurement of a script counts for a new plan, and what has changed since it was taken?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpu.config import facts as config_facts
from mgpu.launchers import stamp
from mgpu.launchers.script_hash import script_hash
from mgpu.snapshot import Measurement, Snapshot


@dataclass(frozen=True)
class Known:
    """The latest measurement in a folder, and those of the same script on fewer ranks."""

    measurement: Measurement
    changed: tuple[str, ...] = ()  # since it was taken: it does not count then
    fewer: tuple[Measurement, ...] = ()

    @property
    def by(self) -> str:
        """Return by which run and when it was measured: ".mgpu/runs/smoke-1, 2026-11-23"."""
        return ", ".join(part for part in (self.measurement.run, (self.measurement.taken or "")[:10]) if part)


def latest(snapshot: Snapshot, folder: Path) -> Known | None:
    """Return the latest measurement, preferably on these GPUs; None if there is none."""
    found = stamp.measurements(folder)
    if not found:
        return None
    here = stamp.gpus_text(snapshot) or "none"
    facts, best = next(((facts, one) for facts, one in found if facts.get("gpus") == here), found[0])
    same = (best.script_sha256, best.arguments_sha256, best.taken)
    fewer = tuple(
        one
        for _, one in found
        if (one.script_sha256, one.arguments_sha256) == same[:2] and one.ranks < best.ranks and one.cpu == best.cpu
    )
    return Known(best, tuple(_changes(facts, best, snapshot, folder, here)), fewer)


def _changes(facts: Mapping[str, str], found: Measurement, snapshot: Snapshot, folder: Path, here: str) -> list[str]:
    """Return what is not as it was, in words. What cannot be read counts as changed."""
    changed = []
    if script_hash([found.script]) != found.script_sha256 and script_hash(["-m", found.script]) != found.script_sha256:
        changed.append("the script")
    if not _same_config(facts, folder):
        changed.append("the config")
    if facts.get("gpus") != here:
        changed.append("the GPUs")
    driver = snapshot.driver.version if snapshot.driver else None
    torch = snapshot.pytorch.version if snapshot.pytorch else None
    changed += [name for name, now in (("driver", driver), ("torch", torch)) if now and facts.get(name, now) != now]
    return changed


def _same_config(facts: Mapping[str, str], folder: Path) -> bool:
    path = folder / facts.get("file", "")
    return path.is_file() and config_facts(path, ask_loader=False).sha256 == facts.get("config")
