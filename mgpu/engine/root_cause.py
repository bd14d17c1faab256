"""Of everything that is wrong with a run, what came first?

The kernel that killed a rank explains the exception of the others, an exception explains their time-outs, and never the
other way round: `ORDER` of mgpu/signature.py. Within one kind the earliest line of the rank that failed first. What is
secondary is the cause only where there is no root, and what wraps another error never is where anything else is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

from mgpu import engine
from mgpu.check import KINDS, EffectOf, Kind, Role, Tag
from mgpu.engine import Outcome, selections
from mgpu.snapshot import Config, Fallen, Log, Run, Seen, Snapshot

# torchrun gives its ranks 30 s between TERM and KILL; a rank killed so much later is one that it ended.
_ENDED_LATER_S = 20.0
_ROLES: tuple[Role, ...] = get_args(Role)
# A run that was stopped: the rank that was waited for, mgpu's own time limit, the user.
_STOP_TAGS: tuple[Tag, ...] = ("silent_rank", "time_limit", "user_stop")


@dataclass(frozen=True)
class Cause:
    """A finding, and where it stands among the others."""

    outcome: Outcome
    role: Role
    kind: Kind
    seen: Seen | None = None  # the line, of a row of a table

    @property
    def id(self) -> str:
        """The check's."""
        return self.outcome.check.id

    @property
    def of_log(self) -> bool:
        """Whether it was found in a log, and not by how the run ended."""
        return self.outcome.check.area == "log"


@dataclass(frozen=True)
class Verdict:
    """The one cause, and all else that was found."""

    first: Cause | None
    others: tuple[Cause, ...] = ()


def of(log: Log | None, run: Run | None, config: Config | None = None) -> Verdict:
    """Ask the checks on a run's end and its log, and choose."""
    return choose(engine.judge(Snapshot(log=log, run=run, config=config), selections.ENDED), log, run)


def choose(outcomes: Sequence[Outcome], log: Log | None, run: Run | None) -> Verdict:
    """The first cause among the outcomes of the checks on `log` and `run`."""
    seen = {one.signature: one for one in log.seen} if log else {}
    found = [cause for outcome in outcomes if (cause := _cause(outcome, seen))]
    if log:
        found = [_demoted(cause, log, run) for cause in found]
    if run is not None and (run.signalled or run.timed_out):
        return _once(_stopped(found, log))
    found = _ended_others(_asked_later(found), run)
    ids = {cause.id for cause in found if cause.role != "wrapper"}
    earliest = _first_ranks(log, run)
    ordered = sorted(found, key=lambda cause: _place(cause, ids, earliest, log))
    return _once(Verdict(ordered[0], tuple(ordered[1:]))) if ordered else Verdict(None)


def _once(chosen: Verdict) -> Verdict:
    """Without what says the same as the first cause, in fewer words."""
    twice = chosen.first.outcome.check.same_as if chosen.first else ()
    return Verdict(chosen.first, tuple(cause for cause in chosen.others if cause.id not in twice))


def _cause(outcome: Outcome, seen: dict[str, Seen]) -> Cause | None:
    """What an outcome is in the order of causes; None for one that is none."""
    if outcome.problem is None:
        return None
    check = outcome.check
    if check.role is None or check.kind is None:
        return None
    return Cause(outcome, check.role, check.kind, seen.get(check.id))


def _demoted(cause: Cause, log: Log, run: Run | None) -> Cause:
    """A row on an end that was not the first tells of a rank that was ended: it explains nothing. Nor does what was
    caught."""
    bearing = [one for one in log.raised if cause.id in one.signatures]
    caught = bool(bearing) and all(one.caught for one in bearing)
    if caught and cause.seen and cause.seen.times <= sum(one.times for one in bearing):
        return replace(cause, role="wrapper")
    code = cause.outcome.check.exit_code
    first = next((rank for rank in log.fallen if rank.first), None)
    if code is None or first is None or first.exit_code == code:
        return cause
    with_it = [rank for rank in log.fallen if rank.exit_code == code and _together(rank, first)]
    if with_it and not (run and any(rank.first and rank.exit_code == first.exit_code for rank in run.ranks)):
        return cause
    return replace(cause, role="wrapper")


def _together(one: Fallen, first: Fallen) -> bool:
    """Whether two ranks fell at about the same time, so that either may have been the first."""
    if one.at is None or first.at is None:
        return False
    try:
        apart = (datetime.fromisoformat(one.at) - datetime.fromisoformat(first.at)).total_seconds()
    except (ValueError, TypeError):
        return False
    return apart < _ENDED_LATER_S


