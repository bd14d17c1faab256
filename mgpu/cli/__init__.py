"""The command line: options in, exit code out.

A command's options are one table in the file of its name here; what it does is imported when it runs, so that `--help`
and `--version` load neither torch, questionary nor pynvml. `app.py` puts the commands together for typer, which only a
line that is not plain needs (`option_parser.py`); importing this package loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run one command line and give its exit code. Known trouble is one message on stderr, never a traceback."""
    from mgpu import exit_status
    from mgpu.cli import exit_style, option_parser

    exit_status.never_die_of_a_character()
    completing = "_MGPU_COMPLETE" in os.environ  # the shell asks for completions
    if not completing and (line := option_parser.read(argv)):
        command, values = line
        return exit_style.run(argv, lambda: command.run(values))
    from mgpu.cli import app

    return app.run(argv)
