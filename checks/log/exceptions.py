"""Which Python exception, of those without a signature, stopped the ranks?"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import listed

from .. import _refusals as refusals
from . import _first_items as first_items
from . import _own_values as own_values
from ._first_of_chain import handled_exception, in_handler, what_to_do
from ._loader_cases import NOT_STARTED
from ._messages import (
    GUESSED,
    STACK_OF_COMPILED_CODE,
    advice,
    alike,
    chain_text,
    followers,
    line_of_code,
    of_compiled_code,
    short_name,
    shows_traceback,
    what_failed,
    where_raised,
    whole_message,
    wrong_value,
)
from ._own_objects import Meaning
from ._printed_paths import said_elsewhere
from ._which_ranks import fix_on_one_rank, only_on_ranks
from ._which_ranks import skipped as skipped_ranks

_OF_STDIN = re.compile(r"<stdin>:(\d+)")
_HEREDOC = Fix(
    "Line {number} is counted from the first line of the code that Python read from its standard input, such as a "
    "heredoc in a shell script. Saved as a file, its lines would be in the traceback.",
    ("grep -n '<<' run.sh",),
)
_PATH = "Go to that line. The traceback shows the call path."
# fmt: off
# They report that a process was asked to stop, or that another one failed: never what went wrong.
_STOP_EXCEPTIONS = frozenset({
    "KeyboardInterrupt", "SystemExit", "GeneratorExit", "SignalException", "ChildFailedError",
    "ProcessRaisedException", "ProcessExitedException", "Traceback",
})
# fmt: on
# What a rank raises when another one has disappeared: a consequence.
_COMMUNICATION = re.compile(
    r"^(?:Dist(?:Backend|Network|Store|)|ConnectionReset|BrokenPipe)Error$|NCCL (?:error|communicator was aborted)"
    r"|[Cc]onnection (?:closed|reset) by|[Bb]roken pipe"
    r"|gloo/|Timed out waiting"
    r"|ProcessGroup(?:NCCL|Gloo)(?!\.Options|\S* (?:does not|only|returned|OnCompletion)|::\w+: )"
    r"|TCPStore|recvValue failed|collective operation"
)
# After an uncaught exception a rank prints nothing more. The other ranks print to the same file until their launcher
# stops them (torchrun polls every 0.1 s). If more lines than this follow, and no failed rank is reported, the exception
# was caught.
_CONTINUED_LINES = 500
_AFTER_BAR = re.compile(r"((?:it/s|s/it)[^\]]{0,60}\])\S.*")  # what another program printed into the line of a bar
_STEP = 70  # characters of the line of a step
# What a rank raises when its loader worker has disappeared.
_LOST_WORKER_TYPES = frozenset({"ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"})
# fmt: off
# Exceptions that do not depend on a rank's batch: they are about the code, the packages, the model or the optimizer.
_CODE_ERRORS = frozenset({
    "ImportError", "ModuleNotFoundError", "NameError", "UnboundLocalError", "SyntaxError", "NotImplementedError",
})
# fmt: on
_OF_SETUP = re.compile(
    r"optimizer|state[_ ]dict|checkpoint|param(?:eter)?s?\b|param_group|unexpected keyword|positional argument"
    r"|(?<!'NoneType' object )has no attribute|\bversion|quantiz|bitsandbytes|\bsharded|\bconfig",
    re.IGNORECASE,
)


def _was_caught(one: UncaughtException, log: Log) -> bool:
    """Whether the run continued after the exception, so something caught it."""
    return one.after > _CONTINUED_LINES and not log.fallen and not one.by_torch


def unknown_exceptions(log: Log) -> list[UncaughtException]:
    """Return the exceptions that stopped a rank and have no signature, first exception first."""
    first = {rank.rank for rank in log.fallen if rank.first}
    found = [
        one
        for one in log.raised
        if not has_signature(one)
        and short_name(one.type) not in _STOP_EXCEPTIONS
        and not _was_caught(one, log)
        and not one.caught
        and not one.of_launcher
        and not _lost_loader_worker(one)
    ]
    several = len(log.files) > 1  # one file is in order already, and only some of its lines have a time

    def place(one: UncaughtException) -> tuple[bool, str, str, int]:
        return bool(first) and not first & {*one.ranks}, (one.at or "") if several else "", one.file, one.line

    return sorted(found, key=place)


def has_signature(one: UncaughtException) -> bool:
    """Whether a signature explains it better than "a child failed", which also matches a script's own subprocess."""
    return bool({*one.signatures} - {"log_child_failed"})


