"""Did a package get other text in front of the number that it reads from a program that it started?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import Meaning

_VALUE = re.compile(
    r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): "
    r"(?P<bytes>b?)(?P<quote>['\"])(?P<text>.*)(?P=quote)$"
)
_OF_PROGRAM = re.compile(
    r"subprocess|check_output|getoutput|\bPopen|communicate\(|\bstdout\b|\bpopen\(|\bshell\(|\b(?:out|output)\b"
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_SHOWN = 40  # characters of the other text


def printed_at_start(one: UncaughtException) -> Meaning | None:
    """Explain a number from a child process, with lines in front that its Python or its shell prints when it starts."""
    package = one.packages[-1] if one.packages else ""
    found = _VALUE.match(one.message) if short_name(one.type) == "ValueError" and package else None
    if found is None or not (found["bytes"] or _OF_PROGRAM.search(one.code or "")):
        return None
    lines = [line.strip() for line in re.split(r"(?:\\r)?\\n", found["text"]) if line.strip()]
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[-1]) or any(map(_NUMBER.fullmatch, lines[:-1])):
        return None
    other = lines[0] if len(lines[0]) <= _SHOWN else f"{lines[0][:_SHOWN].rstrip()} ..."
    return Meaning(
        f'"{other}" is probably printed at the start of every Python or shell, and {package} reads it with the number '
        f"{lines[-1]} ({one.place or one.library})",
        f"{package} starts a program and expects only a number from it. Usually the text before it comes from code "
        "that runs at each start: usercustomize.py or sitecustomize.py, a .pth file, .bashrc or the file in BASH_ENV. "
        "Each package that reads the output of a program then fails in the same way.",
        (
            Fix(
                "Find what prints it. A start of Python, and one of the shell, should print nothing.",
                (
                    "python -c pass",
                    "sh -c true; bash -c true",
                    "python -c 'import usercustomize; print(usercustomize.__file__)'",
                    "python -c 'import sitecustomize; print(sitecustomize.__file__)'",
                ),
            ),
            Fix(
                "Remove the print, or let it write to stderr.",
                ("print(text, file=sys.stderr)", "echo text >&2"),
            ),
            Fix(
                "Until then, run without usercustomize.py.",
                ("export PYTHONNOUSERSITE=1",),
                kind="stopgap",
                caveat="Packages that are installed in ~/.local are then not found either.",
            ),
        ),
    )
