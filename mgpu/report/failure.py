"""How is a failed run reported: the rank that failed first, why, what to do, and which ranks only followed?

First as data, for JSON and the run's folder, then as the lines of a box on the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.report import failed_values, findings
from mgpu.report.screen import Line, Screen, Style, columned
from mgpu.secrets_masking import masked
from mgpu.snapshot import SIGNAL_NAMES, EndedRank
from mgpu.text import clean, listed, plural

if TYPE_CHECKING:
    from mgpu.engine.root_cause import Cause, Verdict
    from mgpu.report.json_types import (
        CauseEntry,
        CheckEntry,
        EndedRankEntry,
        FailedRankEntry,
        LogEntry,
        Triage,
    )
    from mgpu.snapshot import FailedRank, Log, Run, UncaughtException

_LABEL = 15
_SECONDARY = 8  # causes to keep; the log of a thousand ranks may have every one
EVIDENCE_LINES = 3
_SOURCE_LINES = 2  # of one line of the source
_NARROWEST = 20  # columns of code
OTHERS_SHOWN = 3
_FORESEEN_SHOWN = 2
_LINES_WITH_VALUES = 2  # of the user's code
_AGENT = ("torch/distributed/elastic/agent/", "torch/distributed/launcher/")  # frames of torchrun's process
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
        "place": raised.place if raised else _place_of(first),
        "line": raised.line if raised else None,
        "values": failed_values.entries(rank, run.ranks) if run else [],
    }


def _signal(code: int | None) -> str | None:
    """The name of the signal that killed a process with this exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}") if code and code < 0 else None


def _place_of(rank: EndedRank | FailedRank | None) -> str | None:
    """Return the user's line of an exception that only the recorder has seen."""
    at = rank.raised_at if isinstance(rank, EndedRank) else None
    return f"{at.place} in {at.function}".removesuffix(" in <module>") if at else None


def _ranks_of(cause: Cause | None) -> list[int]:
    problem = cause.outcome.problem if cause else None
    return (
        [int(text[5:]) for text in problem.subjects if text.startswith("rank ") and text[5:].isdigit()]
        if problem
        else []
    )


def _error_of(rank: EndedRank | FailedRank | None) -> str | None:
    return masked(rank.error) if rank and rank.error else None


def _of_agent(one: UncaughtException, cause: Cause | None) -> bool:
    """Whether torchrun itself raised it, after a rank had failed for another reason."""
    by_agent = any(frame.startswith(_AGENT) for frame in one.frames)
    return by_agent and cause is not None and cause.role == "root" and cause.id not in one.signatures


def _raised_by(rank: int, cause: Cause | None, log: Log | None, code: int | None) -> UncaughtException | None:
    """The exception that ended a rank. A rank killed by a signal has none, whatever it caught before."""
    if log is None or (code is not None and code not in (1, -6)):  # Python exits with 1 after an exception
        return None
    own = [
        one
        for one in log.raised
        if one.type.rpartition(".")[2] not in _NO_EXCEPTIONS
        and not one.of_launcher
        and not one.caught
        and not _of_agent(one, cause)
    ]
    exactly = [one for one in own if rank in one.ranks] or [one for one in own if not one.ranks]
    if cause and cause.outcome.problem and cause.outcome.problem.place:
        line = cause.outcome.problem.place.line
        exactly = [one for one in exactly if one.line == line] or exactly
    return exactly[-1] if exactly else None


def lines(
    document: Triage,
    screen: Screen,
    ranks: Sequence[EndedRankEntry] = (),
    in_script: Sequence[CheckEntry] = (),
) -> list[Line]:
    """The rows of the box below its headline: from First to fail to Others.

    `in_script`: findings in the script's source that may be why the run failed.
    """
    box: list[Line] = []
    cause, first = document.get("probable_cause"), document.get("first_failure")
    if first and not _is_stop_of_hang(cause, first):
        box += row(screen, "First to fail", rank_text(first))
    if cause is None:
        box += row(screen, "Probable cause", _no_cause(document))
    else:
        box += row(screen, "Probable cause", f"{cause['title']}  [{cause['id']}]", "bold")
        box += row(screen, "", cause["cause"])
        box += _evidence(cause, screen) + _values(first, screen) + source_rows(in_script, "In the script", screen)
        for number, fix in enumerate(cause["fix"]):
            by = f"({findings.FIX_BY[fix['who']]}) " if fix["who"] != "you" else ""
            caveat = f" ({fix['caveat']})" if fix["caveat"] else ""
            text = f"{by}{_without_or(fix['text']) if number else fix['text']}{caveat}"
            box += row(screen, "Try" if not number else "or", text)
            box += [[(" " * (2 if screen.narrow else _LABEL) + command, "")] for command in fix["commands"]]
    for number, text in enumerate(_others(document, ranks)):
        box += row(screen, "" if number else "Others", text)
    return box


