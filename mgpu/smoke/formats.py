"""How is the result of a smoke test written in the requested format?"""

from __future__ import annotations

import dataclasses
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu import engine
from mgpu.check import Skip
from mgpu.command_line import Command, from_words
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.engine.verdict import SmokeVerdict
from mgpu.report import document, findings, formats, output
from mgpu.report import screen as report_screen
from mgpu.report.screen import WIDTH_PLAIN, Line, Screen, headed
from mgpu.smoke import own_command
from mgpu.smoke import report as smoke_report
from mgpu.smoke.report import Result
from mgpu.smoke.request import Request
from mgpu.smoke.screen import TITLE_WIDTH, TITLES
from mgpu.snapshot import Snapshot
from mgpu.snapshot.gpu_in_use import find_busy_gpus

_REDACTED = ("markdown", "html")  # formats to send to other people


def write_report(result: Result, request: Request, screen: Screen | None, head: Sequence[Line] = ()) -> None:
    """Write the result. `screen` already shows the stages; without it they are written first, under `head`."""
    if request.format == "human":

        def show(target: Screen) -> None:
            target.show([*head, *stage_lines(result, target), *smoke_report.lines(result, request, target)])

        if screen is not None:
            screen.show(smoke_report.lines(result, request, screen))
        else:
            output.write_out(request.output, lambda stream: show(Screen.of(stream)))
        return
    text = text_of(result, request)
    output.write_out(request.output, lambda stream: output.write_text(stream, text))


def text_of(result: Result, request: Request) -> str:
    """Return the report in a format for programs."""
    if request.format == "json":
        return document.text(smoke_report.document(result))
    if request.format == "github":
        output.append_summary(formats.markdown_table(result.outcomes, result.snapshot, _report(result)))
    if request.format in _REDACTED:
        result = _redact_result(result)
    if request.format == "html":
        from mgpu.smoke import page

        return page.text(result)
    return formats.text(request.format, result, _report(result), lambda: _plain_text(result, request))


def _plain_text(result: Result, request: Request) -> str:
    buffer = io.StringIO()
    plain = Screen(WIDTH_PLAIN, False, False, buffer)
    plain.show([*stage_lines(result, plain), *smoke_report.lines(result, request, plain)])
    return buffer.getvalue()


def _redact_result(result: Result) -> Result:
    """Return the result without names of machines and users, for pasting into public issues."""
    from mgpu.snapshot.redaction import redact

    snapshot = redact(result.snapshot)
    return dataclasses.replace(result, snapshot=snapshot, outcomes=engine.judge(snapshot, selections.SMOKE))


def _report(result: Result) -> formats.Report:
    word, _, text = smoke_report.head(result)
    stages = tuple(
        formats.Stage(stage.name, TITLES[stage.name], stage.status, stage.seconds, stage.detail or "")
        for stage in smoke_report.stages(result.ranks)
    )
    return formats.Report(own_command.COMMAND, word, text, stages)


def stage_lines(result: Result, screen: Screen) -> list[Line]:
    """Return a row with the result of each stage."""
    lines: list[Line] = []
    for number, stage in enumerate(smoke_report.stages(result.ranks), 1):
        took = f" ({stage.seconds:.1f}s)" if stage.seconds is not None and stage.status == "ok" else ""
        lines += report_screen.row(
            screen, stage.status, f"{number} {TITLES[stage.name]:<{TITLE_WIDTH}} ", f"{stage.detail or ''}{took}"
        )
    return lines


