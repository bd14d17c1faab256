"""Where did the processes stand, according to the stacks that py-spy or faulthandler printed into the log?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, PrintedStack
from mgpu.text import listed

# Functions in which a rank waits for the others, innermost first in a stack.
_WAITS = re.compile(
    r"^_?\w*?(?P<kind>all_?gather|all_?reduce|reduce_?scatter|all_?to_?all|broadcast|barrier|scatter|gather|"
    r"isend|irecv|send|recv|full_tensor|synchronize)\w* \("
)
_PROCESSES = 4  # named in the title


def _main_stacks(log: Log) -> list[PrintedStack]:
    """Return one stack of each process: a thread that waits for the others, else its main thread."""
    of_process: dict[object, list[PrintedStack]] = {}
    for one in log.stacks:
        of_process.setdefault(one.process or one.line, []).append(one)
    return [
        next((one for one in stacks if _wait(one)), None)
        or next((one for one in stacks if one.thread == "MainThread"), stacks[0])
        for stacks in of_process.values()
    ]


def _wait(one: PrintedStack) -> str | None:
    """Return the kind of the collective that a thread waits in."""
    found = next(filter(None, map(_WAITS.match, one.functions)), None)
    return found["kind"].replace("_", "") if found else None


@check(
    Severity.ERROR,
    source="https://github.com/benfred/py-spy",
    role="secondary",
    kind="timeout",
    tags=("precise",),
)
def log_stacks_without_error(log: Log) -> Answer:
    """The log has no error, but the stacks of processes that someone examined because the run hung.

    Why: A deadlock prints nothing. The stacks show in which function each process waits: if they wait in different
    collectives, neither can finish.

    Fix: Compare the stacks of all ranks, and find why one takes another path.
    """
    known = any(not seen.survived for seen in log.seen) or any(not one.caught for one in log.raised)
    if not log.stacks or known or log.finished is not None:
        return Ok("no stacks in the log" if not log.stacks else "the log has an error, or reports its end")
    stacks = _main_stacks(log)
    shown = [f"{one.process or 'a process'} is in {one.functions[0]}" for one in stacks[:_PROCESSES]]
    kinds = {kind for one in stacks if (kind := _wait(one))}
    differ = len(kinds) > 1
    what = "the processes wait in different collectives, probably a deadlock" if differ else "the run probably hung"
    callers = listed([f"{one.process or 'a process'}: {' < '.join(one.functions[:4])}" for one in stacks[:_PROCESSES]])
    return Problem(
        f"{what}: {listed(shown)}",
        "No process reported an error. "
        + (
            "Each collective needs all ranks of its group. If ranks run different ones, or the same ones in another "
            "order on the same GPUs, none can finish: a fault of the code or the framework, not a slow step. "
            if differ
            else "The stacks were printed because nothing moved any more. "
        )
        + f"The calls: {callers}.",
        (
            Fix(
                "Compare the stacks of all ranks, and look for the branch (source rank, first or last stage) that "
                "leads one of them to another collective."
            ),
            Fix("Record what each rank does when the run hangs.", ("mgpu launch --on-hang stop train.py",)),
        ),
        {"line": stacks[0].functions[0], "processes": len(stacks)},
        place=Place(stacks[0].file, stacks[0].line),
    )
