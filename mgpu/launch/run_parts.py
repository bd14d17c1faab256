"""The facts of a run on several hosts: what each host stored of its part, as one run.

Each host stores the facts of its ranks as `mgpu launch` on one machine does (run_facts_file.py). They are collected in
the run's folder at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mgpu import durations
from mgpu.hangs import hang_files
from mgpu.launch import node_answers, run_facts_file
from mgpu.launch import report as launch_report
from mgpu.snapshot import EndedRank, RankTimeline, Run, Snapshot, Timeline


def joined(kept: Snapshot, folder: Path) -> Snapshot:
    """Return the facts of a run with the ranks of all its hosts; unchanged if the run was on one machine."""
    parts = dict(_parts(folder))
    if not parts:
        return kept
    return replace(
        kept,
        run=_with_ranks(kept.run, parts, launch_report.first_to_fail(folder)) if kept.run else None,
        timeline=_with_steps(kept.timeline, parts) if kept.timeline else None,
    )


def _parts(folder: Path) -> Iterator[tuple[str, Snapshot]]:
    """Yield the facts of each host that could store them."""
    for place in hang_files.node_folders(folder / node_answers.HOSTS):
        host, facts = hang_files.node_name(place), run_facts_file.load(place)
        if host is not None and facts is not None:
            yield host, facts


def _with_ranks(run: Run, parts: dict[str, Snapshot], first: int | None) -> Run:
    """Return the run with how each rank ended, according to its host. `first`: the rank that failed first of all."""
    known: dict[int, EndedRank] = {one.rank: one for one in run.ranks}
    for host, facts in parts.items():
        for one in facts.run.ranks if facts.run else ():
            known[one.rank] = replace(one, host=host, first=one.rank == first)
    return replace(run, ranks=tuple(known[rank] for rank in sorted(known)))


def _with_steps(timeline: Timeline, parts: dict[str, Snapshot]) -> Timeline:
    """Return the timeline with the last steps of all ranks, in seconds from the start of the whole run."""
    steps = {one.rank: one for one in timeline.ranks}
    for facts in parts.values():
        if facts.timeline is not None:
            later = _seconds_later(facts.timeline, timeline)
            steps |= {one.rank: _shifted(one, later) for one in facts.timeline.ranks}
    return replace(timeline, ranks=tuple(steps[rank] for rank in sorted(steps)))


def _seconds_later(part: Timeline, whole: Timeline) -> float:
    """Return when a part began, in seconds after the run; 0 if the clock of its host is wrong."""
    later = durations.seconds_between(whole.started, part.started) or 0.0
    return later if 0 < later < (whole.seconds or 0.0) else 0.0


def _shifted(rank: RankTimeline, seconds: float) -> RankTimeline:
    return replace(rank, steps=tuple(replace(step, end_s=step.end_s + seconds) for step in rank.steps))
