"""`mgpu smoke-test`: do the ranks of this config train together?"""

from __future__ import annotations

from typing import Annotated

import typer


def smoke_test(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="Default: ./accelerate.yaml.")] = "",
    cpu: Annotated[
        int | None, typer.Option("--cpu", metavar="N", min=1, help="Rehearse with N CPU ranks (gloo).")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SEC", min=1, help="The whole test.")] = 120,
    stall_timeout: Annotated[
        float, typer.Option("--stall-timeout", metavar="SEC", min=1, help="Without progress.")
    ] = 30,
    stamp: Annotated[bool, typer.Option("--stamp/--no-stamp", help="Record success beside the config.")] = True,
    log_dir: Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Default: runs/smoke-TIME.")] = "",
    format: Annotated[str, typer.Option("--format", metavar="FMT", help="human or json.")] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='Write there ("-" = stdout).')] = "-",
) -> int:
    """Prove with real collectives and training steps that all ranks train together."""
    from mgpu.smoke import run

    return run.run(
        run.Request(
            config=config,
            cpu=cpu,
            timeout_s=timeout,
            stall_s=stall_timeout,
            stamp=stamp,
            log_dir=log_dir,
            format="json" if json else format,
            output=output,
        )
    )
