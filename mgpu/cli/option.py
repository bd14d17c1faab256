"""What is a command, and what is one of its options? One record each.

The parameters of typer (`typer_commands.py`) and the parser of plain lines (`option_parser.py`) are both made from
these records. Nothing here imports typer, which a plain command line does not need.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe

Values = dict[str, Any]  # of all options of a command, by their names

_DIGITS: Final = 15  # of a number that int and float read exactly; typer handles longer ones
_NOT_GIVEN: Final[dict[type, Any]] = {bool: False, str: ""}


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    flags: str  # "--config -c", or with the flag that turns it off: "--stamp/--no-stamp"
    kind: type  # of its value: bool (the flag is the value), str, int, float, or list (one text per use)
    help: str
    metavar: str = ""
    field: str = ""  # of the command's Request; "": the name of the first flag
    default: Any = ...  # ...: False, "" or None, depending on `kind`
    least: float | None = None
    most: float | None = None
    panel: str = ""  # the heading in the help
    show_default: bool = True
    complete: Callable[[str], list[str]] | None = None  # for the shell: returns the values that start with a text

    @property
    def on(self) -> list[str]:
        """The flags that give the value or turn the switch on."""
        return self.flags.partition("/")[0].split()

    @property
    def off(self) -> list[str]:
        """The flag that turns the switch off, if there is one."""
        return self.flags.partition("/")[2].split()

    @property
    def name(self) -> str:
        """The key of its value."""
        return self.field or self.on[0].removeprefix("--").replace("-", "_")

    @property
    def initial(self) -> Any:
        """The value if the option is not given."""
        return _NOT_GIVEN.get(self.kind) if isinstance(self.default, EllipsisType) else self.default

    def read(self, text: str) -> Any:
        """Parse a text. None: typer has to parse or reject it."""
        if self.kind in (str, list):
            return text
        digits = text.replace(".", "", 1) if self.kind is float else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
            return None
        value = self.kind(text)
        above = self.least is None or self.least <= value
        return value if above and (self.most is None or value <= self.most) else None


@dataclass(frozen=True)
class Command:
    """One command: what runs, and everything it accepts."""

    name: str
    summary: str  # its line in `mgpu --help`
    run: Callable[[Values], int]  # its docstring is the head of the command's help
    options: tuple[Option, ...]
    words: str = ""  # the name under which `run` gets the arguments that are not options; "": there are none
    line: str = ""  # if it starts a program: the name of the value that is true if `--` comes before that program
    metavar: str = "FILE..."  # of these arguments
    complete_words: Callable[[Values, str], list[str]] | None = None  # for the shell, from the options before them
    usage: str = "[OPTIONS]"
    starts: bool = False  # the first argument is a program: everything after it belongs to that program
    early: Callable[[Values], Sequence[Probe]] | None = None  # probes to start before `run` is called
    stays: Callable[[Values], bool] | None = None  # whether it examines no environment, only files
    all_options: Callable[[], tuple[Option, ...]] | None = None  # if some of them take time to import
    folded_panel: str = ""  # a heading of the help whose options only --help-slurm shows

    @property
    def quick_options(self) -> tuple[Option, ...]:
        """Its options without those that take time to import."""
        return (*self.options, NO_COLOR)

    @property
    def every_option(self) -> tuple[Option, ...]:
        """Its options in the order of the help."""
        return (*(self.all_options() if self.all_options else self.options), NO_COLOR)

    def start(self, values: Values) -> int:
        """Act on the options that every command has, then run the command with its own."""
        if values[NO_COLOR.name]:
            os.environ["MGPU_COLOR"] = "never"
        return self.run(self.own(values))

    def own(self, values: Values) -> Values:
        """Return the values without those of the options that every command has."""
        return {name: value for name, value in values.items() if name != NO_COLOR.name}


NO_COLOR: Final = Option("--no-color", bool, "Never color the output; same as NO_COLOR=1.")


def among(*names: str) -> Callable[[str], list[str]]:
    """Return the completion of an option with these values."""
    return lambda begun: [name for name in names if name.startswith(begun)]


def panel(title: str, *options: Option) -> tuple[Option, ...]:
    """Return these options under one heading of the help."""
    return tuple(replace(option, panel=title) for option in options)
