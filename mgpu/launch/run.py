"""What does `mgpu launch` do: compare with what was verified, say what will run, hand off, end as the training did?"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors
from mgpu.command_line import from_words
from mgpu.config import facts
from mgpu.engine import before_start
from mgpu.errors import MgpuError
from mgpu.launch import gate, preflight, result_document, start_errors, summary
from mgpu.launch.request import Request
from mgpu.launchers import argv as launching
from mgpu.launchers import choice as launchers_choice
from mgpu.launchers import gpu_selection, port, run_folder
from mgpu.launchers.choice import Choice
from mgpu.launchers.gpu_selection import Fewer
from mgpu.launchers.table import WAYS, Start
from mgpu.process import command as process_command
from mgpu.report import screen
from mgpu.snapshot import Config, Snapshot

_CONFIG = "accelerate.yaml"
_WOULD_FAIL = "This run would fail, or nobody can tell:  mgpu doctor --config {config}"
_NOT_NOW = "Mend that, or start it all the same:\n  "


def run(request: Request) -> int:
    """`mgpu launch`: 125 when mgpu refuses, else the training's own exit code."""
    result_document.check(request)
    with start_errors.documented_attempt(request):
        request.check()
        return _run(request)


def _run(request: Request) -> int:
    target = launchers_choice.named(request.target, module=request.module)
    config = _config(request)
    named = port.asked(request.port, config)
    script = launchers_choice.read(target)
    snapshot = preflight.look(config, target[1:], named, script)
    if problems := _unmended(request, snapshot):
        return gate.refuse(request, problems, _would_fail(config))
    few = gpu_selection.narrowed(request.gpus, snapshot)
    if request.gpus and (problems := before_start.refusals(few.snapshot)):
        return gate.refuse(request, problems, _would_fail(config))
    choice = launchers_choice.choose(few.config, script, request.launcher, gpus=request.gpus)
    command = _command(request, few, choice, target, named)
    if request.print_command:
        _print(_commands(request, few, choice, target, named, command))
        return errors.READY
    lone = bool(request.gpus) and few.config.num_processes == 1
    verified: Sequence[engine.Outcome] = [] if lone else gate.verification(few.snapshot)
    stopping = preflight.problems(few.snapshot, named)
    policy = gate.policy(request)
    doubts, findings = preflight.doubts(few.snapshot, stopping), preflight.of_script(few.snapshot)
    told = summary.Told(few, choice, verified, lone, doubts, findings)
    if request.dry_run:
        summary.show(told, command, dry_run=True)
        return errors.LAUNCH_REFUSED if policy != "allow" and (stopping or (verified and policy == "refuse")) else 0
    here = config.num_machines == 1 or request.node is not None  # it would start on this machine
    if stopping and policy != "allow" and here:
        return gate.refuse(request, stopping, _NOT_NOW + result_document.again(request.target, "--unverified", "allow"))
    if config.num_machines > 1 and (request.node is None or (verified and policy != "allow")):
        raise MgpuError(_by_hand(request, config, target, verified), errors.LAUNCH_REFUSED)
    if why := choice.forbidden(few):
        raise MgpuError(why, errors.LAUNCH_REFUSED)
    if request.smoke == "always" and not lone:
        verified = _tested(request, few)
    elif verified:
        permitted = _permitted(request, few, verified, policy)
        if isinstance(permitted, int):
            return permitted
        verified = permitted
    return _start(request, command, replace(told, verified=verified))


def _config(request: Request) -> Config:
    """The config that is meant. Raises MgpuError when there is none, or it is not for this machine."""
    path = Path(request.config or os.environ.get("MGPU_CONFIG") or _CONFIG)
    if not path.exists():
        raise MgpuError(f"no config {path}.  mgpu configure  writes one", errors.LAUNCH_REFUSED)
    config = facts(path, ask_loader=False)
    if request.node is not None and request.node >= config.num_machines:
        raise MgpuError(
            f"--node-rank {request.node}: {path} is for machines 0 to {config.num_machines - 1}", errors.USAGE
        )
    return config


def _unmended(request: Request, snapshot: Snapshot) -> list[engine.Outcome]:
    """What refuses the run however many GPUs are asked for; with `--gpus` the rest is asked of what they leave."""
    problems = before_start.refusals(snapshot)
    if not request.gpus or snapshot.driver is None or snapshot.visible is None:
        return problems
    return [problem for problem in problems if problem.check.area == "driver"]


def _would_fail(config: Config) -> str:
    return _WOULD_FAIL.format(config=from_words([config.path]) or "CONFIG")


def _command(
    request: Request, few: Fewer, choice: Choice, target: Sequence[str], named: int | None, node: int | None = None
) -> process_command.Command:
    """The command for this machine, or for machine `node`."""
    way = WAYS[choice.launcher]
    meet = port.for_launch(few.config, named, needs_port=way.needs_port)
    return way.command(Start(few, target, uuid.uuid4().hex, meet, request.node if node is None else node))


def _commands(
    request: Request,
    few: Fewer,
    choice: Choice,
    target: Sequence[str],
    named: int | None,
    command: process_command.Command,
) -> list[str]:
    """One line, or one for each of several machines when none of them was named."""
    machines = few.config.num_machines
    if machines == 1 or request.node is not None:
        return [command.shown()]
    each = (_command(request, few, choice, target, named, node) for node in range(machines))
    return [f"{one.shown()}   # on machine {node}" for node, one in enumerate(each)]


def _print(lines: Sequence[str]) -> None:
    """Byte for byte: also arguments that are no text."""
    data = b"".join(os.fsencode(line) + b"\n" for line in lines)
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
    else:
        stream.write(data)
    sys.stdout.flush()


