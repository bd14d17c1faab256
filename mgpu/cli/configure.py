"""`mgpu configure`: a config for this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from mgpu.cli.known_values import answer_keys, configs, demos, targets
from mgpu.cli.option import Command, Option, Values, among, panel
from mgpu.errors import USAGE, MgpuError
from mgpu.job_formats import FORMATS
from mgpu.text import listed

if TYPE_CHECKING:
    from pathlib import Path

    from mgpu.probes.runner import Probe
    from mgpu.wizard.answers import Answers

_FORMATS: Final = ("human", "json", "github", "sarif")
_DEFAULT: Final = ("accelerate.yaml",)
_FILE: Final = "Write the config"
_SLURM: Final = "Slurm and other job formats"

# fmt: off
_BEFORE_ANSWERS = (
    *panel(
        _FILE,
        Option("--output -o", str, "Default: ./accelerate.yaml.", "FILE"),
        Option("--yes -y", bool, "Accept all suggested values without prompting."),
        Option("--dry-run", bool, "Print the YAML instead of writing it."),
        Option("--diff", bool, "Print the changes without writing them."),
        Option("--force", bool, "Replace a file that mgpu did not write (with a backup)."),
        Option("--edit", str, "Start from this config and change it.", "FILE", complete=configs),
        Option("--plan", bool, "Batch, steps, learning rate and memory on 1, 2, 4 ... GPUs."),
    ),
    *panel(
        "Check existing configs",
        Option("--validate", bool, "Check FILE... (default: ./accelerate.yaml), also DeepSpeed files."),
        Option("--fix", bool, "With --validate: apply safe fixes (with a backup)."),
        Option("--no-loader", bool, "With --validate: skip accelerate's own loader."),
        Option("--strict", bool, "With --validate: warnings make the exit code 1."),
        Option("--verbose -v", bool, "With --validate: list notes without consequence."),
        Option("--show-origin", bool, "List every key of FILE and the source of its value."),
        Option(
            "--format", str, "human or json; with --validate also github or sarif.", "FMT",
            default="human", show_default=False, complete=among(*_FORMATS),
        ),
        Option("--json", bool, "Same as --format json."),
        Option("--json-schema", bool, "Print the JSON Schema of --json; with --validate, --plan ... of theirs."),
        Option("--schema", bool, "Print the JSON Schema of accelerate's config, for editors."),
    ),
    *panel(
        "Questions and answers",
        Option("--guided", bool, "Ask every question."),
        Option("--accessible", bool, "Plain numbered questions, for screen readers."),
        Option("--no-input", bool, "Never prompt; fail if an answer is missing."),
        Option("--resume", bool, "Continue the interrupted session."),
        Option("--fresh", bool, "Discard the interrupted session."),
        Option("--answers", str, 'Read answers from TOML, JSON or YAML; "-" = stdin.', "FILE"),
        Option("--no-answers", bool, "Without prompts: ignore ./mgpu.answers.toml."),
        Option("--save-answers", str, 'Default: ./mgpu.answers.toml; "none" = do not save.', "FILE"),
        Option("--set", list, "Set any answer: batch.per_gpu=8.", "KEY=VALUE", field="set_", complete=answer_keys),
    ),
    *panel(
        "Machine",
        Option("--target", str, "Configure for another machine: 4xA100-80GB, 2x8xH100.", "SPEC", complete=targets),
        Option("--from", str, "Configure for a machine saved with doctor --save.", "FILE", field="from_"),
        Option("--demo", bool, "Show a config for a machine shipped with mgpu, without writing it: --demo NAME."),
        Option("--offline", bool, "Never use the network."),
        Option("--python", str, "Python interpreter of the training run.", "PATH"),
    ),
)
_AFTER_MODEL = panel(
    "Model",
    Option("--params-from", str, "Count parameters: run SCRIPT up to its first optimizer [-- ITS ARGS].", "SCRIPT"),
)
_AFTER_ANSWERS = panel(
    _SLURM,
    Option("--job", str, "Job script to write. Default: ./train.sbatch.", "FILE"),
    Option("--emit", str, f"Also write a job for {listed(FORMATS, 'or')}.", "ENGINE", complete=among(*FORMATS)),
)
# fmt: on
OPTIONS = (*_BEFORE_ANSWERS, *_AFTER_MODEL, *_AFTER_ANSWERS)
_OF_VALIDATE: Final = {"validate", "fix", "no_loader", "dry_run", "json", "strict", "verbose"}


def _all_options() -> tuple[Option, ...]:
    """All options, with those of the wizard's answers in the order of their table and the job options last."""
    from mgpu.wizard.answers import KEYS, SECTIONS
    from mgpu.wizard.topics import JOB

    answers = [
        Option(
            f"{key.flag}/{key.flag.replace('--', '--no-', 1)}" if key.switch else key.flag,
            bool if key.switch else str,
            key.help,
            "" if key.switch else key.metavar,
            field=key.name,
            default=None,
            panel=_SLURM if key in JOB else SECTIONS[key.section],
            show_default=False,
            complete=among(*names) if (names := getattr(key.read, "names", ())) else None,
        )
        for key in KEYS
    ]
    of_job = [option for option in answers if option.panel == _SLURM]
    others = [option for option in answers if option.panel != _SLURM]
    place = 1 + [option.name for option in others].index("model")
    return (*_BEFORE_ANSWERS, *others[:place], *_AFTER_MODEL, *others[place:], *of_job, *_AFTER_ANSWERS)


