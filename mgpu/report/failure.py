"""How is the end of a run told: who failed first, why, what to do, and who only followed? First as data, which JSON
shows and a run's folder keeps, then as the lines of one box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.report import findings
from mgpu.report.screen import Line, Screen, Style, columned, labelled
from mgpu.secrets_masking import masked
from mgpu.snapshot import SIGNAL_NAMES
from mgpu.text import counted, plural

if TYPE_CHECKING:
    from mgpu.engine import Outcome
    from mgpu.engine.root_cause import Cause, Verdict
    from mgpu.report.json_types import CauseEntry, EndedRankEntry, FailedRank, Triage
    from mgpu.snapshot import EndedRank, Fallen, Log, Raised, Run, Snapshot

_LABEL = 15
_SECONDARY = 8  # that are kept; a log of a thousand ranks has them all
_EVIDENCE_LINES = 3
_OTHERS_SHOWN = 3
_NO_EXCEPTIONS = frozenset({"ChildFailedError", "SignalException"})


def found(verdict: Verdict, log: Log | None, run: Run | None) -> Triage:
    """first_failure, probable_cause and secondary[] of the JSON."""
    return {
        "first_failure": _first_failure(verdict.first, log, run),
        "probable_cause": _cause(verdict.first, log.last if log else None) if verdict.first else None,
        "secondary": [_cause(cause) for cause in verdict.others[:_SECONDARY]],
        "log": None if log is None else {"files": list(log.files), "lines": log.lines, "bytes": log.size_bytes},
    }


def _cause(cause: Cause, last: str | None = None) -> CauseEntry:
    problem = cause.outcome.problem
    assert problem is not None
    place = problem.place
    said = {"last_line": last} if last and "last_line" in cause.outcome.check.tags else {}
    return {
        "id": cause.id,
        "role": cause.role,
        "kind": cause.kind,
        "title": masked(problem.title),
        "cause": masked(problem.cause),
        "evidence": {
            key: masked(value) if isinstance(value, str) else value
            for key, value in {**problem.evidence, **said}.items()
        },
        "subjects": list(problem.subjects),
        "file": place.file if place else None,
        "line": place.line if place else None,
        "fix": [
            {"who": fix.who, "text": fix.text, "commands": list(fix.commands), "caveat": fix.caveat, "kind": fix.kind}
            for fix in problem.fixes
        ],
    }


def _first_failure(cause: Cause | None, log: Log | None, run: Run | None) -> FailedRank | None:
    """The rank that failed first; None where none did, or none is known."""
    named = _ranks_of(cause)
    told: Sequence[EndedRank | Fallen] = [*(run.ranks if run else ()), *(log.fallen if log else ())]
    failed = [rank for rank in told if rank.exit_code]
    if run is not None and (run.signalled or run.timed_out):
        failed = [rank for rank in failed if rank.rank in named]
    first = next((rank for rank in failed if rank.first), None)
    messenger = bool(
        cause and first and (cause.seen or "ranks_done" in cause.outcome.check.tags) and cause.role == "secondary"
    )
    if named and not messenger and (first is None or first.rank not in named):
        # the cause is of another rank than the launcher's first
        first = next((rank for rank in failed if rank.rank in named), None)
        rank = first.rank if first else named[0]
    elif first is not None:
        rank = first.rank
    else:
        return None
    code = first.exit_code if first else None
    raised = _raised_by(rank, cause, log, code)
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
    """The name of the signal that ended a process with this exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}") if code and code < 0 else None


def _ranks_of(cause: Cause | None) -> list[int]:
    problem = cause.outcome.problem if cause else None
    return (
        [int(text[5:]) for text in problem.subjects if text.startswith("rank ") and text[5:].isdigit()]
        if problem
        else []
    )


def _error_of(rank: EndedRank | Fallen | None) -> str | None:
    return masked(rank.error) if rank and rank.error else None


def _raised_by(rank: int, cause: Cause | None, log: Log | None, code: int | None) -> Raised | None:
    """The exception with which a rank ended. A rank that a signal ended has none, whatever it caught before."""
    if log is None or (code is not None and code not in (1, -6)):  # Python ends with 1 after an exception
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
    told: list[Line] = []
    if first := document.get("first_failure"):
        told += row(screen, "First to fail", who(first))
    cause = document.get("probable_cause")
    if cause is None:
        told += row(screen, "Probable cause", _nothing(document))
    else:
        told += row(screen, "Probable cause", f"{cause['title']}  [{cause['id']}]", "bold")
        told += row(screen, "", cause["cause"])
        told += _evidence(cause, screen)
        for number, fix in enumerate(cause["fix"]):
            by = f"({fix['who']}) " if fix["who"] != "you" else ""
            price = f" ({fix['caveat']})" if fix["caveat"] else ""
            text = f"{by}{fix['text']}{price}"
            told += row(screen, "Try" if not number else "or", text)
            told += [[(" " * (2 if screen.narrow else _LABEL) + command, "")] for command in fix["commands"]]
    for number, text in enumerate(_others(document, ranks)):
        told += row(screen, "" if number else "Others", text)
    return told


