"""`mgpu configure`: a config for this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def configure(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")] = "accelerate.yaml",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Take every value the machine suggests; ask nothing.")
    ] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Never ask; fail if something is missing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="The YAML to stdout; nothing is written.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file mgpu did not write (backup kept).")] = False,
    validate: Annotated[
        list[str] | None,
        typer.Option("--validate", metavar="FILE", help="Check this config; repeatable. No questions."),
    ] = None,
    no_loader: Annotated[bool, typer.Option("--no-loader", help="With --validate: do not ask accelerate.")] = False,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=0, help="How many GPUs; 0 = CPU ranks.")
    ] = None,
    precision: Annotated[str, typer.Option("--precision", metavar="P", help="auto, bf16, fp16 or no.")] = "auto",
    batch_per_gpu: Annotated[
        int | None, typer.Option("--batch-per-gpu", metavar="N", min=1, help="Samples per GPU per step.")
    ] = None,
    from_: Annotated[str, typer.Option("--from", metavar="FILE", help="For a machine saved by doctor --save.")] = "",
    format: Annotated[str, typer.Option("--format", metavar="FMT", help="human or json.")] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
) -> int:
    """Write an accelerate config that fits this machine, or check one."""
    from mgpu.wizard import run
    from mgpu.wizard.proposal import Answers, Origin

    origins: dict[str, Origin] = {}
    if gpus is not None:
        origins["gpus"] = "flag"
    if precision != "auto":
        origins["precision"] = "flag"
    if batch_per_gpu is not None:
        origins["batch_per_gpu"] = "flag"
    request = run.Request(
        output=output,
        yes=yes,
        no_input=no_input,
        dry_run=dry_run,
        force=force,
        validate=tuple(validate or ()),
        loader=not no_loader,
        format="json" if json else format,
        from_=from_,
        answers=Answers(gpus, precision, batch_per_gpu, origins),
    )
    return run.run(request)
