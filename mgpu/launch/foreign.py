"""Run the user's own launch line, unchanged: `mgpu launch [OPTIONS] -- COMMAND...`.

Its options are read as facts, the machine is examined as for any launch, and the run is watched. Nothing in the line is
replaced. Only a line whose launcher reads an accelerate config has something that can be verified.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors
from mgpu.engine import before_start, foreseen
from mgpu.errors import MgpuError
from mgpu.launch import gate, preflight, result_document, start_errors, start_run, summary
from mgpu.launch.request import Request
from mgpu.launchers import accelerate_line, argv, foreign_line, line_program
from mgpu.launchers import choice as launchers_choice
from mgpu.launchers.choice import Choice
from mgpu.launchers.foreign_line import Line
from mgpu.launchers.foreign_programs import OTHER, PYTHON
from mgpu.launchers.gpu_selection import Selection
from mgpu.launchers.own_ranks import starts_its_own_ranks
from mgpu.process.command import Command
from mgpu.snapshot import Script, Snapshot

_OTHER_ENVIRONMENT = "the command uses another Python than mgpu, which was examined: {}"


def run(request: Request) -> int:
    """Run the line; return 125 if mgpu refuses, 126 or 127 if it cannot be started, else the program's exit code."""
    result_document.check(request)
    with start_errors.documented_attempt(request):
        request.check()
        line = foreign_line.read(request.target)
        _refuse_options(request, line)
        return _run(request, line)


def _run(request: Request, first: Line) -> int:
    """`first`: the line as far as it is known without the number of GPUs."""
    python = line_program.other_python(line_program.find(first.words[0]), first.words[0])
    script = _script(first)
    snapshot = preflight.gather_facts(first.config, first.arguments, first.port, script, python)
    line = foreign_line.read(request.target, _visible_gpus(snapshot))
    if python:
        line = replace(line, notes=(*line.notes, _OTHER_ENVIRONMENT.format(python)))
    snapshot = _with_config(snapshot, line)
    request = replace(request, config=line.config.path, node=line.node_rank, script=line.script)
    problems = [one for one in before_start.refusals(snapshot) if _concerns(one, line, python)]
    if problems:
        return start_run.refuse(request, line.config, problems)
    command = _command(line)
    if request.print_command:
        start_run.print_lines([command.shell_text()])
        return errors.READY
    several = command.ranks * line.nodes > 1
    verified: Sequence[engine.Outcome] = gate.verification(snapshot) if line.config.path and several else []
    stopping = preflight.problems(snapshot, line.port)
    policy = gate.policy(request)
    details = _details(request, line, snapshot, verified, stopping)
    if request.dry_run:
        return start_run.show_plan(request, details, command, stopping, policy)
    if stopping and policy != "allow":
        rerun = result_document.rerun_command(request.target, "--unverified", "allow")
        return gate.refuse(request, stopping, start_run.NOT_NOW, rerun, summary.doctor_command(line.config))
    permitted = _permit(request, line, details, policy, python)
    if isinstance(permitted, int):
        return permitted
    return start_run.start(request, command, replace(details, verified=permitted))


def _permit(
    request: Request, line: Line, details: summary.Details, policy: str, python: str | None
) -> Sequence[engine.Outcome] | int:
    """Return why the line's config is still unverified (empty: it is not, or there is none), or an exit code."""
    few = details.fewer
    if details.verified and line.config.given and policy == "refuse":
        return gate.refuse_unverified(request, line.config, details.verified, _overrides(line))
    if request.smoke == "always" and line.config.path:
        return start_run.run_smoke_test(request, few)
    if details.verified:
        return start_run.resolve_unverified(request, few, details.verified, policy)
    if line.config.path or python or line.program is OTHER:
        return ()
    # No smoke test has shown that torch finds the GPUs.
    unseen = [one for one in gate.cannot_see_gpus(few.snapshot) if _concerns(one, line, python)]
    return start_run.refuse(request, line.config, unseen) if unseen else ()


