"""What is the command line of this smoke test, and of the same test with the options that a fix changes?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mgpu.command_line import Command, from_words
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.smoke.request import Request

COMMAND = "mgpu smoke-test"
# The options that decide which ranks run and what they do, in the order of --help.
_OPTIONS = {
    "--config": "config",
    "--gpus": "gpus",
    "--cpu": "cpu",
    "--level": "level",
    "--timeout": "timeout_s",
    "--fill": "fill_percent",
    "--checkpoint-dir": "checkpoint_folder",
    "--node-rank": "node",
}


def own_command(request: Request, changes: Sequence[str] = ()) -> Command:
    """Return the command line of the request. `changes`: options and values that replace its own."""
    changed = dict(zip(changes[::2], changes[1::2], strict=True))
    usual, words = Request(), COMMAND.split()
    for flag, field in _OPTIONS.items():
        value = getattr(request, field)
        if flag in changed:
            words += [flag, changed[flag]]
        elif value != getattr(usual, field):
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return from_words(words)


def completed(outcomes: Sequence[Outcome], request: Request) -> list[Outcome]:
    """Return the outcomes with the request's own options in the smoke tests that their fixes suggest."""
    return [with_commands(outcome, lambda command: _complete(command, request)) for outcome in outcomes]


def _complete(command: str, request: Request) -> str:
    words = shlex.split(command)[2:] if command.startswith(f"{COMMAND} --") else []
    known = len(words) % 2 == 0 and set(words[::2]) <= _OPTIONS.keys()
    return own_command(request, words) if words and known else command
