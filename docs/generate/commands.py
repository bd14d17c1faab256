"""A page for each command, from its option records."""

from __future__ import annotations

import inspect

from docs.generate.markup import code, front, plain, table
from mgpu.cli import option_parser
from mgpu.cli.option import Command, Option
from mgpu.exit_status import COMMANDS


def pages() -> dict[str, str]:
    """Return the page of every command."""
    return {f"reference/{name}.md": _page(option_parser.command_named(name)) for name in COMMANDS}


def _page(command: Command) -> str:
    title = f"mgpu {command.name}"
    parts = [front(title, command.summary), f"# {title}\n", f"```text\nmgpu {command.name} {command.usage}\n```\n"]
    parts += [f"{plain(part)}\n" for part in (inspect.getdoc(command.run) or "").split("\n\n")]
    for heading in dict.fromkeys(option.panel for option in command.every_option[:-1]):
        mine = [option for option in command.every_option if option.panel == heading]
        others = [option for option in command.every_option if not option.panel] if not heading else []
        parts.append(f"## {heading or 'Options'}\n")
        parts.append(table(("Option", "Meaning"), map(_row, others or mine)))
    if not any(not option.panel for option in command.every_option[:-1]):
        parts.append("## Every command\n")
        parts.append(table(("Option", "Meaning"), [_row(command.every_option[-1])]))
    return "\n".join(parts)


def _row(option: Option) -> tuple[str, str]:
    flags = [*sorted(option.on, key=len, reverse=True), *option.off]
    value = f" {option.metavar or option.kind.__name__.upper()}" if option.kind is not bool else ""
    shown = "<br>".join(
        code(flag + (value if flag.startswith("--") and flag not in option.off else "")) for flag in flags
    )
    anchors = "".join(f'<a id="{flag}"></a>' for flag in flags if flag.startswith("--"))
    return anchors + shown, plain(option.help) + _limits(option)


def _limits(option: Option) -> str:
    """The default, the range and that an option may be repeated, as a sentence each."""
    said = [f" Default: {code(option.initial)}."] if option.initial not in (None, "", False, True, 0, 0.0) else []
    if "default" in option.help.lower() or not option.show_default:
        said = []
    if option.least is not None and option.most is not None:
        said.append(f" {option.least:g} to {option.most:g}.")
    elif option.least is not None and option.least > 0:
        said.append(f" At least {option.least:g}.")
    if option.kind is list and "repeatable" not in option.help:
        said.append(" Repeatable.")
    return "".join(said)
