"""What does `mgpu launch` do: compare with what was verified, say what will run, hand off, end as the training did?"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mgpu import __version__, describe, engine, errors, files, plan, probes, report, stamp
from mgpu.check import Skip
from mgpu.config import facts
from mgpu.document import check_json
from mgpu.errors import MgpuError
from mgpu.launch import command as launching
from mgpu.launch import exit_code, port, supervise
from mgpu.smoke import machines, subject
from mgpu.smoke import run as smoke
from mgpu.smoke.request import Request as SmokeRequest
from mgpu.snapshot import Config, Plan, Snapshot

_WOULD_FAIL = "This run would fail, or nobody can tell:  mgpu doctor"
_UNVERIFIED = ("ask", "allow", "refuse")


@dataclass(frozen=True)
class Request:
    """The options of launch."""

    target: tuple[str, ...] = ()
    module: bool = False
    config: str = ""
    yes: bool = False
    dry_run: bool = False
    print_command: bool = False
    unverified: str = ""
    node: int | None = None  # which of several machines this is
    log_dir: str = ""
    json_result: str = ""


def run(request: Request) -> int:
    """`mgpu launch`: 125 when mgpu refuses, else the training's own exit code."""
    try:
        return _run(request)
    except MgpuError as error:
        if request.json_result:
            _result(request, {"phase": "preflight", "exit_code": error.exit_code, "error": error.message})
        raise


def _run(request: Request) -> int:
    if request.unverified not in ("", *_UNVERIFIED):
        raise MgpuError(f"--unverified {request.unverified}: choose {', '.join(_UNVERIFIED)}", errors.USAGE)
    target = _target(request)
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
        return _refuse(request, problems, doctor)
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
    verified = _verification(snapshot)
    if request.dry_run:
        _summary(request, snapshot, command, verified, None)
        return errors.READY if not verified else errors.LAUNCH_REFUSED if _policy(request) == "refuse" else errors.READY
    several = config.num_machines > 1
    policy = _policy(request)
    if several and policy != "allow" and (request.node is None or verified):
        raise MgpuError(_by_hand(request, config, target, verified), errors.LAUNCH_REFUSED)
    if verified:
        if policy == "refuse":
            return _refuse(request, verified, "Test it first, or add --unverified allow.")
        answer = _ask_what(verified) if policy == "ask" else "launch"
        if answer == "stop":
            return errors.LAUNCH_REFUSED
        if answer == "test":
            if smoke.run(SmokeRequest(config=request.config)) != errors.READY:
                return errors.LAUNCH_REFUSED
            snapshot = _look(config)
            verified = _verification(snapshot)
        elif unseen := _cannot_see_gpus(snapshot):
            return _refuse(request, unseen, doctor)
    folder = smoke.run_folder(request.log_dir, "")
    _summary(request, snapshot, command, verified, folder)
    if not request.yes and report.can_ask() and not _start():
        return errors.LAUNCH_REFUSED
    return _hand_off(request, command, folder)


def _target(request: Request) -> list[str]:
    """What the launcher is to run: a script and its arguments, or -m and a module."""
    target = list(request.target)
    if target[:1] == ["--"]:
        target = target[1:]
    if not target:
        raise MgpuError("which script?  mgpu launch [OPTIONS] SCRIPT [ARGS...]", errors.USAGE)
    if request.module:
        return ["-m", *target]
    if not Path(target[0]).is_file():
        raise MgpuError(_no_script(target[0]), errors.NOT_FOUND)
    return target


def _by_hand(request: Request, config: Config, target: Sequence[str], verified: Sequence[engine.Outcome]) -> str:
    """What is started on each of several machines: first the test, where this one is not verified, then the run."""
    flag = ["-c", request.config] if request.config else []
    ours = shlex.join(["mgpu", "launch", *flag, "--node-rank", "RANK", *target])
    plain = shlex.join(["accelerate", "launch", "--config_file", config.path, *launching.flags_of(config)])
    lines = [f"{config.path} spans {config.num_machines} machines."]
    if verified:
        lines += [f"Not verified here: {_why(verified)}", "Test it, on all of them at the same time:"]
        lines += [f"  {line}" for line in machines.commands(config, request.config)]
    lines += [f"{'Then start' if verified else 'Start'} it on each, RANK from 0 to {config.num_machines - 1}:"]
    lines += [f"  {ours}", "or without mgpu:", f"  {plain} --machine_rank RANK {shlex.join(target)}"]
    return "\n".join([*lines, "Without a test of this machine's part:  mgpu launch --unverified allow ..."])


def _no_script(name: str) -> str:
    import difflib

    if name.startswith("-"):
        return f"launch has no option {name} (options of mgpu come before the script)"
    folder = Path(name).parent
    try:
        scripts = sorted(p.name for p in folder.iterdir() if p.suffix == ".py")
    except OSError:
        scripts = []
    near = difflib.get_close_matches(Path(name).name, scripts, n=1)
    return f"no script {name}.{f' Did you mean {folder / near[0]}?' if near else ''}"


