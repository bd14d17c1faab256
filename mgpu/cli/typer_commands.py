"""The commands for typer: parameters made from the option records, help in groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from mgpu.cli.option import Command, Option, Values

_PROGRAM: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


Start = Callable[[Command, Values], int]


def add(app: typer.Typer, command: Command, start: Start = lambda command, values: command.start(values)) -> None:
    """Add a command to the application; `start` runs it."""
    app.command(
        command.name,
        cls=_grouped(command) if any(option.panel for option in command.options) else None,
        short_help=command.summary,
        options_metavar=command.usage,
        context_settings=_PROGRAM if command.starts else None,
    )(function(command, start))


def function(command: Command, start: Start) -> Callable[..., int]:
    """Return a function that runs the command, with the signature that typer reads."""

    def run(**values: Any) -> int:
        values.pop("help_slurm", None)
        if command.words:
            context = values.pop(_CONTEXT) if command.starts else None
            values[command.words] = tuple(context.args if context else values[command.words] or ())
            if context and command.line:
                values[command.line] = context.meta.get(_DASHES, False)
        return start(command, values)

    parameters = [_parameter(option.name, _kind(option), _default(option)) for option in command.every_option]
    if command.folded_panel:
        parameters.append(_parameter("help_slurm", Annotated[bool, _HELP_SLURM], False))
    if command.starts:
        parameters.append(_parameter(_CONTEXT, typer.Context, inspect.Parameter.empty))
    elif command.words:
        words = typer.Argument(hidden=True, metavar=command.metavar)
        parameters.append(_parameter(command.words, Annotated[list[str] | None, words], None))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = command.run.__doc__
    return run


_CONTEXT: Final = "context"
_DASHES: Final = "mgpu.dashes"  # whether -- comes before the program that a command starts


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(option: Option) -> Any:
    """The default as the help shows it: 30, not 30.0."""
    number = option.initial
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _kind(option: Option) -> Any:
    """The annotation of an option's parameter."""
    settings = typer.Option(
        *option.flags.split(),
        metavar=option.metavar or None,
        help=option.help,
        min=option.least,
        max=option.most,
        show_default=option.show_default,
        rich_help_panel=option.panel or None,
    )
    kind: Any = list[str] if option.kind is list else option.kind
    return Annotated[kind | None if option.initial is None else kind, settings]


class Grouped(TyperCommand):
    """A command with its options in groups, which also accepts `--validate=FILE`."""

    folded_panel = ""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by heading, without the folded ones."""
        for title, records in self.panels(ctx).items():
            if title != self.folded_panel:
                with formatter.section(title):
                    formatter.write_dl(records)

    def panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """The options by heading: flags and help of each."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(option, "rich_help_panel", None) or "Other", []).append(record)
        return groups

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `--validate=FILE` as two words."""
        if not ctx.allow_interspersed_args:  # the arguments of a script
            words = list(args)
            rest = super().parse_args(ctx, args)
            ctx.meta[_DASHES] = words[: len(words) - len(rest)][-1:] == ["--"]
            return rest
        end = args.index("--") if "--" in args else len(args)
        split = [
            word
            for number, arg in enumerate(args)
            for word in (arg.split("=", 1) if number < end and arg.startswith(_TAKES_FILES) else [arg])
        ]
        return super().parse_args(ctx, split)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line, which already has FILE... after its option."""
        return [self.options_metavar or ""]


_TAKES_FILES = ("--validate=", "--show-origin=")


def _grouped(command: Command) -> type[Grouped]:
    return type("Grouped", (Grouped,), {"folded_panel": command.folded_panel})


def _show_folded(context: typer.Context, wanted: bool) -> None:
    """Print the options that the help leaves out (--help-slurm), and exit."""
    grouped: Any = context.command
    if wanted:
        formatter = context.make_formatter()
        with formatter.section(grouped.folded_panel):
            formatter.write_dl(grouped.panels(context)[grouped.folded_panel])
        print(formatter.getvalue(), end="")
        raise typer.Exit


_HELP_SLURM: Final = typer.Option(
    "--help-slurm", is_eager=True, callback=_show_folded, help="Show the options of Slurm and other job engines."
)
