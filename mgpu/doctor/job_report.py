"""How does `mgpu doctor --script job.sbatch` report its findings in a job script?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.doctor import script_report
from mgpu.engine import Outcome, verdict
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, unstyled
from mgpu.snapshot import Config, JobCommand, JobScript, Snapshot
from mgpu.text import shell_path
from mgpu.version import __version__

_SHOWN = (  # directives in the report
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
_MOST = 3  # files named
_UNKNOWN = "Unknown (exit 3): the work of this job is in a file that was not examined."
_LONGEST = 60  # characters of the training's command line


def lines(
    job: JobScript, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report for a person."""
    head = f"mgpu doctor {__version__} on {job.path}{f' with {config.path}' if config else ''}"
    report: list[Line] = screen.paragraph(head, style="bold")
    for text in (_requests(job), _starts(job), _extent(job)):
        report += screen.paragraph(text)
    if verbose:
        report += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    report += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    report += [*script_report.hints(outcomes, screen), [], *script_report.summary(outcomes, screen)]
    if verdict.of_machine(outcomes, Snapshot(job_script=job)) == "unknown":
        report += screen.paragraph(_UNKNOWN)
    report += unstyled(
        [
            f"Next:  {step}" if not number else f"       {step}"
            for number, step in enumerate(next_steps(job, failed=any(outcome.status == "fail" for outcome in outcomes)))
        ]
    )
    return report + script_report.explain_command(outcomes)


def next_steps(job: JobScript, *, failed: bool) -> list[str]:
    """The next commands: check the training script that the job starts, then launch the job."""
    steps = [shell("mgpu doctor --script {:path}", script) for script in training_scripts(job)[:2]]
    steps += [] if failed else [shell("mgpu launch --slurm {:path}", job.path)]
    return [step for step in steps if step]


def training_scripts(job: JobScript) -> list[str]:
    """The Python scripts that the job trains with, if their names are known."""
    named = [one.words[one.script] for one in _launches(job) if one.script is not None]
    return [name for name in dict.fromkeys(named) if name.endswith(".py") and "$" not in name]


def _launches(job: JobScript) -> list[JobCommand]:
    """The launchers; without any, the scripts that are started directly."""
    certain = [one for one in job.launches if one.starts_ranks]
    return certain or [one for one in job.launches if not one.inner]


def _requests(job: JobScript) -> str:
    """The resources that the directives request, as written."""
    requested = [found.written for option in _SHOWN if (found := job.directive(option))]
    return f"Requests {' '.join(requested)}." if requested else "Requests no resources: sbatch's options decide."


def _starts(job: JobScript) -> str:
    found = _launches(job)
    if not found:
        return "No launcher and no Python script found in it."
    first = found[0]
    what = " ".join(first.words[:2]) if first.launcher == "command" else first.words[0]
    named = first.script if first.starts_ranks else 1
    script = first.words[named] if named is not None and named < len(first.words) else ""
    script = shell_path(script, max(_LONGEST - len(what) - 1, 20))
    where = "srun starts" if first.step is not None else "Starts"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    text = " ".join(f"{what} {script}".split())
    return f"{where} {text[:_LONGEST]} on {_line(job, first.line)}{more}."


def _extent(job: JobScript) -> str:
    """How much of the script was read."""
    named = dict.fromkeys([*(one.path for one in job.files), *(one.path for one in job.deepspeed if one.path)])
    read = f"; read with it: {_listed([*named])}" if named else ""
    read += f"; not read: {_listed([shell_path(one.path) for one in job.unread])}" if job.unread else ""
    if job.cut and job.shebang and not job.commands and not job.sets:
        return f"{job.lines:,} lines. Only the #SBATCH lines were read: mgpu cannot parse {job.shebang}."
    cut = "; not read to the end" if job.cut else ""
    return f"{job.lines:,} lines{cut}{read}. Nothing was run, except bash -n."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _line(job: JobScript, line: int) -> str:
    """The number of a line, with its file if that is not the job script."""
    file, number = job.place(line)
    return f"line {number}" if file == job.path else f"line {number} of {file}"