def _lost_loader_worker(one: UncaughtException) -> bool:
    """Whether the exception means that a rank lost its own DataLoader worker: one that reports its own did not."""
    own = one.message.startswith("Caught ") or "worker.py in _worker_loop" in " ".join(one.frames)
    return one.loader and not own and short_name(one.type) in _LOST_WORKER_TYPES


def _is_communication_error(one: UncaughtException) -> bool:
    if "INTERNAL ASSERT FAILED" in one.message:
        return False
    return bool(_COMMUNICATION.search(short_name(one.type)) or _COMMUNICATION.search(one.message))


def _not_about_data(one: UncaughtException) -> bool:
    in_scheduler = (one.frames or ("",))[-1].startswith("torch/optim/lr_scheduler.py ")
    return short_name(one.type) in _CODE_ERRORS or in_scheduler or bool(_OF_SETUP.search(one.message))


def _raised_by(one: UncaughtException, log: Log) -> tuple[int, ...]:
    """Return all ranks that raised this type and message, at whatever line."""
    return tuple(sorted({rank for other in log.raised if alike(other) == alike(one) for rank in other.ranks}))


def _ranks_text(one: UncaughtException, log: Log) -> str:
    """Return "on rank 2", "on all 4 ranks", "on ranks 0, 1 and 3"; empty if the log does not show it."""
    ranks = _raised_by(one, log)
    if not ranks:
        by_itself = [str(rank.rank) for rank in log.fallen if rank.exit_code == 1]
        if len(by_itself) == one.times == 1:
            return f"on rank {by_itself[0]}"
        return f"{one.times} times" if one.times > 1 else ""
    if len(ranks) > 1 and len(ranks) >= len(log.ranks) and not skipped_ranks(ranks):
        return f"on all {len(ranks)} ranks"
    if len(ranks) == 1:
        return f"on rank {ranks[0]}"
    return f"on ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _problem(one: UncaughtException, log: Log, cause: str, *fixes: Fix, explained: bool = False) -> Problem:
    where, on = one.place or ("the script" if one.frames else "the program"), _ranks_text(one, log)
    said = f": {what_failed(one)}" if one.message else ""
    value = f" ({meant})" if (meant := wrong_value(one)) else ""
    # A pool raises a worker's exception a second time: its cause is then the exception itself.
    again = f"{short_name(one.type)}: {one.message}".removesuffix(": ")
    from_cause = f" (direct cause: {one.cause})" if one.cause and one.direct and one.cause != again else ""
    advised = advice("\n".join(filter(None, (one.message, one.more))))
    follow = (Fix(f'Follow the error message: "{" ".join(advised)}"'),) if advised else ()
    return Problem(
        f"{where} raised {short_name(one.type)}{f' {on}' if on else ''}{said}{value}{from_cause}",
        f"{cause}{chain_text(one)}{followers(one, log)}{line_of_code(one, explained=explained)}{said_elsewhere(one)}"
        f"{_after_steps(one, log)}",
        (*follow, *fixes),
        {
            "line": whole_message(one),
            "exception": one.type,
            "place": one.place,
            "library": one.library,
            "times": one.times,
            "rank": one.rank,
            "at": one.at,
        },
        tuple(f"rank {rank}" for rank in one.ranks),
        Place(one.file, one.line),
    )


def _worked_before(one: UncaughtException, log: Log) -> bool:
    """Whether steps of the training had worked, so the code and the settings alone are not the cause."""
    return log.reached is not None and log.reached.line < one.line and not _not_about_data(one)


def _after_steps(one: UncaughtException, log: Log) -> str:
    if not _worked_before(one, log) or log.reached is None:
        return ""
    last = _AFTER_BAR.sub(r"\1", log.reached.text)[:_STEP].rstrip()
    if log.reached.at == log.reached.of:  # a download or a preparation has a bar, too
        return f' A bar had reached its end before it ("{last}"): what comes after that failed.'
    return (
        f' It came after steps that worked, the last is "{last}": it depends on what is different at this one, such as '
        "a batch, the end of the data, an evaluation or a checkpoint."
    )


