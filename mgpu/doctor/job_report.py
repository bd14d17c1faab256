"""How does `mgpu doctor --script job.sbatch` report its findings in a job script?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mgpu.command_line import shell
from mgpu.doctor import script_report
from mgpu.engine import Outcome, verdict
from mgpu.readers.job_script.config_options import config_of
from mgpu.readers.job_script.programs import base, starter_of
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, unstyled
from mgpu.snapshot import Config, JobCommand, JobScript, Snapshot
from mgpu.text import listed, shell_path
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
_PROGRAM_IN_VARIABLE = re.compile(r"\$\w*[A-Za-z]\w*|\$\{[A-Za-z]\w*(?:\[@\])?\}")
_LONGEST, _LONGEST_PROGRAM = 60, 30  # characters of the training's command line, and of its program with its folder


def lines(
    job: JobScript, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report for a person."""
    head = f"mgpu doctor {__version__} on {job.path}{f' with {config.path}' if config else ''}"
    report: list[Line] = screen.paragraph(head, style="bold")
    for text in (_requests(job), _starts(job), _extent(job, config)):
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
    """The next commands: check the training script or job that the script starts, then launch it."""
    only_submits = bool(job.submits) and not job.launches
    names = job.submits_here if only_submits else training_scripts(job)
    steps = [shell("mgpu doctor --script {:path}", name) for name in names[:2]]
    if not failed and not only_submits and not job.missing and _is_for_slurm(job):
        steps.append(shell("mgpu launch --slurm {:path}", job.path))
    return [step for step in steps if step]


def _is_for_slurm(job: JobScript) -> bool:
    """Whether a script is for Slurm: by its directives, its name, srun, or a variable that Slurm sets."""
    if job.directives or job.path.endswith((".sbatch", ".slurm")):
        return True
    words = [word for one in job.commands for word in (*one.words, *(name.name for name in one.variables))]
    values = [one.value for one in job.sets]
    by_name = any("SLURM_" in text for text in (*words, *values))
    return by_name or any(base(one.words[0]) in ("srun", "scontrol") for one in job.commands)


def training_scripts(job: JobScript) -> list[str]:
    """The Python scripts that the job trains with and that are here, by their paths on this machine."""
    launches = [one for one in _started(job) if one.starts_ranks or one.uses or one.step is not None]
    return list(dict.fromkeys(one.here for one in launches or _started(job) if one.here))


def _started(job: JobScript) -> list[JobCommand]:
    """The launches, each program with its script once: launchers first, then scripts that are started directly."""
    certain = sorted((one for one in job.launches if not one.inner), key=lambda one: not one.starts_ranks)
    found: dict[str, JobCommand] = {}
    for one in certain:
        found.setdefault(_shown_command(one), one)
    return list(found.values())


def _requests(job: JobScript) -> str:
    """The resources that the directives request, as written."""
    requested = [found.written for option in _SHOWN if (found := job.directive(option))]
    if requested:
        return f"Requests {' '.join(requested)}."
    if job.scheduler:
        return f"Its directives are for {job.scheduler} and were not examined: mgpu reads only those for Slurm."
    if _is_for_slurm(job):
        return "Requests no resources: sbatch's options decide."
    return "Has no #SBATCH lines: without Slurm, it runs on the machine where you start it."


def _starts(job: JobScript) -> str:
    started = _started(job)
    if not started and job.submits:
        return f"Submits {_listed([shell_path(name) for name in job.submits])} with sbatch (not examined)."
    if not started:
        return _starts_unknown(job) or "No launcher and no Python script found in it."
    named, sentences = started[:_MOST], []
    for by_srun in dict.fromkeys(one.step is not None for one in named):
        group = [one for one in named if (one.step is not None) is by_srun]
        texts = [f"{_shown_command(one)} on {_line(job, one.line)}" for one in group]
        sentences.append(f"{'srun starts' if by_srun else 'Starts'} {listed(texts)}")
    sentences[-1] += f", and {len(started) - _MOST} more" if len(started) > _MOST else ""
    return ". ".join(sentences) + "."


