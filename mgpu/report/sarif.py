"""How are outcomes written as SARIF 2.1.0, for code scanning and editors?

One run with a rule per check that reported something. What could not be examined is a notification of the run, so that
an empty list of results never hides it. Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mgpu.check import Check, Place, Skip
from mgpu.engine import Outcome
from mgpu.messages import clean
from mgpu.report.document import outcome_text
from mgpu.report.formats import path_in, problem_lines
from mgpu.version import __version__

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL: Final = {"fail": "error", "warn": "warning", "info": "note"}
_OF_SEVERITY: Final = {"error": "error", "warning": "warning", "info": "note"}


def text(outcomes: Sequence[Outcome], code: int) -> str:
    """Return the SARIF log of a judgment with this exit code."""
    found = [outcome for outcome in outcomes if outcome.problem]
    checks = {outcome.check.id: outcome.check for outcome in found}
    places = {id: place for place, id in enumerate(checks)}
    unknown = _notifications(outcomes)
    run = {
        "tool": {"driver": {"name": "mgpu", "version": __version__, "rules": [_rule(one) for one in checks.values()]}},
        "invocations": [{"executionSuccessful": not unknown, "exitCode": code, "toolExecutionNotifications": unknown}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(outcome, places[outcome.check.id]) for outcome in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _text(what: str) -> dict[str, str]:
    return {"text": clean(what)}


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "shortDescription": _text(check.summary),
        "fullDescription": _text(check.doc),
        "help": _text(f"{check.doc}\n\nSource: {check.source}\nmgpu doctor --explain {check.id}"),
        "defaultConfiguration": {"level": _OF_SEVERITY[check.severity.value]},
    }


def _result(outcome: Outcome, rule: int) -> dict[str, Any]:
    problem = outcome.problem
    assert problem is not None
    level = _LEVEL.get(outcome.status) or _OF_SEVERITY[outcome.check.severity.value]
    result: dict[str, Any] = {
        "ruleId": outcome.check.id,
        "ruleIndex": rule,
        "level": level,
        "message": _text("\n".join(problem_lines(problem))),
    }
    if problem.place:
        result["locations"] = [{"physicalLocation": _physical(problem.place)}]
    elif problem.subjects:
        names = [{"name": clean(subject), "kind": "resource"} for subject in problem.subjects]
        result["locations"] = [{"logicalLocations": names}]
    if outcome.waived:
        result["suppressions"] = [{"kind": "external", "justification": clean(outcome.waived.reason)}]
    if outcome.because_of:
        result["properties"] = {"becauseOf": list(outcome.because_of)}
    return result


def _physical(place: Place) -> dict[str, Any]:
    """A place in a file; the path is relative to the repository if the file is in it."""
    base = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    name = path_in(base, place.file)
    where: dict[str, Any] = {"uri": quote(name), "uriBaseId": "%SRCROOT%"}
    if os.path.isabs(name):
        where = {"uri": Path(name).as_uri()}
    region = {"startLine": place.line, "startColumn": place.column}
    given = {key: value for key, value in region.items() if value is not None and place.line is not None}
    return {"artifactLocation": where} | ({"region": given} if given else {})


def _notifications(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The checks that crashed, and the facts that could not be read."""
    reasons = {
        outcome_text(outcome): outcome.check.id
        for outcome in outcomes
        if outcome.status == "crash" or (outcome.unsettling and isinstance(outcome.answer, Skip))
    }
    return [{"level": "error", "message": _text(why), "descriptor": {"id": id}} for why, id in reasons.items()]
