"""What does `mgpu doctor` do with its options: which facts, which checks, which report, which exit code?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import engine, errors, files, probes
from mgpu.check import Check
from mgpu.doctor import added, config_files
from mgpu.doctor import report as doctor_report
from mgpu.doctor import request as doctor_request
from mgpu.doctor.request import Request
from mgpu.doctor.result import Examined
from mgpu.engine import selections, waiving
from mgpu.engine import verdict as verdicts
from mgpu.errors import MgpuError, reason
from mgpu.planning.gpu_models import mark_if_away
from mgpu.process import run_log, signals
from mgpu.report import demo, findings, output
from mgpu.report.load import read_snapshot
from mgpu.report.output import deadline, progress
from mgpu.report.screen import Screen, can_ask
from mgpu.snapshot import Config, Fleet, Hang, Plan, Snapshot, to_json
from mgpu.text import counted
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.snapshot.changes import Change


def examine(request: Request) -> Examined:
    """Gather facts and judge them, without a report. Raises MgpuError."""
    began = time.monotonic()
    doctor_request.check(request)
    chosen = engine.choose(added.checks_of(request), request.only, request.skip)
    return _judge(request, chosen, _snapshot(request), None, began)


def run(request: Request) -> int:
    """Gather, judge, report; return the exit code."""
    began = request.began or time.monotonic()
    try:
        doctor_request.check(request)
        with deadline(request.timeout_s):
            before = read_snapshot(Path(request.compare)) if request.compare else None
            chosen = engine.choose(added.checks_of(request), request.only, request.skip)
            request = _ported(request)
            machine = _snapshot(request)

            def judge(machine: Snapshot) -> Examined:
                return _judge(request, chosen, machine, before, began)

            found = judge(machine)
        if request.save:
            _save(Path(request.save), machine)
            output.to_stderr(f"Saved this machine (redacted): {request.save}")
        if request.fix and request.format != "human":
            found = _repair(request, found, judge, output.to_stderr)
    except MgpuError as error:
        if error.exit_code == errors.USAGE and request.exit_style == "default":  # else 2 means CRITICAL, or drains
            raise
        return doctor_report.failed(request, error.message, error.exit_code, began)
    except KeyboardInterrupt:
        return doctor_report.failed(request, "interrupted", errors.INTERRUPTED, began)
    except signals.Stopped:
        if request.format == "json" and request.exit_style == "default":  # for the others the exit code is enough
            doctor_report.failed(request, "interrupted", signals.exit_code(), began)
        raise
    except Exception as error:
        if os.environ.get("MGPU_DEBUG") or isinstance(error, BrokenPipeError):  # `| head`: no one reads on
            raise
        message = f"a bug in mgpu: {reason(error)} (MGPU_DEBUG=1 shows where)"
        return doctor_report.failed(request, message, errors.UNKNOWN, began)
    return _report(request, machine, found, judge)


def run_scripts(request: Request, others: Sequence[str]) -> int:
    """Run `--script` with several files, one report after the other; return the worst exit code."""
    if request.format not in ("human", "github") or request.fix or request.output != "-":
        raise MgpuError(
            "--script with several files: remove --fix and --output, and choose human or github", errors.USAGE
        )
    codes: list[int] = []
    for name in (request.script, *others):
        if codes and request.format == "human":
            output.to_stdout("")
        codes.append(run(replace(request, script=name)))
    return verdicts.worst(codes)


def _ported(request: Request) -> Request:
    """Offer the port of `--script` with `--fix`. What follows examines the script as it is then."""
    if not (request.script and request.fix):
        return request
    from mgpu.port import offer

    human = request.format == "human"
    offer.offer(
        Path(request.script),
        request.with_ or doctor_request.PORTS[0],
        output.to_stdout if human else output.to_stderr,
        yes=request.yes,
        dry_run=request.dry_run,
        can_ask=human and can_ask(),
    )
    if human:
        output.to_stdout("")
    return replace(request, fix=False)


def _report(request: Request, machine: Snapshot, found: Examined, judge: Callable[[Snapshot], Examined]) -> int:
    """Print the report, make the requested repairs, save the verdict, and return the exit code."""
    doctor_report.write(request, found)
    if request.fix and request.format == "human":
        output.to_stdout("")
        first, found = found, _repair(request, found, judge, output.to_stdout)
        doctor_report.show_fixed(first, found)
    if request.plain and request.exit_style == "default":  # a monitoring run is not the user's
        from mgpu.doctor import last_verdict

        last_verdict.remember_verdict(found.verdict, machine)
    return found.code


def _save(path: Path, machine: Snapshot) -> None:
    from mgpu.report import case_archive, document
    from mgpu.snapshot.redaction import redact

    known = redact(machine)
    archive = case_archive.is_archive(path.name)
    files.write_named(path, case_archive.packed(known) if archive else document.facts_text(to_json(known)))


def _of_files(request: Request) -> Snapshot:
    """The facts in the files of `--script`, `--log` and `--compare-nodes`, without those of this machine."""
    snapshot = Snapshot()
    if request.config:
        snapshot = config_files.with_config(snapshot, Path(request.config), ask_loader=False)
    if request.script:
        snapshot = _with_script(snapshot, Path(request.script))
    if request.compare_nodes:
        from mgpu.fleet import load

        with progress() as show:
            snapshot = replace(snapshot, fleet=load.fleet(request.compare_nodes, show))
    if request.hosts:
        snapshot = replace(snapshot, fleet=_fleet_of_hosts(request))
    if request.log:
        from mgpu.readers.log import read
        from mgpu.readers.sources.value_origins import with_sources

        paths = [Path(name) for name in request.log]
        of_run = run_log.parts(paths[0]) if len(paths) == 1 and paths[0].is_dir() else []  # a run's folder
        paths = of_run or paths
        log = read.read_logs(paths, one_stream=bool(of_run), last_run=not of_run)
        log = with_sources(log, [path.parent for path in paths if path.is_file()])
        snapshot = replace(snapshot, log=log, hang=None if log.finished else _hang_beside(paths))
    return snapshot


def _fleet_of_hosts(request: Request) -> Fleet:
    """Examine the hosts of `--hosts`. Raises MgpuError."""
    from mgpu.fleet import hosts_doctor
    from mgpu.hosts.named_hosts import read_hosts

    subject = hosts_doctor.Subject(request.config, data=request.data)
    with progress() as show:
        return hosts_doctor.examine(read_hosts(request.hosts, request.python or ""), subject, show, request.timeout_s)[
            0
        ]


def _hang_beside(logs: Sequence[Path]) -> Hang | None:
    """Return what the ranks of the run did before its end, from the files of mgpu or torch beside its log."""
    from mgpu.hangs import hang_files
    from mgpu.readers import torch_dumps

    beside = [path for path in logs if path.is_file()]  # not stdin
    for path in beside:
        if (hang := hang_files.of_run(path.parent)) is not None:
            return hang
    return next((hang for path in beside if (hang := torch_dumps.beside(path)) is not None), None)


def _with_script(snapshot: Snapshot, path: Path) -> Snapshot:
    """Add the facts of a training script, or of a job script and the config that it uses."""
    from mgpu.readers import launch_lines
    from mgpu.readers.job_script import read as job_script_read
    from mgpu.readers.training_script import read as training_script_read

    if not job_script_read.is_job_script(path):
        found = training_script_read.read(path)
        if found.error and found.error_line is None:  # it could not be read at all
            raise MgpuError(f"{path}: {found.error}", errors.USAGE)
        return replace(snapshot, script=found if found.error else replace(found, starts=launch_lines.find(path)))
    job = job_script_read.read(path)
    if job.error:
        raise MgpuError(f"{path}: {job.error}", errors.USAGE)
    if snapshot.config is None and job.config and (named := job_script_read.named_config(job)):
        from mgpu.config import facts

        base = None if str(named) == job.config else path.parent  # it is relative to the script's folder
        snapshot = replace(snapshot, config=facts(named, ask_loader=False, base=base))
    if snapshot.config is not None:
        from mgpu.doctor.job_config import completed

        snapshot = replace(snapshot, config=completed(snapshot.config, job))
    return config_files.with_files_of_job(replace(snapshot, job_script=job), job)


def _snapshot(request: Request) -> Snapshot:
    if request.of_files:
        return _of_files(request)
    if request.demo:
        snapshot = demo.read(request.demo)
    elif request.from_:
        snapshot = read_snapshot(Path(request.from_))
    else:
        wanted = probes.QUICK if request.quick else probes.DEFAULT
        with progress() as show:
            snapshot = probes.gather(wanted, python=request.python, progress=show, started=request.started)
            if request.deep:
                from mgpu.probes import gpu_stress

                if cost := gpu_stress.announce_cost(snapshot):
                    output.to_stderr(cost)
                snapshot = gpu_stress.run(snapshot, python=request.python, progress=show)
    if request.config:
        path, ask_loader = Path(request.config), not request.quick
        snapshot = config_files.with_config(snapshot, path, ask_loader=ask_loader, python=request.python)
        if snapshot.config is not None and not request.away:
            config = mark_if_away(snapshot.config, snapshot)
            snapshot = _with_rendezvous(replace(snapshot, config=config), config)
    return replace(snapshot, plan=_plan(request, snapshot))


def _with_rendezvous(snapshot: Snapshot, config: Config) -> Snapshot:
    """Probe the network again for the rendezvous port and address of the config."""
    address = config.values.get("main_process_ip")
    named = {"port": config.port, "master": address if isinstance(address, str) else None}
    arguments = {name: value for name, value in named.items() if value}
    if not arguments:
        return snapshot
    child = probes.run([replace(probes.NETWORK, arguments=arguments)])[0]
    seen = probes.build(child.found, probes.gaps_of(child))
    gaps = {fact: gap for fact, gap in snapshot.gaps.items() if fact != "network"} | dict(seen.gaps)
    return replace(snapshot, network=seen.network, gaps=gaps)


def _plan(request: Request, snapshot: Snapshot) -> Plan:
    """The planned run: by the options, else the config, else the Slurm job this runs in, else the saved machine."""
    plan = snapshot.plan or Plan()
    config, slurm = snapshot.config, snapshot.slurm
    if request.nodes is not None:
        plan = replace(plan, nodes=request.nodes)
    elif request.config and config is not None:
        plan = replace(plan, nodes=config.num_machines)
    elif not request.away and slurm and slurm.job_id and slurm.nodes:
        plan = replace(plan, nodes=slurm.nodes)
    if request.config and config is not None and config.on_cpu:
        plan = replace(plan, cpu_ranks=config.ranks_here)
    if request.expect_gpus is not None:
        plan = replace(plan, expect_gpus=request.expect_gpus)
    if request.expect_free_gib is not None:
        plan = replace(plan, expect_free_bytes=int(request.expect_free_gib * 1024**3))
    return plan


def _judge(
    request: Request, checks: Sequence[Check], machine: Snapshot, before: Snapshot | None, began: float
) -> Examined:
    """Run the checks; the outcomes, the verdict and the exit code."""
    shown = replace(machine, local_rules=added.rules_of(request))
    if request.hides:
        from mgpu.snapshot.redaction import redact

        shown = redact(shown)
    if not engine.selected(shown, selections.DOCTOR, checks):
        which = "they need --deep, --config or another input" if checks else "--skip excludes all of them"
        raise MgpuError(f"none of the selected checks can run: {which}", errors.USAGE)
    outcomes = waiving.waive(engine.judge(shown, selections.DOCTOR, checks), shown.local_rules)
    in_script: list[engine.Outcome] = []
    if shown.log is not None:
        from mgpu.doctor import program_of_log

        outcomes = program_of_log.named(outcomes, shown.log)
        if request.log:  # not of a saved run: its script can have been another one
            in_script = program_of_log.findings_in_source(outcomes, shown.log)
    verdict = verdicts.of_machine(outcomes, shown)
    code = verdicts.doctor_code(request.exit_style, verdict, outcomes, strict=request.strict)
    changes, since = _changes(before, shown)
    took = time.monotonic() - began
    return Examined(machine, shown, outcomes, verdict, code, took, changes, since, foreseen=tuple(in_script))


def _changes(before: Snapshot | None, now: Snapshot) -> tuple[tuple[Change, ...] | None, str]:
    """The changes since --compare and its date. A saved file is redacted, so this machine is redacted as well."""
    if before is None:
        return None, ""
    from mgpu.snapshot import changes as snapshot_changes
    from mgpu.snapshot.redaction import redact

    if before.redacted or now.redacted:
        before, now = redact(before), redact(now)
    return snapshot_changes.find_changes(before, now), snapshot_changes.time_saved(before, now)


def _repair(
    request: Request, found: Examined, judge: Callable[[Snapshot], Examined], say: Callable[[str], None]
) -> Examined:
    """Offer the repairs one by one. After a repair the machine is judged again, which decides the exit code."""
    from mgpu.doctor import repair

    repairs = repair.find_repairs(found.machine, found.outcomes, lambda: probes.gather([probes.SYSTEM]).leftovers)
    silent = request.format != "human" or not can_ask()
    if repairs and silent and not (request.yes or request.dry_run):
        count = counted(len(repairs), "repair")
        raise MgpuError(
            f"--fix asks before each repair, but cannot prompt here: {count} possible. Add --yes, or --dry-run to list",
            errors.USAGE,
        )
    results = repair.offer(repairs, say, yes=request.yes, dry_run=request.dry_run)
    if any(result.done for result in results):
        fresh = probes.gather([probes.PACKAGES, probes.SYSTEM], python=request.python)
        facts = {fact: getattr(fresh, fact) for fact in ("leftovers", "python", "system")}
        known = {fact: value for fact, value in facts.items() if value is not None}
        found = judge(replace(found.machine, **known))
    return replace(found, repairs=results)


def list_checks(request: Request, words: Sequence[str] = ()) -> int:
    """Print the checks of `--list-checks WORD...`, also as JSON. Raises MgpuError if none matches."""
    checks = engine.choose(added.checks_of(request), request.only, request.skip)
    if words:
        checks = tuple(check for check in checks if all(_mentions(check, word) for word in words))
    if not checks:
        why = f"no check matches {' '.join(words)!r}" if words else "--only and --skip leave no check"
        raise MgpuError(f"{why}: mgpu doctor --list-checks", errors.USAGE)
    if request.format == "json":
        rows = [
            {"id": c.id, "area": c.area, "severity": c.severity.value, "summary": c.summary, "source": c.source}
            for c in checks
        ]
        print(json.dumps({"schema": "mgpu.checks/1.0", "mgpu": __version__, "checks": rows}, indent=2))
    else:
        output.show_paged(lambda screen: findings.listing(checks, screen))
    return errors.READY


def _mentions(check: Check, word: str) -> bool:
    """Whether a check's area, id, severity or summary contains a word, ignoring case."""
    return word.lower() in f"{check.area} {check.id} {check.severity.value} {check.summary}".lower()


def explain(name: str) -> int:
    """Print the documentation of one check (`--explain ID`)."""
    checks = {c.id: c for c in added.checks_of(Request())}
    wanted = name.strip().lower().replace("-", "_")
    if wanted not in checks:
        if wanted in {c.area for c in checks.values()}:
            raise MgpuError(f"{wanted} is an area: mgpu doctor --list-checks {wanted}", errors.USAGE)
        raise MgpuError(engine.unknown_id(wanted, checks), errors.USAGE)
    screen = Screen.of()
    screen.show(findings.explain(checks[wanted], screen))
    return errors.READY
