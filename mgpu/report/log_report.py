"""How does `mgpu doctor --log` report what the logs of a run show: its first failure, or how it ended?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.errors import clip
from mgpu.report import failure, findings
from mgpu.report.screen import Line, Screen, labelled
from mgpu.text import counted, plural

if TYPE_CHECKING:
    from mgpu.engine import Outcome
    from mgpu.report.json_types import CheckEntry, EndingEntry
    from mgpu.snapshot import Log, Snapshot

_SURVIVED_SHOWN, _SURVIVED_CHARS = 3, 200  # errors that the run survived, characters of the line of one


def report_of_logs(
    snapshot: Snapshot,
    outcomes: Sequence[Outcome],
    screen: Screen,
    *,
    in_script: Sequence[CheckEntry] = (),
    verbose: bool = False,
) -> list[Line]:
    """The report of `mgpu doctor --log`: the first failure, and with `verbose` all other findings."""
    from mgpu.engine import root_cause

    log = snapshot.log
    assert log is not None
    chosen = root_cause.choose(outcomes, log, None)
    document = failure.triage_document(chosen, log, None)
    number = len(log.files)
    where = log.files[0] if number == 1 else f"{number} logs"
    rank_count = f", {len(log.ranks)} ranks" if len(log.ranks) > 1 else ""
    head = f"mgpu doctor on {where}: {log.lines:,} {plural(log.lines, 'line')}{rank_count}"
    report: list[Line] = [*screen.paragraph(head, style="bold"), *_last_run(log, screen)]
    signatures = sum(outcome.check.area == "log" for outcome in outcomes)
    if chosen.first is None:
        return [
            *report,
            [],
            *_without_cause(log, signatures, screen),
            *failure.source_rows(in_script, "In the script", screen),
        ]
    if "exit_only" in chosen.first.outcome.check.tags:
        report += [[], [("The run failed. The log does not show why.", "bold")]]
    report += [[], *failure.lines(document, screen, in_script=in_script)]
    for cause in chosen.others if verbose else ():
        report += _also_found(cause.outcome, screen)
    more = len(chosen.others) - (0 if verbose else min(len(chosen.others), failure.OTHERS_SHOWN))
    if more and not verbose:
        report += [[], *screen.paragraph(f"{more} more: add -v")]
    return [*report, [], [(f"Explain:  mgpu doctor --explain {chosen.first.id}", "")]]


def _also_found(outcome: Outcome, screen: Screen) -> list[Line]:
    problem = outcome.problem
    assert problem is not None
    head: Line = [(screen.rule(f"also found: {outcome.check.id}"), "")]
    details = findings.details(problem, screen, verbose=True)
    return [[], head, *labelled("What", problem.title, screen), *details]


def _last_run(log: Log, screen: Screen) -> list[Line]:
    """Return which of several runs in one file the report is about."""
    if not (last := log.last_run):
        return []
    where = f"The log has at least {counted(last.earlier, 'earlier run')} before line {last.line:,}."
    about = "This report is about the last run, from that line on."
    if not last.certain:
        where = f"The output goes on after the exception before line {last.line:,}."
        about = "Another run began there, or the program caught it. This report is about what follows."
    lines = screen.paragraph(f"{where} {about}")
    name = log.files[0]
    if name == "-" or name.startswith("/dev/"):  # it can be read only once
        return lines
    path = shlex.quote(f"./{name}" if name.startswith("-") else name)
    part = f"head -n {last.line - 1}"
    before = f"zcat {path} | {part}" if name.endswith(".gz") else f"{part} {path}"
    label = "The run before it" if last.certain else "Before it"
    return [*lines, [(f"{label}:  {before} | mgpu doctor --log -", "")]]


def ending_entry(log: Log | None, outcomes: Sequence[Outcome]) -> EndingEntry:
    """Return how a log ends, for the JSON."""
    assert log is not None
    if log.finished is not None:
        return {"state": "succeeded", "line": log.finished}
    failed = log.failed is not None or any(one.check.area == "log" and one.status == "fail" for one in outcomes)
    return {"state": "failed" if failed else "unknown", "line": log.failed}


def _without_cause(log: Log, signatures: int, screen: Screen) -> list[Line]:
    """Return what a log without a cause shows: a good end, a failure that it does not explain, or neither."""
    survived = sum(one.survived for one in log.seen)
    nothing = f"no known error: {_harmless(log)}, none of {signatures} signatures matched"
    if survived:
        nothing = f"the run went on after {counted(survived, 'known error')}; {_harmless(log)}"
    if not log.size_bytes:
        head, text = "Could not determine how the run ended", "the log is empty"
    elif log.finished is not None:
        head, text = "The run succeeded", nothing
    elif log.failed is not None:
        head, text = "The run failed, but its cause could not be determined", nothing
    else:
        head = "Could not determine how the run ended"
        text = f"{nothing}, and no line shows success. It is still running, or the log is cut off or incomplete"
    lines: list[Line] = [[(f"{head}.", "bold")], *screen.paragraph(f"{text[:1].upper()}{text[1:]}".rstrip(". ") + ".")]
    if shown := log.finished or log.failed:
        lines += failure.clipped_row(screen, "Evidence", shown, failure.EVIDENCE_LINES)
    elif step := log.reached:
        text = f"{failure.name_of(step.file)}:{step.line}: {' '.join(step.text.split())}"
        lines += failure.row(screen, "Last step", clip(text, _SURVIVED_CHARS))
    for place, text, times in _survived(log)[:_SURVIVED_SHOWN]:
        often = f" ({times} times)" if times > 1 else ""
        line = clip(f"{place}: {' '.join(text.split())}", _SURVIVED_CHARS)
        lines += failure.row(screen, "Went on after", f"{line}{often}")
    return lines


def _survived(log: Log) -> list[tuple[str, str, int]]:
    """Return the errors after which the log goes on: where, what, and how often.

    In the log of several programs, one of them can have failed.
    """
    known = [one for one in log.seen if one.survived]
    lines = {(one.file, one.line) for one in known}
    other = [one for one in log.raised if not (one.of_launcher or one.quoted or (one.file, one.line) in lines)]
    found = [(one.file, one.line, one.text, one.times) for one in known]
    for error in other:
        said = f"{error.type}: {error.message}" if error.message else error.type
        at = f" ({error.place})" if error.place else ""
        found.append((error.file, error.line, f"{said}{at}", error.times))
    return [(f"{failure.name_of(file)}:{line}", text, times) for file, line, text, times in found]


def _harmless(log: Log) -> str:
    number = sum(one.times for one in log.raised)
    if not number:
        return "no exception"
    return f"{counted(number, 'exception')} that did not end the run or only report its end"
