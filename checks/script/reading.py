"""Can the script be parsed, and is all of its code in files that were read?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Script

from ._calls import finding, reached_calls, trains


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


@check(Severity.WARNING, source="https://docs.python.org/3/library/functions.html#exec")
def script_code_not_read(script: Script) -> Answer:
    """All of the script's training is in code that it passes to exec or runpy, which mgpu does not read.

    Why: Every other check of the script is about the code in its files. If that code trains without accelerate or DDP,
    each rank trains a model of its own, and nothing reports it before the start.

    Fix: Launch the file with the training code itself, or import it.
    """
    if script.error:
        return Skip(f"the script was not read: {script.error}")
    hidden = reached_calls(script, r"exec|runpy\.run_(?:path|module)")
    if not hidden:
        return Ok("no exec, no runpy")
    if script.speaks is not None or trains(script):
        return Ok("its training is in code that was read")
    name = hidden[0].name
    return finding(
        script, hidden[0], f"{name} runs code that mgpu did not read: whether its ranks train together is unknown"
    )
