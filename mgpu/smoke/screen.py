"""What does a person see while the ranks climb?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from mgpu import report
from mgpu.launch import command as launching
from mgpu.smoke import watch
from mgpu.smoke.request import Request
from mgpu.smoke.subject import Subject
from mgpu.snapshot import Snapshot, Trial

TITLES = {
    "start": "start processes", "device": "each rank alone", "group": "find each other",
    "collectives": "collectives", "pairs": "pairs", "train": "training steps", "checkpoint": "checkpoint",
    "bandwidth": "bandwidth", "shutdown": "clean shutdown",
}  # fmt: skip


def headline(
    subject: Subject, snapshot: Snapshot, request: Request, doubts: Sequence[str], screen: report.Screen
) -> list[report.Line]:
    """What is about to be tested, and what mgpu adds for it."""
    assert snapshot.driver is not None
    config = subject.config
    cpu = request.cpu is not None or not snapshot.driver.any_gpu
    name = "a made-up config" if str(config.path).startswith(tempfile.gettempdir()) and request.cpu else config.path
    ranks = config.ranks_here or 1
    where = f"{ranks} CPU rank{'s' * (ranks > 1)} (gloo)" if cpu else f"{ranks} GPU{'s' * (ranks > 1)}"
    head = f"Testing {name} on {where}. Stops by itself after {request.limit_s:g} s."
    lines: list[report.Line] = [[(line, "bold")] for line in report.wrapped(head, screen.width)]
    if request.cpu is not None or launching.on_cpu(config, snapshot.driver):
        rehearsal = "Rehearsal: mgpu adds ACCELERATE_USE_CPU=true."
        added = "mgpu adds ACCELERATE_USE_CPU=true: this machine has no NVIDIA GPU."
        lines += report.unstyled(report.wrapped(added if request.cpu is None else rehearsal, screen.width))
    if doubts:
        text = f"The doctor has doubts ({', '.join(doubts)}); the test shows whether they matter."
        lines += [[(line, "warn")] for line in report.wrapped(text, screen.width)]
    return [*lines, []]


class Rungs:
    """A line for each rung that every rank has passed, or one has failed; each is shown once, in order."""

    def __init__(self, screen: report.Screen) -> None:
        self.screen = screen
        self.shown: set[str] = set()

    def __call__(self, view: watch.View, final: bool) -> None:
        """Show what is new; `final`: also where the ranks stand on the rung that was not finished."""
        for number, rung in enumerate(view.orders.rungs, 1):
            status, detail, seconds = view.rung(rung)
            label = f"{number} {TITLES[rung]:<18} "
            if status is None:
                if final and rung == view.reached():
                    self.screen.show(report.row(self.screen, "fail", label, view.where_they_are()))
                return
            if rung not in self.shown:
                self.shown.add(rung)
                took = f" ({seconds:.1f}s)" if seconds is not None else ""
                self.screen.show(report.row(self.screen, status, label, detail + took))
            if status == "fail":
                return


class Trials:
    """A line for each trial of the search for the cause."""

    def __init__(self, screen: report.Screen) -> None:
        self.screen = screen

    def __call__(self, trial: Trial) -> None:
        """Show how it ended."""
        word = {True: "works", False: "fails", None: "open"}[trial.ok]
        self.screen.show([[(f"  {word:<6} {trial.change}", "")]])
