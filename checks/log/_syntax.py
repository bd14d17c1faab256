"""In which file and line is the syntax error, and is the file the script's own or one of a package?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.notebook_cells import is_cell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from .._reinstall import reinstall

_READS = re.compile(r"\b(?:eval|exec|literal_eval|compile|parse|query)\(")


def _of_text(message: str, raised: UncaughtException) -> Meaning:
    """Explain a syntax error in a text that eval(), exec() or ast.literal_eval() reads."""
    shown = f': "{raised.code}"' if raised.code and raised.code != raised.own_code else ""
    at = "" if not raised.place or raised.place.startswith("<") else f" ({raised.place})"
    line = raised.own_lines[0] if raised.own_lines else None
    called = f' The line that reads it is "{line}".' if line and line != raised.code else ""
    return Meaning(
        f"a text that the program reads as Python code is not valid Python{shown}{at}",
        f"It gives it to eval(), exec() or ast.literal_eval(): {message}.{called} The text comes from an option, a "
        "file or the answer of a model, and is empty, cut, or of another form (JSON has true and null).",
        (
            Fix("Print the text before that line, with its quotes.", ("print(repr(text))",)),
            Fix("Read JSON as JSON, and skip what cannot be read.", ("json.loads(text)",)),
        ),
    )


def where_syntax_fails(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return a meaning with the place; None if the log does not have the lines above the message."""
    if raised is None or not raised.frames:
        return None
    if raised.frames[-1].startswith("<"):  # it has no file: a text, or if all are so, a notebook's cell or python -c
        return None if all(one.startswith("<") for one in raised.frames) else _of_text(groups["message"], raised)
    if not raised.frames[-1].endswith(" in ?"):  # the line that says where is not a frame: File "<string>", line 1
        return _of_text(groups["message"], raised) if _READS.search(raised.own_code or "") else None
    line = f' The line is "{raised.code}".' if re.search(r"\w", raised.code or "") else ""
    package = raised.packages[-1] if raised.packages else ""
    if package:
        name = skew.distribution(package)
        return Meaning(
            f"a file of {name} has a syntax that this Python does not accept: {groups['message']}",
            f"{raised.frames[-1].partition(' in ')[0]} cannot be read.{line} The installed release was written for a "
            "newer Python, or the file is damaged.",
            (
                Fix(
                    "Compare the Python with the one that the release requires.",
                    ("python --version", shell("pip show {:package}", name)),
                ),
                Fix(
                    "Install it again, or a release for this Python.",
                    (reinstall(name), "pip check"),
                ),
            ),
        )
    if not raised.place or raised.frames[-1].partition(" in ")[0] != raised.place.partition(":")[0]:
        return None
    return _of_file(raised.place, groups["message"], line)


def _of_file(place: str, message: str, line: str) -> Meaning:
    """Explain a syntax error in a file of the script's own, or in a notebook's cell."""
    where = place.partition(" in ")[0]
    look = f"{line} If this line is right, look at the one above it for a bracket, a comma or a quote that is missing."
    if is_cell(place):
        return Meaning(
            f"a syntax error in a notebook's cell ({where}): {message}",
            f"No line of that cell was run.{look}",
            (Fix("Correct that cell, and run it again."),),
        )
    return Meaning(
        f"a syntax error in {where}: {message}",
        f"Python stops before the first line of that file runs.{look} A syntax newer than this Python causes the same "
        "error.",
        (
            Fix(
                "Fix it. You can check without a GPU.",
                (shell("python -m py_compile {:path}", place.partition(":")[0]), "python --version"),
            ),
        ),
    )
