"""Which layers does fsdp_config wrap as separate FSDP units?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._config_file import PLUGINS, place_of
from ._schema import FSDP, entries, fsdp_settings, fsdp_version, policy, skip_without_fsdp
from ._spelling import yaml_text

_POLICY = "fsdp_config.fsdp_auto_wrap_policy"
# Names that no layer of transformers has, but that are like one: LlamaLayer for LlamaDecoderLayer.
_LIKE_A_LAYER = re.compile(r"^(Llama|Mistral|Mixtral|Qwen[23](?:Moe)?|Gemma[23]?|Phi3|Cohere|Olmo2?)(?:Layer|Block)$")
_READERS = {"fsdp_transformer_layer_cls_to_wrap": "TRANSFORMER_BASED_WRAP", "fsdp_min_num_params": "SIZE_BASED_WRAP"}


def edits_for_wrapping(config: Config, key: str) -> tuple[Edit, ...]:
    """Return the edit that sets the policy which reads a key, if the file sets no policy."""
    if key not in _READERS or fsdp_settings(config).get("fsdp_auto_wrap_policy") is not None:
        return ()
    return (Edit("set", entries(config, FSDP).get("fsdp_auto_wrap_policy", _POLICY), _READERS[key]),)


def is_list_of_classes(value: object) -> bool:
    """Whether a value is text with class names, separated by commas only."""
    return isinstance(value, str) and all(name and name == name.strip() for name in value.split(","))


@check(Severity.ERROR, source=PLUGINS)
def config_fsdp_layer_unreadable(config: Config) -> Answer:
    """fsdp_transformer_layer_cls_to_wrap is not a comma-separated list of class names.

    Why: The plugin splits the text at commas and looks up each part unchanged, so every worker stops.
    More: Spaces are part of the name, a list becomes the text "['A', 'B']", and an empty text is looked up too: "Could
    not find the transformer layer class".

    Fix: Delete the key to use the model's own list, or write class names separated by commas without spaces.
    More: The model must have every class in the list, otherwise the workers stop, too.
    """
    values = fsdp_settings(config)
    if policy(values) != "TRANSFORMER_BASED_WRAP" or "fsdp_transformer_layer_cls_to_wrap" not in values:
        return Skip("no layer class is set")
    value = values["fsdp_transformer_layer_cls_to_wrap"]
    at = entries(config, FSDP)["fsdp_transformer_layer_cls_to_wrap"]
    if value is None:
        return Ok("the model's own list")
    if is_list_of_classes(value):
        return Ok(str(value))
    names = value if isinstance(value, list) else str(value).split(",")
    clean = [str(name).strip() for name in names if isinstance(name, str) and name.strip()]
    what = "is a list" if isinstance(value, list) else "names no class" if not clean else "has spaces or empty names"
    return Problem(
        f"{at}: {yaml_text(value)} {what}",
        fix=_layer_fix(at, clean, is_empty=not value),
        place=place_of(config, at),
    )


def _layer_fix(at: str, names: list[str], *, is_empty: bool) -> Fix:
    """Return the fix for a list of classes: the model has them, or a library's classes have names like these."""
    text = "Delete it to use the model's own _no_split_modules"
    if not names:
        return Fix(f"{text}.", edits=(Edit("delete", at),) if is_empty else ())
    written = ",".join(names)
    right = ",".join(dict.fromkeys(_LIKE_A_LAYER.sub(r"\1DecoderLayer", name) for name in names))
    if right != written:
        return Fix(f"{text}, or write {right}: in transformers, these layers have that name.")
    return Fix(f"{text}, or write {written} if the model has these classes.", edits=(Edit("set", at, written),))