def _is_stop_of_hang(cause: CauseEntry | None, first: FailedRankEntry) -> bool:
    """Whether a rank kept the others waiting, and raised only how the run was stopped afterwards."""
    of_hang = cause is not None and cause["id"].startswith("hang_")
    return of_hang and (first["exception"] or "").partition(":")[0] in ("", "KeyboardInterrupt", "SignalException")


def _without_or(text: str) -> str:
    """Return a fix that begins with "Or" for a row whose label is "or" already."""
    return text[3:4].upper() + text[4:] if text.startswith("Or ") else text


def row(screen: Screen, label: str, text: str, style: Style = "") -> list[Line]:
    """`Log            .mgpu/runs/…`, wrapped under its own column; on narrow screens under the label."""
    if screen.narrow:
        head: list[Line] = [[(label, "bold")]] if label else []
        return [*head, *screen.paragraph(text, "  ", "  ", style)]
    return columned([(f"{label:<{_LABEL}}", "bold")], text, screen, style)


def clipped_row(screen: Screen, label: str, text: str, lines: int) -> list[Line]:
    """A row of so many lines of text; a label above them, on narrow screens, does not count."""
    return row(screen, label, text)[: lines + (screen.narrow and bool(label))]


def _code_rows(screen: Screen, label: str, code: str) -> list[Line]:
    """Return rows of code, whose words can be longer than the screen is wide; "..." in place of what is left out."""
    import textwrap

    width = max(_NARROWEST, screen.width - (2 if screen.narrow else _LABEL))
    lines = textwrap.wrap(clean(code), width, break_on_hyphens=False) or [""]
    if len(lines) > _SOURCE_LINES:
        lines = [*lines[: _SOURCE_LINES - 1], f"{lines[_SOURCE_LINES - 1][: width - 3]}..."]
    return [one for at, line in enumerate(lines) for one in row(screen, "" if at else label, line)]


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
        return clipped_row(screen, "Last output", str(last), EVIDENCE_LINES)
    line = cause["evidence"].get("line")
    if not isinstance(line, str):
        return []
    place = f"{name_of(cause['file'])}:{cause['line']}: " if cause["file"] and cause["line"] else ""
    shown = clipped_row(screen, "Evidence", f"{place}{' '.join(line.split())}", EVIDENCE_LINES)
    if error := cause["evidence"].get("nccl_error"):
        shown += clipped_row(screen, "NCCL's error", str(error), EVIDENCE_LINES)
    for at, code in enumerate(str(cause["evidence"].get("source") or "").splitlines()):
        shown += _code_rows(screen, "Source" if not at else "", code)
    return shown


def _values(first: FailedRankEntry | None, screen: Screen) -> list[Line]:
    """What the names on the failed line stood for."""
    shown = failed_values.texts(first["values"], _LINES_WITH_VALUES) if first else []
    return [line for at, text in enumerate(shown) for line in row(screen, "" if at else "Values", text)]


def source_rows(found: Sequence[CheckEntry], label: str, screen: Screen) -> list[Line]:
    """Return the rows for findings in the script's source that may be why the run failed."""
    rows: list[Line] = []
    for number, one in enumerate(found[:_FORESEEN_SHOWN]):
        rows += row(screen, "" if number else label, f"{one['file']}: {one['title']}  [{one['id']}]")
        rows += row(screen, "", one["fix"][0]["text"]) if one["fix"] else []
    return rows


def name_of(path: str) -> str:
    """Return the last part of a path."""
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
    texts += [f"{one['title']}  [{one['id']}]" for one in secondary[:OTHERS_SHOWN]]
    if len(secondary) > OTHERS_SHOWN:
        texts.append(f"and {len(secondary) - OTHERS_SHOWN} more")
    return texts


def _exit_text(rank: EndedRankEntry) -> str:
    return f"killed by {rank['signal']}" if rank["signal"] else f"exit code {rank['exit']}"


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
