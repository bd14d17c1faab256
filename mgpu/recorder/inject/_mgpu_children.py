"""Removes the file of a child that ends and was never asked: each epoch may have other workers of a loader.

A child that a signal ends leaves its file, which is removed at the end of the run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Any

_SPAWNED = "--multiprocessing-fork"  # multiprocessing.spawn.get_command_line


def begin(recorder: Any) -> None:
    """From now on, forked children clean up when they end as scripts do."""
    os.register_at_fork(after_in_child=lambda: atexit.register(clean_up, recorder, os.getpid()))


def hook(recorder: Any, module: Any) -> None:
    """Let processes of multiprocessing clean up: they run its finalizers, and no exit functions. Forked or not."""

    def in_child(child: Any) -> None:
        module.Finalize(None, clean_up, args=(child, os.getpid()), exitpriority=-100)
        module.Finalize(None, record_end, args=(child,), exitpriority=-90)  # the higher priority runs first

    if _SPAWNED in sys.argv:
        in_child(recorder)
    module.register_after_fork(recorder, in_child)


def record_end(recorder: Any) -> None:
    """Record the exception that ends a process of multiprocessing, which `sys.excepthook` does not get.

    The finalizers run while it passes. torch's `mp.spawn` catches it, and raises SystemExit in its place.
    """
    import _mgpu_raised  # type: ignore[import-not-found]

    error = sys.exc_info()[1]
    error = error.__context__ if isinstance(error, SystemExit) and error.code else error
    if recorder.rank is not None and isinstance(error, Exception):
        _mgpu_raised.record(recorder, type(error), error, error.__traceback__)


def clean_up(recorder: Any, pid: int) -> None:
    """Remove the file of this process if it is empty."""
    if pid == os.getpid() and recorder.rank is not None:
        with contextlib.suppress(OSError):
            path = recorder.path("stacks")
            if not os.path.getsize(path):
                os.unlink(path)
