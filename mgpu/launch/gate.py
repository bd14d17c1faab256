"""May this run start: is its config verified on this machine as it is now, and who decides when it is not?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgpu import engine, errors, probes
from mgpu.check import Skip
from mgpu.command_line import from_words
from mgpu.engine import before_start, selections, verdict
from mgpu.launch import result_document
from mgpu.launch.request import Request
from mgpu.report import findings
from mgpu.report import screen as report_screen
from mgpu.report.document import check_json
from mgpu.snapshot import Config, Snapshot


def verification(snapshot: Snapshot) -> list[engine.Outcome]:
    """Why this config does not count as verified; empty when it does. Not known is not verified."""
    return verdict.unverified(engine.judge(snapshot, selections.VERIFIED))


def cannot_see_gpus(snapshot: Snapshot) -> list[engine.Outcome]:
    """Unverified and allowed: torch is asked after all, because ranks that see no GPU would train alone on the CPU."""
    assert snapshot.driver is not None
    return before_start.refusals(probes.with_torch(snapshot)) if snapshot.driver.any_gpu else []


def policy(request: Request) -> str:
    """What happens to a run that is not verified: asked when somebody is there, refused when nobody is."""
    can_ask = report_screen.can_ask() and not request.yes
    wish = request.unverified or "ask"
    return "refuse" if wish == "ask" and not can_ask else wish


def ask_what(verified: Sequence[engine.Outcome], *, smoke: bool) -> str:
    """ "test" (the smoke test, then launch), "launch" or "stop"; with `smoke` False no test is offered."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question

    screen = report_screen.Screen.of(sys.stderr)
    head, *more = differences(verified)
    screen.show([[("Not verified: ", "warn"), (head, "")], *report_screen.unstyled(f"  {line}" for line in more)])
    test = (Choice("test", "Yes, then launch"),) if smoke else ()
    question = Question(
        "unverified",
        "Run the smoke test first?" if smoke else "Launch all the same?",
        "The smoke test takes seconds and shows that the ranks can train together.",
        default="test" if smoke else "stop",
        choices=(*test, Choice("launch", "Launch anyway"), Choice("stop", "Stop")),
        saves=False,
    )
    answer = prompts.ask(question)
    return answer if isinstance(answer, str) else "stop"


def why(verified: Sequence[engine.Outcome]) -> str:
    """In one line why a config does not count as verified."""
    first = next((o for o in verified if o.problem), None)
    if first is not None and first.problem is not None:
        return first.problem.cause if first.problem.evidence else first.problem.title
    answer = verified[0].answer
    return f"it cannot be told: {answer.reason}" if isinstance(answer, Skip) else "a check crashed"


def differences(verified: Sequence[engine.Outcome]) -> list[str]:
    """The same in lines: what is wrong, and under it each difference, old -> new, in columns."""
    changed = next((o.problem for o in verified if o.problem and o.problem.evidence), None)  # name: old -> new
    if changed is None:
        return [why(verified)]
    width = max(map(len, changed.evidence))
    return ["changed since the test", *(f"{name:<{width}}  {told}" for name, told in changed.evidence.items())]


def command_to_verify(config: Config, gpus: str) -> str:
    """The command that would verify what is to run, and for a part of its GPUs the one that tries it."""
    flags = ["--config", config.path] if config.path != "accelerate.yaml" else []
    return from_words(["mgpu", "smoke-test", *flags, *(["--gpus", gpus] if gpus else [])])


def refuse_unverified(request: Request, config: Config, verified: Sequence[engine.Outcome]) -> int:
    """Not verified, and nobody can be asked, or --unverified refuse."""
    screen = report_screen.Screen.of(sys.stderr)
    head, *more = differences(verified)
    command = command_to_verify(config, request.gpus)
    again = f"\n  {command}\nor start it as it is:\n  {result_document.again(request.target, '--unverified', 'allow')}"
    stamps = " (which tries these GPUs, and records nothing)" if request.gpus else ""
    lines: list[report_screen.Line] = [
        [(f"{'Config':<11}", "bold"), (f"{config.path}   NOT verified: {head}", "")],
        *report_screen.unstyled(f"{'':<13}{line}" for line in more),
        [],
        [("NOT STARTED", "fail"), (f"  Verify it first{stamps}:", "")],
        *report_screen.unstyled(line for line in again.splitlines() if line),
    ]
    screen.show(lines)
    record(request, verified)
    return errors.LAUNCH_REFUSED


def refuse(request: Request, problems: Sequence[engine.Outcome], text: str) -> int:
    """What would stop the run, with its fix."""
    screen = report_screen.Screen.of(sys.stderr)
    lines = findings.problems(problems, screen, command="mgpu doctor", show_all=False)
    if not lines:
        lines = [[(f"Not known: {why(problems)}", "")]]
    screen.show([*lines, [], [("NOT STARTED", "fail"), (f"  {text}", "")]])
    record(request, problems)
    return errors.LAUNCH_REFUSED


def record(request: Request, problems: Sequence[engine.Outcome]) -> None:
    """The refusal where `--json-result` says."""
    if request.json_result:
        content = {"phase": "preflight", "exit_code": errors.LAUNCH_REFUSED, "checks": list(map(check_json, problems))}
        result_document.write(request, content)
