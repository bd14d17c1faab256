"""Which DeepSpeed file does a command of a job script name?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mgpu.snapshot import JobCommand, JobDeepSpeed

# Options with a DeepSpeed file, and whether DeepSpeed itself reads it: the others are those of Trainer and accelerate.
_OPTIONS = {"deepspeed": False, "deepspeed_config": True, "deepspeed_config_file": False}


def deepspeed_files(command: JobCommand, find: Callable[[str], Path | None]) -> Iterator[JobDeepSpeed]:
    """Yield the DeepSpeed files that a training command names; `find`: where such a path is on this machine."""
    if command.launcher is None:
        return
    words = command.words
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        option = name.lstrip("-").replace("-", "_")
        if not name.startswith("--") or option not in _OPTIONS:
            continue
        written = value if equals else "".join(words[place + 1 : place + 2])
        if written.startswith("-") or not written.endswith(".json"):
            continue  # --deepspeed alone is a switch
        found = find(written)
        yield JobDeepSpeed(command.line_of(place), written, str(found) if found else None, _OPTIONS[option])
