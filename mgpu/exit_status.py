"""How does a command end? Every failure has an exit code; an expected one is a message on stderr, not a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from mgpu import errors

COMMANDS = ("doctor", "configure", "smoke-test", "launch")


def tolerate_encoding_errors() -> None:
    """Replace characters that the terminal's encoding lacks with question marks, instead of failing.

    If stderr is closed, its output is dropped instead of going to stdout, which may belong to the training script.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def refused(error: errors.MgpuError) -> int:
    """Print an expected failure from before a command ran, and return the exit code."""
    return _say(error.message, error.exit_code)


def guarded(invoke: Callable[[], Any]) -> int:
    """Run a command, print an expected failure as one message, and return the exit code."""
    try:
        code = code_of(invoke())
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except errors.MgpuError as error:
        return _say(error.message, error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted", errors.INTERRUPTED)
    except BrokenPipeError:  # the reader of the output closed it: there is nothing left to report
        drop(1)
        return 128 + signal.SIGPIPE
    except Exception as error:
        if type(error).__name__ == "Exit":
            return int(getattr(error, "exit_code", 0))
        if hasattr(error, "format_message"):  # a usage error of click, which typer ships under changing names
            return _say(_usage(error), int(getattr(error, "exit_code", errors.USAGE)))
        if type(error).__name__ == "Abort":
            return _say("interrupted", errors.INTERRUPTED)
        if isinstance(error, OSError):
            drop(1)
            return _say(errors.reason(error), errors.UNKNOWN)
        if os.environ.get("MGPU_DEBUG"):
            raise
        return _say(f"a bug in mgpu: {errors.reason(error)} (MGPU_DEBUG=1 shows where)", errors.UNKNOWN)


def drop(number: int) -> None:
    """Drop the unwritten buffer of stdout (1) or stderr (2), so that Python does not fail at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def code_of(result: Any) -> int:
    """Return the result of a command as an exit code."""
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            _put(message)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # Python would try again at exit, and exit with 120
            drop(number)
    return code


def _put(message: str) -> None:
    try:
        from mgpu import messages
    except (OSError, ImportError):  # no file descriptor left for the import
        plain = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in message)
        print(f"mgpu: {plain}", file=sys.stderr)
    else:
        messages.notice(message)


def _usage(error: Any) -> str:
    """A usage error with the closest name and the command for help."""
    import difflib

    message = str(error.format_message()).rstrip()
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "mgpu"
    if message.startswith("No such command") and "Did you mean" not in message:
        given = message.partition("'")[2].partition("'")[0]
        near = difflib.get_close_matches(given, COMMANDS, n=1, cutoff=0.4)
        message += f" Did you mean {near[0]}?" if near else f" Commands: {', '.join(COMMANDS)}."
    elif possible := getattr(error, "possibilities", None):
        given = str(getattr(error, "option_name", ""))
        begun = [name for name in possible if name.startswith(given)]
        near = difflib.get_close_matches(given, begun or possible, n=1, cutoff=0)
        message = f"{getattr(error, 'message', message).rstrip('.')}. Did you mean {near[0]}?"
    return f"{message}\nHelp: {where} --help"
