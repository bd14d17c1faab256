"""Which options may a project set, and with which values? `[tool.mgpu.COMMAND]` of its pyproject.toml.

Only options that state what the project requires. None of them runs a program, writes a file, or starts a run that
would otherwise be refused, so a cloned repository cannot do so either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mgpu import project_settings
from mgpu.cli.option import Command, Option, Values
from mgpu.errors import USAGE, MgpuError, clip
from mgpu.project_settings import Project
from mgpu.text import did_you_mean

# The flags, by command. Their types and limits are those of the command line.
FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "doctor": (
        "--quick",
        "--skip",
        "--expect-gpus",
        "--expect-free",
        "--nodes",
        "--strict",
        "--redact",
        "--timeout",
        "--verbose",
    ),
    "configure": ("--offline", "--accessible"),
    "smoke-test": ("--level", "--steps", "--timeout", "--stall-timeout", "--start-timeout"),
    "launch": ("--hang-after", "--on-hang", "--timeout", "--nan-check"),
}
_KINDS: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    list: ((str, list), "text or a list of texts"),
}


def of(command: Command, argv: Sequence[str]) -> Values:
    """Return the defaults of a command's options that the project sets. Raises MgpuError (usage).

    A monitor or a prolog (`--exit-style`) judges a node, whichever folder it runs in.
    """
    if any(word.startswith("--exit-style") for word in argv):
        return {}
    project = project_settings.find()
    return {} if project is None else _defaults(project, command)


def _defaults(project: Project, command: Command) -> Values:
    for name, table in project.defaults.items():
        where = project_settings.table_name(project, name)
        if name not in FLAGS:
            raise MgpuError(f"{where}: no such command.{did_you_mean(name, [*FLAGS, 'waive'])}", USAGE)
        if not isinstance(table, dict):
            raise MgpuError(f"{where}: must be a table", USAGE)
    where = project_settings.table_name(project, command.name)
    options = {flag[2:]: option for option in command.options for flag in option.on if flag in FLAGS[command.name]}
    return dict(_read(key, value, options, where) for key, value in project.defaults.get(command.name, {}).items())


def _read(key: str, value: Any, options: Mapping[str, Option], where: str) -> tuple[str, Any]:
    """Return the name and value of an option. Raises MgpuError (usage)."""
    option = options.get(key.replace("_", "-"))
    if option is None:
        raise MgpuError(f"{where}: no option {clip(key)!r}.{did_you_mean(key, options)}", USAGE)
    kinds, text = _KINDS[option.kind]
    right = isinstance(value, kinds) and (isinstance(value, bool) is (option.kind is bool))
    if option.kind is list:
        value = [value] if isinstance(value, str) else value
        right = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if not right:
        raise MgpuError(f"{where}: {key} must be {text}", USAGE)
    if option.kind in (int, float) and option.read(str(value)) is None:
        raise MgpuError(f"{where}: {key} = {clip(str(value))} is out of range", USAGE)
    return option.name, option.kind(value)