def run(values: Values) -> int:
    """Write an accelerate config that fits this machine, or check one. With --slurm, also write the job script.

    Every answer also has an environment variable: MGPU_BATCH_PER_GPU=8 is the same as --batch-per-gpu 8. Precedence:
    flag, --set, variable, answers file, detected value. "auto" restores the detected value.
    """
    own = {option.name: values.pop(option.name) for option in OPTIONS}
    files: tuple[str, ...] = values.pop("files")
    given = {name: value for name, value in values.items() if value is not None}
    options = SimpleNamespace(**own)
    chosen = {option.name for option in OPTIONS if own[option.name] != option.initial}
    if options.validate and chosen <= _OF_VALIDATE and not given:
        return _validate(options, files)
    if options.schema or options.json_schema:
        return _schema(options)
    if options.demo:
        return _demo(options, given, files)
    return _configure(options, own, given, files)


def _schema(options: SimpleNamespace) -> int:
    """Print the schema of accelerate's config, or of the document that these options print."""
    from mgpu import engine
    from mgpu.cli import json_schema

    if options.schema:
        return json_schema.show(engine.config_schema())
    modes = (
        (options.validate, json_schema.validation),
        (options.plan, json_schema.plan),
        (options.show_origin, json_schema.origins),
    )
    return json_schema.show(next((made for typed, made in modes if typed), json_schema.configure)())


def _configure(options: SimpleNamespace, own: Values, given: Values, files: tuple[str, ...]) -> int:
    from mgpu.doctor import request as doctor_request
    from mgpu.wizard import answers_file, run
    from mgpu.wizard.request import elsewhere

    _refuse_all(options, given, files)
    paths = files or _DEFAULT
    for name in ("no_loader", "json", "set_", "no_answers", "json_schema", "schema", "demo"):
        del own[name]
    options.no_input = options.no_input or bool(os.environ.get("MGPU_NO_INPUT"))
    options.emit = options.emit if options.emit != "slurm" else ""
    label = elsewhere(options.emit, options.target, options.from_)
    saved = options.save_answers or answers_file.named(answers_file.DEFAULT_FILE, label)
    own |= {
        "no_input": options.no_input,
        "accessible": options.accessible or bool(os.environ.get("MGPU_ACCESSIBLE")),
        "validate": paths if options.validate else (),
        "show_origin": paths[0] if options.show_origin else "",
        "format": "json" if options.json else options.format,
        "save_answers": "" if saved == "none" else saved,
        "answers": _answers(options, given, files, label),
        "emit": options.emit,
        "params_from": (options.params_from, *files) if options.params_from else (),
        "python": doctor_request.interpreter(options.python) if options.python else None,
    }
    look = _hosts if own["answers"].hosts or _prompts(options) else None
    return run.run(run.Request(**own, loader=not options.no_loader, look=look, verified=_verified))


