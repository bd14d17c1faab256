"""What the ranks of a run without progress do, and why: as JSON and on the screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from mgpu import quantities
from mgpu.engine import Outcome
from mgpu.errors import clip
from mgpu.hangs import hang_watch
from mgpu.launch.run_json import HangOfRun, RankOfHang
from mgpu.report import screen as report_screen
from mgpu.report.document import check_json
from mgpu.report.screen import Line, Screen
from mgpu.snapshot import Hang, HangRank

_HEADS = ("RANKS", "HOST", "STATE", "STEPS", "LAST", "OPEN COLLECTIVE", "LINE")
_WIDEST = 60  # columns of a cell
_LONGEST = 200  # characters of a line of code
_LEAST = 20  # columns of the last column, below which it is under its row


def first_finding(hang: Hang) -> Outcome | None:
    """Return what a run without progress is stopped by: an error first, then information; None if it is not known."""
    found = hang_watch.findings(hang)
    return next((one for one in found if one.status == "fail"), found[0] if found else None)


def one_line(hang: Hang | None) -> str:
    """Return "no progress for 42 s: rank 1 sleeps at train.py:31  [hang_rank_sleeps]"; "" if there is no finding."""
    found = first_finding(hang) if hang is not None else None
    if hang is None or found is None or found.problem is None:
        return ""
    return f"no progress for {quantities.duration_text(hang.quiet_s)}: {found.problem.title}  [{found.check.id}]"


def entry(hang: Hang, *, stopped: bool = False) -> HangOfRun:
    """Return the hang as JSON; `stopped`: mgpu stopped the run because of it."""
    outcome = first_finding(hang)
    problem = outcome.problem if outcome else None
    read = dict(problem.evidence) if problem else {}
    rank, kind, at, inside = (read.get(name) for name in ("rank", "kind", "at", "collective"))
    return {
        "quiet_s": hang.quiet_s,
        "finding": check_json(outcome) if outcome else None,
        "id": outcome.check.id if outcome else None,
        "rank": rank if isinstance(rank, int) else None,
        "kind": str(kind) if kind else None,
        "at": str(at) if at else None,
        "collective": str(inside) if inside else None,
        "ranks": [_rank_entry(one) for one in hang.ranks],
        "stopped": stopped,
    }


def _rank_entry(rank: HangRank) -> RankOfHang:
    own, inside = rank.own_frame, rank.pending
    return {
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.pid,
        "state": rank.state or "ended",
        "busy": rank.busy,
        "at": own.place if own else None,
        "line": own.text if own else None,
        "collective": inside.title if inside else None,
        "waits_for": rank.waits_for or rank.kernel_wait,
        "steps": rank.steps,
        "step_s": rank.step_s,
        "silent": rank.silent,
    }


def table(hang: Hang, screen: Screen) -> list[Line]:
    """Return the ranks, those that do the same in one row."""
    groups: dict[tuple[str, str, str, str], list[HangRank]] = {}
    for rank in hang.ranks:
        groups.setdefault((rank.host or "", _state(rank), _collective(rank), _line(rank)), []).append(rank)
    rows = [
        (spans(rank.rank for rank in ranks), host, state, _range(ranks), _since(ranks), inside, line)
        for (host, state, inside, line), ranks in sorted(groups.items(), key=lambda group: group[1][0].rank)
    ]
    on_hosts = any(host for host, *_ in groups)
    shown = [place for place in range(len(_HEADS)) if on_hosts or place != _HEADS.index("HOST")]
    cells = [[row[place] for place in shown] for row in (_HEADS, *rows)] if rows else []
    if any(len(text) > screen.width for text in _padded(cells)):  # the line matters more than the size
        cells = [[*row[:-2], row[-2].partition(" of ")[0], row[-1]] for row in cells]
    return [[(text, "" if number else "bold")] for number, text in _fitted(cells, screen.width)]


def _fitted(cells: Sequence[Sequence[str]], width: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each row and its lines; the last column is wrapped, or is below the row if it is narrow."""
    kept = max(map(len, cells), default=1) - 1
    while kept > 2 and max(map(len, _padded([row[:kept] for row in cells]))) > width:
        kept -= 1  # no part of a column
    before = [text[:width] for text in _padded([row[:kept] for row in cells])]
    used = max(map(len, before), default=0) + 2
    least = min(_LEAST, max((len(row[-1]) for row in cells), default=0))
    for number, row in enumerate(cells):
        if not number or used + least <= width:
            first, *more = _wrapped(row[-1], width - used) if number else [row[-1]]
            yield number, f"{before[number]:<{used}}{first}".rstrip() if used + len(first) <= width else before[number]
            under = used
        else:
            yield number, before[number]
            more, under = _wrapped(row[-1], width - 2), 2
        yield from ((number, " " * under + text) for text in more)


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap a line of code; a word that is longer than a line goes on in the next."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _padded(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _state(rank: HangRank) -> str:
    state = rank.state or "ended"
    if rank.silent and rank.state is not None and rank.silent != f"it is {state}":
        return f"{state}, {rank.silent}"
    return f"{state}, no CPU" if rank.busy is False and rank.state == "sleeping" else state


def _line(rank: HangRank) -> str:
    own = rank.own_frame
    if own is not None:
        return clip(f"{own.place}  {own.text}".strip(), _LONGEST)
    return (rank.waits_for or (f"kernel: {rank.kernel_wait}" if rank.kernel_wait else "") or "unknown")[:_WIDEST]


def _collective(rank: HangRank) -> str:
    inside = rank.pending
    if inside is not None:
        return inside.title[:_WIDEST]
    return "none" if rank.collectives else "unknown"


def _range(ranks: Sequence[HangRank]) -> str:
    known = sorted({rank.steps for rank in ranks if rank.steps is not None})
    return "" if not known else str(known[0]) if len(known) == 1 else f"{known[0]}-{known[-1]}"


def _since(ranks: Sequence[HangRank]) -> str:
    known = [rank.step_s for rank in ranks if rank.step_s is not None]
    return quantities.duration_text(min(known)) if known else ""


def spans(numbers: Iterable[int]) -> str:
    """Return "0-2,5" for 0, 1, 2 and 5."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def finding_lines(outcome: Outcome, screen: Screen) -> list[Line]:
    """Return a finding: what, why, and the fix."""
    from mgpu.report import findings

    problem = outcome.problem
    assert problem is not None
    style: report_screen.Style = "fail" if outcome.status == "fail" else "bold"
    lines = screen.paragraph(f"{problem.title[:1].upper()}{problem.title[1:]}", style=style)
    lines += findings.details(problem, screen)
    return [*lines, *report_screen.labelled("Explain", f"mgpu doctor --explain {outcome.check.id}", screen, whole=True)]
