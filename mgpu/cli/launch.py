"""`mgpu launch`: start the training with the verified config."""

from __future__ import annotations

from typing import Annotated

import typer


def launch(
    context: typer.Context,
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="Default: ./accelerate.yaml.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="No question.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show everything, start nothing.")] = False,
    print_command: Annotated[bool, typer.Option("--print-command", help="Only the command line.")] = False,
    unverified: Annotated[
        str,
        typer.Option("--unverified", metavar="WHAT", help="ask, allow or refuse (default: ask; no terminal: refuse)."),
    ] = "",
    module: Annotated[bool, typer.Option("--module", "-m", help="What follows is a module, as for python -m.")] = False,
    node_rank: Annotated[
        int | None, typer.Option("--node-rank", metavar="K", min=0, help="Which of several machines this is.")
    ] = None,
    log_dir: Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Default: runs/TIME.")] = "",
    json_result: Annotated[str, typer.Option("--json-result", metavar="FILE", help="Write how it ended.")] = "",
) -> int:
    """Start SCRIPT [ARGS...] with the verified config, watch it, and end with its exit code.

    Options of mgpu come before the script; everything after it is the script's, untouched.
    """
    from mgpu.launch import run

    return run.run(
        run.Request(
            target=tuple(context.args),
            module=module,
            config=config,
            yes=yes,
            dry_run=dry_run,
            print_command=print_command,
            unverified=unverified,
            node=node_rank,
            log_dir=log_dir,
            json_result=json_result,
        )
    )
