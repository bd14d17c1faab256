"""In which Python does this command line run?

mgpu with torch in its own Python stays there. Without, it continues in the environment in sight; with `--python`,
launch and smoke-test continue in that interpreter.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from mgpu.cli import option_parser
from mgpu.cli.option import Command, Values
from mgpu.errors import MgpuError, reason
from mgpu.process import training_python
from mgpu.process.training_python import Found


def enter_for_line(argv: Sequence[str]) -> None:
    """Continue in another Python, if the line is bare `mgpu` or a plain line of a command that has one."""
    if not argv:
        _enter(argv, None)
        return
    with contextlib.suppress(MgpuError):  # raised again where it is reported
        if line := option_parser.read(argv):
            enter_for_command(*line)


def start(command: Command, values: Values) -> int:
    """Run a command in its Python, and return the exit code. Raises MgpuError."""
    enter_for_command(command, values)
    return command.start(values)


def enter_for_command(command: Command, values: Values) -> None:
    """Continue in the Python of the line, or if it names none in the environment in sight.

    Raises MgpuError (usage) if it is not a Python interpreter. The doctor and configure examine `--python` from here.
    With --hosts it is the Python of the hosts.
    """
    if given := values.get("python"):
        if command.starts and not values.get("hosts") and "=" not in given:
            _enter_named(given, values)
    elif not (command.stays and command.stays(values)):
        _enter(sys.argv[1:], values)


def _enter_named(given: str, values: Values) -> None:
    from mgpu.doctor.request import interpreter

    path = interpreter(given)
    if not training_python.is_this(path):
        training_python.enter(Found(path, "--python"), sys.argv[1:], values)


def _enter(argv: Sequence[str], values: Values | None) -> None:
    """Continue in the environment in sight, if this Python has no torch. Returns if mgpu stays in this one."""
    decided = training_python.alone or (training_python.carried and training_python.carried.chosen)
    if decided or training_python.has_torch():
        return
    found = training_python.in_sight()
    if found is None:
        return
    training_python.alone = True  # unless this process is replaced
    if not found.path:
        return
    why = training_python.problem(found.path)
    if why is None:
        try:
            training_python.enter(found, argv, values)
        except OSError as error:
            why = reason(error)
    from mgpu import messages

    messages.notice(f"{found.path} ({found.chosen}) is not examined: {why}")
