"""Which layers does fsdp_config wrap as separate FSDP units?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._config_file import PLUGINS, place_of
from ._schema import FSDP, entries, fsdp_settings, policy, skip_without_fsdp
from ._spelling import yaml_text


@check(Severity.ERROR, source=PLUGINS)
def config_fsdp_layer_unreadable(config: Config) -> Answer:
    """fsdp_transformer_layer_cls_to_wrap is not a comma-separated list of class names.

    Why: The plugin splits the text at commas and looks up each part unchanged, so every worker stops.
    More: Spaces are part of the name, a list becomes the text "['A', 'B']", and an empty text is looked up too: "Could
    not find the transformer layer class".

    Fix: Write class names separated by commas without spaces, or delete the key to use the model's own list.
    """
    values = fsdp_settings(config)
    if policy(values) != "TRANSFORMER_BASED_WRAP" or "fsdp_transformer_layer_cls_to_wrap" not in values:
        return Skip("no layer class is set")
    value = values["fsdp_transformer_layer_cls_to_wrap"]
    at = entries(config, FSDP)["fsdp_transformer_layer_cls_to_wrap"]
    if value is None:
        return Ok("the model's own list")
    if isinstance(value, str) and value and all(name and name == name.strip() for name in value.split(",")):
        return Ok(value)
    names = value if isinstance(value, list) else str(value).split(",")
    clean = [str(name).strip() for name in names if isinstance(name, str) and name.strip()]
    edit = Edit("set", at, ",".join(clean)) if clean else Edit("delete", at)
    what = "is a list" if isinstance(value, list) else "names no class" if not clean else "has spaces or empty names"
    return Problem(
        f"{at}: {yaml_text(value)} {what}",
        fix=Fix(
            f"Write {','.join(clean)}." if clean else "Delete it to use the model's own _no_split_modules.",
            edits=(edit,) if clean or not value else (),
        ),
        place=place_of(config, at),
    )


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
    readers = {"fsdp_transformer_layer_cls_to_wrap": "TRANSFORMER_BASED_WRAP", "fsdp_min_num_params": "SIZE_BASED_WRAP"}
    for key, reader in readers.items():
        if chosen == "NO_WRAP" and values.get(key):
            absent = "fsdp_auto_wrap_policy" not in values
            edits = (Edit("set", "fsdp_config.fsdp_auto_wrap_policy", reader),) if absent else ()
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


@check(Severity.INFO, source=PLUGINS, given=skip_without_fsdp)
def config_fsdp_layer_unnamed(config: Config) -> Answer:
    """fsdp_config does not set which layers to wrap.

    Why: transformers models declare their layers. Other models are gathered as a whole.
    More: Without a policy, the whole model is one unit. With TRANSFORMER_BASED_WRAP and no class, accelerate uses the
    model's own _no_split_modules. If it has none, the whole model is silently one unit.

    Fix: For your own model, write fsdp_transformer_layer_cls_to_wrap: with the class of its layers.
    More: transformers models need no change.
    """
    values = fsdp_settings(config)
    named = (
        values.get("fsdp_transformer_layer_cls_to_wrap") is not None
    )  # config_fsdp_layer_unreadable checks the value
    if named or policy(values) == "SIZE_BASED_WRAP" or values.get("fsdp_auto_wrap_policy") is not None:
        if named or policy(values) != "TRANSFORMER_BASED_WRAP":
            return Ok(f"fsdp_auto_wrap_policy {policy(values)}")
        title = "no layer class is set: the model's own _no_split_modules are wrapped"
        at = entries(config, FSDP)["fsdp_auto_wrap_policy"]
    elif values.get("fsdp_min_num_params"):
        return Ok("covered by config_fsdp_layer_unused")
    else:
        title, at = "fsdp_config has no fsdp_auto_wrap_policy: the whole model is one FSDP unit", "fsdp_config"
    return Problem(title, place=place_of(config, at))
