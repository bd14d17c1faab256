"""`mgpu launch --hosts`: check the hosts, then start one part of the run on each, under one supervisor here."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mgpu import engine, errors, files
from mgpu.command_line import from_words
from mgpu.engine import selections
from mgpu.errors import MgpuError
from mgpu.fleet import allocation, derived_config, hosts_doctor, hosts_run, hosts_verdict, route, stages, verified_hosts
from mgpu.fleet.allocation import Wanted
from mgpu.fleet.examination import Examination
from mgpu.fleet.hosts_watch import HostsHangs
from mgpu.hosts.named_hosts import Host, names, read_hosts
from mgpu.launch import detached, gate, hand_off, result_document, run_entry, start_errors
from mgpu.launch.request import Request
from mgpu.launchers import choice, run_folder
from mgpu.process import interpreter, scratch
from mgpu.process.command import Command
from mgpu.report import findings, output
from mgpu.report import screen as report_screen
from mgpu.smoke.request import Request as SmokeRequest
from mgpu.snapshot import Fleet, Plan, Snapshot
from mgpu.text import counted

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from mgpu.fleet.hosts_run import main; main()"
STOPS_WITHIN_S = hosts_run.STOP_S + 5.0  # until the verdicts of the hosts are written, too
_ROOT = str(Path(__file__).resolve().parents[2])
_LABEL = 11  # columns


def run(request: Request) -> int:
    """Run a training on the hosts; return 125 if mgpu refuses, else the exit code of the host that failed first."""
    result_document.check(request)
    with start_errors.documented_attempt(request):
        request.check()
        choice.resolve_target(request.target, module=request.module)
        return _run(request, read_hosts(request.hosts, request.python))


def _run(request: Request, hosts: Sequence[Host]) -> int:
    with scratch.folder() as place:
        job = allocation.of_hosts(hosts)
        wanted = allocation.read_wanted(SmokeRequest(config=request.config), job, os.environ, place)
    own = derived_config.of_nodes(wanted.config, wanted.ranks_on, names(hosts), hosts_doctor.FIRST_PORT)[1]
    port = int(request.port) if request.port.isdecimal() else 0
    subject = hosts_doctor.Subject(wanted.config.path, wanted.cpu, own_configs=own, port=port)
    with output.progress() as show:
        fleet, examination = hosts_doctor.examine(hosts, subject, show)
    outcomes = _findings(fleet, wanted, len(hosts))
    problems = [one for one in outcomes if one.status in ("fail", "crash")]
    policy = gate.policy(request)
    orders = _orders(request, hosts, wanted, fleet, examination)
    orders["warnings"] = _warnings(outcomes)
    if request.dry_run or request.print_command:
        return _show(request, hosts, wanted, orders, problems)
    if problems and policy != "allow":
        return _refuse(request, problems)
    if policy != "allow" and (code := _require_test(request, hosts, wanted)) is not None:
        return code
    return _start(request, hosts, wanted, orders)


def _findings(fleet: Fleet, wanted: Wanted, nodes: int) -> list[engine.Outcome]:
    snapshot = Snapshot(fleet=fleet, config=wanted.config, plan=Plan(nodes=nodes))
    return findings.in_order(engine.judge(snapshot, selections.FLEET))


def _warnings(outcomes: Sequence[engine.Outcome]) -> list[str]:
    """Return what does not prevent a start, each with its hosts: "node_ranks_left (b)"."""
    found: dict[str, list[str]] = {}
    for one in outcomes:
        if one.status == "warn" and one.problem and not one.because_of:
            found.setdefault(one.check.id, []).extend(one.problem.subjects)
    return [f"{name} ({', '.join(dict.fromkeys(hosts))})" if hosts else name for name, hosts in found.items()]


def _refuse(request: Request, problems: Sequence[engine.Outcome]) -> int:
    rerun = result_document.rerun_command(request.target, "--unverified", "allow")
    return gate.refuse(request, problems, "Fix this, or launch anyway:", rerun, _command(request, "doctor"))


def _command(request: Request, *words: str) -> str:
    """Return mgpu's command for the same hosts."""
    python = ("--python", request.python) if request.python else ()
    return from_words(("mgpu", *words, "--hosts", request.hosts, *python)) or f"mgpu {words[0]} --hosts ..."


