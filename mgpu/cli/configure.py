"""`mgpu configure`: a config for this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from mgpu.cli.option import Command, Option, Values, panel
from mgpu.job_formats import FORMATS
from mgpu.text import listed

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe
    from mgpu.wizard.answers import Answers

_FORMATS: Final = ("human", "json", "github")
_DEFAULT: Final = ("accelerate.yaml",)
_FILE: Final = "Write the config"

# fmt: off
_BEFORE_ANSWERS = (
    *panel(
        _FILE,
        Option("--output -o", str, "Default: ./accelerate.yaml.", "FILE"),
        Option("--yes -y", bool, "Take every value that is suggested; ask nothing."),
        Option("--dry-run", bool, "The YAML to stdout; nothing is written."),
        Option("--diff", bool, "Show what would change; nothing is written."),
        Option("--force", bool, "Replace a file mgpu did not write (backup kept)."),
        Option("--edit", str, "Start from this config and change it.", "FILE"),
        Option("--plan", bool, "Batch, steps, rate and memory on 1, 2, 4 ... GPUs."),
    ),
    *panel(
        "Look at configs that exist",
        Option("--validate", bool, "Check FILE... (default: ./accelerate.yaml)."),
        Option("--fix", bool, "With --validate: the safe repairs (backup kept)."),
        Option("--no-loader", bool, "With --validate: do not ask accelerate."),
        Option("--show-origin", bool, "Every key of FILE, and where its value comes from."),
        Option(
            "--format", str, "human, json; with --validate also github.", "FMT", default="human", show_default=False
        ),
        Option("--json", bool, "Same as --format json."),
    ),
    *panel(
        "Questions and answers",
        Option("--guided", bool, "Ask everything."),
        Option("--accessible", bool, "Plain numbered questions, for screen readers."),
        Option("--no-input", bool, "Never ask; fail if something is missing."),
        Option("--resume", bool, "Go on where you stopped."),
        Option("--fresh", bool, "Forget where you stopped."),
        Option("--answers", str, 'TOML, JSON or YAML; "-" = stdin.', "FILE"),
        Option("--save-answers", str, 'Default: ./mgpu.answers.toml; "none" = do not.', "FILE"),
        Option("--set", list, "Any answer, like batch.per_gpu=8.", "KEY=VALUE", field="set_"),
    ),
    *panel(
        "Machine",
        Option("--target", str, "For another machine: 4xA100-80GB, 2x8xH100.", "SPEC"),
        Option("--from", str, "For a machine saved by doctor --save.", "FILE", field="from_"),
        Option("--offline", bool, "Never use the network."),
        Option("--python", str, "The training's interpreter.", "PATH"),
    ),
)
_BEHIND_MODEL = panel(
    "Model", Option("--params-from", str, "Run it up to its first optimizer [-- ITS ARGS].", "SCRIPT")
)
_BEHIND_ANSWERS = panel(
    _FILE,
    Option("--job", str, "Default: ./train.sbatch.", "FILE"),
    Option("--emit", str, f"{listed(FORMATS, 'or')}: its file too.", "ENGINE"),
)
# fmt: on
OPTIONS = (*_BEFORE_ANSWERS, *_BEHIND_MODEL, *_BEHIND_ANSWERS)
_OF_VALIDATE: Final = {"validate", "fix", "no_loader", "dry_run", "json"}


def _all_options() -> tuple[Option, ...]:
    """With the options of the wizard's answers, as their table has them."""
    from mgpu.wizard.answers import KEYS, SECTIONS

    answers = [
        Option(
            f"{key.flag}/{key.flag.replace('--', '--no-', 1)}" if key.switch else key.flag,
            bool if key.switch else str,
            key.help,
            "" if key.switch else key.metavar,
            field=key.name,
            default=None,
            panel=SECTIONS[key.section],
            show_default=False,
        )
        for key in KEYS
    ]
    place = 1 + [option.name for option in answers].index("model")
    return (*_BEFORE_ANSWERS, *answers[:place], *_BEHIND_MODEL, *answers[place:], *_BEHIND_ANSWERS)


def run(values: Values) -> int:
    """Write an accelerate config that fits this machine, or check one. With --slurm also the job script.

    Every answer has a variable too: MGPU_BATCH_PER_GPU=8 is --batch-per-gpu 8. A flag wins over --set, the variable,
    the answers file and the machine, in this order; "auto" gives an answer back to the machine.
    """
    own = {option.name: values.pop(option.name) for option in OPTIONS}
    files: tuple[str, ...] = values.pop("files")
    given = {name: value for name, value in values.items() if value is not None}
    asked = SimpleNamespace(**own)
    chosen = {option.name for option in OPTIONS if own[option.name] != option.initial}
    if asked.validate and chosen <= _OF_VALIDATE and not given:
        return _validate(asked, files)
    from mgpu.doctor import request as doctor_request
    from mgpu.wizard import answers_file, run

    _refuse_all(asked, given, files)
    paths = files or _DEFAULT
    for name in ("no_loader", "json", "set_"):
        del own[name]
    own |= {
        "no_input": asked.no_input or bool(os.environ.get("MGPU_NO_INPUT")),
        "accessible": asked.accessible or bool(os.environ.get("MGPU_ACCESSIBLE")),
        "validate": paths if asked.validate else (),
        "show_origin": paths[0] if asked.show_origin else "",
        "format": "json" if asked.json else asked.format,
        "save_answers": "" if asked.save_answers == "none" else asked.save_answers or answers_file.DEFAULT_FILE,
        "answers": _answers(asked, given, files),
        "emit": asked.emit if asked.emit != "slurm" else "",
        "params_from": (asked.params_from, *files) if asked.params_from else (),
        "python": doctor_request.interpreter(asked.python) if asked.python else None,
    }
    return run.run(run.Request(**own, loader=not asked.no_loader))


