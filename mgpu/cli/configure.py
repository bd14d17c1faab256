"""`mgpu configure`: a config for this machine."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import typer

from mgpu.cli.panels import Panels
from mgpu.job_formats import FORMATS

_FORMATS: Final = ("human", "json", "github")
_ENGINES: Final = tuple(FORMATS)
_FILE: Final = "Write the config"
_CHECK: Final = "Look at configs that exist"
_ASK: Final = "Questions and answers"
_MACHINE: Final = "Machine"
_MODEL: Final = "Model"


def _answer(name: str) -> Any:
    """The option of one answer, as the table of answers has it. Made when a command line is parsed: annotations are
    text until then, and the plain `mgpu doctor` never needs them."""
    from mgpu.wizard.answers import BY_NAME, SECTIONS

    key = BY_NAME[name]
    flag = f"{key.flag}/{key.flag.replace('--', '--no-', 1)}" if key.switch else key.flag
    metavar = None if key.switch else key.metavar
    return typer.Option(flag, metavar=metavar, help=key.help, rich_help_panel=SECTIONS[key.section], show_default=False)


def configure(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help="With --validate and --show-origin.", hidden=True)
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Default: ./accelerate.yaml.", rich_help_panel=_FILE)
    ] = "",
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Take every value that is suggested; ask nothing.", rich_help_panel=_FILE),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The YAML to stdout; nothing is written.", rich_help_panel=_FILE)
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what would change; nothing is written.", rich_help_panel=_FILE)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file mgpu did not write (backup kept).", rich_help_panel=_FILE)
    ] = False,
    edit: Annotated[
        str,
        typer.Option("--edit", metavar="FILE", help="Start from this config and change it.", rich_help_panel=_FILE),
    ] = "",
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Batch, steps, rate and memory on 1, 2, 4 ... GPUs.", rich_help_panel=_FILE),
    ] = False,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Check FILE... (default: ./accelerate.yaml).", rich_help_panel=_CHECK),
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="With --validate: the safe repairs (backup kept).", rich_help_panel=_CHECK)
    ] = False,
    no_loader: Annotated[
        bool, typer.Option("--no-loader", help="With --validate: do not ask accelerate.", rich_help_panel=_CHECK)
    ] = False,
    show_origin: Annotated[
        bool,
        typer.Option(
            "--show-origin", help="Every key of FILE, and where its value comes from.", rich_help_panel=_CHECK
        ),
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FMT",
            help="human, json; with --validate also github.",
            show_default=False,
            rich_help_panel=_CHECK,
        ),
    ] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.", rich_help_panel=_CHECK)] = False,
    guided: Annotated[bool, typer.Option("--guided", help="Ask everything.", rich_help_panel=_ASK)] = False,
    accessible: Annotated[
        bool,
        typer.Option("--accessible", help="Plain numbered questions, for screen readers.", rich_help_panel=_ASK),
    ] = False,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Never ask; fail if something is missing.", rich_help_panel=_ASK)
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where you stopped.", rich_help_panel=_ASK)] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget where you stopped.", rich_help_panel=_ASK)] = False,
    answers: Annotated[
        str,
        typer.Option("--answers", metavar="FILE", help='TOML, JSON or YAML; "-" = stdin.', rich_help_panel=_ASK),
    ] = "",
    save_answers: Annotated[
        str,
        typer.Option(
            "--save-answers",
            metavar="FILE",
            help='Default: ./mgpu.answers.toml; "none" = do not.',
            rich_help_panel=_ASK,
        ),
    ] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any answer, like batch.per_gpu=8.", rich_help_panel=_ASK),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target", metavar="SPEC", help="For another machine: 4xA100-80GB, 2x8xH100.", rich_help_panel=_MACHINE
        ),
    ] = "",
    from_: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="For a machine saved by doctor --save.", rich_help_panel=_MACHINE),
    ] = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="Never use the network.", rich_help_panel=_MACHINE)
    ] = False,
    python: Annotated[
        str,
        typer.Option("--python", metavar="PATH", help="The training's interpreter.", rich_help_panel=_MACHINE),
    ] = "",
    params: Annotated[str | None, _answer("params")] = None,
    model: Annotated[str | None, _answer("model")] = None,
    params_from: Annotated[
        str,
        typer.Option(
            "--params-from",
            metavar="SCRIPT",
            help="Run it up to its first optimizer [-- ITS ARGS].",
            rich_help_panel=_MODEL,
        ),
    ] = "",
    train: Annotated[str | None, _answer("train")] = None,
    trainable: Annotated[str | None, _answer("trainable")] = None,
    optimizer: Annotated[str | None, _answer("optimizer")] = None,
    seq_len: Annotated[str | None, _answer("seq_len")] = None,
    gpus: Annotated[str | None, _answer("gpus")] = None,
    precision: Annotated[str | None, _answer("precision")] = None,
    strategy: Annotated[str | None, _answer("strategy")] = None,
    offload: Annotated[str | None, _answer("offload")] = None,
    batch_per_gpu: Annotated[str | None, _answer("batch_per_gpu")] = None,
    accum: Annotated[str | None, _answer("accum")] = None,
    effective_batch: Annotated[str | None, _answer("effective_batch")] = None,
    dataset_size: Annotated[str | None, _answer("dataset_size")] = None,
    drop_last: Annotated[bool | None, _answer("drop_last")] = None,
    epochs: Annotated[str | None, _answer("epochs")] = None,
    lr: Annotated[str | None, _answer("lr")] = None,
    lr_ref_batch: Annotated[str | None, _answer("lr_ref_batch")] = None,
    lr_rule: Annotated[str | None, _answer("lr_rule")] = None,
    threads: Annotated[str | None, _answer("threads")] = None,
    workers: Annotated[str | None, _answer("workers")] = None,
    numa: Annotated[bool | None, _answer("numa")] = None,
    port: Annotated[str | None, _answer("port")] = None,
    compile: Annotated[bool | None, _answer("compile")] = None,
    reshard: Annotated[bool | None, _answer("reshard")] = None,
    nodes: Annotated[str | None, _answer("nodes")] = None,
    address: Annotated[str | None, _answer("address")] = None,
    slurm: Annotated[bool | None, _answer("slurm")] = None,
    partition: Annotated[str | None, _answer("partition")] = None,
    account: Annotated[str | None, _answer("account")] = None,
    qos: Annotated[str | None, _answer("qos")] = None,
    constraint: Annotated[str | None, _answer("constraint")] = None,
    time: Annotated[str | None, _answer("time")] = None,
    gpus_per_node: Annotated[str | None, _answer("gpus_per_node")] = None,
    gpu_model: Annotated[str | None, _answer("gpu_model")] = None,
    shape: Annotated[str | None, _answer("shape")] = None,
    container: Annotated[str | None, _answer("container")] = None,
    requeue: Annotated[bool | None, _answer("requeue")] = None,
    preflight: Annotated[bool | None, _answer("preflight")] = None,
    spare: Annotated[str | None, _answer("spare")] = None,
    command: Annotated[str | None, _answer("command")] = None,
    job: Annotated[
        str, typer.Option("--job", metavar="FILE", help="Default: ./train.sbatch.", rich_help_panel=_FILE)
    ] = "",
    emit: Annotated[
        str,
        typer.Option(
            "--emit",
            metavar="ENGINE",
            help=f"{', '.join(_ENGINES[:-1])} or {_ENGINES[-1]}: its file too.",
            rich_help_panel=_FILE,
        ),
    ] = "",
) -> int:
    """Write an accelerate config that fits this machine, or check one. With --slurm also the job script.

    Every answer has a variable too: MGPU_BATCH_PER_GPU=8 is --batch-per-gpu 8. A flag wins over --set, the variable,
    the answers file and the machine, in this order; "auto" gives an answer back to the machine.
    """
    typed = dict(locals())
    from mgpu.doctor import request as doctor_request
    from mgpu.wizard import answers as record
    from mgpu.wizard import answers_file, run

    given = {name: value for name, value in typed.items() if name in record.BY_NAME and value is not None}
    doctor_request.one_of("--emit", emit or "slurm", _ENGINES)
    if emit == "slurm":
        given["slurm"] = True
    mode = "--validate" if validate else "--show-origin" if show_origin else ""
    _refuse(
        (validate and (show_origin or plan), "--validate stands alone: not together with --show-origin or --plan"),
        (show_origin and plan, "--show-origin and --plan exclude each other"),
        (bool(mode and (given or set_ or answers or params_from)), f"{mode} reads configs: answers mean nothing there"),
        (
            bool(mode and (output or edit or guided or resume or fresh)),
            f"{mode} writes no config: it takes FILE... only",
        ),
        (
            bool(mode and (diff or force or save_answers)),
            f"{mode}: --diff, --force and --save-answers mean nothing there",
        ),
        (fix and not validate, "--fix belongs to --validate"),
        (no_loader and not validate, "--no-loader belongs to --validate"),
        (show_origin and len(files or ()) > 1, "--show-origin takes one FILE"),
        (bool(emit and slurm is False), "--emit slurm and --no-slurm exclude each other"),
        (
            bool(emit not in ("", "slurm") and slurm),
            f"--emit {emit} and --slurm exclude each other: one engine at a time",
        ),
        (bool(mode and (emit or job)), f"{mode}: --emit and --job mean nothing there"),
        (bool(files and command), "the training command is given twice: by --command, and behind --"),
        (bool(params_from and ("params" in given or "model" in given)), _one_size("--params-from")),
        (bool(target and from_), "--target and --from exclude each other: each names a machine"),
        (resume and fresh, "--resume and --fresh exclude each other"),
        (resume and bool(edit), "--resume and --edit exclude each other: each is where to start"),
        (guided and (yes or no_input), f"--guided asks, {'--yes' if yes else '--no-input'} does not: choose one"),
        (dry_run and diff, "--dry-run and --diff exclude each other"),
        (plan and (dry_run or diff or bool(output)), "--plan shows a table and writes nothing: without -o"),
    )
    doctor_request.one_of("--format", format, _FORMATS)
    _refuse((format == "github" and not (validate and not json), "--format github belongs to --validate"))
    paths = tuple(files or ()) or ("accelerate.yaml",)
    file = answers_file.read(answers) if answers and not mode else None
    decided = record.Answers() if mode else record.collect(given, set_ or (), os.environ, file=file)
    if files and not mode and not params_from:
        _refuse((not (decided.slurm or emit), _lost(files)))
        decided = record.decided(decided, "command", _trained(files), "flag")
    request = run.Request(
        output=output,
        yes=yes,
        no_input=no_input or bool(os.environ.get("MGPU_NO_INPUT")),
        guided=guided,
        accessible=accessible or bool(os.environ.get("MGPU_ACCESSIBLE")),
        dry_run=dry_run,
        diff=diff,
        force=force,
        resume=resume,
        fresh=fresh,
        plan=plan,
        offline=offline,
        edit=edit,
        validate=paths if validate else (),
        show_origin=paths[0] if show_origin else "",
        fix=fix,
        loader=not no_loader,
        format="json" if json else format,
        from_=from_,
        target=target,
        save_answers="" if save_answers == "none" else save_answers or answers_file.DEFAULT_FILE,
        answers=decided,
        emit=emit if emit != "slurm" else "",
        job=job,
        params_from=(params_from, *(files or ())) if params_from else (),
        python=doctor_request.interpreter(python) if python else None,
    )
    return run.run(request)


def _refuse(*together: tuple[bool, str]) -> None:
    """Raise for the first pair of options that mean nothing together."""
    from mgpu import errors

    for wrong, words in together:
        if wrong:
            raise errors.MgpuError(words, errors.USAGE)


def _trained(words: list[str]) -> Any:
    """The training command behind `--`."""
    from mgpu import errors
    from mgpu.wizard.answers import parse

    try:
        return parse("command", words)
    except ValueError as error:
        raise errors.MgpuError(f"{' '.join(words)}: {error}", errors.USAGE) from None


def _lost(files: list[str]) -> str:
    name = files[0] if files else ""
    return f"{name!r}: what shall be done with it? --validate checks a file, --edit starts from it, -o writes to it"


def _one_size(option: str) -> str:
    return f"{option} reads the number of parameters: not together with --params or --model"


class Grouped(Panels):
    """A command with its options in groups, and FILE allowed right behind --validate=."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        split = [
            word
            for number, arg in enumerate(args)
            for word in (arg.split("=", 1) if number < end and arg.startswith(_TAKES_FILES) else [arg])
        ]
        return super().parse_args(ctx, split)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.options_metavar or ""]  # FILE... stands there, behind the option it belongs to


_TAKES_FILES = ("--validate=", "--show-origin=")
