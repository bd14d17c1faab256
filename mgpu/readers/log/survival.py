"""Which errors in a log did the run survive, and did it end well?

An error was survived if the run went on after it: its rank's step counter advanced, the launcher restarted the ranks
and they advanced, or the program reported a good end later. A batch script also prints "done" after a failure, so such
a line counts only if the run advanced before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from mgpu.readers.log.course import Course, Event
from mgpu.readers.log.row_matching import Signatures
from mgpu.snapshot import Log, SignatureMatch, UncaughtException

# Steps after an error. The other ranks of a failed rank advance a few, until they wait for it in a collective.
_STEPS_OF_RANK = 2
_STEPS_OF_ANY = 10
_STEPS_SURE = 50
_LINES_TO_END = 30  # between an exception and an end that is not one a batch script printed after a failure
_LINES_OF_RESTART = 200  # between a launcher's report of a restart and the last rank's report that it failed
_LAST_LINES = 10  # that a rank and its launcher print after what a rank says before it waits
_TIMES_OF_STEPS = 5
_LINES_AFTER_WARNING = 3
_LONG_AFTER = 200  # lines: the program did much after what it said
_LINES_OF_HANG = 3  # that can follow a warning in a run that hangs: a bar, another warning
_LINES_OF_NOTICE = 20  # that Lmod, conda and Python's warnings have themselves
_LINES_OF_SETUP = 12  # that Lmod has itself
_WHOLE_LOG = 200  # lines; a shorter one is probably an excerpt
_LINES_AFTER_END = 40  # of ranks that shut down, before a stop that cuts off nothing
_LINES_AFTER_BARE = 60  # of a shortened log, or a batch script's last ones
_WARNING = re.compile(r"[^A-Za-z]{0,40}WARN(?:ING)?\b")
_RENDEZVOUS = re.compile(r"torch/distributed/elastic/rendezvous/")
_OF_RANKS = re.compile(r"\[Rank \d+\] Watchdog caught collective")
_NCCL_WARNS = re.compile(r"\bNCCL WARN\b")
_DONE_WITHOUT = re.compile(r"\b[Dd]isabling (?:its|their) us(?:ag)?e\b")
# What says itself that it is a warning: of torch ("[W socket.cpp:601]"), Python, a logger, libibverbs. Packages that
# find no GPU say so and go on, on the CPU, and DeepSpeed tries to link libraries only to see whether they are there.
# NCCL also warns of what it then fails with: more must follow.
_NOTICE = re.compile(
    r"^(?:\[rank\d+\]: ?)?\[W[\d ]|^\[c10d\] The |\b\w*Warning: |^[^A-Za-z]{0,40}(?:WARN|WARNING|INFO)\b|\bNCCL INFO\b|"
    r"[|<(\[-] ?(?:WARNING|INFO|warn|info)\b|compiled without GPU support|\bnvidia-smi: (?:command )?not found|"
    r"not compatible with the current PyTorch installation|cannot find -l(?:aio|curand|cufile)\b"
)


class Survived(IntEnum):
    """How clearly the run went on after an error."""

    NO = 0
    PROBABLY = 1
    SURELY = 2


@dataclass(frozen=True)
class Found:
    """An error: the line of its last occurrence, and what decides whether the run survived it."""

    file: int  # number of its file
    line: int
    ranks: tuple[int, ...] = ()
    handled: bool = False  # its line reports what the program does about it
    root: bool = True  # can be a cause by itself
    raised: bool = False  # an exception or part of its message, or what Slurm, the kernel or a launcher did
    uncaught: bool = False  # torch printed it, as it does for uncaught exceptions only
    before_ranks: bool = False  # of what prepares the run, which can go on without it
    hint: bool = False  # a warning, no failure by itself
    stops: bool = False  # a user stopped the run; what ends well after it had been cut short
    warned: bool = False  # reported as a warning by the program's logger, which goes on
    of_setup: bool = False  # of a job's script that prepares the run, which goes on after it
    notice: int = 0  # says itself that it is a warning: a hint if more lines than these follow; 0: it does not
    by_program: bool = False  # said by the program or a library in a line of its own, without an exception
    first: int = 0  # line of its first occurrence
    times: int = 1
    made_up: bool = False  # of a job's script, and the program found its GPUs in spite of it
    exit_only: bool = False  # reports that a rank failed, but not why
    echo: bool = False  # a connection that closed, as also at the good end of a run
    of_store: bool = False  # the connection to the store closed, as also when rank 0 is the first to end
    last_lines: bool = False  # stopped the run only if little follows it
    reported: bool = False  # its line says what the program could not do: it had caught the exception
    logged: bool = False  # see `UncaughtException.logged`
    over: bool = False  # a later line reports that what it waited for has happened


@dataclass(frozen=True)
class Latest:
    """The last occurrence of an error."""

    file: int
    line: int
    handled: bool = False
    warned: bool = False  # each time, the whole line, with its logger's prefix, says that it is a warning
    reported: bool = False  # each time, the line says what the program could not do: it had caught the exception


def warns(text: str) -> bool:
    """Whether a line says itself that it is a warning, or reports what the program goes on without."""
    return bool(_NOTICE.search(text))


def exits_survived(courses: Sequence[Course]) -> bool:
    """Whether ranks went on after the last line in which a launcher reports a failed rank."""
    for course in courses:
        if not course.exits:
            continue
        last = course.exits[-1].line
        if sum(step.line > last for step in course.steps) < _STEPS_OF_RANK and not _restarted_well(course, last):
            return False
    return True


def _restarted_well(course: Course, line: int) -> bool:
    """Whether the ranks were restarted after a line, or because of it, and then reached their end."""
    restarts = [one.line for one in course.restarts if one.line > line - _LINES_OF_RESTART]
    return any(
        end.sure and not end.by_wrapper and any(line <= end.line > one for one in restarts) for end in course.ends
    )


def survived(found: Mapping[object, Found], courses: Sequence[Course], *, failed: bool) -> frozenset[object]:
    """Return the keys of the errors after which the run went on.

    `failed`: a launcher reports a failed rank. Then one of the errors is the cause, however the log looks after it.
    """
    how = {key: _how(one, courses[one.file]) for key, one in found.items()}
    open_roots = [one for key, one in found.items() if not how[key] and one.root and not one.exit_only]
    for key, one in found.items():
        if one.handled and any(not other.handled and _later(other, one) for other in open_roots):
            how[key] = Survived.SURELY
    if not failed and not any(not one.made_up for one in open_roots):  # else it can explain the other error
        how |= {key: Survived.SURELY for key, one in found.items() if one.made_up}
    if not failed and all(one.hint or how[key] for key, one in found.items()):
        how |= {key: Survived.SURELY for key, one in found.items() if one.hint}
    ends_badly = failed or any(one.exit_only and not how[key] for key, one in found.items())
    if ends_badly and not any(one.root and not one.exit_only and not how[key] for key, one in found.items()):
        return frozenset(key for key, value in how.items() if value == Survived.SURELY)
    return frozenset(key for key, value in how.items() if value)


def _much_after(one: Found, course: Course) -> bool:
    return course.lines - one.line > _LONG_AFTER


def _exited_then(one: Found, course: Course) -> bool:
    """Whether a process's failure was reported right after it. Launchers of many ranks then print much."""
    return any(0 < event.line - one.line <= _LAST_LINES for event in course.exits)


