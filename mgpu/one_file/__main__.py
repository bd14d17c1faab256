"""`python -m mgpu.one_file OUT.pyz`."""

from __future__ import annotations

import sys
from pathlib import Path

from mgpu import exit_status
from mgpu.errors import USAGE, MgpuError


def main() -> int:
    """Write the file that the command line names, and return the exit code."""
    from mgpu.one_file import build

    flag = "--this-python"
    names = [word for word in sys.argv[1:] if word != flag]
    if len(names) != 1 or names[0].startswith("-"):
        raise MgpuError(f"usage: python -m mgpu.one_file [{flag}] FILE.pyz", USAGE)
    made = build.write(Path(names[0]), this_python=flag in sys.argv[1:])
    print(f"Wrote {names[0]}: {made.files} files, {made.bytes / 1e6:.1f} MB, for {made.pythons}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_status.guarded(main))
