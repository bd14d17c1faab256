"""What does `mgpu smoke-test` do: look, start the ranks, judge what they did, search for the cause, stamp, tell?"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mgpu import engine, errors, examine, files, probes, report, stamp
from mgpu.check import Skip
from mgpu.document import envelope
from mgpu.errors import MgpuError, reason
from mgpu.smoke import aftermath, baseline, diagnosis, nccl_log
from mgpu.smoke import screen as screens
from mgpu.smoke import subject as subjects
from mgpu.smoke import verdict as verdicts
from mgpu.smoke.climb import Attempt, climb
from mgpu.smoke.request import Request
from mgpu.smoke.subject import Subject
from mgpu.snapshot import Plan, Ranks, Snapshot

_CERTAIN = ("driver", "visibility", "pytorch", "packages", "config", "environ")
_CODES = {"timed_out": errors.TIMED_OUT, "interrupted": errors.INTERRUPTED}


def run(request: Request) -> int:
    """`mgpu smoke-test`; 0 passed, 1 failed, 3 could not tell."""
    request.check()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mgpu-") as scratch:
        subject = subjects.of(request, Path(scratch))
        if subject.config.num_machines > 1:
            raise MgpuError(
                f"{subject.config.path} spans {subject.config.num_machines} machines; the smoke test runs on one so "
                "far.\n  mgpu smoke-test --cpu 2   rehearses it on this one",
                errors.USAGE,
            )
        snapshot = _look(subject, request)
        talk = report.Screen.of() if request.format == "human" and request.output in ("", "-") else None
        stopping = refusals(snapshot)
        if stopping:
            return _refused(stopping, snapshot, request, started)
        if talk:
            talk.show(screens.headline(subject, snapshot, request, doubts(snapshot), talk))
        snapshot = replace(snapshot, baseline=baseline.of(request.baseline, snapshot))
        snapshot = _climb(subject, snapshot, request, talk)
    return _conclude(snapshot, subject, request, started, talk)


def _look(subject: Subject, request: Request) -> Snapshot:
    """The facts a smoke test depends on; torch is imported only where there are GPUs it must see."""
    config = subject.config
    plan = Plan(nodes=config.num_machines, cpu_ranks=request.cpu)
    with examine.progress() as show:
        snapshot = probes.gather(probes.QUICK, plan=plan, progress=show, port=config.port)
        if snapshot.driver is not None and snapshot.driver.any_gpu and request.cpu is None:
            snapshot = probes.with_torch(snapshot, show)
    return replace(snapshot, config=config)


def refusals(snapshot: Snapshot) -> list[engine.Outcome]:
    """The errors for which no rank needs to be started to know that it fails; empty: it is worth trying.

    An error of a GPU's health, a limit or the network may or may not stop a run: that is what the test is for. A
    rehearsal on the CPU does without the driver and the GPUs.
    """
    assert snapshot.plan is not None
    areas = _CERTAIN if snapshot.plan.cpu_ranks is None else ("packages", "config", "environ")
    checks = [c for c in engine.load() if c.area in areas and c.severity.value == "error" and c.id != "gpu_lost"]
    outcomes = engine.run(checks, snapshot)
    found = [o for o in outcomes if o.status in ("fail", "crash")]
    blind = [o for o in outcomes if o.unsettling and o.check.area in ("driver", "config")]
    return found or blind[:1]


def doubts(snapshot: Snapshot) -> list[str]:
    """Ids of the other errors the doctor would name: told before the ranks start."""
    checks = [c for c in engine.load() if c.area not in (*_CERTAIN, "stamp", "smoke") or c.id == "gpu_lost"]
    outcomes = engine.run((c for c in checks if c.severity.value == "error"), snapshot)
    return [o.check.id for o in outcomes if o.status == "fail" and not o.because_of]


def _refused(stopping: Sequence[engine.Outcome], snapshot: Snapshot, request: Request, started: float) -> int:
    """Nothing was started: these problems would only show later, and worse."""
    failed = any(o.status == "fail" for o in stopping)
    code = errors.NOT_READY if failed else errors.UNKNOWN
    verdict = "failed" if failed else "unknown"
    if request.format == "json":
        document = envelope("smoke", stopping, verdict, code, time.monotonic() - started, snapshot)
        document |= {"stages": [], "ranks": [], "culprit": None, "diagnosis": [], "next": ["mgpu doctor"]}
        examine.write_out(request.output, lambda stream: print(json.dumps(document, indent=2), file=stream))
        return code
    screen = report.Screen.of()
    said = [o.answer.reason for o in stopping if isinstance(o.answer, Skip)]
    lines = report.problems(stopping, screen, command="mgpu doctor", show_all=False)
    lines += [[(f"Not known: {text}", "")] for text in said]
    why = "This would fail for certain. Mend it first:" if failed else "Nobody can tell whether this would work. See"
    config = f" --config {shlex.quote(request.config)}" if request.config else ""
    screen.show([*lines, [], [("NOT STARTED", "fail"), (f"  {why}  mgpu doctor{config}", "")]])
    return code


def run_folder(wanted: str, prefix: str) -> Path:
    """A fresh folder for this run's files: --log-dir, runs/PREFIXtime here, or a private temporary one, said once."""
    if wanted:
        path = Path(wanted)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for old in path.glob("rank*.*"):  # journals of an earlier run would count as this one's
                old.unlink()
        except OSError as error:
            raise MgpuError(f"cannot use the folder {path}: {reason(error)}") from None
        return path
    base = Path(os.environ.get("MGPU_LOG_DIR") or "runs")
    name = f"{prefix}{datetime.now():%Y%m%d-%H%M%S}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100):
            path = base / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    except OSError as error:
        fallback = Path(tempfile.mkdtemp(prefix="mgpu-run-"))
        if sys.stderr is not None:
            print(f"mgpu: {base} cannot be written ({reason(error)}); logs go to {fallback}", file=sys.stderr)
        return fallback
    raise MgpuError(f"no free name for a run folder in {base}")


