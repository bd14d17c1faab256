"""The JSON documents: a page with the fields of each, and its schema as a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.generate.markup import code, front, plain, table
from mgpu.cli import json_schema

_DOCUMENTS = {
    "doctor": (json_schema.doctor, "mgpu doctor --json-schema"),
    "smoke": (json_schema.smoke, "mgpu smoke-test --json-schema"),
    "preflight": (json_schema.preflight, "mgpu smoke-test --slurm --json-schema"),
    "run": (json_schema.run, "mgpu launch --json-schema"),
    "why": (json_schema.why, "mgpu launch --why --json-schema"),
    "case": (json_schema.case, "mgpu launch --report --json-schema"),
    "runs": (json_schema.status, "mgpu launch --status --json-schema"),
    "configure": (json_schema.configure, "mgpu configure --json-schema"),
    "configure-validate": (json_schema.validation, "mgpu configure --validate --json-schema"),
    "configure-plan": (json_schema.plan, "mgpu configure --plan --json-schema"),
    "configure-show-origin": (json_schema.origins, "mgpu configure --show-origin --json-schema"),
}
_HEAD = """\
# JSON

Scripts can rely on these documents. Fields may be added in 1.x, never renamed or removed. Each command prints the
schema (draft 2020-12) of its own document with `--json-schema`.

"""


def pages() -> dict[str, str]:
    """Return the page, and each schema."""
    schemas = {name: make() for name, (make, _) in _DOCUMENTS.items()}
    parts = [front("JSON", "The JSON documents of mgpu's commands, field by field, with their schemas."), _HEAD]
    for name, (_, command) in _DOCUMENTS.items():
        schema = schemas[name]
        parts.append(f"## mgpu.{name}\n")
        parts.append(f"{code(schema['title'])}. {plain(schema['description'])}\n")
        parts.append(f"Schema: [{name}.json](schemas/{name}.json), printed by {code(command)}.\n")
        parts.append(table(("Field", "Type", "Meaning"), _rows(schema)))
    files = {f"reference/schemas/{name}.json": json.dumps(schema, indent=2) for name, schema in schemas.items()}
    return {"reference/json.md": "\n".join(parts), **files}


def _rows(schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each field with those below it. `above`: the path of the object."""
    for name, field in schema.get("properties", {}).items():
        path = f"{above}{name}"
        optional = "" if name in schema.get("required", ()) else " (optional)"
        yield code(path), _type(field) + optional, plain(field.get("description", ""))
        yield from _rows(field, f"{path}.")
        yield from _rows(field.get("items", {}), f"{path}[].")
        for part in field.get("anyOf", ()):
            yield from _rows(part, f"{path}.")
            yield from _rows(part.get("items", {}), f"{path}[].")


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " ".join(map(code, field["enum"]))
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(part) for part in field["anyOf"]))
    kind = field.get("type", "any")
    if kind == "array":
        return f"array of {_type(field.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