def _starts_unknown(job: JobScript) -> str:
    """The sentence for a command whose program is a variable that is known only in the job; "" without one."""
    unknown = [one for one in job.commands if _PROGRAM_IN_VARIABLE.fullmatch(one.words[0]) and not one.inner]
    held = [(one, _launchers_in(job, one)) for one in unknown]
    if (known := next(((one, names) for one, names in held if names), None)) is not None:
        one, names = known
        return f"Starts {one.words[0]} on {_line(job, one.line)}: {listed(names, 'or')}, known only in the job."
    if unknown:
        return f"What it starts is known only in the job: {unknown[0].words[0]} on {_line(job, unknown[0].line)}."
    return ""


def _launchers_in(job: JobScript, command: JobCommand) -> list[str]:
    """The launchers that the script may have put into the variable of a command: torchrun, python."""
    names = {one.name for one in command.variables if one.word == 0}
    values = [one.value.split() for one in job.sets if one.name in names and one.statement <= command.statement]
    return list(dict.fromkeys(base(words[0]) for words in values if words and starter_of(words)))


def _shown_command(command: JobCommand) -> str:
    """The program and the training script of a launch, shortened."""
    program, _, rest = " ".join(command.words[: 2 if command.launcher == "command" else 1]).partition(" ")
    what = f"{program if len(program) <= _LONGEST_PROGRAM else base(program)} {rest}".strip()
    named = command.script if command.starts_ranks else 1
    script = command.words[named] if named is not None and named < len(command.words) else ""
    by_module = command.starts_ranks and named is not None and command.words[named - 1] in ("-m", "--module")
    what = f"{what} -m" if by_module else what
    return " ".join(f"{what} {shell_path(script, max(_LONGEST - len(what) - 1, 20))}".split())


def _extent(job: JobScript, config: Config | None) -> str:
    """How much of the script was read."""
    named = dict.fromkeys([*(one.path for one in job.files), *(one.path for one in job.deepspeed if one.path)])
    read = f"; read with it: {_listed([*named])}" if named else ""
    unread = dict.fromkeys([*_settings_not_read(job, config), *(one.path for one in job.unread)])
    missing = [name for name in unread if name in {one.path for one in job.missing}]
    scripts = [one.words[one.script] for one in _started(job) if one.script is not None and not one.here]
    absent = [name for name in dict.fromkeys(scripts) if name.endswith(".py") and "$" not in name]
    named_missing = {one.path for one in job.missing}
    missing += [name for name in absent if name in named_missing and name not in missing]
    lists = (
        ("missing", missing),
        ("not read", [name for name in unread if name not in missing]),
        ("not here", [name for name in absent if name not in missing]),
    )
    for what, names in lists:
        read += f"; {what}: {_listed([shell_path(name) for name in names])}" if names else ""
    if job.cut and job.shebang and not job.commands and not job.sets:
        return f"{job.lines:,} lines. Only the #SBATCH lines were read: mgpu cannot parse {job.shebang}."
    cut = "; not read to the end" if job.cut else ""
    return f"{job.lines:,} lines{cut}{read}. Nothing was run, except bash -n."


def _settings_not_read(job: JobScript, config: Config | None) -> Iterator[str]:
    """The files of settings that its launches name, and that were not read: accelerate configs, DeepSpeed files."""
    configs = [text for one in job.launches if (text := config_of(one))]
    yield from (text for text in configs if config is None or text != job.config)
    yield from (one.written for one in job.deepspeed if one.path is None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _line(job: JobScript, line: int) -> str:
    """The number of a line, with its file if that is not the job script."""
    file, number = job.place(line)
    return f"line {number}" if file == job.path else f"line {number} of {file}"
