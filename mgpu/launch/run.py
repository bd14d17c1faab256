"""What does `mgpu launch` do: compare with what was verified, say what will run, hand off, end as the training did?"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors, probes, report, stamp
from mgpu.config import facts
from mgpu.errors import MgpuError
from mgpu.launch import command as launching
from mgpu.launch import gate, hand_off, port, program, result, summary
from mgpu.launch.request import Request
from mgpu.smoke import machines, subject
from mgpu.smoke import run as smoke
from mgpu.smoke.request import Request as SmokeRequest
from mgpu.snapshot import Config, Plan, Snapshot

_WOULD_FAIL = "This run would fail, or nobody can tell:  mgpu doctor"


def run(request: Request) -> int:
    """`mgpu launch`: 125 when mgpu refuses, else the training's own exit code."""
    try:
        return _run(request)
    except MgpuError as error:
        if request.json_result:
            result.write(request, {"phase": "preflight", "exit_code": error.exit_code, "error": error.message})
        raise


def _run(request: Request) -> int:
    if request.unverified not in ("", *gate.POLICIES):
        raise MgpuError(f"--unverified {request.unverified}: choose {', '.join(gate.POLICIES)}", errors.USAGE)
    target = program.named(request)
    path = Path(request.config or os.environ.get("MGPU_CONFIG") or subject.DEFAULT_CONFIG)
    if not path.exists():
        raise MgpuError(f"no config {path}.  mgpu configure  writes one", errors.LAUNCH_REFUSED)
    config = facts(path, ask_loader=False)
    if request.node is not None and request.node >= config.num_machines:
        raise MgpuError(
            f"--node-rank {request.node}: {path} is for machines 0 to {config.num_machines - 1}", errors.USAGE
        )
    snapshot = _look(config)
    problems = smoke.refusals(snapshot)
    doctor = f"{_WOULD_FAIL} --config {shlex.quote(config.path)}"
    if problems:
        return gate.refuse(request, problems, doctor)
    assert snapshot.driver is not None and snapshot.python is not None
    run_id = uuid.uuid4().hex
    command = launching.build(
        config,
        snapshot.driver,
        target,
        python=snapshot.python.executable,
        port=port.for_launch(config),
        run_id=run_id,
        node=request.node if config.num_machines > 1 else None,
    )
    if request.print_command:
        print(command.shown())
        return errors.READY
    verified = gate.verification(snapshot)
    if request.dry_run:
        summary.show(request, snapshot, command, verified, None)
        return (
            errors.READY
            if not verified
            else errors.LAUNCH_REFUSED
            if gate.policy(request) == "refuse"
            else errors.READY
        )
    several = config.num_machines > 1
    policy = gate.policy(request)
    if several and policy != "allow" and (request.node is None or verified):
        raise MgpuError(_by_hand(request, config, target, verified), errors.LAUNCH_REFUSED)
    if verified:
        if policy == "refuse":
            return gate.refuse(request, verified, "Test it first, or add --unverified allow.")
        answer = gate.ask_what(verified) if policy == "ask" else "launch"
        if answer == "stop":
            return errors.LAUNCH_REFUSED
        if answer == "test":
            if smoke.run(SmokeRequest(config=request.config)) != errors.READY:
                return errors.LAUNCH_REFUSED
            snapshot = _look(config)
            verified = gate.verification(snapshot)
        elif unseen := gate.cannot_see_gpus(snapshot):
            return gate.refuse(request, unseen, doctor)
    folder = smoke.run_folder(request.log_dir, "")
    summary.show(request, snapshot, command, verified, folder)
    if not request.yes and report.can_ask() and not summary.agreed():
        return errors.LAUNCH_REFUSED
    return hand_off.hand_off(request, command, folder)


def _by_hand(request: Request, config: Config, target: Sequence[str], verified: Sequence[engine.Outcome]) -> str:
    """What is started on each of several machines: first the test, where this one is not verified, then the run."""
    flag = ["-c", request.config] if request.config else []
    ours = shlex.join(["mgpu", "launch", *flag, "--node-rank", "RANK", *target])
    plain = shlex.join(["accelerate", "launch", "--config_file", config.path, *launching.flags_of(config)])
    lines = [f"{config.path} spans {config.num_machines} machines."]
    if verified:
        lines += [f"Not verified here: {gate.why(verified)}", "Test it, on all of them at the same time:"]
        lines += [f"  {line}" for line in machines.commands(config, request.config)]
    lines += [f"{'Then start' if verified else 'Start'} it on each, RANK from 0 to {config.num_machines - 1}:"]
    lines += [f"  {ours}", "or without mgpu:", f"  {plain} --machine_rank RANK {shlex.join(target)}"]
    return "\n".join([*lines, "Without a test of this machine's part:  mgpu launch --unverified allow ..."])


def _look(config: Config) -> Snapshot:
    """The facts a launch depends on, without importing torch: the stamp covers what the smoke test saw of it."""
    snapshot = probes.gather(probes.QUICK, plan=Plan(nodes=config.num_machines), port=config.port)
    snapshot = replace(snapshot, config=config)
    return replace(snapshot, stamp=stamp.of_now(snapshot))


def verified_here(path: Path) -> tuple[bool, str]:
    """Whether a config counts as verified on this machine, and the words for it. For bare `mgpu`."""
    snapshot = _look(facts(path, ask_loader=False))
    verified = gate.verification(snapshot)
    return (False, gate.why(verified)) if verified else (True, f"verified {summary.ago(snapshot)}")