def _look(config: Config) -> Snapshot:
    """The facts a launch depends on, without importing torch: the stamp covers what the smoke test saw of it."""
    snapshot = probes.gather(probes.QUICK, plan=Plan(nodes=config.num_machines), port=config.port)
    snapshot = replace(snapshot, config=config)
    return replace(snapshot, stamp=stamp.of_now(snapshot))


def _verification(snapshot: Snapshot) -> list[engine.Outcome]:
    """Why this config does not count as verified; empty when it does. Not known is not verified."""
    checks = [check for check in engine.load() if check.area == "stamp"]
    outcomes = engine.run(checks, snapshot)
    return [o for o in outcomes if o.status in ("fail", "crash") or o.unknown]


def _cannot_see_gpus(snapshot: Snapshot) -> list[engine.Outcome]:
    """Unverified and allowed: torch is asked after all, because ranks that see no GPU would train alone on the CPU."""
    assert snapshot.driver is not None
    return smoke.refusals(probes.with_torch(snapshot)) if snapshot.driver.any_gpu else []


def _policy(request: Request) -> str:
    """What happens to a run that is not verified: asked when somebody is there, refused when nobody is."""
    can_ask = report.can_ask() and not request.yes
    wish = request.unverified or "ask"
    return "refuse" if wish == "ask" and not can_ask else wish


def _ask_what(verified: Sequence[engine.Outcome]) -> str:
    from mgpu.wizard import prompts
    from mgpu.wizard.questions import Choice, Question

    screen = report.Screen.of(sys.stderr)
    screen.show([[("Not verified: ", "warn"), (_why(verified), "")]])
    question = Question(
        "unverified",
        "Run the smoke test first?",
        "The smoke test takes seconds and shows that the ranks can train together.",
        default="test",
        choices=(
            Choice("test", "Yes, then launch"),
            Choice("launch", "Launch anyway"),
            Choice("stop", "Stop"),
        ),
        saves=False,
    )
    answer = prompts.ask(question)
    return answer if isinstance(answer, str) else "stop"


def _why(verified: Sequence[engine.Outcome]) -> str:
    first = next((o for o in verified if o.problem), None)
    if first is not None and first.problem is not None:
        return first.problem.cause if first.check.id == "config_changed_since_verified" else first.problem.title
    answer = verified[0].answer
    return f"it cannot be told: {answer.reason}" if isinstance(answer, Skip) else "a check crashed"


def _refuse(request: Request, problems: Sequence[engine.Outcome], text: str) -> int:
    screen = report.Screen.of(sys.stderr)
    lines = report.problems(problems, screen, command="mgpu doctor", show_all=False)
    if not lines:
        lines = [[(f"Not known: {_why(problems)}", "")]]
    screen.show([*lines, [], [("NOT STARTED", "fail"), (f"  {text}", "")]])
    if request.json_result:
        _result(
            request,
            {
                "phase": "preflight",
                "exit_code": errors.LAUNCH_REFUSED,
                "checks": [check_json(o) for o in problems],
            },
        )
    return errors.LAUNCH_REFUSED


def _summary(
    request: Request,
    snapshot: Snapshot,
    command: launching.Command,
    verified: Sequence[engine.Outcome],
    folder: Path | None,
) -> None:
    """What will run, on what, with which additions: to stderr, since stdout is the training's."""
    config, driver = snapshot.config, snapshot.driver
    assert config is not None and driver is not None
    screen = report.Screen.of(sys.stderr if not request.dry_run else sys.stdout)
    state = f"NOT verified: {_why(verified)}" if verified else f"verified {ago(snapshot)} on this machine"
    cpu = launching.on_cpu(config, driver)
    ranks = config.ranks_here or 1
    gpus = f"none: {ranks} ranks on the CPU over gloo" if cpu else describe.rows(snapshot).get("Visible", "none")
    precision = config.precision
    kind = {"MULTI_GPU": "DDP", "NO": "one process"}.get(config.distributed_type or "", config.distributed_type)
    rows = [
        ("Config", f"{config.path}   {state}"),
        ("GPUs", gpus),
        (
            "Mode",
            f"{kind}, {'fp32' if precision == 'no' else precision}, {ranks} rank{'s' if ranks > 1 else ''} here",
        ),
    ]
    if batch := _batch(config, "rank" if cpu else "GPU"):
        rows.append(("Batch", batch))
    if ids := smoke.doubts(snapshot):
        rows.append(("Doubts", f"{', '.join(ids)}   (mgpu doctor says more)"))
    added = "  ".join(f"{name}={shlex.quote(value)}" for name, value in command.env_added.items())
    rows.append(("Env", added or "nothing added"))
    if folder:
        rows.append(("Logs", f"{folder}/"))
    lines: list[report.Line] = []
    for label, text in rows:
        first, *rest = report.wrapped(text, screen.width - 11)
        lines += [[(f"{label:<11}", "bold"), (first, "")], *report.unstyled(" " * 11 + more for more in rest)]
    lines.append([(f"{'Command':<11}", "bold"), (shlex.join(command.argv), "")])
    screen.show(lines)


