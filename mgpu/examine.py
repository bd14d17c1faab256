"""What does `mgpu doctor` do with its options: which facts, which checks, which report, which exit code?"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO

from mgpu import __version__, describe, engine, errors, files, probes, report
from mgpu.check import Check, Skip
from mgpu.errors import MgpuError, reason
from mgpu.snapshot import BadSnapshot, Plan, Snapshot, loads, to_json

_FORMATS = ("human", "json")


@dataclass(frozen=True)
class Request:
    """The doctor's options."""

    quick: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    expect_gpus: int | None = None
    expect_free_gib: float | None = None
    nodes: int = 1
    strict: bool = False
    format: str = "human"
    output: str = "-"
    save: str = ""
    from_: str = ""
    config: str = ""
    timeout_s: float = 0
    verbose: bool = False
    started: list[probes.Child] | None = None  # the probes' children, on their way already
    began: float | None = None  # when (monotonic), for the time the verdict tells

    @property
    def plan(self) -> Plan:
        """What the options say about the run to come."""
        free = None if self.expect_free_gib is None else int(self.expect_free_gib * 1024**3)
        return Plan(self.nodes, self.expect_gpus, free)


def run(request: Request) -> int:
    """Gather, judge, report; gives the exit code."""
    started = request.began or time.monotonic()
    if request.format not in _FORMATS:
        raise MgpuError(f"--format {request.format}: choose human or json", errors.USAGE)
    with deadline(request.timeout_s):
        chosen = engine.choose(engine.load(), request.only, request.skip)
        snapshot = _snapshot(request)
    chosen = _about_the_machine(chosen, snapshot)
    outcomes = engine.run(chosen, snapshot)
    verdict = report.verdict_of(outcomes, snapshot)
    code = report.exit_code(verdict, strict=request.strict)
    seconds = time.monotonic() - started
    if request.save:
        from mgpu.redaction import redacted

        text = json.dumps(to_json(redacted(snapshot)), indent=1, ensure_ascii=False) + "\n"
        files.write(Path(request.save), text)
    if request.format == "json":
        document = report.envelope("doctor", outcomes, verdict, code, seconds, snapshot)
        document["next"] = list(_next(verdict))
        text = json.dumps(document, indent=2, ensure_ascii=False)
        write_out(request.output, lambda stream: print(text, file=stream))
    else:
        write_out(request.output, lambda stream: _screen(stream, request, snapshot, outcomes, verdict, seconds))
    if not request.from_ and not request.only and not request.skip:
        from mgpu import journey

        journey.remember_verdict(verdict, snapshot)
    return code


def _snapshot(request: Request) -> Snapshot:
    if request.from_:
        snapshot = read_snapshot(Path(request.from_))
        if request.expect_gpus is not None or request.expect_free_gib is not None or request.nodes != 1:
            snapshot = replace(snapshot, plan=request.plan)
    else:
        wanted = probes.QUICK if request.quick else probes.DEFAULT
        with progress() as show:
            snapshot = probes.gather(wanted, plan=request.plan, progress=show, started=request.started)
    if request.config:
        from mgpu.config import facts

        config = facts(Path(request.config), ask_loader=not request.quick)
        snapshot = replace(snapshot, config=config, plan=replace(request.plan, nodes=config.num_machines))
    return snapshot


def read_snapshot(path: Path) -> Snapshot:
    """A machine saved by `mgpu doctor --save`. Raises MgpuError (usage) when it cannot be read."""
    try:
        return loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MgpuError(f"cannot read {path}: {reason(error)}", errors.USAGE) from None
    except BadSnapshot as error:
        raise MgpuError(f"{path} is not a machine saved by mgpu doctor --save: {error}", errors.USAGE) from None


def _about_the_machine(checks: Sequence[Check], snapshot: Snapshot) -> tuple[Check, ...]:
    """The doctor asks about the machine: checks on a config, a smoke test or a stamp only where that fact is given."""
    others = {"config", "ranks", "stamp"}
    return tuple(c for c in checks if not any(getattr(snapshot, fact) is None for fact in others & set(c.facts)))


def list_checks(request: Request) -> int:
    """`--list-checks`, also as JSON."""
    checks = engine.choose(engine.load(), request.only, request.skip)
    if request.format == "json":
        rows = [
            {"id": c.id, "area": c.area, "severity": c.severity.value, "summary": c.summary, "source": c.source}
            for c in checks
        ]
        print(json.dumps({"schema": "mgpu.checks/1.0", "mgpu": __version__, "checks": rows}, indent=2))
    else:
        screen = report.Screen.of()
        screen.show(report.listing(checks, screen))
    return errors.READY


def explain(name: str) -> int:
    """`--explain ID`, offline."""
    checks = {c.id: c for c in engine.load()}
    wanted = name.strip().replace("-", "_")
    if wanted not in checks:
        raise MgpuError(engine.unknown_id(wanted, checks), errors.USAGE)
    screen = report.Screen.of()
    screen.show(report.explain(checks[wanted], screen))
    return errors.READY