def row(screen: Screen, label: str, text: str, style: Style = "") -> list[Line]:
    """`Log            runs/…`, wrapped under its own column; on narrow screens under the label."""
    if screen.narrow:
        head: list[Line] = [[(label, "bold")]] if label else []
        return [*head, *screen.paragraph(text, "  ", "  ", style)]
    return columned([(f"{label:<{_LABEL}}", "bold")], text, screen, style)


def who(first: FailedRank) -> str:
    """ "rank 2 (GPU 2, host node7), killed by SIGKILL, no traceback"."""
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
    """The line of the log that says so, and where it stands."""
    if last := cause["evidence"].get("last_line"):
        return row(screen, "Last words", str(last))[:_EVIDENCE_LINES]
    line = cause["evidence"].get("line")
    if not isinstance(line, str):
        return []
    place = f"{_name(cause['file'])}:{cause['line']}: " if cause["file"] and cause["line"] else ""
    told = row(screen, "Evidence", f"{place}{' '.join(line.split())}")
    return told[:_EVIDENCE_LINES]


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _nothing(document: Triage) -> str:
    log = document.get("log")
    if log is None:
        return "not known: there is no log to look at"
    if not log["bytes"]:
        return "not known: the log is empty, the ranks died before their first word"
    return f"not known: in {log['lines']:,} lines of log stands no exception, and nothing that mgpu knows"


def _others(document: Triage, ended: Sequence[EndedRankEntry]) -> list[str]:
    """Who only followed: ranks, and what else was found."""
    from mgpu import engine
    from mgpu.engine import selections

    first = document.get("first_failure")
    told = []
    ranks = [rank for rank in ended if first and rank["rank"] != first["rank"]]
    cause = document.get("probable_cause")
    tags = engine.tags(cause["id"] if cause else None, selections.ENDED)
    left = cause["subjects"] if cause and "ranks_done" in tags else ()
    ranks = [rank for rank in ranks if f"rank {rank['rank']}" not in left]
    if stopped := [rank["rank"] for rank in ranks if rank["exit"] in (143, None, 0) and first]:
        names = ",".join(map(str, stopped))
        how = "disappeared" if first and first["signal"] else "had failed"
        why = f"stopped because rank {first['rank'] if first else '?'} {how}"
        if "silent_rank" in tags:  # nobody failed: the run was ended from outside
            why = "ended when the run was stopped"
        told.append(f"{plural(len(stopped), 'rank')} {names} {why}")
    failed = [rank for rank in ranks if rank["exit"] not in (143, None, 0)]
    if failed:
        told.append(", ".join(f"rank {rank['rank']} {_ended(rank)}" for rank in failed[:8]) + " after it")
    secondary = [one for one in document.get("secondary") or () if one["role"] != "wrapper"]
    told += [f"{one['title']}  [{one['id']}]" for one in secondary[:_OTHERS_SHOWN]]
    if len(secondary) > _OTHERS_SHOWN:
        told.append(f"and {len(secondary) - _OTHERS_SHOWN} more")
    return told


def _ended(rank: EndedRankEntry) -> str:
    return f"killed by {rank['signal']}" if rank["signal"] else f"exit code {rank['exit']}"


def report_of_logs(
    snapshot: Snapshot, outcomes: Sequence[Outcome], screen: Screen, *, verbose: bool = False
) -> list[Line]:
    """The report of `mgpu doctor --log`: what came first, and with `verbose` everything else that was found."""
    from mgpu.engine import root_cause

    log = snapshot.log
    assert log is not None
    chosen = root_cause.choose(outcomes, log, None)
    document = found(chosen, log, None)
    number = len(log.files)
    where = log.files[0] if number == 1 else f"{number} logs"
    ranks_told = f", {len(log.ranks)} ranks" if len(log.ranks) > 1 else ""
    head = f"mgpu doctor on {where}: {log.lines:,} {plural(log.lines, 'line')}{ranks_told}"
    told: list[Line] = screen.paragraph(head, style="bold")
    asked = sum(outcome.check.area == "log" for outcome in outcomes)
    if chosen.first is None:
        said = (
            _nothing(document)
            if not log.size_bytes
            else f"nothing is wrong that mgpu knows: {_harmless(log)} and none of {asked} signatures"
        )
        return [*told, [], *screen.paragraph(said[:1].upper() + said[1:])]
    told += [[], *lines(document, screen)]
    for outcome in [cause.outcome for cause in chosen.others] if verbose else ():
        problem = outcome.problem
        assert problem is not None
        told += [[], [(screen.rule(f"also found: {outcome.check.id}"), "")]]
        told += [
            *labelled("What", problem.title, screen),
            *findings.details(problem, screen, verbose=True),
        ]
    more = len(chosen.others) - (0 if verbose else min(len(chosen.others), _OTHERS_SHOWN))
    if more and not verbose:
        told += [[], *screen.paragraph(f"{more} more: add -v")]
    return [*told, [], [(f"Explain:  mgpu doctor --explain {chosen.first.id}", "")]]


def _harmless(log: Log) -> str:
    number = sum(one.times for one in log.raised)
    if not number:
        return "no exception"
    return f"{counted(number, 'exception')} that ended nothing or only {plural(number, 'tells', 'tell')} of an end"


def ranks(run: Run) -> list[EndedRankEntry]:
    """ranks[] of the JSON."""
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
        }
        for rank in run.ranks
    ]
