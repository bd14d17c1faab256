"""`mgpu doctor`: is this machine ready?"""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Under a second: torch is not imported.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID[,ID]", help="Only these checks or areas.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="ID[,ID]", help="Not these checks or areas.")
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list-checks", help="Every check: id, area, what it proves.")] = False,
    explain: Annotated[str, typer.Option("--explain", metavar="ID", help="The whole text of one check.")] = "",
    expect_gpus: Annotated[
        int | None, typer.Option("--expect-gpus", metavar="N", min=0, help="Fail unless exactly N GPUs are usable.")
    ] = None,
    expect_free: Annotated[
        float | None, typer.Option("--expect-free", metavar="GIB", min=0, help="Fail unless every GPU has this free.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, help="Machines the run will span.")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail as well.")] = False,
    format: Annotated[str, typer.Option("--format", metavar="FMT", help="human or json.")] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='Write there ("-" = stdout).')] = "-",
    save: Annotated[str, typer.Option("--save", metavar="FILE", help="Write the machine (a Snapshot, redacted).")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Judge a saved machine, read nothing here.")
    ] = "",
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="Judge this accelerate config with it.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", metavar="SEC", min=0, help="The whole command.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, evidence, topology.")] = False,
) -> int:
    """Examine this machine: driver, GPUs, links, PyTorch, NCCL, limits. Changes nothing."""
    import time

    from mgpu import children

    began = time.monotonic()

    # The machine is asked while mgpu loads its checks.
    ask = not (from_ or list_checks or explain)
    started = children.start(children.QUICK if quick else children.DEFAULT) if ask else None
    from mgpu import examine

    if json:
        format = "json"
    request = examine.Request(
        quick=quick,
        only=_split(only),
        skip=_split(skip),
        expect_gpus=expect_gpus,
        expect_free_gib=expect_free,
        nodes=nodes,
        strict=strict,
        format=format,
        output=output,
        save=save,
        from_=from_,
        config=config,
        timeout_s=timeout,
        verbose=verbose,
        started=started,
        began=began,
    )
    if list_checks:
        return examine.list_checks(request)
    if explain:
        return examine.explain(explain)
    try:
        return examine.run(request)
    finally:
        children.end(started or ())


def _split(names: list[str] | None) -> tuple[str, ...]:
    return tuple(part for name in names or () for part in name.split(",") if part)
