"""Where does a program begin again that an error had ended before, in the same file?

Python prints a traceback from the top level of a script when it ends, and so does a program that refuses its arguments
or its configuration: what fails afterwards in the same script is another attempt. Another script is another program of
the same job, whose failure can follow from the first. What two ranks print without a mark looks alike: their errors are
the same, or one is of the communication. A launcher whose table has the same rank with another pid was started again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TEXTS = (
    b"Traceback (most",
    b"above exception",
    b".py: error: ",
    b"rimary config",
    b"': Could not find '",
    b"Could not ",
)
# fmt: off
_MARK = re.compile(
    rb"^(?P<head>Traceback \(most recent call last\):)|"
    rb'^  File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<name>\S+)|'
    rb"^(?P<chained>During handling of the above exception|The above exception was the direct cause)|"
    rb"^(?P<error>(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception|Interrupt)\b(?:: [^\n]*|\s*$))|"
    rb"^(?P<program>[\w.-]+\.py): error: |"
    rb"^(?P<hydra>Cannot find primary config '|Primary config (?:directory|module) |In '[^'\n]+': Could not find '|"
    rb"Could not (?:override|append to config|delete from config)\b)", re.M)
_TABLE = re.compile(
    rb"^(?P<script>\S+) FAILED\s*$|^  rank +: (?P<rank>\d+)|^  exitcode +: -?\d+ \(pid: (?P<pid>\d+)\)|"
    rb"^(?P<closed>={20,})\s*$|^(?:\w+\.)*SignalException: Process \d+ got (?P<stopped>signal: [12])\b", re.M)
# fmt: on
_WARNED = re.compile(rb"^(?:[^\s:]*/)?([\w.-]+\.py):\d+: \w*Warning\b", re.M)
_INSTALLED = re.compile(rb"site-packages|dist-packages|[/\\]lib[/\\]python\d|[/\\]bin[/\\]")
_RANKS = re.compile(
    rb"(?i:\b(?:local_|global_?)?rank\b[ :=]+[1-9])|world[_ ]size[ :=]+(?:[2-9]|1\d)|init_process_group|"
    rb"store_based_barrier|\bcuda:[1-9]|(?i:process[ _]index[ :=]+[1-9])"
)
# What a rank reports when another one has ended, and a script that went on without a module, of its name.
_OF_OTHER = re.compile(
    rb"(?i)nccl|gloo|\brpc\b|ProcessGroup|DistBackend|DistNetwork|DistStore|Broken ?Pipe|Connection|EOFError|"
    rb"timed? ?out|\bsocket|address already in use|NameError"
)
_NUMBER = re.compile(rb"0x[0-9a-fA-F]+|\d+")
_MORE = re.compile(rb"\s*(?:\n[ \t]+[^\n]*)+")  # lines of a message: the keys that a checkpoint misses
_WARNINGS = 4096  # bytes before Hydra's error in which Python's warnings name its script
_AROUND = 32768  # bytes before a traceback, and at the start of the file, that can show several ranks
_GOES_ON = 200  # lines after a launcher's table: more than those of a launcher on another node
_MOST = 200  # exceptions: a program that prints more of them goes on after them
_NEAR = 6  # lines: a child, a thread or a destructor reports an exception so soon after the program's own


@dataclass
class _End:
    """An exception, or the error with which a program refuses its start."""

    first: int
    last: int = 0
    scripts: frozenset[bytes] = frozenset()  # file names of the program that it ended; empty: it ended none
    place: int = 0  # line of the script; 0: it refused its start
    error: bytes = b""

    def is_another(self, old: _End) -> bool:
        """Whether this is not what another rank prints of the same failure, nor what follows from it."""
        if self.place and (_OF_OTHER.search(self.error) or _OF_OTHER.search(old.error)):
            return False
        return _NUMBER.sub(b"", self.error) != _NUMBER.sub(b"", old.error)


@dataclass
class FailedAttempts:
    """Reads a file part by part; the failures of the only process that ended it."""

    ranks: bool = False  # the file shows several of them
    _ends: list[_End] = field(default_factory=list)
    _open: _End | None = None  # a traceback whose exception is not yet read
    _is_first: bool = False  # its first frame is not yet read
    _chained: int = 0  # first line of the exception that this one followed

    def add(self, part: bytes, before: int) -> None:
        """Read a part of the file that follows so many lines."""
        if not before:
            self.ranks = bool(_RANKS.search(part, 0, _AROUND))
        if len(self._ends) > _MOST or (not self._open and not any(text in part for text in _TEXTS)):
            return
        at, number = 0, before + 1
        for found in _MARK.finditer(part):
            number += part.count(b"\n", at, found.start())
            at = found.start()
            self._take(found, number, part)
            if len(self._ends) > _MOST:
                break

    def _take(self, found: re.Match[bytes], number: int, part: bytes) -> None:
        kind = found.lastgroup
        if kind == "head":
            self._open, self._is_first = _End(self._chained or number), True
            self._chained = 0
            self.ranks = self.ranks or bool(_RANKS.search(part, max(0, found.start() - _AROUND), found.start()))
        elif kind == "name":
            self._frame(found)
        elif kind == "chained" and self._ends and number - self._ends[-1].last <= _NEAR:
            self._chained = self._ends.pop().first
        elif kind == "error" and self._open:
            more = _MORE.match(part, found.end())
            self._open.last = number + (more[0].count(b"\n") if more else 0)
            self._open.error = found["error"].strip()
            self._close(self._open)
        elif kind == "program":
            self._close(_End(number, number, frozenset({found["program"]}), 0, _line(part, found.start())))
        elif kind == "hydra":
            warned = frozenset(_WARNED.findall(part, max(0, found.start() - _WARNINGS), found.start()))
            self._close(_End(number, number, warned, 0, _line(part, found.start())))

    def _frame(self, found: re.Match[bytes]) -> None:
        of_script = found["file"].endswith(b".py") and not _INSTALLED.search(found["file"])
        if self._open and self._is_first and found["name"] == b"<module>" and of_script:
            self._open.scripts = frozenset({re.split(rb"[/\\]", found["file"])[-1]})
            self._open.place = int(found["line"])
        self._is_first = False

    def _close(self, end: _End) -> None:
        self._ends.append(end)
        self._open = None

    def begins(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the line in which each other attempt begins, the line of its failure, and whether it is certain."""
        if len(self._ends) > _MOST:
            return
        old, after = None, 0  # the last attempt that failed, and the line of the last exception that is of it
        for end in self._ends:
            if old is None or not end.scripts:
                old, after = (end, end.last) if end.scripts else (old, self._after(end, after))
                continue
            same = end.scripts & old.scripts
            if same and end.is_another(old) and not (self.ranks and end.place):
                start = after if end.place else max(one.last for one in self._ends if one.last < end.first)
                # A program that caught the first one at its top level goes on below it.
                yield start + 1, end.first, not end.place or end.place <= old.place or not old.place
            old, after = end, end.last

    @staticmethod
    def _after(end: _End, after: int) -> int:
        return end.last if after and end.first - after <= _NEAR else after