def _verified(path: Path) -> tuple[bool, str]:
    from mgpu.launch import run as launch

    return launch.verification_status(path)


def _demo(options: SimpleNamespace, given: Values, files: tuple[str, ...]) -> int:
    """`--demo NAME`: show the proposal and the config for a machine that is shipped with mgpu. Writes nothing."""
    from mgpu.report import demo
    from mgpu.wizard import answers, demonstration

    allowed = {"demo", "set_", "accessible"}
    others = [option for option in OPTIONS if getattr(options, option.name) != option.initial]
    wrong = next((option for option in others if option.name not in allowed), None)
    _refuse((wrong, f"--demo writes nothing and shows its own machine: remove {wrong.on[0] if wrong else ''}"))
    if files == (demo.LIST,):
        return demo.show_list()
    return demonstration.show(demo.chosen(files, demo.HEALTHY), answers.collect(given, options.set_ or (), os.environ))


def _with_python(decided: Answers, python: str) -> Answers:
    from mgpu.wizard import answers

    try:
        return answers.with_decision(decided, "hosts_python", answers.parse("hosts_python", python), "flag")
    except ValueError as error:
        raise MgpuError(f"--python {error}", USAGE) from None


def _hosts(decided: Answers) -> tuple[tuple[Any, int, str], Answers]:
    """Examine the hosts; return their machine, and the answers with the address that was measured to work."""
    from mgpu.fleet import hosts_config

    return hosts_config.look(decided)


def _validate(options: SimpleNamespace, files: tuple[str, ...]) -> int:
    """A plain --validate, which does not import the wizard."""
    from mgpu.validate import run
    from mgpu.validate.request import Request

    style = "json" if options.json else "human"
    request = Request(
        files or _DEFAULT,
        not options.no_loader,
        style,
        options.fix,
        options.dry_run,
        strict=options.strict,
        verbose=options.verbose,
    )
    return run.run(request)


def _answers(options: SimpleNamespace, given: Values, files: Sequence[str], label: str) -> Answers:
    """The answers that are decided before the first question."""
    from mgpu.wizard import answers, answers_file

    if options.validate or options.show_origin:
        return answers.Answers()
    decided = answers.collect(given, options.set_ or (), os.environ)
    if options.answers:
        decided = answers.collect(given, options.set_ or (), os.environ, file=answers_file.read(options.answers))
    elif not (options.no_answers or options.edit or _prompts(options)):
        decided = answers_file.with_default_file(decided, label)
    if files and not options.params_from:
        _refuse((not (decided.slurm or options.emit), _unexpected(files)))
        decided = answers.with_decision(decided, "command", _training_command(files), "flag")
    if decided.hosts and options.python:  # a path on the hosts, not here
        decided = _with_python(decided, options.python)
        options.python = ""
    return decided


def _prompts(options: SimpleNamespace) -> bool:
    """Whether questions will be asked."""
    from mgpu.report import screen

    silent = options.yes or options.no_input or options.dry_run or options.diff or options.plan
    return not (silent or options.json or options.format != "human") and screen.can_ask()


