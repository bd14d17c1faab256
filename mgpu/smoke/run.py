"""`mgpu smoke-test`: probe the machine, run the ranks, judge them, search for the cause, record a pass, report."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors, files, messages, probes
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.engine.before_start import refusals, warning_ids
from mgpu.errors import MgpuError, reason
from mgpu.launchers import stamp
from mgpu.launchers.run_folder import SMOKE_TEST, claim_folder, plan_folder
from mgpu.probes import prefetch
from mgpu.process import scratch, signals
from mgpu.report import document, output, screen
from mgpu.smoke import baseline, culprit, diagnosis, formats, machines, memory_kept, nccl_log, user_script
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke import report as smoke_report
from mgpu.smoke import screen as screens
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.request import Request
from mgpu.smoke.runner import Attempt, run_ranks
from mgpu.snapshot import Gap, Plan, Ranks, Snapshot, to_json
from mgpu.snapshot.gpu_in_use import find_busy_gpus
from mgpu.snapshot.redaction import mask_secrets


def run(request: Request) -> int:
    """Run `mgpu smoke-test` and return its exit code: 0 passed, 1 failed, 3 unknown, 5 the GPUs are in use."""
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
        return formats.report_failure(request, error.message, error.exit_code, time.monotonic() - started)
    except (KeyboardInterrupt, signals.Stopped):
        return formats.report_interruption(request, signals.exit_code(), time.monotonic() - started)
    except Exception as error:
        if request.format == "human" or os.environ.get("MGPU_DEBUG"):
            raise
        message = f"a bug in mgpu: {reason(error)} (MGPU_DEBUG=1 shows where)"
        return formats.report_failure(request, message, errors.UNKNOWN, time.monotonic() - started)


def _run(request: Request, started: float) -> int:
    target = user_script.resolve_target(request)
    user_script.check_syntax(target)
    with scratch.folder() as place:
        subject = subjects.load_subject(request, place)
        user_script.check_config(request, subject)
        request = replace(request, node=machines.node_number(request.node, subject.config, request.config))
        subject, snapshot = subjects.select_gpus(subject, _probe(subject, request), request, place)
        snapshot = replace(snapshot, config=subject.config)
        out = screen.Screen.of() if request.format == "human" and request.output in ("", "-") else None
        if stopping := refusals(_seen_by_ranks(snapshot) if request.cpu is not None else snapshot):
            return formats.report_refusal(stopping, snapshot, request, time.monotonic() - started)
        if not request.allow_busy and (busy := find_busy_gpus(subject.config, snapshot, cpu=subject.cpu)):
            outcomes = engine.judge(snapshot, selections.BUSY)
            return formats.report_refusal(outcomes, snapshot, request, time.monotonic() - started, busy)
        snapshot = replace(snapshot, baseline=baseline.load(request.baseline, snapshot))
        wanted = _wanted_folder(subject, request)
        with claim_folder(plan_folder(wanted, SMOKE_TEST), SMOKE_TEST, named=bool(wanted)) as folder:
            attempt = _attempt(subject, snapshot, request, folder)
            if out:
                added = attempt.environment
                out.show(
                    screens.headline(subject, snapshot, request, attempt.orders, added, warning_ids(snapshot), out)
                )
            snapshot = _run_ranks(attempt, snapshot, request, out)
            if target:
                snapshot = user_script.add(snapshot, subject, request, target, out)
            return _conclude(snapshot, subject, request, started, out)


def _probe(subject: Subject, request: Request) -> Snapshot:
    """Return the facts a smoke test depends on. torch is imported only if there are GPUs it must find."""
    config = subject.config
    plan = Plan(nodes=config.num_machines)
    if subject.cpu:
        plan = replace(plan, cpu_ranks=config.ranks_here or 1, time_limit_s=request.limit_s, level=request.level)
    with output.progress() as show:
        started = prefetch.take() if config.port is None else None  # prefetched probes do not check the port
        snapshot = probes.gather(probes.QUICK, plan=plan, progress=show, port=config.port, started=started)
        if snapshot.driver is not None and snapshot.driver.any_gpu and not subject.cpu:
            snapshot = probes.add_torch_facts(snapshot, show)
    return replace(snapshot, config=config)


def _seen_by_ranks(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as the ranks of a rehearsal see it, from which GPUs are hidden: there may be more of them."""
    gap = Gap("not_asked", "the ranks of a rehearsal do not use the GPUs")
    return replace(snapshot, visible=None, gaps={**snapshot.gaps, "visible": gap})


