"""What does `mgpu configure --demo` show? The proposal and the config for a machine shipped with mgpu."""

from __future__ import annotations

from mgpu import errors
from mgpu.command_line import from_words
from mgpu.report import demo, describe
from mgpu.report.screen import Line, Screen, unstyled
from mgpu.wizard import screens, write_config
from mgpu.wizard.answers import Answers
from mgpu.wizard.nodes import Site
from mgpu.wizard.planned_output import Planned
from mgpu.wizard.proposal import propose
from mgpu.wizard.request import Request

_EXAMPLE_SIZE = "8B"
_REGENERATE = "# Regenerate:"  # its command writes a file, which --demo does not


def show(name: str, answers: Answers) -> int:
    """Print what configure detects, proposes and would write. Raises MgpuError if no config is possible."""
    snapshot = demo.read(name)
    request = Request(demo=name, answers=answers, dry_run=True)
    proposal = propose(snapshot, answers, describe.machine(snapshot), Site(named=True))
    write_config.refuse_problems(proposal)
    planned = Planned(request, proposal, request.path, None, machine=snapshot)
    screen = Screen.of()
    lines: list[Line] = demo.banner(name, screen)
    lines += screens.start_screen(
        proposal, screen, path=str(request.path), exists=False, present=None, stops=(), subject="Detected"
    )
    text = [line for line in planned.config_text().splitlines() if not line.startswith(_REGENERATE)]
    lines += [[], *unstyled(text), []]
    screen.show(lines + _next(name, answers, screen))
    return errors.READY


def _next(name: str, answers: Answers, screen: Screen) -> list[Line]:
    sized = "params" in answers.origins or "model" in answers.origins
    more = (
        []
        if sized
        else [f"With a model:     {from_words(['mgpu', 'configure', '--demo', name, '--params', _EXAMPLE_SIZE])}"]
    )
    return unstyled(["Nothing was written.", *more, "On your machine:  mgpu configure"])
