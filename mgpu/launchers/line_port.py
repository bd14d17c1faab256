"""The same launch line with another rendezvous port, as a command to paste."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import from_words
from mgpu.known_launchers import Launcher
from mgpu.launchers.foreign_programs import FRAMEWORKS, LAUNCHERS
from mgpu.launchers.option_words import long_name
from mgpu.launchers.port import free_port
from mgpu.readers.job_script import programs
from mgpu.secrets_masking import masked_argv


def command(words: Sequence[str], port: str) -> str:
    """Return the line with this port, or with a free one for "auto"; "" if the line has no place for it."""
    number = str(free_port()) if port == "auto" else port
    start = ["mgpu", "launch", "--"]
    for place in range(len(words)):
        rest = words[place:]
        named = [one for one in FRAMEWORKS if one.framework and programs.base(rest[0]) in one.framework.commands]
        if named:
            variable = named[0].variables.port
            return from_words(["env", f"{variable}={number}", *start, *masked_argv(words)]) if variable else ""
        found = programs.launcher_of(rest)
        if found and found[0] in LAUNCHERS:
            return from_words([*start, *masked_argv([*words[:place], *_with_port(rest, *found, number)])])
        if programs.is_python(rest[0]):
            break
    return ""


def _with_port(words: Sequence[str], launcher: Launcher, last: int, number: str) -> list[str]:
    """Return a launcher's words with the port in place of the one that is given, or as its first option."""
    program = LAUNCHERS[launcher]
    option = program.meaning.port
    script = programs.script_of(launcher, words, last)
    changed = list(words)
    for place in range(last + 1, len(words) if script is None else script):
        name, equals, _ = words[place].partition("=")
        if not name.startswith("--") or long_name(name, program.options) != option:
            continue
        if equals:
            changed[place] = f"{name}={number}"
        else:
            changed[place + 1 : place + 2] = [number]
        return changed
    return [
        *words[: last + 1],
        f"--{option.replace('_', '-') if launcher == 'torchrun' else option}={number}",
        *words[last + 1 :],
    ]
