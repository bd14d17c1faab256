"""How are the findings in config files reported: to a person, as JSON, to GitHub?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu import errors, messages
from mgpu.check import Crash, Problem, Skip
from mgpu.command_line import shell
from mgpu.engine import Outcome, explained
from mgpu.report import document, findings
from mgpu.report.screen import Line, Screen, Style, columned, headed, unstyled, wrapped
from mgpu.text import counted, listed, visible
from mgpu.validate import request
from mgpu.validate.request import Judged, repair

if TYPE_CHECKING:
    from mgpu.snapshot import DeepSpeedJson
    from mgpu.validate.validate_json import ConfigDocument, ConfigsDocument, LoaderEntry

_WORD: dict[str, tuple[str, Style]] = {
    "fail": ("FAIL", "fail"),
    "warn": ("warn", "warn"),
    "info": ("info", "bold"),
    "waived": ("waived", "bold"),
    "crash": ("crash", "crash"),
}
_VERDICT: dict[str, tuple[str, Style]] = {
    "valid": ("VALID", "ok"),
    "valid_with_options": ("COMPLETE WITH OPTIONS", "warn"),
    "invalid": ("INVALID", "fail"),
    "unknown": ("UNKNOWN", "crash"),
}
_INDENT = " " * 4


def write(found: Sequence[Judged], format: str, seconds: float) -> None:
    """Write the findings to stdout."""
    if format == "json":
        print(document.text(_document(found, seconds)), end="")
    elif format == "sarif":
        from mgpu.report import sarif

        outcomes = [outcome for one in found for outcome in one.outcomes if one.verbose or not _is_note(outcome)]
        print(sarif.text(outcomes, max(one.code for one in found)), end="")
    elif format == "github":
        print("".join(_github(one) for one in found), end="")
    else:
        screen = Screen.of()
        screen.show(_screen(found, screen))


# ---- for people


def _screen(found: Sequence[Judged], screen: Screen) -> list[Line]:
    lines: list[Line] = []
    for one in found:
        if lines:
            lines.append([])
        lines += _file(one, screen)
    if len(found) > 1:
        number = {verdict: sum(one.verdict == verdict for one in found) for verdict in _VERDICT}
        text = ", ".join(f"{n} {_VERDICT[verdict][0].lower()}" for verdict, n in number.items() if n)
        lines += [[], [(f"{len(found)} files: {text}.", "bold")]]
    return lines


def _file(one: Judged, screen: Screen) -> list[Line]:
    lines = _changes(one, screen)
    for same in _grouped(_shown(one)):
        lines += _finding(same, one, screen)
    for reason in _unsettled(one.outcomes):
        lines += _labelled("Unknown", reason, screen)
    if lines:
        lines.append([])
    word, style = _VERDICT[one.verdict]
    lines += headed(word, style, f"{_name(one)}: {_counts(one)}; {_loader_text(one)}.", screen)
    if one.fixed is None and (number := sum(bool(repair(o)) for o in one.outcomes)):
        text = f"{number} fixable with --fix:"
        if one.config.path == request.STDIN:
            again = wrapped(f"{text} save the config as a file first.", screen.width)
            return [*lines, *unstyled(again)]
        lines += [[(text, "")], [(f"  {shell('mgpu configure --validate {:path} --fix', one.config.path)}", "bold")]]
    return lines


def in_file_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the findings to report, from the top of the file to its end, without consequences of other findings."""

    def place(outcome: Outcome) -> tuple[int, int]:
        at = outcome.problem.place if outcome.problem else None
        return (at.line or 0, at.column or 0) if at else (0, 0)

    return sorted((o for o in outcomes if o.status in _WORD and not o.because_of), key=place)


def _shown(one: Judged) -> list[Outcome]:
    """Return the findings to report; notes without consequence only with -v."""
    return [o for o in in_file_order(one.outcomes) if one.verbose or not _is_note(o)]


def _is_note(outcome: Outcome) -> bool:
    return outcome.status == "info" and "no_consequence" in outcome.check.tags


def _grouped(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Return the findings of each check as one group, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.check.id, outcome.status), []).append(outcome)
    return list(groups.values())


