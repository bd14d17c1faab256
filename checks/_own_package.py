"""Is a module that Python does not find the package in which the script itself is?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException


def explain_own_package(module: str, one: UncaughtException) -> Meaning | None:
    """Explain an import of the folder that the script is in; None if the path of the failed file does not have it."""
    top = module.partition(".")[0]
    file = next((call.file for call in reversed(one.calls) if call.file), "")
    above, inside, rest = f"/{file}".rpartition(f"/{top}/")
    if not inside:
        return None
    above = above[1:] or "/" * file.startswith("/")
    path = shell("export PYTHONPATH={:path}:$PYTHONPATH", above) if above else "export PYTHONPATH=$PWD:$PYTHONPATH"
    parts = f"{top}/{rest.removesuffix('.py')}".split("/")
    as_module = (Fix("Start the script as a module, in that folder.", (shell("python -m {}", ".".join(parts)),)),)
    return Meaning(
        f"Python does not find {module}: the script is in {top}, and the folder above it is not on Python's path",
        f"{one.place} imports it. Python searches the folder of the script that is started, not the current folder, so "
        f"it does not see {top} from inside. (PyPI may have a package of that name too. It is another one.)",
        (
            Fix(
                "Put the folder that contains it on the path of all ranks, or install the project.",
                (path, "pip install -e ."),
            ),
            *(as_module if all(re.fullmatch(r"[A-Za-z_]\w*", part) for part in parts) else ()),
        ),
    )