def _wanted_folder(subject: Subject, request: Request) -> str:
    """Return --log-dir, with a subfolder for each of several nodes because they may share the disk."""
    if request.log_dir and subject.config.num_machines > 1:
        return str(Path(request.log_dir) / f"node{request.node}")
    return request.log_dir


def _attempt(subject: Subject, snapshot: Snapshot, request: Request, folder: Path) -> Attempt:
    """Return the launch to try, writing to `folder`."""
    assert snapshot.driver is not None
    orders = subjects.rank_orders(request, subject, snapshot.driver, folder)
    return Attempt(
        config=subject.config,
        snapshot=snapshot,
        orders=orders,
        timeout_s=request.limit_s,
        rehearsal=request.cpu is not None,
        environment={**subject.environment, **nccl_log.environment(orders, os.environ)},
    )


def _run_ranks(attempt: Attempt, snapshot: Snapshot, request: Request, out: screen.Screen | None) -> Snapshot:
    """Return the snapshot with what the ranks did and, if they failed, the change that makes them work."""
    folder = Path(attempt.orders.folder)
    before = memory_kept.measure(snapshot)
    with screens.StageScreen(out, snapshot) as show:
        ranks = run_ranks(attempt, show)
    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    ranks = replace(memory_kept.add_leftovers(ranks, before), folder=str(shown))
    log = nccl_log.read(folder)
    gaps = dict(snapshot.gaps)
    if log is None:
        gaps["nccl_log"] = Gap("not_asked", "NCCL was not used" if ranks.cpu else "NCCL wrote no log file")
    snapshot = replace(snapshot, ranks=ranks, nccl_log=log, gaps=gaps)
    failed = any(outcome.status == "fail" for outcome in engine.judge(snapshot, selections.SMOKE))
    if request.bisect and failed and ranks.ended != "interrupted":
        show_trial = screens.Trials(out) if out else None
        snapshot = replace(snapshot, ranks=replace(ranks, trials=diagnosis.search(attempt, ranks, show_trial)))
    return snapshot


def _conclude(snapshot: Snapshot, subject: Subject, request: Request, started: float, out: screen.Screen | None) -> int:
    """Judge the ranks, record a pass, save and print the result. Returns the exit code."""
    ranks = snapshot.ranks
    assert ranks is not None
    outcomes = engine.judge(snapshot, selections.SMOKE)
    verdict, code = verdicts.of_ranks(
        ranks,
        outcomes,
        interrupted=signals.exit_code(),
        search_interrupted=diagnosis.was_interrupted(ranks),
        script_interrupted=snapshot.rehearsal is not None and snapshot.rehearsal.ended == "interrupted",
    )
    wanted = request.stamp and not subject.changed and smoke_report.strategy_tested(ranks)
    stamped = _stamp(snapshot, ranks) if verdict == "passed" and wanted else None
    if verdict == "failed" and wanted and (cause := culprit.find_cause(outcomes)) is not None:
        user_script.record_failure(snapshot, request, cause.check.id)
    # A copy made for this run is deleted at the end, so the result names the original config.
    snapshot = replace(snapshot, config=replace(subject.config, path=subject.name))
    result = smoke_report.Result(snapshot, outcomes, verdict, code, time.monotonic() - started, stamped)
    report, facts = smoke_report.result_paths(ranks.folder)
    files.write(report, document.text(smoke_report.document(result)), mode=0o600)
    files.write(facts, document.facts_text(to_json(mask_secrets(snapshot))), mode=0o600)
    formats.write_report(result, request, out)
    return code


def _stamp(snapshot: Snapshot, ranks: Ranks) -> str | None:
    """Record the pass. Returns the file, or None (with a message on stderr) if it cannot be written."""
    try:
        measured = {str(rank.rank): dict(rank.measured) for rank in ranks.ranks}
        return str(stamp.write(snapshot, ranks.rungs, measured))
    except MgpuError as error:
        if error.exit_code == errors.REFUSED:
            raise
        messages.notice(f"passed, but not recorded: {error.message}")
        return None
