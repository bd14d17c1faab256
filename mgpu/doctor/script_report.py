"""How does `mgpu doctor --script` report its findings in a script?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mgpu.check import Skip
from mgpu.command_line import shell
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.doctor import start_doubts
from mgpu.engine import Outcome
from mgpu.errors import UNKNOWN
from mgpu.launchers.own_ranks import may_start_its_own_ranks
from mgpu.readers.training_script.framework import OF_RAY
from mgpu.readers.training_script.local_modules import MOST_BYTES, MOST_FILES
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
# Libraries for which no launcher of PyTorch starts the ranks: one process uses all GPUs, or its own launcher is needed.
_OTHER_LIBRARIES = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "jax": "JAX",
    "flax": "JAX",
    "paddle": "PaddlePaddle",
    "mindspore": "MindSpore",
    "mxnet": "MXNet",
}
_REASONS = {"limit": f"limit of {MOST_BYTES >> 10} KiB and {MOST_FILES} files"}
# A step of the training, of a network: not of a simulation, of a schedule, or of a model of scikit-learn.
_STEP = re.compile(
    r"(?!(?:sklearn|xgboost|lightgbm|catboost|statsmodels|scipy)\.).*(?:\.(?:backward|fit|train_batch|learn)"
    r"|(?:opt(?:im\w*)?|engine|trainer|scaler|solver)\w*(?:\(\)|\[\])*\.step)",
    re.IGNORECASE,
)
_MOST_NAMES = 5  # in one list
_NEED_A_CONFIG = ("mgpu launch", "mgpu smoke-test")


def lines(
    script: Script, config: Config | None, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool
) -> list[Line]:
    """The report for a person."""
    head = f"mgpu doctor {__version__} on {script.path}{f' with {config.path}' if config else ''}"
    report: list[Line] = screen.paragraph(head, style="bold")
    if script.error is None:
        report += screen.paragraph(f"{_overview(script, outcomes)}. It was not run.")
    if verbose:
        report += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    report += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    if script.newer_python:
        reasons = (o.answer.reason for o in outcomes if "unreadable" in o.check.tags and isinstance(o.answer, Skip))
        return [*report, [], *screen.paragraph(f"Not examined. {next(reasons, script.error or '')}.")]
    report += [*hints(outcomes, screen), [], *summary(outcomes, screen)]
    if script.unclear:
        skipped = counted(_did_not_run(outcomes), "check")
        why = f"Unknown (exit {UNKNOWN}): how its ranks train together is not known, so {skipped} did not run: "
        report += screen.paragraph(f"{why}{script.unclear}.")
    report += not_examined(script, screen)
    steps = next_steps(script, config, outcomes)
    report += unstyled(f"{'then   ' if number else 'Next:  '}{line}" for number, line in enumerate(steps))
    if not steps and script.error is None and (why := start_doubts.doubt(script)):
        report += screen.paragraph(f"Next:  no command is certain to work: {why}.")
    return report + explain_command(outcomes)


def next_steps(script: Script, config: Config | None, outcomes: Sequence[Outcome]) -> list[str]:
    """The next commands, with the config of this report. Those that need a config come after the one that writes it."""
    commands = next_commands(script, outcomes)
    command = next((one for one in _NEED_A_CONFIG for line in commands if line.startswith(one)), None)
    if command is None:
        return commands
    if config is None:
        there = Path(os.environ.get("MGPU_CONFIG") or DEFAULT_CONFIG).exists()
        return commands if there else ["mgpu configure", *commands]
    if config.path == DEFAULT_CONFIG:
        return commands
    option = shell(" -c {:path}", config.path)
    return [line.replace(command, command + option, 1) for line in commands] if option else []


def next_commands(script: Script, outcomes: Sequence[Outcome]) -> list[str]:
    """The command that starts the script, with a launcher if that starts its ranks; or that changes it first.

    A script for one GPU would be started once per GPU, each time alone. If it is not known whether its ranks train
    together, a few steps of it show that. If an option decides who starts the ranks, or how many devices each of them
    uses, no command is named. Copies of a script that does not train, or whose ranks Ray starts, are of no use.
    """
    template = "mgpu smoke-test {:path}" if script.unclear else "mgpu launch {:path}"
    alone = script.unclear == OF_RAY or (script.speaks is None and not script.unclear) or bool(_other_library(script))
    alone = alone or script.speaks == "nothing"
    template = "python {:path}" if script.spawns_ranks or alone else template
    if template.startswith("mgpu ") and may_start_its_own_ranks(script):
        return []
    if any(outcome.problem and "cannot_start" in outcome.check.tags for outcome in outcomes):
        return []
    if script.has_own_backward and any(outcome.problem and "portable" in outcome.check.tags for outcome in outcomes):
        template = "mgpu doctor --script {:path} --fix"
    elif not script.spawns_ranks:
        named = (o.problem.fixes[0].commands for o in outcomes if o.problem and "start_command" in o.check.tags)
        if found := next((commands[:1] for commands in named if commands), ()):
            return list(found)
    if template == "mgpu launch {:path}" and start_doubts.doubt(script):
        return []
    if template == "mgpu launch {:path}" and (other := start_doubts.start_command(script)):
        return [other]
    line = shell(template, script.path) if script.error is None else ""
    if template.startswith("python") and script.only_as_module:
        line = shell("python -m {:dotted}", script.only_as_module)
    return [line] if line else []


def not_examined(script: Script, screen: Screen) -> list[Line]:
    """What the results do not cover."""
    if script.error is not None:
        return []
    texts = []
    for reason in dict.fromkeys(script.skipped.values()):
        names = [name for name, why in script.skipped.items() if why == reason]
        number = counted(len(names), "module") + " of the project"
        texts.append(f"{number} ({_REASONS.get(reason, reason)}): {_clipped(names)}")
    if script.unread:
        texts.append(f"the source of libraries: {_clipped(script.unread)}")
    if script.by_name:
        lines = [f"{spot.file} line {spot.line}" if spot.file else f"line {spot.line}" for spot in script.by_name]
        texts.append(f"what is loaded by name at run time ({_clipped(lines)})")
    report = screen.paragraph(f"Not examined: {'; '.join(texts)}.") if texts else []
    if not script.unclear and not _shows_training(script):
        text = "No training step was found in what was read: these results do not cover how it trains."
        report += screen.paragraph(text)
    return report


def _clipped(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _shows_training(script: Script) -> bool:
    """Whether a step of the training is visible: a backward pass, or a call that trains."""
    own = [f"{one.name}()" for one in script.classes if any(base.endswith("Trainer") for base in one.bases)]
    return any(
        call.reached and (_STEP.fullmatch(call.name) or _trains(call.name, ("Trainer", *own))) for call in script.calls
    )


def _trains(name: str, trainers: Sequence[str]) -> bool:
    """Whether a call trains with an object of one of these classes."""
    return name.endswith(".train") and any(trainer in name for trainer in trainers)


def _overview(script: Script, outcomes: Sequence[Outcome]) -> str:
    """The script's size, and the framework it trains with."""
    beside = f" and {counted(len(script.files), 'module')} that it imports" if script.files else ""
    other = _other_library(script)
    parallel = any(call.reached and call.name == "torch.nn.DataParallel" for call in script.calls)
    nothing = f"no multi-GPU framework found{' besides DataParallel' if parallel else ''}"
    unknown = f"uses {other}, which mgpu does not examine" if other else nothing
    framework = _FRAMEWORKS.get(script.speaks or "", unknown) + _in_module(script)
    if script.speaks == "nothing" and any(o.problem and "in_one_process" in o.check.tags for o in outcomes):
        framework = "trains in one process, with DataParallel"
    cut = "; not everything was read" if script.cut else ""
    return f"{script.lines:,} lines{beside}{cut}: {framework}"


