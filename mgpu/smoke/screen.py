"""What does a person see while the ranks climb?"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from mgpu import messages
from mgpu.engine import Status
from mgpu.errors import clipped
from mgpu.launchers import argv as launching
from mgpu.probes.gpu_monitor import Gauges, Reading
from mgpu.report import live
from mgpu.report import screen as report_screen
from mgpu.report.screen import Line, Screen
from mgpu.smoke import watch
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.diagnosis import SEARCH_S, TRIAL_S
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.request import ABOUT, Request
from mgpu.snapshot import Snapshot, Trial
from mgpu.text import counted

TITLES = {
    "start": "start processes",
    "device": "each rank alone",
    "group": "find each other",
    "collectives": "collectives",
    "pairs": "pairs",
    "train": "training steps",
    "checkpoint": "checkpoint",
    "bandwidth": "bandwidth",
    "shutdown": "clean shutdown",
}
STRATEGIES = {"ddp": "DDP", "fsdp": "FSDP", "deepspeed": "DeepSpeed"}
_MOST_ROWS = 8  # ranks in the table
_GIB = 1 << 30
_WORD = 14  # the narrowest column for a rank's last word
_TITLE = 18


def headline(
    subject: Subject,
    snapshot: Snapshot,
    request: Request,
    orders: Orders,
    added: Mapping[str, str],
    doubts: Sequence[str],
    screen: Screen,
) -> list[Line]:
    """What is about to be tested, what it takes, and what mgpu adds to the environment for it."""
    here = orders.world // orders.nodes
    where = f"{counted(here, 'CPU rank')} (gloo)" if orders.cpu else counted(here, "GPU")
    if orders.nodes > 1:
        where += f" of this machine, {orders.world} on all {orders.nodes}"
    how = STRATEGIES.get(orders.strategy, orders.strategy) if orders.world > 1 else "one process"
    precision = {"no": "fp32"}.get(orders.precision, orders.precision)
    head = f"Testing {subject.name} on {where}: {how}, {precision}."
    lines: list[Line] = screen.paragraph(head, style="bold")
    texts = [f"{_takes(request, orders)} Stops by itself after {request.limit_s:g} s.", *subject.notes]
    if (text := _adds(subject, snapshot, request, added)) is not None:
        texts.append(text)
    for text in texts:
        lines += screen.paragraph(text)
    if doubts:
        text = f"The doctor has doubts ({', '.join(doubts)}); the test shows whether they matter."
        lines += screen.paragraph(text, style="warn")
    return [*lines, []]


def _takes(request: Request, orders: Orders) -> str:
    """Time and memory."""
    about = f"Takes about {ABOUT[orders.level]}"
    if orders.cpu:
        return f"{about} (level {orders.level})."
    from mgpu.smoke.ranks.memory import MEMORY_BYTES

    held = f" and {request.fill_percent} % of what is free" if request.fill_percent else ""
    return f"{about} (level {orders.level}) and up to {MEMORY_BYTES / _GIB:g} GiB{held} of each GPU's memory."


def _adds(subject: Subject, snapshot: Snapshot, request: Request, added: Mapping[str, str]) -> str | None:
    """Variables, by name and value; long values are UUIDs and files."""
    assert snapshot.driver is not None
    ours = dict(added)
    why = ""
    if request.cpu is not None:
        ours, why = {"ACCELERATE_USE_CPU": "true", **ours}, " (a rehearsal)"
    elif launching.on_cpu(subject.config, snapshot.driver):
        ours, why = {"ACCELERATE_USE_CPU": "true", **ours}, " (this machine has no NVIDIA GPU)"
    if not ours:
        return None
    shown = [f"{name}={clipped(value, 60)}" for name, value in ours.items()]
    return f"mgpu adds {' '.join(shown)}{why}."


class Rungs:
    """The rungs as they are climbed: painted again in place on a terminal, elsewhere a line for each that is finished.

    Used with `with`, so that the terminal is always left as it was.
    """

    def __init__(self, screen: Screen | None, snapshot: Snapshot, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen, self.clock = screen, clock
        self.indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus or () if gpu.uuid}
        self.began = clock()
        self.shown: set[str] = set()
        self.live = live.Live(screen, clock) if screen is not None and screen.live else None
        self.pace = Pace(clock)
        self.gauges = Gauges() if self.live and self.indices else None

    def __enter__(self) -> Rungs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.end()
        if self.gauges:
            self.gauges.end()

    def __call__(self, view: watch.View, final: bool) -> None:
        """Show what is new; `final`: also where the ranks stand on the rung that was not finished."""
        try:
            self._show(view, final)
        except OSError:  # the terminal is gone
            if not final:
                raise
            self.live = None  # the verdict is still to be judged and kept

    def _show(self, view: watch.View, final: bool) -> None:
        if self.screen is None:
            return
        if self.live is None:
            self._tell(view, final, self.screen)
            return
        self.pace.see(view)
        if final or self.live.due:
            screen = Screen.of(self.screen.stream)  # the window may have been resized
            readings = self.gauges.read() if self.gauges else {}
            lines = rungs(view, screen, final)
            if not final or any(view.rung(rung)[0] != "ok" for rung in view.orders.rungs):
                lines += table(view, screen, self.pace, self.indices, readings)
            if not final:
                lines = _fitting([*lines, *_footer(self.clock() - self.began, screen)])
            self.live.paint(lines)
        if final:
            self.live.end()

    def _tell(self, view: watch.View, final: bool, screen: Screen) -> None:
        """Each rung once, in order, when every rank has passed it, or one has failed."""
        for rung in view.orders.rungs:
            status, detail, seconds = view.rung(rung)
            if status is None:
                if final and rung == view.reached():
                    screen.show(report_screen.row(screen, *_unfinished(view, rung)))
                return
            if rung not in self.shown:
                self.shown.add(rung)
                screen.show(report_screen.row(screen, status, _label(rung), _detail(detail, seconds)))
            if status == "fail":
                return


def _label(rung: str) -> str:
    return f"{RUNGS.index(rung) + 1} {TITLES[rung]:<{_TITLE}} "


def _unfinished(view: watch.View, rung: str) -> tuple[Status, str, str]:
    """The row of the rung on which the run ended."""
    if view.interrupted:
        return "skip", _label(rung), "interrupted"
    return "fail", _label(rung), view.where_they_are()


def _detail(detail: str, seconds: float | None) -> str:
    return f"{detail} ({seconds:.1f}s)" if seconds is not None else detail


def rungs(view: watch.View, screen: Screen, final: bool) -> list[Line]:
    """A row for each rung: how it went, what the ranks do on it, or that it waits."""
    lines: list[Line] = []
    reached, failed = view.reached(), False
    for rung in view.orders.rungs:
        status, detail, seconds = view.rung(rung)
        label = _label(rung)
        if failed or (status is None and rung != reached):
            text = "not reached" if final else "waiting"
            if screen.narrow:  # a line is enough for what has not begun
                lines.append([(f"{' ' * len(screen.status('wait')[0][0])}{label}{text}", "")])
            else:
                lines += report_screen.row(screen, "wait", label, text)
        elif status is not None:
            failed = status == "fail"
            lines += report_screen.row(screen, status, label, _detail(detail, seconds))
        elif final:
            failed = True
            lines += report_screen.row(screen, *_unfinished(view, rung))
        else:
            lines += report_screen.row(screen, "run", label, _doing(view))
    return lines


def _doing(view: watch.View) -> str:
    """What the ranks do: one word when it is the same for all, else that of the one furthest behind."""
    words = {journal.word for journal in view.journals.values()}
    if len(words) == 1:
        return next(iter(words)) or "starting"
    number, journal = min(view.journals.items(), key=lambda item: item[1].order)
    return f"rank {number}: {journal.word or 'starting'}"


class Pace:
    """How long a training step takes on each rank, as seen from outside."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.first: dict[int, tuple[int, float]] = {}  # rank -> the first step it was seen at, and when
        self.last: dict[int, tuple[int, float]] = {}

    def see(self, view: watch.View) -> None:
        """Take in where the ranks are."""
        for number, journal in view.journals.items():
            step = step_of(journal.word)
            if step is not None and step != self.last.get(number, (None,))[0]:
                if step < self.last.get(number, (0,))[0]:  # the next kind of training begins
                    self.first.pop(number)
                self.last[number] = (step, self.clock())
                self.first.setdefault(number, self.last[number])

    def step(self, number: int) -> int | None:
        """The step the rank was seen at last."""
        return self.last[number][0] if number in self.last else None

    def seconds(self, number: int) -> float | None:
        """Of one step; None as long as fewer than two were seen."""
        if number not in self.last:
            return None
        (last, then), (first, began) = self.last[number], self.first[number]
        return (then - began) / (last - first) if last > first else None


