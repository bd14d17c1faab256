"""How is a failed run reported: the rank that failed first, why, what to do, and which ranks only followed?

First as data, for JSON and the run's folder, then as the lines of a box on the screen.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.errors import clip
from mgpu.report import findings
from mgpu.report.screen import Line, Screen, Style, columned, labelled
from mgpu.secrets_masking import masked
from mgpu.snapshot import SIGNAL_NAMES
from mgpu.text import counted, listed, plural

if TYPE_CHECKING:
    from mgpu.engine import Outcome
    from mgpu.engine.root_cause import Cause, Verdict
    from mgpu.report.json_types import CauseEntry, EndedRankEntry, EndingEntry, FailedRankEntry, LogEntry, Triage
    from mgpu.snapshot import EndedRank, FailedRank, Log, Run, Snapshot, UncaughtException

_LABEL = 15
_SECONDARY = 8  # causes to keep; the log of a thousand ranks may have every one
_EVIDENCE_LINES = 3
_SURVIVED_SHOWN, _SURVIVED_CHARS = 3, 200  # errors that the run survived, characters of the line of one
_OTHERS_SHOWN = 3
_NO_EXCEPTIONS = frozenset({"ChildFailedError", "SignalException"})


def triage_document(verdict: Verdict, log: Log | None, run: Run | None) -> Triage:
    """Return first_failure, probable_cause and secondary[] of the JSON."""
    return {
        "first_failure": _first_failure(verdict.first, log, run),
        "probable_cause": _cause(verdict.first, log) if verdict.first else None,
        "secondary": [_cause(cause, None) for cause in verdict.others[:_SECONDARY]],
        "log": None if log is None else _log(log),
    }


def _log(log: Log) -> LogEntry:
    last = log.last_run
    return {
        "files": list(log.files),
        "lines": log.lines,
        "bytes": log.size_bytes,
        "last_run": {"line": last.line, "earlier": last.earlier, "certain": last.certain} if last else None,
    }


def _cause(cause: Cause, log: Log | None) -> CauseEntry:
    problem = cause.outcome.problem
    assert problem is not None
    place = problem.place
    more: dict[str, str] = {}
    if log and log.last and "last_line" in cause.outcome.check.tags:
        more["last_line"] = log.last
    shown = problem.evidence.get("line")
    of_nccl = cause.kind == "nccl" or (isinstance(shown, str) and "nccl" in shown.lower())
    if log and log.nccl_error and of_nccl and log.nccl_error not in str(shown):
        more["nccl_error"] = log.nccl_error
    return {
        "id": cause.id,
        "role": cause.role,
        "kind": cause.kind,
        "title": masked(problem.title),
        "cause": masked(problem.cause),
        "evidence": {
            key: masked(value) if isinstance(value, str) else value
            for key, value in {**problem.evidence, **more}.items()
        },
        "subjects": list(problem.subjects),
        "file": place.file if place else None,
        "line": place.line if place else None,
        "fix": [
            {"who": fix.who, "text": fix.text, "commands": list(fix.commands), "caveat": fix.caveat, "kind": fix.kind}
            for fix in problem.fixes
        ],
    }


def _first_failure(cause: Cause | None, log: Log | None, run: Run | None) -> FailedRankEntry | None:
    """The rank that failed first; None if no rank failed, or it is not known."""
    named = _ranks_of(cause)
    reported: Sequence[EndedRank | FailedRank] = [*(run.ranks if run else ()), *(log.fallen if log else ())]
    failed = [rank for rank in reported if rank.exit_code]
    if run is not None and (run.signalled or run.timed_out):
        failed = [rank for rank in failed if rank.rank in named]
    first = next((rank for rank in failed if rank.first), None)
    messenger = bool(
        cause and first and (cause.seen or "ranks_done" in cause.outcome.check.tags) and cause.role == "secondary"
    )
    if named and not messenger and (first is None or first.rank not in named):
        # the cause is on another rank than the launcher's first failure
        first = next((rank for rank in failed if rank.rank in named), None)
        rank = first.rank if first else named[0]
    elif first is not None:
        rank = first.rank
    else:
        return None
    code = first.exit_code if first else None
    raised = _raised_by(rank, cause, log, code)
    if run is None and first is None and raised is None and cause and cause.kind == "timeout":
        return None  # the ranks that report a timeout are not the cause, and one that never came may still work
    return {
        "rank": rank,
        "host": first.host if first else None,
        "gpu": getattr(first, "gpu", None),
        "signal": _signal(code),
        "exit": None if code is None else 128 - code if code < 0 else code,
        "exception": masked(f"{raised.type}: {raised.message}".rstrip(": "))[:400] if raised else _error_of(first),
        "place": raised.place if raised else None,
        "line": raised.line if raised else None,
    }


def _signal(code: int | None) -> str | None:
    """The name of the signal that killed a process with this exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}") if code and code < 0 else None


