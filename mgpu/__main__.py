"""`mgpu` and `python -m mgpu`."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the current folder, which `python -m` puts first: a json.py in it is not mgpu's

import os


def main() -> None:
    """Run the command line; the process ends with mgpu's exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):  # asked from prologs and scripts: answer before anything is imported
        from mgpu import __version__

        print(f"mgpu {__version__}")
        return
    from mgpu import ahead

    try:
        ahead.start(sys.argv[1:])
        if sys.argv[1:2] == ["launch"] and "_MGPU_COMPLETE" not in os.environ:
            from mgpu.launch import line

            if (request := line.alone(sys.argv[2:])) is not None:
                sys.exit(line.run(request))
        from mgpu.cli import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command line took over
        sys.exit(130)
    finally:
        ahead.end()


if __name__ == "__main__":
    main()
