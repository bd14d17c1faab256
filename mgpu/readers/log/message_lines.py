"""Which lines after the first one of an exception belong to its message?"""

from __future__ import annotations

import re

from mgpu.readers.log.line import LONGEST_TEXT

# First lines that only introduce the next ones, which name what is wrong: pydantic's ("1 validation error for X"),
# load_state_dict's, an empty one, and all with a colon, a comma or an opening bracket at the end.
_INTRODUCES = re.compile(r"[:,({\[]$|^\d+ validation errors? for |^Error\(s\) in |^$")
_CONTINUED = re.compile(r"\s|.*:$|[\w.\[\]-]+$")  # indented, introducing again, or a name alone
# What other programs, and C++ libraries, print below an exception: not a part of its message.
NOT_OF_MESSAGE = re.compile(
    r"^(?:mgpu: |srun|slurmstepd|wandb|mpirun|make|Exception (?:raised from|ignored)|frame #|Process |Aborted|"
    r"Terminated|Killed|Segmentation|terminate called|[=*#!-]{5,}|Error in |Fatal |During handling|The above|Stack |"
    r"C\+\+|Last error|\[rank|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\S+: (?:line \d+|error|warning): |"
    r"Set the environment variable|[\u2600-\u27bf\U0001f300-\U0001faff])|"
    r"(?:^|/)\S+\.py:\d+: \w*Warning|"
    r"^\"{3}$"  # below the traceback of a pool's worker
)

# Messages of Python's own, which have one line. What follows is other output.
ONE_LINE = re.compile(
    r"^(?:local variable '\w+' referenced before assignment|cannot access (?:local|free) variable '\w+' where it is "
    r"not associated with a value(?: in enclosing scope)?|name '\w+' is not defined|"
    r"'\w+' object has no attribute '\w+'|'\w+' object is not (?:subscriptable|iterable|callable)|"
    r"(?:integer )?(?:division|modulo)(?: or modulo)? by zero|"
    r"(?:list|tuple|string) index out of range|(?:not enough|too many) values to unpack \([^()]*\))$"
)

# Keras names the layer, and says after an empty line what was wrong there.
ANNOUNCES = re.compile(r"Exception encountered when calling ")
# TensorFlow's traceback of a function that it had converted, as the message. Its last line is the exception.
CONVERTED = "in user code:"
_CONVERTED_END = re.compile(r" {4,}(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Exhausted)): (?P<message>\S.*)")
# A line that introduces the reason of the message above it, after an empty line.
OPENS_REASON = re.compile(
    r"(?:Thrown|Raised|Found|Reported|Caused|Reasons?|Details|Errors?|Problems|Expected|Got)\b[\w ]*:$"
)


def continues(text: str) -> bool:
    """Whether a line certainly belongs to the message above it: it is indented."""
    return text[:1].isspace()


def whole_message(first: str, lines: list[str]) -> tuple[str, list[str]]:
    """Return the message, with the lines that its first line only introduces, and the lines that are left."""
    if not _INTRODUCES.search(first):
        return first, lines
    message, joined = " ".join(first.split()), 0
    for line in lines:
        wrapped = message.endswith(",")
        if len(message) >= LONGEST_TEXT or (joined and not wrapped and not _CONTINUED.match(line)):
            break
        message, joined = f"{message} {' '.join(line.split())}".strip(), joined + 1
    return message[:LONGEST_TEXT], lines[joined:]


def end_of_converted(text: str) -> tuple[str, str] | None:
    """Return the type and message of a line that ends TensorFlow's own traceback; None if it is another line."""
    found = _CONVERTED_END.match(text)
    return (found["type"], found["message"].strip()) if found else None
