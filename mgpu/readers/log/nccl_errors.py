"""What does NCCL itself report as its error: after "Last error:" in torch's exception, or in its WARN lines?"""

from __future__ import annotations

import re

from mgpu.readers.log.line import Line, shown_text

# Kubernetes tools, pdsh and some launchers put a name before each line.
_LAST = re.compile(r"(?:^(?P<name>[\w.-]{1,80}: ?|\[\d+\]: ?)?|[.)] )Last error: ?(?P<text>.*)$")
_WARN = re.compile(r"\bNCCL WARN (?P<text>.*\S)")
_WAITS_LINES = 3  # other ranks can print between torch's two lines
_NOT_ITS_TEXT = re.compile(r"^(?:Traceback|Exception raised from|frame #|  File |\[|NCCL |.*: error: |.*Error\b)")


class NcclErrors:
    """Finds these texts, line by line."""

    def __init__(self) -> None:
        self._left = 0
        self._writer: object = None
        self._name = ""

    @property
    def waiting(self) -> bool:
        """Whether the next line can be the text after "Last error:"."""
        return self._left > 0

    def take(self, line: Line) -> str | None:
        """Return the text of NCCL's error, if this line has one."""
        writer = (line.rank, line.source)
        if self._left:
            self._left -= 1
            text = line.text.removeprefix(self._name).strip()
            if writer == self._writer and text:
                self._left = 0
                return None if _NOT_ITS_TEXT.match(text) else shown_text(text)
        if "Last error:" in line.text and (found := _LAST.search(line.text)):
            text = found["text"].strip()
            self._left, self._writer, self._name = (0 if text else _WAITS_LINES), writer, found["name"] or ""
            return shown_text(text) or None
        if "NCCL WARN" in line.text and (found := _WARN.search(line.text)):
            return shown_text(found["text"])
        return None
