"""Which of a run's problems came first?

The kernel that killed a rank explains the exceptions of the others, an exception explains their timeouts, and never the
reverse: `KINDS` in mgpu/check.py. Within one kind, the earliest line of the rank that failed first is the cause. A
secondary finding is the cause only if there is no root, and a wrapper only if nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import get_args

from mgpu import engine
from mgpu.check import KINDS, Check, EffectOf, Kind, Place, Role, Tag
from mgpu.engine import Outcome, selections
from mgpu.signature import Signature
from mgpu.snapshot import Config, FailedRank, Hang, LineValues, Log, Run, SignatureMatch, Snapshot, Storage

# torchrun waits 30 s between TERM and KILL for its ranks. A rank that is killed this much later was killed by torchrun.
_CHILD_EXITED = "ProcessExitedException"  # torch's spawn raises it in the parent of the rank
_ENDED_LATER_S = 20.0
_LINES_BEFORE_LIMIT = 5  # after an exception, whose message and launcher can have some more
_ROLES: tuple[Role, ...] = get_args(Role)
_BETWEEN_RANKS: tuple[Kind, ...] = ("nccl", "network", "timeout")
# The causes of a stopped run: the rank that the others waited for, mgpu's own time limit, the user.
_STOP_TAGS: tuple[Tag, ...] = ("silent_rank", "time_limit", "user_stop")


@dataclass(frozen=True)
class Cause:
    """A finding with its rank among the causes."""

    outcome: Outcome
    role: Role
    kind: Kind
    seen: SignatureMatch | None = None  # the log line, if the finding is a log signature

    @property
    def id(self) -> str:
        """The id of the check."""
        return self.outcome.check.id

    @property
    def of_log(self) -> bool:
        """Whether it was found in a log, rather than in the exit of the run."""
        return self.outcome.check.area == "log"


@dataclass(frozen=True)
class Verdict:
    """The cause, and the other findings."""

    first: Cause | None
    others: tuple[Cause, ...] = ()


def find_cause(
    log: Log | None,
    run: Run | None,
    config: Config | None = None,
    *,
    hang: Hang | None = None,
    storage: Storage | None = None,
) -> Verdict:
    """Run the checks on a finished run and its log, and choose the cause. `hang`: what its ranks did before the end."""
    log = _with_values(log, run) if log and run else log
    snapshot = Snapshot(log=log, run=run, config=config, hang=hang, storage=storage)
    return choose(engine.judge(snapshot, selections.ENDED, _can_fire(log)), log, run)


def _can_fire(log: Log | None) -> list[Check]:
    """Return the checks of a finished run, without the signatures that the log does not match.

    These are a thousand, and their answers are known. To run them takes longer than to read a short log.
    """
    checks, others, signatures = _checks()
    matched = {signatures[one.signature] for one in log.seen if one.signature in signatures} if log else ()
    return [checks[place] for place in sorted(others.union(matched))]


@cache
def _checks() -> tuple[Sequence[Check], frozenset[int], Mapping[str, int]]:
    """Return the checks of a finished run, the places of those that are not signatures, and those that are."""
    checks = engine.checks_of(selections.ENDED)
    signatures = {check.id: place for place, check in enumerate(checks) if isinstance(check, Signature)}
    return checks, frozenset(range(len(checks))) - {*signatures.values()}, signatures


def _with_values(log: Log, run: Run) -> Log:
    """Return the log with what the ranks have recorded: values at the line of each exception, the first NaN."""
    failed = [rank.values for rank in sorted(run.ranks, key=lambda rank: not rank.first) if rank.values]

    def values_at(place: str | None) -> tuple[LineValues, ...]:
        own = (place or "").partition(" ")[0]
        return next((lines for lines in failed if any(line.place == own for line in lines)), ())

    raised = tuple(replace(one, recorded=values_at(one.place)) for one in log.raised)
    return replace(log, raised=raised, first_nan=next(iter(run.not_finite or ()), None))


def choose(outcomes: Sequence[Outcome], log: Log | None, run: Run | None) -> Verdict:
    """Return the first cause among the outcomes of the checks on `log` and `run`."""
    seen = {one.signature: one for one in log.seen} if log else {}
    found = [cause for outcome in outcomes if (cause := _cause(outcome, seen))]
    if log:
        found = [_demote_limit(_demote(cause, log, run), log) for cause in found]
    if run is not None and (run.signalled or run.timed_out):
        return _without_duplicates(_choose_of_stopped(found, log))
    found = _demote_launcher_effects(_demote_later_stops(found), run)
    found = _demote_next_commands(_demote_stopped_tasks(found))
    found = _demote_early_leavers(_demote_effects_on_peers(found, log, run), log)
    found = _demote_explained(_demote_task_exits(found))
    explained = _explained((cause.outcome.check, cause.role) for cause in found)
    earliest = _first_ranks(log, run)
    ordered = sorted(found, key=lambda cause: _place(cause, explained, earliest, log))
    return _without_duplicates(Verdict(ordered[0], tuple(ordered[1:]))) if ordered else Verdict(None)


def _without_duplicates(chosen: Verdict) -> Verdict:
    """Remove less specific findings about the same failure as the first cause."""
    twice = chosen.first.outcome.check.same_as if chosen.first else ()
    return Verdict(chosen.first, tuple(cause for cause in chosen.others if cause.id not in twice))


def _cause(outcome: Outcome, seen: dict[str, SignatureMatch]) -> Cause | None:
    """The outcome as a cause; None if it cannot be one."""
    if outcome.problem is None:
        return None
    check = outcome.check
    if check.role is None or check.kind is None:
        return None
    return Cause(outcome, check.role, check.kind, seen.get(check.id))


def _demote(cause: Cause, log: Log, run: Run | None) -> Cause:
    """Demote signatures that explain nothing: caught exceptions, and exits of ranks that were not the first to fail."""
    bearing = [one for one in log.raised if cause.id in one.signatures]
    caught = bool(bearing) and all(one.caught for one in bearing)
    if caught and cause.seen and cause.seen.times <= sum(one.times for one in bearing):
        return replace(cause, role="wrapper")
    if any(one.type.rpartition(".")[2] == _CHILD_EXITED for one in bearing):
        return cause  # the launcher reports how the parent exited
    code = cause.outcome.check.exit_code
    first = next((rank for rank in log.fallen if rank.first), None)
    if code is None or first is None or first.exit_code == code:
        return cause
    with_it = [rank for rank in log.fallen if rank.exit_code == code and _together(rank, first)]
    if with_it and not (run and any(rank.first and rank.exit_code == first.exit_code for rank in run.ranks)):
        return cause
    return replace(cause, role="wrapper")


def _demote_limit(cause: Cause, log: Log) -> Cause:
    """Demote the job's time limit if the last thing before it is an exception: the program had failed before."""
    if "job_limit" not in cause.outcome.check.tags or cause.seen is None:
        return cause
    file, line = cause.seen.file, cause.seen.line
    ended = [one for one in log.raised if not (one.caught or one.bare or one.of_launcher) and one.file == file]
    return replace(cause, role="wrapper") if any(0 < line - one.line <= _LINES_BEFORE_LIMIT for one in ended) else cause


