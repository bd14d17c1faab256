"""How does `mgpu doctor --script` tell what it found in a script?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.engine import Outcome
from mgpu.report import screen as report_screen
from mgpu.snapshot import Config, Script
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
    script: Script,
    config: Config | None,
    outcomes: Sequence[Outcome],
    screen: report_screen.Screen,
    command: str,
    *,
    verbose: bool,
) -> list[report_screen.Line]:
    """The report of a person."""
    head = f"mgpu doctor {__version__} on {script.path}{f' with {config.path}' if config else ''}"
    told: list[report_screen.Line] = [[(line, "bold")] for line in report_screen.wrapped(head, screen.width)]
    if script.error is None:
        told += report_screen.unstyled(report_screen.wrapped(f"{_read(script)}. Nothing of it was run.", screen.width))
    if verbose:
        told += [[], *report_screen.rows(outcomes, {}, screen, verbose=True)]
    told += report_screen.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    told += [*hints(outcomes, screen), [], *counted(outcomes, screen)]
    if script.error is None and (line := shell("mgpu launch {:path}", script.path)):
        told += report_screen.unstyled([f"Next:  {line}"])
    return told + explained(outcomes)


def _read(script: Script) -> str:
    beside = f" and {len(script.files)} module{'s' * (len(script.files) > 1)} beside it" if script.files else ""
    speaks = _SPEAKS.get(script.speaks or "", "what makes it train on several GPUs is not seen")
    cut = "; too large to be read in full" if script.cut else ""
    return f"{script.lines:,} lines{beside}{cut}: {speaks}"


def hints(outcomes: Sequence[Outcome], screen: report_screen.Screen) -> list[report_screen.Line]:
    """The remarks, below the problems."""
    told: list[report_screen.Line] = []
    for outcome in outcomes:
        if outcome.status == "info" and (problem := outcome.problem) is not None:
            text = f"{problem.title} ({outcome.check.id}). {problem.fixes[0].text}"
            told += report_screen.row(screen, "info", "Hint", text)
    return [[], *told] if told else []


def counted(outcomes: Sequence[Outcome], screen: report_screen.Screen) -> list[report_screen.Line]:
    """How much was found, in a sentence."""
    parts = [f"{number} {word}{'s' * (number > 1)}" for word, status in (
        ("error", "fail"), ("warning", "warn"), ("hint", "info"), ("crashed check", "crash"),
    ) if (number := sum(outcome.status == status for outcome in outcomes))]  # fmt: skip
    asked = len({outcome.check.id for outcome in outcomes})
    text = (
        f"{', '.join(parts)} from {asked} check{'s' * (asked > 1)}." if parts else f"Nothing found by {asked} checks."
    )
    return report_screen.unstyled(report_screen.wrapped(text, screen.width))


def explained(outcomes: Sequence[Outcome]) -> list[report_screen.Line]:
    """The command that explains the first problem."""
    first = next((outcome.check.id for outcome in report_screen.in_order(outcomes)), None)
    return report_screen.unstyled([f"Explain any line:  mgpu doctor --explain {first}"] if first else [])
