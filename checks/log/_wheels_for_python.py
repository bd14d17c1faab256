"""Does the Python of a log's run have wheels in the index that a fix names? pip finds none there for an old Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Problem
from mgpu.snapshot import Log

_OLD = "old_python"  # a row of setup_facts.py
_MINOR = re.compile(r"(?:/python3\.|\\Python3)(?P<minor>[6-9])[/\\]", re.IGNORECASE)
_INDEX = re.compile(r"download\.pytorch\.org/whl/(?P<index>cu\d{3})\b")
# The first Python 3 with wheels, and the last torch for an older one, with the CUDA of its wheels:
# https://github.com/pytorch/pytorch/blob/main/RELEASE.md and https://download.pytorch.org/whl/torch/
_FIRST = {"cu117": 7, "cu118": 8, "cu121": 8, "cu124": 8, "cu126": 9, "cu128": 9, "cu129": 9, "cu130": 10}
_LAST = {
    6: "1.10.2, with CUDA 11.3",
    7: "1.13.1, with CUDA 11.7",
    8: "2.4.1, with CUDA 12.4",
    9: "2.8.0, with CUDA 12.9",
}


def for_python(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with a word on fixes whose wheels do not exist for the Python that the log shows."""
    log: Log | None = facts.get("log")
    shown = next((one for one in log.shows if one.name == _OLD), None) if log else None
    found = _MINOR.search(shown.text) if shown else None
    if found is None or not any(_INDEX.search(command) for fix in problem.fixes for command in fix.commands):
        return problem
    minor = int(found["minor"])
    fixes = []
    for fix in problem.fixes:
        named = [index["index"] for command in fix.commands if (index := _INDEX.search(command))]
        first = max((_FIRST.get(one, 0) for one in named), default=0)
        word = (
            f" The log shows Python 3.{minor}, and these wheels need 3.{first} or newer: install them in a new "
            f"environment. The last torch for Python 3.{minor} is {_LAST[minor]}."
        )
        fixes.append(replace(fix, text=f"{fix.text}{word}") if first > minor else fix)
    return replace(problem, fix=tuple(fixes))
