"""Does this type use the nested sections, and does anything read each of their keys?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config
from mgpu.text import counted, listed

from ._config_file import BROKEN, LAUNCH, PLUGINS, is_readable, place_of, skip_if_unreadable, type_name
from ._renaming import has_effect, is_unclear, rename_fix, sizes_fix
from ._schema import (
    DEEPSPEED,
    DEEPSPEED_JSON,
    DYNAMO,
    FP8,
    FSDP,
    LAUNCHER,
    MEGATRON,
    PARALLELISM,
    SECTIONS,
    enables_compilation,
    entries,
    is_applied,
    nested_keys,
    precision,
    settings,
)
from ._spelling import closest_name, intended_name, yaml_text
from ._value_kinds import Section, value_fault

_CONFIG_DOCS = "https://huggingface.co/docs/accelerate/package_reference/cli"


@check(Severity.ERROR, source=LAUNCH)
def config_section_unreadable(config: Config) -> Answer:
    """deepspeed_config is not a mapping of keys.

    Why: accelerate launch stops with AttributeError.
    More: With distributed_type DEEPSPEED it reads the keys of the section.

    Fix: Write its keys below it, indented. Name a DeepSpeed file with deepspeed_config_file.
    """
    if not is_readable(config) or config.distributed_type != "DEEPSPEED":
        return Skip(BROKEN if not is_readable(config) else "the type is not DEEPSPEED")
    value = config.values.get(DEEPSPEED.name)
    if value is None or isinstance(value, Mapping):
        return Ok("deepspeed_config has keys")
    return Problem(
        f"deepspeed_config is {_value_form(value)}, not keys with values", place=place_of(config, DEEPSPEED.name)
    )


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_section_not_mapping(config: Config) -> Answer:
    """A nested section is not a mapping of keys.

    Why: accelerate silently uses the defaults.
    More: It skips a section that is not a mapping.

    Fix: Indent its keys below the section's name.
    """
    values = {section.name: config.values.get(section.name) for section in SECTIONS}
    if config.distributed_type == "DEEPSPEED":
        del values[DEEPSPEED.name]  # reported by config_section_unreadable
    bad = {name: value for name, value in values.items() if value and not isinstance(value, Mapping)}
    if not bad:
        return Ok(f"{counted(sum(bool(value) for value in values.values()), 'section')} with keys")
    return tuple(
        Problem(
            f"{name} is {_value_form(value)}, not keys with values: accelerate ignores it",
            fix=Fix(f"Write {name}: and below it, indented, one key: value per line."),
            place=place_of(config, name),
        )
        for name, value in bad.items()
    )


def _value_form(value: Any) -> str:
    return "a list" if isinstance(value, list) else yaml_text(value)


@check(Severity.WARNING, source=LAUNCH)
def config_section_ignored(config: Config) -> Answer:
    """The config has a section that its distributed_type ignores.

    Why: fsdp_config applies only with distributed_type FSDP, deepspeed_config only with DEEPSPEED. With MULTI_GPU the
    run is plain DDP, whatever the section says.

    Fix: Delete the section, or change the type.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    there = [section for section in SECTIONS if isinstance(config.values.get(section.name), Mapping)]
    bad = [section for section in there if config.values[section.name] and not is_applied(config, section)]
    bad = [section for section in bad if section is not DYNAMO or enables_compilation(_by_name(config, section))]
    found = [_ignored_section_problem(config, section) for section in bad]
    old = config.values.get("dynamo_backend")  # at the top level, as before 0.17
    if enables_compilation({"dynamo_backend": old}) and config.distributed_type not in DYNAMO.types:
        found.append(_not_compiled_problem(config, "dynamo_backend", f"dynamo_backend: {yaml_text(old)}"))
    return tuple(found) or Ok("every section belongs to the type")


def _by_name(config: Config, section: Section) -> dict[str, Any]:
    return {section.canonical(key): value for key, value in config.values[section.name].items()}


def _ignored_section_problem(config: Config, section: Section) -> Problem:
    name, kind = section.name, config.distributed_type
    if section is DYNAMO:
        return _not_compiled_problem(config, name, name)
    what, why = type_name(config), f"It applies only with {', '.join(section.types)}."
    if section is FP8 and kind in section.types:
        what, why = f"mixed_precision {precision(config)}", "It applies only with mixed_precision: fp8."
    fix = "Delete the section."
    if any(_is_of_deepspeed(section, f"{name}.{key}") for key in config.values[name]):
        fix = (
            "Delete the section. To use these settings, move them to a JSON file, name it in deepspeed_config_file, "
            "and write distributed_type: DEEPSPEED."
        )
    return Problem(f"{name} is ignored with {what}", why, Fix(fix), place=place_of(config, name))


def _not_compiled_problem(config: Config, key: str, what: str) -> Problem:
    return Problem(
        f"{what} is ignored with {type_name(config)}",
        "With this type, the launcher does not export it, so nothing is compiled.",
        Fix("Compile in the script (torch.compile, or Trainer's torch_compile), and delete it here."),
        place=place_of(config, key),
    )