def _climb(subject: Subject, snapshot: Snapshot, request: Request, talk: report.Screen | None) -> Snapshot:
    """The snapshot with what the ranks did, and, when they failed, which one change makes them work."""
    assert snapshot.driver is not None
    folder = run_folder(request.log_dir, "smoke-")
    orders = subjects.orders(request, subject.config, snapshot.driver, folder)
    attempt = Attempt(
        config=subject.config,
        snapshot=snapshot,
        orders=orders,
        timeout_s=request.limit_s,
        rehearsal=request.cpu is not None,
        environment=nccl_log.environment(orders, os.environ),
    )
    before = aftermath.look(snapshot)
    ranks = climb(attempt, screens.Rungs(talk) if talk else None)
    ranks = replace(aftermath.of(ranks, before), folder=str(folder))
    snapshot = replace(snapshot, ranks=ranks, nccl_log=nccl_log.read(folder))
    if request.bisect and _failed(judged(snapshot)) and ranks.ended != "interrupted":
        tell = screens.Trials(talk) if talk else None
        snapshot = replace(snapshot, ranks=replace(ranks, trials=diagnosis.search(attempt, ranks, tell)))
    return snapshot


def judged(snapshot: Snapshot) -> tuple[engine.Outcome, ...]:
    """What the checks say of the ranks."""
    return engine.run([c for c in engine.load() if c.area == "smoke"], snapshot)


def _failed(outcomes: Sequence[engine.Outcome]) -> bool:
    return any(o.status in ("fail", "crash") for o in outcomes)


def _conclude(
    snapshot: Snapshot, subject: Subject, request: Request, started: float, talk: report.Screen | None
) -> int:  # fmt: skip
    """Judge the ranks, stamp a pass, tell the verdict."""
    ranks = snapshot.ranks
    assert ranks is not None and snapshot.config is not None
    outcomes = judged(snapshot)
    failed = _failed(outcomes) or ranks.ended == "interrupted"
    code = _CODES.get(ranks.ended, errors.NOT_READY) if failed else errors.READY
    verdict = "unknown" if ranks.ended == "interrupted" else "failed" if failed else "passed"
    stamped = None if failed or not request.stamp or subject.changed else _stamp(snapshot, ranks)
    seconds = time.monotonic() - started
    document = verdicts.document(snapshot, outcomes, verdict, code, seconds, stamped)
    files.write(Path(ranks.folder) / "smoke.json", json.dumps(document, indent=2) + "\n")
    if request.format == "json":
        examine.write_out(request.output, lambda stream: print(json.dumps(document, indent=2), file=stream))
        return code
    screen = talk or report.Screen.of()
    lines = verdicts.lines(snapshot, outcomes, failed, seconds, stamped, request, screen)
    examine.write_out(request.output, lambda stream: report.Screen.of(stream).show(lines))
    return code


def _stamp(snapshot: Snapshot, ranks: Ranks) -> str | None:
    """Record the pass; None (and a word on stderr) when it cannot be."""
    try:
        measured = {str(rank.rank): dict(rank.measured) for rank in ranks.ranks}
        return str(stamp.write(snapshot, ranks.rungs, measured))
    except MgpuError as error:
        if error.exit_code == errors.REFUSED:
            raise
        print(f"mgpu: passed, but not stamped: {error.message}", file=sys.stderr)
        return None