def _overrides(line: Line) -> str:
    names = ", ".join(f"--{name}" for name in line.config.given)
    return f"{names} in the command: to verify what runs, set it in {line.config.path} instead"


def _refuse_options(request: Request, line: Line) -> None:
    """Raise MgpuError (2) for an option that would have to change the line, with what to change there."""
    given = {
        "--config": request.config,
        "-m": "" if not request.module else " ",
        "--launcher": "" if request.launcher == "auto" else request.launcher,
        "--gpus": request.gpus,
        "--port": request.port,
        "--node-rank": "" if request.node is None else str(request.node),
    }
    for option, value in given.items():
        if value:
            text = f"{option} {value}".rstrip()
            change = line.program.change[option]
            raise MgpuError(f"{text}: the command after -- runs unchanged. {change}", errors.USAGE)
    if request.smoke == "always" and not line.config.path:
        raise MgpuError("--smoke always: the command has no accelerate config to test", errors.USAGE)


def _script(line: Line) -> Script | None:
    """Return the facts from the source of the script that the line starts, if it is a file or module of the user's."""
    name = line.script[0] if line.script else ""
    if not name or (name != "-m" and not Path(name).is_file()):
        return None
    if name == "-m" and len(line.script) < 2:
        return None
    return launchers_choice.read(line.script)


def _visible_gpus(snapshot: Snapshot) -> int:
    no_gpu = snapshot.driver is None or not snapshot.driver.any_gpu or snapshot.visible is None
    return 0 if no_gpu or snapshot.visible is None else len(snapshot.visible.gpus)


def _with_config(snapshot: Snapshot, line: Line) -> Snapshot:
    """Return the snapshot with the config of the line's ranks, and its stamp if it has a file."""
    whole = replace(snapshot, config=line.config)
    if not line.config.path:
        return replace(whole, stamp=None)
    assert snapshot.driver is not None
    if accelerate_line.takes_variable(line.config) and argv.on_cpu(line.config, snapshot.driver):
        # mgpu's own launch of this config adds it, so that it is no change of what was tested.
        env = {name: value for name, value in (snapshot.env or {}).items() if name != "ACCELERATE_USE_CPU"}
        whole = replace(whole, env=env)
    return preflight.with_stamp(whole)


def _concerns(outcome: engine.Outcome, line: Line, python: str | None) -> bool:
    """Whether a problem with the software can stop this line: accelerate's concern only a line that starts it."""
    if outcome.check.area == "packages":
        return line.launcher == "accelerate"
    if outcome.check.area == "pytorch":
        return line.program is not OTHER and not (line.program is PYTHON and python)
    return True


def _command(line: Line) -> Command:
    name, *arguments = line.words
    return Command(line.words, {}, uuid.uuid4().hex, line.launcher, line.ranks or 1, name, tuple(arguments))


def _details(
    request: Request,
    line: Line,
    snapshot: Snapshot,
    verified: Sequence[engine.Outcome],
    stopping: Sequence[engine.Outcome],
) -> summary.Details:
    own = line.program is PYTHON and bool(starts_its_own_ranks(snapshot.script))
    found = foreseen.script_findings(snapshot)
    found = [one for one in found if not (own and "starts_ranks" in one.check.tags)]
    settings = line.settings
    if settings and settings.batch:
        config = replace(line.config, batch_per_gpu=settings.batch, accumulate=settings.accumulate)
        snapshot = replace(snapshot, config=config)
    return summary.Details(
        Selection(snapshot),
        Choice(line.launcher, own_ranks=own),
        verified,
        bool(line.config.path) and (line.ranks or 1) * line.nodes == 1,
        preflight.warnings(snapshot, stopping),
        found,
        recorder=request.recorder and not request.exec_,
        nan_check=request.nan_check,
        line=line,
    )
