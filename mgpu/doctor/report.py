"""How is an examined machine reported, in the requested format?"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mgpu import engine, messages
from mgpu.check import Skip
from mgpu.command_line import from_words
from mgpu.doctor.request import Request
from mgpu.engine import verdict as verdicts
from mgpu.engine.verdict import Verdict
from mgpu.report import demo, describe, document, findings, output
from mgpu.report.output import append_summary, to_stderr, write_text
from mgpu.report.screen import WIDTH_PLAIN, Line, Screen, unstyled, wrapped
from mgpu.scheduler.cluster_files import has_cluster
from mgpu.snapshot import Snapshot
from mgpu.text import counted
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.doctor.doctor_json import DoctorDocument
    from mgpu.doctor.result import Examined


_LONGEST_NAMES = 120  # of files in a command that is shown
_LONGEST_LABEL = 36  # of a change; after a longer one the text follows without a column


def show_fixed(before: Examined, after: Examined) -> None:
    """Show the problems that are left after repairs. The exit code reflects them."""
    if not any(result.done for result in after.repairs):
        return
    screen = Screen.of()
    fixed = sorted(_problems(before) - _problems(after))
    lines = unstyled(wrapped(f"Fixed: {', '.join(fixed)}", screen.width) if fixed else [])
    screen.show([[], *lines, *findings.summary(after.outcomes, after.verdict, after.snapshot, None, screen)])


def _problems(found: Examined) -> set[str]:
    return {outcome.check.id for outcome in found.outcomes if outcome.problem}


def write(request: Request, found: Examined) -> None:
    """Write the report in the requested format."""
    if request.format == "human" and request.exit_style != "default":
        _write_for_scheduler(request, found)
    elif request.format == "human":
        output.write_out(request.output, lambda stream: show(Screen.of(stream), request, found))
    else:
        text = _text(request, found)
        output.write_out(request.output, lambda stream: write_text(stream, text))


def _text(request: Request, found: Examined) -> str:
    """The report in a format for programs."""
    from mgpu.report import formats

    if request.format == "json":
        return document.text(json_document(request, found))
    if request.format == "sarif":
        from mgpu.report import sarif

        return sarif.text(found.outcomes, found.code)
    if request.format == "html":
        from mgpu.doctor import case_report
        from mgpu.report.page import html_page

        return html_page.text(case_report.case_of(found))
    report = formats.doctor_report(found.outcomes, found.snapshot, found.verdict, found.seconds)
    if request.demo:
        report = replace(report, text=f"DEMO {request.demo}, not your machine. {report.text}")
    if request.format == "github":
        append_summary(formats.markdown_table(found.outcomes, found.snapshot, report))
    changes = [f"{c.what}: {c.text}" for c in found.changes or ()]
    return formats.text(
        request.format, found, report, lambda: plain_text(replace(request, verbose=True), found), changes, _cause(found)
    )


def _cause(found: Examined) -> str:
    """Return the ID of the check that found the root cause in a log; "" if there is no log, or no cause."""
    if found.snapshot.log is None:
        return ""
    from mgpu.engine import root_cause

    first = root_cause.choose(found.outcomes, found.snapshot.log, None).first
    return first.id if first else ""


def plain_text(request: Request, found: Examined) -> str:
    """The report for a person as plain text."""
    buffer = io.StringIO()
    show(Screen(WIDTH_PLAIN, False, False, buffer), request, found)
    return buffer.getvalue()


def json_document(request: Request, found: Examined) -> DoctorDocument:
    """The JSON document."""
    content: DoctorDocument
    content = document.envelope("doctor", found.outcomes, found.verdict, found.code, found.seconds, found.snapshot)
    content["next"] = _next(request, found)
    if request.demo:
        content["demo"] = request.demo
    for entry, outcome in zip(content["checks"], found.outcomes, strict=True):
        entry["verify"] = entry["verify"].replace("mgpu doctor", _again(request, outcome), 1)
    if found.snapshot.fleet:
        from mgpu.fleet import report as fleet_report

        content["fleet"] = fleet_report.document(found.snapshot.fleet, found.outcomes)
    if request.log:
        from mgpu.engine import root_cause
        from mgpu.report import failure, log_report

        log = found.snapshot.log
        triage: Any = failure.triage_document(root_cause.choose(found.outcomes, log, None), log, None)
        content.update(triage)
        content["ending"] = log_report.ending_entry(log, found.outcomes)
        content["foreseen"] = list(map(document.check_json, found.foreseen))
    elif found.snapshot.timeline is not None:
        from mgpu.doctor import case_report

        content.update(case_report.triage(found))
    if found.changes is not None:
        content["changes"] = [
            {"fact": c.fact, "what": c.what, "kind": c.kind, "before": c.before, "after": c.after, "text": c.text}
            for c in found.changes
        ]
    if request.fix:
        content["repairs"] = [
            {"id": r.repair.id, "title": r.repair.title, "command": r.repair.command, "done": r.done, "text": r.text}
            for r in found.repairs
        ]
    return content


def _write_for_scheduler(request: Request, found: Examined) -> None:
    from mgpu.report import formats

    if request.exit_style == "prolog":
        text = formats.prolog(found.outcomes)
        if not text and verdicts.unsure(found.snapshot, found.verdict):
            to_stderr("mgpu: unknown; a node is drained only for a proven fault")
    else:
        text = formats.nagios(found.outcomes, found.snapshot, found.verdict, found.seconds, strict=request.strict)
    if text:
        output.write_out(request.output, lambda stream: write_text(stream, text))


def failed(request: Request, message: str, code: int, began: float) -> int:
    """Report that nothing could be judged (in JSON a document, for a monitor a line) and return the exit code."""
    if request.format == "json":
        code = verdicts.code_without_verdict(request.exit_style, code)
        head = document.envelope("doctor", (), "unknown", code, time.monotonic() - began, Snapshot())
        text = document.text({**head, "error": message, "next": ["mgpu doctor"]})
        output.write_out(request.output, lambda stream: write_text(stream, text))
    elif request.exit_style == "nagios":
        line = f"MGPU UNKNOWN - {' '.join(messages.message(message).split())}\n"
        output.write_out(request.output, lambda stream: write_text(stream, line))
        return verdicts.code_without_verdict(request.exit_style, code)
    to_stderr(f"mgpu: {message}")
    return verdicts.code_without_verdict(request.exit_style, code)


def show(screen: Screen, request: Request, found: Examined) -> None:
    """Show the report for a person."""
    snapshot, outcomes, verdict = found.snapshot, found.outcomes, found.verdict
    command = "mgpu doctor" + _same(request)
    if snapshot.timeline is not None:
        from mgpu.doctor import case_report

        screen.show(case_report.lines(found, screen))
        outcomes, verdict = case_report.of_machine(found)
    if request.log:
        from mgpu.report import log_report

        in_script = list(map(document.check_json, found.foreseen))
        screen.show(log_report.report_of_logs(snapshot, outcomes, screen, in_script=in_script, verbose=request.verbose))
        outcomes = tuple(outcome for outcome in outcomes if outcome.check.area != "log")
    if request.of_files:
        for of_file in _of_files(request, snapshot, outcomes, screen, command):
            screen.show(of_file)
        return
    lines = demo.banner(request.demo, screen) if request.demo else []
    head = f"mgpu doctor {snapshot.mgpu or __version__} on {describe.where(snapshot)}"
    lines += screen.paragraph(head, style="bold")
    if snapshot.python:
        how = f" ({snapshot.python.chosen})" if snapshot.python.chosen else ""
        lines += screen.paragraph(f"Python {snapshot.python.version}, {snapshot.python.executable}{how}")
    lines.append([])
    if request.verbose and (topology := findings.topology(snapshot, screen)):
        lines += [*topology[1:], []]  # without the empty line at its start
    lines += findings.rows(outcomes, describe.rows(snapshot), screen, verbose=request.verbose)
    lines += findings.problems(outcomes, screen, command=command, show_all=request.verbose, verbose=request.verbose)
    lines += findings.waived(outcomes, screen)
    if found.changes is not None:
        lines += [[], *_changes(found, screen)]
    took = None if request.away else found.seconds
    lines += [[], *findings.summary(outcomes, verdict, snapshot, took, screen)]
    if request.only or request.skip:
        lines.append([("Covers only the selected checks.", "")])
    lines += _advice(request, verdict, outcomes, snapshot, screen)
    screen.show([*lines, *unstyled(["On your machine:  mgpu doctor"] if request.demo else [])])


def _of_files(
    request: Request, snapshot: Snapshot, outcomes: Sequence[engine.Outcome], screen: Screen, command: str
) -> Iterator[list[Line]]:
    """Yield the report of each kind of file that was read."""
    before: list[Line] = [[]] if request.log else []
    if snapshot.fleet:
        from mgpu.fleet import report as fleet_report

        yield fleet_report.lines(snapshot.fleet, outcomes, screen, command, verbose=request.verbose)
    if snapshot.job_script:
        from mgpu.doctor import job_report

        job = snapshot.job_script
        yield before + job_report.lines(job, snapshot.config, outcomes, screen, command, verbose=request.verbose)
    if snapshot.script:
        from mgpu.doctor import script_report

        script = snapshot.script
        yield before + script_report.lines(script, snapshot.config, outcomes, screen, command, verbose=request.verbose)


def _same(request: Request) -> str:
    """The options with which another command examines the same machine, interpreter and plan."""
    given = (
        ("--from", request.from_),
        ("--demo", request.demo),
        ("--script", request.script),
        ("--python", request.python),
        ("-c", request.config),
        ("--hosts", request.hosts),
    )
    nodes = f" --compare-nodes {from_words(request.compare_nodes) or '...'}" if request.compare_nodes else ""
    if len(nodes) > _LONGEST_NAMES:  # the shell expanded nodes/*.json; too long to paste
        nodes = " --compare-nodes ..."
    return "".join(f" {option} {_word(value)}" for option, value in given if value) + nodes + _plan(request)


def _word(value: str) -> str:
    """A word of a command; one that cannot be printed on one line becomes a gap that no shell runs."""
    return from_words([value]) or "..."


def _machine(request: Request) -> str:
    """The option of `configure` for the same machine."""
    named = (("--from", request.from_), ("--demo", request.demo))
    return "".join(f" {option} {_word(value)}" for option, value in named if value)


def _plan(request: Request) -> str:
    """The options that describe the planned run: numbers only, so a redacted report may show them."""
    free = None if request.expect_free_gib is None else f"{request.expect_free_gib:g}"
    given = (("--nodes", request.nodes), ("--expect-gpus", request.expect_gpus), ("--expect-free", free))
    return "".join(f" {option} {value}" for option, value in given if value is not None)


def _changes(found: Examined, screen: Screen) -> list[Line]:
    """`Since 12 Nov: …`, one line for each change."""
    if not found.changes:
        return screen.paragraph(f"Since {found.since}: nothing changed.")
    number = len(found.changes)
    lines: list[Line] = [[(f"Since {found.since}: {counted(number, 'change')}", "bold")]]
    column = max(len(change.what) for change in found.changes)
    column = column if column <= _LONGEST_LABEL else _LONGEST_LABEL // 2
    for change in found.changes:
        label = f"  {change.what:<{column}}  "
        if len(change.what) > column or screen.width < 60:
            lines += screen.paragraph(f"{change.what}  {change.text}", "  ", "    ")
        else:
            lines += screen.paragraph(change.text, label, " " * len(label))
    return lines


def _again(request: Request, outcome: engine.Outcome) -> str:
    """The command that runs a check again."""
    if (request.compare_nodes or request.hosts) and not request.hides:
        return f"mgpu doctor{_same(request)}"
    asks_script = request.script and not request.hides and {"script", "job_script"} & set(outcome.check.facts)
    of_script = f" --script {_word(request.script)}" if asks_script else ""
    return f"mgpu doctor{of_script}{_plan(request)}"


def _next(request: Request, found: Examined) -> list[str]:
    """The next commands."""
    if found.snapshot.fleet:
        return [] if request.hides else [f"mgpu doctor{_same(request)} -v"]
    if found.snapshot.job_script is not None:
        from mgpu.doctor import job_report

        failed = found.verdict == "not_ready"
        return [] if request.hides else job_report.next_steps(found.snapshot.job_script, failed=failed)
    if found.snapshot.script is not None:
        from mgpu.doctor import script_report

        return (
            []
            if request.hides
            else script_report.next_steps(found.snapshot.script, found.snapshot.config, found.outcomes)
        )
    if request.demo:
        return ["mgpu configure" + _machine(request), "mgpu doctor"]
    if found.verdict in ("ready", "ready_with_warnings"):
        return ["mgpu configure", "mgpu smoke-test"]
    return ["mgpu smoke-test --cpu 2"] if found.verdict == "no_gpu" else ["mgpu doctor -v"]


def _advice(
    request: Request, verdict: Verdict, outcomes: Sequence[engine.Outcome], snapshot: Snapshot, screen: Screen
) -> list[Line]:
    """The next steps for this verdict."""
    if request.demo and verdict in ("ready", "ready_with_warnings", "no_gpu"):
        return unstyled(["Next:  mgpu configure" + _machine(request)])
    if snapshot.timeline is not None and verdict == "no_gpu":  # the case of a run that has been elsewhere
        return []
    if verdict == "no_gpu":
        lines = wrapped("You can still prepare a run. On this machine:", screen.width)
        pairs = [
            ("mgpu configure --yes", "write a config for two CPU ranks"),
            ("mgpu smoke-test --cpu 2", "test a launch on the CPU"),
        ]
        slurm = snapshot.slurm
        if slurm and slurm.commands_found and slurm.job_id is None and (request.away or has_cluster()):
            pairs.append(("srun --gres=gpu:1 mgpu doctor", "check a GPU node of this cluster"))
            pairs.append(("mgpu configure --slurm", "write a config and job for it"))
        pairs.append(("mgpu doctor --save FILE", "on the GPU machine, then here:"))
        pairs.append(("mgpu doctor --from FILE", "check that machine from this one"))
        for command, what in pairs:
            together = f"  {command:<32}{what}"
            lines += [together] if len(together) <= screen.width else [f"  {command}", f"      {what}"]
        return unstyled(lines)
    suffix = _machine(request)
    if verdict in ("ready", "ready_with_warnings"):
        lines = [f"Next:  mgpu configure{suffix}     then  mgpu smoke-test"]
        if len(lines[0]) > screen.width:
            lines = [f"Next:  mgpu configure{suffix}", "then   mgpu smoke-test"]
        if len(snapshot.gpus or ()) > 1:
            lines = [*wrapped("Not tested yet: communication between the GPUs.", screen.width), *lines]
        return unstyled(lines)
    unknown = _unknown(outcomes, screen)
    problems = findings.in_order(outcomes)
    if verdict == "unknown" and not problems:
        return unstyled([*unknown, *wrapped("Run it again, or list every check with -v.", screen.width)])
    first = problems[0].check.id
    return [*unstyled([*unknown, f"Start with {first}."]), *findings.explain_command(first, screen)]


def _unknown(outcomes: Sequence[engine.Outcome], screen: Screen) -> list[str]:
    """The reasons for what could not be read, each once."""
    unknown = [o for o in outcomes if o.unsettling]
    why = list(dict.fromkeys(o.answer.reason for o in unknown if isinstance(o.answer, Skip)))
    return [line for text in why[:3] for line in wrapped(text, screen.width, "Unknown: ", "         ")]
