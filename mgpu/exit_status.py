"""How does a command end? Every failure has an exit code; an expected one is a message on stderr, not a traceback."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
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


def guarded(invoke: Callable[[], Any], argv: Sequence[str] = ()) -> int:
    """Run a command, print an expected failure as one message, and return the exit code.

    `argv`: the command line, for what is said of one that is not understood.
    """
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
            return _say(_usage(error, argv), int(getattr(error, "exit_code", errors.USAGE)))
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


# What typer says of a value, and how mgpu says it.
_VALUES = (
    (r"Input should be a valid integer.*|.* is not a valid (?:integer|int)\.?", "expected a whole number"),
    (r"Input should be a valid number.*|.* is not a valid float\.?", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected at least \1"),
    (r"Input should be less than or equal to (\S+)", r"expected at most \1"),
)


def _wrong_value(message: str, argv: Sequence[str]) -> str:
    """Return what is wrong with an option's value, in the words of mgpu; "" if it is another message."""
    found = re.fullmatch(r"Invalid value for '(-[\w-]+)'(?: / '[^']*')*: (.*)", message)
    if found is None:
        return ""
    said = next((re.sub(form, text, found[2]) for form, text in _VALUES if re.fullmatch(form, found[2])), "")
    if not said:
        return ""
    given = [word.partition("=")[2] for word in argv if word.startswith(f"{found[1]}=")]
    given += [following for word, following in itertools.pairwise(argv) if word == found[1]]
    shown = f" {given[0]}" if len(given) == 1 else ""  # of several, it is not known which one is wrong
    return f"{found[1]}{shown}: {said}"


def _usage(error: Any, argv: Sequence[str]) -> str:
    """A usage error with the closest name and the command for help."""
    import difflib

    from mgpu.command_line import shell

    message = str(error.format_message()).rstrip()
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "mgpu"
    if where == "mgpu" and argv and argv[0] in COMMANDS:  # an option without its value has no context
        where = f"mgpu {argv[0]}"
    message = _wrong_value(message, argv) or message
    if message.startswith("No such command") and "Did you mean" not in message:
        given = message.partition("'")[2].partition("'")[0]
        near = difflib.get_close_matches(given, COMMANDS, n=1, cutoff=0.4)
        if script := shell("mgpu launch {:path}", given) if given.endswith(".py") else "":
            return f"{message} To start a script:  {script}\nHelp: mgpu launch --help"
        message += f" Did you mean {near[0]}?" if near else f" Commands: {', '.join(COMMANDS)}."
    elif possible := getattr(error, "possibilities", None):
        given = str(getattr(error, "option_name", ""))
        begun = [name for name in possible if name.startswith(given)]
        near = difflib.get_close_matches(given, begun or possible, n=1, cutoff=0)
        message = f"{getattr(error, 'message', message).rstrip('.')}. Did you mean {near[0]}?"
    return f"{message}\nHelp: {where} --help"