def _validate(asked: SimpleNamespace, files: tuple[str, ...]) -> int:
    """The plain --validate, which needs nothing of the wizard."""
    from mgpu.validate import run
    from mgpu.validate.request import Request

    style = "json" if asked.json else "human"
    return run.run(Request(files or _DEFAULT, not asked.no_loader, style, asked.fix, asked.dry_run))


def _answers(asked: SimpleNamespace, given: Values, files: Sequence[str]) -> Answers:
    """What is decided before the first question."""
    from mgpu.wizard import answers, answers_file

    if asked.validate or asked.show_origin:
        return answers.Answers()
    file = answers_file.read(asked.answers) if asked.answers else None
    decided = answers.collect(given, asked.set_ or (), os.environ, file=file)
    if files and not asked.params_from:
        _refuse((not (decided.slurm or asked.emit), _lost(files)))
        decided = answers.decided(decided, "command", _trained(files), "flag")
    return decided


def _refuse_all(asked: SimpleNamespace, given: Values, files: Sequence[str]) -> None:
    """Raise for a value that does not exist, and for options that mean nothing together."""
    from mgpu.doctor.request import one_of

    one_of("--emit", asked.emit or "slurm", tuple(FORMATS))
    slurm = given.get("slurm")
    if asked.emit == "slurm":
        given["slurm"] = True
    mode = "--validate" if asked.validate else "--show-origin" if asked.show_origin else ""
    other = asked.emit not in ("", "slurm")
    _refuse(
        *_wrong_of_files(asked, mode, given, files),
        (asked.emit and slurm is False, "--emit slurm and --no-slurm exclude each other"),
        (other and slurm, f"--emit {asked.emit} and --slurm exclude each other: one engine at a time"),
        (mode and (asked.emit or asked.job), f"{mode}: --emit and --job mean nothing there"),
        *_wrong_together(asked, given, files),
    )
    one_of("--format", asked.format, _FORMATS)
    github = asked.format == "github"
    _refuse((github and not (asked.validate and not asked.json), "--format github belongs to --validate"))


def _wrong_of_files(o: SimpleNamespace, mode: str, given: Values, files: Sequence[str]) -> list[tuple[object, str]]:
    answered = given or o.set_ or o.answers or o.params_from
    return [
        (
            o.validate and (o.show_origin or o.plan),
            "--validate stands alone: not together with --show-origin or --plan",
        ),
        (o.show_origin and o.plan, "--show-origin and --plan exclude each other"),
        (mode and answered, f"{mode} reads configs: answers mean nothing there"),
        (
            mode and (o.output or o.edit or o.guided or o.resume or o.fresh),
            f"{mode} writes no config: it takes FILE... only",
        ),
        (
            mode and (o.diff or o.force or o.save_answers),
            f"{mode}: --diff, --force and --save-answers mean nothing there",
        ),
        (o.fix and not o.validate, "--fix belongs to --validate"),
        (o.no_loader and not o.validate, "--no-loader belongs to --validate"),
        (o.show_origin and len(files) > 1, "--show-origin takes one FILE"),
    ]


def _wrong_together(o: SimpleNamespace, given: Values, files: Sequence[str]) -> list[tuple[object, str]]:
    sized = "params" in given or "model" in given
    return [
        (files and given.get("command"), "the training command is given twice: by --command, and behind --"),
        (
            o.params_from and sized,
            "--params-from reads the number of parameters: not together with --params or --model",
        ),
        (o.target and o.from_, "--target and --from exclude each other: each names a machine"),
        (o.resume and o.fresh, "--resume and --fresh exclude each other"),
        (o.resume and o.edit, "--resume and --edit exclude each other: each is where to start"),
        (
            o.guided and (o.yes or o.no_input),
            f"--guided asks, {'--yes' if o.yes else '--no-input'} does not: choose one",
        ),
        (o.dry_run and o.diff, "--dry-run and --diff exclude each other"),
        (o.plan and (o.dry_run or o.diff or o.output), "--plan shows a table and writes nothing: without -o"),
    ]


def _refuse(*together: tuple[object, str]) -> None:
    """Raise for the first pair of options that mean nothing together."""
    from mgpu import errors

    for wrong, words in together:
        if wrong:
            raise errors.MgpuError(words, errors.USAGE)


def _trained(words: Sequence[str]) -> Any:
    """The training command behind `--`."""
    from mgpu import errors
    from mgpu.wizard.answers import parse

    try:
        return parse("command", words)
    except ValueError as error:
        raise errors.MgpuError(f"{' '.join(words)}: {error}", errors.USAGE) from None


def _lost(files: Sequence[str]) -> str:
    name = files[0] if files else ""
    return f"{name!r}: what shall be done with it? --validate checks a file, --edit starts from it, -o writes to it"


def _early(values: Values) -> Sequence[Probe]:
    if not values["validate"] or values["target"] or values["from_"] or values["python"]:
        return ()
    from mgpu.probes import runner

    return runner.OF_CONFIGS


COMMAND = Command(
    "configure",
    "A config that fits this machine, or check one.",
    run,
    OPTIONS,
    words="files",
    usage="[OPTIONS] [--validate FILE...]",
    early=_early,
    all_options=_all_options,
)
