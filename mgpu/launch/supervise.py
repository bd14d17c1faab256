"""How does the launcher run under mgpu without noticing it?

Its bytes reach the terminal untouched, through a pseudo-terminal when there was one and through pipes when not; a copy
goes to the log. Signals are forwarded, keys go through the pseudo-terminal's own line discipline. Whatever is left of
the run when the launcher has ended is ended too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from mgpu.errors import CANNOT_RUN, NOT_FOUND, MgpuError, reason
from mgpu.launch import guard, processes
from mgpu.launch.command import Command

_TO_LAUNCHER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TO_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
_CTRL_C = b"\x03"
# After a second Ctrl-C or signal nobody is asked any more. torchrun itself waits 30 s for its ranks.
_FORCE_AFTER = 2
_GRACE_S = 5.0
_TAIL_BYTES = 65536  # enough for the launcher's table of failed ranks


@dataclass
class Ended:
    """How the launcher ended."""

    returncode: int  # as subprocess tells it: negative for a signal
    tail: bytes  # the last of what was printed
    signalled: int | None  # the last signal that ended it, when mgpu was asked to stop
    left_over: tuple[int, ...]  # processes that had to be ended afterwards
    stuck: tuple[int, ...]  # … and could not be


class Supervisor:
    """One launcher, its streams and its signals."""

    def __init__(self, command: Command, log: BinaryIO | None) -> None:
        self.command, self.log = command, log
        self.tail = b""
        self.interruptions = 0
        self.signalled: int | None = None
        self.launcher: subprocess.Popen[bytes] | None = None

    def run(self) -> Ended:
        """Start, watch, clean up. Raises MgpuError when the launcher cannot be started (126, 127)."""
        with guard.over(self.command.run_id), self._signals():
            if _our_terminal():
                self._through_terminal()
            else:
                self._through_pipes()
            launcher = self.launcher
            assert launcher is not None
            left, stuck = processes.end_run(self.command.run_id, _GRACE_S)
        return Ended(launcher.returncode, self.tail, self.signalled, tuple(left), tuple(stuck))

    def _start(self, **streams: object) -> subprocess.Popen[bytes]:
        """The launcher in a session of its own."""
        try:
            self.launcher = subprocess.Popen(  # type: ignore[call-overload]
                self.command.argv, env=self.command.environment(), start_new_session=True, **streams
            )
        except FileNotFoundError as error:
            raise MgpuError(f"the launcher was not found: {reason(error)}", NOT_FOUND) from None
        except OSError as error:
            raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None
        assert self.launcher is not None
        return self.launcher

    def _through_pipes(self) -> None:
        """stdout and stderr stay apart; stdin is the launcher's own."""
        launcher = self._start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with selectors.DefaultSelector() as selector:
            for stream, number in ((launcher.stdout, 1), (launcher.stderr, 2)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select(0.2):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                    else:
                        self._pass_on(data, key.data)
                self._force_if_asked()
                if launcher.poll() is not None and not selector.select(0):
                    break  # a rank that was left behind may hold the pipes open
        launcher.wait()

    def _through_terminal(self) -> None:
        """A pseudo-terminal of the same size; the real one passes every key on."""
        outer, inner = os.openpty()
        _copy_size(inner)
        attributes = termios.tcgetattr(inner)
        attributes[1] &= ~termios.OPOST  # the real terminal turns \n into \r\n; the log keeps the program's bytes
        termios.tcsetattr(inner, termios.TCSANOW, attributes)

        def own_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        with _raw_keys(), self._resizes(inner):
            launcher = self._start(stdin=inner, stdout=inner, stderr=inner, preexec_fn=own_terminal)
            os.close(inner)
            with selectors.DefaultSelector() as selector:
                selector.register(outer, selectors.EVENT_READ, "output")
                selector.register(0, selectors.EVENT_READ, "keys")
                while True:
                    for key, _ in selector.select(0.2):
                        if key.data == "output":
                            data = _read(outer)
                            if data:
                                self._pass_on(data, 1)
                        elif not self._keys(selector, outer):
                            selector.unregister(0)
                    self._force_if_asked()
                    if launcher.poll() is not None:
                        while data := _read(outer, wait_s=0.05):
                            self._pass_on(data, 1)
                        break
            os.close(outer)

    def _keys(self, selector: selectors.BaseSelector, outer: int) -> bool:
        """Pass what was typed on to the program; False at the end of input."""
        try:
            data = os.read(0, 4096)
        except OSError:
            return False
        if not data:
            return False
        if _CTRL_C in data:
            self.interruptions += 1
            self.signalled = signal.SIGINT
        with contextlib.suppress(OSError):
            os.write(outer, data)
        return True

    def _pass_on(self, data: bytes, number: int) -> None:
        """To the user first, then to the log; neither may stop the run."""
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        with contextlib.suppress(OSError):  # our reader went away: the training goes on
            _write(number, data)
        if self.log is not None:
            try:
                self.log.write(data)
                self.log.flush()
            except OSError as error:
                self.log = None
                if error.errno == errno.ENOSPC and sys.stderr is not None:
                    print("\nmgpu: the disk is full: the log ends here, the run goes on", file=sys.stderr)

    def _force_if_asked(self) -> None:
        """A second Ctrl-C or signal ends every process of the run at once."""
        if self.interruptions >= _FORCE_AFTER and self.launcher is not None and self.launcher.poll() is None:
            processes.end_run(self.command.run_id, 1.0)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """INT, TERM, HUP, QUIT go to the launcher's process group, USR1 and USR2 to the ranks."""

        def forward(number: int, frame: FrameType | None) -> None:
            self.interruptions += 1
            self.signalled = number
            if self.launcher is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.launcher.pid, number)

        def to_ranks(number: int, frame: FrameType | None) -> None:
            if self.launcher is not None:
                ranks = [p.pid for p in processes.of_run(self.command.run_id) if p.parent == self.launcher.pid]
                processes.signal_all(ranks, signal.Signals(number))

        # One that is ignored stays so: `nohup` makes HUP ignored, and the run is to survive it.
        asked = [number for number in _TO_LAUNCHER if signal.getsignal(number) != signal.SIG_IGN]
        old = {number: signal.signal(number, forward) for number in asked}
        old |= {number: signal.signal(number, to_ranks) for number in _TO_RANKS}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _resizes(self, inner: int) -> Iterator[None]:
        """A resized window is passed on to the launcher's terminal."""
        keep = os.dup(inner)

        def resized(number: int, frame: FrameType | None) -> None:
            _copy_size(keep)
            if self.launcher is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.launcher.pid, signal.SIGWINCH)

        old = signal.signal(signal.SIGWINCH, resized)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, old)
            os.close(keep)