def _ranks_of(cause: Cause | None) -> list[int]:
    problem = cause.outcome.problem if cause else None
    return (
        [int(text[5:]) for text in problem.subjects if text.startswith("rank ") and text[5:].isdigit()]
        if problem
        else []
    )


def _error_of(rank: EndedRank | FailedRank | None) -> str | None:
    return masked(rank.error) if rank and rank.error else None


def _raised_by(rank: int, cause: Cause | None, log: Log | None, code: int | None) -> UncaughtException | None:
    """The exception that ended a rank. A rank killed by a signal has none, whatever it caught before."""
    if log is None or (code is not None and code not in (1, -6)):  # Python exits with 1 after an exception
        return None
    own = [
        one
        for one in log.raised
        if one.type.rpartition(".")[2] not in _NO_EXCEPTIONS and not one.of_launcher and not one.caught
    ]
    exactly = [one for one in own if rank in one.ranks] or [one for one in own if not one.ranks]
    if cause and cause.outcome.problem and cause.outcome.problem.place:
        line = cause.outcome.problem.place.line
        exactly = [one for one in exactly if one.line == line] or exactly
    return exactly[-1] if exactly else None


def lines(document: Triage, screen: Screen, ranks: Sequence[EndedRankEntry] = ()) -> list[Line]:
    """The rows of the box below its headline: from First to fail to Others."""
    box: list[Line] = []
    if first := document.get("first_failure"):
        box += row(screen, "First to fail", rank_text(first))
    cause = document.get("probable_cause")
    if cause is None:
        box += row(screen, "Probable cause", _no_cause(document))
    else:
        box += row(screen, "Probable cause", f"{cause['title']}  [{cause['id']}]", "bold")
        box += row(screen, "", cause["cause"])
        box += _evidence(cause, screen)
        for number, fix in enumerate(cause["fix"]):
            by = f"({findings.FIX_BY[fix['who']]}) " if fix["who"] != "you" else ""
            caveat = f" ({fix['caveat']})" if fix["caveat"] else ""
            text = f"{by}{fix['text']}{caveat}"
            box += row(screen, "Try" if not number else "or", text)
            box += [[(" " * (2 if screen.narrow else _LABEL) + command, "")] for command in fix["commands"]]
    for number, text in enumerate(_others(document, ranks)):
        box += row(screen, "" if number else "Others", text)
    return box


def row(screen: Screen, label: str, text: str, style: Style = "") -> list[Line]:
    """`Log            .mgpu/runs/…`, wrapped under its own column; on narrow screens under the label."""
    if screen.narrow:
        head: list[Line] = [[(label, "bold")]] if label else []
        return [*head, *screen.paragraph(text, "  ", "  ", style)]
    return columned([(f"{label:<{_LABEL}}", "bold")], text, screen, style)