@check(Severity.WARNING, source=PLUGINS, given=skip_without_fsdp)
def config_fsdp_layer_unused(config: Config) -> Answer:
    """fsdp_config sets what to wrap, but not the policy that uses it.

    Why: fsdp_transformer_layer_cls_to_wrap applies only with TRANSFORMER_BASED_WRAP, fsdp_min_num_params only with
    SIZE_BASED_WRAP. Without the policy, the whole model is one unit: all its weights are gathered at once, which saves
    little memory.

    Fix: Set the policy that reads the key.
    """
    values = fsdp_settings(config)
    chosen, dotted = policy(values), entries(config, FSDP)
    if chosen == "SIZE_BASED_WRAP" and str(values.get("fsdp_min_num_params", 1)) == "0":
        return _no_wrap(
            config, dotted["fsdp_min_num_params"], ": 0 wraps nothing", "Write the size of a layer: 1000000."
        )
    for key, reader in _READERS.items():
        if chosen == "NO_WRAP" and values.get(key):
            edits = edits_for_wrapping(config, key)
            title = f" is not applied without fsdp_auto_wrap_policy: {reader}"
            return _no_wrap(config, dotted[key], title, f"Write fsdp_auto_wrap_policy: {reader}.", edits)
    return Ok(f"fsdp_auto_wrap_policy {chosen}")


def _no_wrap(config: Config, at: str, title: str, fix: str, edits: tuple[Edit, ...] = ()) -> Problem:
    return Problem(
        f"{at}{title}",
        "The whole model is one FSDP unit: every rank gathers all weights at once.",
        Fix(fix, edits=edits),
        place=place_of(config, at),
    )


@check(Severity.WARNING, source=PLUGINS, given=skip_without_fsdp)
def config_fsdp_policy_missing(config: Config) -> Answer:
    """fsdp_config has no fsdp_auto_wrap_policy.

    Why: The whole model is one FSDP unit, so every rank gathers all weights at once.
    More: Memory at the peak is that of the whole model, and nothing overlaps with communication. accelerate has no
    default policy, in neither version of FSDP, and Trainer adds none.

    Fix: Write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP.
    More: transformers models declare the layers to wrap. For your own model, also write the class of its layers:
    fsdp_transformer_layer_cls_to_wrap. If one unit is intended, write NO_WRAP.
    """
    values = fsdp_settings(config)
    if "fsdp_auto_wrap_policy" in config.given:
        return Ok("the command line sets it")
    if values.get("fsdp_auto_wrap_policy") is not None:
        return Ok(f"fsdp_auto_wrap_policy {policy(values)}")
    if values.get("fsdp_transformer_layer_cls_to_wrap") is not None or values.get("fsdp_min_num_params"):
        return Ok("covered by config_fsdp_layer_unused")
    if config.num_processes == 1:
        return Ok("one rank shards nothing")
    return Problem(
        f"FSDP {fsdp_version(values)} without fsdp_auto_wrap_policy: the whole model is one unit",
        place=place_of(config, "fsdp_config"),
    )


@check(Severity.INFO, source=PLUGINS, given=skip_without_fsdp, tags=("no_consequence",))
def config_fsdp_layer_unnamed(config: Config) -> Answer:
    """fsdp_config does not name the class of the layers to wrap.

    Why: With TRANSFORMER_BASED_WRAP and no class, accelerate wraps the model's own _no_split_modules.
    More: transformers models declare them. If another model has none, the whole model is silently one unit.

    Fix: For your own model, write fsdp_transformer_layer_cls_to_wrap: with the class of its layers.
    More: transformers models need no change.
    """
    values = fsdp_settings(config)
    named = values.get("fsdp_transformer_layer_cls_to_wrap") is not None  # config_fsdp_layer_unreadable checks it
    if named or policy(values) != "TRANSFORMER_BASED_WRAP":
        return Ok(f"fsdp_auto_wrap_policy {policy(values)}")
    title = "no layer class is set: the model's own _no_split_modules are wrapped"
    return Problem(title, place=place_of(config, entries(config, FSDP)["fsdp_auto_wrap_policy"]))
