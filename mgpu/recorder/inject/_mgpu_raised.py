"""The exception that ends this rank's script, and what the names on its lines stood for.

Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_LAUNCHERS = tuple(
    os.path.join(*path)
    for path in (
        ("accelerate", "commands", "launch.py"),
        ("torch", "distributed", "run.py"),
        ("deepspeed", "launcher", "runner.py"),
        ("deepspeed", "launcher", "launch.py"),
    )
)
_SPAWN = os.path.join("torch", "multiprocessing", "spawn.py")
_MOST_LINES = 4  # that are read
_LONGEST = 4000  # characters of a message
_LOOK_S = 3.0  # at the files that an exception is about
_CONDITION = 4  # of a failed line: file, line, function, values, condition
_NAN = re.compile(r"(?i)\bnans?\b|isnan|isfinite|(?:not|non)[- _]?finite")
_VALUES = "_mgpu_values"  # attribute of torch's ExceptionWrapper


def begin(recorder: Any) -> None:
    """From now on, an exception that ends the script is recorded before Python prints it.

    Also one that the script catches, and leaves with `sys.exit(1)`: it may print no more than the message.
    """
    before, leave = sys.excepthook, sys.exit

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        record(recorder, kind, error, trace)
        before(kind, error, trace)

    @functools.wraps(leave)
    def record_and_leave(*status: Any) -> Any:
        error = sys.exc_info()[1]
        if any(status) and isinstance(error, Exception):
            record(recorder, type(error), error, error.__traceback__)
        return leave(*status)

    sys.excepthook, sys.exit = hook, record_and_leave


def record(recorder: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Record an exception that ends this process. A process that never became a rank counts as rank 0."""
    if issubclass(kind, KeyboardInterrupt):
        return  # what this imports would make Python exit with 1, not of the signal
    if recorder.rank is None and (not issubclass(kind, Exception) or sys.argv[:1] == ["-c"] or _is_of_launcher(trace)):
        return
    for write in (_write_peaks, _write_raised, _write_values):
        with contextlib.suppress(Exception):
            write(recorder, kind, error, trace)


def _is_of_launcher(trace: TracebackType | None) -> bool:
    """Whether a launcher reports with it that one of its ranks failed."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.endswith(_LAUNCHERS) or (code.co_filename.endswith(_SPAWN) and code.co_name == "join"):
            return True
        trace = trace.tb_next
    return False


def _write_peaks(recorder: Any, *_: Any) -> None:
    recorder.write_memory()  # the error may be that there is not enough


def _write_raised(recorder: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write type and message, then the frames, one a line."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename}:{trace.tb_lineno}:{code.co_name}")
        trace = trace.tb_next
    message = (str(error).splitlines() or [""])[0][:_LONGEST]
    recorder.store("raised", "\n".join([f"{kind.__name__}: {message}", *frames[-60:]]) + "\n")


def _write_values(recorder: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, Exception):
        return
    import json

    found = _of_worker(trace) or _failed_lines(error, trace)
    handled = error.__context__
    if handled is not None and error.__cause__ in (None, handled) and len(found) < _MOST_LINES:
        import _mgpu_values  # type: ignore[import-not-found]

        places = [line[:2] for line in found]
        before = _mgpu_values.on_failed_lines(handled.__traceback__, type(handled).__name__)[:1]
        found[1:1] = [line for line in before if line[:2] not in places]
    if found:
        recorder.store("values", json.dumps(found))
    said = (str(error)[:_LONGEST], *(line[_CONDITION] for line in found))
    unseen = recorder.finite is not None and not recorder.finite.found
    if unseen and any(map(_NAN.search, said)):  # the script checks its loss before it calls backward
        import _mgpu_inputs  # type: ignore[import-not-found]

        if inputs := _mgpu_inputs.with_nan_below(trace):
            recorder.finite.write("checked value", "not finite", recorder.steps + 1, inputs, found[0][:3])


def _failed_lines(error: BaseException, trace: TracebackType | None) -> list[list[Any]]:
    """Return the values of the failed lines, the user's innermost one with a file, loop or folder."""
    import importlib

    import _mgpu_values
    from _mgpu_own_code import is_users  # type: ignore[import-not-found]

    lines: list[list[Any]] = _mgpu_values.on_failed_lines(trace, type(error).__name__)
    for module in ("_mgpu_read_files", "_mgpu_empty_loops", "_mgpu_folders"):
        with contextlib.suppress(Exception):
            found = _in_time(importlib.import_module(module).of_failure, trace, error)
            if found is not None:
                file, number, facts = found
                line = next((one for one in lines if (one[0], one[1]) == (file, number)), None)
                if line is None:
                    own = next((at for at, one in enumerate(lines) if is_users(one[0])), len(lines))
                    lines.insert(own, line := [file, number, "", {}, ""])
                line[3].update(facts.pop("values", {}))
                line.append(facts)
                break
    return lines


def _in_time(look: Any, *arguments: Any) -> Any:
    """Return what a look at files finds; None if their file system does not answer: this rank must end anyway."""
    import threading

    found: list[Any] = []

    def keep() -> None:
        with contextlib.suppress(Exception):
            found.append(look(*arguments))

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    thread.join(_LOOK_S)
    return found[0] if found else None


def hook(recorder: Any, module: Any) -> None:
    """Keep the values with an exception that torch brings from a loader's worker, or from a thread, to the main one."""
    original = module.ExceptionWrapper.__init__

    @functools.wraps(original)
    def wrap(self: Any, exc_info: Any = None, *args: Any, **options: Any) -> None:
        original(self, exc_info, *args, **options)
        with contextlib.suppress(Exception):
            _, error, trace = exc_info or sys.exc_info()
            if error is not None:
                setattr(self, _VALUES, _failed_lines(error, trace))

    module.ExceptionWrapper.__init__ = wrap


def _of_worker(trace: TracebackType | None) -> Any:
    """Return the values of the worker's lines if the exception came from one: torch raises it again in a method."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    again = trace is not None and trace.tb_frame.f_code.co_name == "reraise"
    return getattr(trace.tb_frame.f_locals.get("self"), _VALUES, None) if trace is not None and again else None