def report_refusal(
    stopping: Sequence[engine.Outcome], snapshot: Snapshot, request: Request, seconds: float, busy: Sequence[str] = ()
) -> int:
    """Report why the test was not started: problems that would make it fail, or GPUs in use (`busy`).

    Returns the exit code.
    """
    verdict, code = verdicts.of_refusals(stopping, busy=bool(busy))
    if request.format in _REDACTED:
        stopping, snapshot, busy = _redacted(stopping, snapshot, busy)
    if snapshot.config is None or snapshot.config.num_machines == 1:
        request = dataclasses.replace(request, node=None)
    stopping = own_command.completed(stopping, request)
    if busy:
        why = f"{'; '.join(busy)}. Choose other GPUs with --gpus LIST, or add --allow-busy."
    elif verdict == "failed":
        why = "The test would fail. Fix this first:"
    else:
        why = "Could not determine whether the test would work. See"
    command = from_words(["mgpu", "doctor", *(["--config", request.config] if request.config else [])])
    fixes = [fix for outcome in stopping if outcome.problem for fix in outcome.problem.fixes]
    again = (text for fix in fixes for text in fix.commands if text.startswith(own_command.COMMAND))
    command = Command() if busy else next((from_words(shlex.split(text)) for text in again), command)
    if request.format != "human":
        _write_unstarted(_Unstarted(stopping, snapshot, verdict, code, seconds), request, f"{why}  {command}".rstrip())
        return code
    screen = Screen.of()
    unknown = [o.answer.reason for o in stopping if isinstance(o.answer, Skip)]
    of_cpu = snapshot.plan is not None and snapshot.plan.cpu_ranks is not None  # the doctor has no such option
    check = own_command.own_command(request) if of_cpu else ""
    lines = findings.problems(stopping, screen, command="mgpu doctor", show_all=False, check=check)
    lines += [line for text in unknown for line in screen.paragraph(f"Unknown: {text}")]
    lines += [[], *headed("NOT STARTED", "fail", why, screen)]
    if command:  # never wrapped, so it can be pasted
        lines.append([(f"  {command}", "")])
    output.write_out(request.output, lambda stream: Screen.of(stream).show(lines))
    return code


def _redacted(
    stopping: Sequence[engine.Outcome], snapshot: Snapshot, busy: Sequence[str]
) -> tuple[Sequence[engine.Outcome], Snapshot, Sequence[str]]:
    """Return what stops a test without names: the same checks judge the facts again."""
    from mgpu.snapshot.redaction import redact

    snapshot = redact(snapshot)
    checks = {one.check.id: one.check for one in stopping}
    again = engine.judge(snapshot, selections.ALL, tuple(checks.values())) if checks else ()
    found = find_busy_gpus(snapshot.config, snapshot) if busy and snapshot.config else []
    return again, snapshot, found or busy


def report_failure(request: Request, message: str, code: int, seconds: float) -> int:
    """Report that nothing could be tested, on stderr and as a document in formats for programs. Returns `code`."""
    if request.format != "human":
        _write_unstarted(_Unstarted((), Snapshot(), "unknown", code, seconds), request, message)
    output.to_stderr(f"mgpu: {message}")
    return code


def report_interruption(request: Request, code: int, seconds: float) -> int:
    """Report an interruption before the ranks could be judged. Returns `code`."""
    if request.format != "human":
        return report_failure(request, "interrupted", code, seconds)
    output.to_stderr(smoke_report.interruption(seconds, code))
    return code


@dataclass(frozen=True)
class _Unstarted:
    """A smoke test that was not started."""

    outcomes: Sequence[engine.Outcome]
    snapshot: Snapshot
    verdict: SmokeVerdict
    code: int
    seconds: float


def _write_unstarted(found: _Unstarted, request: Request, why: str) -> None:
    if request.format == "json":
        content = smoke_report.unstarted_document(
            found.snapshot, found.outcomes, found.verdict, found.code, found.seconds, why
        )
        text = document.text(content)
    elif request.format == "html":
        from mgpu.smoke import page

        text = page.text_unstarted(found.snapshot, found.outcomes, found.verdict, found.code, why)
    else:
        stages = tuple(formats.Stage(name, TITLES[name], "skip", None, "not started") for name in TITLES)
        text = formats.text(
            request.format, found, formats.Report(own_command.COMMAND, "NOT STARTED", why, stages), lambda: why
        )
    output.write_out(request.output, lambda stream: output.write_text(stream, text))
