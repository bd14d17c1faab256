"""The JSON that all commands share, and how every document is written. `json_types.py` defines its fields."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu.check import Crash, Edit, Evidence, Fix, Ok, Skip
from mgpu.engine import Outcome, Status
from mgpu.secrets_masking import masked, masked_argv, masked_value
from mgpu.snapshot import Snapshot, bus_address, topology
from mgpu.text import visible_json
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.report.json_types import (
        CheckEntry,
        EditEntry,
        Envelope,
        FixEntry,
        GpuEntry,
        HostEntry,
        PlanEntry,
        Scalar,
        SoftwareEntry,
    )

# Mappings whose keys are the user's names: variables, keys of a config, options.
_TREES_OF_USERS = frozenset({"env", "env_added", "config", "environment", "settings"})
STATUSES: tuple[Status, ...] = ("ok", "info", "warn", "fail", "waived", "skip", "crash")


def counts(outcomes: Iterable[Outcome]) -> dict[Status, int]:
    """The number of outcomes with each status."""
    number: dict[Status, int] = dict.fromkeys(STATUSES, 0)
    for outcome in outcomes:
        number[outcome.status] += 1
    return number


def outcome_text(outcome: Outcome) -> str:
    """An outcome in one line."""
    match outcome.answer:
        case Ok(evidence):
            return evidence
        case Skip(reason):
            return reason
        case Crash(error, _):
            return error
        case problem:
            return problem.title


def check_json(outcome: Outcome) -> CheckEntry:
    """One entry of `checks[]`."""
    entry: CheckEntry = {
        "id": outcome.check.id,
        "area": outcome.check.area,
        "severity": outcome.check.severity.value,
        "status": outcome.status,
        "title": outcome_text(outcome),
        "cause": None,
        "evidence": {},
        "fix": [],
        "because_of": list(outcome.because_of),
        "source": outcome.check.source,
        "verify": f"mgpu doctor {outcome.check.selection}",
        "duration_s": round(outcome.seconds, 6),
    }
    if problem := outcome.problem:
        entry |= {"cause": problem.cause, "evidence": _evidence(problem.evidence), "subjects": list(problem.subjects)}
        entry["fix"] = [_fix(fix) for fix in problem.fixes]
        if problem.place:
            place = problem.place
            entry |= {"file": place.file, "line": place.line, "column": place.column, "key": place.key}
    if outcome.waived:
        entry["waived"] = {"reason": masked(outcome.waived.reason), "until": outcome.waived.until}
    if isinstance(outcome.answer, Crash):
        entry["trace"] = outcome.answer.trace
    return entry


def _fix(fix: Fix) -> FixEntry:
    entry: FixEntry = {
        "who": fix.who,
        "text": fix.text,
        "commands": list(fix.commands),
        "caveat": fix.caveat,
        "kind": fix.kind,
    }
    if fix.edits:
        entry["edits"] = [edit_json(edit) for edit in fix.edits]
    return entry


def edit_json(edit: Edit) -> EditEntry:
    """One change that `configure --validate --fix` makes."""
    entry: EditEntry = {"kind": edit.kind, "key": edit.key}
    if edit.kind == "set":
        entry["value"] = without_secrets(masked_value(edit.value, edit.key))
    elif edit.kind == "rename":
        entry["to"] = masked(edit.to)
    elif edit.kind == "drop_line":
        entry["line"] = edit.line
    return entry


def _evidence(evidence: Evidence) -> dict[str, Scalar]:
    """Replace infinity and NaN, which JSON does not have, with text."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in evidence.items()
    }


def text(document: Mapping[str, object], indent: int = 2) -> str:
    """Return the JSON text of a document, with secrets masked."""
    return facts_text(without_secrets(document), indent)


def facts_text(facts: dict[str, Any], indent: int = 1) -> str:
    """Return the JSON text of a Snapshot that `redaction` has masked. It is read again, with the same types.

    Characters that act on a terminal, and lone surrogates (from a file name), are written as JSON escapes, so a reader
    gets the exact text.
    """
    return visible_json(json.dumps(facts, indent=indent, ensure_ascii=False) + "\n")


