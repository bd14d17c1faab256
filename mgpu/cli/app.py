"""The four commands as one typer application."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from mgpu import cli
from mgpu.cli import chosen_python, exit_style, option_parser, project_defaults, typer_commands
from mgpu.exit_status import COMMANDS
from mgpu.version import __version__

app = typer.Typer(
    name="mgpu",
    help="Set up, check and launch multi-GPU PyTorch training.",
    no_args_is_help=False,
    add_completion=False,  # completion.py
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
for _name in COMMANDS:
    typer_commands.add(app, option_parser.command_named(_name), chosen_python.start)


@app.callback(invoke_without_command=True)
def _bare(
    context: typer.Context,
    show_completion: Annotated[
        bool, typer.Option("--show-completion", help="Print the completion script of SHELL: bash, zsh or fish.")
    ] = False,
    install_completion: Annotated[
        bool, typer.Option("--install-completion", help="Add the completion of SHELL to its start file.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Never color the output; same as NO_COLOR=1.")] = False,
) -> None:
    """Set up, check and launch multi-GPU PyTorch training."""
    if version:
        print(f"mgpu {__version__}")
        raise typer.Exit
    if no_color:
        os.environ["MGPU_COLOR"] = "never"
    if context.invoked_subcommand is None:
        from mgpu.cli import guide

        raise typer.Exit(guide.guide(cli.run))


@app.command("help", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def _help(context: typer.Context) -> None:
    """Show the help of mgpu, or of one command."""
    assert context.parent is not None
    if not context.args:
        print(context.parent.get_help())
        return
    group: Any = context.parent.command
    name, wanted, _ = group.resolve_command(context.parent, context.args)  # raises for an unknown command
    with wanted.make_context(f"mgpu {name}", ["--help"]):
        pass


@cache
def _parser() -> Any:
    return typer.main.get_command(app)


def _project_defaults(argv: Sequence[str]) -> dict[str, Any]:
    """The defaults that the project sets, by command and option. `--help` shows mgpu's own."""
    if argv[:1] == [] or argv[0] not in COMMANDS or {"-h", "--help"} & set(argv):
        return {}
    return {argv[0]: project_defaults.of(option_parser.command_named(argv[0]), argv)}


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    command = _parser()

    def invoke() -> Any:
        # Not `command.main`: it handles Ctrl-C and a closed pipe itself, with exit codes that mean something else here.
        with command.make_context("mgpu", list(argv), default_map=_project_defaults(argv)) as context:
            return command.invoke(context)

    return exit_style.run(argv, invoke)
