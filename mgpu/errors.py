"""Which failures are expected, and which exit code does each have?

An MgpuError reaches the user as one message on stderr and an exit code, never as a traceback.
"""

from __future__ import annotations

# docs/exit-codes.md has the table for users; a test compares them.
READY = 0
NOT_READY = 1
USAGE = 2
UNKNOWN = 3
NO_GPU = 4
REFUSED = 5
TIMED_OUT = 124
LAUNCH_REFUSED = 125
CANNOT_RUN = 126
NOT_FOUND = 127
INTERRUPTED = 130


_LONGEST_LINE = 4096  # characters of a message: the longest path there is


class MgpuError(Exception):
    """An expected failure: a message for the user and the exit code of the command.

    Text from a file is clipped where the message is made (`clipped`). No line is longer than the longest path.
    """

    def __init__(self, message: str, exit_code: int = NOT_READY) -> None:
        if len(message) > _LONGEST_LINE:
            message = "\n".join(clip(line, _LONGEST_LINE) for line in message.split("\n"))
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def clip(text: str, most: int = 200) -> str:
    """Return the text, cut to `most` characters."""
    return text if len(text) <= most else f"{text[: max(0, most - 3)]}..."


def reason(error: BaseException) -> str:
    """Return an exception as a clause for a sentence: the system's message without errno and repr noise."""
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
