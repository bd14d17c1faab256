"""How is a smoke test told, in the format that was asked for?"""

from __future__ import annotations

import dataclasses
import io
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
from mgpu.smoke import report as smoke_report
from mgpu.smoke.report import Result
from mgpu.smoke.request import Request
from mgpu.smoke.screen import TITLES
from mgpu.snapshot import Snapshot

_COMMAND = "mgpu smoke-test"


def tell(result: Result, request: Request, screen: Screen | None, head: Sequence[Line] = ()) -> None:
    """The verdict. `screen`: where a person has followed the run; elsewhere the rungs come first, under `head`."""
    if request.format == "human":

        def show(target: Screen) -> None:
            target.show([*head, *rung_lines(result, target), *smoke_report.lines(result, request, target)])

        if screen is not None:
            screen.show(smoke_report.lines(result, request, screen))
        else:
            output.write_out(request.output, lambda stream: show(Screen.of(stream)))
        return
    text = text_of(result, request)
    output.write_out(request.output, lambda stream: output.whole_text(stream, text))


def text_of(result: Result, request: Request) -> str:
    """The report of a format for programs."""
    if request.format == "json":
        return document.text(smoke_report.document(result))
    if request.format == "github":
        output.append_summary(formats.markdown_table(result.outcomes, result.snapshot, _told(result)))
    if request.format == "markdown":
        result = _redacted(result)
    return formats.text(request.format, result, _told(result), lambda: _plain_text(result, request))


def _plain_text(result: Result, request: Request) -> str:
    buffer = io.StringIO()
    plain = Screen(WIDTH_PLAIN, False, False, buffer)
    plain.show([*rung_lines(result, plain), *smoke_report.lines(result, request, plain)])
    return buffer.getvalue()


def _redacted(result: Result) -> Result:
    """The same, without names of machines and people: what is pasted into an issue is read by everybody."""
    from mgpu.snapshot.redaction import redacted

    snapshot = redacted(result.snapshot)
    return dataclasses.replace(result, snapshot=snapshot, outcomes=engine.judge(snapshot, selections.SMOKE))


def _told(result: Result) -> formats.Report:
    word, _, text = smoke_report.head(result)
    stages = tuple(
        formats.Stage(stage.name, TITLES[stage.name], stage.status, stage.seconds, stage.detail or "")
        for stage in smoke_report.stages(result.ranks)
    )
    return formats.Report(_COMMAND, word, text, stages)


def rung_lines(result: Result, screen: Screen) -> list[Line]:
    """A row for each rung, as it went."""
    lines: list[Line] = []
    for number, stage in enumerate(smoke_report.stages(result.ranks), 1):
        took = f" ({stage.seconds:.1f}s)" if stage.seconds is not None and stage.status == "ok" else ""
        lines += report_screen.row(
            screen, stage.status, f"{number} {TITLES[stage.name]:<18} ", f"{stage.detail or ''}{took}"
        )
    return lines


def refused(
    stopping: Sequence[engine.Outcome], snapshot: Snapshot, request: Request, seconds: float, busy: Sequence[str] = ()
) -> int:
    """Nothing was started: these problems would only show later, and worse; or (`busy`) somebody works on the GPUs."""
    verdict, code = verdicts.of_refusals(stopping, busy=bool(busy))
    if busy:
        why = f"{'; '.join(busy)}. Not loaded without --allow-busy; other GPUs: --gpus LIST."
    elif verdict == "failed":
        why = "This would fail for certain. Mend it first:"
    else:
        why = "Nobody can tell whether this would work. See"
    command = from_words(["mgpu", "doctor", *(["--config", request.config] if request.config else [])])
    command = Command() if busy else command
    if request.format != "human":
        _tell_nothing(_Nothing(stopping, snapshot, verdict, code, seconds), request, f"{why}  {command}".rstrip())
        return code
    screen = Screen.of()
    said = [o.answer.reason for o in stopping if isinstance(o.answer, Skip)]
    lines = findings.problems(stopping, screen, command="mgpu doctor", show_all=False)
    lines += [line for text in said for line in screen.paragraph(f"Not known: {text}")]
    lines += [[], *headed("NOT STARTED", "fail", why, screen)]
    if command:  # never wrapped, so that it pastes
        lines.append([(f"  {command}", "")])
    output.write_out(request.output, lambda stream: Screen.of(stream).show(lines))
    return code


def failed(request: Request, message: str, code: int, seconds: float) -> int:
    """Nothing could be judged. Whoever reads JSON gets a document all the same."""
    if request.format != "human":
        _tell_nothing(_Nothing((), Snapshot(), "unknown", code, seconds), request, message)
    output.to_stderr(f"mgpu: {message}")
    return code


@dataclass(frozen=True)
class _Nothing:
    """A smoke test that was not started."""

    outcomes: Sequence[engine.Outcome]
    snapshot: Snapshot
    verdict: SmokeVerdict
    code: int
    seconds: float


def _tell_nothing(found: _Nothing, request: Request, why: str) -> None:
    if request.format == "json":
        told = smoke_report.nothing(found.snapshot, found.outcomes, found.verdict, found.code, found.seconds, why)
        text = document.text(told)
    else:
        stages = tuple(formats.Stage(name, TITLES[name], "skip", None, "not started") for name in TITLES)
        text = formats.text(request.format, found, formats.Report(_COMMAND, "NOT STARTED", why, stages), lambda: why)
    output.write_out(request.output, lambda stream: output.whole_text(stream, text))
