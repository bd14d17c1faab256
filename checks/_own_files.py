"""Which file of a project, not of an installed package, lacks a name that is imported from it?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from . import _version_skew as skew

_FROM = re.compile(r"cannot import name '[\w.]+' from '[\w.]+' \((?P<path>(?P<folder>/[^()]*/)[^()/]+\.py)\)")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/\.local/")


def explain(module: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a name that a module of a project lacks; None if the module is of an installed package."""
    found = _FROM.search(raised.message) if raised else None
    top = module.partition(".")[0]
    of_module = module.replace(".", "/")
    if found is None or not found["path"].endswith((f"/{of_module}.py", f"/{of_module}/__init__.py")):
        return None
    if _INSTALLED.search(found["path"]) or skew.is_known(top):
        return None
    return Meaning(
        f"{found['path']} has no {name}",
        "It is a file of a project, not of an installed package, so pip cannot repair it. The importing code was "
        "written for another branch or commit of that project, the name was changed in one of the two files, or "
        f"another project's {top} comes first on Python's path.",
        (
            Fix(
                f"See where {name} is defined, here or in another branch, and check that one out.",
                (
                    shell("grep -rnw --include='*.py' {:name} {:path}", name, found["folder"]),
                    shell("git -C {:path} branch -a", found["folder"]),
                    shell("git -C {:path} log --all --oneline -S {:name}", found["folder"], name),
                ),
            ),
            Fix(
                f"If {top} of another project is meant, put that project's folder first.",
                ("export PYTHONPATH=PROJECT:$PYTHONPATH",),
            ),
        ),
    )
