"""Which accelerate config does a command of a job script name?"""

from __future__ import annotations

from collections.abc import Iterator

from mgpu.known_launchers import KNOWN
from mgpu.snapshot import JobCommand


def config_of(command: JobCommand) -> str | None:
    """Return the accelerate config passed to a launcher, as written."""
    return next((written for written, _ in configs_of(command)), None)


def configs_of(command: JobCommand) -> Iterator[tuple[str, int]]:
    """Yield the accelerate configs passed to a launcher, as written, each with its line."""
    names = KNOWN[command.launcher].config if command.launcher else ()
    words = command.arguments
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names and (equals or place + 1 < len(words)):
            yield value if equals else words[place + 1], command.line_of(place + 1)