def _asked_later(found: Sequence[Cause]) -> list[Cause]:
    """Where something had gone wrong before, that somebody ended the run is a consequence."""

    def asked(cause: Cause) -> bool:
        return cause.outcome.check.effect_of in ("stop", "job_cancel")

    wrong = [_line(cause) for cause in found if cause.role == "root" and cause.of_log and not asked(cause)]
    return [
        replace(cause, role="secondary") if asked(cause) and any(line < _line(cause) for line in wrong) else cause
        for cause in found
    ]


def _ended_others(found: Sequence[Cause], run: Run | None) -> list[Cause]:
    """Of a job elsewhere, one of whose ranks is known to have ended itself: that srun and the launchers ended the
    others then says nothing of the cause. Nor does that they lost the store, which goes with the first launcher; but a
    rank that ended with 1 may have raised just that."""
    codes = [rank.exit_code or 0 for rank in run.ranks if rank.first] if run and not run.watched else []
    if not any(code > 0 for code in codes):
        return list(found)
    ended: set[EffectOf | None] = {"stop", "task_exit"}
    if all(code > 1 for code in codes):
        ended.add("store_exit")
    return [replace(cause, role="noise") if cause.outcome.check.effect_of in ended else cause for cause in found]


def _stopped(found: Sequence[Cause], log: Log | None) -> Verdict:
    """Of a run that was stopped: who was silent, what was wrong before, and else the stop itself."""
    asked = [c.seen.line for c in found if _by_stop(c) and c.seen]
    asked += [one.line for one in (log.raised if log else ()) if one.type.rpartition(".")[2] in _STOPS]
    until = min(asked, default=None)

    def before(cause: Cause) -> bool:
        line = cause.outcome.problem.place.line if cause.outcome.problem and cause.outcome.problem.place else None
        if cause.of_log:
            return cause.role == "root" and (until is None or (line is not None and line < until))
        return cause.role == "root"

    stop = [cause for tag in _STOP_TAGS for cause in found if tag in cause.outcome.check.tags]
    roots = [cause for cause in found if not _by_stop(cause) and cause not in stop and before(cause)]
    ordered = [*sorted(roots, key=lambda c: (KINDS.index(c.kind), _line(c))), *stop]
    rest = [cause for cause in found if cause not in ordered]
    return Verdict(ordered[0], (*ordered[1:], *rest)) if ordered else Verdict(None, tuple(rest))


def _by_stop(cause: Cause) -> bool:
    """Whether ranks and launchers print it when they are sent a signal."""
    return cause.outcome.check.effect_of == "stop"


_STOPS = frozenset({"KeyboardInterrupt", "SignalException"})


def _first_ranks(log: Log | None, run: Run | None) -> frozenset[int]:
    """The ranks that failed first, as far as launcher and mgpu know."""
    told = {rank.rank for rank in run.ranks if rank.first} if run else set()
    return frozenset(told or {rank.rank for rank in (log.fallen if log else ()) if rank.first})


def _line(cause: Cause) -> int:
    place = cause.outcome.problem.place if cause.outcome.problem else None
    return place.line or 0 if place else 0


def _place(
    cause: Cause, ids: set[str], first: frozenset[int], log: Log | None
) -> tuple[int, bool, int, bool, bool, str, int, int]:
    """By what causes are ordered: role, explained by another, kind, rank, precision, time, file, line."""
    explained = any(other in ids for other in cause.outcome.check.because_of)
    ranks = (
        {int(text[5:]) for text in cause.outcome.problem.subjects if text.startswith("rank ") and text[5:].isdigit()}
        if cause.outcome.problem
        else set()
    )
    elsewhere = bool(first and ranks and not first & ranks)
    place = cause.outcome.problem.place if cause.outcome.problem else None
    file = log.files.index(place.file) if log and place and place.file in log.files else 0
    # Within one file lines stand as they came; their times are told by some only.
    at = cause.seen.at if cause.seen and log and len(log.files) > 1 else None
    general = cause.of_log and "precise" not in cause.outcome.check.tags
    return (
        _ROLES.index(cause.role),
        explained,
        KINDS.index(cause.kind),
        elsewhere,
        general,
        at or "",
        file,
        _line(cause),
    )
