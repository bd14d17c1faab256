"""Runs the program text in its first argument like `python -c`, but without the current folder on sys.path.

`python -c` puts the current folder first. The text could remove it, but Python 3.13 imports `linecache` before it runs
the first statement, so a `linecache.py` in that folder would be executed. `-P` needs Python 3.11.
"""

import sys

if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # the folder of this file, which Python adds unless one of these flags is set
    exec(compile(sys.argv.pop(1), "<mgpu>", "exec"), {"__name__": "__main__"})
