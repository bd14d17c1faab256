"""What stands above, below and after the questions? Lines made of a proposal; pure.

A width of 0 asks for sentences without columns, for those who listen to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.report.screen import Line, Screen, unstyled, wrapped
from mgpu.wizard.answers import Answers
from mgpu.wizard.decision import Decision
from mgpu.wizard.panel_lines import NARROW, problems, setting_line
from mgpu.wizard.proposal_types import Proposal, Setting

if TYPE_CHECKING:
    from mgpu.wizard.flow import State


# ---- screen A


def found(
    proposal: Proposal,
    screen: Screen,
    *,
    path: str,
    exists: bool,
    present: Proposal | None,
    stops: Sequence[str],
    looked: str,
    granted: str = "",
    columns: bool = True,
) -> list[Line]:
    """What this machine is, what stands in the way of a launch, and what would be written."""
    lines = unstyled(wrapped(f"{looked}: {proposal.machine}", screen.width))
    if granted:
        lines += unstyled(wrapped(granted, screen.width))
    if stops:
        number = "1 problem" if len(stops) == 1 else f"{len(stops)} problems"
        told = f"{number} will stop a launch ({', '.join(stops)}); you can configure anyway. mgpu doctor says more."
        lines += [[(line, "warn")] for line in wrapped(told, screen.width)]
    lines.append([])
    if present is not None:
        return [*lines, *_compared(proposal, present, screen, path, columns)]
    first, second = _widths([(s.label, s.text) for s in proposal.settings], screen)
    rows = [(s.label, s.text, _why(s, screen.width - first - second - 2)) for s in proposal.settings]
    rows.append(("file", path if exists else f"{path} (new)", "is replaced; a backup is kept" if exists else "rule"))
    head = ("Proposed config", "value", "from")
    return [*lines, *_columns(head, rows, screen, columns), *_failing(proposal, screen)]


def _compared(proposal: Proposal, present: Proposal, screen: Screen, path: str, columns: bool) -> list[Line]:
    """The file that is there beside what would be proposed for this machine."""
    there = {s.label: s.text for s in present.settings if s.origin == "file" or s.label == "machines"}
    rows = [(s.label, there.get(s.label, "-"), s.text) for s in proposal.settings]
    rows.append(("file", path, "the same, a backup is kept"))
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
                text += f", from {other}"
            lines += unstyled(wrapped(text, screen.width, "  ", "    "))
        return lines
    first, second = _widths([(label, one) for label, one, _ in rows], screen)
    lines = [[(f"{head[0]:<{first + 2}}{head[1]:<{second}}{head[2]}", "bold")]]
    for label, one, other in rows:
        lines += _row(f"  {label:<{first}}", one, second, other, screen.width)
    return lines


def _widths(rows: Sequence[tuple[str, str]], screen: Screen) -> tuple[int, int]:
    """How wide the label and the value are; long values wrap, so that the third column has room."""
    first = max(len(label) for label, _ in rows) + 2
    return first, min(max(len(one) for _, one in rows) + 2, max(20, (screen.width - first - 2) // 2))


def _why(setting: Setting, room: int) -> str:
    """Where a value comes from, and the reason where it fits on the line; the review has it whole."""
    for reason in (setting.reason, setting.reason.partition(";")[0]):
        told = f"{setting.origin} ({reason})" if reason else setting.origin
        if len(told) <= room or room < 20:
            return told
    return setting.origin


def _row(label: str, one: str, width: int, other: str, whole: int) -> list[Line]:
    """Three columns, the second and the third each wrapped under itself."""
    left = wrapped(one, width - 2) or [""]
    right = wrapped(other, max(10, whole - len(label) - width)) or [""]
    lines = []
    for number in range(max(len(left), len(right))):
        cells = [label if not number else " " * len(label), left[number] if number < len(left) else ""]
        third = right[number] if number < len(right) else ""
        lines.append(f"{cells[0]}{cells[1]:<{width}}{third}".rstrip())
    return unstyled(lines)


def _failing(proposal: Proposal, screen: Screen) -> list[Line]:
    """What fails, but for an address that is still to be asked: its row says so."""
    told = [text for text in proposal.problems if "--address" not in text]
    return [[(line, "fail")] for text in told for line in wrapped(f"FAIL {text}", screen.width, "  ", "    ")]


def left_off(draft: State) -> str:
    """How far a draft came."""
    number = len(draft.asked)
    return f"{number} answer{'' if number == 1 else 's'} given"


# ---- below a question


def panel(one: Decision, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """What follows from the answers so far: the question's own lines, or the rows of the review it decides."""
    if one.panel:
        return one.panel(one.name, answers, proposal, width)
    rows = (setting for setting in proposal.settings if setting.question in (one.name, one.row or one.name))
    return [*map(setting_line, rows), *problems(one.name, proposal)]


def beside_review(row: str, proposal: Proposal) -> list[str]:
    """Below the review: why the row under the pointer is as it is, and what the whole comes to."""
    if row in ("quit", "file"):
        return []
    if row != "write":
        return [setting_line(setting) for setting in proposal.settings if setting.question == row]
    asked = [setting.question for setting in proposal.settings]
    # What has no row of its own in the review: nothing to ask, or asked by another row.
    lines = [setting_line(s) for n, s in enumerate(proposal.settings) if s.question is None or s.question in asked[:n]]
    if number := len(proposal.notes):
        lines.append(f"{number} note{'' if number == 1 else 's'} for your script will be told with the file.")
    return [*lines, "accelerate's own loader is asked before anything is written."]