def _other_library(script: Script) -> str:
    """Return the library that a script without torch uses for its model; empty if there is none."""
    tops = {name.partition(".")[0] for name in script.imports}
    found = (shown for name, shown in _OTHER_LIBRARIES.items() if name in tops)
    return next(found, "") if script.speaks is None and "torch" not in tops else ""


def _in_module(script: Script) -> str:
    """Name the module that connects the ranks by hand, if the script itself does not: it may be a copy of a library."""
    used = [
        c for c in script.calls if c.reached and c.name.endswith((".init_process_group", ".DistributedDataParallel"))
    ]
    files = {call.file for call in used}
    return f", in {sorted(files)[0]}" if script.speaks == "ddp" and files and "" not in files else ""


def hints(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The waived problems and the remarks, below the problems."""
    lines = findings.waived(outcomes, screen)[1:]
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
            ("waived finding", "waived"),
            ("crashed check", "crash"),
        )
        if (number := sum(outcome.status == status for outcome in outcomes))
    ]
    ran = counted(len({outcome.check.id for outcome in outcomes if outcome.status != "skip"}), "check")
    text = f"{', '.join(parts)} from {ran}." if parts else f"No findings from {ran}."
    return screen.paragraph(text)


def _did_not_run(outcomes: Sequence[Outcome]) -> int:
    return len({outcome.check.id for outcome in outcomes if outcome.status == "skip"})


def explain_command(outcomes: Sequence[Outcome]) -> list[Line]:
    """The command that explains the first problem."""
    first = next((outcome.check.id for outcome in findings.in_order(outcomes)), None)
    return unstyled([f"Explain any line:  mgpu doctor --explain {first}"] if first else [])
