"""What is said at the end of a smoke test, to a person and to a script?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgpu import engine, report
from mgpu.document import envelope
from mgpu.smoke import watch
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.request import Request
from mgpu.smoke.subject import DEFAULT_CONFIG
from mgpu.snapshot import Rank, Ranks, Snapshot


def lines(
    snapshot: Snapshot, outcomes: Sequence[engine.Outcome], failed: bool, seconds: float, stamped: str | None,
    request: Request, screen: report.Screen,
) -> list[report.Line]:  # fmt: skip
    """The end of the screen: problems, verdict, where the logs are, what comes next."""
    ranks = snapshot.ranks
    assert ranks is not None
    if ranks.ended == "interrupted":
        return [[], [("INTERRUPTED", "fail"), ("  All ranks were ended.", "")], [(f"Logs   {ranks.folder}", "")]]
    found = report.problems(outcomes, screen, command="mgpu smoke-test", show_all=True)
    if failed:
        first = next(o for o in outcomes if o.status in ("fail", "crash"))
        title = first.problem.title if first.problem else f"{first.check.id} crashed"
        return [*found, [], *report.headed("FAILED", "fail", title, screen), [(f"Logs   {ranks.folder}", "")]]
    return [*found, *_passed(snapshot, ranks, seconds, stamped, request, screen)]


def _passed(
    snapshot: Snapshot, ranks: Ranks, seconds: float, stamped: str | None, request: Request, screen: report.Screen
) -> list[report.Line]:
    what = f"{ranks.expected} CPU rank" if ranks.cpu else f"{ranks.expected} GPU"
    many = "s" if ranks.expected > 1 else ""
    said: list[report.Line] = [
        [],
        *report.headed("PASSED", "ok", f"{what}{many} trained together correctly in {seconds:.1f} s.", screen),
    ]
    if stamped:
        said += report.unstyled(report.wrapped("Stamped: this config is verified on this machine.", screen.width))
        name = Path(snapshot.config.path).name if snapshot.config else ""
        flag = "" if name == DEFAULT_CONFIG and not request.config else f"-c {request.config or name} "
        said.append([(f"Next:  mgpu launch {flag}train.py [your arguments]", "bold")])
    elif request.cpu is not None:
        said.append([("A rehearsal: nothing was stamped. On the GPU machine:  mgpu smoke-test", "")])
    return said


def document(
    snapshot: Snapshot, outcomes: Sequence[engine.Outcome], verdict: str, code: int, seconds: float,
    stamped: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The JSON document."""
    ranks = snapshot.ranks
    assert ranks is not None
    told = envelope("smoke", outcomes, verdict, code, seconds, snapshot)
    told["stages"] = [_stage(ranks, rung) for rung in RUNGS]
    told["ranks"] = [_rank(rank) for rank in ranks.ranks]
    culprit = watch.culprit(ranks)
    told["culprit"] = None
    if culprit is not None and verdict == "failed":
        told["culprit"] = {
            "rank": culprit.rank,
            "gpu": culprit.gpu_uuid,
            "host": culprit.host,
            "rung": watch.rung_of(culprit, ranks.rungs),
            "collective": culprit.last_word,
            "state": culprit.process_state,
            "stack": culprit.stack,
        }
    told |= {"ended": ranks.ended, "level": ranks.level, "strategy": ranks.strategy, "precision": ranks.precision}
    told["diagnosis"] = [dataclasses.asdict(trial) for trial in ranks.trials]
    told |= {"stamp": stamped, "logs": ranks.folder}
    told["next"] = ["mgpu launch SCRIPT"] if verdict == "passed" else ["mgpu doctor"]
    return told


def _stage(ranks: Ranks, rung: str) -> dict[str, Any]:
    steps = [step for rank in ranks.ranks for step in rank.steps if step.rung == rung]
    passed = len(steps) == len(ranks.ranks) and all(step.ok for step in steps)
    failed = any(step.ok is False for step in steps)
    status = "ok" if passed else "fail" if failed or steps else "skip"
    seconds = max((step.seconds or 0.0 for step in steps), default=None)
    detail = next((step.detail for step in steps if step.ok is False), steps[0].detail if steps else None)
    return {"name": rung, "status": status, "seconds": seconds, "detail": detail}


def _rank(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.pid,
        "device": rank.device,
        "gpu": rank.gpu_uuid,
        "world_size": rank.world_size,
        "accelerate_world_size": rank.accelerate_world_size,
        "last_word": rank.last_word,
        "state": rank.process_state,
        "kind": rank.kind,
        "error": rank.error,
        "measured": dict(rank.measured),
    }
