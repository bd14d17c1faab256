"""What do the frames of a traceback show whose end has not been read?"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mgpu.known_launchers import OTHERS
from mgpu.readers.log.line import Line, shown_text
from mgpu.readers.log.traceback_frames import (
    CHECKED_OUT,
    DECORATORS,
    ENVIRONMENT,
    FOREIGN,
    GOES_ON,
    INSTALLED,
    IPYTHON_CODE,
    PASSES_ON,
    QUOTED_FILE,
    RAISES_AGAIN,
    place_of,
)
from mgpu.secrets_masking import masked
from mgpu.snapshot import CutTraceback, TracedCall

_PACKAGES = 8  # of the innermost frames
_FRAMES = 60  # the innermost ones
_OWN_LINES = 4
_CALLS = 20
_LAUNCHER = re.compile("|".join(frame for known in OTHERS for frame in known.frames))
# Where a traceback of torchrun is cut if none of its later frames is in the log.
_OF_LAUNCHERS = re.compile(r"^torch/distributed/elastic/multiprocessing/errors/__init__\.py")
_LONGEST_CODE = 400  # characters of a statement in several lines
_LONGEST_LINE = 2000  # characters of a line of code that are kept
_MARKS = re.compile(r"(?P<left>~*)(?P<middle>\^+)(?P<right>~*)$|(?P<all>~+)$")
_shown = lru_cache(maxsize=1024)(shown_text)  # several ranks print the same frames


# "[2026-11-21 10:12:01,123][net.cards][ERROR] - Failed to write", "10:12:01 | ERROR | net.cards | Failed to write".
_RECORD = re.compile(rb"\d:\d\d(?::\d\d)?\b.{0,120}?\b(?:ERROR|WARNING)\b\W+\w+\W+\w+")


def is_record(raw: bytes) -> bool:
    """Whether a logger wrote a line as an error or a warning, with the time and a message of the program's own."""
    return bool(_RECORD.search(raw[:400]))


