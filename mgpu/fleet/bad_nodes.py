"""Find the nodes that the checks report as bad, and build the JSON document of a pre-flight."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu import engine, hostlist
from mgpu.check import Problem
from mgpu.fleet import screen as screens
from mgpu.fleet.allocation import Allocation
from mgpu.fleet.stages import Bad
from mgpu.report import findings
from mgpu.report.document import check_json, counts
from mgpu.snapshot import Fleet
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.fleet.fleet_json import PreflightDocument, PreflightHead, PreflightNodes


def bad_nodes(
    outcomes: Sequence[engine.Outcome], fleet: Fleet, lost: Mapping[str, str], nodes: Sequence[str]
) -> list[Bad]:
    """Return the nodes with errors, each with its first error, and the nodes that did not answer, in job order."""
    found: dict[str, Bad] = {}
    for outcome in findings.in_order(outcomes) + [o for o in outcomes if o.because_of]:
        problem = outcome.problem
        if problem is None or outcome.status != "fail":
            continue
        for node in problem.subjects:
            fix = problem.fixes[0].text if problem.fixes else ""
            found.setdefault(node, Bad(node, "examine", outcome.check.id, _reason(node, problem, fleet), fix))
    for node, why in lost.items():
        found.setdefault(node, Bad(node, "examine", "", f"not checked: {why}"))
    return [found[node] for node in nodes if node in found]


def is_job_wide(outcome: engine.Outcome) -> bool:
    """Whether an error concerns no single node, so that excluding nodes does not help."""
    return outcome.status == "fail" and outcome.problem is not None and not outcome.problem.subjects


def file_facts(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of a node's files under the keys used for comparison ("files.script")."""
    return {f"files.{name}": digest for name, digest in hashes.items()}


def _reason(node: str, problem: Problem, fleet: Fleet) -> str:
    """Return why a node did not answer, or its own fault, or else the problem's title without the nodes."""
    if fleet.missing.get(node):
        return f"not checked: {fleet.missing[node]}"
    own = {fault.text for fault in fleet.faults or () if fault.node == node} & {*problem.evidence.values()}
    return next(iter(own), problem.title).removeprefix(f"{hostlist.fold(problem.subjects)}: ")


def make_document(result: screens.Result) -> PreflightDocument:
    """Return the JSON document."""
    head: Any = envelope(result.verdict, result.code, result.seconds, result.outcomes)
    nodes: PreflightNodes = {
        "job": result.job,
        "nodes": list(result.of_job),
        "need": result.need,
        "good": list(result.good),
        "chosen": list(result.chosen),
        "bad": [
            {"node": b.node, "stage": b.stage, "id": b.id or None, "reason": b.reason, "fix": b.fix or None}
            for b in result.bad
        ],
        "exclude": result.exclude or None,
        "trouble": result.trouble or None,
        "stages": [
            {"name": s.name, "status": s.status, "seconds": s.seconds, "detail": s.detail} for s in result.stages
        ],
        "logs": result.folder,
    }
    document: PreflightDocument = head | nodes
    return document


def envelope(verdict: str, code: int, seconds: float, outcomes: Sequence[engine.Outcome]) -> PreflightHead:
    """Return the keys that a pre-flight shares with other commands."""
    return {
        "schema": "mgpu.preflight/1.0",
        "mgpu": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "duration_s": round(seconds, 3),
        "verdict": verdict,
        "exit_code": code,
        "counts": counts(outcomes),
        "checks": [check_json(outcome) for outcome in outcomes],
    }


def no_nodes(job: Allocation) -> PreflightNodes:
    """Return the result of a pre-flight that could not be completed."""
    return {
        "good": [],
        "chosen": [],
        "bad": [],
        "stages": [],
        "job": job.job,
        "nodes": list(job.nodes),
        "need": None,
        "exclude": None,
        "trouble": None,
        "logs": None,
    }
