"""Replace the placeholders in the commands of a fix by what this launch knows: its own command line, its script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mgpu.command_line import from_words, shell
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.launch import result_document
from mgpu.launch.request import Request
from mgpu.launchers import line_port
from mgpu.message_names import name_script
from mgpu.secrets_masking import masked_argv

_OPEN = re.compile(r"mgpu launch (?P<options>--.*) \.\.\.")  # "mgpu launch --port auto ..."
_OF_A_LINE = re.compile(r"mgpu launch (?P<options>--\S+(?: [^-\s]\S*)?) (?:\.\.\.|train\.py)")
_OF_THE_LINE = ("--gpus", "--launcher", "--config", "--node-rank")
_ONLY_A_FILE = re.compile(r"(?:--script|-m py_compile) train\.py")  # `-m MODULE` is not possible there


def complete(command: str, request: Request) -> str:
    """Return a command of a fix, ready to paste. Its script is the one that was launched."""
    if not request.target:
        return command
    if request.foreign and (given := _OF_A_LINE.fullmatch(command)):
        return _for_line(given["options"].split(), request, alone=not command.endswith("..."))
    if found := _OPEN.fullmatch(command):
        return result_document.rerun_command(request.target, *found["options"].split())
    words = request.script if request.foreign else (*(["-m"] if request.module else []), *request.target)
    module = words[:1] == ("-m",)
    name = "".join(words[1:2] if module else words[:1])
    target = shell("-m {:text}", name) if module else shell("{:path}", name)
    breaks_quotes = target == "" or (shlex.quote(name) != name and ("'" in command or '"' in command))
    if not name or breaks_quotes or (module and _ONLY_A_FILE.search(command)):
        return command
    return name_script(command, target)


def _for_line(options: Sequence[str], request: Request, *, alone: bool) -> str:
    """Return the command for the user's own launch line; "" if the option would have to change the line.

    `alone`: without the other options of this launch.
    """
    if options[0] == "--port":
        return line_port.command(request.target, options[1])
    if options[0] in _OF_THE_LINE:
        return ""
    if alone:
        return from_words(["mgpu", "launch", *options, "--", *masked_argv(request.target)])
    return result_document.rerun_command(request.target, *options)


def completed(outcomes: Sequence[Outcome], request: Request) -> list[Outcome]:
    """Return the outcomes with complete commands in their fixes."""
    return [with_commands(outcome, lambda command: complete(command, request)) for outcome in outcomes]