@dataclass
class OpenTraceback:
    """A traceback whose end has not been read."""

    number: int
    line: Line
    last: int = 0  # the number of its latest line
    frames: int = 0
    place: str | None = None  # of the deepest frame in one of the user's files
    deepest: str | None = None  # of the deepest frame in any file
    cause: str | None = None
    rich: bool = False
    length: int = 0
    harmless: bool = False
    loader: bool = False
    launcher: bool = False
    group: bool = False
    ipython: str = ""  # the type in IPython's head; ANY without it
    quoted: bool = True  # so far: no frame is in a file of its own
    library: str | None = None  # the latest frame, if it is in an installed package
    raised_in: str | None = None  # of the deepest frame in a package's or the user's files
    code: str = ""  # of the latest frame
    own_lines: tuple[str, ...] = ()  # of the last frames in the user's files; "" until a frame's line is read
    in_own: bool = False  # the latest frame is in one of the user's files
    tail: str = ""  # the text after the latest frame, if it can be an exception without its type
    indent: int = 0  # of the whole traceback
    first: tuple[str, str] | None = None  # file and line of the outermost frame
    torn: OpenTraceback | None = None  # as it was before another process wrote its own into it
    packages: tuple[str, ...] = ()
    cloned: bool = False  # see `UncaughtException.cloned`
    frames_seen: tuple[str, ...] = ()  # see `UncaughtException.frames`
    calls: tuple[TracedCall, ...] = ()  # see `UncaughtException.calls`
    in_call: bool = False  # the latest frame is the last of `calls`
    numbered: bool = True  # the latest frame says in which line it is
    logged: bool = False  # see `UncaughtException.logged`
    first_line: str = ""  # of the latest frame's statement, with its indent; "" if more lines followed

    def add_frame(self, frame: re.Match[str]) -> None:
        """Process the next frame, which is called by the ones before."""
        if self.frames and RAISES_AGAIN.search(f"{frame['file']} {frame['function']}"):
            self.in_own = self.in_call = False
            self.first_line = ""
            return
        if self.frames and frame["function"] == "<module>" and (frame["file"], frame["line"]) == self.first:
            self.torn = self.torn or replace(self)  # another process began to print the same traceback
        self.harmless |= not self.frames and bool(GOES_ON.search(f"{frame['file']} {frame['function']}"))
        self.first = self.first or (frame["file"], frame["line"])
        self.frames += 1
        self.tail = self.code = self.first_line = ""
        self.in_call = False
        self.quoted &= bool(QUOTED_FILE.match(frame["file"]))
        self.deepest, self.numbered = place_of(frame), bool(frame["line"])
        self.loader |= frame["file"].endswith("torch/utils/data/dataloader.py")
        self.launcher |= bool(_LAUNCHER.search(frame["file"]))
        self.in_own = not FOREIGN.search(frame["file"])
        if self.in_own:
            self.place, self.own_lines = self.deepest, (*self.own_lines, "")[-_OWN_LINES:]
        self.library = None
        if ENVIRONMENT.search(frame["file"]) and frame["function"] in ("__getitem__", "__delitem__"):
            self.raised_in = "os.environ"
        installed = (of_pip := INSTALLED.search(frame["file"])) or CHECKED_OUT.search(frame["file"])
        path = installed["path"].replace("\\", "/") if installed else self.deepest.partition(":")[0]
        if installed:
            self.cloned = of_pip is None
            self.library = f"{path}:{frame['line']} in {frame['function']}" if frame["line"] else path
        if installed and (frame["function"] in DECORATORS or PASSES_ON.search(frame["file"])):
            return
        if installed or not FOREIGN.search(frame["file"]):
            self.raised_in = shown_text(f"{path} in {frame['function'] or '?'}")
            self.frames_seen = (*self.frames_seen, self.raised_in)[-_FRAMES:]
            package = installed["package"] if installed else ""
            own, foreign = ("", frame["file"]) if package else (frame["file"], "")
            call = TracedCall(self.library or self.deepest, package=package, file=own, installed=foreign)
            self.calls = (*self.calls, call)[-_CALLS:]
            self.in_call = True
            if self.packages[-1:] != (package,):
                self.packages = (*self.packages, package)[-_PACKAGES:]

    @property
    def expects_code(self) -> bool:
        """Whether the next indented line is source code: the first below a frame, or more of an `assert`."""
        return not self.code or (
            self.code.startswith("assert ")
            and self.code.count("(") > self.code.count(")")
            and len(self.code) < _LONGEST_CODE
        )

    def add_code(self, text: str, line: str) -> None:
        """Add a line of the latest frame's source code; `line`: with its indent."""
        if not self.numbered and self.in_own and (marked := IPYTHON_CODE.match(line)):
            self._add_number(marked["number"])
        if not self.code:
            self.code, self.first_line = text, line[:_LONGEST_CODE]
            if self.in_call:
                self.calls = (*self.calls[:-1], replace(self.calls[-1], code=text[:_LONGEST_LINE]))
        elif text.strip("~^ "):  # Python underlines the part that failed
            self.code = f"{self.code}{'' if self.code.endswith('(') or text.startswith(')') else ' '}{text}"
        if self.in_own:
            self.own_lines = (*self.own_lines[:-1], self.code)

    def _add_number(self, number: str) -> None:
        """Add the number of the line that IPython marks to the place of a frame whose head has none."""
        file, of, function = (self.deepest or "").partition(" in ")
        self.place = self.deepest = f"{file}:{number}{of}{function}"
        self.numbered = True
        if self.in_call:
            self.calls = (*self.calls[:-1], replace(self.calls[-1], place=self.place))

    def add_below(self, line: str) -> None:
        """Add a line below the first one of a statement: what Python underlines in it, or more of it (Python 3.13)."""
        code = self.calls[-1].code if self.in_call else None
        if not code:
            return
        if marks := _MARKS.match(line.strip()):
            parts, at = [], len(line) - len(line.lstrip())
            for mark in filter(None, marks.group("left", "middle", "right", "all")):
                parts.append(self.first_line[at : at + len(mark)])
                at += len(mark)
            if all(map(str.strip, parts)) and masked(self.first_line) == self.first_line:  # a part hides less
                self.calls = (*self.calls[:-1], replace(self.calls[-1], marked=tuple(parts)))
        elif line.strip("~^ ") and len(code) < _LONGEST_CODE:
            self.first_line = ""
            self.calls = (
                *self.calls[:-1],
                replace(self.calls[-1], code=f"{code} {line.strip()[:_LONGEST_CODE]}", marked=()),
            )

    def facts(self) -> dict[str, Any]:
        """Return the fields of an exception that its frames fill."""
        code = shown_text(self.code) or None
        facts: dict[str, Any] = {"library": self.library, "raised_in": self.raised_in, "code": code}
        own = tuple(map(shown_text, self.own_lines))
        facts |= {"own_lines": own, "own_code": (own[-1] or None) if own else None}
        facts["calls"] = tuple(
            replace(one, code=_shown(one.code or "") or None, marked=tuple(map(_shown, one.marked)))
            for one in self.calls
        )
        return {**facts, "packages": self.packages, "cloned": self.cloned, "frames": self.frames_seen}

    def as_cut(self, file: str) -> CutTraceback | None:
        """Return what the log shows of it, if the file ends before its exception; None without a frame."""
        if self.deepest is None or self.harmless or self.launcher or _OF_LAUNCHERS.search(self.library or ""):
            return None
        if self.torn is not None:
            return replace(self.torn, torn=None, last=self.last).as_cut(file)
        return CutTraceback(
            self.library or self.deepest,
            file,
            self.last or self.number,
            self.line.rank,
            shown_text(self.code) or None,
            self.frames_seen[-1] if self.frames_seen else None,
        )