def step_of(word: str | None) -> int | None:
    """The number in "step 13 of 20"."""
    found = re.search(r"\bstep (\d+) of \d+", word or "")
    return int(found[1]) if found else None


def table(
    view: watch.View, screen: Screen, pace: Pace, indices: Mapping[str, int], readings: Mapping[str, Reading]
) -> list[Line]:
    """A row for each rank, of many for those furthest behind; columns of which nothing is known are left out."""
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
    for name in ("s/step", "GPU %", "memory GiB", "step", "GPU"):  # what a narrow screen does without first
        if sum(width.values()) + 2 * len(width) + 2 + _WORD > screen.width:
            shown.pop(name, None)
            width.pop(name, None)
    pad = "  " if screen.width >= 60 else ""
    room = max(_WORD, screen.width - sum(width.values()) - 2 * len(width) - len(pad))
    words = [_cut(view.journals[number].word or "starting", room) for number in sorted(numbers)]
    head = pad + "  ".join([*(f"{name:<{width[name]}}" for name in shown), "last word"])
    lines: list[Line] = [[], [(head, "bold")]]
    for place, word in enumerate(words):
        cells = [f"{shown[name][place]:<{width[name]}}" for name in shown]
        lines.append([(pad + "  ".join([*cells, word]), "")])
    if len(view.journals) > len(numbers):
        more = f"{len(view.journals) - len(numbers)} more ranks are further"
        lines += screen.paragraph(more, pad, pad)
    return lines


