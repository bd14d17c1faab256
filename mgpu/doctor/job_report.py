"""How does `mgpu doctor --script job.sbatch` tell what it found in a job script?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.doctor import script_report
from mgpu.engine import Outcome
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, unstyled
from mgpu.snapshot import Config, JobCommand, JobScript
from mgpu.version import __version__

_ASKED = (
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "gpus-per-node",
    "gres",
    "gpus",
    "gpus-per-task",
    "cpus-per-task",
    "time",
)
_LONGEST = 60  # characters of the training's command line


def lines(
    job: JobScript, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report of a person."""
    head = f"mgpu doctor {__version__} on {job.path}{f' with {config.path}' if config else ''}"
    told: list[Line] = screen.paragraph(head, style="bold")
    for text in (_asks(job), _starts(job), _read(job)):
        told += screen.paragraph(text)
    if verbose:
        told += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    told += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    told += [*script_report.hints(outcomes, screen), [], *script_report.summary(outcomes, screen)]
    told += unstyled(
        [
            f"Next:  {step}" if not number else f"       {step}"
            for number, step in enumerate(next_steps(job, failed=any(outcome.status == "fail" for outcome in outcomes)))
        ]
    )
    return told + script_report.explained(outcomes)


def next_steps(job: JobScript, *, failed: bool) -> list[str]:
    """The commands that come next: the training script that it starts, then the job."""
    steps = [shell("mgpu doctor --script {:path}", script) for script in trainings(job)[:2]]
    steps += [] if failed else [shell("mgpu launch --slurm {:path}", job.path)]
    return [step for step in steps if step]


def trainings(job: JobScript) -> list[str]:
    """The Python scripts that the job trains with, where their names are known."""
    named = [one.words[one.script] for one in _launches(job) if one.script is not None]
    return [name for name in dict.fromkeys(named) if name.endswith(".py") and "$" not in name]


def _launches(job: JobScript) -> list[JobCommand]:
    """The launchers; scripts that are started without one count where there is none."""
    certain = [one for one in job.launches if one.starts_ranks]
    return certain or [one for one in job.launches if not one.inner]


def _asks(job: JobScript) -> str:
    """What the directives ask for, as they write it."""
    asked = [found.written for option in _ASKED if (found := job.directive(option))]
    return f"It asks for {' '.join(asked)}." if asked else "It asks Slurm for nothing: what sbatch is told decides."


def _starts(job: JobScript) -> str:
    found = _launches(job)
    if not found:
        return "What it starts is not seen: no launcher, and no Python script."
    first = found[0]
    what = " ".join(first.words[: 1 if first.starts_ranks else 2])
    script = first.words[first.script] if first.script is not None and first.starts_ranks else ""
    where = "srun starts" if first.step is not None else "It starts"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    text = " ".join(f"{what} {script}".split())
    return f"{where} {text[:_LONGEST]} in line {first.line}{more}."


def _read(job: JobScript) -> str:
    unread = f"; not read: {', '.join(job.sourced[:3])}" if job.sourced else ""
    unread += f" and {len(job.sourced) - 3} more" if len(job.sourced) > 3 else ""
    if job.cut and job.shebang and not job.commands and not job.sets:
        return f"{job.lines:,} lines, of which only the #SBATCH lines were read: mgpu does not read {job.shebang}."
    cut = "; not read to its end" if job.cut else ""
    return f"{job.lines:,} lines{cut}{unread}. Nothing of it was run but bash -n."
