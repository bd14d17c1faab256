"""A program in a real terminal, driven key by key, and screens compared with the ones kept in `screens/`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

SCREENS = Path(__file__).parent / "screens"
ENTER, ESCAPE, CONTROL_C, CONTROL_D, DOWN, UP = "\r", "\x1b", "\x03", "\x04", "\x1b[B", "\x1b[A"


class Terminal:
    """A program on a pseudo-terminal. `text` is what a person sees, `raw` every byte that was written."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, columns: int = 80, lines: int = 200
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._rows: list[str] = []
        self.child = pexpect.spawn(
            command[0], list(command[1:]), env={"TERM": "xterm-256color", **env}, cwd=str(cwd), timeout=None,
            dimensions=(lines, columns), encoding=None, preexec_fn=_as_from_a_shell,
        )  # fmt: skip
        self.child.delaybeforesend = None

    @property
    def text(self) -> str:
        """The screen, without the blanks at the ends of lines. Only what was written to is read again."""
        if len(self._rows) != self.screen.lines:
            self._rows = [""] * self.screen.lines
            self.screen.dirty.update(range(self.screen.lines))
        for number in self.screen.dirty.intersection(range(self.screen.lines)):
            cells = self.screen.buffer[number]
            self._rows[number] = "".join(cells[column].data for column in range(self.screen.columns)).rstrip()
        self.screen.dirty.clear()
        return "\n".join(self._rows).rstrip()

    def see(self, words: str, timeout: float = 60) -> str:
        """Wait until the words stand on the screen; the screen."""
        end = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < end, f"{words!r} did not appear:\n{self.text}"
            assert self._read(), f"it ended without {words!r}:\n{self.text}"
        return self.text

    def press(self, *keys: str) -> None:
        """Type keys, one after the other."""
        for key in keys:
            self.child.send(key.encode())

    def end(self, timeout: float = 60) -> int:
        """Wait for the end of the program; its exit code (128 + N when signal N ended it)."""
        end = time.monotonic() + timeout
        while self._read():
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
        self.child.isalive()  # waits: its terminal is closed
        self.child.ptyproc.delayafterclose = 0
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else 128 + self.child.signalstatus)

    def _read(self, silence_s: float = 0.1) -> bool:
        """Take what is written; False when it has ended."""
        try:
            data = self.child.read_nonblocking(65536, timeout=silence_s)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self.stream.feed(data)
        return True


def _as_from_a_shell() -> None:
    """Ctrl-C counts, also where the tests themselves run in the background of a script (`pytest &`) and ignore it."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def same_screen(text: str, name: str) -> None:
    """Compare with `screens/NAME.txt`; MGPU_UPDATE_SCREENS=1 writes that file instead."""
    path = SCREENS / f"{name}.txt"
    if os.environ.get("MGPU_UPDATE_SCREENS") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no {path.name} yet: MGPU_UPDATE_SCREENS=1 writes it"
    assert text == path.read_text(encoding="utf-8"), f"another screen than {path.name} (MGPU_UPDATE_SCREENS=1 accepts)"
