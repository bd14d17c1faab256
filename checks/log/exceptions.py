"""Which Python exception ended the ranks, and which rank did not come to a collective? What no signature knows by
name."""

from __future__ import annotations

import re
from collections import Counter

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, Raised, Stalled

_FLIGHT_RECORDER_TUTORIAL = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
_TROUBLESHOOTING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

# fmt: off
# They tell that a process was asked to end, or that another one failed: never what went wrong.
_ENDS = frozenset({
    "KeyboardInterrupt", "SystemExit", "GeneratorExit", "SignalException", "ChildFailedError",
    "ProcessRaisedException", "ProcessExitedException", "Traceback",
})
# fmt: on
# What a rank raises when another one is gone: a consequence.
_COMMUNICATION = re.compile(
    r"^(?:Dist(?:Backend|Network|Store|)|ConnectionReset|BrokenPipe)Error$|NCCL (?:error|communicator was aborted)"
    r"|[Cc]onnection (?:closed|reset) by|[Bb]roken pipe"
    r"|gloo/|Timed out waiting|ProcessGroup(?:NCCL|Gloo)|TCPStore|recvValue failed|collective operation"
)
# A rank whose exception nobody caught writes no more; the other ranks do, into the same file, until their launcher ends
# them (torchrun looks every 0.1 s). More lines than this after it, and no failed rank told of: somebody has caught it.
_GOES_ON_LINES = 500
# What a rank raises whose loader worker is gone.
_BROKEN_OFF = frozenset({"ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"})
# A process group's first collectives; a run whose first ones time out has never exchanged anything.
_FIRST_COLLECTIVES = 2


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _nobodys(one: Raised, log: Log) -> bool:
    """Whether the run went on after it: something has caught it."""
    return one.after > _GOES_ON_LINES and not log.fallen and not one.by_torch


def _uncaught(log: Log) -> list[Raised]:
    """The exceptions that ended a rank and that no signature knows, the first one first."""
    first = {rank.rank for rank in log.fallen if rank.first}
    found = [
        one
        for one in log.raised
        if not _known(one)
        and _last(one.type) not in _ENDS
        and not _nobodys(one, log)
        and not one.caught
        and not one.of_launcher
        and not _of_loader(one)
    ]
    several = len(log.files) > 1  # within one file lines stand as they came; their times are told by some only

    def place(one: Raised) -> tuple[bool, str, str, int]:
        return bool(first) and not first & {*one.ranks}, (one.at or "") if several else "", one.file, one.line

    return sorted(found, key=place)


def _known(one: Raised) -> bool:
    """Whether a signature tells more than that a command failed, which a script's own may be."""
    return bool({*one.signatures} - {"log_child_failed"})


def _of_loader(one: Raised) -> bool:
    """Whether a rank lost its own DataLoader worker by it."""
    return one.loader and _last(one.type) in _BROKEN_OFF


def _by_others(one: Raised) -> bool:
    return bool(_COMMUNICATION.search(_last(one.type)) or _COMMUNICATION.search(one.message))


def _ranks(one: Raised, log: Log) -> str:
    """ "on rank 2", "on all 4 ranks", "on ranks 0, 1 and 3"; empty where the log does not tell."""
    if not one.ranks:
        by_itself = [str(rank.rank) for rank in log.fallen if rank.exit_code == 1]
        if len(by_itself) == one.times == 1:
            return f"on rank {by_itself[0]}"
        return f"{one.times} times" if one.times > 1 else ""
    if len(one.ranks) > 1 and len(one.ranks) >= len(log.ranks):
        return f"on all {len(one.ranks)} ranks"
    if len(one.ranks) == 1:
        return f"on rank {one.ranks[0]}"
    return f"on ranks {', '.join(map(str, one.ranks[:-1]))} and {one.ranks[-1]}"


def _told(one: Raised, log: Log, cause: str, *fixes: Fix) -> Problem:
    said = f"{_last(one.type)}: {one.message}" if one.message else _last(one.type)
    where, on = one.place or "the script", _ranks(one, log)
    from_first = f" It began with {one.cause}." if one.cause else ""
    return Problem(
        f"{where} raised {_last(one.type)}{f' {on}' if on else ''}{f': {one.message}' if one.message else ''}",
        f"{cause}{from_first}",
        fixes,
        {"line": said, "exception": one.type, "place": one.place, "times": one.times, "rank": one.rank, "at": one.at},
        tuple(f"rank {rank}" for rank in one.ranks),
        Place(one.file, one.line),
    )


