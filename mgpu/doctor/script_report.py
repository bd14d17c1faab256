"""How does `mgpu doctor --script` report its findings in a script?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.engine import Outcome
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, row, unstyled
from mgpu.snapshot import Config, Script
from mgpu.text import counted
from mgpu.version import __version__

_FRAMEWORKS = {
    "accelerate": "trains with accelerate",
    "trainer": "trains with the transformers Trainer",
    "lightning": "trains with Lightning",
    "deepspeed": "trains with DeepSpeed",
    "ddp": "trains with torch.distributed directly",
    "nothing": "trains on one GPU only",
}


def lines(
    script: Script, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report for a person."""
    head = f"mgpu doctor {__version__} on {script.path}{f' with {config.path}' if config else ''}"
    report: list[Line] = screen.paragraph(head, style="bold")
    if script.error is None:
        report += screen.paragraph(f"{_overview(script)}. It was not run.")
    if verbose:
        report += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    report += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    report += [*hints(outcomes, screen), [], *summary(outcomes, screen)]
    if script.error is None and (line := shell("mgpu launch {:path}", script.path)):
        report += unstyled([f"Next:  {line}"])
    return report + explain_command(outcomes)


def _overview(script: Script) -> str:
    """The script's size, and the framework it trains with."""
    beside = f" and {counted(len(script.files), 'module')} next to it" if script.files else ""
    framework = _FRAMEWORKS.get(script.speaks or "", "no multi-GPU framework found")
    cut = "; too large to read in full" if script.cut else ""
    return f"{script.lines:,} lines{beside}{cut}: {framework}"


def hints(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The remarks, below the problems."""
    lines: list[Line] = []
    for outcome in outcomes:
        if outcome.status == "info" and (problem := outcome.problem) is not None:
            text = f"{problem.title} ({outcome.check.id}). {problem.fixes[0].text}"
            lines += row(screen, "info", "Hint", text)
    return [[], *lines] if lines else []


def summary(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The number of findings, in a sentence."""
    parts = [
        counted(number, word)
        for word, status in (
            ("error", "fail"),
            ("warning", "warn"),
            ("hint", "info"),
            ("crashed check", "crash"),
        )
        if (number := sum(outcome.status == status for outcome in outcomes))
    ]
    ran = counted(len({outcome.check.id for outcome in outcomes}), "check")
    text = f"{', '.join(parts)} from {ran}." if parts else f"No findings from {ran}."
    return screen.paragraph(text)


def explain_command(outcomes: Sequence[Outcome]) -> list[Line]:
    """The command that explains the first problem."""
    first = next((outcome.check.id for outcome in findings.in_order(outcomes)), None)
    return unstyled([f"Explain any line:  mgpu doctor --explain {first}"] if first else [])