def _screen(
    stream: IO[str],
    request: Request,
    snapshot: Snapshot,
    outcomes: Sequence[engine.Outcome],
    verdict: report.Verdict,
    seconds: float,
) -> None:
    screen = report.Screen.of(stream)
    command = "mgpu doctor" + (f" --from {request.from_}" if request.from_ else "")
    head = f"mgpu doctor {snapshot.mgpu or __version__} on {describe.where(snapshot)}"
    lines: list[report.Line] = [[(line, "bold")] for line in report.wrapped(head, screen.width)]
    lines.append([])
    lines += report.rows(outcomes, describe.rows(snapshot), screen, verbose=request.verbose)
    if request.verbose:
        lines += report.topology(snapshot, screen)
        if snapshot.python:
            text = f"Interpreter examined: {snapshot.python.executable}"
            lines += report.unstyled(report.wrapped(text, screen.width, "  ", "    "))
    lines += report.problems(outcomes, screen, command=command, show_all=request.verbose)
    took = None if request.from_ else seconds
    lines += [[], *report.summary(outcomes, verdict, snapshot, took, screen)]
    if request.only or request.skip:
        lines.append([("This is about the chosen checks only.", "")])
    lines += _advice(request, verdict, outcomes, snapshot, screen)
    screen.show(lines)


def _next(verdict: report.Verdict) -> tuple[str, ...]:
    if verdict in ("ready", "ready_with_warnings"):
        return ("mgpu configure", "mgpu smoke-test")
    return ("mgpu smoke-test --cpu 2",) if verdict == "no_gpu" else ("mgpu doctor -v",)


def _advice(
    request: Request,
    verdict: report.Verdict,
    outcomes: Sequence[engine.Outcome],
    snapshot: Snapshot,
    screen: report.Screen,
) -> list[report.Line]:
    """What to do next, by the verdict."""
    if verdict == "no_gpu":
        lines = report.wrapped("That is fine for preparing a run. From this machine you can:", screen.width)
        pairs = [
            ("mgpu configure --yes", "write a config of two CPU ranks"),
            ("mgpu smoke-test --cpu 2", "rehearse your launch on the CPU"),
        ]
        if snapshot.slurm and snapshot.slurm.commands_found and snapshot.slurm.job_id is None:
            pairs.append(("srun --gres=gpu:1 mgpu doctor", "examine a GPU node of this cluster"))
        pairs.append(("mgpu doctor --save FILE", "on the GPU machine; then, here:"))
        pairs.append(("mgpu doctor --from FILE", "the same verdict, anywhere"))
        for command, what in pairs:
            together = f"  {command:<32}{what}"
            lines += [together] if len(together) <= screen.width else [f"  {command}", f"      {what}"]
        return report.unstyled(lines)
    suffix = f" --from {request.from_}" if request.from_ else ""
    if verdict in ("ready", "ready_with_warnings"):
        lines = [f"Next:  mgpu configure{suffix}     then  mgpu smoke-test"]
        if len(lines[0]) > screen.width:
            lines = [f"Next:  mgpu configure{suffix}", "then   mgpu smoke-test"]
        if len(snapshot.gpus or ()) > 1:
            lines = [*report.wrapped("Not tested here: GPUs talking to each other.", screen.width), *lines]
        return report.unstyled(lines)
    said = _not_known(outcomes, screen)
    if verdict == "unknown":
        hint = "A driver that hangs: sudo dmesg | grep -i xid. Otherwise try again; -v shows every check."
        return report.unstyled([*said, *report.wrapped(hint, screen.width)])
    first = report.in_order(outcomes)[0].check.id
    lines = [*said, f"Start with {first}."]
    line = f"Explain any line:  mgpu doctor --explain {first}"
    lines += [line] if len(line) <= screen.width else ["Explain any line:", f"  mgpu doctor --explain {first}"]
    return report.unstyled(lines)


def _not_known(outcomes: Sequence[engine.Outcome], screen: report.Screen) -> list[str]:
    """What timed out or crashed, once each."""
    unknown = [o for o in outcomes if o.unsettling or o.status == "crash"]
    why = list(dict.fromkeys(o.answer.reason for o in unknown if isinstance(o.answer, Skip)))
    return [line for text in why[:3] for line in report.wrapped(text, screen.width, "Not known: ", "           ")]


def write_out(output: str, show: Callable[[IO[str]], None]) -> None:
    """Write a report to stdout, or to a file in one step."""
    if output in ("", "-"):
        if sys.stdout is not None:
            show(sys.stdout)
        return
    buffer = io.StringIO()
    show(buffer)
    files.write(Path(output), buffer.getvalue())


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """A line on a terminal's stderr that says what is still being asked; nothing elsewhere."""
    stream = sys.stderr
    if not report.is_terminal(stream):
        yield None
        return
    started, shown = time.monotonic(), ""

    def show(what: str) -> None:
        nonlocal shown
        if what != shown and time.monotonic() - started > 0.3:  # quick answers need no progress
            shown = what
            stream.write(f"\r\x1b[Klooking at: {what}"[:78])
            stream.flush()

    try:
        yield show
    finally:
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise MgpuError (exit 124) when the block takes longer; 0 means no limit."""
    if not seconds:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise MgpuError(f"stopped: --timeout {seconds:g} s ran out", errors.TIMED_OUT)

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
