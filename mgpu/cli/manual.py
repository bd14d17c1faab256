"""`python -m mgpu.cli.manual`: write the man pages, `docs/man/*.1`, from the option records.

Form: man(7), groff_man(7). The date is left out, so that the same options give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from mgpu import errors
from mgpu.cli import completion, option_parser
from mgpu.cli.option import Command, Option
from mgpu.exit_status import COMMANDS
from mgpu.version import __version__

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "man"
_PURPOSE: Final = "set up, check and launch multi-GPU PyTorch training"
# fmt: off
_CODES: Final = (
    (errors.READY, "ready, passed, valid, or the run succeeded"),
    (errors.NOT_READY, "a failure was found"),
    (errors.USAGE, "the command line or a file that it names is invalid"),
    (errors.UNKNOWN, "could not be determined"),
    (errors.NO_GPU, "this machine has no GPU"),
    (errors.REFUSED, "refused, for example because GPUs are in use"),
    (errors.TIMED_OUT, "the time limit was reached"),
    (errors.LAUNCH_REFUSED, "launch did not start the run"),
    (errors.CANNOT_RUN, "the launcher cannot be executed"),
    (errors.NOT_FOUND, "the launcher was not found"),
    (errors.INTERRUPTED, "interrupted"),
)
_VARIABLES: Final = (
    ("VIRTUAL_ENV, CONDA_PREFIX", "The environment that mgpu examines if its own Python has no torch."),
    ("NO_COLOR, MGPU_COLOR=never", "Never color the output."),
    ("MGPU_*", "Answers of configure: MGPU_BATCH_PER_GPU=8 is the same as --batch-per-gpu 8."),
    ("MGPU_DEBUG", "Show the traceback of an error in mgpu."),
)
# fmt: on


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    commands = [option_parser.command_named(name) for name in COMMANDS]
    return {"mgpu.1": _overview(commands)} | {f"mgpu-{one.name}.1": _page(one) for one in commands}


def main() -> None:
    """Write the pages into the clone."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        FOLDER.joinpath(name).write_text(text, "utf-8")


def _overview(commands: list[Command]) -> str:
    lines = [_head("mgpu"), ".SH NAME", rf"mgpu \- {_PURPOSE}", ".SH SYNOPSIS", r".B mgpu", r"\fICOMMAND\fR [OPTIONS]"]
    lines += [".SH COMMANDS"]
    for command in commands:
        lines += [".TP", rf".BR mgpu\-{_escaped(command.name)} (1)", _escaped(command.summary)]
    lines += [".SH OPTIONS"]
    for flag, text in completion.GLOBAL:
        lines += [".TP", rf".B {_escaped(flag)}", _escaped(text)]
    lines += [".SH EXIT STATUS"]
    for code, text in _CODES:
        lines += [".TP", f".B {code}", _escaped(text)]
    lines += [".SH ENVIRONMENT"]
    for name, text in _VARIABLES:
        lines += [".TP", f".B {_escaped(name)}", _escaped(text)]
    return "\n".join(lines) + "\n"


def _page(command: Command) -> str:
    name = f"mgpu-{command.name}"
    lines = [_head(name), ".SH NAME", rf"{_escaped(name)} \- {_escaped(command.summary[0].lower())}"]
    lines[-1] += _escaped(command.summary[1:].rstrip("."))
    words = "" if command.starts or not command.words else f" [{command.metavar}]"
    lines += [".SH SYNOPSIS", rf".B mgpu {_escaped(command.name)}", _escaped(command.usage + words)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.run.__doc__ or "")]
    for title, options in groupby(command.every_option, key=lambda option: option.panel):
        lines.append(f'.SH "{(title or "Options").upper()}"')
        for option in options:
            lines += _option(option)
    lines += [".SH EXIT STATUS", "See", ".BR mgpu (1).", ".SH SEE ALSO"]
    lines.append(
        ", ".join(["\\fBmgpu\\fR(1)", *(rf"\fBmgpu\-{_escaped(one)}\fR(1)" for one in COMMANDS if one != command.name)])
    )
    return "\n".join(lines) + "\n"


def _option(option: Option) -> Iterator[str]:
    flags = ", ".join(rf"\fB{_escaped(flag)}\fR" for flag in (*option.on, *option.off))
    value = "" if option.kind is bool else rf" \fI{_escaped(option.metavar or option.kind.__name__.upper())}\fR"
    yield ".TP"
    yield flags + value
    yield _escaped(option.help)
    default = option.initial
    if option.show_default and default not in (None, "", False, True) and "efault" not in option.help:
        yield rf"Default: {_escaped(f'{default:g}' if isinstance(default, float) else str(default))}."


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _escaped(" ".join(paragraph.split()))


def _head(name: str) -> str:
    return f'.TH "{name.upper()}" 1 "" "mgpu {__version__}" "mgpu"'


def _escaped(text: str) -> str:
    """Return text that groff shows as it is: no control lines, no macros, plain hyphens and quotes."""
    plain = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    return rf"\&{plain}" if plain.startswith(".") else plain


if __name__ == "__main__":
    main()
