"""The command line: options in, exit code out.

Each command has a file of its name here with one table of options. Its code is imported when it runs, so `--help` and
`--version` load neither torch nor questionary nor pynvml. `app.py` builds the typer application, which is only needed
for command lines that `option_parser.py` cannot read. Importing this package loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. An expected failure is a message on stderr, not a traceback."""
    from mgpu import exit_status
    from mgpu.cli import chosen_python, exit_style, option_parser
    from mgpu.errors import MgpuError

    exit_status.tolerate_encoding_errors()
    if shell := os.environ.get("_MGPU_COMPLETE"):  # the shell asks for completions
        from mgpu.cli import completion

        return completion.answer(argv, shell)
    try:
        line = option_parser.read(argv)
    except MgpuError as error:  # in the project's settings
        return exit_status.refused(error)
    if line:
        command, values = line
        return exit_style.run(argv, lambda: chosen_python.start(command, values))
    if not argv:
        from mgpu.cli import guide

        return exit_style.run(argv, lambda: guide.guide(run))
    if argv[0].endswith("-completion") and len(argv) < 3:
        from mgpu.cli import completion

        if act := completion.ACTIONS.get(argv[0]):
            return exit_style.run(argv, lambda: act("".join(argv[1:])))
    from mgpu.cli import app

    return app.run(argv)
