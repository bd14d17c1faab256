"""The command line: options in, exit code out.

A command's options are declared in the file of its name here; what it does is imported when it runs, so that `--help`
and `--version` load neither torch, questionary nor pynvml. `app.py` puts the commands together; importing this package
loads nothing, since the plain `mgpu launch` (`launch_line.py`) does without typer.
"""

from __future__ import annotations

from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run one command line and give its exit code. Known trouble is one message on stderr, never a traceback."""
    from mgpu.cli import app

    return app.run(argv)
