"""What does mgpu do when it is asked to stop, by a scheduler, a closed terminal or a key?

TERM, HUP and QUIT raise `Stopped` in the main thread, INT raises KeyboardInterrupt as in every Python program. So each
`with` and `finally` on the way out does its part: children are killed, scratch folders removed, locks released. The
exit code is 128 + the signal's number. A signal that was ignored when mgpu started (nohup) stays ignored.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The same request again: timeout(1) signals the process and then its group, a shell that loses its terminal hangs up on
# its jobs after the kernel did. Later than this a signal interrupts the clean-up too.
_AGAIN_S = 2.0

Handler = Callable[[int, FrameType | None], object]

_last: tuple[int, float] | None = None  # the signal that stops mgpu, and when it came


class Stopped(SystemExit):
    """A signal asked mgpu to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def leave_in_order() -> None:
    """From now on stop by an exception, so that whatever is open is closed."""
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def exit_code() -> int:
    """The exit code of a command that was interrupted: of the signal that stopped it, else of Ctrl-C."""
    return 128 + (_last[0] if _last else signal.SIGINT)


def _stop(number: int, frame: FrameType | None) -> None:
    global _last
    now = time.monotonic()
    if _last is None or now - _last[1] > _AGAIN_S:
        _last = (number, now)
        raise Stopped(number)


@contextlib.contextmanager
def handling(
    handlers: Mapping[signal.Signals, Handler], *, even_ignored: Collection[signal.Signals] = ()
) -> Iterator[None]:
    """Handle signals otherwise inside the block; those that are ignored stay so, except `even_ignored`."""
    ignored = {n for n in handlers if n not in even_ignored and signal.getsignal(n) == signal.SIG_IGN}
    asked = {number: handler for number, handler in handlers.items() if number not in ignored}
    old = {number: signal.signal(number, handler) for number, handler in asked.items()}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Stop by an exception at the first signal or Ctrl-C; later ones do not interrupt the clean-up, which has time
    limits of its own."""
    numbers = (signal.SIGINT, *STOPPING)

    def stop(number: int, frame: FrameType | None) -> None:
        global _last
        for one in numbers:  # not SIG_IGN: Python would report one that is already pending as lost
            if signal.getsignal(one) is stop:
                signal.signal(one, lambda number, frame: None)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        _last = (number, time.monotonic())
        raise Stopped(number)

    with handling(dict.fromkeys(numbers, stop)):
        yield
