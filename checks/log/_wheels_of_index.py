"""Does the index that a fix names have wheels for the Python and the torch of a log's run?

pip finds nothing there for an old Python, and installs another torch if that index does not have the release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Log

from .versions_shown import version_in

_OLD = "old_python"  # a row of setup_facts.py
_MINOR = re.compile(r"(?:/python3\.|\\Python3)(?P<minor>[6-9])[/\\]", re.IGNORECASE)
_INDEX = re.compile(r"download\.pytorch\.org/whl/(?P<index>cu\d{3})\b")
_TORCH = re.compile(r"\binstall\b.* torch ")
_FOR_BLACKWELL = "cu128"  # which older ones do not have kernels for
# The first Python 3 with wheels, the last torch for an older one, and for which CUDAs each torch has wheels:
# https://github.com/pytorch/pytorch/blob/main/RELEASE.md and https://download.pytorch.org/whl/torch/
_FIRST = {"cu117": 7, "cu118": 8, "cu121": 8, "cu124": 8, "cu126": 9, "cu128": 9, "cu129": 9, "cu130": 10}
_LAST = {
    6: "1.10.2, with CUDA 11.3",
    7: "1.13.1, with CUDA 11.7",
    8: "2.4.1, with CUDA 12.4",
    9: "2.8.0, with CUDA 12.9",
}
_OF_TORCH: dict[tuple[int, int], tuple[str, ...]] = {
    (1, 13): ("cu116", "cu117"),
    (2, 0): ("cu117", "cu118"),
    **dict.fromkeys(((2, 1), (2, 2), (2, 3)), ("cu118", "cu121")),
    **dict.fromkeys(((2, 4), (2, 5)), ("cu118", "cu121", "cu124")),
    (2, 6): ("cu118", "cu124", "cu126"),
    (2, 7): ("cu118", "cu126", "cu128"),
    (2, 8): ("cu126", "cu128", "cu129"),
    **dict.fromkeys(((2, 9), (2, 10), (2, 11)), ("cu126", "cu128", "cu130")),
    **dict.fromkeys(((2, 12), (2, 13)), ("cu126", "cu130", "cu132")),
}


def with_existing_wheels(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with a word on fixes whose wheels do not exist for the Python or the torch of the log."""
    log: Log | None = facts.get("log")
    if log is None or not any(map(_INDEX.search, (command for fix in problem.fixes for command in fix.commands))):
        return problem
    return replace(problem, fix=tuple(_with_word(fix, log) for fix in problem.fixes))


def _with_word(fix: Fix, log: Log) -> Fix:
    found = [
        (match["index"], bool(_TORCH.search(command)))
        for command in fix.commands
        if (match := _INDEX.search(command)) is not None
    ]
    if not found:
        return fix
    index, of_torch = found[0]
    keeps_release = of_torch and "newer torch" not in fix.text
    word = _for_python(log, index) or (_for_torch(log, index) if keeps_release else "")
    return replace(fix, text=f"{fix.text}{word}")


def _for_python(log: Log, index: str) -> str:
    shown = next((one for one in log.shows if one.name == _OLD), None)
    found = _MINOR.search(shown.text) if shown else None
    minor, first = int(found["minor"]) if found else None, _FIRST.get(index, 0)
    if minor is None or first <= minor:
        return ""
    return (
        f" The log shows Python 3.{minor}, and these wheels need 3.{first} or newer: install them in a new "
        f"environment. The last torch for Python 3.{minor} is {_LAST[minor]}."
    )


def _for_torch(log: Log, index: str) -> str:
    version = version_in(log, "torch")
    release = version_numbers(version)[:3]
    there = _OF_TORCH.get((release[0], release[1]), ()) if len(release) > 1 else ()
    if not there or index in there:
        return ""
    shown = ".".join(map(str, release))
    text = f" The log shows torch {shown}, which has no wheels there: pip installs another torch."
    # A driver runs the wheels of each CUDA of its major version.
    older = [one for one in there if one[:4] == index[:4] and one < index]
    newer = [one for one in there if one > index]
    other = min(newer, default=None) if index == _FOR_BLACKWELL else max(older, default=None)
    return f"{text} To keep torch {shown}, write torch=={shown} and {other} in this command." if other else text
