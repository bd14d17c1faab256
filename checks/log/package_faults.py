"""Did an installed package fail in its own code, whatever it was given?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log

from .. import _version_skew as skew
from ._messages import short_name

# Folders of code that is generated at run time: a mistake in it is not one of an installed package.
_GENERATED = frozenset({"unsloth_compiled_cache", "transformers_modules"})
# Python raises them for a mistake in the code itself.
_MISTAKES = frozenset({"UnboundLocalError", "NameError", "IndentationError", "SyntaxError", "TabError"})


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#UnboundLocalError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
    because_of=("log_bitsandbytes_without_cuda",),
)
def log_package_has_a_fault(log: Log) -> Answer:
    """An installed package failed because of a mistake in its own code.

    Why: Its code uses a name that it never set, in a case that its authors did not try, or the package was changed or
    installed only in part.

    Fix: Upgrade the package. Avoid the option that leads there until then.
    """
    for one in log.raised:
        short = short_name(one.type)
        package = one.packages[-1] if one.packages else ""
        if short not in _MISTAKES or not package or package in _GENERATED or one.signatures or one.caught:
            continue
        name = skew.distribution(package)
        return Problem(
            f"{name} has a mistake in its own code: {short}: {one.message}",
            fix=(
                Fix(
                    "Upgrade it, or look for this message in its issues.",
                    (shell("pip install --upgrade {:package}", name), shell("pip show {:package}", name)),
                ),
                Fix("Until then, avoid the option or the case that leads to this line."),
            ),
            evidence={"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
            subjects=tuple(f"rank {rank}" for rank in one.ranks),
            place=Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