@check(Severity.ERROR, source="https://docs.python.org/3/library/traceback.html", role="root", kind="script")
def log_exception(log: Log) -> Answer:
    """A rank stopped with a Python exception that has no signature.

    Why: If all ranks raised it, the cause is a bug in the script, or in how it was called. If one rank raised it, the
    cause is that rank's share of the data, or code that only this rank runs (saving, logging, evaluating on rank 0),
    unless the message is about the code, the model or the packages.

    Fix: Go to the line in the traceback. Reproduce it in one process, with that rank's share of the data.
    """
    found = [one for one in _without_commands(log) if not _is_communication_error(one)]
    if not found:
        return Ok(f"no other exception in {log.lines:,} lines")
    one = found[0]
    if handled := in_handler(one):
        return _in_a_handler(one, log, handled)
    meant = first_items.explain(one) or own_values.explain_in(log, one)
    refused = None if meant else refusals.explain(one)
    everywhere, cause = _by_whom(one, log, from_package=refused is not None or bool(meant and meant.of_code))
    if meant:
        fixes = _to_the_line(one, log, everywhere=everywhere)
        return _meant(meant, one, log, _problem(one, log, cause, *fixes, explained="None" in meant.title))
    if refused:
        return _problem(one, log, f"{refused.cause} {cause}", *refused.fixes)
    return _problem(one, log, cause, *_to_the_line(one, log, everywhere=everywhere))


def _without_commands(log: Log) -> list[UncaughtException]:
    return [one for one in unknown_exceptions(log) if own_values.command(one) is None]


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/subprocess.html#subprocess.CalledProcessError",
    role="secondary",
    kind="launcher",
    because_of=("log_command_not_found",),
)
def log_command_failed(log: Log) -> Answer:
    """A program that the run started failed, and the run stopped because of it.

    Why: A compiler, a download or a launcher ended with an exit code that is not 0. The exception only repeats its
    command. Its own error is in the lines above, if the script did not capture them.

    Fix: Run the command by itself and read its output.
    """
    in_ranks = any(short_name(one.type) == "ChildFailedError" for one in log.raised)  # else it may start the ranks
    started = [one for one in log.raised if in_ranks and one.of_launcher and one.own_code and not one.caught]
    for one in (*unknown_exceptions(log), *started):
        if meant := own_values.command(one):
            everywhere, cause = _by_whom(one, log, from_package=True)
            return _meant(meant, one, log, _problem(one, log, cause, *_to_the_line(one, log, everywhere=everywhere)))
    return Ok(f"no such exception in {log.lines:,} lines")


def _in_a_handler(one: UncaughtException, log: Log, handled: str) -> Problem:
    """Return a problem that names the first exception: the code that handled it failed too."""
    general, on = _problem(one, log, ""), _ranks_text(one, log)
    text, meant = handled_exception(one, log, handled)
    first = f"{meant.why} {text}. " if meant else "The first exception is usually the cause. "
    return replace(
        general,
        title=f"{meant.title if meant else text}{f' {on}' if on else ''}; while it was handled, {short_name(one.type)} "
        "was raised too",
        cause=f"{first}An except branch, a retry or a clean-up followed it and failed at "
        f"{one.place or 'another line'}: {one.message}.{line_of_code(one)}",
        fix=(*(meant.fixes if meant else ()), *what_to_do(one)),
    )


def _meant(meant: Meaning, one: UncaughtException, log: Log, general: Problem) -> Problem:
    """Return what message and line show of the wrong value, followed by what is said of every exception."""
    on = _ranks_text(one, log)
    message = one.message.partition(", but expected one of")[0].rstrip(".")
    said = "" if one.message in meant.title else f" {short_name(one.type)}: {message}."
    guess = GUESSED.search(one.message)
    left_out = (_PATH, f'Follow the error message: "{guess[0]}"' if guess and guess["name"] not in meant.title else "")
    return replace(
        general,
        title=f"{meant.title}{f', {on}' if on else ''}",
        cause=f"{meant.why}{said} {general.cause}",
        fix=(*meant.fixes, *(fix for fix in general.fixes if fix.text not in left_out)),
    )


def _to_the_line(one: UncaughtException, log: Log, *, everywhere: bool) -> tuple[Fix, ...]:
    """Return how to find the code that raised it, as far as the log shows it."""
    known = shows_traceback(one) or one.code
    if found := _OF_STDIN.match(one.place or ""):
        return (replace(_HEREDOC, text=_HEREDOC.text.format(number=found[1])),)
    if not known and of_compiled_code(one):
        return (STACK_OF_COMPILED_CODE,)
    first = "Go to that line" if known else "Find its traceback, above this message in the complete output"
    if everywhere:
        return (Fix(f"{first}. It is quicker to reproduce with one process.", ("mgpu launch --gpus 1 ...",)),)
    if len(log.ranks) > 1 and not _not_about_data(one) and not _cut_there(one, log):
        return (fix_on_one_rank(first, one),)
    if shows_traceback(one):
        return (Fix(_PATH if known else f"{first}. The traceback shows the call path."),)
    return (Fix(f"{first}{'.' if known else ', or run it again: its last frame is the code that failed.'}"),)


