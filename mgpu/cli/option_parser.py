"""A parser for plain command lines without typer, whose import takes longer than a quick doctor.

Anything else (--help, an unknown option, a missing value or one out of range) is left to typer, which has the error
messages. A test compares the two for every option of every command.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mgpu.cli import project_defaults
from mgpu.cli.option import Command, Option, Values
from mgpu.exit_status import COMMANDS
from mgpu.process import training_python

_NO_DEFAULTS: Values = {}


def command_named(name: str) -> Command:
    """Return the command of this name."""
    found = importlib.import_module(f"mgpu.cli.{name.replace('-', '_')}").COMMAND
    assert isinstance(found, Command)
    return found


def read(argv: Sequence[str]) -> tuple[Command, Values] | None:
    """Return the command of a plain line and the value of each of its options; None for any other line."""
    if not argv or argv[0] not in COMMANDS:
        return None
    command = command_named(argv[0])
    if (carried := training_python.carried) and carried.values is not None and list(argv) == sys.argv[1:]:
        return command, _from_json(command, carried.values)
    options = command.quick_options
    values = parse(argv[1:], command, options)
    if values is None and command.all_options:
        options = command.every_option
        values = parse(argv[1:], command, options)
    if values is None:
        return None
    if defaults := project_defaults.of(command, argv):
        values = parse(argv[1:], command, options, defaults)
        assert values is not None
    return command, values


def _from_json(command: Command, values: Mapping[str, Any]) -> Values:
    """Return the values that the Python which mgpu was started with has parsed."""
    return {name: tuple(value) if name == command.words else value for name, value in values.items()}


def parse(
    words: Sequence[str], command: Command, options: Sequence[Option], defaults: Values = _NO_DEFAULTS
) -> Values | None:
    """Parse the arguments after a command's name into the values of its options. None: typer has to parse them."""
    by_flag = {flag: option for option in options for flag in (*option.on, *option.off)}
    values = {option.name: option.initial for option in options} | defaults
    given: set[str] = set()
    if command.line:
        values[command.line] = False
    left, others = list(words), list[str]()
    while left:
        flag, equals, text = left[0].partition("=")
        if left[0] == "--":
            others += left[1:]
            if command.line:
                values[command.line] = True
            break
        if left[0] == "-" or not left[0].startswith("-"):
            count = len(left) if command.starts else 1
            others += left[:count]
            del left[:count]
            continue
        del left[0]
        if not (option := by_flag.get(flag)):
            return None
        if option.kind is bool:
            value = None if equals else flag in option.on
        elif equals:
            value = option.read(text) if flag.startswith("--") else None
        else:
            value = option.read(left.pop(0)) if left else None
        if value is None:
            return None
        before = values[option.name] or () if option.name in given else ()
        given.add(option.name)
        values[option.name] = [*before, value] if option.kind is list else value
    if command.words:
        values[command.words] = tuple(others)
    return values if command.words or not others else None
