"""Can the workers read the values of the nested keys?"""

from __future__ import annotations

from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, check
from mgpu.snapshot import Config

from ._config_file import PLUGINS, place_of, skip_if_unreadable
from ._schema import nested_keys, settings
from ._spelling import closest_name, yaml_text
from ._value_kinds import Key, Section, allowed_values, intended_value, launcher_fault, truth, value_fault

# Flags of which the other settings of a section usually allow one value only.
_ONLY = {"fsdp_sync_module_states": "true", "fsdp_activation_checkpointing_offload": "false"}


@check(Severity.ERROR, source=PLUGINS, given=skip_if_unreadable)
def config_section_value_invalid(config: Config) -> Answer:
    """A nested key has a value that the workers cannot read.

    Why: The launcher stops when it reads the value, or every worker does.
    More: accelerate launch does not check nested values. A worker stops with a KeyError or "invalid truth value" that
    names neither the file nor the key.

    Fix: Write one of the values listed in the message.
    """
    bad = []
    for section, name, dotted, value in nested_keys(config):
        key = section.keys.get(name)
        wrong = _fault_here(config, section, key, value) if key else None
        if key and wrong and key.kind != "truth":
            described = (wrong, _ONLY.get(name) or allowed_values(key))
            bad.append(_invalid_value_problem(config, key, dotted, value, described))
    return tuple(bad) or Ok("every nested value can be read")


@check(Severity.WARNING, source=PLUGINS, given=skip_if_unreadable)
def config_section_value_misread(config: Config) -> Answer:
    """A nested yes/no key has a value that accelerate reads as no.

    Why: accelerate only compares it with true.
    More: For these few keys, yes, on and 1 silently count as false, although other keys accept them.

    Fix: Write true or false.
    """
    truths = [found for found in nested_keys(config) if _kind(found[0], found[1]) == "truth"]
    bad = [found for found in truths if value_fault(found[0].keys[found[1]], found[3])]
    if not bad:
        return Ok("every yes/no is read as written")
    return tuple(
        Problem(
            f"{dotted}: {yaml_text(value)} counts as false",
            fix=_misread_fix(dotted, value),
            place=place_of(config, dotted),
        )
        for _, _, dotted, value in bad
    )


def _misread_fix(dotted: str, value: Any) -> Fix:
    meant = truth(value)
    return Fix("Write false, which is how it is read.") if meant is None else Fix(edits=(Edit("set", dotted, meant),))


def _kind(section: Section, name: str) -> str | None:
    return section.keys[name].kind if name in section.keys else None


def _fault_here(config: Config, section: Section, key: Key, value: Any) -> str | None:
    read = key.read is None or key.read(settings(config, section))
    return launcher_fault(key, value) or (value_fault(key, value) if read else None)


def _invalid_value_problem(config: Config, key: Key, dotted: str, value: Any, described: tuple[str, str]) -> Problem:
    """Return the problem of a value; `described`: what is wrong with it, and what the key accepts."""
    wrong, accepted = described
    words = [choice for choice in key.choices if not choice.isdecimal()]
    right = intended_value(key, value)
    likely = right if right is not None else (closest_name(str(value), words) if isinstance(value, str) else None)
    text = "Write " + (yaml_text(right) if right is not None else accepted) + "."
    edits: tuple[Edit, ...] = (Edit("set", dotted, right),) if right is not None else ()
    if value is None:
        text, edits = "Give it a value, or delete it to use the default.", (Edit("delete", dotted),)
    return Problem(
        _title(config, key, dotted, value, wrong)
        + (f". Did you mean {likely}?" if isinstance(likely, str) and value is not None else ""),
        fix=Fix(text, edits=edits),
        evidence={"key": dotted, "value": None if value is None else str(value)},
        place=place_of(config, dotted),
    )


def _title(config: Config, key: Key, dotted: str, value: Any, wrong: str) -> str:
    if value is None:
        return f"{dotted} {wrong}"
    scalar = config.scalars.get(dotted)
    if isinstance(value, bool) and key.kind == "choice" and scalar and scalar.text.lower() not in ("true", "false"):
        return f"{dotted}: YAML reads an unquoted {scalar.text} as {yaml_text(value)}"
    return f"{dotted}: {yaml_text(value)} {wrong}"
