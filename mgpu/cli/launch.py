"""`mgpu launch`: start the training with the verified config."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mgpu.known_launchers import STARTED

_WHAT: Final = "What runs"
_GATE: Final = "Before it starts"
_WHILE: Final = "While it runs, and after"
_RUNS: Final = "Runs that were started before"
_SLURM: Final = "On Slurm"


def launch(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Option("--config", "-c", metavar="FILE", help="Default: ./accelerate.yaml.", rich_help_panel=_WHAT),
    ] = "",
    module: Annotated[
        bool,
        typer.Option("--module", "-m", help="What follows is a module, as for python -m.", rich_help_panel=_WHAT),
    ] = False,
    launcher: Annotated[
        str,
        typer.Option(
            "--launcher",
            metavar="WHICH",
            help=f"auto (by what the script calls), {', '.join(STARTED[:-1])} or {STARTED[-1]}.",
            show_default=False,
            rich_help_panel=_WHAT,
        ),
    ] = "auto",
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="N|LIST",
            help="Only so many, or these: 2 or 0,2. 1: one process.",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    port: Annotated[
        str,
        typer.Option(
            "--port",
            metavar="N|auto",
            help="Where the ranks meet. Default: as the config says, else a free one (auto).",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    node_rank: Annotated[
        int | None,
        typer.Option(
            "--node-rank", metavar="K", min=0, help="Which of several machines this is.", rich_help_panel=_WHAT
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="No question; not verified is refused.", rich_help_panel=_GATE)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show everything, start nothing.", rich_help_panel=_GATE)
    ] = False,
    print_command: Annotated[
        bool,
        typer.Option(
            "--print-command", help="Only the command, with its environment, as it pastes.", rich_help_panel=_GATE
        ),
    ] = False,
    unverified: Annotated[
        str,
        typer.Option(
            "--unverified",
            metavar="WHAT",
            help="ask, allow or refuse what no smoke test has passed. Default: ask; refuse where nobody can be asked.",
            rich_help_panel=_GATE,
        ),
    ] = "",
    smoke: Annotated[
        str,
        typer.Option(
            "--smoke",
            metavar="WHEN",
            help="The smoke test: auto (offered when needed), always or never.",
            show_default=False,
            rich_help_panel=_GATE,
        ),
    ] = "auto",
    exec_: Annotated[
        bool,
        typer.Option("--exec", help="Replace this process: nothing is watched or explained.", rich_help_panel=_WHILE),
    ] = False,
    triage: Annotated[
        bool,
        typer.Option(
            "--triage/--no-triage", help="Explain a failure at the end.", show_default=False, rich_help_panel=_WHILE
        ),
    ] = True,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SEC",
            min=0,
            help="End the training then, with exit code 124.",
            show_default=False,
            rich_help_panel=_WHILE,
        ),
    ] = 0,
    log_dir: Annotated[
        str, typer.Option("--log-dir", metavar="DIR", help="Default: runs/TIME.", rich_help_panel=_WHILE)
    ] = "",
    json_result: Annotated[
        str,
        typer.Option("--json-result", metavar="FILE", help="Write there how it ended.", rich_help_panel=_WHILE),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave it running without this terminal.", rich_help_panel=_WHILE)
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="The GPUs at work, live. With a script: start it detached and watch; else [RUN].",
            rich_help_panel=_WHILE,
        ),
    ] = False,
    attach: Annotated[
        bool, typer.Option("--attach", help="Follow a run to its end: [RUN], else the latest.", rich_help_panel=_RUNS)
    ] = False,
    status: Annotated[
        bool,
        typer.Option(
            "--status", help="List the runs, or show one: [RUN]. --json-result - for JSON.", rich_help_panel=_RUNS
        ),
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End a run: [RUN], else the only one.", rich_help_panel=_RUNS)
    ] = False,
    slurm: Annotated[
        bool,
        typer.Option(
            "--slurm",
            help="SCRIPT is a job script, or a Python script for which one is written: submit it and follow it. "
            "--attach, --status and --stop take the job's number.",
            rich_help_panel=_SLURM,
        ),
    ] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", min=1, help="Nodes that train.", rich_help_panel=_SLURM)
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", metavar="N", min=0, help="0: ranks on the CPU.", rich_help_panel=_SLURM),
    ] = None,
    partition: Annotated[
        str, typer.Option("--partition", metavar="NAME", help="Default: Slurm's.", rich_help_panel=_SLURM)
    ] = "",
    account: Annotated[
        str, typer.Option("--account", metavar="NAME", help="Default: Slurm's.", rich_help_panel=_SLURM)
    ] = "",
    qos: Annotated[str, typer.Option("--qos", metavar="NAME", help="Default: Slurm's.", rich_help_panel=_SLURM)] = "",
    time: Annotated[
        str,
        typer.Option("--time", metavar="LIMIT", help="As Slurm reads it: 12:00:00.", rich_help_panel=_SLURM),
    ] = "",
    spare: Annotated[
        int,
        typer.Option(
            "--spare",
            metavar="K",
            min=0,
            help="Ask for K nodes more, which stand in for bad ones.",
            show_default=False,
            rich_help_panel=_SLURM,
        ),
    ] = 0,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight/--no-preflight",
            help="Examine, compare and test the nodes before the training starts.",
            show_default=False,
            rich_help_panel=_SLURM,
        ),
    ] = True,
) -> int:
    """Start SCRIPT [ARGS...] with the verified config, watch it, and end with its exit code.

    Options of mgpu come before the script; everything after it is the script's, untouched.
    """
    from mgpu.cli import launch_line
    from mgpu.launch.request import Request

    return launch_line.launch(
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
            slurm=slurm,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            partition=partition,
            account=account,
            qos=qos,
            time=time,
            spare=spare,
            preflight=preflight,
            watch=watch,
            log_dir=log_dir,
            json_result=json_result,
        )
    )
