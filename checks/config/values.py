"""Can the workers read the values of the nested keys?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, check
from mgpu.snapshot import Config

from ._config_file import PLUGINS, place_of, skip_if_unreadable
from ._schema import nested_keys, settings
from ._spelling import closest_name, intended_name, yaml_text
from ._value_kinds import Key, Section, launcher_fault, truth, value_fault


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
            bad.append(_invalid_value_problem(config, key, dotted, value, wrong))
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
            fix=Fix(edits=(Edit("set", dotted, truth(value)),) if truth(value) is not None else ()),
            place=place_of(config, dotted),
        )
        for _, _, dotted, value in bad
    )


def _kind(section: Section, name: str) -> str | None:
    return section.keys[name].kind if name in section.keys else None


def _fault_here(config: Config, section: Section, key: Key, value: Any) -> str | None:
    read = key.read is None or key.read(settings(config, section))
    return launcher_fault(key, value) or (value_fault(key, value) if read else None)


def _invalid_value_problem(config: Config, key: Key, dotted: str, value: Any, wrong: str) -> Problem:
    words = [choice for choice in key.choices if not choice.isdecimal()]
    right = _intended_value(key, value)
    likely = right if right is not None else (closest_name(str(value), words) if isinstance(value, str) else None)
    text = "Write " + (yaml_text(right) if right is not None else _allowed_values(key, words)) + "."
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


def _intended_value(key: Key, value: Any) -> str | int | list[bool] | None:
    """Return the only value that can be meant; None if it is not clear."""
    if key.kind == "triple" and value is False:
        return [False] * 3
    if isinstance(value, bool):
        none = next((choice for choice in key.choices if choice.lower() in ("none", "no")), None)
        return none if value is False and key.kind == "choice" else None
    if key.kind == "triple":
        words = re.findall(r"true|false", str(value).lower())
        return [word == "true" for word in words] if len(words) == 3 else None
    if key.kind in ("integer", "count"):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        whole = int(number) if number.is_integer() and abs(number) < 1e15 else None
        return whole if whole is not None and value_fault(key, whole) is None else None
    return (
        intended_name(value, [choice for choice in key.choices if not choice.isdecimal()])
        if isinstance(value, str)
        else None
    )


def _allowed_values(key: Key, words: list[str]) -> str:
    if key.kind == "choice":
        return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1]
    kinds = {"flag": "true or false", "number": "a number", "triple": "[false, false, false]"}
    return kinds.get(key.kind, "a whole number" if key.most is None else f"a number from {key.least} to {key.most}")
