"""The exception that ends this rank's script, and what the names on its lines stood for.

Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST = 4000  # characters of a message


def begin(recorder: Any) -> None:
    """From now on, an exception that ends the script is recorded before Python prints it."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        record(recorder, kind, error, trace)
        before(kind, error, trace)

    sys.excepthook = hook


def record(recorder: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Record an exception that ends this process."""
    for write in (_write_peaks, _write_raised, _write_values):
        with contextlib.suppress(Exception):
            write(recorder, kind, error, trace)


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
    import json

    import _mgpu_values  # type: ignore[import-not-found]

    if issubclass(kind, Exception) and (found := _mgpu_values.on_failed_lines(trace, kind.__name__)):
        recorder.store("values", json.dumps(found))