def rank_text(first: FailedRankEntry) -> str:
    """Describe a failed rank: "rank 2 (GPU 2, host node7), killed by SIGKILL, no traceback"."""
    gpu = "" if first["gpu"] is None else f"GPU {first['gpu']}"
    where = ", ".join(filter(None, [gpu, f"host {first['host']}" if first["host"] else ""]))
    name = f"rank {first['rank']}{f' ({where})' if where else ''}"
    if first["signal"]:
        return f"{name}, killed by {first['signal']}" + ("" if first["exception"] else ", no traceback")
    if first["exception"]:
        place = f"  at {first['place']}" if first["place"] else ""
        return f"{name}, {first['exception']}{place}"
    return name if first["exit"] is None else f"{name}, exit code {first['exit']}"


def _evidence(cause: CauseEntry, screen: Screen) -> list[Line]:
    """The log line that shows the cause, with its file and line number."""
    if last := cause["evidence"].get("last_line"):
        return row(screen, "Last output", str(last))[:_EVIDENCE_LINES]
    line = cause["evidence"].get("line")
    if not isinstance(line, str):
        return []
    place = f"{_name(cause['file'])}:{cause['line']}: " if cause["file"] and cause["line"] else ""
    shown = row(screen, "Evidence", f"{place}{' '.join(line.split())}")[:_EVIDENCE_LINES]
    if error := cause["evidence"].get("nccl_error"):
        shown += row(screen, "NCCL's error", str(error))[:_EVIDENCE_LINES]
    return shown


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _no_cause(document: Triage) -> str:
    """The reason why no cause is known."""
    log = document.get("log")
    if log is None:
        return "unknown: there is no log"
    if not log["bytes"]:
        return "unknown: the log is empty, the ranks exited before printing anything"
    return f"unknown: no exception and no known error in {log['lines']:,} log lines"


def _others(document: Triage, ended: Sequence[EndedRankEntry]) -> list[str]:
    """The ranks that only followed, and other findings."""
    from mgpu import engine
    from mgpu.engine import selections

    first = document.get("first_failure")
    texts = []
    known = [rank for rank in ended if rank["pid"] is not None or rank["exit"] is not None]
    ranks = [rank for rank in known if first and rank["rank"] != first["rank"]]
    cause = document.get("probable_cause")
    tags = engine.tags(cause["id"] if cause else None, selections.ENDED)
    found = [one for one in (cause, *(document.get("secondary") or ())) if one]
    done = [one for one in found if "ranks_done" in engine.tags(one["id"], selections.ENDED)]
    left = [name for one in done for name in one["subjects"]]
    ranks = [rank for rank in ranks if f"rank {rank['rank']}" not in left]
    if left and "ranks_done" not in tags:
        texts.append(f"{listed(left)} had finished before, without an error")
    if stopped := [rank["rank"] for rank in ranks if rank["exit"] in (143, None, 0) and first]:
        names = ",".join(map(str, stopped))
        how = "disappeared" if first and first["signal"] else "had failed"
        why = f"stopped because rank {first['rank'] if first else '?'} {how}"
        if "silent_rank" in tags:  # no rank failed: the run was stopped from outside
            why = "exited when the run was stopped"
        places = {rank.get("at") for rank in ranks if rank["rank"] in stopped}
        where = f" at {place}" if len(places) == 1 and (place := places.pop()) else ""
        texts.append(f"{plural(len(stopped), 'rank')} {names}{where} {why}")
    failed = [rank for rank in ranks if rank["exit"] not in (143, None, 0)]
    if failed:
        texts.append(", ".join(f"rank {rank['rank']} {_exit_text(rank)}" for rank in failed[:8]) + " after it")
    secondary = [
        one for one in document.get("secondary") or () if one["role"] not in ("wrapper", "noise") and one not in done
    ]
    texts += [f"{one['title']}  [{one['id']}]" for one in secondary[:_OTHERS_SHOWN]]
    if len(secondary) > _OTHERS_SHOWN:
        texts.append(f"and {len(secondary) - _OTHERS_SHOWN} more")
    return texts


