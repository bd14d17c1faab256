"""Choose the exit code of a launch that fails before the training starts.

It is 125, whatever went wrong in mgpu or on this machine: every other code is promised to be the training's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mgpu import errors
from mgpu.errors import MgpuError, reason
from mgpu.launch.request import Request

# Exit codes of mgpu's other commands, which a training run may also exit with.
_OF_OTHERS = (errors.NOT_READY, errors.UNKNOWN, errors.NO_GPU, errors.REFUSED)
_PROCESSES = "cannot start a process or thread (limit: ulimit -u, or the cgroup's pids.max)"


class Attempt:
    """A launch that has not started anything yet."""

    started = False  # set once something runs: from then on a failure is reported as what it is


@contextmanager
def attempt(request: Request) -> Iterator[Attempt]:
    """Turn any error in the block into an MgpuError with a launch's exit code, until the attempt has `started`."""
    state = Attempt()
    try:
        yield state
    except MgpuError as error:
        if state.started or error.exit_code not in _OF_OTHERS:
            raise
        raise MgpuError(error.message, errors.LAUNCH_REFUSED) from None
    except Exception as error:
        if state.started or _is_for_others(error, request):
            raise
        raise failure(error) from None


@contextmanager
def documented_attempt(request: Request) -> Iterator[Attempt]:
    """Like `attempt`, and also write the error to the `--json-result` file."""
    from mgpu.launch import result_document

    try:
        with attempt(request) as state:
            yield state
    except MgpuError as error:
        if request.json_result:
            result_document.write(request, {"phase": "preflight", "exit_code": error.exit_code, "error": error.message})
        raise


def failure(error: Exception) -> MgpuError:
    """Return the refusal of a launch that could not be started because of an exception."""
    return MgpuError(f"not started: {failure_reason(error)}", errors.LAUNCH_REFUSED)


def failure_reason(error: Exception) -> str:
    """Return an exception as a clause, with the limit that was reached."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return f"{reason(error)} (limit of this process: {_most_files()}, ulimit -n)"
    if number == errno.EAGAIN or "can't start new thread" in str(error):
        return f"{reason(error)}: {_PROCESSES}"
    if isinstance(error, (OSError, MemoryError)):
        return reason(error)
    return f"a bug in mgpu: {reason(error)} (MGPU_DEBUG=1 shows where)"


def _is_for_others(error: Exception, request: Request) -> bool:
    """Whether `exit_status.guarded` handles it: a traceback was requested, or the reader of the output exited."""
    if isinstance(error, BrokenPipeError):
        return request.dry_run or request.print_command
    return bool(os.environ.get("MGPU_DEBUG")) and not isinstance(error, OSError)


def _most_files() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
