"""Why could a package (transformers, diffusers, trl) not import one of its own modules, which it does on first use?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .. import _skew_meanings as meanings

_SHOWN = 200  # characters of a reason
_BEFORE = "(look up to see its traceback):"
_MODULE = re.compile(r"Failed to import (?P<module>(?P<package>\w+)\.[\w.]+) because")
_MISSING = re.compile(r"No module named '(?P<module>[\w.]+)'")


def explain_lazy_import(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain it by the reason, with which the exception's message ends."""
    text = f"{raised.message} {raised.more or ''}" if raised else ""
    found = _MODULE.search(text)
    _, before, after = text.rpartition(_BEFORE)
    reason = " ".join(after.split())
    if not (found and before and reason):
        return None
    if missing := _MISSING.match(reason):
        explain = meanings.explain_module if "." in missing["module"] else meanings.explain_installable
        if meaning := explain(missing.groupdict(), raised):
            return meaning
    module, package = found["module"], found["package"]
    return Meaning(
        f"{package} could not import its module {module}: {reason[:_SHOWN]}",
        f"{package} imports its modules when they are first used, and repeats the reason. Something that the module "
        "imports is missing, damaged or of another version.",
        (
            Fix(
                "Import the module alone, and look at the first exception.",
                (shell("python -c {code}", code=f"import {module}"), "pip check"),
            ),
        ),
    )
