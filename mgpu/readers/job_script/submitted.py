"""Which job scripts does a script submit with sbatch? They run as jobs of their own, and are not read with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mgpu.readers.job_script.directives import words_of_option
from mgpu.readers.job_script.programs import base
from mgpu.snapshot import JobCommand


def submitted_scripts(
    commands: Sequence[JobCommand], path: Path, find: Callable[[str], Path | None]
) -> Iterator[tuple[str, bool]]:
    """Yield the scripts after sbatch, but not `path` itself, and whether each is here.

    A script that is here (`find`) is named by its place, another one as it is written.
    """
    for command in commands:
        written = _script(command.words) if base(command.words[0]) == "sbatch" else ""
        if written and not written.startswith(("$0", "${0")):
            found = find(written)
            if found is None or os.path.abspath(found) != os.path.abspath(path):
                yield str(found or written), found is not None


def _script(words: Sequence[str]) -> str:
    """Return the script of an sbatch line; "" with --wrap, and if it comes from standard input."""
    place = 1
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            return word
        if word.startswith("--wrap"):
            return ""
        place += words_of_option(word, words[place + 1] if place + 1 < len(words) else None)
    return ""