def _together(one: FailedRank, first: FailedRank) -> bool:
    """Whether two ranks failed at about the same time, so either may have been the first."""
    if one.at is None or first.at is None:
        return False
    try:
        seconds = (datetime.fromisoformat(one.at) - datetime.fromisoformat(first.at)).total_seconds()
    except (ValueError, TypeError):
        return False
    return seconds < _ENDED_LATER_S


def _demote_later_stops(found: Sequence[Cause]) -> list[Cause]:
    """If something went wrong earlier, stopping the run is a consequence of it."""

    def is_stop(cause: Cause) -> bool:
        return cause.outcome.check.effect_of in ("stop", "job_cancel")

    def is_warning(cause: Cause) -> bool:
        of_setup = "before_ranks" in cause.outcome.check.tags  # the job's script goes on after it
        return of_setup or (cause.seen is not None and "Warning: " in cause.seen.text)

    roots = [cause for cause in found if cause.role == "root" and cause.of_log and not is_stop(cause)]
    wrong = [_line(cause) for cause in roots if not is_warning(cause)]
    return [
        replace(cause, role="secondary") if is_stop(cause) and any(line < _line(cause) for line in wrong) else cause
        for cause in found
    ]


def _demote_next_commands(found: Sequence[Cause]) -> list[Cause]:
    """What the shell says after the program had failed is not why it failed: the script went on."""
    first: dict[str, int] = {}
    for one in found:
        place = _found_at(one)
        if place and place.line and one.of_log and one.role in ("root", "secondary"):
            first[place.file] = min(place.line, first.get(place.file, place.line))

    def is_later(one: Cause) -> bool:
        place = _found_at(one)
        return place is not None and first.get(place.file, _line(one)) < _line(one)

    return [
        replace(one, role="wrapper") if "next_command" in one.outcome.check.tags and is_later(one) else one
        for one in found
    ]


