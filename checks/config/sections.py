"""Do the nested sections count with this type, and is every key of theirs read by somebody?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import BROKEN, LAUNCH, PLUGINS, is_readable, place_of, readable
from ._schema import (
    DEEPSPEED,
    DEEPSPEED_JSON,
    DYNAMO,
    FP8,
    FSDP,
    LAUNCHER,
    MEGATRON,
    SECTIONS,
    compiles,
    counts,
    entries,
    named,
    precision,
    settings,
)
from ._spelling import meant, near, shown
from ._value_kinds import Section, fault

_CONFIG_DOCS = "https://huggingface.co/docs/accelerate/package_reference/cli"


@check(Severity.ERROR, source=LAUNCH)
def config_section_unreadable(config: Config) -> Answer:
    """deepspeed_config is not a mapping of keys.

    Why: accelerate launch stops with AttributeError.
    More: With distributed_type DEEPSPEED it asks the section for its keys.

    Fix: Write its keys below it, indented; a DeepSpeed file is named by deepspeed_config_file.
    """
    if not is_readable(config) or config.distributed_type != "DEEPSPEED":
        return Skip(BROKEN if not is_readable(config) else "the type is not DEEPSPEED")
    value = config.values.get(DEEPSPEED.name)
    if value is None or isinstance(value, Mapping):
        return Ok("deepspeed_config has keys")
    return Problem(f"deepspeed_config is {_form(value)}, not keys with values", place=place_of(config, DEEPSPEED.name))


@check(Severity.WARNING, source=LAUNCH, given=readable)
def config_section_not_mapping(config: Config) -> Answer:
    """A nested section is not a mapping of keys.

    Why: The defaults hold, and nobody is told.
    More: accelerate passes over the section in silence.

    Fix: indent its keys below the section's name.
    """
    values = {section.name: config.values.get(section.name) for section in SECTIONS}
    if config.distributed_type == "DEEPSPEED":
        del values[DEEPSPEED.name]  # config_section_unreadable says more
    bad = {name: value for name, value in values.items() if value and not isinstance(value, Mapping)}
    if not bad:
        return Ok(f"{counted(sum(bool(value) for value in values.values()), 'section')} with keys")
    return tuple(
        Problem(
            f"{name} is {_form(value)}, not keys with values: accelerate takes none of it",
            fix=Fix(f"Write {name}: and below it, indented, one key: value in each line."),
            place=place_of(config, name),
        )
        for name, value in bad.items()
    )


def _form(value: Any) -> str:
    return "a list" if isinstance(value, list) else shown(value)


@check(Severity.WARNING, source=LAUNCH)
def config_section_ignored(config: Config) -> Answer:
    """The config has a section for another type than it names.

    Why: fsdp_config counts only with distributed_type FSDP, deepspeed_config with DEEPSPEED. With MULTI_GPU the file
    trains plain DDP, whatever the section says.

    Fix: change the type, or delete the section.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    there = [section for section in SECTIONS if isinstance(config.values.get(section.name), Mapping)]
    bad = [section for section in there if config.values[section.name] and not counts(config, section)]
    bad = [section for section in bad if section is not DYNAMO or compiles(_by_name(config, section))]
    found = [_ignored(config, section) for section in bad]
    old = config.values.get("dynamo_backend")  # at the top level, as before 0.17
    if compiles({"dynamo_backend": old}) and config.distributed_type not in DYNAMO.types:
        found.append(_not_compiled(config, "dynamo_backend", f"dynamo_backend: {shown(old)}"))
    return tuple(found) or Ok("every section belongs to the type")


def _by_name(config: Config, section: Section) -> dict[str, Any]:
    return {section.canonical(key): value for key, value in config.values[section.name].items()}