def _our_terminal() -> bool:
    """Whether stdin and stdout are a terminal and this is its foreground job: a background job may not touch it."""
    try:
        return os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _write(number: int, data: bytes) -> None:
    """All of the data, also to a reader that is slow and non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(number, view) :]
        except BlockingIOError:
            select.select([], [number], [])


def _copy_size(inner: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(inner, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw_keys() -> Iterator[None]:
    """Every key reaches the program, Ctrl-C included; output processing stays as it is. Undone whatever happens."""
    before = termios.tcgetattr(0)
    after = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSANOW)
    raw = termios.tcgetattr(0)
    raw[1] = after[1]
    termios.tcsetattr(0, termios.TCSANOW, raw)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _read(outer: int, wait_s: float | None = None) -> bytes:
    """What the pseudo-terminal has; empty when its other side is closed, or nothing comes in `wait_s`."""
    if wait_s is not None:
        with selectors.DefaultSelector() as selector:
            selector.register(outer, selectors.EVENT_READ)
            if not selector.select(wait_s):
                return b""
    try:
        return os.read(outer, 65536)
    except OSError:  # EIO: the last process has closed it
        return b""


def open_log(folder: Path) -> BinaryIO | None:
    """The run's log; None, with a word about it, when it cannot be written."""
    try:
        return (folder / "run.log").open("wb")
    except OSError as error:
        if sys.stderr is not None:
            print(f"mgpu: no log is kept: {reason(error)}", file=sys.stderr)
        return None


def seconds_since(start: float) -> str:
    """A duration for people: "41 s", "3 min 20 s", "2 h 14 min"."""
    seconds = int(time.monotonic() - start)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"