def _demote_task_exits(found: Sequence[Cause]) -> list[Cause]:
    """If something else was found in the log before it, how Slurm or a signal ended a task explains nothing."""
    others = [cause for cause in found if cause.of_log and not _is_exit(cause)]
    first = min((_line(cause) for cause in others), default=None)
    first_cause = min((_line(cause) for cause in others if cause.role in ("root", "secondary")), default=None)
    result = []
    for cause in found:
        of_slurm = cause.outcome.check.effect_of == "task_exit"
        before = first if of_slurm else first_cause
        demoted = _is_exit(cause) and before is not None and before < _line(cause)
        result.append(replace(cause, role="noise" if of_slurm else "wrapper") if demoted else cause)
    return result


def _is_exit(cause: Cause) -> bool:
    """Whether it reports only how a task or a rank ended."""
    check = cause.outcome.check
    return check.effect_of == "task_exit" or (cause.role == "secondary" and "last_line" in check.tags)


def _demote_explained(found: Sequence[Cause]) -> list[Cause]:
    """A finding that another one explains is not a better cause than that one."""
    roles = {cause.id: cause.role for cause in found if cause.role not in ("wrapper", "noise")}

    def last_role(cause: Cause) -> Role:
        others = [roles[name] for name in cause.outcome.check.because_of if name in roles]
        return max((cause.role, *others), key=_ROLES.index)

    return [replace(cause, role=last_role(cause)) for cause in found]


def _demote_launcher_effects(found: Sequence[Cause], run: Run | None) -> list[Cause]:
    """In a Slurm job with a rank that exited by itself, ignore how srun and the launchers stopped the other ranks.

    The same applies to a lost store, which exits with the first launcher, unless the rank exited with 1: then a lost
    store may be the exception that it raised.
    """
    codes = [rank.exit_code or 0 for rank in run.ranks if rank.first] if run and not run.watched else []
    if not any(code > 0 for code in codes):
        return list(found)
    ended: set[EffectOf | None] = {"stop", "task_exit"}
    if all(code > 1 for code in codes):
        ended.add("store_exit")
    return [replace(cause, role="noise") if cause.outcome.check.effect_of in ended else cause for cause in found]


def _demote_stopped_tasks(found: Sequence[Cause]) -> list[Cause]:
    """If the log has another failure, that Slurm stopped the other tasks is a consequence of it, even without a run."""

    def explains(cause: Cause) -> bool:
        check = cause.outcome.check
        return cause.of_log and cause.role != "noise" and not check.effect_of and "exit_only" not in check.tags

    if not any(explains(cause) and cause.kind != "scheduler" for cause in found):
        return list(found)
    return [replace(c, role="noise") if c.outcome.check.effect_of == "task_exit" else c for c in found]


def _demote_effects_on_peers(found: Sequence[Cause], log: Log | None, run: Run | None) -> list[Cause]:
    """If the first rank exited by itself, lost connections that only other ranks report are consequences of it."""
    first = {rank.rank for rank in run.ranks if rank.first and (rank.exit_code or 0) > 0} if run else set()
    raised = any(first & set(one.ranks) for one in (log.raised if log else ()))
    if not first or raised:
        return list(found)

    def is_elsewhere(cause: Cause) -> bool:
        ranks = set(cause.seen.ranks) if cause.seen else set()
        return cause.role == "secondary" and cause.kind in _BETWEEN_RANKS and bool(ranks) and not ranks & first

    return [replace(cause, role="wrapper") if is_elsewhere(cause) else cause for cause in found]


def _demote_early_leavers(found: Sequence[Cause], log: Log | None) -> list[Cause]:
    """A rank that finished early explains lost connections and timeouts; without them, the others failed by themselves.

    Without a log, they are not known.
    """
    if log is None or any(cause.of_log and cause.kind in _BETWEEN_RANKS for cause in found):
        return list(found)
    return [replace(c, role="wrapper") if "ranks_done" in c.outcome.check.tags else c for c in found]


