"""How does a program get its own terminal that behaves like the one mgpu was started from?

A pseudo-terminal of the same size and with the same settings replaces those of stdin, stdout and stderr that are a
terminal. Keys go through its line discipline, so Ctrl-C and prompts without echo work as usual.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator, Sequence
from typing import Any

_LFLAG, _CC = 3, 6  # indices in the result of tcgetattr
_OFLAG = 1


def is_terminal(number: int) -> bool:
    """Whether a stream is a terminal; False if it is closed."""
    try:
        return os.isatty(number)
    except OSError:
        return False


def is_foreground() -> bool:
    """Whether this is the foreground job of stdin's terminal: a background job may not change it."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


class Terminal:
    """The pseudo-terminal of a run, and the real one behind mgpu's own streams."""

    def __init__(self, shown_on: int) -> None:
        """`shown_on`: the stream of mgpu that is a terminal and shows the program's output."""
        self.shown_on = shown_on
        # If stdout is a pipe, its reader (less) reads the keys itself.
        self.takes_keys = is_terminal(0) and is_terminal(1)
        self.before: list[Any] | None = _settings(0 if self.takes_keys else shown_on)
        self.outer, self.inner = os.openpty()
        self.is_raw = False
        self._processes = self.before is not None and bool(self.before[_OFLAG] & termios.OPOST)
        if self.before is not None:
            ours = termios.tcgetattr(self.inner)
            wanted = [*self.before[:2], ours[2], self.before[_LFLAG], *ours[4:6], self.before[_CC]]
            wanted[_OFLAG] &= ~termios.OPOST  # the real terminal converts \n to \r\n, until `raw`
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.inner, termios.TCSANOW, wanted)
        self.resize()

    def become_controlling(self) -> None:
        """Make it the controlling terminal; runs in the child, a session leader."""
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self) -> None:
        """Set the size of the real terminal; the kernel signals the program."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.shown_on, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(self.outer, termios.TIOCSWINSZ, size)

    def signal_for(self, typed: bytes) -> int | None:
        """Return the signal that the program's terminal generates for typed keys; None while it is raw."""
        settings = _settings(self.outer)
        if settings is None or not settings[_LFLAG] & termios.ISIG:
            return None
        keys: Sequence[tuple[int, int]] = (
            (termios.VINTR, signal.SIGINT),
            (termios.VQUIT, signal.SIGQUIT),
            (termios.VSUSP, signal.SIGTSTP),
        )
        for place, number in keys:
            key: bytes = settings[_CC][place]
            if key != b"\0" and key in typed:
                return number
        return None

    def raw(self) -> None:
        """Pass every key to the program, including Ctrl-C, and let the program's terminal process the output."""
        if self.before is None or self.is_raw:
            return
        wanted = [*self.before[:6], list(self.before[_CC])]
        _make_raw(wanted)
        _set(wanted)
        self.is_raw = True
        self._process(self._processes)

    def restore(self) -> None:
        """Restore the real terminal; it processes the output again."""
        if self.before is not None and self.is_raw:
            settings = _settings(self.outer)
            self._processes = settings is not None and bool(settings[_OFLAG] & termios.OPOST)
            self._process(False)
            _set(self.before)
        self.is_raw = False

    def _process(self, yes: bool) -> None:
        r"""Set whether the program's terminal converts \n to \r\n."""
        settings = _settings(self.outer)
        if settings is not None:
            settings[_OFLAG] = settings[_OFLAG] | termios.OPOST if yes else settings[_OFLAG] & ~termios.OPOST
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self.outer, termios.TCSANOW, settings)


def _make_raw(settings: list[Any]) -> None:
    """Change the settings like tty.setraw."""
    settings[_OFLAG] &= ~termios.OPOST
    settings[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    settings[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    settings[_CC][termios.VMIN], settings[_CC][termios.VTIME] = 1, 0


def _settings(number: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(number)
    except (OSError, termios.error):
        return None


def _set(settings: list[Any]) -> None:
    """Apply settings even if another job owns the terminal by now, which would normally stop this process."""
    with _block_sigttou(), contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(0, termios.TCSANOW, settings)


@contextlib.contextmanager
def _block_sigttou() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
