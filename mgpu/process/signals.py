"""What does mgpu do when a scheduler, a closed terminal or a key stops it?

TERM, HUP and QUIT raise `Stopped` in the main thread, INT a KeyboardInterrupt as in every Python program. All
`with` and `finally` blocks run: children are killed, scratch folders removed, locks released. The exit code is 128 +
the signal's number. A signal that was ignored when mgpu started (nohup) stays ignored.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A repeated signal within this time is the same request: timeout(1) signals the process and then its group; when a
# terminal closes, the kernel and then the shell send SIGHUP. A later signal also interrupts the clean-up.
_AGAIN_S = 2.0

Handler = Callable[[int, FrameType | None], object]

_last: tuple[int, float] | None = None  # the signal that stops mgpu, and when it came


class Stopped(SystemExit):
    """Raised when a signal stops mgpu."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


class Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C.

    Where a plain KeyboardInterrupt comes while `exec` runs a string, as in the import of any dataclass, a Python
    that was started with -m ends itself with SIGINT in place of its exit code, even if the exception was caught
    (run_eval_code_obj in CPython's pythonrun.c; measured with 3.11).
    """


def raise_on_signals() -> None:
    """From now on, raise `Stopped` or `Interrupted` on a signal, so that everything is cleaned up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def exit_code() -> int:
    """Return the exit code of an interrupted command: for the signal that stopped it, or for Ctrl-C."""
    return 128 + (_last[0] if _last else signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def _stop(number: int, frame: FrameType | None) -> None:
    global _last
    now = time.monotonic()
    if _last is None or now - _last[1] > _AGAIN_S:
        _last = (number, now)
        raise Stopped(number)


@contextlib.contextmanager
def installed_handlers(
    handlers: Mapping[signal.Signals, Handler], *, even_ignored: Collection[signal.Signals] = ()
) -> Iterator[None]:
    """Install signal handlers inside the block; ignored signals stay ignored, except `even_ignored`."""
    ignored = {n for n in handlers if n not in even_ignored and signal.getsignal(n) == signal.SIG_IGN}
    asked = {number: handler for number, handler in handlers.items() if number not in ignored}
    old = {number: signal.signal(number, handler) for number, handler in asked.items()}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


@contextlib.contextmanager
def stop_once() -> Iterator[None]:
    """Raise an exception on the first signal or Ctrl-C; later ones do not interrupt the clean-up.

    The clean-up must have its own time limits.
    """
    numbers = (signal.SIGINT, *STOPPING)

    def stop(number: int, frame: FrameType | None) -> None:
        global _last
        for one in numbers:  # not SIG_IGN: Python would report one that is already pending as lost
            if signal.getsignal(one) is stop:
                signal.signal(one, lambda number, frame: None)
        if number == signal.SIGINT:
            raise Interrupted
        _last = (number, time.monotonic())
        raise Stopped(number)

    with installed_handlers(dict.fromkeys(numbers, stop)):
        yield