def without_secrets(data: Any) -> Any:
    """Mask the secrets in a document. In the trees whose keys are the user's names, the keys are judged as well."""
    if isinstance(data, Mapping):
        of_user = _TREES_OF_USERS
        return {key: masked_value(one) if key in of_user else without_secrets(one) for key, one in data.items()}
    if isinstance(data, list | tuple):
        if data and all(isinstance(one, str) for one in data):
            return masked_argv(data)
        return [without_secrets(one) for one in data]
    return masked(data) if isinstance(data, str) else data


def envelope(
    kind: str, outcomes: Sequence[Outcome], verdict: str, code: int, seconds: float, snapshot: Snapshot
) -> Any:
    """The keys that all commands share. The command adds its own and declares the type of the whole document."""
    head: Envelope = {
        "schema": f"mgpu.{kind}/1.0",
        "mgpu": __version__,
        "time": snapshot.taken,
        "duration_s": round(seconds, 3),
        "verdict": verdict,
        "exit_code": code,
        "counts": counts(outcomes),
        "host": _host(snapshot),
        "plan": _plan(snapshot),
        "gpus": [_gpu(snapshot, place) for place in range(len(snapshot.gpus or ()))],
        "links": {"matrix": topology.matrix(snapshot), "p2p": p2p(snapshot)},
        "software": _software(snapshot),
        "env": dict(snapshot.env or {}),
        "checks": [check_json(outcome) for outcome in outcomes],
        "gaps": {fact: {"kind": gap.kind, "reason": gap.reason} for fact, gap in snapshot.gaps.items()},
    }
    return head


def p2p(snapshot: Snapshot) -> bool | None:
    """Whether all pairs of GPUs can access each other's memory; None if a pair is unknown, or there is no pair."""
    pairs = [(link.p2p_read, link.p2p_write) for link in snapshot.links or ()]
    if not pairs or any(None in pair for pair in pairs):
        return None
    return all(pair == (0, 0) for pair in pairs)


def _host(snapshot: Snapshot) -> HostEntry:
    host, slurm = snapshot.host, snapshot.slurm
    in_slurm = slurm and (slurm.job_id or slurm.commands_found)
    return {
        "name": host.name if host else None,
        "os": host.os if host else None,
        "kernel": host.kernel if host else None,
        "container": snapshot.container.kind if snapshot.container else None,
        "scheduler": {"kind": "slurm", "job": slurm.job_id} if slurm and in_slurm else None,
        "redacted": snapshot.redacted,
    }


def _plan(snapshot: Snapshot) -> PlanEntry:
    plan = snapshot.plan
    return {
        "nodes": plan.nodes if plan else 1,
        "expect_gpus": plan.expect_gpus if plan else None,
        "expect_free": plan.expect_free_bytes if plan else None,
    }


def _gpu(snapshot: Snapshot, place: int) -> GpuEntry:
    gpu, visible = (snapshot.gpus or ())[place], snapshot.visible
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "cc": list(gpu.compute_capability) if gpu.compute_capability else None,
        "mem_total": gpu.memory_total_bytes,
        "mem_free": gpu.memory_free_bytes,
        "pci": bus_address(gpu.pci) if gpu.pci else None,
        "numa": gpu.numa_node,
        "cpus": gpu.cpus_near,
        "nics": [{"name": name, "path": path} for name, path in topology.nics(snapshot, gpu)],
        "busy_by": [p.pid for p in gpu.processes or () if p.kind == "compute"],
        "mig": gpu.mig_mode,
        "ecc_errors": gpu.ecc_uncorrected_volatile,
        "lost": gpu.lost,
        "visible": visible is not None and gpu.index in visible.gpus,
    }


def _software(snapshot: Snapshot) -> SoftwareEntry:
    driver, pytorch, nccl, python = snapshot.driver, snapshot.pytorch, snapshot.nccl, snapshot.python
    libraries = nccl.libraries if nccl else ()
    return {
        "driver": driver.version if driver else None,
        "torch": pytorch.version if pytorch else None,
        "torch_cuda": pytorch.cuda if pytorch else None,
        "nccl": {"version": libraries[0].version, "source": libraries[0].origin} if libraries else None,
        "accelerate": (snapshot.packages or {}).get("accelerate"),
        "python": python.version if python else None,
        "interpreter": python.executable if python else None,
    }