def _later(one: Found, other: Found) -> bool:
    return (one.file, one.line) > (other.file, other.line)


def _how(one: Found, course: Course) -> Survived:
    after = [step for step in course.steps if step.line > one.line]
    if one.over:
        return Survived.SURELY
    if one.last_lines and course.lines - one.line > _LAST_LINES:
        return Survived.SURELY
    if one.stops and _had_ended(one, course):
        return Survived.SURELY
    if len(after) >= _STEPS_SURE and not one.uncaught:
        return Survived.SURELY
    if one.warned and course.lines - one.line >= _LINES_AFTER_WARNING:
        return Survived.PROBABLY
    if one.reported and not one.raised and one.line == course.then_text:
        return Survived.PROBABLY
    if _came_again(one, course):
        return Survived.PROBABLY
    if one.by_program and _much_after(one, course) and not _exited_then(one, course):
        return Survived.PROBABLY
    if one.times >= _TIMES_OF_STEPS and one.root and not one.raised:
        steps = sum(one.first < step.line < one.line for step in course.steps)
        if steps >= _STEPS_OF_ANY:  # a message that comes again and again while the run goes on
            return Survived.PROBABLY
    restart = next((event.line for event in course.restarts if event.line > one.line), None)
    if restart is not None and sum(step.line > restart for step in after) >= _STEPS_OF_RANK:
        return Survived.SURELY
    if restart is not None and any(end.sure and not end.by_wrapper and end.line > restart for end in course.ends):
        return Survived.SURELY
    if one.exit_only:  # a batch script's "done" follows it
        return Survived.PROBABLY if len(after) >= _STEPS_OF_ANY else Survived.NO
    if after and (one.handled or one.before_ranks):
        return Survived.SURELY
    if one.ranks and not one.uncaught and sum(step.rank in one.ranks for step in after) >= _STEPS_OF_RANK:
        return Survived.SURELY
    if len(after) >= _STEPS_OF_ANY and not one.uncaught:
        return Survived.PROBABLY
    return Survived.PROBABLY if any(_proves(end, one, after) for end in course.ends) else Survived.NO


