"""Was a package imported from a folder of another Python version than the one that runs?

Texts for `_skew_meanings.py`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from . import _version_skew as skew


def explain(what: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an import that failed in such a package; None if the frames are of one version, or show none."""
    if raised is None or not raised.pythons:
        return None
    runs, other = raised.pythons
    package = raised.packages[-1] if raised.packages and raised.packages[-1] else None
    name = skew.distribution(package) if package else "a package"
    return Meaning(
        f"{name} is imported from a folder of Python {other}, and Python {runs} runs: {what}",
        f"Compiled parts of a package are made for one version of Python. The folder is searched because of PYTHONPATH "
        f"(an environment module with Python packages, such as SciPy-bundle, or ROS sets it) or sys.path, before the "
        f"environment's own packages. Installing {name} again does not help.",
        (
            Fix(
                "Start without that folder: load no module that brings Python packages beside a conda or virtual "
                "environment.",
                ("module purge", "unset PYTHONPATH", "python -c 'import sys; print(sys.version, sys.path)'"),
            ),
            Fix(
                f"Or use Python {other}, for which that folder was made.",
                (shell("python{:number} -m venv ENV", other),),
            ),
        ),
    )