def _test_command(request: Request) -> str:
    return _command(request, "smoke-test", *(("-c", request.config) if request.config else ()))


def _tested(hosts: Sequence[Host], wanted: Wanted) -> verified_hosts.Tested | None:
    path, known = Path(wanted.config.path), [host.identity for host in hosts]
    return verified_hosts.find(path, wanted.config.sha256, known, sys.executable)


def _show(
    request: Request,
    hosts: Sequence[Host],
    wanted: Wanted,
    orders: Mapping[str, Any],
    problems: Sequence[engine.Outcome],
) -> int:
    """Show what would run, and what would stop it; return the exit code of a launch that would be refused, else 0."""
    planned = run_folder.plan_folder(request.log_dir, run_folder.LAUNCH)
    _summary(request, hosts, wanted, orders, planned, sys.stdout)
    policy = gate.policy(request)
    untested = policy == "refuse" and _tested(hosts, wanted) is None
    if request.print_command or policy == "allow" or not (problems or untested):
        return errors.READY
    screen = report_screen.Screen.of(sys.stdout)
    why = "because of the problems above" if problems else "because these hosts were not tested with this config:"
    lines = gate.problem_lines(request, problems, _command(request, "doctor"), screen) if problems else []
    test: list[report_screen.Line] = [] if problems else [[(f"  {_test_command(request)}", "")]]
    screen.show([*lines, [], *report_screen.headed("WOULD NOT START", "fail", why, screen), *test])
    return errors.LAUNCH_REFUSED


def _require_test(request: Request, hosts: Sequence[Host], wanted: Wanted) -> int | None:
    """Return the exit code of a refusal if these hosts were not tested with this config; None if they were."""
    path = Path(wanted.config.path)
    if request.smoke != "always" and _tested(hosts, wanted):
        return None
    test = _test_command(request)
    if request.smoke == "always" or (gate.policy(request) == "ask" and _confirm_test()):
        from mgpu.fleet import preflight

        code = preflight.run(
            SmokeRequest(config=request.config, hosts=request.hosts, python=request.python, output=os.devnull)
        )
        if code == errors.READY:
            return None
        raise MgpuError(f"not started: the smoke test did not pass. See it:  {test}", errors.LAUNCH_REFUSED)
    anyway = result_document.rerun_command(request.target, "--unverified", "allow")
    raise MgpuError(
        f"not started: {path} was not tested on these hosts. Test them first:\n  {test}\nor launch anyway:\n  {anyway}",
        errors.LAUNCH_REFUSED,
    )


def _confirm_test() -> bool:
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question

    question = Question(
        "hosts_untested",
        "These hosts were not tested with this config. Run the smoke test first?",
        "It takes about a minute and shows whether their ranks can train together.",
        default="test",
        choices=(Choice("test", "Yes, then launch"), Choice("stop", "Stop")),
        saves=False,
    )
    return prompts.ask(question) == "test"


def _start(request: Request, hosts: Sequence[Host], wanted: Wanted, orders: dict[str, Any]) -> int:
    command = Command(
        (*interpreter.text(sys.executable, _BOOT), _ROOT),
        run_id=uuid.uuid4().hex,
        launcher="command",
        ranks=0,
        script=request.target[0],
        arguments=tuple(request.target[1:]),
        stop_s=STOPS_WITHIN_S,
    )
    planned = run_folder.plan_folder(request.log_dir, run_folder.LAUNCH)
    if request.detach or request.watch:
        run_entry.can_keep()
    _summary(request, hosts, wanted, orders, planned, sys.stderr)
    outlived = request.detach or request.watch
    with run_folder.claim_folder(planned, run_folder.LAUNCH, named=bool(request.log_dir), outlived=outlived) as folder:
        where = str(folder.absolute())
        orders["common"]["logs"] = where
        shared = folder / hosts_run.RESULTS
        shared.mkdir(mode=0o700, exist_ok=True)
        files.write(folder / hosts_run.ORDERS, hosts_run.orders_text(orders), mode=0o600)
        whole = Command(**{**vars(command), "argv": (*command.argv, where)})
        snapshot = Snapshot(config=wanted.config)

        def amend(document: Any) -> None:
            hosts_verdict.amend(folder, document, orders["hosts"])

        names_of, world, stops = names(hosts), wanted.ranks_per_node * len(hosts), request.on_hang == "stop"
        hangs = HostsHangs(folder, shared, names_of, world=world, after_s=request.hang_after_s, stops=stops)
        if outlived:
            return detached.start(request, whole, folder, snapshot, hangs, hangs.with_records, amend)
        return hand_off.hand_off(
            request, whole, folder, snapshot, hangs=hangs, recorded=hangs.with_records, amend=amend
        )


