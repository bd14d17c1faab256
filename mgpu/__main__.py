"""`mgpu` and `python -m mgpu`."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the current folder, which `python -m` puts first: a json.py in it is not mgpu's

import os


def main() -> None:
    """Run the command line and exit with mgpu's exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):  # used by prologs and scripts: answer before importing anything
        from mgpu.version import __version__

        print(f"mgpu {__version__}")
        return
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command line handles it
        if sys.stderr is not None:
            print("mgpu: interrupted", file=sys.stderr)
        sys.exit(130)
    except (OSError, ImportError) as error:  # too few file descriptors or too little memory to import a command
        sys.exit(_report_failure(error))


def _run(argv: list[str]) -> int:
    from mgpu.cli import chosen_python, early_probes, run
    from mgpu.process import signals

    signals.raise_on_signals()
    try:
        if "_MGPU_COMPLETE" not in os.environ:
            chosen_python.enter_for_line(argv)
            early_probes.start(argv)
        return run(argv)
    finally:
        if children := sys.modules.get("mgpu.process.child_process"):  # imported by whatever started one
            children.end_all()


def _report_failure(error: Exception) -> int:
    """Print the reason and return the exit code, without importing anything.

    The code is 125 for a launch (docs/exit-codes.md), else 3. With MGPU_DEBUG set, the error is raised instead.
    """
    if "MGPU_DEBUG" in os.environ:
        raise error
    code = 125 if sys.argv[1:2] == ["launch"] else 3
    if sys.stderr is not None:  # if stderr is closed, print would write to stdout
        try:
            print(f"mgpu: not started: {error}", file=sys.stderr)
        except OSError:
            return code
    return code


if __name__ == "__main__":
    main()
