"""The run of a case as JSON: its headline, the course of each rank, and the lines of its log that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgpu import quantities
from mgpu.report import failure
from mgpu.snapshot import SIGNAL_NAMES, EndedRank, Hang, HangRank, Log, Run, Snapshot, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mgpu.report.case.case_json import (
        HeadlineEntry,
        Light,
        LogLineEntry,
        PaceEntry,
        RankCourseEntry,
        RunOfCaseEntry,
        StepEntry,
    )
    from mgpu.report.json_types import CauseEntry, FailedRankEntry

_MOST_RANKS = 64
_MOST_FRAMES = 12
_MOST_LINES = 40
_INTERRUPTED = "SIGINT"


def run_entry(snapshot: Snapshot) -> RunOfCaseEntry | None:
    """Return the run; None if the case has none."""
    run, timeline, hang = snapshot.run, snapshot.timeline, snapshot.hang
    if run is None and timeline is None and hang is None:
        return None
    return {
        "id": timeline.id if timeline else None,
        "started": timeline.started if timeline else None,
        "seconds": run.seconds if run else timeline.seconds if timeline else None,
        "going": run.going if run else False,
        "exit_code": run.exit_code if run and not run.going else None,
        "command": list(timeline.command) if timeline else [],
        "quiet_s": hang.quiet_s if hang else None,
        "courses": _courses(run, timeline, hang),
        "ranks": failure.rank_entries(run) if run else [],
        "tail": list(timeline.tail) if timeline else [],
    }


def _courses(run: Run | None, timeline: Timeline | None, hang: Hang | None) -> list[RankCourseEntry]:
    ended = {one.rank: one for one in run.ranks} if run else {}
    silent = {one.rank: one for one in hang.ranks} if hang else {}
    stepped = {one.rank: one.steps for one in timeline.ranks} if timeline else {}
    pace = {one.rank: one for one in run.pace.ranks} if run and run.pace else {}
    hosts = _hosts(ended, silent)
    numbers = sorted({*ended, *silent, *stepped, *pace})[:_MOST_RANKS]
    courses: list[RankCourseEntry] = []
    for rank in numbers:
        end, quiet = ended.get(rank), silent.get(rank)
        steps: list[StepEntry] = [
            {
                "number": one.number,
                "end_s": one.end_s,
                "loader_s": one.loader_s,
                "optimizer_s": one.optimizer_s,
                "saving_s": one.saving_s,
                "wait_s": one.wait_s,
            }
            for one in stepped.get(rank, ())
        ]
        done = steps[-1]["number"] if steps else quiet.steps if quiet else None
        courses.append(
            {
                "rank": rank,
                "host": hosts.get(rank),
                "end_s": end.gone_s if end else None,
                "ended": _ended_text(end) if end else None,
                "failed": bool(end and end.first),
                "steps_done": done,
                "steps": steps,
                "pace": _pace(run, rank) if rank in pace else None,
                "state": _state(quiet) if quiet else None,
                "waits_in": quiet.pending.title if quiet and quiet.pending else None,
                "stack": _stack(quiet) if quiet else _raised_at(end),
                "peak_host": end.peak_bytes if end else None,
                "peak_gpu": end.peak_allocated_bytes if end else None,
            }
        )
    return courses


def _hosts(ended: Mapping[int, EndedRank], silent: Mapping[int, HangRank]) -> dict[int, str]:
    """Return the host of each rank; nothing if they are all on one."""
    known = {rank: one.host for rank, one in silent.items()} | {rank: one.host for rank, one in ended.items()}
    hosts = {rank: host for rank, host in known.items() if host}
    return hosts if len(set(hosts.values())) > 1 else {}


def _pace(run: Run | None, rank: int) -> PaceEntry:
    assert run is not None and run.pace is not None
    one = next(one for one in run.pace.ranks if one.rank == rank)
    rest = max(0.0, run.pace.step_s - one.loader_s - one.wait_s - one.optimizer_s)
    return {
        "loader_s": one.loader_s,
        "wait_s": one.wait_s,
        "optimizer_s": one.optimizer_s,
        "rest_s": round(rest, 6),
        "last_share": one.last_share,
    }


def _ended_text(rank: EndedRank) -> str | None:
    code = rank.exit_code
    if code is None:
        return None
    return f"killed by {SIGNAL_NAMES.get(-code, f'signal {-code}')}" if code < 0 else f"exit {code}"


def _raised_at(rank: EndedRank | None) -> list[str]:
    frame = rank.raised_at if rank else None
    return [f"{frame.place} in {frame.function}  {frame.text}".rstrip()] if frame else []


def _state(rank: HangRank) -> str:
    state = rank.state or "ended"
    if rank.raised:
        return f"ended by {rank.raised}"
    what = rank.waits_for or (f"kernel: {rank.kernel_wait}" if rank.kernel_wait else "")
    return ", ".join(filter(None, [state, "no CPU" if rank.busy is False else "", what, rank.silent or ""]))


def _stack(rank: HangRank) -> list[str]:
    return [f"{one.place} in {one.function}  {one.text}".rstrip() for one in rank.frames[:_MOST_FRAMES]]


# The headline


def headline(snapshot: Snapshot, cause: CauseEntry | None, first: FailedRankEntry | None) -> HeadlineEntry:
    """Return how the run ended: one word, and what is known of its cause."""
    run = snapshot.run
    if run is None:
        return {
            "word": "LOST",
            "light": "unknown",
            "text": "The supervisor of this run disappeared: how the training ended is unknown",
        }
    after = quantities.duration_text(run.seconds)
    why = cause["title"] if cause else ""
    if run.going:
        light: Light = "fail" if cause else "ok"
        return {"word": "NO PROGRESS" if cause else "RUNNING", "light": light, "text": why or f"since {after}"}
    word, light = _word(run)
    parts = [f"exit {run.exit_code} after {after}"]
    if first:
        shown = failure.rank_text(first if cause is None else {**first, "exception": None, "exit": None})
        parts.append(f"first to fail: {shown.removesuffix(', no traceback')}")
    return {"word": word, "light": light, "text": " · ".join([why, *parts] if why else parts)}


def _word(run: Run) -> tuple[str, Light]:
    if run.timed_out:
        return "TIMED OUT", "fail"
    if run.exit_code == 0:
        return "FINISHED", "ok"
    if run.signalled:
        return ("INTERRUPTED" if run.signalled == _INTERRUPTED else "STOPPED"), "warn"
    return "FAILED", "fail"


# The log


def log_lines(log: Log | None) -> list[LogLineEntry]:
    """Return the lines that matter, in the order of the log: errors, exceptions, the last step and the last line."""
    if log is None:
        return []
    merged: dict[tuple[str, str], LogLineEntry] = {}
    for _, entry in sorted(_lines(log), key=lambda pair: pair[0]):
        same = merged.setdefault((entry["place"], entry["text"]), entry)
        if same is not entry:
            same["what"] = f"{same['what']}; {entry['what']}"
    return list(merged.values())[:_MOST_LINES]


def _lines(log: Log) -> Iterator[tuple[int, LogLineEntry]]:
    for seen in log.seen:
        ranks = list(seen.ranks) or ([] if seen.rank is None else [seen.rank])
        what = f"{seen.signature}{' (the run went on)' if seen.survived else ''}"
        yield seen.line, _line(seen.text, seen.file, seen.line, what, ranks, seen.times)
    for one in log.raised:
        at = f"exception at {one.place}" if one.place else "exception"
        ranks = list(one.ranks) or ([] if one.rank is None else [one.rank])
        text = f"{one.type}: {one.message}".rstrip(": ")
        yield one.line, _line(text, one.file, one.line, f"{at}, caught" if one.caught else at, ranks, one.times)
    if step := log.last_step:
        of = f" of {step.of:g}" if step.of else ""
        yield step.line, _line(step.text, step.file, step.line, f"last step: {step.at:g}{of}")
    for lone in filter(None, [log.lone_work]):
        own = [] if lone.rank is None else [lone.rank]
        yield lone.line, _line(lone.text, lone.file, lone.line, f"one rank was busy: {lone.kind}", own)
    if error := log.own_error:
        own = [] if error.rank is None else [error.rank]
        yield error.line, _line(error.text, error.file, error.line, "last message of the program", own)
    for stall in log.stalled:
        which = f"{stall.operation or 'collective'} #{stall.sequence if stall.sequence is not None else '?'}"
        done = "" if stall.completed is None else f", last completed: #{stall.completed}"
        limit = "" if stall.timeout_s is None else f" after {stall.timeout_s:g} s"
        own = [] if stall.rank is None else [stall.rank]
        yield log.lines, _line(f"{which} timed out{limit}{done}", "", 0, "watchdog of torch", own)


def _line(text: str, file: str, line: int, what: str, ranks: list[int] | None = None, times: int = 1) -> LogLineEntry:
    name = file.rpartition("/")[2] or file
    place = f"{name}:{line}" if line else name
    return {"text": text, "place": place, "ranks": ranks or [], "times": times, "what": what}
