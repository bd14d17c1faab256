"""`mgpu configure --schema`: the JSON Schema of accelerate's config, against the configs here and accelerate itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mgpu import engine
from mgpu.config import reading
from mgpu.validate import run
from tests import test_bad_configs
from tests.conftest import ROOT, Run
from tests.test_bad_configs import machine_of

SCHEMA = engine.config_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
TEMPLATES = sorted((ROOT / "tests" / "templates").glob("*.yaml"))
# An editor must underline a file with one of these findings.
UNDERLINED = {
    "config_key_unknown", "config_key_removed", "config_key_outside_its_section", "config_key_of_the_command_line",
    "config_section_key_unknown", "config_section_key_renamed", "config_section_key_unread",
    "config_section_key_misplaced", "config_section_value_invalid", "config_precision_invalid",
    "config_gpu_ids_not_text", "config_boolean_is_text", "config_machines_invalid",
}  # fmt: skip


def values(path: Path) -> Any:
    return json.loads(json.dumps(reading.parse_config(path.read_bytes(), path.name).values, default=str))


def test_it_is_a_schema_with_a_text_for_every_key() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert SCHEMA["$id"] and SCHEMA["title"] and SCHEMA["description"]
    for key in SCHEMA["properties"].values():
        assert key["description"].endswith(".")
        assert all(one["description"].endswith(".") for one in key.get("properties", {}).values())


def test_the_command_prints_it(mgpu: Run) -> None:
    assert json.loads(mgpu("configure", "--schema").stdout) == SCHEMA


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_every_config_that_mgpu_writes_is_accepted(path: Path) -> None:
    assert not [error.message for error in VALIDATOR.iter_errors(values(path))]


def test_what_is_wrong_in_the_text_is_refused_and_what_is_right_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(test_bad_configs.FOLDER)
    underlined: set[str] = set()
    for path in test_bad_configs.CASES:
        raw = path.read_bytes()
        config = reading.parse_config(raw, path.name)
        if any(fault.fatal for fault in config.faults):
            continue
        outcomes = run.judge(config, machine_of(raw.decode("utf-8")))
        found = {one.check.id for one in outcomes if one.status in ("fail", "warn")}
        wrong = [error.message for error in VALIDATOR.iter_errors(values(path))]
        assert found or not wrong, (path.name, wrong)
        assert wrong or not found & UNDERLINED, (path.name, found & UNDERLINED)
        underlined |= found & UNDERLINED if wrong else set()
    assert underlined == UNDERLINED
