"""What do findings look like? Those of the machines of `mgpu doctor --demo`, as the terminal shows them."""

from __future__ import annotations

import io
import re
from functools import cache

from mgpu import engine
from mgpu.engine import selections
from mgpu.report import demo, findings
from mgpu.report.screen import WIDTH_PLAIN, Screen

_HEAD = re.compile(r"^--- \d+ of \d+  (\w+) .*\n", re.MULTILINE)


@cache
def examples() -> dict[str, tuple[str, str]]:
    """Return, by the ID of a check, a command that shows one of its findings, and that finding."""
    found: dict[str, tuple[str, str]] = {}
    for machine in demo.DEMOS:
        outcomes = engine.judge(demo.read(machine.name), selections.DOCTOR)
        command = f"mgpu doctor --demo {machine.name}"
        buffer = io.StringIO()
        screen = Screen(WIDTH_PLAIN, False, False, buffer)
        screen.show(findings.problems(outcomes, screen, command=command, show_all=True, verbose=False))
        _, *parts = _HEAD.split(buffer.getvalue())
        for check_id, text in zip(parts[::2], parts[1::2], strict=True):
            found.setdefault(check_id, (command, text.rstrip()))
    return found