@check(Severity.INFO, source=_CONFIG_DOCS)
def config_section_missing(config: Config) -> Answer:
    """The config lacks the section for its type.

    Why: accelerate then uses its defaults: FSDP 1 with the whole model as one unit, ZeRO-2 without offloading, Megatron
    without any parallelism. Unless the script passes its own plugin, that is rarely intended.

    Fix: Write the section.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    defaults = (
        (FSDP, "FSDP 1, the whole model as one unit"),
        (DEEPSPEED, "ZeRO-2, no offloading"),
        (MEGATRON, "no parallelism"),
    )
    for section, default in defaults:
        if config.distributed_type in section.types and not config.values.get(section.name):
            return Problem(
                f"{type_name(config)} without {section.name}",
                f"accelerate uses its defaults: {default}.",
                Fix(f"Write {section.name}, unless the script passes its own plugin.", ("mgpu configure",)),
                place=place_of(config, "distributed_type"),
            )
    return Ok(f"{config.distributed_type} has the section it needs")


@check(Severity.WARNING, source="measured accelerate 1.15 torch 2.13 2026-11", given=skip_if_unreadable)
def config_section_key_unknown(config: Config) -> Answer:
    """A nested section has a key that accelerate does not recognize.

    Why: accelerate does not check names below the top level. It accepts the key, but nothing reads it, so the setting
    has no effect.

    Fix: Correct the name. DeepSpeed's own settings belong in its JSON file.
    """
    unknown = [found for found in nested_keys(config) if _is_unknown(found[0], found[1])]
    if not unknown:
        return Ok(f"{counted(sum(1 for _ in nested_keys(config)), 'nested key')}, all known")
    of_deepspeed = [found[2] for found in unknown if _is_of_deepspeed(found[0], found[2])]
    if len(of_deepspeed) < 2:
        return tuple(_unknown_key_problem(config, *found) for found in unknown)
    others = [found for found in unknown if found[2] not in of_deepspeed]
    return (_keys_of_deepspeed(config, of_deepspeed), *(_unknown_key_problem(config, *found) for found in others))


def _is_of_deepspeed(section: Section, dotted: str) -> bool:
    return section is DEEPSPEED and dotted.removeprefix(f"{section.name}.") in DEEPSPEED_JSON


def _keys_of_deepspeed(config: Config, keys: Sequence[str]) -> Problem:
    """One problem for all keys that belong in DeepSpeed's own file."""
    names = [key.removeprefix(f"{DEEPSPEED.name}.") for key in keys]
    names = names if len(names) < 7 else [*names[:5], f"{len(names) - 5} more"]
    lines = listed(place_of(config, key).line for key in keys)
    return Problem(
        f"{listed(names)} in {DEEPSPEED.name} are not applied: they belong in DeepSpeed's own JSON file",
        f"accelerate accepts any key in a section and silently ignores unknown ones (lines {lines})."
        + _stage_instead(config),
        Fix("Move them to a JSON file, and name it in deepspeed_config_file."),
        {"key": keys[0], "keys": listed(keys)},
        place=place_of(config, keys[0]),
    )


def _stage_instead(config: Config) -> str:
    """Return the stage that a run uses instead of that in an ignored zero_optimization, as a sentence; "" without."""
    values = settings(config, DEEPSPEED)
    if "zero_optimization" not in values or values.get("deepspeed_config_file") is not None:
        return ""
    stage = values.get("zero_stage")
    return f" The run uses ZeRO stage {2 if stage is None else stage}."


def _is_unknown(section: Section, name: str) -> bool:
    known = name in section.keys or name in section.renamed or name in section.unread
    return not known and (section.root != "" or name not in LAUNCHER)


def _unknown_key_problem(config: Config, section: Section, name: str, dotted: str, value: Any) -> Problem:
    written = dotted.removeprefix(f"{section.name}.")
    right = None if written in DEEPSPEED_JSON else closest_name(name, section.keys, section.prefix)
    why = "it belongs in DeepSpeed's own JSON file" if written in DEEPSPEED_JSON else "accelerate has no such key"
    return Problem(
        f"{dotted} is not applied: {why}" + (f". Did you mean {right}?" if right else ""),
        "accelerate accepts any key in a section and silently ignores unknown ones."
        + (_stage_instead(config) if written == "zero_optimization" else ""),
        _unknown_key_fix(config, (section, name, dotted, value), right),
        {"key": dotted},
        place=place_of(config, dotted),
    )