def _came_again(one: Found, course: Course) -> bool:
    """Whether a program logged it, reached its good end, logged it again and went on: it catches it each time."""
    ends = (end.line for end in course.ends if end.sure and not end.by_wrapper)
    went_on = not one.uncaught and course.lines - one.line >= _LINES_AFTER_WARNING
    return one.logged and went_on and any(one.first < line < one.line for line in ends)


def _had_ended(one: Found, course: Course) -> bool:
    """Whether the program reported its good end shortly before a user stopped what was left of it."""
    return any(end.sure and not end.by_wrapper and 0 < one.first - end.line <= _LINES_AFTER_END for end in course.ends)


def _proves(end: Event, one: Found, after: Sequence[Event]) -> bool:
    """Whether an end shows that the run went on after an error."""
    if end.line <= one.line or one.stops or end.weak:
        return False
    if one.uncaught:
        return end.sure and any(step.line < end.line for step in after)
    if end.by_wrapper and one.raised and not one.handled:
        return any(step.line < end.line for step in after)
    between = end.line - one.line
    if end.sure or one.handled or any(step.line < end.line for step in after):
        return True
    return not one.raised or between > _LINES_TO_END


def settle(
    log: Log, latest: Mapping[object, Latest], courses: Sequence[Course], signatures: Signatures, *, failed: bool
) -> Log:
    """Return the log with the errors marked that the run survived, and with how it ends.

    `latest`: the last occurrence of each signature, by id, and of each exception, by `key_of`. `failed`: the run is
    known to have failed.
    """
    known = {**_signatures(log, latest, signatures), **_exceptions(log, latest)}
    found = {key: _as_hint(one, courses[one.file]) for key, one in known.items()}
    exits = [event for course in courses for event in course.exits]
    went_on = bool(exits) and exits_survived(courses)
    failed = failed or (not went_on and bool(exits or log.fallen))
    gone = survived(found, courses, failed=failed)
    caught = {key_of(one) for one in log.raised if one.caught}
    bad = [one for key, one in found.items() if key not in gone and key not in caught]
    if not failed and not exits and _only_store_closed(log, bad):
        gone, bad = gone | {key for key, one in found.items() if one.of_store}, []
    end = None if failed else good_end(courses, bad)
    if end and any(cut.line > end.line for cut in log.cut):
        end = None  # something raised an exception after it, which is not in the log
    if end:
        gone |= {key for key, one in found.items() if one.echo}
    return replace(
        log,
        seen=tuple(replace(one, survived=one.signature in gone) for one in log.seen),
        raised=tuple(replace(one, caught=one.caught or key_of(one) in gone) for one in log.raised),
        fallen=() if went_on else log.fallen,
        finished=end.text if end else None,
        failed=exits[0].text if failed and exits else None,
    )


def _as_hint(one: Found, course: Course) -> Found:
    """Return a warning, a message of the setup or a handled error as a hint if much or an end was printed after it."""
    ended = any(end.line - one.first > _LINES_OF_SETUP for end in course.ends)
    of_setup = one.of_setup and (ended or course.lines - one.first > _LINES_OF_NOTICE)
    lines = one.notice or (_LINES_OF_NOTICE if one.handled else 0)
    return replace(one, hint=one.hint or of_setup or 0 < lines < course.lines - one.line)


def _lines_of_notice(one: SignatureMatch, latest: Latest, signatures: Signatures) -> int:
    """Return how many lines a warning and what belongs to it can have; 0 if the line does not say that it is one."""
    if one.signature in signatures.can_hang:
        return _LINES_OF_HANG
    if _NCCL_WARNS.search(one.text):
        return _LONG_AFTER
    return _LINES_OF_NOTICE if latest.warned else 0


def _only_store_closed(log: Log, bad: Sequence[Found]) -> bool:
    """Whether the only error of a long log is a closed store, which ranks also report while they shut down.

    If the run had failed, its whole output would have an exception, or the launcher's report.
    """
    unended = [one for one in log.raised if not one.caught and not one.bare]
    return bool(bad) and all(one.of_store for one in bad) and not unended and log.lines > _WHOLE_LOG


