"""Decide whether a run may start: is its config verified on this machine, and if not, who decides?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgpu import engine, errors, probes
from mgpu.check import Skip
from mgpu.command_line import from_words
from mgpu.engine import before_start, selections, verdict
from mgpu.launch import complete_commands, result_document
from mgpu.launch.request import Request
from mgpu.report import findings
from mgpu.report import screen as report_screen
from mgpu.report.document import check_json
from mgpu.snapshot import Config, Snapshot


def verification(snapshot: Snapshot) -> list[engine.Outcome]:
    """Return why this config does not count as verified; empty if it does. Unknown counts as not verified."""
    return verdict.unverified(engine.judge(snapshot, selections.VERIFIED))


def cannot_see_gpus(snapshot: Snapshot) -> list[engine.Outcome]:
    """Return problems that hide the GPUs from torch, checked if the run is unverified but allowed.

    Ranks that see no GPU would each train alone on the CPU.
    """
    assert snapshot.driver is not None
    return before_start.refusals(probes.add_torch_facts(snapshot)) if snapshot.driver.any_gpu else []


def policy(request: Request) -> str:
    """Return the policy for an unverified run: ask, allow or refuse. Without a terminal, ask means refuse."""
    can_ask = report_screen.can_ask() and not request.yes
    wish = request.unverified or "ask"
    return "refuse" if wish == "ask" and not can_ask else wish


def ask_user(verified: Sequence[engine.Outcome], *, smoke: bool) -> str:
    """Ask what to do: "test" (run the smoke test, then launch; only if `smoke`), "launch" or "stop"."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question

    screen = report_screen.Screen.of(sys.stderr)
    head, *more = differences(verified)
    rows = [row for line in more for row in screen.paragraph(line, "  ", "    ")]
    screen.show([*report_screen.columned([("Not verified: ", "warn")], head, screen), *rows])
    test = (Choice("test", "Yes, then launch"),) if smoke else ()
    question = Question(
        "unverified",
        "Run the smoke test first?" if smoke else "Launch anyway?",
        "The smoke test takes seconds and shows whether the ranks can train together.",
        default="test" if smoke else "stop",
        choices=(*test, Choice("launch", "Launch anyway"), Choice("stop", "Stop")),
        saves=False,
    )
    answer = prompts.ask(question)
    return answer if isinstance(answer, str) else "stop"


def why_unverified(verified: Sequence[engine.Outcome]) -> str:
    """Return in one line why a config does not count as verified."""
    first = next((o for o in verified if o.problem), None)
    if first is not None and first.problem is not None:
        return first.problem.cause if first.problem.evidence else first.problem.title
    answer = verified[0].answer
    return f"could not determine: {answer.reason}" if isinstance(answer, Skip) else "a check crashed"


def differences(verified: Sequence[engine.Outcome]) -> list[str]:
    """Return why a config is not verified as lines: the reason, then each difference (old -> new) in columns."""
    changed = next((o.problem for o in verified if o.problem and o.problem.evidence), None)  # name: old -> new
    if changed is None:
        return [why_unverified(verified)]
    width = max(map(len, changed.evidence))
    return ["changed since the test", *(f"{name:<{width}}  {change}" for name, change in changed.evidence.items())]


def command_to_verify(config: Config, gpus: str) -> str:
    """Return the command that verifies the config, or that tests the selected GPUs only."""
    flags = ["--config", config.path] if config.path != "accelerate.yaml" else []
    return from_words(["mgpu", "smoke-test", *flags, *(["--gpus", gpus] if gpus else [])])


def refuse_unverified(request: Request, config: Config, verified: Sequence[engine.Outcome], remark: str = "") -> int:
    """Refuse an unverified run: there is no terminal to ask at, or --unverified refuse. `remark`: about the config."""
    screen = report_screen.Screen.of(sys.stderr)
    head, *more = differences(verified)
    command = command_to_verify(config, request.gpus)
    anyway = result_document.rerun_command(request.target, "--unverified", "allow")
    again = f"\n  {command}\nor launch anyway:\n  {anyway}"
    stamps = " (this tests the selected GPUs and records nothing)" if request.gpus else ""
    lines: list[report_screen.Line] = [
        *report_screen.columned([(f"{'Config':<11}", "bold")], f"{config.path}   NOT verified: {head}", screen),
        *(row for line in (*more, *filter(None, [remark])) for row in screen.paragraph(line, " " * 13, " " * 15)),
        [],
        *report_screen.headed("NOT STARTED", "fail", f"Verify it first{stamps}:", screen),
        *report_screen.unstyled(line for line in again.splitlines() if line),
    ]
    screen.show(lines)
    record(request, verified)
    return errors.LAUNCH_REFUSED


def refuse(
    request: Request, problems: Sequence[engine.Outcome], text: str, command: str, doctor: str = "mgpu doctor"
) -> int:
    """Show the problems that stop the run, with their fixes and what to do: `text`, then `command` on its own line.

    `doctor`: the command that examines the same.
    """
    screen = report_screen.Screen.of(sys.stderr)
    end = report_screen.headed("NOT STARTED", "fail", text, screen)
    screen.show([*problem_lines(request, problems, doctor, screen), [], *end, [(f"  {command}", "")]])
    record(request, problems)
    return errors.LAUNCH_REFUSED


def problem_lines(
    request: Request, problems: Sequence[engine.Outcome], doctor: str, screen: report_screen.Screen
) -> list[report_screen.Line]:
    """Return the problems that stop the run, each with the command that checks exactly this one again."""
    check = ""
    if request.gpus or request.port.isdecimal() or request.foreign:  # the doctor has no such options
        words = () if request.dry_run else ("--dry-run",)
        check = result_document.rerun_command(request.target, *words)
    found = complete_commands.completed(problems, request)
    lines = findings.problems(found, screen, command=doctor, show_all=False, check=check)
    return lines or [[(f"Unknown: {why_unverified(problems)}", "")]]


def record(request: Request, problems: Sequence[engine.Outcome]) -> None:
    """Write the refusal to the `--json-result` file."""
    if request.json_result:
        content = {"phase": "preflight", "exit_code": errors.LAUNCH_REFUSED, "checks": list(map(check_json, problems))}
        result_document.write(request, content)
