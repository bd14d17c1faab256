"""What does the smoke test show of the user's script?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mgpu.check import Ok, Skip
from mgpu.engine import Outcome, Status
from mgpu.report import live
from mgpu.report import screen as report_screen
from mgpu.report.screen import Line, Screen
from mgpu.smoke import script_speed
from mgpu.snapshot import Rehearsal, RehearsedRank
from mgpu.text import counted, listed, visible

if TYPE_CHECKING:
    from mgpu.smoke.smoke_json import RehearsedRankEntry, SmokeDocument

# The files in checks/rehearsal, in the order of the section, with the label of their row.
_GROUPS = (
    ("course", "optimizer steps"),
    ("ranks", "one training run"),
    ("model", "same model"),
    ("batches", "data"),
    ("losses", "loss"),
    ("output", "files"),
)
_WORST: tuple[Status, ...] = ("crash", "fail", "warn", "info", "ok", "skip")
_WIDTH = 17


class Progress:
    """The optimizer steps so far, on a terminal. A context manager, so that the terminal is always restored."""

    def __init__(self, screen: Screen | None, wanted: int) -> None:
        self._screen, self._wanted = screen, wanted
        self._live = live.Live(screen, time.monotonic) if screen is not None and screen.live else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.paint([])
            self._live.end()

    def __call__(self, steps: int, seconds: float) -> None:
        """Show how far all ranks are."""
        if self._live and self._screen:
            at = "measuring" if steps >= self._wanted else f"step {steps} of {self._wanted}"
            text = f"{at}, {seconds:.0f} s"
            self._live.paint([[], *report_screen.row(self._screen, "run", f"{'your script':<{_WIDTH}} ", text)])


def name(rehearsal: Rehearsal) -> str:
    """Return the name of the script's file, or of its module."""
    return visible(Path(rehearsal.script).name)