@dataclass
class LauncherTables:
    """Reads torchrun's tables of failed ranks part by part; where a launcher begins that was started again."""

    begins: list[tuple[int, int, bool]] = field(default_factory=list)
    _script: bytes = b""  # of the table that is read; b"": none is
    _rank: bytes = b""
    _last: tuple[bytes, int] = (b"", 0)  # script and last line of the table before
    _pids: dict[bytes, bytes] = field(default_factory=dict)  # of the ranks of this run

    def add(self, part: bytes, before: int) -> None:
        """Read a part of the file that follows so many lines."""
        if not self._script and not any(text in part for text in (b" FAILED", b"SignalException")):
            return
        at, number = 0, before + 1
        for found in _TABLE.finditer(part):
            number += part.count(b"\n", at, found.start())
            at = found.start()
            if found["script"]:
                self._script = found["script"]
            elif found["stopped"]:
                self._stopped(number)
            elif self._script:
                self._take(found, number)

    def _take(self, found: re.Match[bytes], number: int) -> None:
        if found["rank"]:
            self._rank = found["rank"]
        elif found["pid"]:
            old = self._pids.get(self._rank, found["pid"])
            if old != found["pid"]:
                self._pids.clear()
                if self._last[0] == self._script:
                    self.begins.append((self._last[1] + 1, number, True))
            self._pids[self._rank] = found["pid"]
        elif found["closed"]:
            self._last, self._script = (self._script, number), b""

    def _stopped(self, number: int) -> None:
        """Read that a user stopped a launcher: another one, if ranks printed much after the table of the last one."""
        if self._last[1] and number - self._last[1] > _GOES_ON:
            self.begins.append((self._last[1] + 1, number, True))
            self._last = b"", 0
            self._pids.clear()


def _line(part: bytes, at: int) -> bytes:
    end = part.find(b"\n", at)
    return part[at : end if end >= 0 else len(part)].strip()
