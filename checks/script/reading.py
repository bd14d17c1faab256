"""Could the script be read at all?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Script


@check(Severity.WARNING, source="https://docs.python.org/3/library/ast.html", tags=("unreadable",))
def script_does_not_compile(script: Script) -> Answer:
    """The script is not Python that can be read.

    Why: Every rank would stop at once with the same error, and nothing else in the script could be looked at.

    Fix: Mend the line; python -m py_compile shows the same.
    """
    if script.error is None:
        return Ok(f"{script.lines:,} lines, {1 + len(script.files)} file{'s' * bool(script.files)}")
    where = f"line {script.error_line}: " if script.error_line else ""
    return Problem(
        f"{where}{script.error}",
        fix=Fix(f"Mend {'the line' if script.error_line else 'the file'}; python -m py_compile FILE shows the same."),
        place=Place(script.path, script.error_line),
    )
