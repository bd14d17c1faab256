"""Which files may the ranks open, and which are open at their start?

The soft limit is 1024 files on most systems; it is raised before they start.
"""

from __future__ import annotations

import contextlib
import os
import resource

# Advised for NCCL on large nodes; a program that closes every possible descriptor would take long with a larger limit.
MOST = 65536


def raise_limit() -> None:
    """Raise the soft limit on open files of this process and its children to MOST, or to the hard limit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stdin_is_open() -> bool:
    """Whether stdin is open."""
    try:
        os.fstat(0)
    except OSError:
        return False
    return True


def open_missing_streams() -> None:
    """Open /dev/null for closed standard streams, so that the next opened file does not become one."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
