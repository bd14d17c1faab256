"""What is shown above, below and after the questions? Lines built from a proposal; pure.

A width of 0 means sentences without columns, for screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.report.screen import Line, Screen, unstyled, wrapped
from mgpu.wizard import panel_lines
from mgpu.wizard.answers import Answers
from mgpu.wizard.decision import Decision
from mgpu.wizard.panel_lines import NARROW, setting_line
from mgpu.wizard.proposal_types import Proposal, Setting, source_of

if TYPE_CHECKING:
    from mgpu.wizard.flow import State


# ---- the start screen


def start_screen(
    proposal: Proposal,
    screen: Screen,
    *,
    path: str,
    exists: bool,
    present: Proposal | None,
    stops: Sequence[str],
    subject: str,
    granted: str = "",
    columns: bool = True,
) -> list[Line]:
    """Return the machine (or other subject of the config), what would stop a launch, and the proposed config."""
    lines = unstyled(wrapped(f"{subject}: {proposal.machine}", screen.width))
    if granted:
        lines += unstyled(wrapped(granted, screen.width))
    if stops:
        number = "1 problem" if len(stops) == 1 else f"{len(stops)} problems"
        warning = f"{number} will stop a launch ({', '.join(stops)}). You can configure anyway. Details: mgpu doctor"
        lines += [[(line, "warn")] for line in wrapped(warning, screen.width)]
    lines.append([])
    if present is not None:
        return [*lines, *_comparison(proposal, present, screen, path, columns)]
    first, second = _widths([(s.label, s.text) for s in proposal.settings], screen)
    rows = [(s.label, s.text, _source_text(s, screen.width - first - second - 2)) for s in proposal.settings]
    rows.append(("file", path if exists else f"{path} (new)", "replaced, with a backup" if exists else "default"))
    head = ("Proposed config", "value", "source")
    return [*lines, *_columns(head, rows, screen, columns), *_failing(proposal, screen)]


def _comparison(proposal: Proposal, present: Proposal, screen: Screen, path: str, columns: bool) -> list[Line]:
    """Return the existing file next to the proposal for this machine."""
    there = {s.label: s.text for s in present.settings if s.origin == "file" or s.label == "nodes"}
    rows = [(s.label, there.get(s.label, "-"), s.text) for s in proposal.settings]
    rows.append(("file", path, "same file, with a backup"))
    lines = _columns(("Config", "now", "proposed"), rows, screen, columns)
    for text in present.problems:
        lines += [[(line, "warn")] for line in wrapped(f"{path} does not fit here: {text}", screen.width, "  ", "    ")]
    return lines


def _columns(
    head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]], screen: Screen, columns: bool
) -> list[Line]:
    if screen.width < NARROW or not columns:
        lines: list[Line] = [[(head[0], "bold")]]
        for label, one, other in rows:
            text = f"{label}: {one}" if head[1] == "value" else f"{label}: {head[1]} {one}; {head[2]} {other}"
            if head[1] == "value" and not columns and not other.startswith("-"):
                text += f", {other}"
            lines += unstyled(wrapped(text, screen.width, "  ", "    "))
        return lines
    first, second = _widths([(label, one) for label, one, _ in rows], screen)
    lines = [[(f"{head[0]:<{first + 2}}{head[1]:<{second}}{head[2]}", "bold")]]
    for label, one, other in rows:
        lines += _row(f"  {label:<{first}}", one, second, other, screen.width)
    return lines


def _widths(rows: Sequence[tuple[str, str]], screen: Screen) -> tuple[int, int]:
    """Return the widths of label and value. Long values wrap to leave room for the third column."""
    first = max(len(label) for label, _ in rows) + 2
    return first, min(max(len(one) for _, one in rows) + 2, max(20, (screen.width - first - 2) // 2))


def _source_text(setting: Setting, room: int) -> str:
    """Return the source of a value, with the reason if it fits on the line; the review shows all of it."""
    for reason in (setting.reason, setting.reason.partition(";")[0]):
        text = f"{source_of(setting)} ({reason})" if reason else source_of(setting)
        if len(text) <= room or room < 20:
            return text
    return source_of(setting)


def _row(label: str, one: str, width: int, other: str, whole: int) -> list[Line]:
    """Return three columns, the second and third wrapped within their own column."""
    left = wrapped(one, width - 2) or [""]
    right = wrapped(other, max(10, whole - len(label) - width)) or [""]
    lines = []
    for number in range(max(len(left), len(right))):
        cells = [label if not number else " " * len(label), left[number] if number < len(left) else ""]
        third = right[number] if number < len(right) else ""
        lines.append(f"{cells[0]}{cells[1]:<{width}}{third}".rstrip())
    return unstyled(lines)


def _failing(proposal: Proposal, screen: Screen) -> list[Line]:
    """Return the problems, except a missing address, which a later question asks for."""
    problems = [text for text in proposal.problems if "--address" not in text]
    return [[(line, "fail")] for text in problems for line in wrapped(f"FAIL {text}", screen.width, "  ", "    ")]


def left_off(draft: State) -> str:
    """Return how many answers a draft contains."""
    number = len(draft.asked)
    return f"{number} answer{'' if number == 1 else 's'} given"


# ---- below a question


def panel(one: Decision, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """Return the consequences of the current answers: the question's own lines, or the review rows it decides."""
    if one.panel:
        return one.panel(one.name, answers, proposal, width)
    rows = (setting for setting in proposal.settings if setting.question in (one.name, one.row or one.name))
    return [*map(setting_line, rows), *panel_lines.problems(one.name, proposal)]


def beside_review(row: str, proposal: Proposal) -> list[str]:
    """Return the lines below the review: the reason for the row under the pointer, or a summary for "Write"."""
    if row in ("quit", "file"):
        return []
    if row != "write":
        return [setting_line(setting) for setting in proposal.settings if setting.question == row]
    asked = [setting.question for setting in proposal.settings]
    # Settings without their own row in the review: nothing to ask, or asked by another row.
    lines = [setting_line(s) for n, s in enumerate(proposal.settings) if s.question is None or s.question in asked[:n]]
    if number := len(proposal.notes):
        lines.append(f"{number} note{'' if number == 1 else 's'} for your script will be printed after writing.")
    return [*lines, "accelerate's own loader checks the config before anything is written."]