def _by_whom(one: UncaughtException, log: Log, *, from_package: bool) -> tuple[bool, str]:
    """Return whether all ranks raised it, and what that means; `from_package`: a package refused its input."""
    ranks = _raised_by(one, log)
    if len(ranks) > 1 and len(ranks) >= len(log.ranks) and (missing := skipped_ranks(ranks)):
        one_more = "rank" if len(missing) == 1 else "ranks"
        return False, (
            f"The log does not have it from {one_more} {listed(map(str, missing))}, which must exist too. Either only "
            "these have what the line needs (set, created or loaded under a condition such as rank == 0), or the run "
            "was stopped before they came there."
        )
    if len(ranks) > 1 and len(ranks) >= len(log.ranks):
        return True, (
            "All ranks raised it. It is a bug in the script or in its arguments, not a fault of one rank or GPU."
        )
    without_rank = any(not other.ranks for other in log.raised if alike(other) == alike(one))
    if len(ranks) != 1 or len(log.ranks) < 2 or without_rank:
        return False, where_raised(one)
    if on_ranks := only_on_ranks(one):
        return False, on_ranks
    if others := _cut_there(one, log):
        return False, (
            f"The log also has a traceback of {'rank' if len(others) == 1 else 'ranks'} {listed(others)} that passes "
            "through the same frame and ends before its exception. Several ranks probably failed in the same place: "
            "the cause is the code, the settings or the packages, not one rank's data."
        )
    if _not_about_data(one) or (from_package and not _worked_before(one, log)):
        return False, (
            "The log has it from this rank only. The message is about the code, the model, the settings or the "
            "packages, not about one rank's data: the others may have failed in the same place without printing it."
        )
    return False, (
        "Only this rank raised it. The cause is this rank's share of the data, or code that only this rank "
        "runs (saving, logging, evaluating)."
    )


def _cut_there(one: UncaughtException, log: Log) -> list[str]:
    """Return the other ranks whose tracebacks end in a frame of this one, before their exceptions."""
    ranks = {cut.rank for cut in log.cut if cut.rank is not None and cut.frame in one.frames}
    return [str(rank) for rank in sorted(ranks - {*one.ranks})]


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", role="root", kind="script")
def log_loader_broke_off(log: Log) -> Answer:
    """A rank lost the connection to its own DataLoader worker, which had died.

    Why: The worker died while it sent a batch: host memory ran out, or a decoding library crashed. The rank then gets
    only a closed connection, and no message from the worker.

    Fix: Check whether the kernel killed it. Use fewer workers, or none to see where it happens.
    """
    found = [one for one in log.raised if _lost_loader_worker(one) and not one.caught]
    if not found:
        return Ok(f"no rank lost its loader worker in {log.lines:,} lines")
    started = (found[0].frames or ("",))[-1].endswith("torch/utils/data/dataloader.py in __init__")
    return _problem(
        found[0],
        log,
        NOT_STARTED
        if started
        else "Its DataLoader worker died while it sent a batch. It was killed when host memory ran out, or crashed in "
        "compiled code.",
        Fix("Check whether the kernel killed it.", ("sudo dmesg -T | grep -i 'killed process' | tail",)),
        Fix(
            "Use fewer workers (each copies the data it touches). Without workers, the traceback shows the sample.",
            ("DataLoader(..., num_workers=0)",),
        ),
    )


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.DistError",
    because_of=("log_exception",),
    role="secondary",
    kind="timeout",
)
def log_communication_broke(log: Log) -> Answer:
    """A rank stopped because it lost the connection to another rank.

    Why: When one rank disappears, the others get an error in their next collective: connection closed, connection
    reset, NCCL error. These ranks are not the cause.

    Fix: Find the rank that reports no connection error, and read the end of its log.
    """
    found = [one for one in unknown_exceptions(log) if _is_communication_error(one)]
    if not found:
        return Ok(f"no other connection error in {log.lines:,} lines")
    one = found[0]
    reporting = {rank for other in found for rank in other.ranks}
    silent = sorted(set(log.ranks) - reporting)
    who = f" Rank {silent[0]} reports no such error: check it first." if len(silent) == 1 and reporting else ""
    return _problem(
        one,
        log,
        f"A rank with a connection error is not the cause: another rank had exited, or hung.{who}",
        Fix("Check the rank without a connection error, and the end of each rank's own log."),
        Fix("Check whether the ranks can communicate.", ("mgpu smoke-test",)),
    )
