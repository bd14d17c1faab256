"""Does the log end within a traceback, before the name of the exception?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Circumstance, CutTraceback, Log
from mgpu.text import counted, listed

from ._own_objects import Meaning
from ._process_groups import group_of_cut

_BLOCK = 4096  # bytes of a file system
_OPERAND = re.compile(r"\b(?:args|cfg|config|self|opts?|params)(?:\.\w+)+(?![\w(])")
_ARITHMETIC = re.compile(r"[\w)\]] (?://?|\*|%|\+|-) [\w(]")
_ADVANCES = re.compile(r"\bnext\((?P<of>[^()]+)\)")


def _possible(one: CutTraceback) -> str:
    """Return which exceptions the last line of code can raise, if it is of a kind that raises few."""
    code = one.code or ""
    if advances := _ADVANCES.search(code):
        return (
            f" If this line itself failed, it is probably StopIteration: {advances['of']} has no items left. A sampler "
            "or an iterator then makes fewer batches than its length says."
        )
    if code.startswith("assert "):
        return " If this line itself failed, it is an AssertionError: the condition does not hold."
    if code.startswith("raise ") and (name := re.match(r"raise (?P<type>[A-Za-z_][\w.]*)", code)):
        return f" This line raises {name['type']}. Its message is not in the log."
    operands = list(dict.fromkeys(_OPERAND.findall(code)))
    if len(operands) > 1 and _ARITHMETIC.search(code):
        return (
            f" If this line itself failed, one of {listed(operands)} has no usable value: an option that is not set is "
            "None (TypeError), or it is 0 (ZeroDivisionError). Print them, and set the one that is missing."
        )
    return ""


def _lost_by_hook(log: Log, hook: Circumstance) -> Problem:
    """Return the problem of a program whose exception the log does not have: what reports exceptions failed."""
    done = log.reached is not None and log.reached.at == log.reached.of
    after = " A bar had reached its end before it: what comes after that failed, such as saving." if done else ""
    blocks, rest = divmod(log.size_bytes, _BLOCK)
    full = (
        f" The log has exactly {counted(blocks, 'block')} of 4 KiB, as a file whose disk or quota is full: that is "
        "probably why the exception is missing, and can be the failure itself."
        if blocks and not rest
        else ""
    )
    space = (Fix("See whether the disk or the quota is full.", ("df -h .", "quota -s")),) if full else ()
    return Problem(
        "the program failed, and so did the hook that reports exceptions: the program's exception is not in the log",
        'Python printed "Error in sys.excepthook:". A package (a tracker, rich, apport) had installed the hook. After '
        f"the hook's traceback, Python prints \"Original exception was:\" and the program's exception.{after}{full}",
        (
            *space,
            Fix("Read the lines that follow in the complete log, or in the tracker's own files."),
            Fix(
                "To see it the next time, print it before the hook gets it.",
                ("except BaseException: traceback.print_exc(); raise",),
            ),
        ),
        {"line": hook.text},
        (),
        Place(hook.file, hook.line),
    )


def _of_step(step: Meaning | None) -> str:
    return f" If this line itself failed, {step.title}. {step.why}" if step else ""


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/traceback.html",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_traceback_cut(log: Log) -> Answer:
    """The log ends within a traceback: it has the frames, but not the exception.

    Why: The log was copied in part, the process was stopped while it printed, or the hook that prints exceptions
    failed. The exception's type and message, which say what is wrong, follow the last frame.

    Fix: Read the lines that follow in the complete log, or in the failed rank's own log.
    """
    explained = any(not seen.survived for seen in log.seen) or any(not one.caught for one in log.raised)
    hook = next((one for one in log.shows if one.name == "exception_hook_failed"), None)
    if not (log.cut or hook) or explained or log.finished is not None:
        return Ok(f"no traceback without its exception in {log.lines:,} lines, or another error explains it")
    if hook:
        return _lost_by_hook(log, hook)
    one = log.cut[0]
    said = f'the program reported "{one.reported}", and the traceback below is cut' if one.reported else ""
    code = f' The line is "{one.code}".' if one.code else ""
    step = None if said else group_of_cut(one.code, one.frame)
    return Problem(
        f"{said or 'a traceback without its exception'}: the last frame in the log is {one.place}",
        f"This is probably the message of the exception. Its type is not in the log.{code}"
        if said
        else f"The type and the message of the exception are not in the log, so its cause is not known.{code}"
        f"{_possible(one)}{_of_step(step)}",
        (
            *(step.fixes if step else ()),
            Fix("Read the lines that follow this frame in the complete log, or in the failed rank's own log."),
            Fix("Have each rank write its own log.", ("mgpu launch --log-dir runs train.py",)),
        ),
        {"line": one.code or one.place, "place": one.place, "rank": one.rank},
        () if one.rank is None else (f"rank {one.rank}",),
        Place(one.file, one.line),
    )
