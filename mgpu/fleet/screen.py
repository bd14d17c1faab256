"""What does a person see of a pre-flight: while it runs, and at its end?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mgpu import engine, exit_status, hostlist, messages
from mgpu.command_line import shell
from mgpu.fleet.artifacts import FAILING, TESTS
from mgpu.fleet.groups import Group
from mgpu.fleet.stages import Bad, Stage
from mgpu.report import findings
from mgpu.report import screen as report_screen
from mgpu.report.screen import Line, Screen, headed, labelled, unstyled
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

TITLES = {
    "examine": "examine",
    "network": "reach each other",
    "compare": "compare",
    "alone": "train alone",
    "pairs": "train in pairs",
    "together": "train together",
}
_TITLE = 18
_MOST_NAMES = 6  # nodes that are waited for, by name
_MOST_BAD = 30  # reasons with their nodes; the file has all


@dataclass(frozen=True)
class Result:
    """A pre-flight, judged."""

    job: str
    of_job: tuple[str, ...]
    need: int
    what: str  # the config and the ranks of a node, in words
    stages: tuple[Stage, ...]
    outcomes: tuple[engine.Outcome, ...]
    good: tuple[str, ...]
    bad: tuple[Bad, ...]
    chosen: tuple[str, ...]
    trouble: str
    verdict: str
    code: int
    seconds: float
    folder: str
    unasked: tuple[str, ...] = field(default=())  # checks that could not be asked: why

    @property
    def in_common(self) -> bool:
        """Whether all nodes of the job are bad, each by itself and for the same reason: other nodes are no better."""
        alone = all(bad.stage in ("examine", "alone") for bad in self.bad)
        reasons = {bad.id or bad.reason for bad in self.bad}
        return alone and len(self.bad) == len(self.of_job) > 1 == len(reasons)

    @property
    def exclude(self) -> str:
        """For sbatch: --exclude=n[3,7]."""
        if not self.bad or self.in_common:
            return ""
        return shell("--exclude={:nodes}", hostlist.fold(bad.node for bad in self.bad))


def to_stderr(text: str) -> None:
    """A line, where somebody reads it: that nobody does ends nothing."""
    if sys.stderr is not None:
        try:
            print(f"mgpu: {messages.message(text)}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            exit_status.drop(2)


class Progress:
    """Words on stderr while it runs: a line for each thing that is new, in a batch job's log as on a terminal."""

    def __init__(self) -> None:
        self._last = ""

    def say(self, text: str) -> None:
        """One line."""
        if text != self._last:
            self._last = text
            to_stderr(text)

    def asked(self, answered: int, asked: int, waiting: Sequence[str]) -> None:
        """How many have answered."""
        if waiting:
            few = len(waiting) <= _MOST_NAMES
            names = ", ".join(waiting) if few else f"{', '.join(waiting[:_MOST_NAMES])} and others"
            some = f"{answered} of {asked} nodes have answered; " if asked > 1 else ""
            self.say(f"  {some}waiting for {names}")

    def began(self, stage: str, groups: Sequence[Group]) -> None:
        """A stage with nodes, pairs or all."""
        count = len(groups)
        what = {"alone": "node", "pairs": "group" if any(len(g) > 2 for g in groups) else "pair"}.get(stage)
        some = f"{counted(count, what)} at the same time" if what else f"{len(groups[0])} nodes"
        self.say(f"{TITLES[stage]}: {some}")

    def ended(self, stage: str, status: StageStatus, detail: str, seconds: float | None) -> None:
        """Its end."""
        took = f" ({seconds:.1f} s)" if seconds is not None else ""
        if status == "skip":
            self.say(f"{TITLES[stage]}: left out, {detail}")
        else:
            self.say(f"  {'FAIL' if status == 'fail' else status}: {detail}{took}")


def lines(result: Result, screen: Screen) -> list[Line]:
    """The report."""
    count = len(result.of_job)
    head = f"Pre-flight of job {result.job}: {counted(count, 'node')}, {result.need} needed, {result.what}."
    told: list[Line] = screen.paragraph(head, style="bold")
    told.append([])
    for number, stage in enumerate(result.stages, 1):
        took = f" ({stage.seconds:.1f} s)" if stage.seconds is not None else ""
        told += report_screen.row(
            screen, stage.status, f"{number} {TITLES[stage.name]:<{_TITLE}} ", f"{stage.detail}{took}"
        )
    told += findings.problems(result.outcomes, screen, command="mgpu smoke-test --slurm", show_all=True)
    told += [[], *_verdict(result, screen)]
    told += _bad(result, screen)
    if result.exclude:
        told += labelled("Exclude", result.exclude, screen, whole=True)
    for reason in result.unasked:
        told += labelled("Unknown", reason, screen)
    told += labelled("Files", f"{result.folder}/  (passing_nodes.txt, failing_nodes.txt, preflight.json)", screen)
    told += _next(result, screen)
    return told


def _verdict(result: Result, screen: Screen) -> list[Line]:
    good, need, bad = len(result.good), result.need, len(result.bad)
    nodes = counted(good, "good node")
    if result.verdict == "passed":
        spare = f", {good - need} to spare" if good > need else ""
        left = f"; {bad} left out" if bad else ""
        return headed("PASSED", "ok", f"{nodes} of {need} needed{spare}{left}, {result.seconds:.1f} s.", screen)
    if result.verdict == "unknown":
        return headed("COULD NOT TELL", "crash", result.trouble, screen)
    why = result.trouble or f"{nodes}, {need} needed"
    return headed("FAILED", "fail", f"{why}. No training is started.", screen)


def _bad(result: Result, screen: Screen) -> list[Line]:
    """Bad nodes with the reason, those of one reason in one row; where a smoke test said it, with its fix as well: that
    of a check stands above."""
    alike: dict[tuple[str, str], list[str]] = {}
    for bad in result.bad:
        fix = bad.fix if bad.stage in TESTS else ""
        alike.setdefault((bad.reason, fix), []).append(bad.node)
    told: list[Line] = []
    for (reason, fix), nodes in list(alike.items())[:_MOST_BAD]:
        told += report_screen.row(screen, "fail", f"{hostlist.fold(nodes):<{_TITLE - 6}} ", reason)
        if fix:
            told += screen.paragraph(f"Fix: {fix}", " " * 9, " " * 9)
    if len(alike) > _MOST_BAD:
        told += unstyled([f"  ... all of them: {result.folder}/{FAILING}"])
    return told


def _next(result: Result, screen: Screen) -> list[Line]:
    if result.verdict == "passed":
        names = hostlist.fold(result.chosen)
        return labelled("Next", f"the job goes on with {counted(len(result.chosen), 'node')}: {names}", screen)
    if result.in_common:
        words = "all nodes have this in common: mend it, then submit again (MGPU_PREFLIGHT=0 leaves the pre-flight out)"
        return labelled("Next", words, screen)
    if result.bad and result.exclude:
        return labelled("Next", f"sbatch {result.exclude} ...   (or ask for spare nodes)", screen, whole=True)
    return []