def lines(rehearsal: Rehearsal | None, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """Return the section "Your script": a row for each group of checks, the times, and what it wrote."""
    if rehearsal is None:
        return []
    where = counted(rehearsal.expected, "CPU rank" if rehearsal.cpu else "GPU")
    made = f"{rehearsal.steps} of {counted(rehearsal.wanted, 'optimizer step')}"
    head = f"Your script  {name(rehearsal)}: {made} on {where} ({rehearsal.took_s:.1f}s)"
    shown: list[Line] = [[], *screen.paragraph(head, style="bold")]
    for _, label, status, text in groups(outcomes):
        shown += report_screen.row(screen, status, f"{label:<{_WIDTH}} ", text)
    for text in notes(rehearsal):
        shown += screen.paragraph(text, "  ", "    ")
    return shown


def put_back_lines(rehearsal: Rehearsal | None, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """Return what became of the user's files in a rehearsal that was interrupted."""
    if rehearsal is None:
        return []
    found = [one.problem for one in outcomes if "your_files" in one.check.tags and one.problem is not None]
    return [line for one in found for line in screen.paragraph(f"{one.title}. {one.cause}".strip())]


def groups(outcomes: Sequence[Outcome]) -> list[tuple[str, str, Status, str]]:
    """Return each group of checks: its name, label, worst status and a text."""
    found = []
    for group, label in _GROUPS:
        members = [o for o in outcomes if o.check.area == "rehearsal" and _group_of(o) == group]
        if members:
            worst = min(members, key=lambda o: (_WORST.index(o.status), bool(o.because_of)))
            status = "skip" if worst.status == "ok" and _unproved(members) else worst.status
            found.append((group, label, status, _text(worst, members)))
    return found


def _group_of(outcome: Outcome) -> str:
    return outcome.check.function.__module__.rpartition(".")[2]


def _text(worst: Outcome, members: Sequence[Outcome]) -> str:
    """Return the worst problem, else what was proved and what was not."""
    if worst.problem is not None:
        return f"{worst.check.id}: {worst.problem.title}"
    proved = [o.answer.evidence for o in members if isinstance(o.answer, Ok)]
    unproved = list(dict.fromkeys(o.answer.reason for o in members if isinstance(o.answer, Skip)))
    if not proved:
        return f"not proved: {unproved[0]}" if unproved else ""
    missing = [f"not proved: {reason}" for reason in _unproved(members)]
    return "; ".join(dict.fromkeys([*missing, *proved]))


def _unproved(members: Sequence[Outcome]) -> list[str]:
    """Return why checks were skipped that a row must name, although others passed: sharded parameters."""
    named = [o.answer for o in members if "named_if_unproved" in o.check.tags]
    return list(dict.fromkeys(answer.reason for answer in named if isinstance(answer, Skip)))


def notes(rehearsal: Rehearsal) -> list[str]:
    """Return what was measured, and what the rehearsal changed."""
    found = script_speed.lines(rehearsal)
    replaced = next((rank.replaced_backend for rank in rehearsal.ranks if rank.replaced_backend), None)
    if replaced:
        found.append(f"The script requests the backend {replaced}; the CPU ranks used gloo. {replaced} was not tested.")
    if unused := {name for rank in rehearsal.ranks for name in rank.unused}:
        name = listed(sorted(unused))
        found.append(f"Not proved: {name}. The script or its config requests it, but accelerate did not use it here.")
    if rehearsal.cpu:
        found.append("Not proved on CPU ranks: GPU memory and speed, and code that runs on GPUs only.")
    return found


def add_entry(document: SmokeDocument, rehearsal: Rehearsal | None, outcomes: Sequence[Outcome]) -> None:
    """Add the rehearsal to the JSON document, if there was one."""
    if rehearsal is None:
        return
    status: Any = {"crash": "fail"}
    document["rehearsal"] = {
        "script": rehearsal.script,
        "ended": rehearsal.ended,
        "steps": rehearsal.steps,
        "wanted": rehearsal.wanted,
        "seconds": rehearsal.took_s,
        "launcher": rehearsal.launcher,
        "groups": [
            {"name": group, "status": status.get(worst, worst), "detail": text}
            for group, _, worst, text in groups(outcomes)
        ],
        "ranks": [_rank(rank) for rank in rehearsal.ranks],
        "wrote": [f"rank {rank.rank}: {one.path}" for rank in rehearsal.ranks for one in rank.files],
        "put_back": [one.path for one in rehearsal.kept if one.why is None],
        "not_put_back": [one.path for one in rehearsal.kept if one.why and not one.refused],
        "measurement": script_speed.entry(rehearsal.measurement),
        "scaling": script_speed.scaling_entries(rehearsal),
        "log": rehearsal.log,
    }


def _rank(rank: RehearsedRank) -> RehearsedRankEntry:
    watched = [
        s for one in rank.optimizers[:1] for s in one.steps[1:] if s.step_s is not None
    ]  # the first one warms up
    steps: Sequence[Any] = rank.measured.steps if rank.measured else watched

    def middle(steps: Sequence[Any], field: str) -> float | None:
        values = [value for step in steps if (value := getattr(step, field, None)) is not None]
        return round(median(values), 6) if values else None

    seconds = sum(step.step_s or 0.0 for step in steps)
    samples = sum(step.samples or 0 for step in steps)
    return {
        "rank": rank.rank,
        "steps": rank.steps,
        "measured_steps": len(rank.measured.steps) if rank.measured else 0,
        "step_seconds": middle(steps, "step_s"),
        "loader_seconds": middle(steps, "loader_s"),
        "exchange_seconds": middle(steps, "exchange_s"),
        "backward_seconds": middle(watched, "backward_s"),
        "optimizer_seconds": middle(steps, "optimizer_s"),
        "samples_per_s": round(samples / seconds, 3) if samples and seconds else None,
        "peak_host_bytes": rank.host_bytes,
        "peak_allocated_bytes": rank.allocated_bytes,
        "peak_reserved_bytes": rank.reserved_bytes,
    }
