"""What does the shell offer for a word of a command line that is being typed?

The script of each shell (`completions/`) starts mgpu with _MGPU_COMPLETE=SHELL and the words up to the cursor. The
answer is one line per value, with a tab and its meaning; `:files` and `:folders` leave the rest to the shell. All of it
comes from the option records. typer is not imported: it would take most of the time that the user waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mgpu import file_reading
from mgpu.cli import option_parser
from mgpu.cli.option import Command, Option, Values
from mgpu.errors import NOT_READY, USAGE, MgpuError, reason
from mgpu.exit_status import COMMANDS
from mgpu.text import listed

SHELLS: Final = ("bash", "zsh", "fish")
SHOW: Final = "--show-completion"
INSTALL: Final = "--install-completion"
# fmt: off
GLOBAL: Final = (
    ("--help", "Show the help."), ("--version", "Show the version."), ("--no-color", "Never color the output."),
    (SHOW, "Print the completion script of a shell: bash, zsh or fish."),
    (INSTALL, "Add the completion to a shell's start file."),
)
# fmt: on
_MOST_BYTES: Final = 1 << 20  # of a start file
_FILES: Final = ":files"
_FOLDERS: Final = ":folders"
_OF_METAVAR: Final = {"FILE": _FILES, "PATH": _FILES, "SCRIPT": _FILES, "DIR": _FOLDERS, "DIR|FILE": _FILES}
_START_FILES: Final = {
    "bash": (".bashrc", 'eval "$(mgpu --show-completion bash)"'),
    "zsh": (".zshrc", 'eval "$(mgpu --show-completion zsh)"'),
    "fish": (".config/fish/completions/mgpu.fish", "mgpu --show-completion fish | source"),
}


def answer(words: Sequence[str], shell: str) -> int:
    """Print what can complete the last of the words, and return the exit code."""
    if shell == "bash":
        words = _joined(words)
    for value, meaning in dict(offers(words, shell)).items():
        print(f"{value}\t{' '.join(meaning.split())}" if meaning else value)
    return 0


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    name = "_mgpu" if shell == "zsh" else f"mgpu.{shell}"  # as the shells' folders of completions need it
    return Path(__file__).with_name("completions").joinpath(name).read_text("utf-8")


def show(shell: str) -> int:
    """Print the completion script of a shell."""
    print(script(_known(shell)), end="")
    return 0


def install(shell: str) -> int:
    """Add the completion to a shell's start file, unless it is there. Raises MgpuError."""
    name, line = _START_FILES[_known(shell)]
    path = Path.home() / name
    try:
        old = file_reading.read(path, most=_MOST_BYTES) if path.exists() else b""
        if line.encode() in old.splitlines():
            print(f"{path} has it already")
            return 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"\n" * (bool(old) and not old.endswith(b"\n")) + line.encode() + b"\n")
    except OSError as error:
        raise MgpuError(f"{path}: {reason(error)}", NOT_READY) from None
    print(f"Added to {path}:  {line}")
    return 0


ACTIONS: Final = {SHOW: show, INSTALL: install}


def _known(shell: str) -> str:
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SHELLS:
        given = f"{SHOW} {shell}: " if shell else f"{SHOW}: "
        raise MgpuError(f"{given}choose {listed(SHELLS, 'or')}", USAGE)
    return shell


def offers(words: Sequence[str], shell: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value that can complete the last of the words (those after `mgpu`), with its meaning."""
    *before, begun = words or ("",)
    name = next((word for word in before if not word.startswith("-")), "")
    if before[-1:] in ([SHOW], [INSTALL]):
        yield from ((one, "") for one in SHELLS if one.startswith(begun))
    elif not name:
        summaries = ((one, option_parser.command_named(one).summary) for one in COMMANDS)
        yield from ((value, text) for value, text in (*summaries, *GLOBAL) if value.startswith(begun))
    elif name in COMMANDS:
        yield from _of_command(option_parser.command_named(name), before[before.index(name) + 1 :], begun, shell)


def _of_command(command: Command, before: Sequence[str], begun: str, shell: str) -> Iterator[tuple[str, str]]:
    options = command.every_option
    by_flag = {flag: option for option in options for flag in (*option.on, *option.off)}
    values, waiting, program = _read(command, by_flag, before)
    if program:  # everything after the script is the script's
        yield _FILES, ""
    elif waiting:
        yield from _values(waiting, begun)
    elif begun.startswith("--") and "=" in begun:
        flag, _, part = begun.partition("=")
        if option := by_flag.get(flag):
            given = "" if shell == "bash" else f"{flag}="
            yield from ((value if value[0] == ":" else given + value, text) for value, text in _values(option, part))
    elif begun.startswith("-"):
        for option in options:
            meant = {**dict.fromkeys(option.on, option.help), **dict.fromkeys(option.off, f"Turn off: {option.help}")}
            yield from ((flag, text) for flag, text in meant.items() if flag[:2] == "--" and flag.startswith(begun))
        yield from ((flag, text) for flag, text in GLOBAL[:1] if flag.startswith(begun))
    else:
        found = command.complete_words(values, begun) if command.complete_words else []
        yield from ((value, "") for value in found)
        if not found and command.words:
            yield _FILES, ""


def _values(option: Option, begun: str) -> Iterator[tuple[str, str]]:
    """Yield the values of an option."""
    found = option.complete(begun) if option.complete else []
    yield from ((value, "") for value in found)
    if not found and option.metavar in _OF_METAVAR:
        yield _OF_METAVAR[option.metavar], ""


def _read(command: Command, by_flag: dict[str, Option], before: Sequence[str]) -> tuple[Values, Option | None, bool]:
    """Return the values given so far, the option that waits for its value, and whether the user's program began."""
    values: Values = {option.name: option.initial for option in by_flag.values()}
    waiting: Option | None = None
    for word in before:
        flag, equals, text = word.partition("=")
        if waiting:
            values[waiting.name], waiting = word, None
        elif word == "--" or not word.startswith("-"):
            about_runs = command.complete_words and command.complete_words(values, "") != []
            if command.starts and not about_runs:
                return values, None, True
        elif option := by_flag.get(flag):
            if option.kind is bool:
                values[option.name] = flag in option.on
            elif equals:
                values[option.name] = text
            else:
                waiting = option
    return values, waiting, False


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words as typed: bash splits at an equals sign."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined
