"""Can the script be parsed?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Script


@check(Severity.WARNING, source="https://docs.python.org/3/library/ast.html", tags=("unreadable",))
def script_does_not_compile(script: Script) -> Answer:
    """The script is not valid Python.

    Why: Every rank would stop immediately with the same error, and mgpu could not check the rest of the script.
    More: mgpu reads it with the grammar of its own Python. A line that may be valid in a newer Python is not an error.

    Fix: Correct the line, and check with python -m py_compile.
    """
    if script.error is None:
        return Ok(f"{script.lines:,} lines, {1 + len(script.files)} file{'s' * bool(script.files)}")
    where = f"line {script.error_line}: " if script.error_line else ""
    if script.newer_python:
        return Skip(
            f"{where}{script.error} in Python {script.python}, which runs mgpu; it may be valid in "
            f"{script.newer_python}: run mgpu with the Python of the training"
        )
    read_with = f" (read with Python {script.python})" if script.python else ""
    return Problem(
        f"{where}{script.error}{read_with}",
        fix=Fix(
            f"Correct {'the line' if script.error_line else 'the file'}, and check with python -m py_compile FILE."
        ),
        place=Place(script.path, script.error_line),
    )