def _ignored(config: Config, section: Section) -> Problem:
    name, kind = section.name, config.distributed_type
    if section is DYNAMO:
        return _not_compiled(config, name, name)
    if section is FP8 and kind in section.types:
        what, why = f"mixed_precision {precision(config)}", "It counts only with mixed_precision: fp8."
        fix = "Write mixed_precision: fp8, or delete the section."
    elif len(section.types) == 1:
        what, why = f"distributed_type {kind}", f"It counts only with {section.types[0]}."
        fix = f"Write distributed_type: {section.types[0]}, or delete the section."
    else:
        what, why = f"distributed_type {kind}", f"It counts only with {', '.join(section.types)}."
        fix = "Change the type, or delete the section."
    return Problem(f"{name} is ignored with {what}", why, Fix(fix), place=place_of(config, name))


def _not_compiled(config: Config, key: str, what: str) -> Problem:
    return Problem(
        f"{what} is ignored with distributed_type {config.distributed_type}",
        "The launcher exports none of it on this path: nothing is compiled.",
        Fix("Compile in the script (torch.compile, or Trainer's torch_compile), and delete it here."),
        place=place_of(config, key),
    )


@check(Severity.INFO, source=_CONFIG_DOCS)
def config_section_missing(config: Config) -> Answer:
    """The type needs a section that the config does not have.

    Why: accelerate then takes its defaults: FSDP 1 around the whole model as one unit, ZeRO-2 without offload, Megatron
    without any parallelism. Unless the script brings its own plugin, that is seldom what is meant.

    Fix: write the section.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    defaults = (
        (FSDP, "FSDP 1, the whole model as one unit"),
        (DEEPSPEED, "ZeRO-2, no offload"),
        (MEGATRON, "no parallelism"),
    )
    for section, default in defaults:
        if config.distributed_type in section.types and not config.values.get(section.name):
            return Problem(
                f"distributed_type {config.distributed_type} without {section.name}",
                f"accelerate takes its defaults: {default}.",
                Fix(f"Write {section.name}, or leave it if the script brings its own plugin.", ("mgpu configure",)),
                place=place_of(config, "distributed_type"),
            )
    return Ok(f"{config.distributed_type} has the section it needs")


@check(Severity.WARNING, source="measured accelerate 1.15 torch 2.13 2026-11", given=readable)
def config_section_key_unknown(config: Config) -> Answer:
    """A nested section has a key that accelerate does not know.

    Why: below the top level accelerate checks no names. The key is accepted, and nobody reads it: what it asks for does
    not happen.

    Fix: correct the name; DeepSpeed's own settings belong into its JSON file.
    """
    unknown = [found for found in named(config) if _is_unknown(found[0], found[1])]
    if not unknown:
        return Ok(f"{counted(sum(1 for _ in named(config)), 'nested key')}, all known")
    return tuple(_unknown(config, *found) for found in unknown)


def _is_unknown(section: Section, name: str) -> bool:
    known = name in section.keys or name in section.renamed or name in section.unread
    return not known and (section.root != "" or name not in LAUNCHER)


def _unknown(config: Config, section: Section, name: str, dotted: str, value: Any) -> Problem:
    written = dotted.removeprefix(f"{section.name}.")
    right = None if written in DEEPSPEED_JSON else near(name, section.keys, section.prefix)
    why = "it belongs into DeepSpeed's own JSON file" if written in DEEPSPEED_JSON else "accelerate does not know it"
    return Problem(
        f"{dotted} is not applied: {why}" + (f". Did you mean {right}?" if right else ""),
        "accelerate accepts any key in a section; one that nothing reads is forgotten.",
        Fix(_home(section, written, right), edits=_rename(config, section, dotted, name, value, right)),
        {"key": dotted},
        place=place_of(config, dotted),
    )


def _home(section: Section, written: str, right: str | None) -> str:
    """Where a key that has no effect here would have one."""
    other = next((home for home in SECTIONS if home is not section and written in home.keys), None)
    if section is DEEPSPEED and (written in DEEPSPEED_JSON or right is None):
        return "Delete it; a setting of DeepSpeed's own belongs into the JSON file that deepspeed_config_file names."
    if right:
        return f"Write {right}, or delete it."
    if other:
        return f"It belongs into {other.name}."
    return "It is a top-level key: write it there." if written in LAUNCHER else "Correct the name, or delete it."


def _rename(
    config: Config, section: Section, dotted: str, name: str, value: Any, right: str | None
) -> tuple[Edit, ...]:
    """The edit that gives a key its right name, where nothing else can be meant and its value can be read."""
    if right is None or meant(name.removeprefix(section.prefix), [right.removeprefix(section.prefix)]) is None:
        return ()
    return _moved(config, section, dotted, value, right)


def _moved(config: Config, section: Section, dotted: str, value: Any, right: str) -> tuple[Edit, ...]:
    key = section.keys[right]
    after = {**settings(config, section), right: value}
    if right in entries(config, section) or fault(key, value) or (key.read and not key.read(after)):
        return ()
    return (Edit("rename", dotted, to=f"{section.name}.{right}"),)


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/pull/3098", given=readable)
def config_section_key_renamed(config: Config) -> Answer:
    """A nested section has a key under a name that accelerate no longer reads, or never did.

    Why: fsdp_backward_prefetch_policy became fsdp_backward_prefetch, and its old name was dropped in 1.0; the wizard
    writes two FP8 keys under names that no recipe reads; the keys of parallelism_config need their full name. None of
    this is refused: the setting is just not applied.

    Fix: write the new name.
    """
    old = [found for found in named(config) if found[1] in found[0].renamed]
    if not old:
        return Ok("every nested key has its present name")
    return tuple(_renamed(config, *found) for found in old)


def _renamed(config: Config, section: Section, name: str, dotted: str, value: Any) -> Problem:
    right = section.renamed[name]
    taken = right in entries(config, section)
    edits = (Edit("delete", dotted),) if taken else _moved(config, section, dotted, value, right)
    return Problem(
        f"{dotted}: {shown(value)} is not applied: accelerate reads {right}"
        + (", which the file has as well" if taken else ""),
        "accelerate accepts any key in a section; this name is read by nothing.",
        Fix("Delete it." if taken else f"Write {right}: {shown(value)}.", edits=edits),
        {"key": dotted, "reads": right},
        place=place_of(config, dotted),
    )


@check(Severity.WARNING, source=PLUGINS, given=readable)
def config_section_key_unread(config: Config) -> Answer:
    """A nested section has a key that accelerate once wrote, or still writes, and that nothing reads.

    Why: Without it the training is the same.
    More: The launcher does not hand it to the workers.

    Fix: Delete it.
    """
    # Where the device is nvme, config_deepspeed_nvme_lost says more.
    bad = [
        found
        for found in named(config)
        if found[1] in found[0].unread
        and found[3] is not None
        and not (found[1].endswith("_nvme_path") and _on_nvme(config, found[1]))
    ]
    if not bad:
        return Ok("every nested key is read by somebody")
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


@check(Severity.WARNING, source=LAUNCH, given=readable)
def config_section_key_misplaced(config: Config) -> Answer:
    """A nested section has a key of the top level.

    Why: the launcher copies whatever a section says onto its own arguments, so this one is applied, and beats the key
    of the same name at the top level: num_processes in mpirun_config overrides num_processes.

    Fix: move it to the top level.
    """
    bad = [found for found in named(config) if not found[0].root and found[1] in LAUNCHER]
    if not bad:
        return Ok("no section has a key of the top level")
    return tuple(_misplaced(config, name, dotted, value) for _, name, dotted, value in bad)


def _misplaced(config: Config, name: str, dotted: str, value: Any) -> Problem:
    above = config.values.get(name)
    beaten = f" and beats {name}: {shown(above)}" if name in config.values and above != value else ""
    return Problem(
        f"{dotted}: {shown(value)} is a key of the top level: it is applied from here{beaten}",
        "The launcher copies every key of this section onto its own arguments.",
        Fix("Write it once, at the top level."),
        {"key": dotted, "here": str(value), "above": None if above is None else str(above)},
        place=place_of(config, dotted),
    )
