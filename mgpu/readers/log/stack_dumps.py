"""Which stacks did py-spy or faulthandler print into a log?

Both print the stacks of a process that hangs: py-spy on demand, faulthandler after a time limit or at a signal. Each
is one thread: its process, if the log names it, and its functions, the innermost first.
"""

from __future__ import annotations

import re

from mgpu.readers.log.line import Line, shown_text
from mgpu.snapshot import PrintedStack

# Shapes and words of their heads (prefilter.py).
TEXTS = ("(active", "(idle", "(mostrecentcallfirst", "py-spydump")
WORDS = ("(active", "(idle", "(most", "py-spy")
_MOST, _FUNCTIONS = 200, 12
_PROCESS = re.compile(r"py-spy dump .*?(?:--pid|-p)[ =](?P<pid>\d+)|^Process (?P<number>\d+): ")
_PY_SPY = re.compile(r"Thread (?:0x)?\w+ \((?:active|idle)[^)]*\)(?:: ?\"(?P<name>[^\"]*)\")?$")
_PY_SPY_FRAME = re.compile(r"\s{2,}(?P<function>[\w<>.]+) \((?P<file>[^():]+\.\w+):(?P<line>\d+)\)$")
_FAULTHANDLER = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):$")
_FAULTHANDLER_FRAME = re.compile(r"\s{1,2}File \"(?P<file>[^\"]+)\", line (?P<line>\d+) in (?P<function>[\w<>.]+)$")


class StackDumps:
    """Collects the stacks in one file, line by line."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[PrintedStack] = []
        self._process: str | None = None
        self._open: dict[str | int | None, tuple[int, str | None, str | None, list[str]]] = {}

    @property
    def waiting(self) -> bool:
        """Whether the next lines can belong to a stack."""
        return bool(self._open)

    def take(self, line: Line, number: int) -> None:
        """Process a line that can be the head of a stack; all lines while one is open."""
        key = line.source if line.rank is None else line.rank
        text = line.text
        if process := _PROCESS.search(text):
            self._close(key)
            self._process = f"process {process['pid'] or process['number']}"
        elif head := _PY_SPY.match(text) or _FAULTHANDLER.match(text):
            self._close(key)
            own = f"rank {line.rank}" if line.rank is not None else line.source
            thread = head.groupdict().get("name")
            self._open[key] = (number, own or self._process, shown_text(thread) if thread else thread, [])
        elif key in self._open:
            frame = _PY_SPY_FRAME.match(text) or _FAULTHANDLER_FRAME.match(text)
            functions = self._open[key][3]
            if frame and len(functions) < _FUNCTIONS:
                file = frame["file"].rpartition("/")[2]
                functions.append(shown_text(f"{frame['function']} ({file}:{frame['line']})"))
            elif not frame:
                self._close(key)

    def end(self) -> None:
        """Finish the file, after its last line."""
        for key in list(self._open):
            self._close(key)

    def _close(self, key: str | int | None) -> None:
        number, process, thread, functions = self._open.pop(key, (0, None, None, []))
        if functions and len(self.found) < _MOST:
            self.found.append(PrintedStack(self.file, number, tuple(functions), process, thread))
