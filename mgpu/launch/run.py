"""Run `mgpu launch`: check the verification, show what will run, start it, and exit with the training's exit code."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors
from mgpu.command_line import from_words
from mgpu.config import facts
from mgpu.engine import before_start, foreseen
from mgpu.errors import MgpuError
from mgpu.launch import free_gpus, gate, preflight, result_document, start_errors, start_run, summary
from mgpu.launch.request import Request
from mgpu.launchers import argv as launching
from mgpu.launchers import choice as launchers_choice
from mgpu.launchers import gpu_selection, port
from mgpu.launchers.choice import Choice
from mgpu.launchers.gpu_selection import Selection
from mgpu.launchers.table import WAYS, Start
from mgpu.process import command as process_command
from mgpu.snapshot import Config, Snapshot

_CONFIG = "accelerate.yaml"


def run(request: Request) -> int:
    """Run `mgpu launch`; return 125 if mgpu refuses, else the training's own exit code."""
    result_document.check(request)
    with start_errors.documented_attempt(request):
        request.check()
        return _run(request)


def _run(request: Request) -> int:
    target = launchers_choice.resolve_target(request.target, module=request.module)
    config = _config(request)
    named = port.requested_port(request.port, config)
    script = launchers_choice.read(target)
    snapshot = free_gpus.when_free(request, lambda: preflight.gather_facts(config, target[1:], named, script))
    if problems := _early_refusals(request, snapshot):
        return start_run.refuse(request, config, problems)
    few = gpu_selection.select_gpus(request.gpus, snapshot)
    if request.gpus and (problems := before_start.refusals(few.snapshot)):
        return start_run.refuse(request, config, problems)
    choice = launchers_choice.choose(few.config, script, request.launcher, gpus=request.gpus)
    few = gpu_selection.limit_visible(few) if choice.own_ranks else few
    command = _command(request, few, choice, target, named)
    if request.print_command:
        start_run.print_lines(_commands(request, few, choice, target, named, command))
        return errors.READY
    lone = bool(request.gpus) and few.config.num_processes == 1
    verified: Sequence[engine.Outcome] = [] if lone else gate.verification(few.snapshot)
    stopping = preflight.problems(few.snapshot, named)
    policy = gate.policy(request)
    details = _details(request, few, choice, verified, stopping, lone=lone)
    if request.dry_run:
        return start_run.show_plan(request, details, command, stopping, policy)
    if stopping and policy != "allow" and (config.num_machines == 1 or request.node is not None):  # it starts here
        rerun = result_document.rerun_command(request.target, "--unverified", "allow")
        return gate.refuse(request, stopping, start_run.NOT_NOW, rerun, summary.doctor_command(config))
    if config.num_machines > 1 and (request.node is None or (verified and policy != "allow")):
        raise MgpuError(_instructions(request, config, target, verified), errors.LAUNCH_REFUSED)
    if why := choice.forbidden(few):
        raise MgpuError(why, errors.LAUNCH_REFUSED)
    if request.smoke == "always" and not lone:
        verified = start_run.run_smoke_test(request, few)
    elif verified:
        permitted = start_run.resolve_unverified(request, few, verified, policy)
        if isinstance(permitted, int):
            return permitted
        verified = permitted
    return start_run.start(request, command, replace(details, verified=verified))


def _details(
    request: Request,
    few: Selection,
    choice: Choice,
    verified: Sequence[engine.Outcome],
    stopping: Sequence[engine.Outcome],
    *,
    lone: bool,
) -> summary.Details:
    """Return what the summary shows. What the choice of the launcher has settled in the script is no finding."""
    found = foreseen.script_findings(few.snapshot)
    found = [finding for finding in found if not (choice.own_ranks and "starts_ranks" in finding.check.tags)]
    warnings = preflight.warnings(few.snapshot, stopping)
    recorder = request.recorder and not request.exec_
    details = summary.Details(few, choice, verified, lone, warnings, found, arguments=request.target[1:])
    return replace(details, recorder=recorder, nan_check=request.nan_check)


