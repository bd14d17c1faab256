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
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="WHICH", help="auto, accelerate, torchrun or python.")
    ] = "auto",
    unverified: Annotated[
        str,
        typer.Option("--unverified", metavar="WHAT", help="ask, allow or refuse (default: ask; no terminal: refuse)."),
    ] = "",
    smoke: Annotated[
        str, typer.Option("--smoke", metavar="WHEN", help="Run the smoke test first: auto, always or never.")
    ] = "auto",
    gpus: Annotated[str, typer.Option("--gpus", metavar="N|LIST", help="On these GPUs only; 1: one process.")] = "",
    port: Annotated[str, typer.Option("--port", metavar="auto|N", help="Where the ranks meet.")] = "auto",
    module: Annotated[bool, typer.Option("--module", "-m", help="What follows is a module, as for python -m.")] = False,
    node_rank: Annotated[
        int | None, typer.Option("--node-rank", metavar="K", min=0, help="Which of several machines this is.")
    ] = None,
    exec_: Annotated[bool, typer.Option("--exec", help="Replace this process: no watching, no triage.")] = False,
    triage: Annotated[bool, typer.Option("--triage/--no-triage", help="Explain a failure at the end.")] = True,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SEC", min=0, help="End the training then.")] = 0,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the run going without this terminal.")] = False,
    attach: Annotated[bool, typer.Option("--attach", help="Follow a run: [RUN], else the latest.")] = False,
    status: Annotated[bool, typer.Option("--status", help="The runs of this machine, or one: [RUN].")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End a run: [RUN], else the only one.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="The GPUs at work, live: [RUN] or SCRIPT.")] = False,
    log_dir: Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Default: runs/TIME.")] = "",
    json_result: Annotated[str, typer.Option("--json-result", metavar="FILE", help="Write how it ended.")] = "",
) -> int:
    """Start SCRIPT [ARGS...] with the verified config, watch it, and end with its exit code.

    Options of mgpu come before the script; everything after it is the script's, untouched.
    """
    from mgpu.launch import run
    from mgpu.launch.request import Request

    return run.run(
        Request(
            target=tuple(context.args),
            module=module,
            config=config,
            yes=yes,
            dry_run=dry_run,
            print_command=print_command,
            unverified=unverified,
            smoke=smoke,
            launcher=launcher,
            gpus=gpus,
            port=port,
            node=node_rank,
            exec_=exec_,
            triage=triage,
            timeout_s=timeout,
            detach=detach,
            attach=attach,
            status=status,
            stop=stop,
            watch=watch,
            log_dir=log_dir,
            json_result=json_result,
        )
    )