def _orders(
    request: Request, hosts: Sequence[Host], wanted: Wanted, fleet: Fleet, examination: Examination
) -> dict[str, Any]:
    """Return what every host gets: its place in the run, and the address of the first host."""
    nodes = names(hosts)
    routes = route.of_all(fleet, nodes)
    first = routes.get(nodes[0])
    busy = examination.busy.get(nodes[0], ())
    port = int(request.port) if request.port.isdecimal() else _free_port(busy)
    text, own = derived_config.of_nodes(wanted.config, wanted.ranks_on, nodes, port, first.address if first else "")
    return {
        "hosts": [asdict(host) for host in hosts],
        "folder": os.getcwd(),
        "pass_env": list(request.pass_env),
        "interfaces": {node: way.interface for node, way in routes.items()},
        "common": {
            "name": Path(wanted.config.path).name,
            "options": _options(request),
            "target": list(request.target),
        },
        "parts": {node: {"node": number, "config": own.get(node, text)} for number, node in enumerate(nodes)},
    }


def _free_port(busy: Sequence[int]) -> int:
    return next(port for port in stages.some_ports(hosts_doctor.FIRST_PORT) if port not in busy)


def _options(request: Request) -> list[str]:
    """Return the options of launch that every host needs."""
    given: Mapping[str, str] = {
        "--hang-after": f"{request.hang_after_s:g}",
        "--on-hang": "report",  # what all hosts find is joined here
        "--launcher": request.launcher,
        **({"--nan-check": str(request.nan_check)} if request.nan_check else {}),
    }
    flags = ["--no-recorder"] if not request.recorder else []
    return [*(word for pair in given.items() for word in pair), *flags, *(["-m"] if request.module else [])]


def _summary(
    request: Request, hosts: Sequence[Host], wanted: Wanted, orders: Mapping[str, Any], folder: Path, stream: Any
) -> None:
    """Show what will run, and where."""
    screen = report_screen.Screen.of(stream)
    tested = _tested(hosts, wanted)
    known = f"tested on these hosts {tested.time[:16].replace('T', ' ')} UTC" if tested else "NOT tested on these hosts"
    rows = [
        ("Config", f"{wanted.name}   {known}"),
        ("Hosts", ", ".join(f"{host.name} (node {number})" for number, host in enumerate(hosts))),
        ("Ranks", _ranks_text(hosts, wanted)),
        ("Python", ", ".join(f"{host.python} on {host.name}" for host in hosts if host.python)),
        ("Network", ", ".join(sorted(set(orders["interfaces"].values()))) or "the ranks' own choice"),
        ("Passed", ", ".join(orders["pass_env"])),
        ("Warnings", _warnings_text(request, orders["warnings"])),
        ("Logs", f"{folder}/"),
    ]
    lines: list[report_screen.Line] = []
    for label, text in rows:
        if text:
            lines += report_screen.columned([(f"{label:<{_LABEL}}", "bold")], text, screen)
    screen.show(lines)


def _warnings_text(request: Request, warnings: Sequence[str]) -> str:
    return f"{', '.join(warnings)}   (details: {_command(request, 'doctor')})" if warnings else ""


def _ranks_text(hosts: Sequence[Host], wanted: Wanted) -> str:
    numbers = [wanted.ranks_on(host.name) for host in hosts]
    each = f"{numbers[0]} on each host"
    if len(set(numbers)) > 1:
        each = ", ".join(f"{number} on {host.name}" for number, host in zip(numbers, hosts, strict=True))
    return f"{counted(sum(numbers), 'rank')}, {each}{' (CPU)' if wanted.cpu else ''}"