def _unknown_key_fix(config: Config, found: tuple[Section, str, str, Any], right: str | None) -> Fix:
    """Return the fix for a key that has no effect in this section: its right name, or the place where it has one."""
    section, name, dotted, value = found
    written = dotted.removeprefix(f"{section.name}.")
    if right and right not in entries(config, section) and has_effect(config, section, value, right):
        sure = intended_name(name.removeprefix(section.prefix), [right.removeprefix(section.prefix)]) is not None
        renaming = rename_fix(config, section, dotted, value, right)
        if renaming.edits:
            return renaming if sure else Fix(f"{renaming.text.removesuffix('.')}, or delete {written}.")
    other = next((home for home in SECTIONS if home is not section and _accepts(config, home, written, value)), None)
    if section is DEEPSPEED and written in DEEPSPEED_JSON:
        return Fix("Move it to a JSON file, and name the file in deepspeed_config_file.")
    if section is DEEPSPEED and right is None:
        return Fix("Delete it. DeepSpeed's own settings belong in the JSON file that deepspeed_config_file names.")
    if other and not right:
        return Fix(f"Move it to {other.name}.")
    if written in LAUNCHER:
        above = written in config.values
        return Fix("Delete it: the top level sets it." if above else "Move it to the top level.")
    home = next((home for home in SECTIONS if home is not section and written in home.keys), None)
    if home and not is_applied(config, home):
        return Fix(f"Delete it: it belongs in {home.name}, which does not apply here.")
    return Fix("Correct the name, or delete it.")


def _accepts(config: Config, home: Section, key: str, value: Any) -> bool:
    """Whether a key would have an effect in another section of this file."""
    if key not in home.keys or not is_applied(config, home) or not isinstance(config.values.get(home.name), Mapping):
        return False
    return key not in entries(config, home) and value_fault(home.keys[key], value) is None


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/pull/3098", given=skip_if_unreadable)
def config_section_key_renamed(config: Config) -> Answer:
    """A nested section has a key under a name that accelerate no longer reads, or never did.

    Why: fsdp_backward_prefetch_policy became fsdp_backward_prefetch, and the old name was dropped in 1.0. accelerate's
    wizard writes two FP8 keys under names that no recipe reads. The keys of parallelism_config need their full name.
    None of these names is rejected; the setting is just not applied.

    Fix: Write the new name.
    """
    old = [found for found in nested_keys(config) if found[1] in found[0].renamed]
    if not old:
        return Ok("every nested key has its current name")
    return tuple(_renamed_key_problem(config, *found) for found in old)


def _renamed_key_problem(config: Config, section: Section, name: str, dotted: str, value: Any) -> Problem:
    right = section.renamed[name]
    taken = right in entries(config, section)
    lost = not taken and value is not None and is_unclear(section.keys[right], value)
    fix = Fix("Delete it.", edits=() if lost else (Edit("delete", dotted),))
    if not taken and has_effect(config, section, value, right):
        named = (config, section, dotted, value, right)
        fix = sizes_fix(config, right) if section is PARALLELISM else rename_fix(*named)
    return Problem(
        f"{dotted}: {yaml_text(value)} is not applied: accelerate reads {right}"
        + (", which the file also sets" if taken else ""),
        "accelerate accepts any key in a section, but nothing reads this name.",
        fix,
        {"key": dotted, "reads": right},
        place=place_of(config, dotted),
    )


@check(Severity.WARNING, source=PLUGINS, given=skip_if_unreadable)
def config_section_key_unread(config: Config) -> Answer:
    """A nested section has a key that accelerate wrote, but that nothing reads.

    Why: The key has no effect on training.
    More: The launcher does not pass it to the workers.

    Fix: Delete it.
    """
    # If the device is nvme, config_deepspeed_nvme_lost reports it.
    bad = [
        found
        for found in nested_keys(config)
        if found[1] in found[0].unread
        and found[3] is not None
        and not (found[1].endswith("_nvme_path") and _on_nvme(config, found[1]))
    ]
    if not bad:
        return Ok("every nested key is read")
    return tuple(
        Problem(
            f"{dotted} has no effect: {section.unread[name]}",
            fix=Fix(edits=(Edit("delete", dotted),)),
            evidence={"key": dotted},
            place=place_of(config, dotted),
        )
        for section, name, dotted, _ in bad
    )


def _on_nvme(config: Config, name: str) -> bool:
    return str(settings(config, DEEPSPEED).get(name.replace("_nvme_path", "_device"))).lower() == "nvme"


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_section_key_misplaced(config: Config) -> Answer:
    """A nested section has a top-level key.

    Why: The launcher copies every key of a section to its own arguments. This key is applied, and overrides the
    top-level key of the same name: num_processes in mpirun_config overrides num_processes.

    Fix: Move it to the top level.
    """
    bad = [found for found in nested_keys(config) if not found[0].root and found[1] in LAUNCHER]
    if not bad:
        return Ok("no section has a top-level key")
    return tuple(_misplaced_key_problem(config, name, dotted, value) for _, name, dotted, value in bad)


def _misplaced_key_problem(config: Config, name: str, dotted: str, value: Any) -> Problem:
    above = config.values.get(name)
    overridden = f" and overrides {name}: {yaml_text(above)}" if name in config.values and above != value else ""
    return Problem(
        f"{dotted}: {yaml_text(value)} is a top-level key, but is applied from here{overridden}",
        "The launcher copies every key of this section to its own arguments.",
        Fix("Write it once, at the top level."),
        {"key": dotted, "here": str(value), "above": None if above is None else str(above)},
        place=place_of(config, dotted),
    )