def _permitted(
    request: Request, few: Fewer, verified: Sequence[engine.Outcome], policy: str
) -> Sequence[engine.Outcome] | int:
    """Not verified: what is left of that after the test, or when it does not matter; else the exit code."""
    if policy == "refuse":
        return gate.refuse_unverified(request, few.config, verified)
    answer = (
        gate.ask_what(verified, smoke=request.smoke == "auto" and not request.gpus) if policy == "ask" else "launch"
    )
    if answer == "stop":
        gate.record(request, verified)
        return errors.LAUNCH_REFUSED
    if answer == "test":
        return _tested(request, few)
    if unseen := gate.cannot_see_gpus(few.snapshot):
        return gate.refuse(request, unseen, _would_fail(few.config))
    return verified


def _tested(request: Request, few: Fewer) -> Sequence[engine.Outcome]:
    """Why the config is still not verified after the smoke test; raises MgpuError when the test has failed."""
    from mgpu.smoke import run as smoke
    from mgpu.smoke.request import Request as SmokeRequest

    with contextlib.redirect_stdout(sys.stderr):  # stdout is the training's
        code = smoke.run(SmokeRequest(config=request.config, node=request.node))
    if code != errors.READY:
        raise MgpuError("not started: the smoke test has not passed", errors.LAUNCH_REFUSED)
    return gate.verification(preflight.stamped(few.snapshot))


def _start(request: Request, command: process_command.Command, told: summary.Told) -> int:
    """Say what will run, have it agreed to, and hand it over."""
    folder = None if request.exec_ else _folder(request, told.fewer.config)
    if request.detach or request.watch:
        from mgpu.launch import run_entry

        run_entry.can_keep()
    told = replace(told, folder=folder)
    if told.fewer.snapshot.stamp is not None and not told.verified:
        told = replace(told, fewer=replace(told.fewer, snapshot=preflight.stamped(told.fewer.snapshot)))
    summary.show(told, command)
    if not request.yes and screen.can_ask() and not summary.agreed():
        return result_document.declined(request)
    if folder is None:
        launching.become(command)
    snapshot = told.fewer.snapshot
    with _claimed(request, folder) as claimed:
        gc.enable()
        if request.detach or request.watch:
            from mgpu.launch import detached

            return detached.start(request, command, claimed, snapshot)
        from mgpu.launch import hand_off

        return hand_off.hand_off(request, command, claimed, snapshot)


def _folder(request: Request, config: Config) -> Path:
    """Where this run's files will go; nothing is made or removed yet.

    Each of several machines has a folder of its own in --log-dir, which they may share. Raises MgpuError: 2 while
    another run still writes there, 125 if mgpu cannot write there.
    """
    folder = request.log_dir
    if folder and config.num_machines > 1:
        folder = os.path.join(folder, f"node{request.node}")
    try:
        planned = run_folder.plan_folder(folder, run_folder.LAUNCH)
    except MgpuError as error:
        raise MgpuError(error.message, errors.LAUNCH_REFUSED) from None
    if folder:
        from mgpu.launch import registry

        if other := registry.writes_to(planned):
            raise MgpuError(f"{other.id} still writes its logs to {folder}: choose another --log-dir", errors.USAGE)
    return planned


@contextlib.contextmanager
def _claimed(request: Request, planned: Path) -> Iterator[Path]:
    """The folder while the run lasts, without what an earlier launch left in it. Raises MgpuError (125)."""
    with contextlib.ExitStack() as stack:
        outlived = request.detach or request.watch
        try:
            named = bool(request.log_dir)
            folder = run_folder.claim_folder(planned, run_folder.LAUNCH, named=named, outlived=outlived)
            path = stack.enter_context(folder)
        except MgpuError as error:
            raise MgpuError(error.message, errors.LAUNCH_REFUSED) from None
        yield path


def _by_hand(request: Request, config: Config, target: Sequence[str], verified: Sequence[engine.Outcome]) -> str:
    """What is started on each of several machines: first the test, where this one is not verified, then the run."""
    from mgpu.smoke import machines

    if config.for_slurm:
        return machines.for_slurm(config, request.config)
    flag = ["-c", request.config] if request.config else []
    ours = ["mgpu", "launch", *flag, *(["--port", request.port] if request.port else []), *_module(request)]
    plain = ["accelerate", "launch", "--config_file", config.path, *launching.flags_of(config)]
    nodes = range(config.num_machines)
    lines = [f"{config.path} spans {config.num_machines} machines."]
    if verified:
        lines += [f"Not verified here: {gate.why(verified)}", "Test it, on all of them at the same time:"]
        lines += [f"  {line}" for line in machines.commands(config, request.config)]
    lines.append(f"{'Then start' if verified else 'Start'} it on each:")
    words = target[1:] if request.module else target
    lines += [
        f"  {line}   # on {machines.where(config, node)}"
        for node in nodes
        if (line := from_words([*ours, "--node-rank", str(node), *words]))
    ]
    lines.append("or without mgpu:")
    lines += [f"  {from_words([*plain, '--machine_rank', str(node), *target])}" for node in nodes]
    return "\n".join(
        [*lines, "Without a test of this machine's part:  mgpu launch --node-rank K --unverified allow ..."]
    )


def _module(request: Request) -> list[str]:
    return ["-m"] if request.module else []


def verified_here(path: Path) -> tuple[bool, str]:
    """Whether a config counts as verified on this machine, and the words for it. For bare `mgpu`."""
    config = facts(path, ask_loader=False)
    snapshot = preflight.look(config, (), config.port)
    verified = gate.verification(snapshot)
    return (False, gate.why(verified)) if verified else (True, f"verified {summary.ago(snapshot)}")