def _config(request: Request) -> Config:
    """Return the config to launch. Raises MgpuError if it does not exist or has no such machine."""
    path = Path(request.config or os.environ.get("MGPU_CONFIG") or _CONFIG)
    if not path.exists():
        raise MgpuError(f"config {path} not found. Create one with:  mgpu configure", errors.LAUNCH_REFUSED)
    config = facts(path, ask_loader=False)
    if request.node is not None and request.node >= config.num_machines:
        raise MgpuError(f"--node-rank {request.node}: {path} is for nodes 0 to {config.num_machines - 1}", errors.USAGE)
    return config


def _early_refusals(request: Request, snapshot: Snapshot) -> list[engine.Outcome]:
    """Problems that refuse the run for any number of GPUs; with `--gpus` the others are checked on the selection."""
    problems = before_start.refusals(snapshot)
    if not request.gpus or snapshot.driver is None or snapshot.visible is None:
        return problems
    return [problem for problem in problems if problem.check.area == "driver"]


def _command(
    request: Request, few: Selection, choice: Choice, target: Sequence[str], named: int | None, node: int | None = None
) -> process_command.Command:
    """Return the command for this machine, or for machine `node`."""
    way = WAYS[choice.launcher]
    meet = port.launch_port(few.config, named, needs_port=way.needs_port)
    return way.command(Start(few, target, uuid.uuid4().hex, meet, request.node if node is None else node))


def _commands(
    request: Request,
    few: Selection,
    choice: Choice,
    target: Sequence[str],
    named: int | None,
    command: process_command.Command,
) -> list[str]:
    """Return one line, or one line per machine if there are several and none was named."""
    machines = few.config.num_machines
    if machines == 1 or request.node is not None:
        return [command.shell_text()]
    each = (_command(request, few, choice, target, named, node) for node in range(machines))
    return [f"{one.shell_text()}   # on node {node}" for node, one in enumerate(each)]


def _instructions(request: Request, config: Config, target: Sequence[str], verified: Sequence[engine.Outcome]) -> str:
    """Return the commands to start on each node: the test if this node is not verified, then the run."""
    from mgpu.smoke import machines

    if config.for_slurm:
        return machines.slurm_hint(config, request.config)
    flag = ["-c", request.config] if request.config else []
    ours = ["mgpu", "launch", *flag, *(["--port", request.port] if request.port else []), *_module(request)]
    plain = ["accelerate", "launch", "--config_file", config.path, *launching.flags_of(config)]
    nodes = range(config.num_machines)
    lines = [f"{config.path} spans {config.num_machines} nodes."]
    if verified:
        lines += [f"Not verified here: {gate.why_unverified(verified)}", "Test it on all nodes at the same time:"]
        lines += [f"  {line}" for line in machines.commands(config, request.config)]
    lines.append(f"{'Then start' if verified else 'Start'} it on each node:")
    arguments = target[1:] if request.module else target
    lines += [
        f"  {line}   # on {machines.describe_node(config, node)}"
        for node in nodes
        if (line := from_words([*ours, "--node-rank", str(node), *arguments]))
    ]
    lines.append("Or without mgpu:")
    lines += [f"  {from_words([*plain, '--machine_rank', str(node), *target])}" for node in nodes]
    return "\n".join([*lines, "To skip the test of this machine:  mgpu launch --node-rank K --unverified allow ..."])


def _module(request: Request) -> list[str]:
    return ["-m"] if request.module else []


def verification_status(path: Path) -> tuple[bool, str]:
    """Return whether a config counts as verified on this machine, and a phrase that says so. For bare `mgpu`."""
    config = facts(path, ask_loader=False)
    snapshot = preflight.gather_facts(config, (), config.port)
    verified = gate.verification(snapshot)
    return (False, gate.why_unverified(verified)) if verified else (True, f"verified {summary.verified_ago(snapshot)}")