@check(Severity.ERROR, source="https://docs.python.org/3/library/traceback.html", role="root", kind="script")
def log_exception(log: Log) -> Answer:
    """A rank ended with a Python exception that no signature knows by name.

    Why: On all ranks alike it is a bug in the script, or in how it was called. On one rank alone it comes from that
    rank's share of the data, or from code that only this rank runs (saving, logging, evaluating on rank 0).

    Fix: Go to the line that the traceback names; try it in one process, with that rank's share of the data.
    """
    found = [one for one in _uncaught(log) if not _by_others(one)]
    if not found:
        return Ok(f"no exception of another kind in {log.lines:,} lines")
    one = found[0]
    everywhere = len(one.ranks) > 1 and len(one.ranks) >= len(log.ranks)
    if everywhere:
        cause = "All ranks raised it alike: a bug in the script, or in its arguments, not in one rank or GPU."
    elif len(one.ranks) == 1 and len(log.ranks) > 1:
        cause = (
            "Only this rank raised it: it comes from this rank's share of the data, or from code that only this rank "
            "runs (saving, logging, evaluating)."
        )
    else:
        cause = "The traceback in the log leads to it."
    return _told(
        one,
        log,
        cause,
        Fix("go to that line; the same with one process is quicker to try", ("mgpu launch --gpus 1 ...",))
        if everywhere
        else Fix("go to that line, and look at the batch this rank had: print its index before the step")
        if len(log.ranks) > 1
        else Fix("go to that line: the traceback has the way there"),
    )


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", role="root", kind="script")
def log_loader_broke_off(log: Log) -> Answer:
    """A rank lost the connection to its own DataLoader worker, which had ended.

    Why: The worker was killed while it handed a batch over: host memory ran out, or a library that decodes crashed. The
    rank then sees a closed connection, and no word of the worker.

    Fix: Look whether the kernel killed it; use fewer workers, or none to see where it happens.
    """
    found = [one for one in log.raised if _of_loader(one) and not one.caught]
    if not found:
        return Ok(f"no rank lost its loader worker in {log.lines:,} lines")
    return _told(
        found[0],
        log,
        "Its DataLoader worker ended while it handed a batch over: killed when host memory ran out, or crashed in "
        "compiled code.",
        Fix("see whether the kernel killed it", ("sudo dmesg -T | grep -i 'killed process' | tail",)),
        Fix(
            "use fewer workers (each keeps a copy of what it touches), or none, so that the traceback shows the sample",
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
    """A rank ended because it could not reach another one.

    Why: When one rank is gone, the others notice it in their next collective: connection closed, connection reset, NCCL
    error. They are the messengers.

    Fix: Look for the rank that is not among those that complain, and what it wrote last.
    """
    found = [one for one in _uncaught(log) if _by_others(one)]
    if not found:
        return Ok(f"no broken exchange that is not known by name in {log.lines:,} lines")
    one = found[0]
    said = {rank for other in found for rank in other.ranks}
    silent = sorted(set(log.ranks) - said)
    who = f" Rank {silent[0]} does not complain: look at it first." if len(silent) == 1 and said else ""
    return _told(
        one,
        log,
        f"A rank that complains of its connection is a messenger: another one had ended, or hung.{who}",
        Fix("look at the rank that does not complain, and at the end of each rank's own log"),
        Fix("see whether the ranks can exchange anything", ("mgpu smoke-test",)),
    )


def _far(log: Log) -> list[Stalled]:
    """The ranks' watchdogs that tell how far their rank was."""
    return [one for one in log.stalled if one.rank is not None and one.sequence is not None]


def _where(one: Stalled) -> str:
    return f"rank {one.rank} in number {one.sequence} ({one.operation})"


@check(Severity.ERROR, source=_FLIGHT_RECORDER_TUTORIAL, role="secondary", kind="timeout", tags=("precise",))
def log_ranks_out_of_step(log: Log) -> Answer:
    """Ranks waited in different collectives: they did not do the same things in the same order.

    Why: Every rank has to begin the same collectives in the same order. One did more, fewer, or others than the rest.
    More: A rank that does one more or one less (an `if rank == 0` around a collective, a longer share of the data, an
    exception that was caught) waits in another one than the rest, until the watchdog ends them all.

    Fix: Find where the ranks part: conditions on the rank around reduce, gather, barrier or save; unequal numbers of
    batches.
    """
    far = _far(log)
    steps = Counter((one.sequence, one.operation) for one in far)
    if len(steps) < 2:
        return Ok("the watchdogs that spoke waited in the same collective" if far else "no watchdog spoke")
    usual, _ = steps.most_common(1)[0]
    other = next(one for one in far if (one.sequence, one.operation) != usual)
    one = next(one for one in far if (one.sequence, one.operation) == usual)
    return Problem(
        f"ranks are out of step: {_where(other)}, {_where(one)}",
        fix=(
            Fix(
                "look for collectives (also saving, gathering metrics) behind `if rank == 0`, and for unequal numbers "
                "of batches"
            ),
            Fix("let torch name the collective that does not fit", ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch ...",)),
        ),
        evidence={
            "sequence": usual[0],
            "other": other.sequence,
            "operation": usual[1],
            "other_operation": other.operation,
        },
        subjects=(f"rank {other.rank}",),
    )


@check(Severity.ERROR, source=_FLIGHT_RECORDER_TUTORIAL, role="secondary", kind="timeout", tags=("precise",))
def log_rank_never_came(log: Log) -> Answer:
    """The watchdogs of all ranks but some waited in the same collective: those did not come to it.

    Why: The ranks that complain are messengers. The silent one had ended, did long work alone (a download, tokenising,
    saving, evaluation), or hung.

    Fix: Look at what the silent rank wrote last; let long work on one rank happen before init_process_group, or under a
    longer time-out.
    """
    far = _far(log)
    silent = sorted(set(log.ranks) - {one.rank for one in log.stalled if one.rank is not None})
    if not far or not silent or len(silent) >= len(far) or len({one.sequence for one in far}) > 1:
        return Ok("no rank is missing among those whose watchdogs spoke" if far else "no watchdog spoke")
    names = ", ".join(map(str, silent))
    return Problem(
        f"rank{'s' * (len(silent) > 1)} {names} never came to collective {far[0].sequence} ({far[0].operation}) that "
        "the others waited in",
        fix=(
            Fix(
                "read what that rank wrote last; long work of one rank belongs before the first collective, or wants "
                "a longer time-out: InitProcessGroupKwargs(timeout=...)"
            ),
        ),
        evidence={"sequence": far[0].sequence, "operation": far[0].operation},
        subjects=tuple(f"rank {rank}" for rank in silent),
    )


@check(Severity.ERROR, source=_TROUBLESHOOTING, role="secondary", kind="timeout", tags=("precise",))
def log_exchange_never_worked(log: Log) -> Answer:
    """The very first collective timed out on all ranks alike: the GPUs have never exchanged anything.

    Why: The ranks met, but NCCL's own connections carry nothing: peer access between the GPUs, the network interface,
    or closed ports.
    More: Peer access fails behind an IOMMU, or the interface does not lead to the other machine.

    Fix: Run the smoke test: it tries the ways one by one and names the one that works.
    """
    far = _far(log)
    if not far or len({one.sequence for one in far}) > 1 or (far[0].sequence or 0) > _FIRST_COLLECTIVES or len(far) < 2:
        return Ok("the first collectives went through" if far else "no watchdog spoke")
    return Problem(
        f"the first exchange never worked: all {len(far)} ranks waited in collective {far[0].sequence}",
        fix=Fix("find the way that works", ("mgpu smoke-test", "NCCL_DEBUG=INFO mgpu launch ...")),
        evidence={"sequence": far[0].sequence, "operation": far[0].operation},
        subjects=tuple(f"rank {one.rank}" for one in far),
    )


@check(Severity.ERROR, source=_FLIGHT_RECORDER_TUTORIAL, role="secondary", kind="timeout", tags=("precise",))
def log_exchange_stalled(log: Log) -> Answer:
    """All ranks waited in the same collective, after others had gone through: the transport or a GPU stopped.

    Why: The ranks were in step: a link, a network card or a GPU stopped, or a kernel does not end.
    More: Look for an Xid.

    Fix: Look for Xids and for the network's counters, then run the smoke test on the same GPUs.
    """
    far = _far(log)
    same = len({(one.sequence, one.operation) for one in far}) == 1
    if (
        len(far) < 2
        or not same
        or (far[0].sequence or 0) <= _FIRST_COLLECTIVES
        or set(log.ranks) - {o.rank for o in far}
    ):
        return Ok("not all ranks waited in one collective" if far else "no watchdog spoke")
    return Problem(
        f"all {len(far)} ranks waited in collective {far[0].sequence} ({far[0].operation}), which did not go through",
        fix=(
            Fix("look for the fault of a GPU", ("sudo dmesg -T | grep -iE 'xid|nvlink'",), who="admin"),
            Fix("try the same GPUs", ("mgpu smoke-test",)),
        ),
        evidence={"sequence": far[0].sequence, "operation": far[0].operation},
        subjects=tuple(f"rank {one.rank}" for one in far),
    )
