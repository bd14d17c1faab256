"""What does the terminal show while the stages run?"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from mgpu import messages
from mgpu.command_line import shell
from mgpu.engine import Status, before_start
from mgpu.errors import clip
from mgpu.launchers import argv as launching
from mgpu.probes.gpu_monitor import Gauges, Reading
from mgpu.recorder.inject._mgpu_rehearsed_times import MOST
from mgpu.report import live
from mgpu.report import screen as report_screen
from mgpu.report.screen import Line, Screen
from mgpu.smoke import watch
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.diagnosis import SEARCH_S, TRIAL_S
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.request import Request
from mgpu.snapshot import Snapshot, Trial
from mgpu.text import counted, visible

TITLES = {
    "start": "start processes",
    "device": "local compute",
    "group": "rendezvous",
    "collectives": "collectives",
    "pairs": "rank pairs",
    "train": "training steps",
    "checkpoint": "checkpoint",
    "bandwidth": "bandwidth",
    "shutdown": "clean shutdown",
}
STRATEGIES = {"ddp": "DDP", "fsdp": "FSDP", "deepspeed": "DeepSpeed"}
_MOST_ROWS = 8  # ranks in the table
_GIB = 1 << 30
_WORD = 14  # the narrowest column for a rank's last progress
TITLE_WIDTH = 16
_MOST_VARIABLE = 68  # "mgpu sets " and a variable fit into 80 columns


def headline(
    subject: Subject,
    snapshot: Snapshot,
    request: Request,
    orders: Orders,
    added: Mapping[str, str],
    warnings: Sequence[str],
    screen: Screen,
) -> list[Line]:
    """Return the lines above the stages: what is tested, time and memory, added variables, doctor warnings."""
    here = orders.ranks_here
    where = f"{counted(here, 'CPU rank')} (gloo)" if orders.cpu else counted(here, "GPU")
    if orders.nodes > 1:
        where += f" on this node, {orders.world} on all {orders.nodes}"
    how = STRATEGIES.get(orders.strategy, orders.strategy) if orders.world > 1 else "one process"
    precision = {"no": "fp32"}.get(orders.precision, orders.precision)
    head = f"Testing {subject.name} on {where}: {how}, {precision}."
    lines: list[Line] = screen.paragraph(head, style="bold")
    for text in (
        _cost(request, orders),
        *_of_script(request),
        *subject.notes,
        *_added_variables(subject, snapshot, request, added),
    ):
        lines += screen.paragraph(text)
    for text in [] if orders.cpu else before_start.memory_texts(snapshot):
        lines += screen.paragraph(f"Does not fit: {text}", style="warn")
    if warnings:
        lines += screen.paragraph(_warnings(warnings, subject, screen.width), style="warn")
    return [*lines, []]


def _cost(request: Request, orders: Orders) -> str:
    """Return how long the test may take and how much GPU memory it uses."""
    about = f"Level {orders.level}, limit {request.limit_s:g} s"
    if orders.cpu:
        return f"{about}."
    from mgpu.smoke.ranks.memory import MEMORY_BYTES

    filled = f" + {request.fill_percent} % of the free memory" if request.fill_percent else ""
    return f"{about}, up to {MEMORY_BYTES / _GIB:g} GiB{filled} per GPU."


def _of_script(request: Request) -> Iterator[str]:
    """Yield what happens with the user's own script: it really trains, validates and saves."""
    if request.target:
        name = visible(Path(request.target[0]).name)
        yield (
            f"Then {name} really runs: {request.steps} optimizer steps and up to {MOST} more to measure its speed, "
            "with its own validation and saving. A file of yours that it changes is put back; new files stay."
        )


