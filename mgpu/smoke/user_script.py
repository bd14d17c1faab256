"""Is the user's script rehearsed after the stages, and with which config and limits?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mgpu import engine, messages
from mgpu.command_line import shell
from mgpu.engine import selections
from mgpu.errors import CANNOT_RUN, USAGE, MgpuError
from mgpu.launchers import choice, stamp
from mgpu.planning.measured import arguments_hash
from mgpu.rehearse import fewer_ranks
from mgpu.rehearse.run import Wanted, rehearse
from mgpu.report.screen import Screen
from mgpu.smoke import script_section
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.request import Request
from mgpu.snapshot import Gap, Snapshot
from mgpu.text import visible


def resolve_target(request: Request) -> list[str]:
    """Return the script and its arguments, or -m and a module; empty: none is rehearsed. Raises MgpuError."""
    return choice.resolve_target(request.target, module=request.module) if request.target else []


def check_syntax(target: list[str]) -> None:
    """Raise MgpuError (126) for a script that no rank could start, before the stages run."""
    script = choice.read(target) if target else None
    if script is None or not script.error or script.error_line is None or script.newer_python:
        return  # a newer Python of the ranks may accept it
    path = visible(script.path)
    check = shell("mgpu doctor --script {:path}", script.path)
    raise MgpuError(f"{path}:{script.error_line}: {script.error}. No rank could start it.\n  {check}", CANNOT_RUN)


def check_config(request: Request, subject: Subject) -> None:
    """Raise MgpuError (2) for a script with a config of several nodes, with the commands that rehearse it on one."""
    nodes = subject.config.num_machines
    if request.target and nodes > 1:
        raise MgpuError(f"{subject.name} uses {nodes} nodes. {request.one_node()}", USAGE)


def add(snapshot: Snapshot, subject: Subject, request: Request, target: list[str], out: Screen | None) -> Snapshot:
    """Return the snapshot with what the ranks of the script did. It is not started after a failed stage."""
    ranks = snapshot.ranks
    assert ranks is not None
    failed = any(outcome.status == "fail" for outcome in engine.judge(snapshot, selections.SMOKE))
    if failed or ranks.ended == "interrupted":
        gap = Gap("not_asked", "the script was not started, because a stage before it failed")
        return replace(snapshot, gaps={**snapshot.gaps, "rehearsal": gap})
    wanted = Wanted(
        target=target,
        script=choice.read(target),
        snapshot=snapshot,
        folder=Path(ranks.folder),
        steps=request.steps,
        limit_s=request.script_limit_s,
        stall_s=request.stall_s,
        cpu=ranks.cpu,
        environment=subject.environment,
        checkpoint=request.checkpoint_now,
    )
    with script_section.Progress(out, request.steps) as show:
        rehearsal = rehearse(wanted, show)
        if request.scaling and rehearsal.measurement is not None:
            rehearsal = fewer_ranks.run(wanted, rehearsal, show)
        return replace(snapshot, rehearsal=rehearsal)


def record_failure(snapshot: Snapshot, request: Request, check: str) -> None:
    """Record that the script failed with a config that was verified before, so that a launch says so."""
    target = resolve_target(request)
    if snapshot.rehearsal is not None and target:
        try:
            stamp.add_failure(snapshot, check, arguments_hash(target[2 if target[0] == "-m" else 1 :]))
        except MgpuError as error:
            messages.notice(f"the failure is not recorded: {error.message}")
