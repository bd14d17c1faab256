"""The four commands as one typer application."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from mgpu.cli.configure import Grouped, configure
from mgpu.cli.doctor import doctor, flags_alone
from mgpu.cli.launch import launch
from mgpu.cli.panels import Panels
from mgpu.cli.smoke_test import smoke_test
from mgpu.exit_status import code_of, guarded, never_die_of_a_character
from mgpu.version import __version__

app = typer.Typer(
    name="mgpu",
    help="Set up, check and launch multi-GPU PyTorch training.",
    no_args_is_help=False,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
app.command("doctor", short_help="Is this machine ready? Changes nothing.")(doctor)
app.command(
    "configure",
    cls=Grouped,
    short_help="A config that fits this machine, or check one.",
    options_metavar="[OPTIONS] [--validate FILE...]",
)(configure)
app.command("smoke-test", short_help="Do all ranks train together?")(smoke_test)
app.command(
    "launch",
    cls=Panels,
    short_help="Start your script with the verified config.",
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    # Everything after the script belongs to the script, --help and --yes included.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)(launch)


@app.callback(invoke_without_command=True)
def _bare(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    """Set up, check and launch multi-GPU PyTorch training."""
    if version:
        print(f"mgpu {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from mgpu.cli import guide

        raise typer.Exit(guide.guide(run))


@cache
def _parser() -> Any:
    return typer.main.get_command(app)


def run(argv: Sequence[str]) -> int:
    """Run one command line and give its exit code. Known trouble is one message on stderr, never a traceback."""
    never_die_of_a_character()
    completing = "_MGPU_COMPLETE" in os.environ  # the shell asks for completions
    if not completing and list(argv[:1]) == ["doctor"] and (flags := flags_alone(argv[1:])) is not None:
        return guarded(lambda: doctor(**flags))
    if not completing and list(argv[:1]) == ["configure"] and "--validate" in argv:
        from mgpu.validate import run as validate_run

        if (request := validate_run.alone(argv[1:])) is not None:
            return guarded(lambda: validate_run.run(request))
    command = _parser()
    if completing:
        return code_of(command.main(args=list(argv), prog_name="mgpu", standalone_mode=False))

    def invoke() -> Any:
        # Not `command.main`: it answers Ctrl-C and a closed pipe itself, with a code that means something else here.
        with command.make_context("mgpu", list(argv)) as context:
            return command.invoke(context)

    return _for_scheduler(argv, invoke)


_UNREADABLE = {"prolog": 0, "nagios": 3}  # 2 would drain every node that has the typing error, or mean critical


def _for_scheduler(argv: Sequence[str], invoke: Callable[[], Any]) -> int:
    """The command; a line that cannot be read condemns no node."""
    style = next((style for style in _UNREADABLE if _asks(argv, style)), "")
    if not style:
        return guarded(invoke)
    read = False

    def told() -> Any:
        nonlocal read
        found = invoke()
        read = True
        return found

    code = guarded(told)
    if read or code == 0:  # 0: it was asked for its help
        return code
    if style == "nagios":
        guarded(lambda: print("MGPU UNKNOWN - mgpu could not be asked: see its standard error"))
    return _UNREADABLE[style]


def _asks(argv: Sequence[str], style: str) -> bool:
    words = list(argv)
    return f"--exit-style={style}" in words or ["--exit-style", style] in [words[n : n + 2] for n in range(len(words))]
