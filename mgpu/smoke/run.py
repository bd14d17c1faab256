"""What does `mgpu smoke-test` do: look, start the ranks, judge what they did, search for the cause, stamp, tell?"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors, files, messages, probes
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.engine.before_start import doubts, refusals
from mgpu.errors import MgpuError, reason
from mgpu.launchers import stamp
from mgpu.launchers.run_folder import SMOKE_TEST, claim_folder, plan_folder
from mgpu.probes import prefetch
from mgpu.process import scratch, signals
from mgpu.report import document, output, screen
from mgpu.smoke import baseline, diagnosis, formats, machines, memory_kept, nccl_log
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke import report as smoke_report
from mgpu.smoke import screen as screens
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.request import Request
from mgpu.smoke.runner import Attempt, climb
from mgpu.snapshot import Gap, Plan, Ranks, Snapshot, to_json
from mgpu.snapshot.gpu_in_use import worked_on
from mgpu.snapshot.redaction import without_secrets


def run(request: Request) -> int:
    """`mgpu smoke-test`; 0 passed, 1 failed, 3 could not tell, 5 somebody works on the GPUs."""
    request.check()
    if request.show:
        from mgpu.smoke import show_last

        return show_last.show(request)
    started = time.monotonic()
    try:
        return _run(request, started)
    except MgpuError as error:
        if error.exit_code == errors.USAGE or request.format == "human":
            raise
        return formats.failed(request, error.message, error.exit_code, time.monotonic() - started)
    except (KeyboardInterrupt, signals.Stopped):
        return formats.failed(request, "interrupted", signals.exit_code(), time.monotonic() - started)
    except Exception as error:
        if request.format == "human" or os.environ.get("MGPU_DEBUG"):
            raise
        words = f"a bug in mgpu: {reason(error)} (MGPU_DEBUG=1 shows where)"
        return formats.failed(request, words, errors.UNKNOWN, time.monotonic() - started)


def _run(request: Request, started: float) -> int:
    with scratch.folder() as place:
        subject = subjects.of(request, place)
        request = replace(request, node=machines.this_one(request.node, subject.config, request.config))
        subject, snapshot = subjects.narrowed(subject, _look(subject), request, place)
        snapshot = replace(snapshot, config=subject.config)
        talk = screen.Screen.of() if request.format == "human" and request.output in ("", "-") else None
        if stopping := refusals(snapshot):
            return formats.refused(stopping, snapshot, request, time.monotonic() - started)
        if not request.allow_busy and (taken := worked_on(subject.config, snapshot, cpu=subject.cpu)):
            outcomes = engine.judge(snapshot, selections.BUSY)
            return formats.refused(outcomes, snapshot, request, time.monotonic() - started, taken)
        snapshot = replace(snapshot, baseline=baseline.of(request.baseline, snapshot))
        wanted = _wanted_folder(subject, request)
        with claim_folder(plan_folder(wanted, SMOKE_TEST), SMOKE_TEST, named=bool(wanted)) as folder:
            attempt = _attempt(subject, snapshot, request, folder)
            if talk:
                added = attempt.environment
                talk.show(screens.headline(subject, snapshot, request, attempt.orders, added, doubts(snapshot), talk))
            snapshot = _climb(attempt, snapshot, request, talk)
            return _conclude(snapshot, subject, request, started, talk)


def _look(subject: Subject) -> Snapshot:
    """The facts a smoke test depends on; torch is imported only where there are GPUs it must see."""
    config = subject.config
    plan = Plan(nodes=config.num_machines, cpu_ranks=(config.ranks_here or 1) if subject.cpu else None)
    with output.progress() as show:
        started = prefetch.take() if config.port is None else None  # they know of no port
        snapshot = probes.gather(probes.QUICK, plan=plan, progress=show, port=config.port, started=started)
        if snapshot.driver is not None and snapshot.driver.any_gpu and not subject.cpu:
            snapshot = probes.with_torch(snapshot, show)
    return replace(snapshot, config=config)


def _wanted_folder(subject: Subject, request: Request) -> str:
    """--log-dir; of several machines each has its own, since they may share the disk."""
    if request.log_dir and subject.config.num_machines > 1:
        return str(Path(request.log_dir) / f"node{request.node}")
    return request.log_dir


def _attempt(subject: Subject, snapshot: Snapshot, request: Request, folder: Path) -> Attempt:
    """The launch, with the folder for what it writes."""
    assert snapshot.driver is not None
    orders = subjects.orders(request, subject, snapshot.driver, folder)
    return Attempt(
        config=subject.config,
        snapshot=snapshot,
        orders=orders,
        timeout_s=request.limit_s,
        rehearsal=request.cpu is not None,
        environment={**subject.environment, **nccl_log.environment(orders, os.environ)},
    )


def _climb(attempt: Attempt, snapshot: Snapshot, request: Request, talk: screen.Screen | None) -> Snapshot:
    """The snapshot with what the ranks did, and, when they failed, which one change makes them work."""
    folder = Path(attempt.orders.folder)
    before = memory_kept.look(snapshot)
    with screens.Rungs(talk, snapshot) as show:
        ranks = climb(attempt, show)
    here = Path.cwd()
    told = folder.relative_to(here) if folder.is_relative_to(here) else folder
    ranks = replace(memory_kept.of(ranks, before), folder=str(told))
    log = nccl_log.read(folder)
    gaps = dict(snapshot.gaps)
    if log is None:
        gaps["nccl_log"] = Gap("not_asked", "no NCCL took part" if ranks.cpu else "NCCL wrote no log of its own")
    snapshot = replace(snapshot, ranks=ranks, nccl_log=log, gaps=gaps)
    failed = any(outcome.status == "fail" for outcome in engine.judge(snapshot, selections.SMOKE))
    if request.bisect and failed and ranks.ended != "interrupted":
        tell = screens.Trials(talk) if talk else None
        snapshot = replace(snapshot, ranks=replace(ranks, trials=diagnosis.search(attempt, ranks, tell)))
    return snapshot


def _conclude(
    snapshot: Snapshot, subject: Subject, request: Request, started: float, talk: screen.Screen | None
) -> int:
    """Judge the ranks, stamp a pass, tell the verdict."""
    ranks = snapshot.ranks
    assert ranks is not None
    outcomes = engine.judge(snapshot, selections.SMOKE)
    verdict, code = verdicts.of_ranks(
        ranks, outcomes, interrupted=signals.exit_code(), search_interrupted=diagnosis.interrupted(ranks)
    )
    wanted = request.stamp and not subject.changed and smoke_report.proven(ranks)
    stamped = _stamp(snapshot, ranks) if verdict == "passed" and wanted else None
    # A copy that was made for this run is gone afterwards: it is kept under the name of what it was made from.
    snapshot = replace(snapshot, config=replace(subject.config, path=subject.name))
    result = smoke_report.Result(snapshot, outcomes, verdict, code, time.monotonic() - started, stamped)
    told, facts = smoke_report.kept(ranks.folder)
    files.write(told, document.text(smoke_report.document(result)), mode=0o600)
    files.write(facts, document.facts_text(to_json(without_secrets(snapshot))), mode=0o600)
    formats.tell(result, request, talk)
    return code


def _stamp(snapshot: Snapshot, ranks: Ranks) -> str | None:
    """Record the pass; None (and a word on stderr) when it cannot be."""
    try:
        measured = {str(rank.rank): dict(rank.measured) for rank in ranks.ranks}
        return str(stamp.write(snapshot, ranks.rungs, measured))
    except MgpuError as error:
        if error.exit_code == errors.REFUSED:
            raise
        messages.notice(f"passed, but not stamped: {error.message}")
        return None
