"""Does dynamo_config take effect?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._config_file import ARGS, LAUNCH, is_readable, place_of
from ._schema import DYNAMO, enables_compilation, entries, settings
from ._spelling import yaml_text


@check(Severity.WARNING, source=ARGS)
def config_compile_said_twice(config: Config) -> Answer:
    """The config has both dynamo_backend and dynamo_config.

    Why: The loader builds a new section from the old key and drops the one in the file.
    More: Its mode, dynamic shapes and other settings are lost.

    Fix: Delete the top-level dynamo_backend.
    """
    if not is_readable(config) or "dynamo_backend" not in config.values:
        return Skip("no dynamo_backend at the top level")
    section = config.values.get("dynamo_config")
    if not isinstance(section, Mapping) or not section:
        return Ok("no dynamo_config")
    old = config.values["dynamo_backend"]
    inner = {DYNAMO.canonical(key): value for key, value in section.items()}.get("dynamo_backend")
    same = isinstance(old, str) and isinstance(inner, str) and old.upper() == inner.upper()
    return Problem(
        f"dynamo_config is not applied: the top-level dynamo_backend: {yaml_text(old)} replaces it",
        fix=Fix(edits=(Edit("delete", "dynamo_backend"),) if same else ()),
        place=place_of(config, "dynamo_config"),
    )


@check(Severity.WARNING, source=LAUNCH)
def config_compile_off(config: Config) -> Answer:
    """dynamo_config has settings but does not turn on compilation.

    Why: The model is not compiled.
    More: Without dynamo_backend, or with NO, the mode and the other settings have no effect.

    Fix: Write dynamo_config.dynamo_backend: INDUCTOR, or delete the section.
    """
    values: Mapping[str, Any] = settings(config, DYNAMO) if is_readable(config) else {}
    if not values or "dynamo_backend" in config.values:
        return Skip("the config has no dynamo_config that applies")
    idle = {"dynamo_mode": ("default",), "dynamo_backend": (values.get("dynamo_backend"),)}
    requested = [
        key for key, value in values.items() if key in DYNAMO.keys and value not in (*idle.get(key, ()), False, None)
    ]
    if enables_compilation(values) or not requested or "dynamo_backend" in values:
        return Ok("its settings take effect")
    at = entries(config, DYNAMO)[requested[0]]
    return Problem(
        f"{at}: {yaml_text(values[requested[0]])} has no effect without dynamo_backend", place=place_of(config, at)
    )
