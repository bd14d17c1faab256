"""What can scripts rely on in the JSON of `mgpu doctor`, `configure`, `smoke-test` and `launch`?

JSON Schemas (draft 2020-12) for `--json-schema`, generated from the types of the documents (`report/json_types.py`).
"""

from __future__ import annotations

import json
import types
import typing
from typing import Annotated, Any, Literal

from mgpu.engine import verdict

URI = "https://json-schema.org/draft/2020-12/schema"
_NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}
_KEPT = "Fields may be added in 1.x, never renamed or removed."


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        notes = [("description", note) if isinstance(note, str) else note for note in parts[1:]]
        return schema_of(parts[0]) | {key: list(value) if isinstance(value, tuple) else value for key, value in notes}
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": schema_of(parts[0])}
    if origin is dict and typing.get_origin(parts[0]) is Literal:
        keys = typing.get_args(parts[0])
        return {"type": "object", "required": list(keys), "properties": {key: schema_of(parts[1]) for key in keys}}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if origin in (typing.Union, types.UnionType):
        found = [schema_of(part) for part in parts]
        alone = all(set(one) == {"type"} for one in found)
        return {"type": [one["type"] for one in found]} if alone else {"anyOf": found}
    if typing.is_typeddict(kind):
        fields = typing.get_type_hints(kind, include_extras=True)
        required = [name for name in fields if name in kind.__required_keys__]
        return {
            "type": "object",
            "required": required,
            "properties": {name: schema_of(fields[name]) for name in fields},
        }
    return {} if kind is Any else {"type": _NAMES[kind]}


def _document(name: str, command: str, kind: Any, verdicts: Any = None, *, units: str) -> dict[str, Any]:
    """The schema of a whole document, with its name and the verdicts of its command."""
    found = schema_of(kind)
    found["properties"]["schema"]["pattern"] = rf"^mgpu\.{name}/1\.[0-9]+$"
    if verdicts:
        found["properties"]["verdict"] = schema_of(verdicts)
    return {"$schema": URI, "$id": f"mgpu.{name}/1.0", "title": command, "description": f"{units} {_KEPT}", **found}


_BYTES_AND_SECONDS = "Bytes are integers, seconds numbers."


def doctor() -> dict[str, Any]:
    """The schema of `mgpu.doctor/1.x`."""
    from mgpu.doctor.doctor_json import DoctorDocument

    return _document("doctor", "mgpu doctor --json", DoctorDocument, verdict.Verdict, units=_BYTES_AND_SECONDS)


def configure() -> dict[str, Any]:
    """The schema of `mgpu.configure/1.x` of a config that was written."""
    from mgpu.wizard.configure_json import WrittenDocument

    return _document("configure", "mgpu configure --json", WrittenDocument, units=_BYTES_AND_SECONDS)


def plan() -> dict[str, Any]:
    """The schema of `mgpu.configure/1.x` of `--plan`."""
    from mgpu.wizard.configure_json import PlanDocument

    return _document("configure", "mgpu configure --plan --json", PlanDocument, units=_BYTES_AND_SECONDS)


def validation() -> dict[str, Any]:
    """The schema of `mgpu.configure/1.x` of `--validate` for one file; several are in the `files` of one document."""
    from mgpu.validate.validate_json import ConfigDocument

    command = "mgpu configure --validate --json"
    return _document("configure", command, ConfigDocument, verdict.ConfigVerdict, units=_BYTES_AND_SECONDS)


def origins() -> dict[str, Any]:
    """The schema of `mgpu.configure/1.x` of `--show-origin`."""
    from mgpu.validate.validate_json import OriginsDocument

    command = "mgpu configure --show-origin --json"
    return _document("configure", command, OriginsDocument, units="Lines and columns start at 1.")


def smoke() -> dict[str, Any]:
    """The schema of `mgpu.smoke/1.x`."""
    from mgpu.smoke.smoke_json import SmokeDocument

    return _document("smoke", "mgpu smoke-test --json", SmokeDocument, verdict.SmokeVerdict, units=_BYTES_AND_SECONDS)


def preflight() -> dict[str, Any]:
    """The schema of `mgpu.preflight/1.x`."""
    from mgpu.fleet.fleet_json import PreflightDocument

    command = "mgpu smoke-test --slurm --json"
    return _document("preflight", command, PreflightDocument, verdict.SmokeVerdict, units="Seconds are numbers.")


def run() -> dict[str, Any]:
    """The schema of `mgpu.run/1.x`. A refused launch has only a phase, an exit code and a reason."""
    from mgpu.launch.run_json import RunDocument

    return _document("run", "mgpu launch --json-result", RunDocument, units=_BYTES_AND_SECONDS)


def status() -> dict[str, Any]:
    """The schema of `mgpu.runs/1.x`."""
    from mgpu.launch.run_json import StatusDocument

    return _document("runs", "mgpu launch --status --json-result", StatusDocument, units=_BYTES_AND_SECONDS)


def why() -> dict[str, Any]:
    """The schema of `mgpu.why/1.x`."""
    from mgpu.launch.run_json import WhyDocument

    return _document("why", "mgpu launch --why --json-result", WhyDocument, units=_BYTES_AND_SECONDS)


def case() -> dict[str, Any]:
    """The schema of `mgpu launch --report`, and of case.json in an archive."""
    from mgpu.report.case.case_json import CaseDocument

    command = "mgpu launch --report --json-result"
    return _document("case", command, CaseDocument, verdict.Verdict, units=_BYTES_AND_SECONDS)


def show(schema: dict[str, Any] | None = None) -> int:
    """Print a schema (`--json-schema`); the doctor's by default."""
    print(json.dumps(doctor() if schema is None else schema, indent=2))
    return 0