def _batch(config: Config, unit: str) -> str:
    """What one optimizer step sees, as the comments of the config say; empty when they say nothing."""
    ranks, accumulate = config.num_processes, config.accumulate or 1
    if not config.batch_per_gpu or not ranks:
        return ""
    whole = plan.effective_batch(config.batch_per_gpu, ranks, accumulate)
    parts = [str(config.batch_per_gpu), f"{ranks} {unit}{'s' if ranks > 1 else ''}"]
    text = " x ".join([*parts, *([f"accumulate {accumulate}"] if accumulate > 1 else [])])
    text += f" = effective batch {whole:,} (as configured)"
    if config.dataset_size:
        steps = plan.steps(config.dataset_size, config.batch_per_gpu, ranks, accumulate)
        text += f"; {config.dataset_size:,} samples = {steps.optimizer_steps:,} steps per epoch"
    return text


def ago(snapshot: Snapshot) -> str:
    """How long ago the stamp was made, in words."""
    at = snapshot.stamp.verified_at if snapshot.stamp else None
    return since(at) if at else "at an unknown time"


def since(iso: str) -> str:
    """ "just now", "12 min ago", "3 h ago", "5 days ago" for an ISO time."""
    try:
        then = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    except ValueError:
        return "at an unknown time"
    seconds = max(0, int((datetime.now(timezone.utc) - then).total_seconds()))
    for size, word in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            number = seconds // size
            return f"{number} {word}{'s' if word == 'day' and number > 1 else ''} ago"
    return "just now"


def _start() -> bool:
    from mgpu.wizard import prompts
    from mgpu.wizard.questions import Choice, Question

    question = Question(
        "start", "Start?", "The launcher is started exactly as shown.", default="yes",
        choices=(Choice("yes", "Yes"), Choice("no", "No")), saves=False,
    )  # fmt: skip
    return prompts.ask(question) == "yes"


def _hand_off(request: Request, command: launching.Command, folder: Path) -> int:
    """The real launcher, supervised; the end in one line, the exit code the training's own."""
    screen = report.Screen.of(sys.stderr)
    screen.show([[(screen.rule("your program's output starts here"), "")]])
    started = time.monotonic()
    log = supervise.open_log(folder)
    try:
        ended = supervise.Supervisor(command, log).run()
    finally:
        if log is not None:
            log.close()
    code = exit_code.of_training(ended.returncode, ended.tail, ended.signalled)
    failure = exit_code.first_failure(ended.tail) if code else None
    took = supervise.seconds_since(started)
    lines: list[report.Line] = [[(screen.rule("end of your program"), "")]]
    if code == 0:
        lines.append([("mgpu: finished", "ok"), (f", exit 0, {took}", "")])
    else:
        word = "stopped" if ended.signalled else "FAILED"
        lines.append([(f"mgpu: {word}", "fail"), (f" after {took}, exit {code}", "")])
        if failure is not None and not ended.signalled:
            how = f"killed by {failure.signal}" if failure.signal else f"exit code {failure.exit_code}"
            host = f" on {failure.host}" if failure.host else ""
            lines.append([(f"First to fail  rank {failure.rank}{host}, {how}", "")])
        lines.append([(f"Log            {folder}/run.log", "")])
    if ended.left_over:
        lines.append([(f"mgpu ended {len(ended.left_over)} process(es) that were left behind", "")])
    if ended.stuck:
        lines.append([(f"processes that cannot be ended: {' '.join(map(str, ended.stuck))}", "fail")])
    screen.show(lines)
    if request.json_result:
        _result(request, {
            "phase": "training",
            "exit_code": code,
            "command": list(command.argv),
            "env_added": dict(command.env_added),
            "duration_s": round(time.monotonic() - started, 3),
            "first_failure": None if failure is None else {
                "rank": failure.rank, "host": failure.host, "signal": failure.signal, "exit": failure.exit_code,
            },
            "logs": str(folder),
        })  # fmt: skip
    return code


def _result(request: Request, content: dict[str, Any]) -> None:
    document = {"schema": "mgpu.run/1.0", "mgpu": __version__, **content}
    try:
        files.write(Path(request.json_result), json.dumps(document, indent=2) + "\n")
    except MgpuError as error:  # the training's exit code matters more than this file
        print(f"mgpu: {error.message}", file=sys.stderr)


def verified_here(path: Path) -> tuple[bool, str]:
    """Whether a config counts as verified on this machine, and the words for it. For bare `mgpu`."""
    snapshot = _look(facts(path, ask_loader=False))
    verified = _verification(snapshot)
    return (False, _why(verified)) if verified else (True, f"verified {ago(snapshot)}")
