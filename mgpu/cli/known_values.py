"""Which values does the shell offer that are not fixed: checks, runs, configs, GPU models, answers?

Each function is the `complete` of an option: it returns the values that start with a text. Nothing is imported before.
"""

from __future__ import annotations

import contextlib
import os
import re

_MOST_BYTES = 4096  # of a file: an accelerate config has its first keys there
_MOST_FILES = 200
_KEY = re.compile(rb"^(?:compute_environment|distributed_type|num_processes|mixed_precision)\s*:", re.MULTILINE)


def checks(begun: str) -> list[str]:
    """Return ids and areas of checks, also after a comma."""
    from mgpu import engine

    done, comma, name = begun.rpartition(",")
    names = dict.fromkeys(name for check in engine.load() for name in (check.area, check.id))
    return [f"{done}{comma}{known}" for known in names if known.startswith(name)]


def runs(begun: str) -> list[str]:
    """Return the ids of the runs on this machine, the latest first."""
    from mgpu.launch import registry

    try:
        found, _ = registry.entries()
    except OSError:
        return []
    return [entry.id for entry in found if entry.id.startswith(begun)]


def demos(begun: str) -> list[str]:
    """Return the machines of `--demo`."""
    from mgpu.report.demo import DEMOS

    return [demo.name for demo in DEMOS if demo.name.startswith(begun)]


def configs(begun: str) -> list[str]:
    """Return the accelerate configs of the folder that is typed. None: the shell offers all files."""
    from mgpu import file_reading

    folder = os.path.dirname(begun)
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder or "."))[:_MOST_FILES]:
            path = os.path.join(folder, name)
            if name.endswith((".yaml", ".yml")) and path.startswith(begun):
                with contextlib.suppress(OSError):
                    if _KEY.search(file_reading.read_start(path, most=_MOST_BYTES)):
                        found.append(path)
    return found


def targets(begun: str) -> list[str]:
    """Return `cpu` and the GPU models after the counts: 4x -> 4xA100-80GB."""
    from mgpu.planning.gpu_models import MODELS

    counts = re.match(r"(?:\d+x){0,2}", begun)
    before = counts[0] if counts and counts[0] else "8x"
    return [name for name in ("cpu", *(f"{before}{model.name}" for model in MODELS)) if name.startswith(begun)]


def answer_keys(begun: str) -> list[str]:
    """Return the keys of answers, with their equals sign, and after it their values."""
    from mgpu.wizard.answers import KEYS

    key, equals, _ = begun.partition("=")
    if not equals:
        return [f"{one.dotted}=" for one in KEYS if one.dotted.startswith(key)]
    names = next((getattr(one.read, "names", ()) for one in KEYS if one.dotted == key), ())
    return [value for name in names if (value := f"{key}={name}").startswith(begun)]
