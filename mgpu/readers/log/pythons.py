"""Of which versions of Python are the packages of a failed import? The paths of a traceback's frames have them.

A folder of another version is searched because of PYTHONPATH (a module of the cluster, ROS) or sys.path. Its compiled
modules do not exist for the Python that runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_FRAME = re.compile(r"File \"[^\"\n]{0,300}[/\\]python(?P<version>\d\.\d{1,2})[/\\](?:site|dist)-packages[/\\]")
_RUNS = re.compile(r"The Python version is: Python ?(?P<version>\d\.\d{1,2})\b")  # numpy's advice
_IMPORTS = ("ImportError", "ModuleNotFoundError")
_BEFORE, _AFTER = 120, 30  # lines: a chain of tracebacks, and numpy's advice below the last of them


def find(lines: Sequence[str], last: int, kind: str) -> tuple[str, ...]:
    """Return the version that runs, as far as the log shows it, and then that of the package that failed.

    Empty if they are one. `lines`: of the end of the log. `last`: the place of the exception among them, whose type is
    `kind`.
    """
    if kind not in _IMPORTS:
        return ()
    chain = lines[max(0, last - _BEFORE) : last]
    begins = [at for at, line in enumerate(chain) if "Traceback (most recent call last)" in line]
    chain = chain[begins[-1] :] if begins else []
    versions = [found["version"] for line in chain if (found := _FRAME.search(line))]
    below = lines[last + 1 : last + 1 + _AFTER]
    end = next((at for at, line in enumerate(below) if "Traceback (most recent" in line), len(below))
    runs = next((found["version"] for line in below[:end] if (found := _RUNS.search(line))), None)
    if not versions:
        return ()
    both = (runs or versions[0], versions[-1])
    return both if both[0] != both[1] else ()
