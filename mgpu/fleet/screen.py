"""Show a pre-flight on the terminal: its progress and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mgpu import engine, exit_status, hostlist, messages
from mgpu.command_line import from_words, shell
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
    "examine": "check nodes",
    "network": "connect",
    "compare": "compare",
    "alone": "train alone",
    "pairs": "train in pairs",
    "together": "train together",
}
_TITLE = 18
_MOST_NAMES = 6  # names of nodes that have not answered
_MOST_BAD = 30  # rows of bad nodes; the file lists all


@dataclass(frozen=True)
class Result:
    """The result of a pre-flight."""

    job: str
    label: str  # what the nodes belong to: "job 17", "3 hosts"
    hosts: str  # the value of --hosts; "" for a job
    of_job: tuple[str, ...]
    need: int
    what: str  # the config and the ranks per node, as text
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
    unasked: tuple[str, ...] = field(default=())  # why some checks could not run
    python_option: tuple[str, ...] = ()  # --python with its value

    @property
    def in_common(self) -> bool:
        """Whether all nodes of the job are bad, each alone and for the same reason, so other nodes will not help."""
        alone = all(bad.stage in ("examine", "alone") for bad in self.bad)
        reasons = {bad.id or bad.reason for bad in self.bad}
        return alone and len(self.bad) == len(self.of_job) > 1 == len(reasons)

    @property
    def exclude(self) -> str:
        """The option for sbatch: --exclude=n[3,7]."""
        if not self.bad or self.in_common or self.hosts:
            return ""
        return shell("--exclude={:nodes}", hostlist.fold(bad.node for bad in self.bad))


def to_stderr(text: str) -> None:
    """Print a line to stderr; a write error is ignored."""
    if sys.stderr is not None:
        try:
            print(f"mgpu: {messages.message(text)}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            exit_status.drop(2)


class Progress:
    """Progress on stderr: one line for each change, in a batch job's log as on a terminal."""

    def __init__(self) -> None:
        self._last = ""

    def say(self, text: str) -> None:
        """Print one line, unless it repeats the last."""
        if text != self._last:
            self._last = text
            to_stderr(text)

    def asked(self, answered: int, asked: int, waiting: Sequence[str]) -> None:
        """Show how many nodes have answered."""
        if waiting:
            few = len(waiting) <= _MOST_NAMES
            names = ", ".join(waiting) if few else f"{', '.join(waiting[:_MOST_NAMES])} and others"
            some = f"{answered} of {asked} nodes answered; " if asked > 1 else ""
            self.say(f"  {some}waiting for {names}")

    def began(self, stage: str, groups: Sequence[Group]) -> None:
        """Show the start of a stage with single nodes, pairs or all nodes."""
        count = len(groups)
        what = {"alone": "node", "pairs": "group" if any(len(g) > 2 for g in groups) else "pair"}.get(stage)
        some = f"{counted(count, what)} in parallel" if what else f"{len(groups[0])} nodes"
        self.say(f"{TITLES[stage]}: {some}")

    def ended(self, stage: str, status: StageStatus, detail: str, seconds: float | None) -> None:
        """Show the end of a stage."""
        took = f" ({seconds:.1f} s)" if seconds is not None else ""
        if status == "skip":
            self.say(f"{TITLES[stage]}: skipped, {detail}")
        else:
            self.say(f"  {'FAIL' if status == 'fail' else status}: {detail}{took}")


def lines(result: Result, screen: Screen) -> list[Line]:
    """Return the report."""
    count = len(result.of_job)
    head = f"Pre-flight of {result.label}: {counted(count, 'node')}, {result.need} needed, {result.what}."
    shown: list[Line] = screen.paragraph(head, style="bold")
    shown.append([])
    for number, stage in enumerate(result.stages, 1):
        took = f" ({stage.seconds:.1f} s)" if stage.seconds is not None else ""
        shown += report_screen.row(
            screen, stage.status, f"{number} {TITLES[stage.name]:<{_TITLE}} ", f"{stage.detail}{took}"
        )
    shown += findings.problems(result.outcomes, screen, command=_command(result), show_all=True)
    shown += [[], *_verdict(result, screen)]
    shown += _bad_node_rows(result, screen)
    if result.exclude:
        shown += labelled("Exclude", result.exclude, screen, whole=True)
    for reason in result.unasked:
        shown += labelled("Unknown", reason, screen)
    shown += labelled("Files", f"{result.folder}/  (passing_nodes.txt, failing_nodes.txt, preflight.json)", screen)
    shown += _next_step(result, screen)
    return shown


def _verdict(result: Result, screen: Screen) -> list[Line]:
    good, need, bad = len(result.good), result.need, len(result.bad)
    nodes = counted(good, "healthy node")
    if result.verdict == "passed":
        spare = f", {good - need} spare" if good > need else ""
        excluded = f", {bad} excluded" if bad else ""
        return headed("PASSED", "ok", f"{nodes}, {need} needed{spare}{excluded} ({result.seconds:.1f} s).", screen)
    if result.verdict == "unknown":
        return headed("UNKNOWN", "crash", result.trouble, screen)
    why = result.trouble or f"{nodes}, {need} needed"
    return headed("FAILED", "fail", f"{why}. The training is not started.", screen)


def _bad_node_rows(result: Result, screen: Screen) -> list[Line]:
    """Return the rows of bad nodes, one row per reason.

    A smoke test's reason has its fix; the fixes of checks are in the report above.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for bad in result.bad:
        fix = bad.fix if bad.stage in TESTS else ""
        alike.setdefault((bad.reason, fix), []).append(bad.node)
    shown: list[Line] = []
    for (reason, fix), nodes in list(alike.items())[:_MOST_BAD]:
        shown += report_screen.row(screen, "fail", f"{hostlist.fold(nodes):<{_TITLE - 6}} ", reason)
        if fix:
            shown += screen.paragraph(f"Fix: {fix}", " " * 9, " " * 9)
    if len(alike) > _MOST_BAD:
        shown += unstyled([f"  ... full list: {result.folder}/{FAILING}"])
    return shown


def _command(result: Result) -> str:
    """Return the command that tests the same nodes again."""
    words = ("mgpu", "smoke-test", "--hosts", result.hosts, *result.python_option)
    return (from_words(words) if result.hosts else "") or "mgpu smoke-test --slurm"


def _next_for_hosts(result: Result, screen: Screen) -> list[Line]:
    wanted = ",".join(result.chosen) if result.bad and result.chosen else result.hosts
    if result.verdict == "passed":
        line = from_words(("mgpu", "launch", "--hosts", wanted, *result.python_option, "train.py"))
        return labelled("Next", line, screen, whole=True)
    return labelled("Next", f"repair what is named, then: {_command(result)}", screen)


def _next_step(result: Result, screen: Screen) -> list[Line]:
    if result.hosts:
        return _next_for_hosts(result, screen)
    if result.verdict == "passed":
        names = hostlist.fold(result.chosen)
        return labelled("Next", f"the job continues on {counted(len(result.chosen), 'node')}: {names}", screen)
    if result.in_common:
        text = "all nodes have this problem: fix it, then submit again (MGPU_PREFLIGHT=0 skips the pre-flight)"
        return labelled("Next", text, screen)
    if result.bad and result.exclude:
        return labelled("Next", f"sbatch {result.exclude} ...   (or request spare nodes)", screen, whole=True)
    return []