def without_uncertain(
    log: Log, latest: Mapping[object, Latest], signatures: Signatures
) -> tuple[UncaughtException, ...]:
    """Return the exceptions. Those without a traceback count only near the end of a log that shows nothing else."""
    setup = {one.signature for one in log.seen if _of_setup(one, signatures)}
    went_on = {name for name, last in latest.items() if last.warned or last.handled}
    seen = {one.signature for one in log.seen if one.signature not in went_on and not warns(one.text)}
    known = seen - setup - signatures.noise - signatures.exit_only
    bare = all(one.bare for one in log.raised)

    def counts(one: UncaughtException) -> bool:
        """Whether the log shows nothing else, or only what this exception's own message contains."""
        alone = known.issubset(one.signatures) and setup.isdisjoint(one.signatures)
        return bare and alone and one.after <= _LINES_AFTER_BARE

    return tuple(one for one in log.raised if not one.bare or counts(one))


def key_of(one: UncaughtException) -> tuple[str, str, str | None]:
    """Return what an exception has in common with the same one of other ranks."""
    return one.type, one.message, one.place


def _signatures(log: Log, latest: Mapping[object, Latest], signatures: Signatures) -> dict[object, Found]:
    found: dict[object, Found] = {}
    of_itself = signatures.of_gpu | signatures.of_program
    for one in log.seen:
        name = one.signature
        if name in signatures.noise:
            continue
        with_it = [error for error in log.raised if name in error.signatures]
        found[name] = Found(
            latest[name].file,
            latest[name].line,
            one.ranks,
            latest[name].handled,
            root=signatures.roles[name] == "root",
            raised=bool(with_it) or name in signatures.of_others,
            uncaught=any(error.by_torch for error in with_it),
            before_ranks=name in signatures.before_ranks,
            made_up=_of_setup(one, signatures) and _has_gpus(log, one),
            exit_only=name in signatures.exit_only,
            echo=name in signatures.echoes and not with_it,
            of_store=name in signatures.of_store and not with_it,
            last_lines=name in signatures.last_lines,
            first=one.line,
            times=one.times,
            hint=name in signatures.hints or bool(_DONE_WITHOUT.search(one.text)),
            stops=name in signatures.stops,
            warned=name in of_itself and not with_it and _logged_as_warning(one, latest),
            of_setup=_of_setup(one, signatures) and not with_it,
            notice=0 if with_it or name in signatures.of_system else _lines_of_notice(one, latest[name], signatures),
            by_program=name in signatures.of_program and not with_it and one.ranks == (),
            reported=latest[name].reported,
            logged=any(error.logged for error in with_it),
            over=(name in signatures.until_step_created and _step_created(log, latest[name].line))
            or _of_other_launch(log, with_it, latest[name]),
        )
    return found


def _of_other_launch(log: Log, raised: Sequence[UncaughtException], latest: Latest) -> bool:
    """Whether a launcher that failed at its rendezvous, and so started no ranks, raised it, and ranks run after it."""
    of_launcher = bool(raised) and all(any(map(_RENDEZVOUS.match, one.frames)) for one in raised)
    return of_launcher and any(one.line > latest.line and _OF_RANKS.search(one.text) for one in log.seen)


def _step_created(log: Log, line: int) -> bool:
    """Whether srun reports after a line that Slurm created its step."""
    return any(shown.name == "slurm_step_created" and shown.last > line for shown in log.shows)


def _logged_as_warning(one: SignatureMatch, latest: Mapping[object, Latest]) -> bool:
    """Whether the program's logger wrote it as a warning, each time."""
    return latest[one.signature].warned and bool(_WARNING.match(one.text))


def _of_setup(one: SignatureMatch, signatures: Signatures) -> bool:
    return one.signature in signatures.before_ranks & signatures.of_others


def _has_gpus(log: Log, one: SignatureMatch) -> bool:
    """Whether a trainer reports after this line, in the same file, that it found the GPUs."""
    return any(
        shown.name == "has_its_gpus" and (shown.file, True) == (one.file, shown.last > one.line) for shown in log.shows
    )


def _exceptions(log: Log, latest: Mapping[object, Latest]) -> dict[object, Found]:
    found: dict[object, Found] = {}
    for one in log.raised:
        last = latest[key_of(one)]
        found[key_of(one)] = Found(
            last.file,
            last.line,
            one.ranks,
            (one.quoted and not one.by_torch) or last.handled,
            not one.of_launcher,
            True,
            one.by_torch,
            exit_only=one.of_launcher,  # it reports only that a child failed
            first=one.line,
            times=one.times,
            logged=one.logged,
        )
    return found


def good_end(courses: Sequence[Course], bad: Iterable[Found]) -> Event | None:
    """Return the last good end, if no error that stopped the run is known, and no steps follow it."""
    if any(not one.echo for one in bad):
        return None
    for course in reversed(courses):
        ends = [end for end in course.ends if not end.of_setup or course.lines - end.line < _LAST_LINES]
        for end in ends[-1:]:
            if sum(step.line > end.line for step in course.steps) < _STEPS_OF_RANK:
                return end
    return None