def _refuse_all(options: SimpleNamespace, given: Values, files: Sequence[str]) -> None:
    """Raise for an invalid value and for options that conflict."""
    from mgpu.doctor.request import one_of

    one_of("--emit", options.emit or "slurm", tuple(FORMATS))
    slurm = given.get("slurm")
    if options.emit == "slurm":
        given["slurm"] = True
    mode = "--validate" if options.validate else "--show-origin" if options.show_origin else ""
    other = options.emit not in ("", "slurm")
    _refuse(
        *_conflicts_of_files(options, mode, given, files),
        (options.emit and slurm is False, "--emit slurm and --no-slurm conflict"),
        (other and slurm, f"--emit {options.emit} and --slurm conflict: choose one engine"),
        (mode and (options.emit or options.job), f"{mode} does not write jobs: remove --emit and --job"),
        *_conflicts(options, given, files),
    )
    one_of("--format", options.format, _FORMATS)
    for_ci = options.format in ("github", "sarif")
    _refuse((for_ci and not (options.validate and not options.json), f"--format {options.format} needs --validate"))


def _conflicts_of_files(o: SimpleNamespace, mode: str, given: Values, files: Sequence[str]) -> list[tuple[object, str]]:
    answered = given or o.set_ or o.answers or o.params_from
    return [
        (
            o.validate and (o.show_origin or o.plan),
            "--validate cannot be combined with --show-origin or --plan",
        ),
        (o.show_origin and o.plan, "--show-origin and --plan conflict"),
        (mode and answered, f"{mode} only reads configs: remove the answers"),
        (
            mode and (o.output or o.edit or o.guided or o.resume or o.fresh),
            f"{mode} writes no config: it accepts FILE... only",
        ),
        (
            mode and (o.diff or o.force or o.save_answers),
            f"{mode} writes no config: remove --diff, --force and --save-answers",
        ),
        (o.fix and not o.validate, "--fix needs --validate"),
        (o.no_loader and not o.validate, "--no-loader needs --validate"),
        ((o.strict or o.verbose) and not o.validate, "--strict and --verbose need --validate"),
        (o.show_origin and len(files) > 1, "--show-origin accepts one FILE"),
    ]


def _conflicts(o: SimpleNamespace, given: Values, files: Sequence[str]) -> list[tuple[object, str]]:
    sized = "params" in given or "model" in given
    return [
        (files and given.get("command"), "the training command is given twice: with --command and after --"),
        (
            o.params_from and sized,
            "--params-from counts the parameters: remove --params and --model",
        ),
        (o.target and o.from_, "--target and --from conflict: each names a machine"),
        (o.resume and o.fresh, "--resume and --fresh conflict"),
        (o.resume and o.edit, "--resume and --edit conflict: each is a starting point"),
        (
            o.guided and (o.yes or o.no_input),
            f"--guided and {'--yes' if o.yes else '--no-input'} conflict: one prompts, the other does not",
        ),
        (o.dry_run and o.diff, "--dry-run and --diff conflict"),
        (o.plan and (o.dry_run or o.diff or o.output), "--plan writes nothing: remove --dry-run, --diff and -o"),
    ]


def _refuse(*together: tuple[object, str]) -> None:
    """Raise for the first pair of options that conflict."""
    from mgpu import errors

    for wrong, message in together:
        if wrong:
            raise errors.MgpuError(message, errors.USAGE)


def _training_command(words: Sequence[str]) -> Any:
    """The training command after `--`."""
    from mgpu import errors
    from mgpu.wizard.answers import parse

    try:
        return parse("command", words)
    except ValueError as error:
        raise errors.MgpuError(f"{' '.join(words)}: {error}", errors.USAGE) from None


def _unexpected(files: Sequence[str]) -> str:
    name = files[0] if files else ""
    return f"unexpected argument {name!r}: use --validate to check it, --edit to start from it, -o to write to it"


def _early(values: Values) -> Sequence[Probe]:
    if not values["validate"] or values["target"] or values["from_"] or values["python"]:
        return ()
    from mgpu.probes import runner

    return runner.OF_CONFIGS


COMMAND = Command(
    "configure",
    "Write a config that fits this machine, or check one.",
    run,
    OPTIONS,
    complete_words=lambda values, begun: demos(begun) if values["demo"] else [],
    words="files",
    usage="[OPTIONS] [--validate FILE...]",
    early=_early,
    all_options=_all_options,
    folded_panel=_SLURM,
)
