"""Was this exact config verified on this exact machine?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Stamp

_WHY = "mgpu: the result of `mgpu smoke-test`"


@check(Severity.ERROR, source=_WHY)
def config_not_verified(stamp: Stamp) -> Answer:
    """The smoke test has not passed with this config.

    Why: it is not yet proven that this config's ranks can train together on this machine.

    Fix: run the smoke test. It takes seconds.
    """
    if stamp.verified is not None:
        level = f", level {stamp.level}" if stamp.level else ""
        return Ok(f"verified {stamp.verified_at}{level}: {', '.join(stamp.rungs)}")
    return Problem(
        "the smoke test has not passed with this config",
        f"{'' if stamp.refused is None else f'{stamp.refused}. '}"
        "It is not yet proven that this config's ranks can train together on this machine.",
        Fix(commands=("mgpu smoke-test",)),
    )


@check(Severity.ERROR, source=_WHY, because_of=("config_not_verified",))
def config_changed_since_verified(stamp: Stamp) -> Answer:
    """Something has changed since the smoke test passed.

    Why: a different driver, NCCL, GPU or setting can cause failures that the test had ruled out.

    Fix: run the smoke test again.
    """
    if stamp.verified is None:
        return Skip("never verified: see config_not_verified")
    changed = differences(stamp)
    if not changed:
        return Ok(f"nothing has changed since {stamp.verified_at}")
    return Problem(
        f"changed since verification: {', '.join(name for name, _, _ in changed)}",
        "; ".join(f"{name} {old} -> {new}" for name, old, new in changed),
        Fix(commands=("mgpu smoke-test",)),
        {name: f"{old} -> {new}" for name, old, new in changed},
    )


# Lists of paths: only the entries that differ are shown.
_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_UUID_SHOWN = 12  # GPU-1c2d3e4f: enough to identify a GPU


def differences(stamp: Stamp) -> list[tuple[str, str, str]]:
    """Return the differences as (name, verified value, current value), each once, under the name the user knows."""
    before, now = dict(stamp.verified or {}), dict(stamp.now)
    names = {name for name in {**before, **now} if before.get(name) != now.get(name)} - {"file"}
    if any(name.startswith("config.") for name in names):
        names.discard("config")  # a hash of the same keys
    if {"nccl", "nccl library"} <= names:
        names.discard("nccl library")
    if "nccl library" in names and "nccl library" not in before:
        names.discard("nccl library")  # an older mgpu did not record it
    unseen = _hidden_changes(before, now) if "config" in names else []
    names -= {"config"} if unseen else set()
    gpus = _gpu_changes(before.get("gpus"), now.get("gpus")) if "gpus" in names else []
    hidden = "CUDA_VISIBLE_DEVICES" in names and _same_machine(before.get("gpus", ""), now.get("gpus", ""))
    found = [*([] if hidden else gpus), *unseen]
    for name in sorted(names - {"gpus"}):
        old, new = _format_values(name, before.get(name), now.get(name))
        found.append((name.removeprefix("config."), old, new))
    return found


def _hidden_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the settings with secret values, as the only possible cause of a changed config hash."""
    keys = [name.removeprefix("config.") for name, value in now.items() if "***" in value and before.get(name) == value]
    return [(" or ".join(keys), "***", "changed (hidden)")] if keys else []


def _format_values(name: str, old: str | None, new: str | None) -> tuple[str, str]:
    """Return the two values as shown to the user."""
    if name in _PATHS and old and new:
        had, has = old.split(":"), new.split(":")
        lost, won = [one for one in had if one not in has], [one for one in has if one not in had]
        if lost and won:
            return ":".join(lost), ":".join(won)
        if lost or won:
            entries = ":".join(lost or won)
            return (f"with {entries}", "without it") if lost else (f"without {entries}", "with it")
    if name.startswith("config.") or ": " in name:  # JSON: the string "1" and the number 1 must stay different
        unquoted = [value[1:-1] if value and re.fullmatch(r'"[^"\\\\]+"', value) else value for value in (old, new)]
        if unquoted[0] != unquoted[1]:
            old, new = unquoted
    return old if old is not None else "not set", new if new is not None else "not set"


def _gpu_changes(old: str | None, new: str | None) -> list[tuple[str, str, str]]:
    """Return the differences GPU by GPU in CUDA's order. GPUs that only moved are one change of order."""
    had, has = ([] if not text or text == "none" else text.split(", ") for text in (old, new))
    if set(had) == set(has):
        return [("order of the GPUs", ", ".join(map(_shorten, had)), ", ".join(map(_shorten, has)))]
    if len(had) == len(has):
        pairs = enumerate(zip(had, has, strict=True))
        return [(f"GPU {place}", _shorten(was), _shorten(is_)) for place, (was, is_) in pairs if was != is_]
    lost = [(f"GPU {place}", _shorten(uuid), "missing") for place, uuid in enumerate(had) if uuid not in has]
    won = [(f"GPU {place}", "missing", _shorten(uuid)) for place, uuid in enumerate(has) if uuid not in had]
    return lost + won


def _same_machine(old: str, new: str) -> bool:
    """Return whether one list of GPUs is a subset of the other, in any order."""
    had, has = (set() if text == "none" else set(text.split(", ")) for text in (old, new))
    return had <= has or has <= had


def _shorten(uuid: str) -> str:
    return f"{uuid[:_UUID_SHOWN]}.." if uuid.startswith(("GPU-", "MIG-")) else uuid