def _added_variables(subject: Subject, snapshot: Snapshot, request: Request, added: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that mgpu sets, one line each; long values are UUIDs and paths."""
    assert snapshot.driver is not None
    ours = dict(added)
    why = ""
    if request.cpu is not None:
        ours, why = {"ACCELERATE_USE_CPU": "true", **ours}, " (a CPU rehearsal)"
    elif launching.on_cpu(subject.config, snapshot.driver):
        ours, why = {"ACCELERATE_USE_CPU": "true", **ours}, " (this machine has no NVIDIA GPU)"
    for name, value in ours.items():
        yield f"mgpu sets {clip(f'{name}={value}', _MOST_VARIABLE)}{why if name == 'ACCELERATE_USE_CPU' else ''}"


def _warnings(ids: Sequence[str], subject: Subject, width: int) -> str:
    """Return one line with as many ids of doctor checks as fit."""
    doctor = "mgpu doctor" if subject.generated else shell("mgpu doctor -c {:path}", subject.name)
    for count in range(len(ids), 0, -1):
        more = f" and {len(ids) - count} more" if count < len(ids) else ""
        text = f"Warnings  {', '.join(ids[:count])}{more}  (details: {doctor})"
        if len(text) <= width:
            break
    return text


class StageScreen:
    """The progress of the stages: repainted in place on a terminal, elsewhere one line per finished stage.

    A context manager, so that the terminal is always restored.
    """

    def __init__(self, screen: Screen | None, snapshot: Snapshot, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen, self.clock = screen, clock
        self.indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus or () if gpu.uuid}
        self.began = clock()
        self.shown: set[str] = set()
        self.live = live.Live(screen, clock) if screen is not None and screen.live else None
        self.pace = Pace(clock)
        self.gauges = Gauges() if self.live and self.indices else None

    def __enter__(self) -> StageScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.end()
        if self.gauges:
            self.gauges.end()

    def __call__(self, view: watch.View, final: bool) -> None:
        """Show what is new. `final`: also the progress of each rank on the unfinished stage."""
        try:
            self._show(view, final)
        except OSError:  # the terminal was closed
            if not final:
                raise
            self.live = None  # the result must still be judged and saved

    def _show(self, view: watch.View, final: bool) -> None:
        if self.screen is None:
            return
        if self.live is None:
            self._append(view, final, self.screen)
            return
        self.pace.update(view)
        if final or self.live.due:
            screen = Screen.of(self.screen.stream)  # the window may have been resized
            readings = self.gauges.read() if self.gauges else {}
            lines = stage_rows(view, screen, final)
            stopped = not view.interrupted and any(view.stage(name)[0] != "ok" for name in view.orders.rungs)
            if not final or stopped:
                lines += rank_table(view, screen, self.pace, self.indices, readings)
            if not final:
                lines = _fitting([*lines, *_footer(self.clock() - self.began, screen)])
            self.live.paint(lines)
        if final:
            self.live.end()

    def _append(self, view: watch.View, final: bool, screen: Screen) -> None:
        """Print each stage once, in order, as soon as every rank has passed it or one has failed."""
        for stage in view.orders.rungs:
            status, detail, seconds = view.stage(stage)
            if status is None:
                if final and stage == view.reached():
                    screen.show(report_screen.row(screen, *_unfinished_row(view, stage)))
                return
            if stage not in self.shown:
                self.shown.add(stage)
                screen.show(report_screen.row(screen, status, _label(stage), _detail(detail, seconds)))
            if status == "fail":
                return


def _label(stage: str) -> str:
    return f"{STAGES.index(stage) + 1} {TITLES[stage]:<{TITLE_WIDTH}} "


def _unfinished_row(view: watch.View, stage: str) -> tuple[Status, str, str]:
    """Return the row of the stage on which the run ended."""
    if view.interrupted:
        return "skip", _label(stage), "interrupted"
    return "fail", _label(stage), view.positions()


def _detail(detail: str, seconds: float | None) -> str:
    return f"{detail} ({seconds:.1f}s)" if seconds is not None else detail


def stage_rows(view: watch.View, screen: Screen, final: bool) -> list[Line]:
    """Return a row for each stage: its result, its progress, or "waiting"."""
    lines: list[Line] = []
    reached, failed = view.reached(), False
    for stage in view.orders.rungs:
        status, detail, seconds = view.stage(stage)
        label = _label(stage)
        if failed or (status is None and stage != reached):
            text = "not reached" if final else "waiting"
            if screen.narrow:  # a stage that has not started gets one line
                lines.append([(f"{' ' * len(screen.status('wait')[0][0])}{label}{text}", "")])
            else:
                lines += report_screen.row(screen, "wait", label, text)
        elif status is not None:
            failed = status == "fail"
            lines += report_screen.row(screen, status, label, _detail(detail, seconds))
        elif final:
            failed = True
            lines += report_screen.row(screen, *_unfinished_row(view, stage))
        else:
            lines += report_screen.row(screen, "run", label, _progress(view))
    return lines


def _progress(view: watch.View) -> str:
    """Return the progress that all ranks report, or that of the slowest rank if they differ."""
    words = {journal.word for journal in view.journals.values()}
    if len(words) == 1:
        return next(iter(words)) or "starting"
    number, journal = min(view.journals.items(), key=lambda item: item[1].order)
    return f"rank {number}: {journal.word or 'starting'}"


class Pace:
    """The duration of a training step on each rank, measured from the journals."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.first: dict[int, tuple[int, float]] = {}  # rank -> the first observed step, and when
        self.last: dict[int, tuple[int, float]] = {}

    def update(self, view: watch.View) -> None:
        """Record the current step of each rank."""
        for number, journal in view.journals.items():
            step = step_of(journal.word)
            if step is not None and step != self.last.get(number, (None,))[0]:
                if step < self.last.get(number, (0,))[0]:  # another training loop starts
                    self.first.pop(number)
                self.last[number] = (step, self.clock())
                self.first.setdefault(number, self.last[number])

    def step(self, number: int) -> int | None:
        """Return the rank's latest step."""
        return self.last[number][0] if number in self.last else None

    def seconds(self, number: int) -> float | None:
        """Return the seconds per step; None before two steps were seen."""
        if number not in self.last:
            return None
        (last, then), (first, began) = self.last[number], self.first[number]
        return (then - began) / (last - first) if last > first else None


def step_of(word: str | None) -> int | None:
    """Return the number in "step 13 of 20"."""
    found = re.search(r"\bstep (\d+) of \d+", word or "")
    return int(found[1]) if found else None


def rank_table(
    view: watch.View, screen: Screen, pace: Pace, indices: Mapping[str, int], readings: Mapping[str, Reading]
) -> list[Line]:
    """Return a row for each rank, or for the slowest ones if there are many; empty columns are omitted."""
    numbers = sorted(view.journals, key=lambda number: (view.journals[number].order, number))[:_MOST_ROWS]
    columns: dict[str, list[str]] = {"rank": [], "GPU": [], "step": [], "s/step": [], "memory GiB": [], "GPU %": []}
    for number in sorted(numbers):
        uuid = view.journals[number].report.get("gpu_uuid")
        reading = readings.get(uuid or "")
        step, seconds = pace.step(number), pace.seconds(number)
        columns["rank"].append(str(number))
        columns["GPU"].append("" if uuid is None else str(indices.get(uuid, "?")))
        columns["step"].append("" if step is None else str(step))
        columns["s/step"].append("" if seconds is None else f"{seconds:.3f}")
        columns["memory GiB"].append(_memory(reading))
        busy = reading.busy_percent if reading else None
        columns["GPU %"].append("" if busy is None else str(busy))
    shown = {name: cells for name, cells in columns.items() if name == "rank" or any(cells)}
    width = {name: max(len(name), *map(len, cells)) for name, cells in shown.items()}
    for name in ("s/step", "GPU %", "memory GiB", "step", "GPU"):  # dropped in this order on a narrow screen
        if sum(width.values()) + 2 * len(width) + 2 + _WORD > screen.width:
            shown.pop(name, None)
            width.pop(name, None)
    pad = "  " if screen.width >= 60 else ""
    room = max(_WORD, screen.width - sum(width.values()) - 2 * len(width) - len(pad))
    words = [_cut(view.journals[number].word or "starting", room) for number in sorted(numbers)]
    head = pad + "  ".join([*(f"{name:<{width[name]}}" for name in shown), "last progress"])
    lines: list[Line] = [[], [(head, "bold")]]
    for place, word in enumerate(words):
        cells = [f"{shown[name][place]:<{width[name]}}" for name in shown]
        lines.append([(pad + "  ".join([*cells, word]), "")])
    if len(view.journals) > len(numbers):
        more = f"{len(view.journals) - len(numbers)} ranks further ahead are not shown"
        lines += screen.paragraph(more, pad, pad)
    return lines


def _memory(reading: Reading | None) -> str:
    if reading is None or reading.used_bytes is None:
        return ""
    total = f" / {reading.total_bytes / _GIB:.0f}" if reading.total_bytes else ""
    return f"{reading.used_bytes / _GIB:.1f}{total}"


def _cut(text: str, width: int) -> str:
    text = messages.clean(text).splitlines()[0] if text else ""
    return clip(text, width)


def _footer(elapsed: float, screen: Screen) -> list[Line]:
    return [[], [(_cut(f"elapsed {elapsed:.1f} s   Ctrl-C stops the test", screen.width), "")]]


def _fitting(lines: list[Line]) -> list[Line]:
    """Drop the top lines if the window is too low: current progress is at the bottom."""
    height = shutil.get_terminal_size((80, 24)).lines - 1
    return lines if len(lines) <= height else lines[-height:]


class Trials:
    """Prints a line for each trial of the search for the cause."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.begun = False

    def __call__(self, trial: Trial) -> None:
        """Print the result of a trial."""
        if not self.begun:
            self.begun = True
            text = f"Searching for the cause, one change at a time ({TRIAL_S:g} s each, {SEARCH_S:g} s in total)"
            head: list[Line] = self.screen.paragraph(text, style="bold")
            self.screen.show([[], *head])
        self.screen.show(trial_lines(trial, self.screen))


def trial_lines(trial: Trial, screen: Screen) -> list[Line]:
    """Return the result of one trial, with the bandwidth if the change works."""
    word = {True: "works", False: "fails", None: "unknown"}[trial.ok]
    price = f"  ({trial.busbw_gb_per_s:.3g} GB/s bus bandwidth)" if trial.busbw_gb_per_s is not None else ""
    why = f": {trial.detail}" if trial.ok is None and trial.detail else ""
    text = f"{trial.change}{price}{why}"
    return screen.paragraph(text, f"  {word:<7} ", " " * 10)