def _exit_text(rank: EndedRankEntry) -> str:
    return f"killed by {rank['signal']}" if rank["signal"] else f"exit code {rank['exit']}"


def report_of_logs(
    snapshot: Snapshot, outcomes: Sequence[Outcome], screen: Screen, *, verbose: bool = False
) -> list[Line]:
    """The report of `mgpu doctor --log`: the first failure, and with `verbose` all other findings."""
    from mgpu.engine import root_cause

    log = snapshot.log
    assert log is not None
    chosen = root_cause.choose(outcomes, log, None)
    document = triage_document(chosen, log, None)
    number = len(log.files)
    where = log.files[0] if number == 1 else f"{number} logs"
    rank_count = f", {len(log.ranks)} ranks" if len(log.ranks) > 1 else ""
    head = f"mgpu doctor on {where}: {log.lines:,} {plural(log.lines, 'line')}{rank_count}"
    report: list[Line] = [*screen.paragraph(head, style="bold"), *_last_run(log, screen)]
    signatures = sum(outcome.check.area == "log" for outcome in outcomes)
    if chosen.first is None:
        return [*report, [], *_without_cause(log, signatures, screen)]
    if "exit_only" in chosen.first.outcome.check.tags:
        report += [[], [("The run failed. The log does not show why.", "bold")]]
    report += [[], *lines(document, screen)]
    for outcome in [cause.outcome for cause in chosen.others] if verbose else ():
        problem = outcome.problem
        assert problem is not None
        report += [[], [(screen.rule(f"also found: {outcome.check.id}"), "")]]
        report += [
            *labelled("What", problem.title, screen),
            *findings.details(problem, screen, verbose=True),
        ]
    more = len(chosen.others) - (0 if verbose else min(len(chosen.others), _OTHERS_SHOWN))
    if more and not verbose:
        report += [[], *screen.paragraph(f"{more} more: add -v")]
    return [*report, [], [(f"Explain:  mgpu doctor --explain {chosen.first.id}", "")]]


def _last_run(log: Log, screen: Screen) -> list[Line]:
    """Return which of several runs in one file the report is about."""
    if not (last := log.last_run):
        return []
    where = f"The log has {counted(last.earlier, 'earlier run')} before line {last.line:,}."
    about = "This report is about the last run, from that line on."
    if not last.certain:
        where = f"The output goes on long after the exception before line {last.line:,}."
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
        lines += row(screen, "Evidence", shown)[:_EVIDENCE_LINES]
    elif step := log.reached:
        text = f"{_name(step.file)}:{step.line}: {' '.join(step.text.split())}"
        lines += row(screen, "Last step", clip(text, _SURVIVED_CHARS))
    for place, text, times in _survived(log)[:_SURVIVED_SHOWN]:
        often = f" ({times} times)" if times > 1 else ""
        line = clip(f"{place}: {' '.join(text.split())}", _SURVIVED_CHARS)
        lines += row(screen, "Went on after", f"{line}{often}")
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
    return [(f"{_name(file)}:{line}", text, times) for file, line, text, times in found]


def _harmless(log: Log) -> str:
    number = sum(one.times for one in log.raised)
    if not number:
        return "no exception"
    return f"{counted(number, 'exception')} that did not end the run or only report its end"


def rank_entries(run: Run) -> list[EndedRankEntry]:
    """Return ranks[] of the JSON."""
    return [
        {
            "rank": rank.rank,
            "exit": None if rank.exit_code is None else 128 - rank.exit_code if rank.exit_code < 0 else rank.exit_code,
            "signal": _signal(rank.exit_code),
            "gpu": rank.gpu,
            "host": rank.host,
            "pid": rank.pid,
            "error": masked(rank.error) if rank.error else None,
            "state": rank.state,
            "at": rank.raised_at.place if rank.raised_at else None,
            "peak_host": rank.peak_bytes,
            "peak_allocated": rank.peak_allocated_bytes,
            "peak_reserved": rank.peak_reserved_bytes,
        }
        for rank in run.ranks
    ]
