"""Did a script that ended with a syntax error at an import run again, in the same file?

Python reads a whole file before it runs it: a script that imports a file with a syntax error ends there. A later
traceback of the same script, at another line of its own, is therefore of a later run, in which the file was repaired.
"""

from __future__ import annotations

import re

# fmt: off
_MARK = re.compile(
    rb"^[ \t\0]*(?P<head>Traceback \(most recent call last)|"
    rb"^(?P<chained>During handling of the above exception|The above exception was the direct cause)|"
    rb'^  File "(?P<file>[^"<\n]+)", line (?P<line>\d+), in (?:<module>|main\b)|'
    rb"^(?P<error>SyntaxError|IndentationError|TabError)\b: ", re.M)
# fmt: on
_INSTALLED = re.compile(rb"site-packages|dist-packages|[/\\]lib[/\\]python\d")
_NAMES = (b"SyntaxError: ", b"IndentationError: ", b"TabError: ")


class RunAfterSyntaxError:
    """Reads a file part by part; `begin` is the line in which the run after the last such error begins."""

    def __init__(self) -> None:
        self.begin: int | None = None
        self._script: tuple[bytes, bytes] | None = None  # of the traceback that is read
        self._ended: tuple[bytes, bytes] | None = None  # the line of the script at which a syntax error ended it
        self._head: int | None = None  # the first traceback after it

    def add(self, part: bytes, before: int) -> None:
        """Read a part of the file that follows so many lines."""
        if self._ended is None and not any(name in part for name in _NAMES):
            return
        at, number = 0, before + 1
        for found in _MARK.finditer(part):
            number += part.count(b"\n", at, found.start())
            at = found.start()
            self._take(found, number)

    def _take(self, found: re.Match[bytes], number: int) -> None:
        if found["head"]:
            self._script = None
            self._head = self._head or (number if self._ended else None)
        elif found["chained"]:
            # One that is raised while the syntax error is handled is of the same run.
            self._ended = self._ended if self._head else None
        elif found["error"]:
            self._ended, self._head = self._script, None
        elif not _INSTALLED.search(found["file"]):
            place = found["file"], found["line"]
            self._script = self._script or place
            if self._ended and self._head and place[0] == self._ended[0] and place != self._ended:
                self.begin, self._ended, self._head = self._head, None, None