def _finding(same: Sequence[Outcome], one: Judged, screen: Screen) -> list[Line]:
    """A finding: a line with its place, why it matters, how to fix it, its repetitions and its consequences."""
    outcome = same[0]
    word, style = _WORD[outcome.status]
    where = _where(outcome, one)
    head = wrapped(f"{where} {word} {document.outcome_text(outcome)} [{outcome.check.id}]", screen.width, "", _INDENT)
    lines: list[Line] = []
    if head[0].startswith(f"{where} {word}"):
        rest = head[0][len(where) + 1 + len(word) :]
        lines.append([(where, "bold"), (" ", ""), (word, style), (rest, "")])
    else:
        lines.append([(head[0], "bold")])
    lines += unstyled(head[1:])
    if isinstance(outcome.answer, Crash):
        return [*lines, *_labelled("Why", "A bug in mgpu: the check itself failed.", screen)]
    problem = outcome.problem
    assert problem is not None
    if outcome.waived:
        return [*lines, *_labelled("Waived", outcome.waived.reason, screen)]
    if outcome.status != "info":
        lines += _labelled("Why", problem.cause, screen)
        lines += _fixes(problem, screen)
    for other in same[1:]:
        lines += _labelled("Also", findings.repetition(other, outcome), screen)
    effects = explained(one.outcomes)
    for other in (effect for each in same for effect in effects.get(id(each), ())):
        lines += _labelled("Also", f"{document.outcome_text(other)} [{other.check.id}]", screen)
    return lines


def _fixes(problem: Problem, screen: Screen) -> list[Line]:
    lines: list[Line] = []
    for fix in problem.fixes:
        who = "" if fix.who == "you" else f"({findings.FIX_BY[fix.who]}) "
        caveat = f" ({fix.caveat})" if fix.caveat else ""
        done = " (fixable with --fix)" if fix.edits else ""
        lines += _labelled("Fix" if fix.kind == "fix" else "Stopgap", f"{who}{fix.text}{caveat}{done}", screen)
        lines += [[(f"{_INDENT}{' ' * 5}{command}", "")] for command in fix.commands]  # pastes: never wrapped
    return lines


def _changes(one: Judged, screen: Screen) -> list[Line]:
    """The changes that `--fix` made, or would make."""
    fixed = one.fixed
    if fixed is None:
        return []
    lines: list[Line] = []
    if fixed.diff:
        text = f"Fixed {_name(one)} (backup: {fixed.backup})." if fixed.backup else f"Would fix {_name(one)}."
        lines += screen.paragraph(text, style="bold")
        lines += [[(line, _COLOR.get(line[:1], ""))] for line in fixed.diff]
        while not lines[-1][0][0].strip():  # an empty line of the file
            lines.pop()
    else:
        lines += screen.paragraph(f"{_name(one)}: nothing to fix automatically.")
    for text in fixed.left:
        lines += screen.paragraph(f"Not fixed: {text}.", "", _INDENT)
    return [*lines, []]


_COLOR: dict[str, Style] = {"+": "ok", "-": "fail", "@": "bold"}


def _labelled(label: str, text: str, screen: Screen) -> list[Line]:
    width = max(4, len(label)) + 1
    return columned([(_INDENT, ""), (f"{label:<{width}}", "bold")], text, screen, least=20)


def _where(outcome: Outcome, one: Judged) -> str:
    place = outcome.problem.place if outcome.problem else None
    if place is None or place.line is None:
        return f"{_name(one)}:"
    name = _name(one) if place.file == one.config.path else visible(place.file)
    return f"{name}:{place.line}:{place.column or 1}:"


def _name(one: Judged) -> str:
    return visible("standard input" if one.config.path == request.STDIN else one.config.path)


def _counts(one: Judged) -> str:
    roots = [o for o in one.outcomes if not o.because_of]
    number = document.counts(same[0] for same in _grouped(roots))
    notes = 0 if one.verbose else len(_grouped([o for o in roots if _is_note(o)]))
    waived = f", {number['waived']} waived" if number["waived"] else ""
    hidden = f", {counted(notes, 'note')} (-v)" if notes else ""
    return f"{counted(number['fail'], 'error')}, {counted(number['warn'], 'warning')}{waived}{hidden}"


