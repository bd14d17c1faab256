"""How does `mgpu doctor --script` tell what it found in a script?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.engine import Outcome
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, row, unstyled
from mgpu.snapshot import Config, Script
from mgpu.text import counted
from mgpu.version import __version__

_SPEAKS = {
    "accelerate": "it trains with accelerate",
    "trainer": "it trains with a Trainer of transformers",
    "lightning": "it trains with Lightning",
    "deepspeed": "it trains with DeepSpeed",
    "ddp": "it trains with torch.distributed by hand",
    "nothing": "it trains on one GPU only",
}


def lines(
    script: Script, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report of a person."""
    head = f"mgpu doctor {__version__} on {script.path}{f' with {config.path}' if config else ''}"
    told: list[Line] = screen.paragraph(head, style="bold")
    if script.error is None:
        told += screen.paragraph(f"{_read(script)}. Nothing of it was run.")
    if verbose:
        told += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    told += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    told += [*hints(outcomes, screen), [], *summary(outcomes, screen)]
    if script.error is None and (line := shell("mgpu launch {:path}", script.path)):
        told += unstyled([f"Next:  {line}"])
    return told + explained(outcomes)


def _read(script: Script) -> str:
    beside = f" and {counted(len(script.files), 'module')} beside it" if script.files else ""
    speaks = _SPEAKS.get(script.speaks or "", "what makes it train on several GPUs is not seen")
    cut = "; too large to be read in full" if script.cut else ""
    return f"{script.lines:,} lines{beside}{cut}: {speaks}"


def hints(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The remarks, below the problems."""
    told: list[Line] = []
    for outcome in outcomes:
        if outcome.status == "info" and (problem := outcome.problem) is not None:
            text = f"{problem.title} ({outcome.check.id}). {problem.fixes[0].text}"
            told += row(screen, "info", "Hint", text)
    return [[], *told] if told else []


def summary(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """How much was found, in a sentence."""
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
    asked = len({outcome.check.id for outcome in outcomes})
    text = f"{', '.join(parts)} from {counted(asked, 'check')}." if parts else f"Nothing found by {asked} checks."
    return screen.paragraph(text)


def explained(outcomes: Sequence[Outcome]) -> list[Line]:
    """The command that explains the first problem."""
    first = next((outcome.check.id for outcome in findings.in_order(outcomes)), None)
    return unstyled([f"Explain any line:  mgpu doctor --explain {first}"] if first else [])
