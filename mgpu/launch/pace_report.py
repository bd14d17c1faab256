"""The pace of each rank, phase by phase: as JSON, as a table, and in the folder of a running run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from mgpu import engine
from mgpu.engine import selections
from mgpu.launch.run_json import PaceOfRun
from mgpu.report.screen import Line, Screen
from mgpu.snapshot import Pace, RankPace, Run, Snapshot, fact_file

NAME = "pace.json"
_LARGEST = 1 << 20
_HOST = "HOST"
_HEADS = ("RANK", _HOST, "STEP", "LOADER", "WAITS", "OPTIMIZER", "REST", "SAVING", "LAST")
_MOST_ROWS = 16


def write(folder: Path, pace: Pace) -> None:
    """Store the pace of a running run."""
    fact_file.write(folder / NAME, asdict(pace))


def read(folder: Path) -> Pace | None:
    """Return the pace of a run; None if there is none, or if it cannot be read."""
    return fact_file.read(folder / NAME, Pace, most=_LARGEST)


def is_uneven(pace: Pace | None) -> bool:
    """Whether a rank keeps the others waiting. Equal ranks are not worth a table."""
    if pace is None:
        return False
    run = Run(0, 0, 0.0, expected=len(pace.ranks), going=True, pace=pace)
    return any(one.problem for one in engine.judge(Snapshot(run=run), selections.RANKS_UNEVEN))


def entry(pace: Pace) -> PaceOfRun:
    """Return the pace as JSON."""
    return {
        "steps": pace.steps,
        "step_s": pace.step_s,
        "waited_share": pace.waited_share,
        "ranks": [
            {
                "rank": one.rank,
                "host": one.host,
                "loader_s": one.loader_s,
                "wait_s": one.wait_s,
                "optimizer_s": one.optimizer_s,
                "rest_s": _rest(pace, one),
                "saving_s": one.saving_s,
                "last_share": one.last_share,
            }
            for one in pace.ranks
        ],
    }


def _rest(pace: Pace, one: RankPace) -> float:
    """Return what is left of a step: forward and backward, and everything that is not measured."""
    return round(max(0.0, pace.step_s - one.loader_s - one.wait_s - one.optimizer_s), 6)


def table(pace: PaceOfRun, screen: Screen) -> list[Line]:
    """Return a row for each rank, those that come last most often first; with its host if there are several."""
    ranks = sorted(pace["ranks"], key=lambda one: -one["last_share"])
    rows = [
        (
            str(one["rank"]),
            one.get("host") or "",
            _ms(pace["step_s"]),
            *(_ms(seconds) for seconds in (one["loader_s"], one["wait_s"], one["optimizer_s"], one["rest_s"])),
            f"{one['saving_s']:.1f} s",
            f"{one['last_share']:.0%}",
        )
        for one in ranks[:_MOST_ROWS]
    ]
    shown = [place for place, head in enumerate(_HEADS) if head != _HOST or any(row[place] for row in rows)]
    cells = [[row[place] for place in shown] for row in (_HEADS, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines: list[Line] = []
    for number, row in enumerate(cells):
        text = "  ".join(map(str.rjust, row, widths))
        lines.append([(text[: screen.width], "" if number else "bold")])
    return lines


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.01 or not seconds else f"{1000 * seconds:.1f} ms"
