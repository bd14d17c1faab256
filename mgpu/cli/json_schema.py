"""What may scripts rely on in the JSON of `mgpu doctor`, `smoke-test` and `launch`? JSON Schemas (draft 2020-12), for
`--json-schema`.

Closed sets (statuses, verdicts, kinds) are taken from the types of the program, so that they cannot differ. Readers
ignore what they do not know: a field may be added, never renamed or taken away.
"""

from __future__ import annotations

import json
import typing
from typing import Any

from mgpu import check, engine, snapshot
from mgpu.engine import verdict
from mgpu.smoke import report as smoke_report
from mgpu.smoke.ranks import RUNGS
from mgpu.snapshot import changes

URI = "https://json-schema.org/draft/2020-12/schema"


def one_of(kind: Any) -> dict[str, Any]:
    """The values of a Literal."""
    return {"type": "string", "enum": list(typing.get_args(kind))}


def _maybe(kind: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"type": [kind, "null"]}
    return {"anyOf": [kind, {"type": "null"}]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(required: dict[str, Any], **optional: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS = _list(_TEXT)
_WHOLE: dict[str, Any] = {"type": "integer"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_SECONDS: dict[str, Any] = {"type": "number", "minimum": 0, "description": "seconds"}
_BYTES: dict[str, Any] = {"type": ["integer", "null"], "description": "bytes"}
_YES: dict[str, Any] = {"type": "boolean"}
_ID: dict[str, Any] = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}


def _check() -> dict[str, Any]:
    edit = _object(
        {"kind": {"type": "string", "enum": ["set", "rename", "delete", "drop_line"]}, "key": _TEXT},
        value={"description": "of set: any JSON value"},
        to=_TEXT,
        line=_maybe("integer"),
    )
    fix = _object(
        {
            "who": one_of(check.Who),
            "text": _TEXT,
            "commands": {**_TEXTS, "description": "each pastes as it is"},
            "caveat": _maybe("string"),
            "kind": one_of(check.FixKind),
        },
        edits={**_list(edit), "description": "what configure --validate --fix does to the file; keys are dotted"},
    )
    return _object(
        {
            "id": _ID,
            "area": {**_ID, "description": "the family: a file in checks/"},
            "severity": {"type": "string", "enum": [severity.value for severity in check.Severity]},
            "status": one_of(engine.Status),
            "title": {**_TEXT, "description": "what is wrong; what was looked at; why it was skipped"},
            "cause": _maybe("string"),
            "evidence": {"type": "object", "additionalProperties": _SCALAR},
            "fix": _list(fix),
            "because_of": {**_list(_ID), "description": "problems of this run that explain this one"},
            "source": _TEXT,
            "verify": {**_TEXT, "description": "the command that asks again"},
            "duration_s": _SECONDS,
        },
        subjects={**_TEXTS, "description": "what it is about: GPU 3, eth0"},
        file=_TEXT,
        line=_maybe("integer"),
        column=_maybe("integer"),
        key=_maybe("string"),
        trace={**_TEXT, "description": "of a check that crashed"},
    )


def _gpu() -> dict[str, Any]:
    return _object({
        "index": {**_WHOLE, "description": "NVML's: PCI order, not CUDA's"},
        "uuid": _maybe("string"),
        "name": _maybe("string"),
        "cc": _maybe({**_list(_WHOLE), "minItems": 2, "maxItems": 2, "description": "compute capability"}),
        "mem_total": _BYTES,
        "mem_free": _BYTES,
        "pci": _maybe("string"),
        "numa": _maybe("integer"),
        "cpus": _maybe("string"),
        "nics": _list(_object({"name": _TEXT, "path": _maybe(one_of(snapshot.Distance))})),
        "busy_by": {**_list(_WHOLE), "description": "process ids that compute on it"},
        "mig": _maybe("boolean"),
        "ecc_errors": _maybe("integer"),
        "lost": {**_maybe("string"), "description": "NVML's code, where the GPU does not answer"},
        "visible": {**_YES, "description": "CUDA_VISIBLE_DEVICES leaves it"},
    })  # fmt: skip


def _envelope(kind: str, verdict: Any) -> dict[str, Any]:
    scheduler = _object({"kind": {"type": "string"}, "job": _maybe("string")})
    return {
        "schema": {"type": "string", "pattern": rf"^mgpu\.{kind}/1\.[0-9]+$"},
        "mgpu": _TEXT,
        "time": {"type": ["string", "null"], "description": "when the machine was looked at: ISO 8601, UTC"},
        "duration_s": _SECONDS,
        "verdict": one_of(verdict),
        "exit_code": {"type": "integer", "minimum": 0, "maximum": 255},
        "counts": _object(dict.fromkeys(typing.get_args(engine.Status), _COUNT)),
        "host": _object({
            "name": _maybe("string"),
            "os": _maybe("string"),
            "kernel": _maybe("string"),
            "container": _maybe("string"),
            "scheduler": _maybe(scheduler),
            "redacted": {**_YES, "description": "names, addresses, UUIDs and the like are substitutes"},
        }),
        "plan": _object({"nodes": _WHOLE, "expect_gpus": _maybe("integer"), "expect_free": _BYTES}),
        "gpus": _list(_gpu()),
        "links": _object({
            "matrix": {**_list(_TEXTS), "description": "as nvidia-smi topo -m names them; in the order of gpus[]"},
            "p2p": {**_maybe("boolean"), "description": "every pair reaches each other's memory"},
        }),
        "software": _object({
            "driver": _maybe("string"),
            "torch": _maybe("string"),
            "torch_cuda": _maybe("string"),
            "nccl": _maybe(_object({"version": _maybe("string"), "source": _TEXT})),
            "accelerate": _maybe("string"),
            "python": _maybe("string"),
            "interpreter": _maybe("string"),
        }),
        "env": {"type": "object", "additionalProperties": _TEXT},
        "checks": _list(_check()),
        "gaps": {
            "type": "object",
            "description": "facts that are not known, and why",
            "additionalProperties": _object({"kind": one_of(snapshot.GapKind), "reason": _TEXT}),
        },
        "next": {**_TEXTS, "description": "commands that come next"},
    }  # fmt: skip


def _triage() -> dict[str, Any]:
    """What is told of a run that failed: of a launch, or of a log."""
    failure = _object({
        "rank": _WHOLE, "host": _maybe("string"), "gpu": {**_maybe("integer"), "description": "NVML's index"},
        "signal": _maybe("string"), "exit": {**_maybe("integer"), "description": "128 + N for a signal N"},
        "exception": _maybe("string"), "place": {**_maybe("string"), "description": "train.py:41 in main"},
        "line": {**_maybe("integer"), "description": "of the log, where the exception stands"},
    })  # fmt: skip
    fix = _object({
        "who": one_of(check.Who), "text": _TEXT, "commands": _TEXTS, "caveat": _maybe("string"),
        "kind": one_of(check.FixKind),
    })  # fmt: skip
    cause = _object({
        "id": _ID, "role": one_of(check.Role), "kind": one_of(check.Kind), "title": _TEXT, "cause": _TEXT,
        "evidence": {"type": "object", "additionalProperties": _SCALAR}, "subjects": _TEXTS,
        "file": _maybe("string"), "line": _maybe("integer"), "fix": _list(fix),
    })  # fmt: skip
    return {
        "first_failure": _maybe(failure),
        "probable_cause": _maybe(cause),
        "secondary": {**_list(cause), "description": "what followed from it, or came later"},
        "log": _maybe(_object({"files": _TEXTS, "lines": _COUNT, "bytes": _COUNT})),
    }


def doctor() -> dict[str, Any]:
    """The schema of `mgpu.doctor/1.x`."""
    change = _object({
        "fact": _ID,
        "what": _TEXT,
        "kind": one_of(changes.Kind),
        "before": _SCALAR,
        "after": _SCALAR,
        "text": _TEXT,
    })  # fmt: skip
    repair = _object({"id": _ID, "title": _TEXT, "command": _TEXT, "done": _YES, "text": _TEXT})
    return {
        "$schema": URI,
        "$id": "mgpu.doctor/1.0",
        "title": "mgpu doctor --json",
        "description": "Bytes are integers, seconds numbers. Fields may be added in 1.x, never renamed or removed.",
        **_object(
            _envelope("doctor", verdict.Verdict),
            changes={**_list(change), "description": "with --compare"},
            repairs={**_list(repair), "description": "with --fix"},
            fleet={**_fleet(), "description": "with --compare-nodes"},
            **_triage(),
            error={**_TEXT, "description": "nothing could be judged: why"},
        ),
    }


def _fleet() -> dict[str, Any]:
    """Many nodes, compared. `nodes` is in Slurm's form: n[1-3,7]."""
    number: dict[str, Any] = {"type": "number"}
    difference = _object({
        "key": {**_TEXT, "description": "dotted, as in a saved machine"},
        "what": _TEXT,
        "value": {**_maybe("string"), "description": "null: it is not there, or not known"},
        "usual": {**_maybe("string"), "description": "that of most nodes of the role"},
    })  # fmt: skip
    one = _object({
        "role": _TEXT, "nodes": _TEXT, "count": _COUNT, "of": _COUNT,
        "second_population": {**_YES, "description": "so many that they are no outliers"},
        "tied": {**_YES, "description": "as many have the one value as the other: which is right is not known"},
        "differences": _list(difference),
    })  # fmt: skip
    outlier = _object({
        "node": _TEXT, "key": _TEXT, "what": _TEXT, "value": number, "median": number,
        "deviation": {**number, "description": "in robust standard deviations (1.4826 MAD)"}, "unit": _TEXT,
    })  # fmt: skip
    return _object({
        "nodes": _TEXT,
        "count": _COUNT,
        "compared": {**_COUNT, "description": "facts of each node"},
        "missing": {"type": "object", "additionalProperties": _TEXT, "description": "node: why it was not examined"},
        "roles": _list(_object({"role": _TEXT, "nodes": _TEXT, "count": _COUNT})),
        "classes": {**_list(one), "description": "nodes that differ from most of their role in the same facts"},
        "outliers": _list(outlier),
        "failing": {**_TEXTS, "description": "nodes that failures are about"},
        "exclude": {**_TEXT, "description": "the same, for Slurm's --exclude="},
        "not_compared": {**_TEXTS, "description": "facts that are another on nearly every node"},
        "unread": {
            "type": "object", "additionalProperties": _TEXT, "description": "fact that no node of a kind knows: why",
        },
        "strangers": {**_TEXTS, "description": "files that were never a machine, and are no node's"},
    })  # fmt: skip


_NUMBER: dict[str, Any] = {"type": "number"}
_NUMBERS: dict[str, Any] = {"type": "object", "additionalProperties": _NUMBER}


def _rank() -> dict[str, Any]:
    texts = ("host", "device", "gpu", "gpu_name", "pci", "last_word", "state", "kind", "error")
    numbers = ("local_rank", "pid", "numa", "world_size", "accelerate_world_size", "exit")
    return _object({
        "rank": _WHOLE,
        **{name: _maybe("string") for name in texts},
        **{name: _maybe("integer") for name in numbers},
        "measured": {**_NUMBERS, "description": "units stand in the names"},
    })  # fmt: skip


def _of_ranks() -> dict[str, Any]:
    """What the ranks did; absent where none was started."""
    pair = _object({
        "ranks": _list(_WHOLE), "ok": _maybe("boolean"), "detail": _maybe("string"), "gb_per_s": _maybe("number"),
        "latency_s": _maybe("number"),
    })  # fmt: skip
    bandwidth = _object({
        "collective": _ID, "backend": _TEXT, "ranks": _COUNT, "size_bytes": _COUNT, "seconds_p50": _SECONDS,
        "seconds_p99": _SECONDS, "algbw_gb_per_s": _NUMBER, "busbw_gb_per_s": _NUMBER,
    })  # fmt: skip
    scaling = _object({
        "ranks": _COUNT, "samples_per_s": _NUMBER, "seconds_per_step": _SECONDS, "compute_seconds": _SECONDS,
        "efficiency": _maybe("number"),
    })  # fmt: skip
    trial = _object({
        "change": _TEXT, "ok": _maybe("boolean"), "detail": _maybe("string"), "seconds": _maybe("number"),
        "environment": {"type": "object", "additionalProperties": _TEXT}, "gpus": _list(_WHOLE),
        "busbw_gb_per_s": _maybe("number"),
    })  # fmt: skip
    culprit = _object({
        "rank": _maybe("integer"), "gpu": _maybe("string"), "host": _maybe("string"),
        "rung": {"type": "string", "enum": list(RUNGS)}, "collective": _maybe("string"), "last_word": _maybe("string"),
        "state": _maybe("string"), "stack": _maybe("string"), "stack_from": _maybe("string"),
    })  # fmt: skip
    stage = _object({
        "name": {"type": "string", "enum": list(RUNGS)}, "status": one_of(smoke_report.StageStatus),
        "seconds": _maybe("number"), "detail": _maybe("string"),
    })  # fmt: skip
    return {
        "stages": {**_list(stage), "description": "every rung, in order"},
        "ranks": {**_list(_rank()), "description": "those of this machine"},
        "pairs": _list(pair),
        "bandwidth": {**_list(bandwidth), "description": "algbw and busbw as nccl-tests defines them, decimal GB"},
        "scaling": {**_list(scaling), "description": "at a fixed micro-batch"},
        "skipped": {**_TEXTS, "description": "what could not be tried here, and why"},
        "culprit": _maybe(culprit),
        "diagnosis": {**_list(trial), "description": "the failed rung again, one change at a time"},
        "config": _maybe(_object({"path": _TEXT, "sha256": _maybe("string")})),
        "stamp": {**_maybe("string"), "description": "the file a pass was recorded in"},
        "logs": {**_maybe("string"), "description": "the run folder"},
    }


def smoke() -> dict[str, Any]:
    """The schema of `mgpu.smoke/1.x`."""
    return {
        "$schema": URI,
        "$id": "mgpu.smoke/1.0",
        "title": "mgpu smoke-test --json",
        "description": "Bytes are integers, seconds numbers. Fields may be added in 1.x, never renamed or removed.",
        **_object(
            {**_envelope("smoke", verdict.SmokeVerdict), **_of_ranks()},
            level=_ID,
            strategy=_ID,
            precision=_ID,
            accumulate=_COUNT,
            cpu={**_YES, "description": "the ranks ran on the CPU"},
            world={**_COUNT, "description": "ranks on all machines"},
            nodes=_COUNT,
            node=_COUNT,
            ended={"type": "string", "enum": ["finished", "stalled", "timed_out", "died", "interrupted"]},
            left=_object({
                "processes": _list(_WHOLE),
                "files": _TEXTS,
                "gpu_memory": {"type": "object", "additionalProperties": _WHOLE},
                "port": _maybe("integer"),
            }),
            error={**_TEXT, "description": "no rank was started: why"},
        ),
    }  # fmt: skip


def preflight() -> dict[str, Any]:
    """The schema of `mgpu.preflight/1.x`."""
    from mgpu.fleet.stages import StageStatus

    bad = _object({
        "node": _TEXT, "stage": _ID, "id": {**_maybe(_ID), "description": "of the check; null: it gave no answer"},
        "reason": _TEXT, "fix": _maybe("string"),
    })  # fmt: skip
    stage = _object({
        "name": _ID, "status": one_of(StageStatus), "seconds": _maybe(_SECONDS), "detail": _TEXT,
    })  # fmt: skip
    counts = _object(dict.fromkeys(typing.get_args(engine.Status), _COUNT))
    return {
        "$schema": URI,
        "$id": "mgpu.preflight/1.0",
        "title": "mgpu smoke-test --slurm --json",
        "description": "Seconds are numbers. Fields may be added in 1.x, never renamed or removed.",
        **_object(
            {
                "schema": {"type": "string", "pattern": r"^mgpu\.preflight/1\.[0-9]+$"},
                "mgpu": _TEXT,
                "time": {**_TEXT, "description": "of its end: ISO 8601, UTC"},
                "duration_s": _SECONDS,
                "verdict": {"type": "string", "enum": ["passed", "failed", "unknown"]},
                "exit_code": {"type": "integer", "minimum": 0, "maximum": 255},
                "counts": counts,
                "checks": {**_list(_check()), "description": "on the nodes as a whole; `subjects` are nodes"},
                "job": _TEXT,
                "nodes": {**_TEXTS, "description": "of the job, in its order"},
                "need": {**_maybe("integer"), "description": "so many good nodes are enough"},
                "good": _TEXTS,
                "chosen": {**_TEXTS, "description": "the nodes of the training; none: it is not started"},
                "bad": _list(bad),
                "exclude": {**_maybe("string"), "description": "for sbatch: --exclude=n[3,7]"},
                "trouble": {**_maybe("string"), "description": "why good nodes do not train together"},
                "stages": _list(stage),
                "logs": {**_maybe("string"), "description": "the folder of its files"},
            },
            error={**_TEXT, "description": "the nodes could not be judged: why"},
        ),
    }


def run() -> dict[str, Any]:
    """The schema of `mgpu.run/1.x`; a launch that was refused has a phase, an exit code and a reason alone."""
    rank = _object({
        "rank": _WHOLE, "exit": _maybe("integer"), "signal": _maybe("string"), "gpu": _maybe("integer"),
        "host": _maybe("string"), "pid": _maybe("integer"), "error": _maybe("string"), "state": _maybe("string"),
    })  # fmt: skip
    gpu = _object({
        "index": _WHOLE, "uuid": _TEXT, "rank": _maybe("integer"), "busy_percent": _maybe("number"), "peak": _BYTES,
        "mem_total": _BYTES,
    })  # fmt: skip
    return {
        "$schema": URI,
        "$id": "mgpu.run/1.0",
        "title": "mgpu launch --json-result",
        "description": "Bytes are integers, seconds numbers. Fields may be added in 1.x, never renamed or removed.",
        **_object(
            {
                "schema": {"type": "string", "pattern": r"^mgpu\.run/1\.[0-9]+$"},
                "mgpu": _TEXT,
                "time": {**_TEXT, "description": "of its end: ISO 8601, UTC"},
                "phase": {"type": "string", "enum": ["preflight", "training"]},
                "exit_code": {"type": "integer", "minimum": 0, "maximum": 255},
            },
            error={**_TEXT, "description": "nothing was started: why"},
            checks={**_list(_check()), "description": "nothing was started: the problems"},
            launcher_code={**_WHOLE, "description": "the launcher's own; negative for a signal"},
            signalled={**_maybe("string"), "description": "mgpu was asked to stop it: SIGINT"},
            timed_out=_YES,
            triage=_YES,
            command={**_TEXTS, "description": "secrets masked"},
            env_added={"type": "object", "additionalProperties": _TEXT},
            duration_s=_SECONDS,
            ranks={**_list(rank), "description": "those of this machine"},
            gpus=_list(gpu),
            peak_memory={**_TEXT, "description": "of the fullest GPU, in words"},
            busy={**_TEXT, "description": "how much the GPUs worked, in words"},
            gpus_gap={**_maybe("string"), "description": "why GPUs were not watched, or not to the end"},
            remarks={**_list(_check()), "description": "what is to be said of the GPUs' work"},
            oom_kills=_maybe("integer"),
            memory_lowest={**_BYTES, "description": "of the machine or the control group, free at the least"},
            left_over={**_COUNT, "description": "processes that mgpu had to end afterwards"},
            log_trouble={**_maybe("string"), "description": "why the log could not be read"},
            logs={**_TEXT, "description": "the run's folder"},
            again={**_TEXT, "description": "the command, secrets masked"},
            **_triage(),
        ),
    }


def show(schema: dict[str, Any] | None = None) -> int:
    """`--json-schema`."""
    print(json.dumps(doctor() if schema is None else schema, indent=2))
    return 0