def _loader_text(one: Judged) -> str:
    """The result of accelerate's own loader, or of DeepSpeed's, as a clause."""
    if one.deepspeed is not None:
        return f"a DeepSpeed file, not an accelerate config; {_deepspeed_text(one, one.deepspeed)}"
    loader = one.config.loader
    if loader is not None:
        options = loader.options if loader.accepted else ()
        given = f" with {listed(f'--{name}' for name in options)}" if options else ""
        return f"accelerate {loader.accelerate} {'accepts' if loader.accepted else 'rejects'} it{given}"
    if not one.loaded:
        return "not loaded with accelerate (--no-loader)"
    broken = any(fault.fatal for fault in one.config.faults)
    return "not loaded with accelerate" if broken else "accelerate could not load it"


def _deepspeed_text(one: Judged, file: DeepSpeedJson) -> str:
    """The result of DeepSpeed's own loader, as a clause."""
    if file.loader is not None:
        return f"DeepSpeed {file.loader.deepspeed} {'rejects' if file.loader.refusals else 'accepts'} it"
    if one.loaded:
        return "DeepSpeed could not load it"
    return "not loaded with DeepSpeed"


def _unsettled(outcomes: Sequence[Outcome]) -> list[str]:
    """The reasons why facts that should be known are not."""
    reasons = (o.answer.reason for o in outcomes if o.unsettling and isinstance(o.answer, Skip))
    return list(dict.fromkeys(reasons))


# ---- for programs


def _document(found: Sequence[Judged], seconds: float) -> ConfigDocument | ConfigsDocument:
    documents = [_entry(one, seconds) for one in found]
    if len(documents) == 1:
        return documents[0]
    worst = max((one.code for one in found), key=(errors.READY, errors.UNKNOWN, errors.NOT_READY).index)
    return {"schema": "mgpu.configure/1.0", "files": documents, "exit_code": worst}


def _entry(one: Judged, seconds: float) -> ConfigDocument:
    config, again = one.config, shell("mgpu configure --validate {:path}", one.config.path)
    entry: ConfigDocument
    entry = document.envelope("configure", one.outcomes, one.verdict, one.code, seconds, one.snapshot)
    for check in entry["checks"]:
        check["verify"] = again
    entry["kind"] = "accelerate" if one.deepspeed is None else "deepspeed"
    entry.update({"config": dict(config.values), "config_path": config.path, "sha256": config.sha256})
    entry["loader"] = _loader_entry(one)
    if (fixed := one.fixed) is not None:
        entry["mended"] = {  # codespell:ignore
            "edits": [document.edit_json(edit) for edit in fixed.done],
            "diff": list(fixed.diff),
            "left": list(fixed.left),
            "backup": str(fixed.backup) if fixed.backup else None,
            "written": fixed.backup is not None,
        }
    entry["next"] = ["mgpu smoke-test"] if one.verdict == "valid" and one.deepspeed is None else []
    return entry


def _loader_entry(one: Judged) -> LoaderEntry | None:
    loader, file = one.config.loader, one.deepspeed
    if file is not None and file.loader is not None:
        found = file.loader.refusals
        error = "; ".join(f"{refusal.key}: {refusal.message}" if refusal.key else refusal.message for refusal in found)
        return {
            "accepted": not found,
            "error": error or None,
            "accelerate": None,
            "options": [],
            "deepspeed": file.loader.deepspeed,
        }
    if loader is None:
        return None
    named = one.config.deepspeed_file
    return {
        "accepted": loader.accepted,
        "error": loader.error,
        "accelerate": loader.accelerate,
        "options": list(loader.options),
        "deepspeed": named.loader.deepspeed if named and named.loader else None,
    }


def _github(one: Judged) -> str:
    """Annotations with paths relative to the repository, and the verdict as the last line."""
    from mgpu.report import formats

    base = os.environ.get("GITHUB_WORKSPACE", "")
    lines = formats.workflow_commands([o for o in one.outcomes if one.verbose or not _is_note(o)], base)
    word, _ = _VERDICT[one.verdict]
    return "\n".join([*lines, messages.clean(f"{word}  {_name(one)}: {_counts(one)}; {_loader_text(one)}.")]) + "\n"
