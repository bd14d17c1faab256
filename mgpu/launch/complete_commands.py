"""Replace the placeholders in the commands of a fix by what this launch knows: its own command line, its script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.launch import result_document
from mgpu.launch.request import Request

_OPEN = re.compile(r"mgpu launch (?P<options>--.*) \.\.\.")  # "mgpu launch --port auto ..."
_SCRIPT = re.compile(r"(?<![\w./-])train\.py(?![\w.])")
_ONLY_A_FILE = re.compile(r"(?:--script|-m py_compile) train\.py")  # `-m MODULE` is not possible there


def complete(command: str, request: Request) -> str:
    """Return a command of a fix, ready to paste. Its script is the one that was launched."""
    if not request.target:
        return command
    if found := _OPEN.fullmatch(command):
        return result_document.rerun_command(request.target, *found["options"].split())
    name = request.target[0]
    target = shell("-m {:text}", name) if request.module else shell("{:path}", name)
    breaks_quotes = target == "" or (shlex.quote(name) != name and ("'" in command or '"' in command))
    if breaks_quotes or (request.module and _ONLY_A_FILE.search(command)):
        return command
    return _SCRIPT.sub(lambda _: target, command)


def completed(outcomes: Sequence[Outcome], request: Request) -> list[Outcome]:
    """Return the outcomes with complete commands in their fixes."""
    return [with_commands(outcome, lambda command: complete(command, request)) for outcome in outcomes]