def _choose_of_stopped(found: Sequence[Cause], log: Log | None) -> Verdict:
    """The cause in a stopped run: a problem before the stop, else a silent rank, else the stop itself."""
    stop_lines = [c.seen.line for c in found if _by_stop(c) and c.seen]
    stop_lines += [one.line for one in (log.raised if log else ()) if one.type.rpartition(".")[2] in _STOPS]
    until = min(stop_lines, default=None)

    def before(cause: Cause) -> bool:
        place = _found_at(cause)
        line = place.line if place else None
        if cause.of_log:
            return cause.role == "root" and (until is None or (line is not None and line < until))
        return cause.role == "root"

    general = {twice for cause in found for twice in cause.outcome.check.same_as}
    specific_first = sorted(found, key=lambda cause: cause.id in general)
    stop = [cause for tag in _STOP_TAGS for cause in specific_first if tag in cause.outcome.check.tags]
    roots = [cause for cause in found if not _by_stop(cause) and cause not in stop and before(cause)]
    ordered = [*sorted(roots, key=lambda c: (KINDS.index(c.kind), _line(c))), *stop]
    rest = [cause for cause in found if cause not in ordered]
    return Verdict(ordered[0], (*ordered[1:], *rest)) if ordered else Verdict(None, tuple(rest))


def _by_stop(cause: Cause) -> bool:
    """Whether ranks and launchers print it when they get a signal."""
    return cause.outcome.check.effect_of == "stop"


_STOPS = frozenset({"KeyboardInterrupt", "SignalException"})


def _first_ranks(log: Log | None, run: Run | None) -> frozenset[int]:
    """The ranks that failed first according to mgpu, else according to the launcher."""
    of_run = {rank.rank for rank in run.ranks if rank.first} if run else set()
    return frozenset(of_run or {rank.rank for rank in (log.fallen if log else ()) if rank.first})


def _explained(found: Iterable[tuple[Check, Role]]) -> frozenset[str]:
    """Return the findings that another one explains, and what less specific ones say about the same failure."""
    known = list(found)
    ids = {check.id for check, role in known if role != "wrapper"}
    checks = [check for check, _ in known if not ids.isdisjoint(check.because_of)]
    return frozenset(name for check in checks for name in (check.id, *check.same_as))


def _weight(role: Role, kind: Kind, *, explained: bool) -> tuple[int, bool, int]:
    """The first part of the sort key for causes, which also holds between the causes of several hosts."""
    return _ROLES.index(role), explained, KINDS.index(kind)


def first_of_parts(causes: Sequence[tuple[str, str]]) -> int:
    """Return the place of the cause that explains the others: each is an id of a check, and the role it was given.

    They are the causes of the parts of one run, found on different hosts, in the order in which the parts ended.
    """
    known = {check.id: check for chosen in (selections.ENDED, selections.FLEET) for check in engine.checks_of(chosen)}
    roles: dict[str, Role] = {role: role for role in _ROLES}
    found = [(known.get(id), roles.get(role, "noise")) for id, role in causes]
    explained = _explained((check, role) for check, role in found if check)

    def weight(place: int) -> tuple[int, bool, int]:
        check, role = found[place]
        kind = check.kind if check and check.kind else KINDS[-1]
        return _weight(role, kind, explained=causes[place][0] in explained)

    return min(range(len(found)), key=weight)


def _found_at(cause: Cause) -> Place | None:
    return cause.outcome.problem.place if cause.outcome.problem else None


def _line(cause: Cause) -> int:
    place = _found_at(cause)
    return place.line or 0 if place else 0


def _place(
    cause: Cause, explained: frozenset[str], first: frozenset[int], log: Log | None
) -> tuple[int, bool, int, bool, bool, str, int, int]:
    """Sort key for causes: role, explained by another, kind, rank, precision, time, file, line."""
    ranks = (
        {int(text[5:]) for text in cause.outcome.problem.subjects if text.startswith("rank ") and text[5:].isdigit()}
        if cause.outcome.problem
        else set()
    )
    elsewhere = bool(first and ranks and not first & ranks)
    place = _found_at(cause)
    file = log.files.index(place.file) if log and place and place.file in log.files else 0
    # Lines of one file are already in order of time. Only some have a timestamp.
    at = cause.seen.at if cause.seen and log and len(log.files) > 1 else None
    general = cause.of_log and "precise" not in cause.outcome.check.tags
    return (
        *_weight(cause.role, cause.kind, explained=cause.id in explained),
        elsewhere,
        general,
        at or "",
        file,
        _line(cause),
    )
