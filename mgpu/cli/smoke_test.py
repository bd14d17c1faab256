"""`mgpu smoke-test`: do the ranks of this config train together?"""

from __future__ import annotations

from typing import Annotated

import typer


def smoke_test(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="Default: ./accelerate.yaml.")] = "",
    gpus: Annotated[str, typer.Option("--gpus", metavar="N|LIST", help="2 = two GPUs; ids have a comma: 0,2.")] = "",
    cpu: Annotated[
        int | None, typer.Option("--cpu", metavar="N", min=1, help="Rehearse with N CPU ranks (gloo).")
    ] = None,
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help="quick (about 10 s), standard (30 s) or long (5 min).")
    ] = "standard",
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SEC", min=1, help="The whole test: 120 (long: 900).")
    ] = None,
    stall_timeout: Annotated[
        float, typer.Option("--stall-timeout", metavar="SEC", min=1, help="Without progress.")
    ] = 30,
    start_timeout: Annotated[
        float, typer.Option("--start-timeout", metavar="SEC", min=1, help="Imports, and all ranks to come.")
    ] = 90,
    bisect: Annotated[bool, typer.Option("--bisect/--no-bisect", help="Search for the cause of a failure.")] = True,
    scaling: Annotated[bool, typer.Option("--scaling/--no-scaling", help="Measure 1 against N ranks.")] = True,
    fill: Annotated[
        int, typer.Option("--fill", metavar="PCT", min=0, max=95, help="Hold this share of GPU memory meanwhile.")
    ] = 0,
    baseline: Annotated[str, typer.Option("--baseline", metavar="FILE", help="Compare with an earlier result.")] = "",
    checkpoint_dir: Annotated[
        str, typer.Option("--checkpoint-dir", metavar="DIR", help="Where the training will save: tried as well.")
    ] = "",
    node_rank: Annotated[
        int | None, typer.Option("--node-rank", metavar="K", min=0, help="Which of several machines this is.")
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Examine and test all nodes of this Slurm job: the pre-flight.")
    ] = False,
    need: Annotated[
        int | None, typer.Option("--need", metavar="N", min=1, help="With --slurm: so many good nodes are enough.")
    ] = None,
    allow_busy: Annotated[bool, typer.Option("--allow-busy", help="Also on a GPU somebody else works on.")] = False,
    stamp: Annotated[bool, typer.Option("--stamp/--no-stamp", help="Record success beside the config.")] = True,
    show: Annotated[bool, typer.Option("--show", help="Print the last result, run nothing.")] = False,
    log_dir: Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Default: runs/smoke-TIME.")] = "",
    format: Annotated[
        str, typer.Option("--format", metavar="FMT", help="human, json, junit, github or markdown.")
    ] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="The JSON Schema of --json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='Write there ("-" = stdout).')] = "-",
) -> int:
    """Prove with real collectives and training steps that all ranks train together."""
    if json_schema:
        from mgpu.cli import json_schema as cli_json_schema

        return cli_json_schema.show(cli_json_schema.preflight() if slurm else cli_json_schema.smoke())
    from mgpu.smoke.request import Request

    request = Request(
        config=config,
        cpu=cpu,
        gpus=gpus,
        level=level,  # type: ignore[arg-type]
        timeout_s=timeout,
        stall_s=stall_timeout,
        start_s=start_timeout,
        bisect=bisect,
        scaling=scaling,
        fill_percent=fill,
        baseline=baseline,
        checkpoint_folder=checkpoint_dir,
        node=node_rank,
        allow_busy=allow_busy,
        stamp=stamp,
        show=show,
        log_dir=log_dir,
        format="json" if json else format,
        output=output,
        slurm=slurm,
        need=need,
    )
    if slurm:
        from mgpu.fleet import preflight

        return preflight.run(request)
    from mgpu.smoke import run

    return run.run(request)
