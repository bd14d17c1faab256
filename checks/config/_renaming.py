"""Which fix gives a key that nothing reads its right name, without a new fault?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mgpu.check import Edit, Fix
from mgpu.snapshot import Config

from ._schema import FSDP, LAUNCHERS, PARALLELISM, entries, fsdp_version, nested_keys, settings
from ._spelling import yaml_text
from ._value_kinds import Key, Section, integer, intended_value, value_fault
from .fsdp import FSDP1_ONLY
from .parallel import sizes_fit
from .wrapping import edits_for_wrapping, is_list_of_classes
from .zero_file import conflicts_with_file

_DEGREES = ("megatron_lm_tp_degree", "megatron_lm_pp_degree")


def is_unclear(key: Key, value: Any) -> bool:
    """Whether a value is invalid, and what it means is not clear."""
    return value_fault(key, value) is not None and intended_value(key, value) is None


def has_effect(config: Config, section: Section, value: Any, right: str) -> bool:
    """Whether a value would have an effect under another name, and leave the section valid."""
    key, values = section.keys[right], settings(config, section)
    meant = intended_value(key, value) if value_fault(key, value) else value
    if meant is None or (key.read and not key.read({**values, right: meant})):
        return False
    if section is FSDP and right in FSDP1_ONLY and fsdp_version(values) == 2:
        return False
    if right == "fsdp_transformer_layer_cls_to_wrap":
        return is_list_of_classes(meant)
    if right == "deepspeed_config_file":
        return isinstance(meant, str) and not conflicts_with_file(config)
    if right == "deepspeed_multinode_launcher":
        return meant in LAUNCHERS
    if right in _DEGREES:
        rest = integer(values.get(next(name for name in _DEGREES if name != right), 1)) or 1
        return config.num_processes is None or config.num_processes % ((integer(meant) or 1) * rest) == 0
    return True


def rename_fix(config: Config, section: Section, dotted: str, value: Any, right: str) -> Fix:
    """Return the fix that writes a value under its current name, in the form in which it is accepted."""
    key, to = section.keys[right], f"{section.name}.{right}"
    meant = intended_value(key, value) if value_fault(key, value) else value
    if section is PARALLELISM and not _sizes_would_fit(config, right, meant):
        return Fix(f"Rename it to {right}, and write sizes whose product is num_processes.")
    more = edits_for_wrapping(config, right)
    written = (
        f"Write it as {right}: {yaml_text(meant)}" + "".join(f" and {edit.key}: {edit.value}" for edit in more) + "."
    )
    changed = (Edit("set", to, meant),) if meant != value or type(meant) is not type(value) else ()
    return Fix(written, edits=(Edit("rename", dotted, to=to), *changed, *more))


def _sizes_would_fit(config: Config, key: str, value: Any) -> bool:
    name = PARALLELISM.name
    return sizes_fit(replace(config, values={**config.values, name: {**(config.values.get(name) or {}), key: value}}))


def move_fix(config: Config, section: Section, key: str, right: str) -> Fix | None:
    """Return the fix that moves a top-level key to its section; None if its value would be a fault there."""
    value = config.values[key]
    if value_fault(section.keys[right], value) or not has_effect(config, section, value, right):
        return None
    if section is PARALLELISM and not _sizes_would_fit(config, right, value):
        return None
    more = edits_for_wrapping(config, right)
    also = "".join(f", and write {edit.key}: {edit.value}" for edit in more)
    text = f"Move it to {section.name}" if right == key else f"Write it as {section.name}.{right}"
    return Fix(f"{text}{also}.", edits=(Edit("rename", key, to=f"{section.name}.{right}"), *more))


def _is_valid(key: str, value: Any) -> bool:
    return value_fault(PARALLELISM.keys[key], value) is None


def sizes_fix(config: Config, right: str) -> Fix:
    """Return the fix that renames all sizes together, if accelerate then accepts their product."""
    section = PARALLELISM
    own = [found for found in nested_keys(config) if found[0] is section and found[1] in section.renamed]
    free = [found for found in own if section.renamed[found[1]] not in entries(config, section)]
    valid = [found for found in free if _is_valid(section.renamed[found[1]], found[3])]
    names = {dotted: section.renamed[name] for _, name, dotted, _ in valid}
    values = {names.get(f"{section.name}.{key}", key): value for key, value in config.values[section.name].items()}
    if right not in values or not sizes_fit(replace(config, values={**config.values, section.name: values})):
        return Fix(f"Rename it to {right}, and write sizes whose product is num_processes.")
    edits = tuple(Edit("rename", dotted, to=f"{section.name}.{name}") for dotted, name in names.items())
    return Fix(
        f"Write them as {' and '.join(f'{name}: {yaml_text(values[name])}' for name in names.values())}.", edits=edits
    )