def _memory(reading: Reading | None) -> str:
    if reading is None or reading.used_bytes is None:
        return ""
    total = f" / {reading.total_bytes / _GIB:.0f}" if reading.total_bytes else ""
    return f"{reading.used_bytes / _GIB:.1f}{total}"


def _cut(text: str, width: int) -> str:
    text = messages.clean(text).splitlines()[0] if text else ""
    return clipped(text, width)


def _footer(elapsed: float, screen: Screen) -> list[Line]:
    text = f"elapsed {elapsed:.1f} s   Ctrl-C stops (processes are cleaned up)"
    if len(text) > screen.width:
        text = f"elapsed {elapsed:.1f} s   Ctrl-C stops"
    return [[], [(text, "")]]


def _fitting(lines: list[Line]) -> list[Line]:
    """The picture without its upper lines, where the window is too low for all: what happens now is further down."""
    height = shutil.get_terminal_size((80, 24)).lines - 1
    return lines if len(lines) <= height else lines[-height:]


class Trials:
    """A line for each trial of the search for the cause."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.begun = False

    def __call__(self, trial: Trial) -> None:
        """Show how it ended."""
        if not self.begun:
            self.begun = True
            limits = f"each try at most {TRIAL_S:g} s, all of them {SEARCH_S:g} s"
            text = f"Looking for the cause: the failed rung again, one change at a time ({limits})"
            head: list[Line] = self.screen.paragraph(text, style="bold")
            self.screen.show([[], *head])
        self.screen.show(trial_lines(trial, self.screen))


def trial_lines(trial: Trial, screen: Screen) -> list[Line]:
    """How one trial ended, and what it costs where it works."""
    word = {True: "works", False: "fails", None: "open"}[trial.ok]
    price = f"  ({trial.busbw_gb_per_s:.3g} GB/s bus bandwidth)" if trial.busbw_gb_per_s is not None else ""
    why = f": {trial.detail}" if trial.ok is None and trial.detail else ""
    text = f"{trial.change}{price}{why}"
    return screen.paragraph(text, f"  {word:<6} ", " " * 9)
